//! Compressed messages (<https://github.com/grpc/grpc/blob/master/doc/compression.md>): negotiation of the codings of
//! a call, and coding of single messages. [`recoded`] applies them to bodies.

mod transcoded;

use std::io::{self, Read, Write};
use std::sync::Arc;

use axum::body::Body;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::{Error, cores};
use tokio::sync::Semaphore;
use tonic::Status;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::error;
use transcoded::{TranscodedBody, Work};

/// Codings that a peer accepts, in order of preference.
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// Coding of the compressed messages.
pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// Name of the identity coding in both headers.
const IDENTITY: &str = "identity";
/// Codings that this server accepts.
const READ_HERE: HeaderValue = HeaderValue::from_static("zstd,gzip,identity");

/// Compression level of both codings, the same as for `compression.level = "balanced"`.
const LEVEL: u8 = 3;
/// Maximum window size of zstd, as a power of two: the size that RFC 8878, section 3.1.1.1.2, recommends all decoders
/// to support.
const MAX_WINDOW_LOG: u32 = 23;

/// Maximum number of responses that are compressed at the same time. While its client does not read, each holds a
/// message and its compressed form. Further responses are sent uncompressed, as slices of mapped packs.
const MAX_ANSWERS: usize = 256;

/// A coding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Zstd,
}

/// Reason why a message cannot be decompressed.
#[derive(Debug)]
enum Unreadable {
    /// It exceeds the size limit.
    TooLarge,
    /// It is not valid in its coding.
    Malformed(io::Error),
    /// The stream ended within it.
    CutOff,
}

impl Coding {
    const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// Returns the name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Compresses a message.
    ///
    /// # Errors
    /// There is not enough memory.
    fn compress(self, message: &[u8]) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(LEVEL.into()));
                encoder.write_all(message)?;
                encoder.finish()
            }
            Self::Zstd => zstd::bulk::compress(message, LEVEL.into()),
        }
    }

    /// Decompresses a message of at most `most` bytes.
    fn decompress(self, message: &[u8], most: usize) -> Result<Vec<u8>, Unreadable> {
        let (mut whole, limit) = (Vec::new(), (most as u64).saturating_add(1));
        let read = match self {
            Self::Gzip => MultiGzDecoder::new(message).take(limit).read_to_end(&mut whole),
            Self::Zstd => ZstdDecoder::with_buffer(message).and_then(|mut decoder| {
                decoder.window_log_max(MAX_WINDOW_LOG)?;
                decoder.take(limit).read_to_end(&mut whole)
            }),
        };
        match read {
            Ok(bytes) if bytes <= most => Ok(whole),
            Ok(_) => Err(Unreadable::TooLarge),
            Err(e) => Err(Unreadable::Malformed(e)),
        }
    }
}

/// Limits on the compression work of all calls.
#[derive(Debug)]
pub(crate) struct Coder {
    /// Permits for work on blocking threads, one per core.
    cpu_permits: Arc<Semaphore>,
    /// Permits for compressed responses.
    places: Arc<Semaphore>,
}

impl Coder {
    /// Without `compresses_answers` there are no permits for compressed responses.
    pub(crate) fn new(compresses_answers: bool) -> Self {
        let cpu_permits = cores();
        let places = if compresses_answers { MAX_ANSWERS } else { 0 };
        Self { cpu_permits: Arc::new(Semaphore::new(cpu_permits)), places: Arc::new(Semaphore::new(places)) }
    }

    /// Returns the body of a response with its messages compressed.
    ///
    /// # Errors
    /// Returns `body` unchanged if compression is disabled or too many responses are being compressed.
    pub(crate) fn compress(&self, body: Body, coding: Coding) -> Result<Body, Body> {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(body) };
        Ok(Body::new(TranscodedBody::new(body, Work::Compress(coding), self.cpu_permits.clone(), Some(place))))
    }

    /// Returns the body of a request with its messages decompressed, each with at most `most` bytes.
    pub(crate) fn decompress(&self, body: Body, coding: Coding, most: usize) -> Body {
        Body::new(TranscodedBody::new(body, Work::Decompress { coding, most }, self.cpu_permits.clone(), None))
    }
}

/// Codings of the messages of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Codings {
    /// Coding of the request.
    pub(crate) request: Option<Coding>,
    /// Coding of the response.
    pub(crate) answer: Option<Coding>,
}

impl Codings {
    /// Removes the codings from the headers of a request, because methods do not handle codings.
    ///
    /// # Errors
    /// UNIMPLEMENTED if the coding of the request is not supported, as the specification requires. The message
    /// contains its name.
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<Self, Status> {
        let request = match headers.remove(GRPC_ENCODING) {
            None => None,
            Some(name) if name == IDENTITY => None,
            Some(name) => Some(
                Coding::ALL
                    .into_iter()
                    .find(|coding| name == coding.name())
                    .ok_or_else(|| unsupported_coding(&name))?,
            ),
        };
        let lists = headers.get_all(GRPC_ACCEPT_ENCODING);
        let accepted: Vec<_> = lists
            .iter()
            .filter_map(|list| list.to_str().ok())
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .collect();
        let answer = choose_coding(request, &accepted);
        headers.remove(GRPC_ACCEPT_ENCODING);
        Ok(Self { request, answer })
    }
}

/// Chooses the coding of a response. By default, most clients list every coding that they support in each call, and
/// do not expect gzip for a gigabyte of data: `identity,deflate,gzip` in C++, Python, Ruby and Node,
/// `identity,gzip,deflate` in .NET, `gzip` in Java and Go. The response therefore uses the coding of the request.
/// Otherwise it uses zstd if the client accepts it, which no client does by default, or gzip if the client lists it
/// before `identity`.
fn choose_coding(request: Option<Coding>, accepted: &[&str]) -> Option<Coding> {
    let place = |name: &str| accepted.iter().position(|known| *known == name);
    let prefers_gzip = || (place(Coding::Gzip.name())? < place(IDENTITY)?).then_some(Coding::Gzip);
    request
        .filter(|coding| place(coding.name()).is_some())
        .or_else(|| place(Coding::Zstd.name()).map(|_| Coding::Zstd))
        .or_else(prefers_gzip)
}

fn unsupported_coding(name: &HeaderValue) -> Status {
    let why = format!("messages with grpc-encoding {name:?} are not supported: use gzip, zstd or identity");
    error::status(Error::unsupported(why))
}

/// Adds the supported codings to the response for a client whose coding was refused.
pub(crate) fn advertise(headers: &mut HeaderMap) {
    headers.insert(GRPC_ACCEPT_ENCODING, READ_HERE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coding_is_used_if_preferred_not_if_only_supported() {
        let (gzip, zstd) = (Some(Coding::Gzip), Some(Coding::Zstd));
        for (encoding, accepted, request, answer) in [
            ("", "", None, None),
            // Defaults of C++, Python, Ruby and Node; of .NET; of Java and Go.
            ("", "identity,deflate,gzip", None, None),
            ("", "identity,gzip,deflate", None, None),
            ("", "gzip", None, None),
            // The same clients with compression enabled on the channel.
            ("gzip", "identity, deflate, gzip", gzip, gzip),
            ("identity", "identity,deflate,gzip", None, None),
            ("gzip", "gzip", gzip, gzip),
            // tonic, if the client accepts compressed responses.
            ("", "gzip,identity", None, gzip),
            ("", "zstd,identity", None, zstd),
            ("", "gzip,zstd,identity", None, zstd),
            ("gzip", "gzip,zstd,identity", gzip, gzip),
            ("zstd", "gzip,zstd,identity", zstd, zstd),
            ("", "identity,gzip,zstd", None, zstd),
            // A client that compresses does not have to accept compressed messages.
            ("zstd", "", zstd, None),
            ("zstd", "gzip,identity", zstd, gzip),
        ] {
            let sent = [(GRPC_ENCODING, encoding), (GRPC_ACCEPT_ENCODING, accepted)];
            let sent = sent.into_iter().filter(|(_, value)| !value.is_empty());
            let mut headers: HeaderMap = sent.map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
            let found = Codings::take(&mut headers).unwrap();
            assert_eq!(found, Codings { request, answer }, "{encoding:?}, {accepted:?}");
            assert!(headers.is_empty());
        }
        let mut headers = HeaderMap::from_iter([(GRPC_ENCODING, HeaderValue::from_static("br"))]);
        let refused = Codings::take(&mut headers).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unimplemented, "{refused}");
    }

    #[test]
    fn concurrent_response_compression_is_limited() {
        let coder = Coder::new(true);
        let mut held: Vec<_> = (0..MAX_ANSWERS).map(|_| coder.compress(Body::empty(), Coding::Gzip).unwrap()).collect();
        assert!(coder.compress(Body::empty(), Coding::Zstd).is_err());
        held.pop();
        assert!(coder.compress(Body::empty(), Coding::Zstd).is_ok());
        assert!(Coder::new(false).compress(Body::empty(), Coding::Zstd).is_err(), "compression.enabled = false");
    }
}
