//! Taking over a connection after the response to a handshake.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

/// The byte stream below a WebSocket.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

impl fmt::Debug for dyn Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transport")
    }
}

/// Function that uses a connection after the response.
pub type Session = Box<dyn FnOnce(Box<dyn Transport>) -> BoxFuture<'static, ()> + Send>;

/// Extension of a request whose connection a handler can take over. Clones share the session.
#[derive(Clone, Default)]
pub struct Takeover(Arc<Mutex<Option<Session>>>);

impl Takeover {
    /// Sets the session that follows the response.
    pub fn set(&self, session: Session) {
        *self.0.lock() = Some(session);
    }

    /// Takes the session, if a handler has set one.
    #[must_use]
    pub fn take(&self) -> Option<Session> {
        self.0.lock().take()
    }
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover").finish_non_exhaustive()
    }
}
