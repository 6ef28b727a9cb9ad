//! Pins: the blocks and DAGs that garbage collection must keep.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod table;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::table::{Change, Table};

/// File name in the store's directory.
const FILE: &str = "pins.redb";

/// Maximum length of a pin's name, in bytes (as in Kubo).
pub const MAX_PIN_NAME_BYTES: usize = 255;

/// Number of pins per page.
const PAGE_PINS: usize = 1_000;

/// Maximum number of changes that wait for the disk, over all callers. Further callers wait.
const QUEUE_CHANGES: usize = 64 * 1024;

/// Extent of a pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinMode {
    /// The block itself.
    Direct,
    /// The block and everything below it.
    Recursive,
}

impl PinMode {
    /// Returns the name shown to users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Recursive => "recursive",
        }
    }
}

impl fmt::Display for PinMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A pinned block or DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// CID of the pinned block or root. CIDs that differ only in their version are one pin, which shows the CID that
    /// was pinned first.
    pub cid: Cid,
    /// Extent of the pin.
    pub mode: PinMode,
    /// Descriptive name, of at most [`MAX_PIN_NAME_BYTES`]. May be empty.
    pub name: String,
}

impl Pin {
    /// Returns a recursive pin without a name.
    #[must_use]
    pub fn recursive(cid: Cid) -> Self {
        Self { cid, mode: PinMode::Recursive, name: String::new() }
    }
}

/// A note about the root of the mutable files, which is in another file. It is kept with the pins, because gc needs
/// both, and loses blocks if either is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootNote {
    /// The file with the root exists.
    Used,
    /// It was missing when the mutable files were used again.
    Lost,
}

/// The pins of a store, in `pins.redb` beside its packs. Clones share the pins.
///
/// An acknowledged change is on the disk, regardless of the durability of the blocks. Changes of several callers
/// share a sync: changes queued during one commit are written by the next.
#[derive(Debug, Clone)]
pub struct Pins {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Table,
    queue: Mutex<Queue>,
    /// Held while changes are applied.
    applying: Mutex<()>,
    admission: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a thread is processing the queue and will check it again.
    is_served: bool,
}

/// The changes of one caller, which are applied completely or not at all.
#[derive(Debug)]
struct Waiting {
    changes: Vec<Change>,
    reply: oneshot::Sender<Result<()>>,
    _permit: OwnedSemaphorePermit,
}

impl Pins {
    /// Returns the error of [`Self::replace`] for a target with a pin, whose name would be lost. The text is Kubo's.
    #[must_use]
    pub fn already_pinned() -> Error {
        Error::new(ErrorKind::Conflict, "'to' cid was already recursively pinned")
    }

    /// Opens the pins of the store in `dir`, creating them if they do not exist. The caller must hold the lock of the
    /// store. Reads all pins once, because garbage collection would delete the blocks of pins that were lost.
    /// `has_blocks` says whether the store holds any blocks: if pins are created for a store with blocks, earlier
    /// pins [are lost](Self::are_lost). Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if the file exists and is damaged, with the remedy;
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for the format of a newer version; otherwise the error of
    /// the file system.
    pub fn open(dir: &Path, has_blocks: bool) -> Result<Self> {
        Table::open(&dir.join(FILE), false, has_blocks).map(Self::new)
    }

    /// Whether the store's directory contains pins.
    #[must_use]
    pub fn exist(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Like [`open`](Self::open), without changing anything on the disk. Changes of pins are rejected.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_read_only(dir: &Path) -> Result<Self> {
        Table::open(&dir.join(FILE), true, false).map(Self::new)
    }

    /// Creates pins that are lost when the process ends. `has_blocks` is as for [`Self::open`].
    ///
    /// # Errors
    /// If the tables cannot be created.
    pub fn in_memory(has_blocks: bool) -> Result<Self> {
        Table::in_memory(has_blocks).map(Self::new)
    }

    fn new(table: Table) -> Self {
        let admission = Arc::new(Semaphore::new(QUEUE_CHANGES));
        let inner = Inner { table, queue: Mutex::default(), applying: Mutex::default(), admission };
        Self { inner: Arc::new(inner) }
    }

    /// Adds all of `pins`, or none, and returns once the change is durable. A recursive pin replaces a direct one. An
    /// existing pin takes the new name unless that is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) for a direct pin of a CID that is pinned recursively;
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a name that is too long; otherwise if the pins cannot
    /// be written.
    pub async fn insert_many(&self, pins: Vec<Pin>) -> Result<()> {
        if let Some(pin) = pins.iter().find(|pin| pin.name.len() > MAX_PIN_NAME_BYTES) {
            let len = pin.name.len();
            return Err(Error::invalid(format!("pin name is {len} bytes (max {MAX_PIN_NAME_BYTES} bytes)")));
        }
        self.change(pins.into_iter().map(Change::Insert).collect()).await
    }

    /// Removes the pins of all of `cids`, or none, and returns once the change is durable. Without `recursive`, only
    /// direct pins can be removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if a CID has no pin;
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if its pin is recursive and `recursive` is false.
    pub async fn remove_many(&self, cids: Vec<Cid>, recursive: bool) -> Result<()> {
        self.change(cids.into_iter().map(|cid| Change::Remove { cid, recursive }).collect()).await
    }

    /// Makes the pin of `cid` a direct pin with this name, and returns once the change is durable. The block is pinned
    /// at any time, and the pin shows the same CID.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if the CID has no pin.
    pub async fn make_direct(&self, cid: &Cid, name: String) -> Result<()> {
        let shown = self.get(cid).await?.map_or(*cid, |pin| pin.cid);
        let direct = Pin { cid: shown, mode: PinMode::Direct, name };
        self.change(vec![Change::Remove { cid: *cid, recursive: true }, Change::Insert(direct)]).await
    }

    /// Pins `to` recursively with the name of the recursive pin `from`. Unless `keep`, removes the pin `from` in the
    /// same transaction. Returns once the change is durable.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if `from` is not pinned recursively.
    pub async fn replace(&self, from: &Cid, to: &Cid, keep: bool) -> Result<()> {
        self.change(vec![Change::Replace { from: *from, to: *to, keep }]).await
    }

    /// Returns the pin of `cid` itself, if there is one.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn get(&self, cid: &Cid) -> Result<Option<Pin>> {
        Ok(self.get_many(vec![*cid]).await?.pop().flatten())
    }

    /// Returns the pin of each of `cids` itself, if there is one.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn get_many(&self, cids: Vec<Cid>) -> Result<Vec<Option<Pin>>> {
        self.read(move |table| table.get_many(&cids)).await
    }

    /// Returns the first pins after that of `after`, in the order of their keys. The page is empty at the end. Each
    /// page is read in one transaction and keeps nothing open, so a slow reader occupies no resources. A pin that
    /// exists during the whole iteration is on exactly one page.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn page(&self, after: Option<Cid>) -> Result<Vec<Pin>> {
        self.read(move |table| table.page(after.as_ref(), PAGE_PINS)).await
    }

    /// Returns the number of pins.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn count(&self) -> Result<u64> {
        self.read(Table::count).await
    }

    /// Ensures that a power failure would not bring back a pin that cannot be read any more. Code that deletes blocks
    /// that no pin leads to must call this before the pins are read and after that: if the numbers differ, the pins may
    /// have changed without a change of this process.
    ///
    /// # Errors
    /// If the disk failed during a change, and still fails: that change may or may not survive.
    pub async fn ensure_durable(&self) -> Result<u64> {
        self.read(Table::ensure_durable).await
    }

    /// Whether pins may have been lost: the pins were created for a store that already had blocks, and the operator
    /// has not [accepted](Self::accept_loss) the loss since.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn are_lost(&self) -> Result<bool> {
        self.read(Table::are_lost).await
    }

    /// Accepts that earlier pins are lost: the pins that exist now are complete. Returns once the change is durable.
    ///
    /// # Errors
    /// If the pins cannot be written.
    pub async fn accept_loss(&self) -> Result<()> {
        self.read(Table::accept_loss).await
    }

    /// Returns whether there is a note about the root of the mutable files.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn has_root_note(&self, note: RootNote) -> Result<bool> {
        self.read(move |table| table.has_root_note(note)).await
    }

    /// Sets or removes a note about the root of the mutable files, and returns once the change is durable.
    ///
    /// # Errors
    /// If the pins cannot be written.
    pub async fn set_root_note(&self, note: RootNote, is_set: bool) -> Result<()> {
        self.read(move |table| table.set_root_note(note, is_set)).await
    }

    /// Returns whether it is noted that there are references to blocks in files. Waits for the disk.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub fn has_filestore_note(&self) -> Result<bool> {
        self.inner.table.has_filestore_note()
    }

    /// Notes durably whether there are references to blocks in files. Waits for the disk.
    ///
    /// # Errors
    /// If the pins cannot be written.
    pub fn set_filestore_note(&self, is_set: bool) -> Result<()> {
        self.inner.table.set_filestore_note(is_set)
    }

    /// Runs `meanwhile` while no pin is added or removed, and writes the pins of that moment to `pins.redb` in
    /// `directory`, where it must not exist. Changes wait only for `meanwhile`, which runs on a thread that may block
    /// and must not change pins.
    ///
    /// # Errors
    /// Those of `meanwhile`, or if the pins cannot be read or written.
    pub async fn save<T: Send + 'static>(
        &self,
        directory: &Path,
        meanwhile: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (inner, path) = (Arc::clone(&self.inner), directory.join(FILE));
        let saving = tokio::task::spawn_blocking(move || {
            let (moment, outcome) = {
                let _applying = inner.applying.lock();
                (inner.table.moment()?, meanwhile()?)
            };
            Table::save(&moment, &path)?;
            Ok(outcome)
        });
        saving.await.unwrap_or_else(|e| Err(Error::internal("the pins were not saved").with_source(e)))
    }

    /// Closes the file. Later calls return [`Unavailable`](ipfrs_core::ErrorKind).
    ///
    /// # Errors
    /// If the thread that closes the file fails.
    pub async fn close(&self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let closing = tokio::task::spawn_blocking(move || inner.table.close());
        closing.await.map_err(|e| Error::internal("the pins could not be closed").with_source(e))
    }

    async fn read<T: Send + 'static>(&self, read: impl FnOnce(&Table) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let reading = tokio::task::spawn_blocking(move || read(&inner.table));
        reading.await.unwrap_or_else(|e| Err(Error::internal("a read of the pins did not complete").with_source(e)))
    }

    async fn change(&self, changes: Vec<Change>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.inner.table.check_writable()?;
        let permits = changes.len().min(QUEUE_CHANGES) as u32;
        let permit = Arc::clone(&self.inner.admission).acquire_many_owned(permits).await;
        let permit = permit.map_err(|e| Error::internal("the pins no longer accept changes").with_source(e))?;
        let (reply, receiver) = oneshot::channel();
        let is_served = {
            let mut queue = self.inner.queue.lock();
            queue.waiting.push(Waiting { changes, reply, _permit: permit });
            std::mem::replace(&mut queue.is_served, true)
        };
        if !is_served {
            let inner = Arc::clone(&self.inner);
            tokio::task::spawn_blocking(move || inner.serve());
        }
        receiver.await.unwrap_or_else(|_| {
            Err(Error::internal("a change of the pins did not complete: it may or may not be applied"))
        })
    }
}

impl Inner {
    /// Commits the queued changes until the queue is empty.
    fn serve(&self) {
        loop {
            let group = {
                let mut queue = self.queue.lock();
                if queue.waiting.is_empty() {
                    queue.is_served = false;
                    return;
                }
                std::mem::take(&mut queue.waiting)
            };
            let changes: Vec<_> = group.iter().map(|waiting| waiting.changes.as_slice()).collect();
            let applied = {
                let _applying = self.applying.lock();
                self.table.apply(&changes)
            };
            match applied {
                Ok(outcomes) => {
                    for (waiting, outcome) in group.into_iter().zip(outcomes) {
                        // The caller may be gone.
                        let _ = waiting.reply.send(outcome);
                    }
                }
                Err(error) => {
                    for waiting in group {
                        let _ = waiting.reply.send(Err(Error::new(error.kind(), error.message())));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod power_failures;
#[cfg(test)]
mod tests;
