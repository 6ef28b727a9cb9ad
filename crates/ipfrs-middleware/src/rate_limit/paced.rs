//! Bodies that wait for their bytes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::Ticket;

/// Size of the pieces that are paid at once.
const PIECE_BYTES: usize = 256 * 1_024;

/// A body that pays for each piece, and waits before it sends the piece while it owes more than the burst.
#[derive(Debug)]
pub struct Paced<B> {
    body: B,
    ticket: Ticket,
    waiting: Option<Pin<Box<Sleep>>>,
    has_begun: bool,
    /// Bytes of the response that are paid, beside `paid`.
    credit: u64,
    /// Price of what is paid and not sent yet, in nanoseconds.
    unsent: u64,
    /// The next piece, which is paid.
    paid: Bytes,
    /// The rest of its frame.
    rest: Bytes,
}

impl<B> Paced<B> {
    /// Creates the body of a response to the request with this ticket.
    pub fn new(body: B, ticket: Ticket) -> Self {
        Self {
            body,
            ticket,
            waiting: None,
            has_begun: false,
            credit: 0,
            unsent: 0,
            paid: Bytes::new(),
            rest: Bytes::new(),
        }
    }

    /// Pays for bytes, and begins to wait if they were not there.
    fn wait(&mut self, bytes: u64) {
        let (wait, price) = self.ticket.pay(bytes);
        self.unsent += price;
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
        loop {
            if let Some(waiting) = &mut this.waiting {
                ready!(waiting.as_mut().poll(cx));
                this.waiting = None;
            }
            if !this.paid.is_empty() {
                let price = this.ticket.rate().map_or(0, |rate| rate.price(this.paid.len() as u64));
                this.unsent = this.unsent.saturating_sub(price);
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut this.paid)))));
            }
            if !std::mem::replace(&mut this.has_begun, true) {
                // Other responses may have used up the burst. What is paid now keeps a place in their queue, without a
                // frame in memory.
                this.credit = this.body.size_hint().lower().min(PIECE_BYTES as u64).min(this.ticket.burst_bytes());
                this.wait(this.credit);
            } else if this.rest.is_empty() {
                match ready!(Pin::new(&mut this.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                    Some(Ok(Ok(data))) => this.rest = data,
                    Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                }
            } else {
                let len = this.rest.len().min(PIECE_BYTES);
                this.paid = this.rest.split_to(len);
                let of_credit = this.credit.min(len as u64);
                this.credit -= of_credit;
                if len as u64 > of_credit {
                    this.wait(len as u64 - of_credit);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.paid.is_empty() && self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, held) = (self.body.size_hint(), (self.paid.len() + self.rest.len()) as u64);
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower() + held);
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper + held);
        }
        whole
    }
}

impl<B> Drop for Paced<B> {
    fn drop(&mut self) {
        self.ticket.refund(self.unsent);
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
        assert_eq!(send("192.0.2.1", 4).await, [0.0, 1.0, 2.0, 3.0]);
        let all = tokio::join!(send("192.0.2.2", 1), send("192.0.2.2", 1), send("192.0.2.2", 1));
        assert_eq!([all.0, all.1, all.2].concat(), [0.0, 1.0, 2.0]);
        // Aborted responses owe nothing for pieces that were not sent.
        for _ in 0..100 {
            let aborted = tokio::time::timeout(Duration::from_millis(1), send("192.0.2.2", 1)).await;
            assert!(aborted.is_err());
        }
        assert_eq!(send("192.0.2.2", 1).await, [0.9]);
        // Nor does anything come back that was not paid: the debt has a limit.
        let many = futures::future::join_all((0..200).map(|_| send("192.0.2.3", 1)));
        assert!(tokio::time::timeout(Duration::from_millis(1), many).await.is_err());
        assert_eq!(send("192.0.2.3", 1).await, [1.0]);
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
