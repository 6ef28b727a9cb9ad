//! Request streams of clients.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::{IdleTimer, RequestMemory};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::error;
use crate::zero_copy::PREFIX_BYTES;

/// The messages of a call that holds resources. The call fails if the client pauses for too long.
#[derive(Debug)]
pub(crate) struct Inbound<T> {
    messages: Streaming<T>,
    idle_timeout: Duration,
}

impl<T> Inbound<T> {
    pub(crate) fn new(messages: Streaming<T>, idle_timeout: Duration) -> Self {
        Self { messages, idle_timeout }
    }

    /// Returns the next message, or `None` once the client has sent all.
    ///
    /// # Errors
    /// The stream breaks off, a message is malformed or too large, or the client pauses for longer than
    /// `gateway.upload_idle_seconds`.
    pub(crate) async fn next(&mut self) -> Result<Option<T>, Status> {
        match timeout(self.idle_timeout, self.messages.message()).await {
            // A stream that breaks off has no status code of its own.
            Ok(Err(status)) if status.code() == Code::Unknown => {
                Err(Status::cancelled("the client's stream ended early"))
            }
            Ok(message) => message.map_err(error::clarified),
            Err(_) => Err(paused(self.idle_timeout)),
        }
    }
}

/// Returns the status for a client that paused for too long.
pub(crate) fn paused(idle_timeout: Duration) -> Status {
    let seconds = idle_timeout.as_secs();
    let why = format!("the stream paused for {seconds} s (gateway.upload_idle_seconds) and was aborted");
    error::status(Error::new(ErrorKind::Timeout, why))
}

/// The bytes of a request. A stream that breaks off fails with UNKNOWN: tonic interprets CANCELLED as the end of a
/// stream, and would accept a partial file as complete. Fails if the client pauses for too long while a message is
/// expected.
pub(crate) struct Sent<B> {
    inner: B,
    message: Unfinished,
    memory: RequestMemory,
    /// `None` if pauses are not limited, or are limited by [`Inbound`].
    timer: Option<IdleTimer>,
}

impl<B> Sent<B> {
    /// `memory` is reserved for a message while it arrives.
    pub(crate) fn new(inner: B, idle_timeout: Option<Duration>, memory: RequestMemory) -> Self {
        Self { inner, message: Unfinished::default(), memory, timer: idle_timeout.map(IdleTimer::new) }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Sent<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            let broken = |_| Status::unknown("the client's stream ended early");
            let frame = frame.map(|frame| frame.map_err(broken));
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            if let Some(timer) = &mut this.timer {
                timer.received(data.map_or(0, Bytes::len));
            }
            if let Some(data) = data {
                this.message.add(data);
                if this.message.arrived > 0 {
                    if let Err(error) = this.memory.grow_to(this.message.arrived) {
                        return Poll::Ready(Some(Err(error::status(error))));
                    }
                } else {
                    // A client that has sent a whole message is not pausing.
                    if let Some(timer) = &mut this.timer {
                        timer.progressed();
                    }
                    this.memory.release();
                }
            }
            return Poll::Ready(frame);
        }
        let Some(timer) = &mut this.timer else { return Poll::Pending };
        ready!(timer.poll_exceeded(cx));
        Poll::Ready(Some(Err(paused(timer.limit()))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The message that a client is sending.
#[derive(Debug, Default)]
struct Unfinished {
    /// Received part of the prefix: whether the message is compressed, and its length.
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    /// Number of missing bytes.
    left: usize,
    /// Number of received bytes.
    arrived: usize,
}

impl Unfinished {
    /// Processes bytes, in which messages may end and start.
    fn add(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left == 0 && self.prefix_bytes < PREFIX_BYTES {
                self.arrived = 0;
                let consumed = data.len().min(PREFIX_BYTES - self.prefix_bytes);
                self.prefix[self.prefix_bytes..self.prefix_bytes + consumed].copy_from_slice(&data[..consumed]);
                self.prefix_bytes += consumed;
                data = &data[consumed..];
                if self.prefix_bytes == PREFIX_BYTES {
                    let [_, length @ ..] = self.prefix;
                    self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                    self.prefix_bytes = if self.left == 0 { 0 } else { PREFIX_BYTES };
                }
                continue;
            }
            let consumed = data.len().min(self.left);
            (self.left, self.arrived) = (self.left - consumed, self.arrived + consumed);
            data = &data[consumed..];
            if self.left == 0 {
                (self.prefix_bytes, self.arrived) = (0, 0);
            }
        }
    }
}

/// The bytes of a request to a method that takes one message. The end of the message is withheld until the request
/// has ended, so that the method is not called with the first of several messages.
pub(crate) struct OneMessage {
    inner: Body,
    /// Frame of the message: the received part of its prefix, and the number of missing bytes.
    prefix: Vec<u8>,
    missing: Option<u64>,
    /// End of the message.
    last: Bytes,
}

impl OneMessage {
    pub(crate) fn new(inner: Body) -> Self {
        Self { inner, prefix: Vec::with_capacity(PREFIX_BYTES), missing: None, last: Bytes::new() }
    }

    /// Tracks the position in the message.
    ///
    /// # Errors
    /// Another message follows.
    fn follow(&mut self, data: &Bytes) -> Result<(), Status> {
        let mut rest = &data[..];
        if self.missing.is_none() {
            let consumed = rest.len().min(PREFIX_BYTES - self.prefix.len());
            self.prefix.extend_from_slice(&rest[..consumed]);
            rest = &rest[consumed..];
            let Some(length) = self.prefix.get(1..PREFIX_BYTES) else { return Ok(()) };
            self.missing = Some(length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)));
        }
        match self.missing.and_then(|missing| missing.checked_sub(rest.len() as u64)) {
            Some(missing) => {
                self.missing = Some(missing);
                Ok(())
            }
            None => Err(cardinality("several messages")),
        }
    }
}

/// Returns the status for a request with zero or several messages, as gRPC specifies
/// (<https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>).
fn cardinality(what: &str) -> Status {
    error::status(Error::unsupported(format!("the request has {what}: this method requires exactly one")))
}

impl HttpBody for OneMessage {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        loop {
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(e)) => return Poll::Ready(Some(Err(Status::from_error(e.into_inner())))),
                None if this.prefix.is_empty() => {
                    // Ensures that the error is returned only once.
                    this.prefix.push(0);
                    return Poll::Ready(Some(Err(cardinality("no message"))));
                }
                None if this.last.is_empty() => return Poll::Ready(None),
                None => return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.last))))),
            };
            let data = match frame.into_data() {
                Ok(data) if data.is_empty() => continue,
                Ok(data) => data,
                // Trailers have no meaning in a request.
                Err(_) => continue,
            };
            this.follow(&data)?;
            let before = std::mem::replace(&mut this.last, data);
            if !before.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(before))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream;
    use ipfrs_middleware::MemoryPool;
    use ipfrs_node::{MemoryStore, Node, NodeConfig};
    use ipfrs_proto::block::v1::GetBlockRequest;
    use prometheus::Registry;
    use prost::Message;
    use tonic_prost::ProstDecoder;

    use super::*;

    async fn pool() -> (tempfile::TempDir, MemoryPool) {
        let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(config).open().await;
        (repo, MemoryPool::register(&node.unwrap(), &Registry::new()).unwrap())
    }

    fn messages(pool: &MemoryPool, body: Body, idle_timeout: Option<Duration>) -> Streaming<GetBlockRequest> {
        let sent = Sent::new(body, idle_timeout, pool.reservation());
        Streaming::new_request(ProstDecoder::default(), Body::new(sent), None, None)
    }

    #[test]
    fn unfinished_message_size_ignores_piece_boundaries() {
        let message =
            |length: usize| [&[0][..], &u32::try_from(length).unwrap().to_be_bytes(), &vec![7; length]].concat();
        let stream = [message(3), message(0), message(1_000), message(20)[..15].to_vec()].concat();
        for piece in [1, 2, 3, 5, 7, 100, stream.len()] {
            let (mut unfinished, mut most) = (Unfinished::default(), 0);
            for bytes in stream.chunks(piece) {
                unfinished.add(bytes);
                most = most.max(unfinished.arrived);
            }
            assert_eq!(unfinished.arrived, 10, "{piece}");
            assert!(most < 1_000, "{piece}");
        }
    }

    #[tokio::test]
    async fn cancelled_stream_is_an_error() {
        let cancelled = Body::from_stream(stream::iter([Err::<Bytes, _>(Status::cancelled("RST_STREAM"))]));
        let (_repo, pool) = pool().await;
        let status = messages(&pool, cancelled, None).message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert!(messages(&pool, Body::empty(), None).message().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn one_message_is_read_and_none_or_several_are_refused() {
        let message = |cid: &str| {
            let message = GetBlockRequest { cid: cid.to_owned() }.encode_to_vec();
            [&[0; 4][..], &[u8::try_from(message.len()).unwrap()], &message].concat()
        };
        let (one, two) = (message("one"), [message("one"), message("two")].concat());
        let empty = message("");
        let emptys = empty.repeat(2);
        for (bytes, expected) in [
            (&one[..], Ok("one")),
            (&empty, Ok("")),
            (&[], Err("no message")),
            (&two, Err("several messages")),
            (&emptys, Err("several messages")),
            (&two[..one.len() + 1], Err("several messages")),
        ] {
            for piece in [1, 4, 5, 6, 100] {
                let pieces: Vec<_> = bytes.chunks(piece).map(|piece| Ok::<_, Status>(piece.to_vec())).collect();
                let body = Body::new(OneMessage::new(Body::from_stream(stream::iter(pieces))));
                let mut messages = Streaming::new_request(ProstDecoder::<GetBlockRequest>::default(), body, None, None);
                match (messages.message().await, expected) {
                    (Ok(Some(message)), Ok(cid)) => assert_eq!(message.cid, cid),
                    (Err(status), Err(why)) => {
                        assert_eq!(status.code(), Code::Unimplemented, "{status}");
                        assert!(status.message().contains(why) && !status.details().is_empty(), "{status}");
                    }
                    (read, _) => panic!("{bytes:?} in pieces of {piece}: {read:?}"),
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_sends_no_message_times_out() {
        let (_repo, pool) = pool().await;
        let silent = || Body::from_stream(stream::pending::<Result<Bytes, Status>>());
        let status = messages(&pool, silent(), Some(Duration::from_secs(30))).message().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(timeout(Duration::from_secs(3_600), messages(&pool, silent(), None).message()).await.is_err());
    }
}
