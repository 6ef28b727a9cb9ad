//! Compressed messages (<https://github.com/grpc/grpc/blob/master/doc/compression.md>): which coding those of a call are
//! in, and the work of coding one. [`recoded`] does it to bodies.

mod recoded;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::thread::available_parallelism;

use axum::body::Body;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::Error;
use tokio::sync::Semaphore;
use tonic::Status;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::error;
use recoded::{Recoded, Work};

/// Codings that a peer reads, in the order that it likes them.
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The coding of those messages that are compressed.
pub(crate) const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// No coding, by its name in both.
const IDENTITY: &str = "identity";
/// What is read here.
const READ_HERE: HeaderValue = HeaderValue::from_static("zstd,gzip,identity");

/// How hard either coding tries: that of `compression.level = "balanced"`.
const LEVEL: u8 = 3;
/// Largest window of zstd that is taken, as a power of two: the one that RFC 8878, section 3.1.1.1.2, asks all decoders
/// to take.
const MAX_WINDOW_LOG: u32 = 23;

/// Most answers that are compressed at the same time. Each holds a message and what becomes of it for as long as its
/// client reads nothing; others go as they are, as slices of mapped packs.
const MAX_ANSWERS: usize = 256;

/// A coding of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Zstd,
}

/// Why a message cannot be decompressed.
#[derive(Debug)]
enum Unreadable {
    /// It has more bytes than it may have.
    TooLarge,
    /// It is not in its coding.
    Malformed(io::Error),
    /// The stream ended within it.
    CutOff,
}

impl Coding {
    const ALL: [Self; 2] = [Self::Gzip, Self::Zstd];

    /// The name in headers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// Compresses a message.
    ///
    /// # Errors
    /// When there is no memory for it.
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

    /// Decompresses a message that may have `most` bytes.
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

/// The codings of all calls, with the bounds of what they cost.
#[derive(Debug)]
pub(crate) struct Coder {
    /// For work on blocking threads: as many turns as there are cores.
    turns: Arc<Semaphore>,
    /// For answers that are compressed.
    places: Arc<Semaphore>,
}

impl Coder {
    /// Where answers are not compressed, there is no place for any.
    pub(crate) fn new(compresses_answers: bool) -> Self {
        let turns = available_parallelism().map_or(1, usize::from);
        let places = if compresses_answers { MAX_ANSWERS } else { 0 };
        Self { turns: Arc::new(Semaphore::new(turns)), places: Arc::new(Semaphore::new(places)) }
    }

    /// The body of an answer with its messages in a coding; as it is where none is compressed, or too many are already.
    ///
    /// # Errors
    /// Gives the body back then.
    pub(crate) fn compress(&self, body: Body, coding: Coding) -> Result<Body, Body> {
        let Ok(place) = self.places.clone().try_acquire_owned() else { return Err(body) };
        Ok(Body::new(Recoded::new(body, Work::Compress(coding), self.turns.clone(), Some(place))))
    }

    /// The body of a request with its messages as they were before they were coded, of at most `most` bytes each.
    pub(crate) fn decompress(&self, body: Body, coding: Coding, most: usize) -> Body {
        Body::new(Recoded::new(body, Work::Decompress { coding, most }, self.turns.clone(), None))
    }
}

/// How the messages of a call are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Codings {
    /// Those of the client.
    pub(crate) request: Option<Coding>,
    /// Ours.
    pub(crate) answer: Option<Coding>,
}

impl Codings {
    /// Takes what they are out of the headers of a request: who answers it has nothing to do with codings.
    ///
    /// # Errors
    /// Names a coding of the client's that is not read here, which the specification wants told as UNIMPLEMENTED.
    pub(crate) fn take(headers: &mut HeaderMap) -> Result<Self, Status> {
        let request = match headers.remove(GRPC_ENCODING) {
            None => None,
            Some(name) if name == IDENTITY => None,
            Some(name) => {
                Some(Coding::ALL.into_iter().find(|coding| name == coding.name()).ok_or_else(|| unread(&name))?)
            }
        };
        let lists = headers.get_all(GRPC_ACCEPT_ENCODING);
        let accepted: Vec<_> = lists
            .iter()
            .filter_map(|list| list.to_str().ok())
            .flat_map(|list| list.split(','))
            .map(str::trim)
            .collect();
        let answer = wished(request, &accepted);
        headers.remove(GRPC_ACCEPT_ENCODING);
        Ok(Self { request, answer })
    }
}

/// What a client wants to be answered in. Most name all that they could read in each call, and would not have a gigabyte
/// go through gzip for that: `identity,deflate,gzip` in C++, Python, Ruby and Node, `identity,gzip,deflate` in .NET,
/// `gzip` in Java and Go. So a client is answered in the coding that it uses itself; in zstd where it reads that, as none
/// does by default; and in gzip where it says that it likes `identity` less.
fn wished(request: Option<Coding>, accepted: &[&str]) -> Option<Coding> {
    let place = |name: &str| accepted.iter().position(|known| *known == name);
    let prefers_gzip = || (place(Coding::Gzip.name())? < place(IDENTITY)?).then_some(Coding::Gzip);
    request
        .filter(|coding| place(coding.name()).is_some())
        .or_else(|| place(Coding::Zstd.name()).map(|_| Coding::Zstd))
        .or_else(prefers_gzip)
}

fn unread(name: &HeaderValue) -> Status {
    let why = format!("messages in the coding {name:?} (grpc-encoding) are not read here: gzip, zstd and identity are");
    error::status(Error::unsupported(why))
}

/// Tells a client that was refused what it may use.
pub(crate) fn advertise(headers: &mut HeaderMap) {
    headers.insert(GRPC_ACCEPT_ENCODING, READ_HERE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_coding_gets_it_and_who_only_reads_it_does_not() {
        let (gzip, zstd) = (Some(Coding::Gzip), Some(Coding::Zstd));
        for (encoding, accepted, request, answer) in [
            ("", "", None, None),
            // By default: C++, Python, Ruby and Node; .NET; Java and Go.
            ("", "identity,deflate,gzip", None, None),
            ("", "identity,gzip,deflate", None, None),
            ("", "gzip", None, None),
            // Channels that compress, of the same.
            ("gzip", "identity, deflate, gzip", gzip, gzip),
            ("identity", "identity,deflate,gzip", None, None),
            ("gzip", "gzip", gzip, gzip),
            // What tonic says for those who ask for answers to be compressed.
            ("", "gzip,identity", None, gzip),
            ("", "zstd,identity", None, zstd),
            ("", "gzip,zstd,identity", None, zstd),
            ("gzip", "gzip,zstd,identity", gzip, gzip),
            ("zstd", "gzip,zstd,identity", zstd, zstd),
            ("", "identity,gzip,zstd", None, zstd),
            // Who compresses need not read what is compressed.
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
    fn so_many_answers_are_compressed_at_the_same_time_and_no_more() {
        let coder = Coder::new(true);
        let mut held: Vec<_> = (0..MAX_ANSWERS).map(|_| coder.compress(Body::empty(), Coding::Gzip).unwrap()).collect();
        assert!(coder.compress(Body::empty(), Coding::Zstd).is_err());
        held.pop();
        assert!(coder.compress(Body::empty(), Coding::Zstd).is_ok());
        assert!(Coder::new(false).compress(Body::empty(), Coding::Zstd).is_err(), "compression.enabled = false");
    }
}
