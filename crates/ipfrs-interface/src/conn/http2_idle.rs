//! Count of the open streams of an HTTP/2 connection, and the time since which there has been none.

use std::sync::Arc;
use std::task::{Context, Waker};

use parking_lot::Mutex;
use tokio::time::Instant;

/// The open streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct OpenStreams(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: usize,
    /// When the last stream ended; `None` before the first one.
    ended: Option<Instant>,
    /// The task of the connection, while it waits for the last stream to end.
    waker: Option<Waker>,
}

impl OpenStreams {
    /// Counts one more stream until the result is dropped.
    pub(crate) fn open(streams: &Arc<Self>) -> OpenStream {
        streams.0.lock().open += 1;
        OpenStream(Arc::clone(streams))
    }

    /// Returns the time since which no stream has been open, on a connection that began at `connected_at`; `None` while
    /// one is open: then the task is woken when the last one ends.
    pub(crate) fn idle_since(&self, connected_at: Instant, cx: &Context<'_>) -> Option<Instant> {
        let mut state = self.0.lock();
        state.waker = (state.open > 0).then(|| cx.waker().clone());
        (state.open == 0).then(|| state.ended.unwrap_or(connected_at))
    }
}

/// A stream that is open.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<OpenStreams>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.open -= 1;
        if state.open > 0 {
            return;
        }
        state.ended = Some(Instant::now());
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}
