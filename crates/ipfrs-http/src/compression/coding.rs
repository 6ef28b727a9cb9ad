//! Content codings and their encoders.

use std::fmt;
use std::io::{self, Write};

use super::level::CompressionLevel;
use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression as Effort;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde::Deserialize;
use zstd::stream::write::Encoder as ZstdEncoder;

/// Window size of encoders, as a power of two. Each compressed response holds a few times this many bytes while its
/// client reads, so that clients with thousands of requests cannot occupy megabytes with each.
const WINDOW_LOG: u32 = 19;
/// Size of brotli's output buffer, in bytes.
const BROTLI_BUFFER_BYTES: usize = 16 * 1024;

/// A content coding (RFC 9110, section 8.4.1; RFC 7932, RFC 8878), in the default order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Zstandard: high compression and fast.
    Zstd,
    /// Brotli: highest compression for text.
    Br,
    /// gzip: supported everywhere.
    Gzip,
    /// The zlib format, despite the name.
    Deflate,
}

impl Coding {
    /// All codings, in the default order of preference.
    pub const ALL: [Self; 4] = [Self::Zstd, Self::Br, Self::Gzip, Self::Deflate];

    /// Returns the name in `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// Returns the coding with a name in `Accept-Encoding`, ignoring case. `x-gzip` is an old name of gzip (RFC 9110,
    /// 8.4.1.3).
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let name = if name.eq_ignore_ascii_case("x-gzip") { "gzip" } else { name };
        Self::ALL.into_iter().find(|coding| coding.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CompressionLevel {
    /// Returns the maximum number of bytes that are compressed on the current thread, which takes a fraction of a
    /// millisecond. Larger batches run on a blocking thread, as do all batches at levels at which brotli would need
    /// tens of milliseconds for that many bytes.
    pub(super) fn inline_bytes(self) -> usize {
        match self {
            Self::Fastest | Self::Balanced | Self::Number(..=3) => 16 * 1024,
            Self::Best | Self::Number(_) => 0,
        }
    }

    fn of(self, coding: Coding) -> u8 {
        let max_level = match coding {
            Coding::Zstd => 19,
            Coding::Br => 11,
            Coding::Gzip | Coding::Deflate => 9,
        };
        match (self, coding) {
            (Self::Fastest, _) => 1,
            (Self::Balanced, _) => 3,
            (Self::Best, Coding::Zstd) => 15,
            // The two highest levels of brotli cost ten times as much for little gain.
            (Self::Best, _) => 9,
            (Self::Number(number), _) => number.min(max_level),
        }
    }
}

/// Encoder of one body. Output accumulates in memory until it is taken.
pub(super) enum Encoder {
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Br(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
}

impl Encoder {
    /// Creates an encoder for a body of `length` bytes, if that is known.
    ///
    /// # Errors
    /// If memory for it cannot be allocated.
    pub(super) fn new(coding: Coding, level: CompressionLevel, length: Option<u64>) -> io::Result<Self> {
        let level = level.of(coding);
        let effort = Effort::new(u32::from(level));
        Ok(match coding {
            Coding::Zstd => {
                let mut encoder = ZstdEncoder::new(Vec::new(), i32::from(level))?;
                encoder.window_log(WINDOW_LOG)?;
                encoder.set_pledged_src_size(length)?;
                Self::Zstd(encoder)
            }
            Coding::Br => {
                let params = BrotliEncoderParams {
                    quality: i32::from(level),
                    lgwin: WINDOW_LOG as i32,
                    size_hint: length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0),
                    ..BrotliEncoderParams::default()
                };
                Self::Br(Box::new(CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &params)))
            }
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), effort)),
            Coding::Deflate => Self::Deflate(ZlibEncoder::new(Vec::new(), effort)),
        })
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Zstd(encoder) => encoder,
            Self::Br(encoder) => encoder,
            Self::Gzip(encoder) => encoder,
            Self::Deflate(encoder) => encoder,
        }
    }

    /// Compresses more of the body.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)
    }

    /// Flushes the encoder, so that a client can decode all input so far from the output so far.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// Takes the output produced since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Br(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Deflate(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the body and returns the rest of the output.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Br(encoder) => Ok(encoder.into_inner()),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Deflate(encoder) => encoder.finish(),
        }
    }
}
