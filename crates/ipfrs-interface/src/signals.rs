//! Shutdown of the daemon by signals.

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Gateway;

/// Runs `gateway` until a signal or a shutdown request arrives, lets it drain, and returns when it has stopped. A
/// second signal ends the wait at once.
///
/// # Errors
/// [`ErrorKind::Timeout`] after a second signal; otherwise as [`Gateway::join`].
pub async fn run_until_signalled(gateway: &mut Gateway, mut signals: Signals) -> Result<()> {
    tokio::select! {
        result = gateway.join() => return result,
        () = signals.next() => gateway.shutdown(),
    }
    tokio::select! {
        result = gateway.join() => result,
        () = signals.next() => {
            Err(Error::new(ErrorKind::Timeout, "stopped by a second signal before all transfers had ended"))
        }
    }
}

/// Handlers for SIGTERM and SIGINT. Once created, these signals no longer end the process.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen for signals. Call this before announcing that the gateway is ready, because a client may send
    /// a signal right after that.
    ///
    /// # Errors
    /// The system refuses to install a handler.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::io("cannot listen for signals", e));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
