//! The content codings, and what encodes them.

use std::fmt;
use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression as Effort;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde::Deserialize;
use zstd::stream::write::Encoder as ZstdEncoder;

use super::CompressionLevel;

/// How far back an encoder looks, as a power of two. Each compressed answer holds a few times as many bytes while its
/// client reads it: whoever sends thousands of them cannot spend megabytes on each.
const WINDOW_LOG: u32 = 19;
/// The buffer through which brotli hands out what it has made.
const BROTLI_BUFFER_BYTES: usize = 16 * 1024;

/// A content coding (RFC 9110, section 8.4.1; RFC 7932, RFC 8878), in the order of preference by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Zstandard: small and fast.
    Zstd,
    /// Brotli: smallest for text.
    Br,
    /// gzip: known everywhere.
    Gzip,
    /// The zlib format, whatever its name says.
    Deflate,
}

impl Coding {
    /// All of them, in the order of preference by default.
    pub const ALL: [Self; 4] = [Self::Zstd, Self::Br, Self::Gzip, Self::Deflate];

    /// The name in `Content-Encoding`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Br => "br",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The coding of a name in `Accept-Encoding`, whatever its case. `x-gzip` is what gzip was called before (RFC 9110,
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
    /// Most bytes that are compressed where they are: a fraction of a millisecond of work. More goes to a blocking thread, as
    /// does everything at levels at which brotli needs tens of milliseconds for so much.
    pub(super) fn inline_bytes(self) -> usize {
        match self {
            Self::Fastest | Self::Balanced | Self::Number(..=3) => 16 * 1024,
            Self::Best | Self::Number(_) => 0,
        }
    }

    fn of(self, coding: Coding) -> u8 {
        let most = match coding {
            Coding::Zstd => 19,
            Coding::Br => 11,
            Coding::Gzip | Coding::Deflate => 9,
        };
        match (self, coding) {
            (Self::Fastest, _) => 1,
            (Self::Balanced, _) => 3,
            (Self::Best, Coding::Zstd) => 15,
            // Brotli's two last steps cost ten times as much and give little.
            (Self::Best, _) => 9,
            (Self::Number(number), _) => number.min(most),
        }
    }
}

/// One body on its way into a coding. What is made gathers in memory until it is taken.
pub(super) enum Encoder {
    Zstd(ZstdEncoder<'static, Vec<u8>>),
    Br(Box<CompressorWriter<Vec<u8>>>),
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
}

impl Encoder {
    /// One for a body of `length` bytes, where that is known.
    ///
    /// # Errors
    /// When there is no memory for it.
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

    /// Takes more of the body in.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes)
    }

    /// Makes everything that was taken in decodable by whoever has all that was given out.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// Gives out what has been made since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Self::Zstd(encoder) => encoder.get_mut(),
            Self::Br(encoder) => encoder.get_mut(),
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Deflate(encoder) => encoder.get_mut(),
        })
    }

    /// Ends the body, and gives out the rest.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Zstd(encoder) => encoder.finish(),
            Self::Br(encoder) => Ok(encoder.into_inner()),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Deflate(encoder) => encoder.finish(),
        }
    }
}
