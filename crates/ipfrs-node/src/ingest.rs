//! Objects that arrive as a stream of messages, and are made durable while they grow.

mod config;
mod file_object;
mod files_directory;
mod journal;
mod journal_recovery;
mod left_journals;
mod name;
mod tree_object;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use self::config::IngestConfig;
use self::file_object::FileObject;
use self::files_directory::FilesDirectory;
#[cfg(fuzzing)]
pub(crate) use self::journal::fuzzing;
pub use self::name::IngestName;
use self::tree_object::TreeObject;
use crate::{LinkName, Node};

/// Directory of objects, below the repo and in the mutable files.
const DIRECTORY: &str = "ingest";

/// Place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IngestStore {
    /// A file below the repo.
    FileSystem,
    /// A mutable file.
    Ipfs,
}

type Key = (IngestStore, IngestName);

/// State of ingestion: objects that are being written, and the directory of files.
#[derive(Debug)]
pub(crate) struct Ingestion {
    open: Arc<OpenObjects>,
    files: FilesDirectory,
    /// The task that moves journals into their objects.
    journal_recovery: Mutex<Option<JoinHandle<()>>>,
}

/// Objects that are being written, those that are being removed because nothing of them was acknowledged, and those
/// whose journals are being moved into the tree.
#[derive(Debug, Default)]
struct OpenObjects {
    states: Mutex<HashMap<Key, OpenState>>,
    /// Notified when an object is no longer open.
    closed: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenState {
    Written,
    Removed,
    Recovered,
}

impl Ingestion {
    pub(crate) fn new(repo: &std::path::Path, config: &IngestConfig) -> Self {
        let files = FilesDirectory::new(repo.join(DIRECTORY), config.max_files_bytes);
        Self { open: Arc::default(), files, journal_recovery: Mutex::default() }
    }

    /// Stores the handle of the background task until the node is closed.
    fn tend(&self, journal_recovery: JoinHandle<()>) {
        *self.journal_recovery.lock() = Some(journal_recovery);
    }

    /// Stops the background task.
    pub(crate) async fn close(&self) {
        let journal_recovery = self.journal_recovery.lock().take();
        if let Some(journal_recovery) = journal_recovery {
            journal_recovery.abort();
            // The task was aborted, so its result does not matter.
            drop(journal_recovery.await);
        }
    }

    /// Returns whether the mutable file with these names is an object that a client is writing.
    pub(crate) fn is_written(&self, names: &[LinkName]) -> bool {
        let Some(name) = object_of(names) else { return false };
        self.open.states.lock().get(&(IngestStore::Ipfs, name)) == Some(&OpenState::Written)
    }

    /// Marks a mutable file as being recovered, unless it is open.
    fn mark_recovered(&self, name: &IngestName) -> Option<OpenMark> {
        let key = (IngestStore::Ipfs, name.clone());
        match self.open.states.lock().entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(OpenState::Recovered);
                Some(OpenMark { open: Arc::clone(&self.open), key })
            }
            Entry::Occupied(_) => None,
        }
    }

    /// Marks an object as being written. If it is being removed or recovered, this waits for the end of that.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if another client is writing it.
    async fn mark(&self, key: Key) -> Result<Arc<OpenMark>> {
        loop {
            let closed = self.open.closed.notified();
            match self.open.states.lock().entry(key.clone()) {
                Entry::Vacant(entry) => {
                    entry.insert(OpenState::Written);
                    return Ok(Arc::new(OpenMark { open: Arc::clone(&self.open), key }));
                }
                Entry::Occupied(entry) if *entry.get() == OpenState::Written => {
                    let name = &key.1;
                    let text =
                        format!("another client is writing the object {name}: choose another name, or try again later");
                    return Err(Error::new(ErrorKind::Conflict, text));
                }
                Entry::Occupied(_) => {}
            }
            closed.await;
        }
    }
}

/// Marks an object as open. Dropping it ends that.
#[derive(Debug)]
struct OpenMark {
    open: Arc<OpenObjects>,
    key: Key,
}

impl OpenMark {
    /// Notes that the object is not written any more, but removed.
    fn begin_removal(&self) {
        self.open.states.lock().insert(self.key.clone(), OpenState::Removed);
    }
}

impl Drop for OpenMark {
    fn drop(&mut self) {
        self.open.states.lock().remove(&self.key);
        self.open.closed.notify_waiters();
    }
}

/// An object that is being written. Bytes that were not committed may be lost when it is dropped.
#[derive(Debug)]
pub struct IngestObject {
    object: Object,
    /// Bytes of the object, committed or not.
    bytes: u64,
    max_bytes: u64,
    _mark: Arc<OpenMark>,
}

#[derive(Debug)]
enum Object {
    File(FileObject),
    Tree(Box<TreeObject>),
}

impl Node {
    /// Begins an object, or continues an existing one with `append`.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the object exists and `append` is not set, or another client is writing it;
    /// [`ErrorKind::NoSpace`] if the directory of files is full; otherwise errors of the store.
    pub async fn ingest(&self, store: IngestStore, name: IngestName, append: bool) -> Result<IngestObject> {
        self.check_writable()?;
        let ingestion = &self.inner.ingestion;
        let mark = ingestion.mark((store, name.clone())).await?;
        let (object, bytes) = match store {
            IngestStore::FileSystem => {
                let (file, bytes) = FileObject::open(&ingestion.files, &name, append, &mark).await?;
                (Object::File(file), bytes)
            }
            IngestStore::Ipfs => {
                let (file, bytes) = TreeObject::open(self, &name, append).await?;
                (Object::Tree(Box::new(file)), bytes)
            }
        };
        Ok(IngestObject { object, bytes, max_bytes: self.config().ingest.max_object_bytes, _mark: mark })
    }
}

/// Returns the name of the object at a path of the mutable files, if one can be there.
fn object_of(names: &[LinkName]) -> Option<IngestName> {
    let [directory, name] = names else { return None };
    let name = std::str::from_utf8(name.as_bytes()).ok()?.parse::<IngestName>().ok()?;
    (directory.as_bytes() == DIRECTORY.as_bytes()).then_some(name)
}

/// Returns the error for an object that exists.
fn exists(name: &IngestName) -> Error {
    let text = format!("the object {name} exists: choose another name, or continue it with append=true");
    Error::new(ErrorKind::Conflict, text)
}

impl IngestObject {
    /// Returns the number of bytes of the object.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether appended messages may stay in memory until they are committed.
    #[must_use]
    pub fn holds_messages(&self) -> bool {
        matches!(self.object, Object::Tree(_))
    }

    /// Returns how many of `messages`, from the first, the object can take.
    #[must_use]
    pub fn room_for(&self, messages: &[Bytes]) -> usize {
        let ends = messages.iter().scan(self.bytes, |end, message| {
            *end = end.saturating_add(message.len() as u64);
            Some(*end)
        });
        ends.take_while(|end| *end <= self.max_bytes).count()
    }

    /// Appends messages.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] above `ingest.max_object_bytes`; [`ErrorKind::NoSpace`] if the disk or the directory of
    /// files is full; otherwise errors of the store. What was committed stays.
    pub async fn append(&mut self, messages: Vec<Bytes>) -> Result<()> {
        if self.room_for(&messages) < messages.len() {
            let most = self.max_bytes;
            return Err(Error::too_large(format!("the object is over {most} bytes (ingest.max_object_bytes)")));
        }
        let added: u64 = messages.iter().map(|message| message.len() as u64).sum();
        let bytes = self.bytes.saturating_add(added);
        match &mut self.object {
            Object::File(file) => file.append(messages, added).await?,
            Object::Tree(file) => file.append(messages).await?,
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Begins to make everything that was appended durable. [`Self::committed`] waits for that. Meanwhile, more may be
    /// appended. A mutable file may have it after [`Self::settle`] only.
    ///
    /// # Errors
    /// The errors of the store. The object must be dropped then.
    pub async fn begin_commit(&mut self) -> Result<()> {
        match &mut self.object {
            Object::File(file) => file.commit().await,
            Object::Tree(file) => file.begin_commit().await,
        }
    }

    /// Waits until the last commit is durable. If the future is dropped, the commit continues.
    ///
    /// # Errors
    /// As [`Self::begin_commit`].
    pub async fn committed(&mut self) -> Result<()> {
        match &mut self.object {
            Object::File(_) => Ok(()),
            Object::Tree(file) => file.committed().await,
        }
    }

    /// Makes everything that was appended visible to readers, and durable.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn settle(&mut self) -> Result<()> {
        match &mut self.object {
            Object::File(file) => file.commit().await,
            Object::Tree(file) => file.settle().await,
        }
    }

    /// Ends the object. Returns the content ID of a mutable file.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn finish(mut self) -> Result<Option<Cid>> {
        match &mut self.object {
            Object::File(file) => file.commit().await.map(|()| None),
            Object::Tree(file) => file.finish().await.map(Some),
        }
    }
}
