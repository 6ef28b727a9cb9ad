//! Bodies that are produced while they are sent.

use std::sync::Arc;
use std::task::Poll;

use futures::stream::{self, StreamExt};
use ipfrs_core::{Error, ErrorKind};
use parking_lot::Mutex;
use reqwest::Body;
use tokio::time::Instant;

use super::Pieces;

/// The source of a body. It is dropped when the call ends, because a connection whose peer does not read would keep
/// it alive.
pub(super) struct Upload {
    pieces: Arc<Mutex<Option<Pieces>>>,
    pub(super) state: UploadState,
}

/// State of an upload. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct UploadState(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Time at which the next piece was ready for the daemon. `None` while the next piece is being produced.
    waiting_since: Option<Instant>,
    /// The error with which producing the body failed.
    failure: Option<Error>,
}

impl Upload {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self { pieces: Arc::new(Mutex::new(Some(pieces.fuse().boxed()))), state: UploadState::default() }
    }

    /// Returns the body of a request.
    pub(super) fn body(&self) -> Body {
        let (pieces, state) = (Arc::clone(&self.pieces), self.state.clone());
        Body::wrap_stream(stream::poll_fn(move |cx| {
            let mut pieces = pieces.lock();
            // Ending the stream would make the daemon take the received part for the whole content.
            let Some(left) = pieces.as_mut() else { return Poll::Ready(Some(Err(aborted()))) };
            let polled = left.poll_next_unpin(cx);
            state.set_waiting(!polled.is_pending());
            polled.map_err(|error| state.fail(error))
        }))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Drop the pieces without holding the lock, because dropping them may block.
        let pieces = self.pieces.lock().take();
        drop(pieces);
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.fmt(f)
    }
}

fn aborted() -> Error {
    Error::new(ErrorKind::Unavailable, "the call was aborted")
}

impl UploadState {
    /// Records whether the daemon has to act next: a piece, or the end of the body, was passed to the connection.
    fn set_waiting(&self, is_waiting: bool) {
        self.0.lock().waiting_since = is_waiting.then(Instant::now);
    }

    /// Records that the body could not be produced. Returns an error that makes the connection break, without the
    /// cause.
    fn fail(&self, error: Error) -> Error {
        let copy = Error::new(error.kind(), error.message());
        self.0.lock().failure = Some(error);
        copy
    }

    /// Returns the reason for a failed request: the error of producing its body if there was one, and `error`
    /// otherwise.
    pub(super) fn explain(&self, error: Error) -> Error {
        self.0.lock().failure.take().unwrap_or(error)
    }

    /// Returns the time since which the daemon has to act, which is now while the next piece is being produced.
    pub(super) fn waiting_since(&self) -> Instant {
        self.0.lock().waiting_since.unwrap_or_else(Instant::now)
    }
}
