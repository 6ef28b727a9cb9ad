//! Pins: which blocks, and which DAGs, a collection of garbage must keep.

mod table;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use self::table::{Access, Change, Table};

/// The file in the store's directory.
const FILE: &str = "pins.redb";

/// Longest name of a pin, in bytes (as in Kubo).
pub const MAX_PIN_NAME_BYTES: usize = 255;

/// Pins of one page.
const PAGE_PINS: usize = 1_000;

/// Changes that may wait for the disk, over all callers; more callers wait.
const QUEUE_CHANGES: usize = 64 * 1024;

/// How much a pin keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinMode {
    /// The block itself.
    Direct,
    /// The block and everything below it.
    Recursive,
}

impl PinMode {
    /// The name that users see.
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

/// Something that is to stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// What is pinned. CIDs that differ in their version only are one pin; it is shown as it was pinned first.
    pub cid: Cid,
    /// How much of it.
    pub mode: PinMode,
    /// A name for people, of at most [`MAX_PIN_NAME_BYTES`]; may be empty.
    pub name: String,
}

impl Pin {
    /// A recursive pin without a name.
    #[must_use]
    pub fn recursive(cid: Cid) -> Self {
        Self { cid, mode: PinMode::Recursive, name: String::new() }
    }
}

/// The pins of a store, in `pins.redb` beside its packs. Cloning gives another handle of the same pins.
///
/// A change that was acknowledged is on the disk, whatever the durability of the blocks. Changes of many callers share
/// their syncs: what queues up while one commit runs goes out with the next.
#[derive(Debug, Clone)]
pub struct Pins {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None` once closed.
    table: RwLock<Option<Table>>,
    queue: Mutex<Queue>,
    admission: Arc<Semaphore>,
    place: Place,
}

/// Where pins are.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    ReadOnly(PathBuf),
    Memory,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::ReadOnly(path) => path.display().fmt(f),
            Self::Memory => f.write_str("memory"),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// Whether a thread works that will look here again.
    is_served: bool,
}

/// The changes of one caller: all of them or none.
#[derive(Debug)]
struct Waiting {
    changes: Vec<Change>,
    reply: oneshot::Sender<Result<()>>,
    _permit: OwnedSemaphorePermit,
}

impl Pins {
    /// Opens the pins of the store in `dir`, which the caller holds the lock of; makes them where there are none. Reads
    /// all of them once: pins that were lost would be blocks that are lost at the next collection. `has_blocks` says whether
    /// the store holds any: where pins are made beside blocks, what was pinned before [is lost](Self::are_lost). Waits for the
    /// disk.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when the file is there and is not whole, with the remedy; [`ErrorKind::Unsupported`] for
    /// the format of a newer version; else what the file system says.
    pub fn open(dir: &Path, has_blocks: bool) -> Result<Self> {
        let path = dir.join(FILE);
        Table::open(&path, Access::ReadWrite, has_blocks).map(|table| Self::new(table, Place::File(path)))
    }

    /// Whether pins have been kept in the store's directory before.
    #[must_use]
    pub fn exist(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// The same as [`open`](Self::open) without changing anything on the disk: changes of pins are refused.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_read_only(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        Table::open(&path, Access::ReadOnly, false).map(|table| Self::new(table, Place::ReadOnly(path)))
    }

    /// Pins that are gone when the process ends, for a store of which that is true as well.
    ///
    /// # Errors
    /// None that is known.
    pub fn in_memory() -> Result<Self> {
        Table::in_memory().map(|table| Self::new(table, Place::Memory))
    }

    fn new(table: Table, place: Place) -> Self {
        let inner = Inner {
            table: RwLock::new(Some(table)),
            queue: Mutex::default(),
            admission: Arc::new(Semaphore::new(QUEUE_CHANGES)),
            place,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Pins all of `pins`, or none, and returns once that is durable. A recursive pin replaces a direct one; a pin that
    /// is there gets the name, unless that is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for a direct pin of what is pinned recursively, [`ErrorKind::InvalidInput`] for a name
    /// that is too long; else that the pins cannot be written.
    pub async fn insert_many(&self, pins: Vec<Pin>) -> Result<()> {
        if let Some(pin) = pins.iter().find(|pin| pin.name.len() > MAX_PIN_NAME_BYTES) {
            let len = pin.name.len();
            return Err(Error::invalid(format!(
                "the pin name {:?}... has {len} bytes: give at most {MAX_PIN_NAME_BYTES}",
                pin.name.chars().take(40).collect::<String>()
            )));
        }
        self.change(pins.into_iter().map(Change::Insert).collect()).await
    }

    /// Removes the pins of all of `cids`, or none, and returns once that is durable. Without `recursive` only direct pins
    /// are removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when one has no pin, [`ErrorKind::Conflict`] when it is recursive and must not be.
    pub async fn remove_many(&self, cids: Vec<Cid>, recursive: bool) -> Result<()> {
        self.change(cids.into_iter().map(|cid| Change::Remove { cid, recursive }).collect()).await
    }

    /// Pins `to` recursively with the name of the recursive pin `from`, which goes away in the same moment unless
    /// `keep`; returns once that is durable.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] when `from` is not pinned recursively.
    pub async fn replace(&self, from: &Cid, to: &Cid, keep: bool) -> Result<()> {
        self.change(vec![Change::Replace { from: *from, to: *to, keep }]).await
    }

    /// The pin of `cid` itself, where there is one.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub async fn get(&self, cid: &Cid) -> Result<Option<Pin>> {
        Ok(self.get_many(vec![*cid]).await?.pop().flatten())
    }

    /// For each of `cids` its own pin, where there is one.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub async fn get_many(&self, cids: Vec<Cid>) -> Result<Vec<Option<Pin>>> {
        self.read(move |table| table.get_many(&cids)).await
    }

    /// The first pins after the one of `after`, in the order of their keys; none at the end. Each page is read at one
    /// moment and keeps nothing open, so that a slow reader costs nothing: a pin that is there during the whole reading
    /// is on exactly one page.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub async fn page(&self, after: Option<Cid>) -> Result<Vec<Pin>> {
        self.read(move |table| table.page(after.as_ref(), PAGE_PINS)).await
    }

    /// How many pins there are.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub async fn count(&self) -> Result<u64> {
        self.read(Table::count).await
    }

    /// Whether the pins were made beside blocks that were there before them, and nobody has [accepted](Self::accept_loss)
    /// that since: then something may be missing that was pinned.
    ///
    /// # Errors
    /// When the pins cannot be read.
    pub async fn are_lost(&self) -> Result<bool> {
        self.read(Table::are_lost).await
    }

    /// From now on what is pinned here is all that is to stay. Returns once that is durable.
    ///
    /// # Errors
    /// When the pins cannot be written.
    pub async fn accept_loss(&self) -> Result<()> {
        self.read(Table::accept_loss).await
    }

    /// Lets the file go. What is asked afterwards is [`Unavailable`](ErrorKind::Unavailable).
    ///
    /// # Errors
    /// When the thread that does so fails.
    pub async fn close(&self) -> Result<()> {
        let inner = Arc::clone(&self.inner);
        let closing = tokio::task::spawn_blocking(move || drop(inner.table.write().take()));
        closing.await.map_err(|e| Error::internal("the pins could not be closed").with_source(e))
    }

    async fn read<T: Send + 'static>(&self, read: impl FnOnce(&Table) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let reading = tokio::task::spawn_blocking(move || inner.with_table(read));
        reading.await.unwrap_or_else(|e| Err(Error::internal("a read of the pins did not end").with_source(e)))
    }

    async fn change(&self, changes: Vec<Change>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        if let place @ Place::ReadOnly(_) = &self.inner.place {
            let message = format!("the pins in {place} are open read-only (store.read_only): nothing can be changed");
            return Err(Error::read_only(message));
        }
        let permits = changes.len().min(QUEUE_CHANGES) as u32;
        let permit = Arc::clone(&self.inner.admission).acquire_many_owned(permits).await;
        let permit = permit.map_err(|e| Error::internal("the pins take no changes").with_source(e))?;
        let (reply, answer) = oneshot::channel();
        let is_served = {
            let mut queue = self.inner.queue.lock();
            queue.waiting.push(Waiting { changes, reply, _permit: permit });
            std::mem::replace(&mut queue.is_served, true)
        };
        if !is_served {
            let inner = Arc::clone(&self.inner);
            tokio::task::spawn_blocking(move || inner.serve());
        }
        answer.await.unwrap_or_else(|_| Err(Error::internal("a change of the pins did not end: it may be done or not")))
    }
}

impl Inner {
    /// Commits what waits, until nothing does.
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
            // redb asserts where damage contradicts what it relies on; the queue must be served all the same.
            let committed = catch_unwind(AssertUnwindSafe(|| self.with_table(|table| table.apply(&changes))));
            let committed = committed.unwrap_or_else(|_| {
                Err(Error::corrupt(format!("writing the pins in {} failed: see the log, then restart", self.place)))
            });
            match committed {
                Ok(outcomes) => {
                    for (waiting, outcome) in group.into_iter().zip(outcomes) {
                        // Nobody may wait any more.
                        let _ = waiting.reply.send(outcome);
                    }
                }
                Err(error) => {
                    if error.kind() == ErrorKind::NoSpace {
                        self.reopen();
                    }
                    for waiting in group {
                        let _ = waiting.reply.send(Err(Error::new(error.kind(), error.message())));
                    }
                }
            }
        }
    }

    /// Opens the file again. redb refuses everything after a write that failed; if that was for want of room, the file is
    /// sound, without what was to be written, and there may be room again.
    fn reopen(&self) {
        let mut table = self.table.write();
        // Not if it was closed meanwhile.
        if let (Place::File(path), Some(failed)) = (&self.place, table.take()) {
            // Its lock must be free first.
            drop(failed);
            match Table::open(path, Access::ReadWrite, true) {
                Ok(opened) => *table = Some(opened),
                Err(error) => tracing::error!(%error, "the pins are out of reach until the next start"),
            }
        }
    }

    fn with_table<T>(&self, run: impl FnOnce(&Table) -> Result<T>) -> Result<T> {
        let closed = || Error::new(ErrorKind::Unavailable, format!("the pins in {} are closed", self.place));
        run(self.table.read().as_ref().ok_or_else(closed)?)
    }
}

#[cfg(test)]
mod tests;
