//! A daemon that runs inside the process, until it has stopped.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use ipfrs_core::{Error, Result};
use ipfrs_interface::Gateway;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// State of a daemon until it has stopped.
#[derive(Debug)]
pub(crate) struct RunningDaemon {
    stopping: CancellationToken,
    has_ended: watch::Receiver<bool>,
    /// The error with which the daemon stopped, until it has been reported.
    failure: Arc<Mutex<Option<Error>>>,
    /// Disconnected when the daemon has stopped, for threads that wait.
    ending: Mutex<Receiver<Infallible>>,
}

impl RunningDaemon {
    /// Runs `daemon` until it is stopped through this object or by a request.
    pub(crate) fn keep(mut daemon: Gateway, runtime: &Runtime) -> Arc<Self> {
        let stopping = CancellationToken::new();
        let (teller, has_ended) = watch::channel(false);
        let (until_end, ending) = mpsc::channel();
        let failure = Arc::new(Mutex::new(None));
        let (stop_requested, failed) = (stopping.clone(), Arc::clone(&failure));
        runtime.spawn(async move {
            let joined = tokio::select! {
                joined = daemon.join() => joined,
                () = stop_requested.cancelled() => {
                    daemon.shutdown();
                    daemon.join().await
                }
            };
            *failed.lock() = joined.err();
            teller.send_replace(true);
            drop(until_end);
        });
        Arc::new(Self { stopping, has_ended, failure, ending: Mutex::new(ending) })
    }

    pub(crate) fn is_running(&self) -> bool {
        !*self.has_ended.borrow()
    }

    /// Asks the daemon to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.stopping.cancel();
    }

    /// Asks the daemon to stop, and waits until it has stopped.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.ask_to_stop();
        // The sender is dropped only after it has sent `true`.
        let _ = self.has_ended.clone().wait_for(|has_ended| *has_ended).await;
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Stops the daemon like [`Self::stop`], but blocks the thread and cannot be interrupted.
    pub(crate) fn stop_now(&self) {
        self.ask_to_stop();
        let _ = self.ending.lock().recv();
    }
}
