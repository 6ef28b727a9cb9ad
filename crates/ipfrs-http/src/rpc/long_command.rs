//! Commands that send lines while they run.

use std::future::Future;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::Client;
use ipfrs_node::{current_context, with_context};
use serde::Serialize;
use tokio::sync::mpsc::{Permit, Sender, channel};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::command_result::CommandResult;
use super::output;

/// Maximum number of lines that wait for the client. Beyond it, the work waits.
const WAITING_LINES: usize = 256;

/// Output of a command.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    sender: Sender<Result<Bytes>>,
    idle_limit: Duration,
}

impl Lines {
    pub(super) fn new(sender: Sender<Result<Bytes>>, idle_limit: Duration) -> Self {
        Self { sender, idle_limit }
    }

    /// Sends a line, waiting until there is space for it.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`] if the client stops reading for too long, since other requests may wait for this work.
    pub(super) async fn send(&self, line: &impl Serialize) -> Result<()> {
        self.send_result(output::line(line)).await
    }

    /// Same as [`send`](Self::send), for serialized lines.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) async fn send_serialized(&self, lines: Bytes) -> Result<()> {
        self.send_result(Ok(lines)).await
    }

    async fn send_result(&self, line: Result<Bytes>) -> Result<()> {
        match timeout(self.idle_limit, self.sender.send(line)).await {
            // Sending fails only if the client has disconnected, in which case the work is being aborted.
            Ok(_) => Ok(()),
            Err(_) => {
                let seconds = self.idle_limit.as_secs();
                let what = format!("the client has read nothing for {seconds} s (gateway.upload_idle_seconds)");
                Err(Error::new(ErrorKind::Timeout, format!("{what}: read the response as it arrives")))
            }
        }
    }

    /// Waits until there is space for a line, for however long. Returns `None` if the client has disconnected.
    pub(super) async fn space(&self) -> Option<Permit<'_, Result<Bytes>>> {
        self.sender.reserve().await.ok()
    }

    /// Sends an optional line, which is omitted if too many earlier lines wait for the client.
    pub(super) fn offer(&self, line: &impl Serialize) {
        let _ = self.sender.try_send(output::line(line));
    }
}

/// Responds with the lines of `work`, which runs in a separate task. The task ends if the client disconnects, or
/// reads nothing for `idle_limit`. If the work fails before its first line, the error sets the status.
pub(super) async fn answer<F>(
    takes_trailers: bool,
    idle_limit: Duration,
    work: impl FnOnce(Lines) -> F,
) -> CommandResult
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let (sender, mut lines) = channel(WAITING_LINES);
    let working = work(Lines::new(sender.clone(), idle_limit));
    let task = async move {
        if let Err(e) = working.await {
            let _ = sender.send(Err(e)).await;
        }
    };
    let task = Client::current().scope(with_context(current_context(), task)).in_current_span();
    let task = AbortOnDropHandle::new(tokio::spawn(task));
    let first = lines.recv().await.transpose()?;
    let rest = stream::unfold(Some((lines, task)), |state| async move {
        let (mut lines, task) = state?;
        match lines.recv().await {
            Some(line) => Some((line, Some((lines, task)))),
            // If the work panicked, the body must not appear complete.
            None => match task.await {
                Ok(()) => None,
                Err(e) => Some((Err(Error::internal("the command failed").with_source(e)), None)),
            },
        }
    });
    let lines = stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok::<Response, _>(output::objects(lines, takes_trailers))
}
