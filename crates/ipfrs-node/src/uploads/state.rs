//! State of resumable uploads.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use ipfrs_core::fair_pool::{FairPool, Share};
use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OnceCell, watch};
use tokio::task::JoinHandle;

use super::ledger::{Ledger, Need, Reservation};
use super::options::Uploaded;
use super::spool::{Record, Spool};
use crate::current_client;
use crate::operations::Operation;

/// Status of a resumable upload.
#[derive(Debug, Clone)]
pub struct UploadStatus {
    /// ID of the upload, which is unguessable.
    pub id: String,
    /// Number of durable bytes.
    pub offset: u64,
    /// Size of the file, in bytes.
    pub length: u64,
    /// Metadata of the client, as given.
    pub metadata: String,
    /// ID of the operation.
    pub operation: String,
    /// Time at which the upload is removed unless more bytes arrive.
    pub expires: SystemTime,
    /// Result of the import; `None` until the upload is complete.
    pub uploaded: Option<Uploaded>,
}

/// Minimum number of uploads that can be received at the same time, however few files may be open.
const MIN_OPEN_FILES: u64 = 32;

/// Returns the number of uploads that can be received at the same time: half of the files that connections leave for
/// the store and for requests.
fn max_open_files() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(u32::MAX));
    usize::try_from((limit / 16).max(MIN_OPEN_FILES)).unwrap_or(usize::MAX)
}

/// All resumable uploads of a node.
#[derive(Debug)]
pub(crate) struct Uploads {
    pub(super) spool: Spool,
    /// Disk space that unfinished uploads need.
    pub(super) ledger: Ledger,
    pub(super) by_id: Mutex<HashMap<String, Arc<Upload>>>,
    /// Permits for files that are open while a client sends. A client that pauses keeps its file open, because the
    /// kernel reports a failed write only while it is.
    open_files: FairPool<IpAddr>,
    /// Initialized after the uploads on disk are loaded.
    pub(super) loaded: OnceCell<()>,
    /// The background task that removes expired uploads.
    expiry_task: Mutex<Option<JoinHandle<()>>>,
}

impl Uploads {
    pub(crate) fn new(repo: &Path) -> Self {
        Self {
            spool: Spool::new(repo),
            ledger: Ledger::default(),
            by_id: Mutex::default(),
            open_files: FairPool::new(max_open_files(), 1, usize::MAX),
            loaded: OnceCell::new(),
            expiry_task: Mutex::default(),
        }
    }

    /// Stores the handle of the background task until the node is closed.
    pub(super) fn tend(&self, expiry_task: JoinHandle<()>) {
        *self.expiry_task.lock() = Some(expiry_task);
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<Upload>> {
        self.by_id.lock().get(id).cloned()
    }

    /// Adds a new upload, unless `most` others are unfinished, or as many of its client as are left for all others.
    /// Returns whether it was added.
    pub(super) fn enter(&self, upload: Arc<Upload>, most: usize) -> bool {
        let mut by_id = self.by_id.lock();
        let unfinished = || by_id.values().filter(|upload| !upload.is_finished());
        let own = unfinished().filter(|other| other.record.client == upload.record.client).count() + 1;
        // This process itself needs no share.
        let may_take = |free: usize| upload.record.client.is_none() || own <= free.max(1);
        let has_room = most.checked_sub(unfinished().count() + 1).is_some_and(may_take);
        if has_room {
            by_id.insert(upload.id.clone(), upload);
        }
        has_room
    }

    /// Takes a permit for the file of an upload that the current client continues. This process itself needs none.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if as many files of the client are open as are left for all others.
    pub(super) fn open_file_permit(&self) -> Result<Option<Share<IpAddr>>> {
        let Some(client) = current_client() else { return Ok(None) };
        self.open_files.take(client, 1).map(Some).map_err(|_| {
            let most = self.open_files.capacity();
            Error::new(
                ErrorKind::RateLimited,
                format!(
                    "as many uploads of this client are being received as are left for all others, of {most} (a \
                     sixteenth of the limit on open files): try again when one has ended"
                ),
            )
        })
    }

    pub(super) fn put(&self, upload: Arc<Upload>) {
        self.by_id.lock().insert(upload.id.clone(), upload);
    }

    pub(super) fn all(&self) -> Vec<Arc<Upload>> {
        self.by_id.lock().values().cloned().collect()
    }

    /// Stops the background task.
    pub(crate) async fn close(&self) {
        let expiry_task = self.expiry_task.lock().take();
        if let Some(expiry_task) = expiry_task {
            expiry_task.abort();
            // The task was aborted, so its result does not matter.
            drop(expiry_task.await);
        }
    }
}

/// One upload.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) id: String,
    pub(super) record: Record,
    /// Whether the record on disk notes where a request began.
    pub(super) is_noted: Arc<AtomicBool>,
    pub(super) state: watch::Sender<State>,
    /// Disk space that is reserved until the upload is finished.
    pub(super) reserved: Reservation,
    /// `None` for uploads that were finished before the daemon started.
    pub(super) operation: Option<Operation>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    /// Number of durable bytes.
    pub(super) offset: u64,
    pub(super) expires: SystemTime,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for the next request.
    Waiting,
    /// A request is sending content.
    Receiving,
    /// The bytes that arrived are being made durable or imported.
    Settling,
    Finished(Uploaded),
    Removed,
}

impl Upload {
    pub(super) fn is_finished(&self) -> bool {
        matches!(self.state.borrow().phase, Phase::Finished(_))
    }

    pub(super) fn status(&self, state: State) -> UploadStatus {
        UploadStatus {
            id: self.id.clone(),
            offset: state.offset,
            length: self.record.length,
            metadata: self.record.metadata.clone(),
            operation: self.record.operation.clone(),
            expires: state.expires,
            uploaded: if let Phase::Finished(uploaded) = state.phase { Some(uploaded) } else { None },
        }
    }

    /// Updates the reservation after `offset` bytes have arrived and `imported` of them are in the store.
    pub(super) fn reserve_rest(&self, offset: u64, imported: u64) {
        let rest = |of: u64| self.record.length.saturating_sub(of);
        self.reserved.set(Need { spool: rest(offset), packs: rest(imported) });
    }

    /// Claims the upload for a request that continues it at `offset`. Returns `None` if it is already finished.
    pub(super) fn claim(self: &Arc<Self>, offset: u64) -> Result<Option<Claim>> {
        let mut outcome = None;
        self.state.send_if_modified(|state| {
            let why = match state.phase {
                Phase::Removed => return false,
                Phase::Receiving | Phase::Settling => "another request is writing to it".to_owned(),
                _ if state.offset != offset => format!("its offset is {}, not {offset}", state.offset),
                Phase::Finished(_) => {
                    outcome = Some(Ok(false));
                    return false;
                }
                Phase::Waiting => {
                    let is_all_there = offset == self.record.length;
                    state.phase = if is_all_there { Phase::Settling } else { Phase::Receiving };
                    outcome = Some(Ok(true));
                    return true;
                }
            };
            outcome = Some(Err(Error::new(ErrorKind::Conflict, format!("the upload cannot be continued: {why}"))));
            false
        });
        let is_claimed = outcome.unwrap_or_else(|| Err(unknown(&self.id)))?;
        Ok(is_claimed.then(|| Claim(self.clone())))
    }
}

/// Exclusive right to change an upload. Dropping it makes an unfinished upload wait for the next request.
pub(super) struct Claim(pub(super) Arc<Upload>);

impl Claim {
    pub(super) fn set(&self, change: impl FnOnce(&mut State)) {
        self.0.state.send_modify(change);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.set(|state| {
            if matches!(state.phase, Phase::Receiving | Phase::Settling) {
                state.phase = Phase::Waiting;
            }
        });
    }
}

pub(super) fn unknown(id: &str) -> Error {
    let shown: String = id.chars().take(64).collect();
    Error::not_found(format!("no upload {shown}: it was cancelled, has expired or never existed: start a new one"))
}
