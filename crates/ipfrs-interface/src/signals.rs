//! Ending a daemon by signal.

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Gateway;

/// Runs `gateway` until one of `signals` or a request to stop, lets it drain, and returns when it has stopped. A second
/// signal ends the wait at once.
///
/// # Errors
/// [`ErrorKind::Timeout`] after a second signal; else as [`Gateway::join`].
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

/// SIGTERM and SIGINT, which no longer end the process from the time that this is made.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on. To be called before anybody is told that the gateway is ready: who was told may send one.
    ///
    /// # Errors
    /// When the system gives no handler.
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
