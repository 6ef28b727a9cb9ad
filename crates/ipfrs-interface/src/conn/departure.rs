//! Clients that leave while they wait for a response. hyper does not read during a response, so it would notice them
//! only when it sends one, and the work for it would go on until then.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ipfrs_stream::Presence;
use tokio::time::{Instant, Sleep, sleep_until};

/// Interval at which the kernel is asked. Most requests have their response before that.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which a response is awaited after the client has closed its sending side. It may still read, as `nc -N`
/// does, but most clients that do this have left.
const HALF_CLOSED: Duration = Duration::from_secs(15);

/// What the two sides of hyper tell each other: the connection task asks, and the socket answers at the next flush.
#[derive(Debug, Default)]
pub(crate) struct Question {
    is_asked: AtomicBool,
    answer: AtomicU8,
}

impl Question {
    /// Answers with `presence` if the question is asked.
    pub(crate) fn answer(&self, presence: impl FnOnce() -> Presence) {
        if self.is_asked.swap(false, Ordering::Relaxed) {
            self.answer.store(presence() as u8, Ordering::Relaxed);
        }
    }
}

/// Watches whether the client is still there.
#[derive(Debug, Default)]
pub(crate) struct Departure {
    /// Set at the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    half_closed: Option<Instant>,
}

impl Departure {
    /// Asks whether the client is there, if it is time to.
    pub(crate) fn ask(&mut self, question: &Question, cx: &mut Context<'_>) {
        let Some(timer) = &mut self.timer else { return };
        if timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + INTERVAL);
            question.is_asked.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the client has left, according to the last answer. Schedules the next question.
    pub(crate) fn has_happened(&mut self, question: &Question, cx: &mut Context<'_>) -> bool {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + INTERVAL)));
        if let Poll::Ready(()) = timer.as_mut().poll(cx) {
            cx.waker().wake_by_ref();
        }
        let answer = question.answer.load(Ordering::Relaxed);
        if answer == Presence::HalfClosed as u8 {
            return self.half_closed.get_or_insert_with(Instant::now).elapsed() >= HALF_CLOSED;
        }
        answer == Presence::Gone as u8
    }
}
