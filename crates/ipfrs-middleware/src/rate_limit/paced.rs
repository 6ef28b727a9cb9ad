//! Bodies that wait for their bytes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::Ticket;

/// A body that pays for its bytes, and waits before the next piece while it owes more than the burst.
#[derive(Debug)]
pub struct Paced<B> {
    body: B,
    ticket: Ticket,
    waiting: Option<Pin<Box<Sleep>>>,
    has_begun: bool,
}

impl<B> Paced<B> {
    /// Creates the body of a response to the request with this ticket.
    pub fn new(body: B, ticket: Ticket) -> Self {
        Self { body, ticket, waiting: None, has_begun: false }
    }

    /// Pays for bytes, and begins to wait if they were not there.
    fn wait(&mut self, bytes: u64) {
        let wait = self.ticket.pay(bytes);
        if !wait.is_zero() {
            self.waiting = Some(Box::pin(sleep(wait)));
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.has_begun, true) {
            // Other responses may have used up the burst.
            this.wait(0);
        }
        if let Some(waiting) = &mut this.waiting {
            ready!(waiting.as_mut().poll(cx));
            this.waiting = None;
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let bytes = data.remaining() as u64;
            this.wait(bytes);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::time::Duration;

    use prometheus::Registry;
    use tokio::time::Instant;

    use super::*;
    use crate::client::Client;
    use crate::rate_limit::{RateLimitConfig, RateLimiter};

    /// A body of pieces.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn body_is_sent_at_its_rate_after_the_burst() {
        let config =
            RateLimitConfig { enabled: true, bytes_per_second: 1_000, burst_bytes: 2_000, ..Default::default() };
        let limiter = RateLimiter::register(&config, &Registry::new()).unwrap();
        let client = Client::of("192.0.2.1".parse().unwrap());
        let start = Instant::now();
        let send = async |pieces: usize| {
            let ticket = limiter.take(client, None).unwrap().unwrap();
            assert!(ticket.limits_bytes());
            let pieces = Pieces(std::iter::repeat_n(Bytes::from_static(&[0; 1_000]), pieces).collect());
            let mut body = Paced::new(pieces, ticket);
            while poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() {}
            start.elapsed()
        };
        let whole = |elapsed: Duration| elapsed.as_millis().div_ceil(100) * 100;
        assert_eq!(whole(send(2).await), 0);
        assert_eq!(whole(send(3).await), 3_000);
        // Two bodies of one client share its rate.
        let (one, other) = tokio::join!(send(2), send(2));
        assert_eq!(whole(one.max(other)), 7_000);
    }
}
