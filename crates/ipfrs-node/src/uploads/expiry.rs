//! Background work for resumable uploads: loading them after a start, limiting their number, removing expired ones.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Uploaded;
use super::ledger::Need;
use super::spool::Found;
use super::state::{Phase, State, Upload, Uploads, unknown};
use crate::operations::{Operation, OperationId, OperationKind};
use crate::{Node, off_workers};

/// Maximum number of finished uploads whose status is kept.
const MAX_FINISHED: usize = 10_000;

/// Maximum and minimum interval between two checks for expired uploads.
const MAX_PERIOD_SECONDS: u64 = 60;
const MIN_PERIOD_SECONDS: u64 = 1;

impl Node {
    /// Starts a background task that loads the resumable uploads of an earlier run, imports those whose bytes have
    /// all arrived, and removes expired ones until the node is closed.
    pub(crate) fn start_upload_expiry(&self) {
        if self.check_writable().is_err() {
            return;
        }
        let lifetime = self.inner.config.upload.expires_after_seconds;
        let period = Duration::from_secs((lifetime / 4).clamp(MIN_PERIOD_SECONDS, MAX_PERIOD_SECONDS));
        let node = Arc::downgrade(&self.inner);
        let expiry_task = tokio::spawn(async move {
            let mut is_first = true;
            while let Some(inner) = node.upgrade() {
                let node = Self { inner };
                if let Err(error) = node.check_uploads(is_first).await {
                    tracing::error!(%error, "checking the resumable uploads failed");
                }
                is_first = false;
                drop(node);
                sleep(period).await;
            }
        });
        self.inner.uploads.tend(expiry_task);
    }

    async fn check_uploads(&self, is_first: bool) -> Result<()> {
        let uploads = self.uploads().await?.all();
        let now = SystemTime::now();
        let why = Error::new(ErrorKind::Gone, "the upload has expired (upload.expires_after_seconds)");
        for upload in uploads {
            let state = *upload.state.borrow();
            if state.expires <= now {
                let has_expired = |state: &State| state.expires <= now;
                // An upload to which a request is sending has not expired.
                match self.remove_upload(&upload, has_expired, &why).await {
                    Ok(()) if state.phase == Phase::Waiting => self.inner.metrics.uploads_expired.inc(),
                    Ok(()) => {}
                    Err(e) if e.kind() == ErrorKind::Conflict => {}
                    Err(error) => tracing::error!(id = upload.id, %error, "an expired upload cannot be removed"),
                }
            } else if is_first && state.phase == Phase::Waiting && state.offset == upload.record.length {
                // All of its bytes had arrived when the last run ended.
                if let Err(error) = self.upload_status(&upload.id).await {
                    tracing::error!(id = upload.id, %error, "an upload could not be imported: its client may try again");
                }
            }
        }
        Ok(())
    }

    /// Returns the uploads, after loading them from the disk.
    pub(super) async fn uploads(&self) -> Result<&Uploads> {
        self.check_writable()?;
        let uploads = &self.inner.uploads;
        uploads.loaded.get_or_try_init(|| self.load_uploads()).await?;
        Ok(uploads)
    }

    pub(super) async fn find_upload(&self, id: &str) -> Result<Arc<Upload>> {
        let found = self.uploads().await?.get(id);
        // An upload to which a request is sending does not expire.
        let is_there = |upload: &Arc<Upload>| {
            let state = *upload.state.borrow();
            state.expires > SystemTime::now() || matches!(state.phase, Phase::Receiving | Phase::Settling)
        };
        found.filter(is_there).ok_or_else(|| unknown(id))
    }

    async fn load_uploads(&self) -> Result<()> {
        let spool = self.inner.uploads.spool.clone();
        for found in off_workers(move || spool.load()).await? {
            let id = found.id.clone();
            match self.found_upload(found) {
                Ok(upload) => {
                    if !upload.is_finished() {
                        self.inner.metrics.uploads_unfinished.inc();
                    }
                    self.inner.uploads.put(Arc::new(upload));
                }
                // One record that cannot be read does not stop the other uploads.
                Err(error) => {
                    tracing::error!(id, %error, "a resumable upload cannot be loaded: its files are kept")
                }
            }
        }
        Ok(())
    }

    fn found_upload(&self, found: Found) -> Result<Upload> {
        let Found { id, record, offset, touched } = found;
        let (phase, operation) = match &record.imported {
            Some(imported) => {
                let cid = ipfrs_core::parse_cid(&imported.cid)?;
                (Phase::Finished(Uploaded { cid, size: record.length, blocks: imported.blocks }), None)
            }
            None => (Phase::Waiting, Some(self.resume_operation(&record.operation, offset, record.length)?)),
        };
        let state = watch::Sender::new(State { offset, expires: self.expiry(touched), phase });
        // A finished upload needs no more space.
        let rest = if operation.is_some() { record.length } else { 0 };
        let reserved =
            self.inner.uploads.ledger.reserve(record.client, Need { spool: rest.saturating_sub(offset), packs: rest });
        Ok(Upload { id, record, is_noted: Arc::default(), state, reserved, operation })
    }

    /// Resumes the operation of an upload from an earlier run. If its ID is in use by now, the operation gets a new
    /// one.
    fn resume_operation(&self, id: &str, offset: u64, length: u64) -> Result<Operation> {
        let begin = |id| self.inner.operations.begin(id, OperationKind::Upload, offset, Some(length));
        let operation = id.parse().and_then(begin).or_else(|_| begin(OperationId::random()?))?;
        operation.pause(offset);
        Ok(operation)
    }

    /// Returns the expiry of an upload that was last changed at `touched`.
    pub(super) fn expiry(&self, touched: SystemTime) -> SystemTime {
        touched + Duration::from_secs(self.inner.config.upload.expires_after_seconds)
    }

    /// Adds a new upload, unless there are too many.
    pub(super) fn enter_upload(&self, upload: &Arc<Upload>) -> Result<()> {
        let most = self.inner.config.upload.max_unfinished;
        if !self.inner.uploads.enter(upload.clone(), most) {
            return Err(Error::new(
                ErrorKind::RateLimited,
                format!(
                    "as many uploads of this client are unfinished as are left for all others, of {most} \
                     (upload.max_unfinished): finish or cancel one first"
                ),
            ));
        }
        self.inner.metrics.uploads_unfinished.inc();
        Ok(())
    }

    /// If there are too many finished uploads, removes the one that expires first.
    pub(super) async fn forget_finished(&self) {
        let mut finished = self.inner.uploads.all();
        finished.retain(|upload| upload.is_finished());
        let oldest = finished.iter().min_by_key(|upload| upload.state.borrow().expires);
        if let Some(oldest) = oldest.filter(|_| finished.len() > MAX_FINISHED) {
            let why = Error::new(ErrorKind::Gone, "removed to make room for newer uploads");
            if let Err(error) = self.remove_upload(oldest, |_| true, &why).await {
                tracing::error!(id = oldest.id, %error, "a finished upload cannot be removed");
            }
        }
    }
}
