//! An object that is a mutable file.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_unixfs::{Chunker, FileEdit};
use tokio::task::JoinHandle;
use tokio::time::{Duration, Instant};

use super::journal::{self, Journal, MAX_RECORD_BYTES, in_background};
use super::{DIRECTORY, IngestName, exists};
use crate::Node;
use crate::durable_directory::DurableDirectory;
use crate::gc::Lease;
use crate::mutable_files::{AppendedFile, MutablePath, now};
use crate::private_file::sync_parent;

/// Directory of the journals, below the repo.
pub(super) const JOURNALS: &str = "ingest-journals";
/// Text in the name of a damaged journal after that of its object, which has no `~`.
const DAMAGED: &str = "~damaged";
/// Size of the leaves of a file, in bytes.
const LEAF_BYTES: u64 = 256 * 1024;
/// Size in bytes below which the last leaf is written again with the next bytes. Without this, many small commits would
/// leave a file of tiny leaves.
const MIN_LEAF_BYTES: u64 = 16 * 1024;
/// Time for which bytes may be in the journal alone while the file grows.
const SETTLE_AFTER: Duration = Duration::from_secs(1);

/// A mutable file that grows.
pub(super) struct TreeObject {
    node: Node,
    path: MutablePath,
    file: AppendedFile,
    edit: FileEdit,
    journal: Journal,
    /// Size of the file, in bytes.
    size: u64,
    /// Number of bytes since the last commit to the tree, with those of the last leaf if it is written again.
    unsettled: u64,
    /// Bytes since the last commit, up to one more than a record may have.
    unrecorded: BytesMut,
    /// Time of the last commit to the tree.
    settled: Instant,
    /// Content of the last leaf, if it is written again.
    tail: BytesMut,
    /// Protects the blocks since the last commit to the tree from gc.
    lease: Option<Lease>,
    /// The last commit to the tree, while it becomes durable.
    settling: Option<JoinHandle<Result<()>>>,
}

impl fmt::Debug for TreeObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TreeObject").field("path", &self.path).finish_non_exhaustive()
    }
}

impl TreeObject {
    /// Opens the file, which it creates durably. Returns its size too.
    pub(super) async fn open(node: &Node, name: &IngestName, append: bool) -> Result<(Self, u64)> {
        let path = path_of(name)?;
        let journal = journals(node).await?.join(name.as_str());
        // Until then, only the journal may have acknowledged bytes of the last writer.
        node.until_appended_is_durable(&path).await?;
        if append {
            // A writer that could not settle has left its acknowledged bytes there.
            node.recover_journal(&journal, name).await?;
        }
        let opened = node.open_appended(&path, append).await?;
        let Some(file) = opened else { return Err(exists(name)) };
        let mut edit = open_edit(node, &file).await?;
        let size = edit.size();
        edit.seek(size).await?;
        let journal = Journal::create(journal).await?;
        let object = Self {
            node: node.clone(),
            path,
            file,
            edit,
            journal,
            size,
            unsettled: 0,
            unrecorded: BytesMut::new(),
            settled: Instant::now(),
            tail: BytesMut::new(),
            lease: None,
            settling: None,
        };
        Ok((object, size))
    }

    pub(super) async fn append(&mut self, messages: Vec<Bytes>) -> Result<()> {
        if self.lease.is_none() {
            self.lease = Some(self.node.appended_lease());
        }
        if self.unsettled == 0 && !self.tail.is_empty() {
            let start = self.size - self.tail.len() as u64;
            self.edit.truncate(start).await?;
            self.edit.seek(start).await?;
            self.unsettled = self.tail.len() as u64;
            self.edit.write(self.tail.clone().freeze()).await?;
        }
        for message in messages {
            let len = message.len() as u64;
            self.note_tail(&message);
            if self.unrecorded.len() <= MAX_RECORD_BYTES {
                let most = MAX_RECORD_BYTES + 1 - self.unrecorded.len();
                self.unrecorded.extend_from_slice(&message[..message.len().min(most)]);
            }
            self.edit.write(message).await?;
            self.size += len;
            self.unsettled += len;
        }
        Ok(())
    }

    /// Keeps the last bytes for the next commit.
    fn note_tail(&mut self, message: &Bytes) {
        let kept = MIN_LEAF_BYTES as usize;
        let message = &message[message.len().saturating_sub(kept)..];
        let excess = (self.tail.len() + message.len()).saturating_sub(kept).min(self.tail.len());
        if excess > 0 {
            let _ = self.tail.split_to(excess);
        }
        self.tail.extend_from_slice(message);
    }

    /// Makes the file durable: in the journal, or in the tree once [`Self::committed`] has returned.
    pub(super) async fn begin_commit(&mut self) -> Result<()> {
        // Until the tree is durable, the records of the journal are needed.
        self.committed().await?;
        let bytes = self.unrecorded.len();
        let is_small = bytes <= MAX_RECORD_BYTES && self.journal.fits(bytes);
        if !is_small || self.settled.elapsed() >= SETTLE_AFTER {
            return self.begin_settle().await;
        }
        if bytes > 0 {
            // The journal of a file that is gone would be of no use.
            self.checked(self.node.check_appended(&self.path, &self.file).await).await?;
            self.journal.append(self.size - bytes as u64, &self.unrecorded).await?;
            self.unrecorded.clear();
        }
        Ok(())
    }

    /// Makes the file durable in the tree.
    pub(super) async fn settle(&mut self) -> Result<()> {
        self.committed().await?;
        self.begin_settle().await?;
        self.committed().await
    }

    /// Waits until the last commit is durable. If the future is dropped, the commit continues.
    pub(super) async fn committed(&mut self) -> Result<()> {
        let Some(settling) = &mut self.settling else { return Ok(()) };
        let settled = settling.await;
        self.settling = None;
        settled.unwrap_or_else(|e| Err(Error::internal("a task that commits an object failed").with_source(e)))
    }

    /// Puts the file into the tree, which becomes durable while more is appended. The last commit must be durable.
    async fn begin_settle(&mut self) -> Result<()> {
        self.settled = Instant::now();
        if self.unsettled == 0 {
            return Ok(());
        }
        let new = self.edit.commit().await?;
        let replaced = self.node.replace_appended(&self.path, &mut self.file, new, self.lease.take()).await;
        self.settling = Some(self.checked(replaced).await?);
        self.journal.reset();
        self.unrecorded.clear();
        // The last leaf has what is left after full leaves, counted from the last commit.
        let last = match self.unsettled % LEAF_BYTES {
            0 => LEAF_BYTES,
            rest => rest,
        };
        let keeps = usize::try_from(last).ok().filter(|_| last < MIN_LEAF_BYTES).unwrap_or(0);
        let excess = self.tail.len().checked_sub(keeps);
        let excess = excess.ok_or_else(|| Error::internal("the last leaf is longer than the bytes that are known"))?;
        let _ = self.tail.split_to(excess);
        self.unsettled = 0;
        Ok(())
    }

    /// Removes the journal if the file is gone that its bytes belong to.
    async fn checked<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Conflict) {
            self.journal.remove().await;
        }
        outcome
    }

    /// Makes the file durable in the tree and removes the journal. Returns the content ID.
    pub(super) async fn finish(&mut self) -> Result<Cid> {
        self.settle().await?;
        self.journal.remove().await;
        Ok(*self.file.cid())
    }
}

pub(super) fn path_of(name: &IngestName) -> Result<MutablePath> {
    MutablePath::parse(format!("/{DIRECTORY}/{name}"))
}

/// Returns the directory of the journals, which it creates.
async fn journals(node: &Node) -> Result<PathBuf> {
    let directory = DurableDirectory::new(node.repo().join(JOURNALS), 0o700);
    let path = directory.path().to_owned();
    in_background(&path, "create", move |_| directory.ensure()).await?;
    Ok(path)
}

/// Opens the file of an object. Its leaves have a fixed size, which the journal relies on.
async fn open_edit(node: &Node, file: &AppendedFile) -> Result<FileEdit> {
    let (source, sink) = (node.appended_source(), node.appended_sink());
    FileEdit::open(source, sink, file.cid(), Some(true), Chunker::Size(LEAF_BYTES as usize), now()).await
}

/// Renames a damaged journal durably. Earlier damaged journals of its object stay.
fn keep_damaged(path: &Path, name: &IngestName) -> io::Result<()> {
    let mut kept = path.with_file_name(format!("{name}{DAMAGED}"));
    let mut number = 1;
    while kept.try_exists()? {
        number += 1;
        kept = path.with_file_name(format!("{name}{DAMAGED}-{number}"));
    }
    tracing::error!(
        object = %name, journal = %kept.display(),
        "the journal of the object is damaged: acknowledged bytes are lost, and the journal is kept"
    );
    fs::rename(path, &kept)?;
    sync_parent(&kept)
}

impl Node {
    /// Moves what is left in journals into the tree, after a process that ended without doing so.
    pub(crate) async fn recover_ingested(&self) -> Result<()> {
        for file in self.listed_journals().await? {
            let Ok(name) = file.parse::<IngestName>() else { continue };
            if let Err(error) = self.recover_journal(&self.repo().join(JOURNALS).join(file), &name).await {
                tracing::warn!(object = %name, %error, "a journal cannot be moved into its object, so it is kept");
            }
        }
        Ok(())
    }

    /// Returns the names of the files in the directory of the journals.
    pub(super) async fn listed_journals(&self) -> Result<Vec<String>> {
        let directory = self.repo().join(JOURNALS);
        let listed = in_background(&directory, "list", |directory| match fs::read_dir(directory) {
            Ok(entries) => entries.map(|entry| entry.map(|entry| entry.file_name().into_string().ok())).collect(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(e),
        });
        Ok(listed.await?.into_iter().flatten().collect())
    }

    /// Returns for each damaged journal that bytes of its object were lost, with the remedy, until the operator removes
    /// the file.
    pub(crate) async fn damaged_journals(&self) -> Result<Vec<String>> {
        let listed = self.listed_journals().await?.into_iter();
        let lost = listed.filter_map(|file| {
            let (object, _) = file.split_once(DAMAGED)?;
            Some(format!(
                "acknowledged bytes of /{DIRECTORY}/{object} are lost, because its journal was damaged: send what the \
                 object lacks again, then remove {JOURNALS}/{file} in the repo"
            ))
        });
        Ok(lost.collect())
    }

    /// Moves what is left in a journal, if there is one, into the tree.
    pub(super) async fn recover_journal(&self, path: &Path, name: &IngestName) -> Result<()> {
        if !in_background(path, "read", |path| path.try_exists()).await? {
            return Ok(());
        }
        let object = path_of(name)?;
        let size = match self.mutable_file(&object).await {
            Ok(file) => file.size(),
            // Someone removed the object while it was written.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                if self.inner.mutable_files.durable_root().await.root().is_none() {
                    let why = "mutable-files.root, which names the tree that the object is in, is lost";
                    return Err(Error::corrupt(format!("{why}: restore it from a backup, then restart")));
                }
                tracing::warn!(%object, "the object of a journal was removed, so the journal is removed");
                return in_background(path, "remove", |path| fs::remove_file(path)).await;
            }
            Err(error) => return Err(error),
        };
        let found = in_background(path, "read", move |path| journal::read(path, size)).await?;
        match found.leftover {
            Some(leftover) if leftover.offset == size => {
                let _lease = self.appended_lease();
                let file = self.open_appended(&object, true).await?.ok_or_else(|| exists(name))?;
                let mut edit = open_edit(self, &file).await?;
                edit.seek(size).await?;
                edit.write(leftover.bytes).await?;
                let new = edit.finish().await?;
                let replaced = self.replace_appended(&object, &mut { file }, new, None).await?.await;
                replaced.map_err(|e| Error::internal("a task that commits an object failed").with_source(e))??;
            }
            Some(leftover) => tracing::warn!(
                object = %object, size, offset = leftover.offset,
                "the object was replaced while it was written, so its journal is removed"
            ),
            None => {}
        }
        if found.is_damaged {
            let name = name.clone();
            return in_background(path, "rename", move |path| keep_damaged(path, &name)).await;
        }
        in_background(path, "remove", |path| fs::remove_file(path)).await
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use bytes::Bytes;
    use futures::stream;
    use ipfrs_core::ErrorKind;

    use super::Journal;
    use crate::ingest::{IngestName, IngestObject, IngestStore};
    use crate::{Node, WriteOptions};

    async fn append(object: &mut IngestObject, message: &'static str) {
        object.append(vec![Bytes::from_static(message.as_bytes())]).await.unwrap();
        object.begin_commit().await.unwrap();
        object.committed().await.unwrap();
    }

    #[tokio::test]
    async fn bytes_that_are_appended_during_a_commit_are_in_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let name: IngestName = "a".parse().unwrap();
        let mut object = node.ingest(IngestStore::Ipfs, name.clone(), false).await.unwrap();
        for number in 0..3 {
            // Too long for the journal.
            object.append(vec![Bytes::from(vec![number; 100_000])]).await.unwrap();
            object.begin_commit().await.unwrap();
            object.append(vec![Bytes::from_static(b"more")]).await.unwrap();
        }
        // The last commit continues.
        drop(object);
        let object = node.ingest(IngestStore::Ipfs, name.clone(), true).await.unwrap();
        assert_eq!(object.bytes(), 300_008);
        drop(object);
        node.close().await.unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let object = node.ingest(IngestStore::Ipfs, name, true).await.unwrap();
        assert_eq!(object.bytes(), 300_008);
    }

    #[tokio::test]
    async fn bytes_that_were_committed_to_a_journal_are_there_for_the_next_writer() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let name: IngestName = "a".parse().unwrap();
        let mut object = node.ingest(IngestStore::Ipfs, name.clone(), false).await.unwrap();
        append(&mut object, "one").await;
        append(&mut object, "two").await;
        // Its writer could not settle it.
        drop(object);

        let mut object = node.ingest(IngestStore::Ipfs, name.clone(), true).await.unwrap();
        assert_eq!(object.bytes(), 6);
        append(&mut object, "three").await;
        drop(object);

        let path = super::path_of(&name).unwrap();
        node.remove_from_tree(&path, false, false).await.unwrap();
        let object = node.ingest(IngestStore::Ipfs, name, true).await.unwrap();
        assert_eq!(object.bytes(), 0, "the journal of a file that was removed does not come back");
        object.finish().await.unwrap();
        assert_eq!(fs::read_dir(dir.path().join(super::JOURNALS)).unwrap().count(), 0);
        node.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_journal_stays_while_the_root_of_its_tree_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let name: IngestName = "a".parse().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let mut object = node.ingest(IngestStore::Ipfs, name.clone(), false).await.unwrap();
        append(&mut object, "acknowledged").await;
        drop(object);
        node.close().await.unwrap();
        drop(node);
        let (root, saved) = (dir.path().join("mutable-files.root"), dir.path().join("saved"));
        fs::rename(&root, &saved).unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        node.ingest(IngestStore::Ipfs, name.clone(), true).await.unwrap_err();
        node.close().await.unwrap();
        drop(node);
        fs::rename(&saved, &root).unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let object = node.ingest(IngestStore::Ipfs, name, true).await.unwrap();
        assert_eq!(object.bytes(), 12);
        drop(object);
        node.close().await.unwrap();
    }

    const UNFLUSHED: WriteOptions = WriteOptions {
        offset: 0,
        create: false,
        parents: false,
        truncate: false,
        count: u64::MAX,
        raw_leaves: None,
        format: None,
        flush: false,
    };

    #[tokio::test]
    async fn object_that_is_being_written_is_refused_to_other_writers() {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let name: IngestName = "a".parse().unwrap();
        let path = super::path_of(&name).unwrap();
        let mut object = node.ingest(IngestStore::Ipfs, name, false).await.unwrap();
        append(&mut object, "one").await;
        // A client that sends nothing: the write would never end.
        let error = node.write_to_tree(&path, UNFLUSHED, stream::pending()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        object.settle().await.unwrap();
        object.finish().await.unwrap();
        let content = stream::iter([Ok(Bytes::from_static(b"two"))]);
        node.write_to_tree(&path, UNFLUSHED, content).await.unwrap();
        node.close().await.unwrap();
    }

    #[tokio::test]
    async fn bytes_that_were_written_without_a_flush_are_durable_once_a_writer_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let (repo, copy) = (dir.path().join("repo"), dir.path().join("copy"));
        let name: IngestName = "a".parse().unwrap();
        let node = Node::open_default(&repo).await.unwrap();
        drop(node.ingest(IngestStore::Ipfs, name.clone(), false).await.unwrap());
        let content = stream::iter([Ok(Bytes::from_static(b"12 bytes now"))]);
        node.write_to_tree(&super::path_of(&name).unwrap(), UNFLUSHED, content).await.unwrap();
        let object = node.ingest(IngestStore::Ipfs, name.clone(), true).await.unwrap();
        assert_eq!(object.bytes(), 12);
        // The daemon is killed.
        assert!(Command::new("cp").arg("-r").args([&repo, &copy]).status().unwrap().success());
        let restarted = Node::open_default(&copy).await.unwrap();
        let object = restarted.ingest(IngestStore::Ipfs, name, true).await.unwrap();
        assert_eq!(object.bytes(), 12);
    }

    #[tokio::test]
    async fn damaged_journal_is_kept_and_reported_until_removed() {
        let dir = tempfile::tempdir().unwrap();
        let name: IngestName = "a".parse().unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        drop(node.ingest(IngestStore::Ipfs, name.clone(), false).await.unwrap());
        node.close().await.unwrap();
        drop(node);
        let journals = dir.path().join(super::JOURNALS);
        let mut journal = Journal::create(journals.join("a")).await.unwrap();
        for (offset, message) in [(0, "one"), (3, "two"), (6, "three")] {
            journal.append(offset, message.as_bytes()).await.unwrap();
        }
        let mut damaged = fs::read(journals.join("a")).unwrap();
        // The second record follows a head of 16 bytes and the first bytes.
        damaged[16 + 3 + 16] ^= 1;
        fs::write(journals.join("a"), &damaged).unwrap();
        for _ in 0..2 {
            let node = Node::open_default(dir.path()).await.unwrap();
            let problems = node.problems().await.unwrap();
            let [problem] = problems.as_slice() else { panic!("{problems:?}") };
            assert!(problem.contains("/ingest/a") && problem.contains("remove ingest-journals/a~damaged"), "{problem}");
            assert_eq!(fs::read(journals.join("a~damaged")).unwrap(), damaged);
            let object = node.ingest(IngestStore::Ipfs, name.clone(), true).await.unwrap();
            assert_eq!(object.bytes(), 3);
            object.finish().await.unwrap();
            node.close().await.unwrap();
        }
        // Another damaged journal of the object does not replace the first.
        let mut second = damaged.clone();
        second[16 + 3 + 17] ^= 1;
        fs::write(journals.join("a"), &second).unwrap();
        let node = Node::open_default(dir.path()).await.unwrap();
        let problems = node.problems().await.unwrap();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems.iter().all(|problem| problem.contains("bytes of /ingest/a are lost")), "{problems:?}");
        for (file, content) in [("a~damaged", damaged), ("a~damaged-2", second)] {
            assert_eq!(fs::read(journals.join(file)).unwrap(), content);
            fs::remove_file(journals.join(file)).unwrap();
        }
        assert_eq!(node.problems().await.unwrap(), Vec::<String>::new());
        node.close().await.unwrap();
    }
}
