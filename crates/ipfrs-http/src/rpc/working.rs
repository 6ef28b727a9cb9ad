//! Commands that send lines while they work.

use std::future::Future;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::{Error, ErrorKind, Result};
use serde::Serialize;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{Answer, output};

/// Lines that wait for the client; the work waits when there are more.
const WAITING_LINES: usize = 256;

/// Where a command's lines go.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    sender: Sender<Result<Bytes>>,
    patience: Duration,
}

impl Lines {
    /// Sends a line, as soon as there is room for it.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] when the client reads nothing for too long: work that others wait for must not wait for it.
    pub(super) async fn send(&self, line: &impl Serialize) -> Result<()> {
        match timeout(self.patience, self.sender.send(output::line(line))).await {
            // Nobody listens only when the client has gone; then the work is being ended.
            Ok(_) => Ok(()),
            Err(_) => {
                let seconds = self.patience.as_secs();
                let what = format!("the client has read nothing for {seconds} s (gateway.upload_idle_seconds)");
                Err(Error::new(ErrorKind::Timeout, format!("{what}: read the answer while it comes")))
            }
        }
    }

    /// Sends a line that may as well be left out, when the client has not read those before.
    pub(super) fn offer(&self, line: &impl Serialize) {
        let _ = self.sender.try_send(output::line(line));
    }
}

/// Answers with the lines of `work`, which runs in a task of its own and ends when the client goes away, or reads nothing
/// for as long as `patience`. Work that fails before its first line fails with a status.
pub(super) async fn answer<F>(takes_trailers: bool, patience: Duration, work: impl FnOnce(Lines) -> F) -> Answer
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (sender, mut lines) = channel(WAITING_LINES);
    let working = work(Lines { sender: sender.clone(), patience });
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(e) = working.await {
            let _ = sender.send(Err(e)).await;
        }
    }));
    let first = lines.recv().await.transpose()?;
    let rest = stream::unfold(Some((lines, task)), |state| async move {
        let (mut lines, task) = state?;
        match lines.recv().await {
            Some(line) => Some((line, Some((lines, task)))),
            // The work is over; had it panicked, the end must not look clean.
            None => match task.await {
                Ok(()) => None,
                Err(e) => Some((Err(Error::internal("the command failed").with_source(e)), None)),
            },
        }
    });
    let lines = stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok::<Response, _>(output::objects(lines, takes_trailers))
}
