//! Bodies that wait for their bytes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::Ticket;

/// Size of a piece: what a response may send beyond the burst, and pays before it begins.
const PIECE_BYTES: usize = 256 * 1_024;

/// A body that pays for its bytes, and waits before the next piece while it owes more than the burst.
#[derive(Debug)]
pub struct Paced<B> {
    body: B,
    ticket: Ticket,
    waiting: Option<Pin<Box<Sleep>>>,
    has_begun: bool,
    /// Bytes that are paid and not sent yet.
    credit: u64,
    /// The rest of a frame.
    rest: Bytes,
}

impl<B> Paced<B> {
    /// Creates the body of a response to the request with this ticket.
    pub fn new(body: B, ticket: Ticket) -> Self {
        Self { body, ticket, waiting: None, has_begun: false, credit: 0, rest: Bytes::new() }
    }

    /// Pays for bytes, and begins to wait if they were not there.
    fn wait(&mut self, bytes: u64) {
        let wait = self.ticket.pay(bytes);
        if !wait.is_zero() {
            self.waiting = Some(Box::pin(sleep(wait)));
        }
    }

    /// Returns the first piece of `data`, pays for it, and keeps the rest.
    fn piece(&mut self, mut data: Bytes) -> Frame<Bytes> {
        let piece = data.split_to(data.len().min(PIECE_BYTES));
        self.rest = data;
        let paid = self.credit.min(piece.len() as u64);
        self.credit -= paid;
        self.wait(piece.len() as u64 - paid);
        Frame::data(piece)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paced<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.has_begun, true) {
            // Other responses may have used up the burst. What is paid now keeps those that begin later in a queue.
            this.credit = this.body.size_hint().lower().min(PIECE_BYTES as u64).min(this.ticket.burst_bytes());
            this.wait(this.credit);
        }
        if let Some(waiting) = &mut this.waiting {
            ready!(waiting.as_mut().poll(cx));
            this.waiting = None;
        }
        if !this.rest.is_empty() {
            let rest = std::mem::take(&mut this.rest);
            return Poll::Ready(Some(Ok(this.piece(rest))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(data) => this.piece(data),
                Err(other) => other,
            })),
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + rest);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + rest);
        }
        whole
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

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_frames_and_parallel_responses_wait_for_their_bytes() {
        const PIECE: u64 = PIECE_BYTES as u64;
        let config =
            RateLimitConfig { enabled: true, bytes_per_second: PIECE, burst_bytes: PIECE, ..Default::default() };
        let limiter = RateLimiter::register(&config, &Registry::new()).unwrap();
        // Returns the seconds at which the pieces of a response of one frame were sent.
        let send = async |client: &str, pieces: usize| {
            let start = Instant::now();
            let ticket = limiter.take(Client::of(client.parse().unwrap()), None).unwrap().unwrap();
            let frame = Bytes::from(vec![0; pieces * PIECE_BYTES]);
            let mut body = Paced::new(Pieces([frame].into()), ticket);
            let mut times = Vec::new();
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                assert_eq!(frame.unwrap().into_data().unwrap().len(), PIECE_BYTES);
                times.push((start.elapsed().as_secs_f64() * 10.0).round() / 10.0);
                let left = (pieces - times.len()) as u64 * PIECE;
                assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(left), false));
            }
            times
        };
        assert_eq!(send("192.0.2.1", 4).await, [0.0, 0.0, 1.0, 2.0]);
        let all = tokio::join!(send("192.0.2.2", 1), send("192.0.2.2", 1), send("192.0.2.2", 1));
        assert_eq!([all.0, all.1, all.2].concat(), [0.0, 1.0, 2.0]);
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
