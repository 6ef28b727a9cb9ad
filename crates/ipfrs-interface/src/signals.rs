//! Shutdown and reload of the daemon by signals.

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Config, Gateway};

/// Runs `gateway` until a signal or a shutdown request arrives, lets it drain, and returns when it has stopped. A
/// second signal ends the wait at once. SIGHUP makes it [reload](Gateway::reload) the configuration that `read`
/// returns; if that fails, it goes on as before.
///
/// # Errors
/// [`ErrorKind::Timeout`] after a second signal; otherwise as [`Gateway::join`].
pub async fn run_until_signalled(
    gateway: &mut Gateway,
    mut signals: Signals,
    read: impl Fn() -> Result<Config>,
) -> Result<()> {
    loop {
        tokio::select! {
            result = gateway.join() => return result,
            request = signals.next() => match request {
                Request::Stop => break,
                // A source of keys that does not respond must not keep the daemon from stopping. What a reload leaves
                // half made ends with the daemon.
                Request::Reload => tokio::select! {
                    () = reload(gateway, &read) => {}
                    () = signals.stop() => break,
                },
            },
        }
    }
    gateway.shutdown();
    tokio::select! {
        result = gateway.join() => result,
        () = signals.stop() => {
            Err(Error::new(ErrorKind::Timeout, "stopped by a second signal before all transfers had ended"))
        }
    }
}

/// Request that a signal makes.
#[derive(Debug, Clone, Copy)]
enum Request {
    Stop,
    Reload,
}

async fn reload(gateway: &mut Gateway, read: impl Fn() -> Result<Config>) {
    // A peer that a client adds after the file was read must not be removed again.
    let _changing = gateway.node().begin_bootstrap_change().await;
    let reloaded = match read() {
        Ok(config) => gateway.reload(&config).await,
        Err(error) => Err(error),
    };
    match reloaded {
        Ok(()) => tracing::info!("reloaded the configuration"),
        Err(error) => tracing::error!(%error, "the configuration was not reloaded"),
    }
}

/// Handlers for SIGTERM, SIGINT and SIGHUP. Once created, these signals no longer end the process.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts to listen for signals. Call this before announcing that the gateway is ready, because a client may send
    /// a signal right after that.
    ///
    /// # Errors
    /// The system refuses to install a handler.
    pub fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).map_err(|e| Error::io("cannot listen for signals", e));
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::Stop,
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.hangup.recv() => Request::Reload,
        }
    }

    /// Waits for a signal to stop. Another one to reload is kept.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Makes writes fail that exceed the limit on the length of files (`ulimit -f`), with [`ErrorKind::NoSpace`]. Without
/// this, SIGXFSZ ends the process. Call it in a tokio runtime; it holds until the process ends.
///
/// # Errors
/// The system refuses to install a handler.
pub fn survive_file_length_limit() -> Result<()> {
    let exceeded = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    // The signals are not received: a handler is enough, and tokio keeps it.
    signal(exceeded).map(drop).map_err(|e| Error::io("cannot listen for signals", e))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;

    use futures::poll;

    use super::*;

    #[tokio::test]
    async fn reload_reads_the_file_after_changes_of_bootstrap_peers() {
        let repo = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.server.port = 0;
        config.grpc.port = Some(0);
        config.api.enabled = false;
        let mut gateway = Gateway::bind(&config, repo.path()).await.unwrap();
        let changing = gateway.node().begin_bootstrap_change().await;
        {
            let is_read = Cell::new(false);
            let read = || {
                is_read.set(true);
                Ok(config.clone())
            };
            let mut reloading = pin!(reload(&mut gateway, read));
            assert!(poll!(&mut reloading).is_pending() && !is_read.get());
            drop(changing);
            reloading.await;
            assert!(is_read.get());
        }
        gateway.shutdown();
        gateway.join().await.unwrap();
    }
}
