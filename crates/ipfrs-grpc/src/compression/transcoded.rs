//! Bodies whose messages are compressed or decompressed in transit: small messages inline, large ones on a blocking
//! thread.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body::{Body as HttpBody, Frame};
use ipfrs_core::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tonic::Status;

use super::{Coding, Unreadable};
use crate::error;
use crate::zero_copy::{GATHERED_BYTES, PREFIX_BYTES};

/// Flag of a compressed message. [`PLAIN`] is that of an uncompressed one. Other flags are invalid, and the message
/// decoder reports them.
const COMPRESSED: u8 = 1;
const PLAIN: u8 = 0;

/// Maximum size of a message that is processed inline, which takes a fraction of a millisecond.
const INLINE_BYTES: usize = 16 * 1024;

/// Number of large messages that are sent uncompressed after one that could not be compressed, because the rest of a
/// file is usually as random.
const UNTRIED: usize = 15;

/// Operation on messages.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    Compress(Coding),
    Decompress {
        coding: Coding,
        /// Maximum size of a message in bytes, both compressed and decompressed.
        most: usize,
    },
}

/// A message with its prefix, or an error.
type Outcome = Result<Bytes, Unreadable>;

impl Work {
    /// Returns the flag of the messages that this operation applies to.
    fn takes(self) -> u8 {
        match self {
            Self::Compress(_) => PLAIN,
            Self::Decompress { .. } => COMPRESSED,
        }
    }

    /// Processes one message. A message that compression would not shrink stays unchanged.
    fn apply(self, message: &Message) -> Outcome {
        let done = match self {
            Self::Compress(coding) => coding.compress(&message.bytes).map_err(Unreadable::Malformed)?,
            Self::Decompress { coding, most } => coding.decompress(&message.bytes, most)?,
        };
        match self {
            Self::Compress(_) if done.len() >= message.bytes.len() => Ok(message.framed()),
            Self::Compress(_) => Ok(Message { flag: COMPRESSED, bytes: done.into() }.framed()),
            Self::Decompress { .. } => Ok(Message { flag: PLAIN, bytes: done.into() }.framed()),
        }
    }

    /// Processes a message if this takes little time. Returns `None` otherwise.
    fn apply_inline(self, message: &Message) -> Option<Outcome> {
        if message.bytes.len() > INLINE_BYTES {
            return None;
        }
        // A small compressed message can be large when decompressed.
        let bounded = match self {
            Self::Decompress { coding, most } => Self::Decompress { coding, most: most.min(INLINE_BYTES) },
            Self::Compress(_) => self,
        };
        match (bounded.apply(message), self) {
            (Err(Unreadable::TooLarge), Self::Decompress { most, .. }) if most > INLINE_BYTES => None,
            (outcome, _) => Some(outcome),
        }
    }

    /// Returns the status for the client, with the codes of
    /// <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>.
    fn status(self, why: Unreadable) -> Status {
        match (self, why) {
            (_, Unreadable::CutOff) => Status::internal("the stream ended within a message"),
            (Self::Compress(_), Unreadable::TooLarge) => Status::internal("a message is too large to be compressed"),
            (Self::Compress(coding), Unreadable::Malformed(e)) => {
                let why = format!("a message could not be compressed with {}", coding.name());
                error::status(Error::internal(why).with_source(e))
            }
            (Self::Decompress { most, .. }, Unreadable::TooLarge) => {
                error::clarified(Status::out_of_range(format!("a compressed message has more than {most} bytes")))
            }
            (Self::Decompress { coding, .. }, Unreadable::Malformed(e)) => Status::internal(format!(
                "a message is not valid {}, although grpc-encoding declares it: {e}",
                coding.name()
            )),
        }
    }
}

/// One message.
struct Message {
    flag: u8,
    bytes: Bytes,
}

impl Message {
    /// Removes the first message from `buffered`. Returns `None` if it is incomplete.
    fn split_off(buffered: &mut BytesMut, most: usize) -> Result<Option<Self>, Unreadable> {
        let Some(prefix) = buffered.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [flag, length @ ..] = *prefix;
        let length = u32::from_be_bytes(length) as usize;
        if length > most {
            return Err(Unreadable::TooLarge);
        }
        if buffered.len() - PREFIX_BYTES < length {
            return Ok(None);
        }
        buffered.advance(PREFIX_BYTES);
        Ok(Some(Self { flag, bytes: buffered.split_to(length).freeze() }))
    }

    fn framed(&self) -> Bytes {
        let mut frame = BytesMut::with_capacity(PREFIX_BYTES + self.bytes.len());
        frame.put_u8(self.flag);
        // The length was read from a prefix, or is bounded by the limit on messages.
        frame.put_u32(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
        frame.put_slice(&self.bytes);
        frame.freeze()
    }
}

/// A body whose messages are compressed or decompressed, one at a time.
pub(super) struct TranscodedBody {
    /// `None` after the end.
    inner: Option<Body>,
    work: Work,
    /// Permits for work on blocking threads, which all calls share.
    cpu_permits: Arc<Semaphore>,
    /// Received bytes that are not yet a complete message.
    buffered: BytesMut,
    /// The message that a blocking thread is processing.
    turned: Option<BoxFuture<'static, Outcome>>,
    /// Number of large messages that remain to be sent without trying to compress them.
    untried: usize,
    /// Permit for a compressed response.
    _place: Option<OwnedSemaphorePermit>,
}

impl TranscodedBody {
    pub(super) fn new(
        inner: Body,
        work: Work,
        cpu_permits: Arc<Semaphore>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            inner: Some(inner),
            work,
            cpu_permits,
            buffered: BytesMut::new(),
            turned: None,
            untried: 0,
            _place: place,
        }
    }

    /// Processes the complete messages up to the first large one, which is passed to a blocking thread. Returns the
    /// results.
    fn recode_taken(&mut self) -> Result<BytesMut, Unreadable> {
        let most = match self.work {
            Work::Decompress { most, .. } => most,
            Work::Compress(_) => usize::MAX,
        };
        let mut out = BytesMut::new();
        while out.len() < GATHERED_BYTES
            && let Some(message) = Message::split_off(&mut self.buffered, most)?
        {
            let is_done = message.flag != self.work.takes();
            let is_large = message.bytes.len() > INLINE_BYTES;
            if is_done || (is_large && self.untried > 0) {
                self.untried -= usize::from(!is_done);
                out.put(message.framed());
            } else if let Some(outcome) = self.work.apply_inline(&message) {
                out.put(outcome?);
            } else {
                self.turned = Some(turn(self.cpu_permits.clone(), self.work, message).boxed());
                break;
            }
        }
        Ok(out)
    }

    fn failed(&self, why: Unreadable) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(Some(Err(axum::Error::new(self.work.status(why)))))
    }
}

/// Processes a message on a blocking thread, after waiting for a permit.
async fn turn(cpu_permits: Arc<Semaphore>, work: Work, message: Message) -> Outcome {
    let broken = |e: Box<dyn std::error::Error + Send + Sync>| Unreadable::Malformed(std::io::Error::other(e));
    let turn = cpu_permits.acquire_owned().await.map_err(|e| broken(e.into()))?;
    let working = spawn_blocking(move || {
        let _turn = turn;
        work.apply(&message)
    });
    working.await.map_err(|e| broken(e.into()))?
}

impl HttpBody for TranscodedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(turned) = &mut this.turned {
                let outcome = ready!(turned.poll_unpin(cx));
                this.turned = None;
                let frame = match outcome {
                    Ok(frame) => frame,
                    Err(why) => return this.failed(why),
                };
                if matches!(this.work, Work::Compress(_)) && frame.first() == Some(&PLAIN) {
                    this.untried = UNTRIED;
                }
                return Poll::Ready(Some(Ok(Frame::data(frame))));
            }
            match this.recode_taken() {
                Ok(out) if !out.is_empty() => return Poll::Ready(Some(Ok(Frame::data(out.freeze())))),
                Ok(_) if this.turned.is_some() => continue,
                Ok(_) => {}
                Err(why) => return this.failed(why),
            }
            let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
            match ready!(Pin::new(inner).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.buffered.put(data),
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                Some(Err(e)) => return Poll::Ready(Some(Err(e))),
                None => {
                    this.inner = None;
                    let is_whole = std::mem::take(&mut this.buffered).is_empty();
                    return if is_whole { Poll::Ready(None) } else { this.failed(Unreadable::CutOff) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn body(pieces: Vec<Bytes>) -> Body {
        Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, axum::Error>)))
    }

    fn recoded(inner: Body, work: Work) -> Body {
        Body::new(TranscodedBody::new(inner, work, Arc::new(Semaphore::new(1)), None))
    }

    async fn all(body: Body) -> Result<Bytes, axum::Error> {
        axum::body::to_bytes(body, usize::MAX).await
    }

    /// Returns the flags and lengths of messages.
    fn messages(mut frames: Bytes) -> Vec<(u8, usize)> {
        let mut found = Vec::new();
        while frames.has_remaining() {
            let (flag, length) = (frames.get_u8(), frames.get_u32() as usize);
            frames.advance(length);
            found.push((flag, length));
        }
        found
    }

    /// Returns bytes that no coding shrinks: the states of a linear congruential generator.
    fn random(bytes: usize) -> Bytes {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[tokio::test]
    async fn compressed_messages_round_trip_in_any_pieces() {
        let text = |bytes| Bytes::from("the same again; ".repeat(bytes / 16));
        let contents =
            [Bytes::new(), text(160), text(INLINE_BYTES), random(100), text(3 << 20), text(64), random(1 << 20)];
        let plain: Vec<_> = contents.into_iter().map(|bytes| Message { flag: PLAIN, bytes }.framed()).collect();
        for coding in Coding::ALL {
            let compressed = all(recoded(body(plain.clone()), Work::Compress(coding))).await.unwrap();
            let flags: Vec<_> = messages(compressed.clone()).into_iter().map(|(flag, _)| flag).collect();
            assert_eq!(flags, [0, 1, 1, 0, 1, 1, 0], "{coding:?}: incompressible data is sent unchanged");
            let pieces = compressed.chunks(7_919).map(Bytes::copy_from_slice).collect();
            let work = Work::Decompress { coding, most: 4 << 20 };
            assert!(all(recoded(body(pieces), work)).await.unwrap() == plain.concat(), "{coding:?}");
        }
    }

    #[tokio::test]
    async fn incompressible_message_pauses_compression() {
        let of = |bytes: Bytes| Message { flag: PLAIN, bytes }.framed();
        let (random, zeros) = (of(random(INLINE_BYTES + 1)), of(vec![0; INLINE_BYTES + 1].into()));
        let all_of_them = [&[random][..], &vec![zeros; UNTRIED + 2]].concat();
        let sent = all(recoded(body(all_of_them), Work::Compress(Coding::Zstd))).await.unwrap();
        let flags: Vec<_> = messages(sent).into_iter().map(|(flag, _)| flag).collect();
        assert_eq!(flags, [&[0][..], &[0; UNTRIED], &[1, 1]].concat());
    }

    #[tokio::test]
    async fn malformed_or_oversized_messages_are_refused() {
        let most = 1 << 20;
        for coding in Coding::ALL {
            let refused = async |bytes: Vec<u8>| {
                let frame = Message { flag: COMPRESSED, bytes: bytes.into() }.framed();
                let failed = all(recoded(body(vec![frame]), Work::Decompress { coding, most })).await.unwrap_err();
                Status::from_error(failed.into())
            };
            let bomb = coding.compress(&vec![0; most + 1]).unwrap();
            assert!(bomb.len() < INLINE_BYTES);
            assert_eq!(refused(bomb.clone()).await.code(), tonic::Code::ResourceExhausted);
            assert_eq!(refused(vec![0; most + 1]).await.code(), tonic::Code::ResourceExhausted);
            assert_eq!(refused(b"what".to_vec()).await.code(), tonic::Code::Internal);
            assert_eq!(refused(bomb[..bomb.len() / 2].to_vec()).await.code(), tonic::Code::Internal);
            assert_eq!(refused([&bomb[..], b"more"].concat()).await.code(), tonic::Code::ResourceExhausted);
            let small = coding.compress(b"small").unwrap();
            assert_eq!(refused([&small[..], b"more"].concat()).await.code(), tonic::Code::Internal);
            for cut in [1, 9] {
                let half = Message { flag: COMPRESSED, bytes: bomb.clone().into() }.framed().slice(..cut);
                let failed = all(recoded(body(vec![half]), Work::Decompress { coding, most })).await.unwrap_err();
                let status = Status::from_error(failed.into());
                assert_eq!(
                    (status.code(), status.message()),
                    (tonic::Code::Internal, "the stream ended within a message")
                );
            }
            // A message with an invalid flag is passed on to the message decoder.
            let odd = Message { flag: 2, bytes: small.clone().into() }.framed();
            assert_eq!(all(recoded(body(vec![odd.clone()]), Work::Decompress { coding, most })).await.unwrap(), odd);
            let twice = Message { flag: COMPRESSED, bytes: small.repeat(2).into() }.framed();
            let whole = all(recoded(body(vec![twice]), Work::Decompress { coding, most })).await.unwrap();
            assert_eq!(&whole[PREFIX_BYTES..], b"smallsmall", "{coding:?}: members and frames may follow each other");
        }
    }
}
