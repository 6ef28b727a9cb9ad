//! Blocks that stay in files of the user: the store has a reference to the part of the file that each block is.

mod block_store;
mod file;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod reference;
mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use ipfrs_core::{Block, Cid, Error, ErrorKind, FileOffset, Multihash, Result, codec};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::file::Source;
pub use self::reference::{FileState, Reference, ReferenceOrder};
use self::reference::{Position, Record};
use self::table::Table;
use crate::pack::key_of;
use crate::store::{self, Admission};
use crate::{BlockStore, PackStore, Stored};

/// File name in the directory of the store.
const FILE: &str = "filestore.redb";

/// Most files that are read at the same time. A file server that does not respond would otherwise occupy all threads
/// that may block.
const MAX_FILE_READS: usize = 32;

/// References per page of a listing.
const PAGE_REFERENCES: usize = 1_000;

/// A [`PackStore`], and references to blocks in files below one directory. Clones share both.
///
/// A block is read from the packs if they have it. Otherwise the part of the file is read and compared with the content
/// ID each time, because the user may change or move the file. Such a block is an error that names the file, until the
/// file is restored or the reference is removed.
///
/// Blocks that are put go to the packs, even if there is a reference. [`put_references`](Self::put_references) adds
/// references. They belong to the contracts of [`BlockStore`]: they are listed, counted and deleted like other blocks.
/// A deletion never touches the file.
#[derive(Debug, Clone)]
pub struct Filestore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    packs: PackStore,
    /// Absolute path without links of the directory that the files are in.
    root: PathBuf,
    table: Table,
    /// Number of references, and the sum of their lengths.
    blocks: AtomicU64,
    bytes: AtomicU64,
    /// Held while the totals are updated.
    counting: Mutex<()>,
    /// Number of times that references were removed.
    removals: AtomicU64,
    /// One permit for each file that is being read.
    reads: Arc<Semaphore>,
}

impl Filestore {
    /// Opens the references in the directory of the store, and creates the file if there is none. `root` is the
    /// directory of the files. Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if `root` is not a directory; [`ErrorKind::Corrupt`] for a damaged file; otherwise
    /// the error of the file system.
    pub fn open(packs: PackStore, root: &Path, is_read_only: bool) -> Result<Self> {
        let shown = root.display();
        let root = root.canonicalize().map_err(|e| {
            Error::invalid(format!("store.filestore_root = {shown:?}: {e}. Set the directory of the files"))
        })?;
        if !root.is_dir() {
            return Err(Error::invalid(format!("store.filestore_root = {shown:?} is not a directory")));
        }
        let table = Table::open(&packs.directory().join(FILE), is_read_only)?;
        let totals = table.totals()?;
        let (blocks, bytes) = (totals.blocks.into(), totals.bytes.into());
        let (removals, reads) = (AtomicU64::new(0), Arc::new(Semaphore::new(MAX_FILE_READS)));
        let counting = Mutex::default();
        Ok(Self { inner: Arc::new(Inner { packs, root, table, blocks, bytes, counting, removals, reads }) })
    }

    /// Returns the packs, without the references.
    #[must_use]
    pub fn packs(&self) -> &PackStore {
        &self.inner.packs
    }

    /// Whether the directory of a store has references.
    #[must_use]
    pub fn exists(store: &Path) -> bool {
        store.join(FILE).exists()
    }

    /// Adds a reference for each block, and returns once all are durable. A block in the packs gets no reference.
    /// An existing reference is replaced, since its file may have moved. Reads the files, because they must contain the
    /// blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a file that is not below the root, cannot be opened, or does not contain the
    /// block; also errors of the store. Nothing has changed then.
    pub async fn put_references(&self, blocks: Vec<(Block, FileOffset)>) -> Result<Vec<Stored>> {
        let cids: Vec<_> = blocks.iter().map(|(block, _)| *block.cid()).collect();
        let in_packs = self.inner.packs.has_many(&cids).await?;
        self.reading(move |inner| {
            let mut outcomes = vec![Stored::Present; blocks.len()];
            let (mut records, mut places) = (Vec::new(), Vec::new());
            let mut source = None;
            for (index, ((block, part), in_packs)) in blocks.iter().zip(in_packs).enumerate() {
                if store::admit(block)? == Admission::Identity || in_packs.is_some() {
                    continue;
                }
                let opened = Source::of(part, source.take(), &inner.root)?;
                opened.check(block.data(), part.offset)?;
                // A block has at most some megabytes.
                let len = block.data().len() as u32;
                let record = Record { path: opened.relative.clone(), offset: part.offset, len };
                records.push((key_of(block.cid().hash()), record));
                places.push(index);
                source = Some(opened);
            }
            if records.is_empty() {
                return Ok(outcomes);
            }
            // A change that failed may have been made.
            let put = inner.table.put(&records);
            inner.count();
            for (index, is_new) in places.into_iter().zip(put?) {
                if is_new {
                    outcomes[index] = Stored::New;
                }
            }
            Ok(outcomes)
        })
        .await
    }

    /// Returns the reference of each block, if there is one.
    ///
    /// # Errors
    /// If the references cannot be read.
    pub async fn references(&self, cids: &[Cid]) -> Result<Vec<Option<Reference>>> {
        let hashes: Vec<_> = cids.iter().map(|cid| *cid.hash()).collect();
        self.blocking(move |inner| {
            let keys: Vec<_> = hashes.iter().map(key_of).collect();
            let records = inner.table.get(&keys)?;
            Ok(records.into_iter().zip(hashes).map(|(record, hash)| Some(reference(&hash, record?))).collect())
        })
        .await
    }

    /// Returns all references in an order. Memory use is bounded. References that are added meanwhile may be included.
    #[must_use]
    pub fn list(&self, order: ReferenceOrder) -> BoxStream<'static, Result<Reference>> {
        self.list_after(order, None)
    }

    fn list_after(&self, order: ReferenceOrder, after: Option<Position>) -> BoxStream<'static, Result<Reference>> {
        let pages = stream::try_unfold((self.clone(), after), move |(filestore, after)| async move {
            let page =
                filestore.blocking(move |inner| inner.table.page(order, after.as_ref(), PAGE_REFERENCES)).await?;
            let Some(last) = page.last().map(|entry| entry.position.clone()) else { return Ok::<_, Error>(None) };
            let references = page.into_iter().map(|entry| Ok(reference(&hash_of(&entry.key)?, entry.record)));
            let references: Vec<Result<Reference>> = references.collect();
            Ok(Some((stream::iter(references), (filestore, Some(last)))))
        });
        pages.try_flatten().boxed()
    }

    /// Compares the file of a reference with the block.
    ///
    /// # Errors
    /// If the task that reads fails.
    pub async fn verify(&self, reference: &Reference) -> Result<FileState> {
        let (hash, record) = (*reference.cid.hash(), Record::from(reference));
        let state = move |inner: &Inner| Ok(file::read(&inner.root, &record, &hash).err().unwrap_or(FileState::Intact));
        self.reading(state).await
    }

    /// Removes references, unless they were replaced since they were read, and returns once that is durable. Returns
    /// for each whether it was removed.
    ///
    /// # Errors
    /// If the references cannot be written. Nothing has changed then.
    pub async fn remove_references(&self, references: &[Reference]) -> Result<Vec<bool>> {
        let hashes: Vec<_> = references.iter().map(|reference| *reference.cid.hash()).collect();
        let known: Vec<_> = references.iter().map(Record::from).collect();
        self.blocking(move |inner| inner.remove(&hashes, |index, record| known.get(index) != Some(record))).await
    }

    /// Closes the file of the references. Later calls return [`ErrorKind::Unavailable`].
    ///
    /// # Errors
    /// If the task that closes it fails.
    pub async fn close(&self) -> Result<()> {
        self.blocking(|inner| {
            inner.table.close();
            Ok(())
        })
        .await
    }

    /// Whether the packs have each of the blocks, regardless of references.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn are_in_packs(&self, cids: &[Cid]) -> Result<Vec<bool>> {
        Ok(self.inner.packs.has_many(cids).await?.iter().map(Option::is_some).collect())
    }

    /// Returns a function that writes the references of this moment to `filestore.redb` in a directory, where it must
    /// not exist. Both wait for the disk.
    ///
    /// # Errors
    /// If the references cannot be read.
    pub fn moment(&self) -> Result<impl FnOnce(&Path) -> Result<()> + Send + use<>> {
        let moment = self.inner.table.moment()?;
        Ok(move |directory: &Path| Table::save(&moment, &directory.join(FILE)))
    }

    /// Returns a block that is in a file, or `None` if it has no reference.
    async fn load(&self, cid: Cid) -> Result<Option<Bytes>> {
        let record = self.blocking(move |inner| Ok(inner.table.get(&[key_of(cid.hash())])?.pop().flatten())).await?;
        let Some(record) = record else { return Ok(None) };
        let read =
            move |inner: &Inner| file::read(&inner.root, &record, cid.hash()).map_err(|state| broken(&cid, &state));
        self.reading(read).await.map(Some)
    }

    /// Whether there are no references, so that nothing needs to be looked up.
    fn is_empty(&self) -> bool {
        self.inner.blocks.load(Ordering::Acquire) == 0
    }

    /// Runs `work`, which reads files of the user.
    async fn reading<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let permit = Arc::clone(&self.inner.reads).acquire_owned().await;
        let permit = permit.map_err(|e| Error::internal("the filestore is closed").with_source(e))?;
        self.blocking(move |inner| {
            // Kept until the thread is free, even if the caller is gone.
            let _until_done = permit;
            work(inner)
        })
        .await
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|e| Err(Error::internal("a task of the filestore failed").with_source(e)))
    }
}

impl Inner {
    /// Updates the totals after a change. Waits for the disk.
    fn count(&self) {
        // Otherwise an older count could replace a newer one.
        let _counting = self.counting.lock();
        match self.table.totals() {
            Ok(totals) => {
                self.blocks.store(totals.blocks, Ordering::Release);
                self.bytes.store(totals.bytes, Ordering::Release);
            }
            // The change is durable. That there may be references is what matters.
            Err(_) => drop(self.blocks.fetch_max(1, Ordering::AcqRel)),
        }
    }

    /// Removes the references of `hashes`, except those that `is_spared` keeps, which gets the index of the hash. Waits
    /// for the disk.
    fn remove(&self, hashes: &[Multihash], is_spared: impl Fn(usize, &Record) -> bool) -> Result<Vec<bool>> {
        let keys: Vec<_> = hashes.iter().map(key_of).collect();
        let removed = self.table.remove(&keys, is_spared);
        // A change that failed may have been made.
        if removed.as_ref().map_or(true, |removed| removed.contains(&true)) {
            // Before the caller learns of it.
            self.removals.fetch_add(1, Ordering::Release);
            self.count();
        }
        removed
    }
}

impl From<&Reference> for Record {
    fn from(reference: &Reference) -> Self {
        Self { path: reference.path.clone(), offset: reference.offset, len: reference.len }
    }
}

fn reference(hash: &Multihash, record: Record) -> Reference {
    let Record { path, offset, len } = record;
    Reference { cid: Cid::new_v1(codec::RAW, *hash), path, offset, len }
}

fn hash_of(key: &[u8]) -> Result<Multihash> {
    Multihash::from_bytes(key).map_err(|_| Error::corrupt("a reference of the filestore has no valid key"))
}

/// Returns the error for a block whose file is not intact.
fn broken(cid: &Cid, state: &FileState) -> Error {
    let why = match state {
        FileState::Intact => "it is intact",
        FileState::Changed(why) | FileState::NoFile(why) | FileState::Unreadable(why) => why,
    };
    Error::new(
        ErrorKind::Corrupt,
        format!("block {cid} of the filestore cannot be read: {why}. Restore the file, or add it again"),
    )
}
