//! What clients stream to us.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_node::RequestMemory;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tonic::{Code, Status, Streaming};

use crate::error;
use crate::spliced::PREFIX_BYTES;

/// The messages of a call that others may wait for: a client that pauses for too long is given up.
#[derive(Debug)]
pub(crate) struct Inbound<T> {
    messages: Streaming<T>,
    patience: Duration,
}

impl<T> Inbound<T> {
    pub(crate) fn new(messages: Streaming<T>, patience: Duration) -> Self {
        Self { messages, patience }
    }

    /// The next message; `None` once the client has sent all.
    ///
    /// # Errors
    /// When the stream breaks off, a message is malformed or too large, or the client pauses for longer than
    /// `gateway.upload_idle_seconds`.
    pub(crate) async fn next(&mut self) -> Result<Option<T>, Status> {
        match timeout(self.patience, self.messages.message()).await {
            // What broke off has no code of its own.
            Ok(Err(status)) if status.code() == Code::Unknown => {
                Err(Status::cancelled("the client's stream broke off before its end"))
            }
            Ok(message) => message.map_err(error::clarified),
            Err(_) => Err(paused(self.patience)),
        }
    }
}

/// The status for a client that paused for too long.
pub(crate) fn paused(patience: Duration) -> Status {
    let seconds = patience.as_secs();
    let why = format!("the stream paused for {seconds} s (gateway.upload_idle_seconds) and was given up");
    error::status(Error::new(ErrorKind::Timeout, why))
}

/// A client that has sent this much, or a whole message, is not pausing.
const PROGRESS_BYTES: usize = 64 * 1024;

/// The bytes of a request. A break is an error of no code: tonic takes what it reads as a cancellation for the end of a stream,
/// and half a file for a whole one. Who owes a message, and pauses for too long, is given up.
pub(crate) struct Sent<B> {
    inner: B,
    message: Unfinished,
    memory: RequestMemory,
    /// `None` where pauses are nobody's business, or [`Inbound`]'s.
    patience: Option<Duration>,
    /// The time spent waiting for the client since it made progress, and the bytes that it sent meanwhile.
    waited: Duration,
    received: usize,
    /// The start of the wait for the client, and its end.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<B> Sent<B> {
    /// The `memory` is taken for a message while it arrives.
    pub(crate) fn new(inner: B, patience: Option<Duration>, memory: RequestMemory) -> Self {
        Self {
            inner,
            message: Unfinished::default(),
            memory,
            patience,
            waited: Duration::ZERO,
            received: 0,
            waiting: None,
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Sent<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            let broken = |_| Status::unknown("the client's stream broke off before its end");
            let frame = frame.map(|frame| frame.map_err(broken));
            if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                this.message.add(data);
                this.received += data.len();
                if this.message.arrived > 0 {
                    if let Err(error) = this.memory.grow_to(this.message.arrived) {
                        return Poll::Ready(Some(Err(error::status(error))));
                    }
                } else {
                    this.received = PROGRESS_BYTES;
                    this.memory.release();
                }
            }
            if let Some((since, _)) = this.waiting.take() {
                this.waited += since.elapsed();
            }
            if this.received >= PROGRESS_BYTES {
                (this.waited, this.received) = (Duration::ZERO, 0);
            }
            return Poll::Ready(frame);
        }
        let Some(patience) = this.patience else { return Poll::Pending };
        let left = patience.saturating_sub(this.waited);
        let (_, deadline) = this.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Some(Err(paused(patience))))
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
    /// The part of its prefix that came: whether it is compressed, and its length.
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    /// Bytes that are still to come.
    left: usize,
    /// Bytes that came.
    arrived: usize,
}

impl Unfinished {
    /// Adds bytes, in which messages may end and begin.
    fn add(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            if self.left == 0 && self.prefix_bytes < PREFIX_BYTES {
                self.arrived = 0;
                let taken = data.len().min(PREFIX_BYTES - self.prefix_bytes);
                self.prefix[self.prefix_bytes..self.prefix_bytes + taken].copy_from_slice(&data[..taken]);
                self.prefix_bytes += taken;
                data = &data[taken..];
                if self.prefix_bytes == PREFIX_BYTES {
                    let [_, length @ ..] = self.prefix;
                    self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                    self.prefix_bytes = if self.left == 0 { 0 } else { PREFIX_BYTES };
                }
                continue;
            }
            let taken = data.len().min(self.left);
            (self.left, self.arrived) = (self.left - taken, self.arrived + taken);
            data = &data[taken..];
            if self.left == 0 {
                (self.prefix_bytes, self.arrived) = (0, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use futures::stream;
    use ipfrs_node::{MemoryStore, Node, NodeConfig};
    use ipfrs_proto::block::v1::GetBlockRequest;
    use prometheus::Registry;
    use tonic_prost::ProstDecoder;

    use super::*;

    async fn node() -> (tempfile::TempDir, Node) {
        let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
        let node = Node::over(Arc::new(MemoryStore::default()), repo.path(), config, &Registry::new()).await;
        (repo, node.unwrap())
    }

    fn messages(node: &Node, body: Body, patience: Option<Duration>) -> Streaming<GetBlockRequest> {
        let sent = Sent::new(body, patience, node.request_memory());
        Streaming::new_request(ProstDecoder::default(), Body::new(sent), None, None)
    }

    #[test]
    fn unfinished_message_is_counted_however_it_is_cut() {
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
    async fn a_stream_that_is_cancelled_has_not_ended() {
        let cancelled = Body::from_stream(stream::iter([Err::<Bytes, _>(Status::cancelled("RST_STREAM"))]));
        let (_repo, node) = node().await;
        let status = messages(&node, cancelled, None).message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert!(messages(&node, Body::empty(), None).message().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_owes_a_message_is_not_waited_for_for_ever() {
        let (_repo, node) = node().await;
        let silent = || Body::from_stream(stream::pending::<Result<Bytes, Status>>());
        let status = messages(&node, silent(), Some(Duration::from_secs(30))).message().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(timeout(Duration::from_secs(3_600), messages(&node, silent(), None).message()).await.is_err());
    }
}
