//! Corking (`TCP_CORK`, tcp(7)): while a socket is corked, the kernel sends only full segments. Exists only on Linux.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpStream;

/// Whether a socket is corked.
#[derive(Debug, Default)]
pub(super) struct Cork {
    is_set: bool,
}

impl Cork {
    /// Corks the socket. If corking fails, the response is the same but costs more.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has corks"))]
    pub(super) fn set(&mut self, stream: &TcpStream) {
        #[cfg(target_os = "linux")]
        if !self.is_set {
            self.is_set = rustix::net::sockopt::set_tcp_cork(stream, true).is_ok();
        }
    }

    /// Makes the kernel send all buffered data.
    #[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "only Linux has corks"))]
    pub(super) fn remove(&mut self, stream: &TcpStream) -> io::Result<()> {
        if std::mem::take(&mut self.is_set) {
            #[cfg(target_os = "linux")]
            rustix::net::sockopt::set_tcp_cork(stream, false)?;
        }
        Ok(())
    }
}

/// State shared between the socket of a connection and the producer of its responses. Both run in the same task, so
/// the flag needs no memory ordering. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Traffic(Arc<State>);

#[derive(Debug, Default)]
struct State {
    more_follows: AtomicBool,
}

impl Traffic {
    /// Sets whether more of the current response is available without waiting. A caller that sets the flag must clear
    /// it at the end of the response, including on failure, and whenever the rest of the response is not yet
    /// available.
    pub fn set_more_follows(&self, more_follows: bool) {
        self.0.more_follows.store(more_follows, Ordering::Relaxed);
    }

    /// Returns the value that was set last.
    #[must_use]
    pub fn more_follows(&self) -> bool {
        self.0.more_follows.load(Ordering::Relaxed)
    }
}
