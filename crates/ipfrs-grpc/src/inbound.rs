//! What clients stream to us.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{Error, ErrorKind};
use tokio::time::{Sleep, sleep, timeout};
use tonic::{Code, Status, Streaming};

use crate::error;

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

fn paused(patience: Duration) -> Status {
    let seconds = patience.as_secs();
    let why = format!("the stream paused for {seconds} s (gateway.upload_idle_seconds) and was given up");
    error::status(Error::new(ErrorKind::Timeout, why))
}

/// The bytes of a request. A break is an error of no code: tonic takes what it reads as a cancellation for the end of a stream,
/// and half a file for a whole one. Who owes a message, and pauses for too long, is given up.
pub(crate) struct Sent<B> {
    inner: B,
    /// `None` where pauses are nobody's business, or [`Inbound`]'s.
    patience: Option<Duration>,
    /// Once something had to be waited for.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<B> Sent<B> {
    pub(crate) fn new(inner: B, patience: Option<Duration>) -> Self {
        Self { inner, patience, timer: None }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Sent<B> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) {
            this.timer = None;
            let broken = |_| Status::unknown("the client's stream broke off before its end");
            return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
        }
        let Some(patience) = this.patience else { return Poll::Pending };
        ready!(this.timer.get_or_insert_with(|| Box::pin(sleep(patience))).as_mut().poll(cx));
        Poll::Ready(Some(Err(paused(patience))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use futures::stream;
    use ipfrs_proto::block::v1::GetBlockRequest;
    use tonic_prost::ProstDecoder;

    use super::*;

    fn messages(body: Body, patience: Option<Duration>) -> Streaming<GetBlockRequest> {
        Streaming::new_request(ProstDecoder::default(), Body::new(Sent::new(body, patience)), None, None)
    }

    #[tokio::test]
    async fn a_stream_that_is_cancelled_has_not_ended() {
        let cancelled = Body::from_stream(stream::iter([Err::<Bytes, _>(Status::cancelled("RST_STREAM"))]));
        let status = messages(cancelled, None).message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unknown, "{status}");
        assert!(messages(Body::empty(), None).message().await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn who_owes_a_message_is_not_waited_for_for_ever() {
        let silent = || Body::from_stream(stream::pending::<Result<Bytes, Status>>());
        let status = messages(silent(), Some(Duration::from_secs(30))).message().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(timeout(Duration::from_secs(3_600), messages(silent(), None).message()).await.is_err());
    }
}
