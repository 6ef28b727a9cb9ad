//! HTTP/1.1 responses that are long enough to cork the socket while they are sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::Response;
use hyper::body::{Frame, SizeHint};
use ipfrs_stream::Traffic;

/// Minimum length of such a response, in bytes. Shorter ones gain nothing, and are slower if the kernel paces: each
/// full segment waits for its time.
pub(super) const LARGE_BYTES: u64 = 1 << 20;

/// A body that notifies the socket whether more data are available immediately.
pub(crate) struct CorkedBody {
    inner: Body,
    traffic: Traffic,
}

impl CorkedBody {
    /// Wraps the body of a response, unless it is known to be short.
    pub(crate) fn watch(response: Response<Body>, traffic: &Traffic) -> Response<Body> {
        if response.body().size_hint().upper().is_some_and(|length| length < LARGE_BYTES) {
            return response;
        }
        let traffic = traffic.clone();
        response.map(|inner| Body::new(Self { inner, traffic }))
    }
}

impl Drop for CorkedBody {
    /// Removes the cork when the body ends, including after an error or a disconnect.
    fn drop(&mut self) {
        self.traffic.set_more_follows(false);
    }
}

impl HttpBody for CorkedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        if polled.is_pending() && self.traffic.more_follows() {
            // hyper flushes in its next poll if this one had nothing to flush, which removes the cork.
            cx.waker().wake_by_ref();
        }
        let more_follows = matches!(polled, Poll::Ready(Some(Ok(_)))) && !self.inner.is_end_stream();
        self.traffic.set_more_follows(more_follows);
        polled
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
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use hyper::body::Bytes;
    use tokio::sync::mpsc;

    use super::*;

    /// Number of times that the task was woken.
    #[derive(Default)]
    struct Turns(AtomicUsize);

    impl Wake for Turns {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A body with the frames from a channel. It ends when the channel is closed.
    struct Fed(mpsc::Receiver<Bytes>);

    impl HttpBody for Fed {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    #[tokio::test]
    async fn cork_stays_until_no_frame_is_ready() {
        let (feed, fed) = mpsc::channel(2);
        let traffic = Traffic::default();
        let mut body = CorkedBody::watch(Response::new(Body::new(Fed(fed))), &traffic).into_body();
        let turns = Arc::new(Turns::default());
        let waker = Waker::from(Arc::clone(&turns));
        let mut cx = Context::from_waker(&waker);
        let mut is_pending = |body: &mut Body| Pin::new(body).poll_frame(&mut cx).is_pending();
        assert!(!traffic.more_follows());
        for _ in 0..2 {
            feed.send(Bytes::from_static(b"abc")).await.unwrap();
            assert!(!is_pending(&mut body) && traffic.more_follows());
            let turns_before = turns.0.load(Ordering::Relaxed);
            assert!(is_pending(&mut body) && !traffic.more_follows());
            assert_eq!(turns.0.load(Ordering::Relaxed), turns_before + 1, "another poll, to flush");
            assert!(is_pending(&mut body));
            assert_eq!(turns.0.load(Ordering::Relaxed), turns_before + 1);
        }
        feed.send(Bytes::from_static(b"abc")).await.unwrap();
        assert!(!is_pending(&mut body) && traffic.more_follows());
        drop(feed);
        assert!(!is_pending(&mut body) && !traffic.more_follows(), "the end");
    }

    #[test]
    fn an_answer_of_less_than_a_mebibyte_is_not_watched() {
        for (length, is_watched) in [(LARGE_BYTES - 1, false), (LARGE_BYTES, true)] {
            let traffic = Traffic::default();
            traffic.set_more_follows(true);
            let body = Body::from(vec![0; usize::try_from(length).unwrap()]);
            drop(CorkedBody::watch(Response::new(body), &traffic));
            assert_eq!(traffic.more_follows(), !is_watched, "{length} bytes");
        }
    }

    #[tokio::test]
    async fn dropped_response_removes_the_cork() {
        let (feed, fed) = mpsc::channel(1);
        let traffic = Traffic::default();
        let mut body = CorkedBody::watch(Response::new(Body::new(Fed(fed))), &traffic).into_body();
        feed.send(Bytes::from_static(b"abc")).await.unwrap();
        poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.unwrap().unwrap();
        assert!(traffic.more_follows());
        drop(body);
        assert!(!traffic.more_follows());
    }
}
