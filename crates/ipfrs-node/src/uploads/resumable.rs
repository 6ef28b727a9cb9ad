//! Uploads in several requests, which survive a lost connection, a restart and a crash.

use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::fair_pool::Share;
use ipfrs_core::{Error, ErrorKind, Result};
use tokio::sync::{oneshot, watch};
use tracing::Instrument;

use super::append::{self, Append, Appended};
use super::ledger::Need;
use super::options::{UploadOptions, check_length};
use super::spool::{self, Imported, Record};
use super::state::{Claim, Phase, State, Upload, UploadStatus, unknown};
use super::unclaimed::Unclaimed;
use crate::metrics::Active;
use crate::operations::{OperationId, OperationKind, cancelled, random_id};
use crate::{Node, current_client, off_workers, with_client};

/// Parameters of a new resumable upload.
#[derive(Debug)]
pub struct NewUpload {
    /// Size of the file, in bytes.
    pub length: u64,
    /// Metadata of the client, which are returned unchanged.
    pub metadata: String,
    /// Options of the import.
    pub options: UploadOptions,
    /// ID of the operation.
    pub operation: OperationId,
}

impl Node {
    /// Begins a resumable upload, optionally with its `first` bytes, whose number is `announced` if known. The upload
    /// is durable when this returns. If this fails, or the future is dropped early, the upload is removed, because no
    /// client knows its ID.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] over `upload.max_bytes`; [`ErrorKind::RateLimited`] if `upload.max_unfinished` uploads
    /// are unfinished; [`ErrorKind::NoSpace`] if the disk lacks space for twice the file (the received bytes and the
    /// blocks) in addition to its reserve and the needs of other uploads; [`ErrorKind::Conflict`] if the operation ID
    /// is in use; otherwise an error in the options, or as [`Self::continue_upload`].
    pub async fn begin_upload<S>(
        &self,
        new: NewUpload,
        announced: Option<u64>,
        first: Option<S>,
    ) -> Result<UploadStatus>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
    {
        let node = self.clone();
        let (sender, receiver) = oneshot::channel();
        // A separate task survives the caller, so that it can remove the upload.
        let task = async move {
            let begun = node.create_and_fill(new, announced, first).await;
            // If the receiver is gone, the unclaimed upload is dropped here, else with the receiver.
            let _ = sender.send(begun.map(|status| Unclaimed { node, status: Some(status) }));
        };
        tokio::spawn(with_client(current_client(), task).in_current_span());
        let unclaimed =
            receiver.await.map_err(|e| Error::internal("an upload could not be started").with_source(e))??;
        unclaimed.claim()
    }

    async fn create_and_fill<S>(&self, new: NewUpload, announced: Option<u64>, first: Option<S>) -> Result<UploadStatus>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
    {
        let created = self.create_upload(new).await?;
        let Some(content) = first else { return Ok(created) };
        let filled = self.continue_upload(&created.id, 0, announced, content).await;
        if filled.is_err() {
            self.end_upload(&created.id).await?;
        }
        filled
    }

    async fn create_upload(&self, new: NewUpload) -> Result<UploadStatus> {
        let NewUpload { length, metadata, options, operation } = new;
        check_length(length, &self.inner.config.upload)?;
        self.import_options(&options.import()?)?;
        let uploads = self.uploads().await?;
        let record = Record::new(length, metadata, operation.to_string(), options);
        let (id, spool) = (random_id()?, uploads.spool.clone());
        // Space for the received bytes and for the blocks.
        let reserved = self.reserve_upload(Need { spool: length, packs: length }).await?;
        let operation = self.inner.operations.begin(operation, OperationKind::Upload, 0, Some(length))?;
        operation.pause(0);
        let state = State { offset: 0, expires: self.expiry(SystemTime::now()), phase: Phase::Settling };
        let state = watch::Sender::new(state);
        let upload =
            Arc::new(Upload { id, record, is_noted: Arc::default(), state, reserved, operation: Some(operation) });
        self.enter_upload(&upload)?;
        let (id, record) = (upload.id.clone(), upload.record.clone());
        let created = off_workers(move || spool.create(&id, &record));
        let created = created.await;
        upload.state.send_modify(|state| state.phase = Phase::Waiting);
        if let Err(e) = created {
            self.remove_upload(&upload, |_| true, &e).await?;
            return Err(e);
        }
        Ok(upload.status(*upload.state.borrow()))
    }

    /// Returns the status of an upload. Waits while it is being made durable or imported. If all bytes have arrived
    /// but the import has not run, this runs it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown ID; otherwise the error of the import.
    pub async fn upload_status(&self, id: &str) -> Result<UploadStatus> {
        let upload = self.find_upload(id).await?;
        let mut state = upload.state.subscribe();
        loop {
            let state = *state.wait_for(|state| state.phase != Phase::Settling).await.map_err(|_| unknown(id))?;
            match state.phase {
                Phase::Removed => return Err(unknown(id)),
                Phase::Waiting if state.offset == upload.record.length => {
                    match self.continue_upload(id, state.offset, Some(0), stream::empty()).await {
                        // Another task imports the upload, so this loop waits for it.
                        Err(e) if e.kind() == ErrorKind::Conflict => {}
                        imported => return imported,
                    }
                }
                _ => return Ok(upload.status(state)),
            }
        }
    }

    /// Appends `content`, of `announced` bytes if known, to an upload at `offset`. Once all bytes have arrived, the
    /// file is imported and pinned before this returns. The work continues if the future is dropped: everything that
    /// `content` yields is kept.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if `offset` is not the offset of the upload, or another request is sending;
    /// [`ErrorKind::TooLarge`] if the content exceeds the length of the upload, in which case none of it is kept;
    /// [`ErrorKind::RateLimited`] if too many uploads of the client are being received; otherwise the error of
    /// `content`, the disk or the import, in which case the bytes that arrived are kept.
    pub async fn continue_upload<S>(
        &self,
        id: &str,
        offset: u64,
        announced: Option<u64>,
        content: S,
    ) -> Result<UploadStatus>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
    {
        let upload = self.find_upload(id).await?;
        let length = upload.record.length;
        // The offset is checked before the length, so that a client with a wrong offset queries the status first.
        let claim = upload.claim(offset)?;
        if announced.unwrap_or(0) > length.saturating_sub(offset) {
            return Err(Error::too_large(format!(
                "{} bytes at offset {offset} exceed the Upload-Length of {length}: send at most {} bytes",
                announced.unwrap_or(0),
                length.saturating_sub(offset)
            )));
        }
        let Some(claim) = claim else { return Ok(upload.status(*upload.state.borrow())) };
        // Without content, no client delays the end of the request.
        let file_permit = if announced == Some(0) { None } else { self.inner.uploads.open_file_permit()? };
        let node = self.clone();
        // A separate task writes all bytes that arrived, even if the client does not wait for the response.
        let fits = announced.is_some();
        let receiving = async move { node.receive(claim, offset, fits, content, file_permit).await };
        tokio::spawn(with_client(current_client(), receiving).in_current_span())
            .await
            .map_err(|e| Error::internal("an upload failed").with_source(e))?
    }

    /// Receives `content`. `fits` is true if its length is known to fit in the upload.
    async fn receive<S>(
        &self,
        claim: Claim,
        offset: u64,
        fits: bool,
        content: S,
        file_permit: Option<Share<IpAddr>>,
    ) -> Result<UploadStatus>
    where
        S: Stream<Item = Result<Bytes>> + Send + Unpin + 'static,
    {
        let upload = claim.0.clone();
        let (spool, length) = (self.inner.uploads.spool.clone(), upload.record.length);
        let kept = self.kept_beside_spool().await?;
        if let Some(operation) = &upload.operation {
            operation.resume();
        }
        let progress = |bytes| {
            upload.reserve_rest(bytes, 0);
            if let Some(operation) = &upload.operation {
                operation.advance(bytes, 0);
            }
        };
        let (id, record, is_noted) = (upload.id.clone(), upload.record.clone(), Arc::clone(&upload.is_noted));
        let request = Append { spool, id, record, is_noted, offset, fits, kept };
        let active = Active::begin(&self.inner.metrics.uploads_active);
        let cancellation = upload.operation.as_ref().map(|operation| operation.cancellation().clone());
        let cancelled_in_time = async {
            match &cancellation {
                Some(cancellation) => cancellation.cancelled().await,
                None => pending().await,
            }
        };
        let content = content.take_until(Box::pin(cancelled_in_time));
        let Appended { offset, error } = append::append(request, content, progress).await;
        drop((active, file_permit));
        upload.reserve_rest(offset, 0);
        let expires = self.expiry(SystemTime::now());
        claim.set(|state| *state = State { offset, expires, phase: Phase::Settling });
        let ended = match error {
            None if offset == length => self.import_spooled(&claim).await,
            None => Ok(()),
            Some(e) => Err(e),
        };
        if let (false, Some(operation)) = (upload.is_finished(), &upload.operation) {
            operation.pause(offset);
        }
        drop(claim);
        if cancellation.is_some_and(|cancellation| cancellation.is_cancelled()) && !upload.is_finished() {
            self.remove_upload(&upload, |state| !matches!(state.phase, Phase::Finished(_)), &cancelled()).await?;
            return Err(cancelled());
        }
        ended.map(|()| upload.status(*upload.state.borrow()))
    }

    /// Imports a file whose bytes have all arrived.
    async fn import_spooled(&self, claim: &Claim) -> Result<()> {
        let upload = &claim.0;
        let spool = &self.inner.uploads.spool;
        let progress = |imported, blocks| {
            upload.reserve_rest(upload.record.length, imported);
            if let Some(operation) = &upload.operation {
                operation.advance(upload.record.length, blocks);
            }
        };
        let content = spool::read(spool.part(&upload.id));
        let importing = self.import_file(&upload.record.options, content, progress);
        let imported = match &upload.operation {
            Some(operation) => operation.unless_cancelled(importing).await,
            None => importing.await,
        };
        let uploaded = imported.inspect_err(|_| upload.reserve_rest(upload.record.length, 0))?;
        let mut record = upload.record.clone();
        record.client = None;
        record.imported = Some(Imported { cid: uploaded.cid.to_string(), blocks: uploaded.blocks });
        let (spool, id) = (spool.clone(), upload.id.clone());
        off_workers(move || {
            spool.save(&id, &record)?;
            spool.remove_part(&id)
        })
        .await?;
        upload.reserved.set(Need::default());
        claim.set(|state| {
            state.phase = Phase::Finished(uploaded);
            state.expires = self.expiry(SystemTime::now());
        });
        if let Some(operation) = &upload.operation {
            operation.done(uploaded.cid, uploaded.size, uploaded.blocks);
        }
        self.inner.metrics.uploads_unfinished.dec();
        self.forget_finished().await;
        Ok(())
    }

    /// Ends an upload and removes the bytes that arrived. Imported content stays.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown ID; [`ErrorKind::Conflict`] while a request is sending.
    pub async fn end_upload(&self, id: &str) -> Result<()> {
        let upload = self.find_upload(id).await?;
        self.remove_upload(&upload, |_| true, &Error::new(ErrorKind::Gone, "the client cancelled the upload")).await
    }

    /// Ends the upload of an operation that was cancelled, unless a request works on it: that request ends it.
    pub(crate) async fn end_cancelled_upload(&self, operation: &OperationId) -> Result<()> {
        let is_its_own = |upload: &&Arc<Upload>| upload.operation.as_ref().is_some_and(|own| own.id() == *operation);
        let upload = self.inner.uploads.by_id.lock().values().find(is_its_own).cloned();
        let Some(upload) = upload else { return Ok(()) };
        let is_unfinished = |state: &State| !matches!(state.phase, Phase::Finished(_));
        match self.remove_upload(&upload, is_unfinished, &cancelled()).await {
            Err(e) if e.kind() == ErrorKind::Conflict => Ok(()),
            removed => removed,
        }
    }

    /// Removes an upload that is not in use, if `may` accepts its current state.
    pub(super) async fn remove_upload(
        &self,
        upload: &Arc<Upload>,
        may: impl Fn(&State) -> bool,
        why: &Error,
    ) -> Result<()> {
        let mut refusal = None;
        let is_removed = upload.state.send_if_modified(|state| match state.phase {
            Phase::Receiving | Phase::Settling => {
                refusal = Some(Error::new(ErrorKind::Conflict, "a request is writing to the upload: end it first"));
                false
            }
            Phase::Waiting | Phase::Finished(_) if may(state) => {
                let was_finished = matches!(state.phase, Phase::Finished(_));
                if !was_finished {
                    self.inner.metrics.uploads_unfinished.dec();
                }
                state.phase = Phase::Removed;
                true
            }
            _ => false,
        });
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        if is_removed {
            self.inner.uploads.by_id.lock().remove(&upload.id);
            let (spool, id) = (self.inner.uploads.spool.clone(), upload.id.clone());
            let removed = off_workers(move || spool.remove(&id)).await;
            upload.reserved.set(Need::default());
            if let Some(operation) = &upload.operation {
                operation.fail(why);
            }
            removed?;
        }
        Ok(())
    }
}
