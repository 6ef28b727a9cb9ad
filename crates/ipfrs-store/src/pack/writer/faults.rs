//! Faults of the disk and the index that can only be caused from inside the writer.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Error, ErrorKind, Result, codec};
use tokio::sync::{Semaphore, oneshot};

use super::{DURABLE_AFTER_BYTES, Delete, Job, Put, Reply, Write, Writer};
use crate::pack::damage::full_disk::IS_FULL;
use crate::pack::index::Index;
use crate::pack::index::fault::{Countdown, Fault};
use crate::pack::queue::Queue;
use crate::pack::record::{CAR_HEADER, key_of};
use crate::pack::shared::Shared;
use crate::pack::{PackOptions, recovery};
use crate::{BlockStore, BlockStoreExt, CompactOptions, Durability, PackStore, PutMode, Stored};

/// Returns the control of injected sync failures of the index.
pub(super) fn countdown(shared: &Shared) -> Countdown {
    shared.with_index(|index| Ok(index.fault().clone())).unwrap()
}

pub(super) fn block(data: &str) -> Block {
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::copy_from_slice(data.as_bytes())).unwrap()
}

/// A writer that is driven step by step, and the queue to it.
pub(super) struct Steps {
    pub(super) writer: Writer,
    jobs: std::sync::mpsc::Sender<Job>,
}

impl Steps {
    pub(super) fn open(dir: &Path, durability: Durability) -> Self {
        Self::open_with(dir, PackOptions { durability, ..PackOptions::default() })
    }

    pub(super) fn open_with(dir: &Path, options: PackOptions) -> Self {
        let recovered = recovery::open(dir, options).unwrap();
        let (jobs, receiver) = std::sync::mpsc::channel();
        Self { writer: Writer::new(recovered, receiver), jobs }
    }

    pub(super) fn put(&mut self, block: &Block) -> Result<Vec<Stored>> {
        let mut outcome = self.send_put(std::slice::from_ref(block));
        self.step();
        outcome.try_recv().unwrap()
    }

    pub(super) fn delete(&mut self, block: &Block) -> Result<Vec<bool>> {
        let mut outcome = self.send_delete(std::slice::from_ref(block));
        self.step();
        outcome.try_recv().unwrap()
    }

    /// Queues a put for the next step.
    pub(super) fn send_put(&self, blocks: &[Block]) -> oneshot::Receiver<Result<Vec<Stored>>> {
        self.send(|reply| Write::Put(Put::new(blocks.to_vec(), false, reply)))
    }

    /// Queues a deletion for the next step.
    pub(super) fn send_delete(&self, blocks: &[Block]) -> oneshot::Receiver<Result<Vec<bool>>> {
        let cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        self.send(|reply| Write::Delete(Delete::new(&cids, Arc::new(|_| false), reply)))
    }

    fn send<T>(&self, write: impl FnOnce(Reply<T>) -> Write) -> oneshot::Receiver<Result<T>> {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let (sender, outcome) = oneshot::channel();
        self.jobs.send(Job::Write(write(Reply { sender, _permit: permit }))).unwrap();
        outcome
    }

    /// Executes the queued calls as a group.
    pub(super) fn step(&mut self) {
        assert!(self.writer.step().is_continue());
    }
}

#[tokio::test]
async fn failed_index_commit_rejects_call_and_loses_nothing() {
    let mut refused = 0;
    // Fails each sync of a commit, and once none.
    for sync in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let mut steps = Steps::open(dir.path(), Durability::Fsync);
        let blocks: Vec<_> = (0..20).map(|n| block(&format!("before {n}"))).collect();
        for block in &blocks {
            steps.put(block).unwrap();
        }
        let fault = countdown(&steps.writer.shared);
        steps.writer.undurable.bytes = DURABLE_AFTER_BYTES;
        fault.set(sync, Fault::Error);
        let end = steps.writer.active.as_ref().unwrap().end();
        let last = block("last");
        if steps.put(&last).is_err() {
            refused += 1;
            assert_eq!(steps.writer.active.as_ref().unwrap().end(), end, "nothing is written of what is refused");
            // The index still holds the changes that it could not make durable.
            for block in &blocks {
                assert_eq!(steps.put(block).unwrap(), [Stored::Present], "sync {sync}");
            }
            assert_eq!(steps.put(&last).unwrap(), [Stored::New], "sync {sync}");
        }
        fault.set(-1, Fault::Error);
        steps.writer.make_durable().unwrap();
        steps.writer.shared.close();

        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        for block in blocks.iter().chain([&last]) {
            assert_eq!(store.require(block.cid()).await.unwrap(), block.data());
        }
        store.close().await.unwrap();
    }
    assert_eq!(refused, 3, "a run, the manifest and the directory are synced");
}

#[tokio::test]
async fn index_does_not_cover_unsynced_bytes_after_failure() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = Steps::open(dir.path(), Durability::Os);
    steps.put(&block("not synced")).unwrap();
    steps.writer.fail(&Error::internal("the disk failed"));
    assert!(steps.put(&block("refused")).unwrap_err().message().contains("the disk failed"));
    let index = steps.writer.shared.index_path();
    steps.writer.shared.close();

    let closed = Index::open(&index, false).unwrap().unwrap();
    let packs = closed.packs();
    assert!(packs.values().all(|known| known.covered <= CAR_HEADER.len() as u32), "{packs:?}");
    drop(closed);
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    assert_eq!(store.require(block("not synced").cid()).await.unwrap(), "not synced");
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_writer_that_panics_says_so_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let recovered = recovery::open(dir.path(), PackOptions::default()).unwrap();
    let shared = Arc::clone(&recovered.shared);
    let (queue, jobs) = Queue::new();
    let writer = Writer::new(recovered, jobs);
    let fault = countdown(&shared);
    let thread = std::thread::spawn(move || writer.run());
    let store = PackStore { shared, queue: Arc::new(queue) };
    store.put(block("before")).await.unwrap();
    store.check().unwrap();

    fault.set(0, Fault::Panic);
    let error = store.flush().await.unwrap_err();
    assert!(error.message().contains("failed during this write"), "{error}");
    let error = store.put(block("refused")).await.unwrap_err();
    assert!(error.message().contains("this sync was made to panic"), "{error}");
    assert_eq!(store.check().unwrap_err().message(), error.message());
    assert_eq!(store.require(block("before").cid()).await.unwrap(), "before");
    assert!(store.close().await.is_err());
    thread.join().unwrap();

    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    store.check().unwrap();
    assert_eq!(store.require(block("before").cid()).await.unwrap(), "before");
    store.close().await.unwrap();
    assert!(store.check().is_err());
}

#[tokio::test]
async fn index_failure_during_compaction_loses_nothing() {
    let (mut stopped, mut stopped_midway) = (0, 0);
    let options = || PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() };
    // Fails each sync of the index.
    for sync in 0..24 {
        let dir = tempfile::tempdir().unwrap();
        let recovered = recovery::open(dir.path(), options()).unwrap();
        let shared = Arc::clone(&recovered.shared);
        let (queue, jobs) = Queue::new();
        let writer = Writer::new(recovered, jobs);
        let fault = countdown(&shared);
        let thread = std::thread::spawn(move || writer.run());
        let store = PackStore { shared, queue: Arc::new(queue) };
        let blocks: Vec<_> = (0..120).map(|n| block(&format!("{n} ").repeat(1_000))).collect();
        for part in blocks.chunks(10) {
            assert!(store.put_many(part.to_vec(), PutMode::Atomic).await.into_iter().all(|stored| stored.is_ok()));
        }
        let (gone, kept): (Vec<_>, Vec<_>) = blocks.iter().enumerate().partition(|(n, _)| *n < 60 || n % 3 == 0);
        let names = |blocks: &[(usize, &Block)]| blocks.iter().map(|(_, block)| *block.cid()).collect::<Vec<_>>();
        store.delete_many(&names(&gone)).await.unwrap();

        let before = store.shared.packs().len();
        fault.set(sync, Fault::Error);
        let everything = CompactOptions::from_share(0.0);
        let failed = store.compact(everything).await.is_err();
        stopped += u32::from(failed);
        fault.set(-1, Fault::Error);
        stopped_midway += u32::from(failed && store.shared.packs().len() < before);
        for _ in 0..2 {
            assert_eq!(store.has_many(&names(&gone)).await.unwrap(), vec![None; gone.len()], "sync {sync}");
            for (_, block) in &kept {
                assert_eq!(store.require(block.cid()).await.unwrap(), block.data(), "sync {sync}");
            }
            // Again, without a failure.
            store.compact(everything).await.unwrap();
            assert_eq!(store.stats().await.unwrap().dead_bytes, 0, "sync {sync}");
        }
        store.close().await.unwrap();
        thread.join().unwrap();
        std::fs::remove_dir_all(dir.path().join("index")).unwrap();
        let store = PackStore::open(dir.path(), options()).unwrap();
        assert_eq!(store.stats().await.unwrap().blocks, kept.len() as u64, "sync {sync}");
        store.close().await.unwrap();
    }
    assert!(stopped > 12 && stopped_midway > 3, "{stopped} compactions stopped, {stopped_midway} after some packs");
}

#[tokio::test]
async fn unsynced_blocks_are_verified_on_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut steps = Steps::open(dir.path(), Durability::Os);
    let [lost, kept] = [1, 2].map(|byte| block(&format!("{byte}").repeat(20_000)));
    for block in [&lost, &kept] {
        steps.put(block).unwrap();
    }
    let shared = Arc::clone(&steps.writer.shared);
    let pack = shared.packs().pop().unwrap();
    let faults = shared.mappings.faults();
    pack.distrust();
    // Simulates a page that was dropped before it was written.
    pack.file().write_all_at(&[0; 4_096], 8_192).unwrap();
    let read = |block: &Block| {
        let key = key_of(block.cid().hash());
        let location = shared.find(std::slice::from_ref(&key)).unwrap()[0].unwrap();
        assert!(shared.resident(location, &key).unwrap().is_none());
        shared.load(location, &key)
    };
    assert!(read(&lost).unwrap_err().message().contains("does not match its content ID"));
    assert_eq!(read(&kept).unwrap().as_ref(), Some(kept.data()));
    assert_ne!(shared.mappings.faults(), faults);
    shared.close();
}

/// Opens a store after a power failure that has torn the second of three blocks, on a disk that has no space to pad it.
pub(super) fn torn_on_full_disk(dir: &Path, blocks: &[Block; 3]) -> Steps {
    let mut steps = Steps::open(dir, Durability::Fsync);
    steps.put(&blocks[0]).unwrap();
    steps.writer.make_durable().unwrap();
    steps.put(&blocks[1]).unwrap();
    steps.put(&blocks[2]).unwrap();
    let shared = Arc::clone(&steps.writer.shared);
    let torn = shared.find(&[key_of(blocks[1].cid().hash())]).unwrap()[0].unwrap();
    shared.packs()[0].file().write_all_at(&[0; 4], u64::from(torn.offset)).unwrap();
    shared.close();
    IS_FULL.set(true);
    let steps = Steps::open(dir, Durability::Fsync);
    assert!(!steps.writer.torn.is_empty());
    steps
}

#[tokio::test]
async fn deletion_does_not_wait_for_padding_on_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["first", "torn", "kept"].map(block);
    let mut steps = torn_on_full_disk(dir.path(), &blocks);
    let new = block("new");
    assert_eq!(steps.put(&new).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(steps.put(&blocks[2]).unwrap(), [Stored::Present]);
    assert_eq!(steps.delete(&blocks[0]).unwrap(), [true]);
    assert_eq!(steps.put(&new).unwrap_err().kind(), ErrorKind::NoSpace);
    // A crash, and then there is space.
    steps.writer.shared.close();
    IS_FULL.set(false);
    let mut steps = Steps::open(dir.path(), Durability::Fsync);
    assert_eq!(steps.put(&new).unwrap(), [Stored::New]);
    assert_eq!(steps.delete(&blocks[0]).unwrap(), [false]);
    steps.writer.make_durable().unwrap();
    steps.writer.shared.close();
    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    assert_eq!(store.losses().unwrap(), Vec::<String>::new());
    assert_eq!(store.stats().await.unwrap().blocks, 2);
    store.close().await.unwrap();
}

#[tokio::test]
async fn dead_pack_that_cannot_be_padded_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["first", "torn", "kept"].map(block);
    let mut steps = torn_on_full_disk(dir.path(), &blocks);
    assert_eq!(steps.delete(&blocks[0]).unwrap(), [true]);
    assert_eq!(steps.writer.seal(1).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(steps.delete(&blocks[2]).unwrap(), [true]);
    steps.writer.seal(1).unwrap();
    // A crash at this point does not turn the torn block into a loss.
    let reader = || {
        let options = PackOptions { read_only: true, ..PackOptions::default() };
        let copy = tempfile::tempdir().unwrap();
        for name in ["version", "packs/00000001.car", "packs/00000002.car", "index/manifest"] {
            let to = copy.path().join(name);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(dir.path().join(name), to).unwrap();
        }
        PackStore::open(copy.path(), options).unwrap()
    };
    assert_eq!(reader().losses().unwrap(), Vec::<String>::new());
    assert!(steps.writer.retire(1).unwrap().is_some());
    assert!(!dir.path().join("packs/00000001.car").exists());
    // Nothing is left to pad.
    assert_eq!(steps.put(&block("new")).unwrap(), [Stored::New]);
    IS_FULL.set(false);
    steps.writer.shared.close();
    let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
    assert_eq!(store.losses().unwrap(), Vec::<String>::new());
    assert_eq!(store.stats().await.unwrap().blocks, 1);
    store.close().await.unwrap();
}
