//! The task that pins what is requested.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_rpc::types::PinState;
use ipfrs_store::MAX_PIN_NAME_BYTES;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::record::Record;
use super::time_of;
use crate::gc::Lease;
use crate::pins::insert_for_request;
use crate::{Expected, Node, Pin, PinMode, PinOptions, RequestContext, with_client, with_context};

impl Node {
    /// Starts the task that pins what is requested, until the node is closed. Does nothing if the node is no pinning
    /// service.
    pub(crate) fn start_pinning(&self) {
        let Ok(requests) = self.pin_requests() else { return };
        let (node, changed) = (Arc::downgrade(&self.inner), Arc::clone(&requests.changed));
        let max_concurrent = self.inner.config.pinning.max_concurrent;
        let task = tokio::spawn(async move {
            let mut running = JoinSet::new();
            loop {
                let Some(inner) = node.upgrade() else { return };
                let now = Instant::now();
                while running.len() < max_concurrent {
                    let next = inner.pin_requests.queue.lock().start_next(max_concurrent, now);
                    let Some(record) = next else { break };
                    running.spawn(Self { inner: Arc::clone(&inner) }.work_on(record));
                }
                let next = inner.pin_requests.queue.lock().next_retry(now).filter(|_| running.len() < max_concurrent);
                drop(inner);
                tokio::select! {
                    () = changed.notified() => {}
                    () = async { sleep_until(next.unwrap_or_else(Instant::now)).await }, if next.is_some() => {}
                    Some(_) = running.join_next() => {}
                }
            }
        });
        *requests.task.lock() = Some(task);
    }

    async fn work_on(self, record: Record) {
        let prepared = tokio::select! {
            prepared = self.prepare_requested(&record) => prepared,
            () = self.until_removed(&record) => return,
        };
        if let Err(error) = self.finish(record, prepared).await {
            tracing::error!(%error, "the outcome of a pin request cannot be written");
        }
    }

    /// Waits until a request is removed.
    async fn until_removed(&self, record: &Record) {
        let requests = &self.inner.pin_requests;
        let mut removals = requests.removed.subscribe();
        while requests.queue.lock().current(record).is_some() && removals.changed().await.is_ok() {}
    }

    /// Retrieves what a request needs.
    async fn prepare_requested(&self, record: &Record) -> Result<(Vec<Pin>, Lease)> {
        let hints = record.pin.origins.clone();
        let context = RequestContext { expected: Expected::All, hints, ..RequestContext::default() };
        // The name of a request may have more bytes, and is shortened.
        let name = &record.pin.name;
        let name = name[..name.floor_char_boundary(MAX_PIN_NAME_BYTES)].to_owned();
        let options = PinOptions { recursive: true, name };
        let path = [record.cid.into()];
        let prepared = with_client(None, with_context(context, self.prepare_pins(&path, &options, |_| {})));
        let remaining = self.remaining_time(record);
        timeout(remaining, prepared).await.unwrap_or_else(|_| {
            let seconds = self.inner.config.pinning.timeout_seconds;
            Err(Error::new(ErrorKind::Timeout, format!("not complete after {seconds} s (pinning.timeout_seconds)")))
        })
    }

    /// Returns the time until a request fails.
    fn remaining_time(&self, record: &Record) -> Duration {
        let end = time_of(record.created) + self.inner.config.pinning.timeout();
        end.duration_since(SystemTime::now()).unwrap_or_default()
    }

    /// Creates the pin of a request, and notes its outcome durably, unless it was removed.
    async fn finish(&self, record: Record, prepared: Result<(Vec<Pin>, Lease)>) -> Result<()> {
        let requests = &self.inner.pin_requests;
        let _changing = requests.changing.lock().await;
        // Other requests may have changed it.
        let Some(mut record) = requests.queue.lock().current(&record).cloned() else { return Ok(()) };
        let pinned = match prepared {
            Ok((pins, lease)) => self.create_pin(&mut record, pins, &lease).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &pinned
            && is_temporary(error)
            && !self.remaining_time(&record).is_zero()
        {
            record.details = error.public_message().into_owned();
            requests.queue.lock().retry(record, Instant::now());
            return Ok(());
        }
        record.status = if pinned.is_ok() { PinState::Pinned } else { PinState::Failed };
        record.details = pinned.err().map(|error| error.public_message().into_owned()).unwrap_or_default();
        record.inherit();
        let replaced = std::mem::take(&mut record.replaces);
        // Repeated after a crash, because the request is written last.
        let mut finished = Ok(());
        for replaced in &replaced {
            finished = finished.and(self.release(&record, replaced).await);
        }
        finished = finished.and(requests.directory.write(&record).await);
        requests.queue.lock().update(record);
        finished
    }

    async fn create_pin(&self, record: &mut Record, pins: Vec<Pin>, lease: &Lease) -> Result<()> {
        let before = self.inner.pins.get(&record.cid).await?;
        if before.as_ref().is_some_and(|pin| pin.mode == PinMode::Recursive) {
            record.inherit();
            // The pin of someone else keeps its name.
            return if record.made_pin { insert_for_request(self, pins, lease).await } else { Ok(()) };
        }
        // Noted before the pin exists, so that a crash leaves no pin without a request.
        record.made_pin = true;
        record.direct = before.map(|pin| pin.name);
        self.inner.pin_requests.directory.write(record).await?;
        insert_for_request(self, pins, lease).await
    }
}

/// Whether another attempt may succeed. [`ErrorKind::Internal`] is the kind of failing disks.
fn is_temporary(error: &Error) -> bool {
    use ErrorKind::{BadSource, Internal, NoSpace, NotFound, RateLimited, Timeout, Unavailable, Unretrievable};
    let is_of_source = matches!(error.kind(), NotFound | Timeout | Unretrievable | BadSource);
    is_of_source || matches!(error.kind(), Unavailable | RateLimited | NoSpace | Internal)
}
