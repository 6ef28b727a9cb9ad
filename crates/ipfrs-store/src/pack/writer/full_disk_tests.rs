//! Tests of deletions on a disk that has no space for the index.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ipfrs_core::{Block, ErrorKind};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::oneshot;

use super::faults::{Steps, block, countdown, torn_on_full_disk};
use super::full_disk::DEFERRED_CHANGES;
use super::{DURABLE_AFTER_BYTES, Undurable};
use crate::pack::PackOptions;
use crate::pack::damage::MAX_TORN_BYTES;
use crate::pack::damage::full_disk::IS_FULL;
use crate::pack::index::fault::Fault;
use crate::testing::skipped;
use crate::{BlockStore, BlockStoreExt, Durability, PackStore, Stored};

/// Variable with the directory of a child, whose files cannot grow. Without it, the test of the child does nothing.
const CHILD_DIR: &str = "IPFRS_STORE_FULL_DISK_DIR";

/// Number of entries in the memory of the index that a replay writes to a run, in tests.
const REPLAY_ENTRIES: usize = 64;

impl Steps {
    /// Simulates a disk that has space for packs, but not for the index, or one that has space for all.
    fn set_full(&self, is_full: bool) {
        match is_full {
            true => countdown(&self.writer.shared).set(0, Fault::Full),
            false => countdown(&self.writer.shared).set(-1, Fault::Error),
        }
    }

    /// Lets the next write wait for the index.
    fn make_index_due(&mut self) {
        self.writer.undurable = Undurable { bytes: DURABLE_AFTER_BYTES, changes: self.writer.undurable.changes.max(1) };
    }

    fn is_index_due(&self) -> bool {
        self.writer.undurable.bytes >= DURABLE_AFTER_BYTES
    }

    fn end(&self) -> u32 {
        self.writer.active.as_ref().unwrap().end()
    }
}

/// Opens a store with `blocks` that the index covers, on a disk that then has no space for the index.
fn full_disk_with(dir: &Path, blocks: &[Block]) -> Steps {
    let mut steps = Steps::open(dir, Durability::Fsync);
    let mut stored = steps.send_put(blocks);
    steps.step();
    assert_eq!(outcome(&mut stored).unwrap(), vec![Stored::New; blocks.len()]);
    steps.writer.make_durable().unwrap();
    steps.set_full(true);
    steps
}

fn outcome<T>(reply: &mut oneshot::Receiver<T>) -> T {
    reply.try_recv().unwrap()
}

/// Asserts that a start finds exactly these blocks, with the index and without it.
async fn assert_content(dir: &Path, there: &[&Block], gone: &[&Block]) {
    for _ in 0..2 {
        let store = PackStore::open(dir, PackOptions::default()).unwrap();
        assert_eq!(store.losses().unwrap(), Vec::<String>::new());
        for block in there {
            assert_eq!(store.require(block.cid()).await.unwrap(), block.data());
        }
        for block in gone {
            assert_eq!(store.get(block.cid()).await.unwrap(), None);
        }
        assert_eq!(store.stats().await.unwrap().blocks, there.len() as u64);
        store.close().await.unwrap();
        std::fs::remove_dir_all(dir.join("index")).unwrap();
    }
}

#[tokio::test]
async fn put_without_space_does_not_fail_deletions_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["first", "second", "kept"].map(block);
    let [first, second, kept] = &blocks;
    let new = block("new");
    let mut steps = full_disk_with(dir.path(), &blocks);
    steps.make_index_due();
    let mut before = steps.send_delete(std::slice::from_ref(first));
    let mut put = steps.send_put(&[kept.clone(), new.clone()]);
    let mut again = steps.send_delete(&[first.clone(), new.clone()]);
    let mut after = steps.send_delete(std::slice::from_ref(second));
    steps.step();
    assert_eq!(outcome(&mut before).unwrap(), [true]);
    assert_eq!(outcome(&mut put).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(outcome(&mut again).unwrap(), [false, false], "the put of the new block was refused");
    assert_eq!(outcome(&mut after).unwrap(), [true]);
    assert!(steps.writer.shared.is_doubtful(), "the next look at the disk tests it");
    assert_eq!(steps.put(kept).unwrap(), [Stored::Present]);
    steps.writer.shared.close();
    assert_content(dir.path(), &[kept], &[first, second, &new]).await;
}

/// Limits the length of files that this process writes.
fn limit_files_to(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: bytes.or(maximum), maximum }).unwrap();
}

#[tokio::test]
async fn child_whose_pack_has_space_for_tombstones() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let dir = Path::new(&dir);
    let blocks = ["first", "second", "kept"].map(block);
    let [first, second, kept] = &blocks;
    let new = block(&"x".repeat(100_000));
    let mut steps = full_disk_with(dir, &blocks);
    steps.set_full(false);
    limit_files_to(Some(u64::from(steps.end()) + 4_000));
    let mut before = steps.send_delete(std::slice::from_ref(first));
    let mut put = steps.send_put(&[kept.clone(), new.clone()]);
    let mut after = steps.send_delete(std::slice::from_ref(second));
    steps.step();
    assert_eq!(outcome(&mut before).unwrap(), [true]);
    assert_eq!(outcome(&mut put).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(outcome(&mut after).unwrap(), [true]);
    limit_files_to(None);
    steps.writer.shared.close();
    assert_content(dir, &[kept], &[first, second, &new]).await;
    println!("reached the end");
}

#[test]
fn put_that_fails_in_the_pack_does_not_fail_deletions() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new("sh");
    // A write beyond the limit fails, and does not end the process.
    child.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    let name = "pack::writer::full_disk_tests::child_whose_pack_has_space_for_tombstones";
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(CHILD_DIR, dir.path());
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("reached the end"), "{text}");
}

#[tokio::test]
async fn block_stored_and_deleted_in_one_group_needs_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let (kept, new) = (block("kept"), block("new"));
    let mut steps = full_disk_with(dir.path(), std::slice::from_ref(&kept));
    steps.make_index_due();
    let end = steps.end();
    let mut put = steps.send_put(std::slice::from_ref(&new));
    let mut delete = steps.send_delete(std::slice::from_ref(&new));
    steps.step();
    assert_eq!(outcome(&mut put).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(outcome(&mut delete).unwrap(), [false]);
    assert_eq!(steps.end(), end, "nothing is written of what is refused");
    steps.writer.shared.close();
    assert_content(dir.path(), &[&kept], &[&new]).await;
}

#[tokio::test]
async fn deferred_deletions_do_not_write_the_index_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["1", "2", "3", "4"].map(block);
    let new = block("new");
    let mut steps = full_disk_with(dir.path(), &blocks);
    steps.make_index_due();
    assert_eq!(steps.delete(&blocks[0]).unwrap(), [true]);
    assert!(steps.writer.full_at.is_some());
    // There is space from now on. Deletions notice it later, puts at once.
    steps.set_full(false);
    steps.writer.full_at = Some(Instant::now() + Duration::from_secs(60));
    assert_eq!(steps.delete(&blocks[1]).unwrap(), [true]);
    assert!(steps.is_index_due());
    assert_eq!(steps.put(&new).unwrap(), [Stored::New]);
    assert!(!steps.is_index_due());
    steps.make_index_due();
    steps.writer.full_at = None;
    assert_eq!(steps.delete(&blocks[2]).unwrap(), [true]);
    assert!(!steps.is_index_due());
    steps.writer.shared.close();
    assert_content(dir.path(), &[&blocks[3], &new], &[&blocks[0], &blocks[1], &blocks[2]]).await;
}

#[tokio::test]
async fn deletion_is_deferred_up_to_the_number_of_changes() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["1", "2", "3"].map(block);
    let mut steps = full_disk_with(dir.path(), &blocks);
    steps.writer.undurable.changes = DEFERRED_CHANGES - 1;
    assert_eq!(steps.delete(&blocks[0]).unwrap(), [true]);
    assert_eq!(steps.writer.undurable.changes, DEFERRED_CHANGES);
    assert_eq!(steps.delete(&blocks[1]).unwrap_err().kind(), ErrorKind::NoSpace);
    steps.writer.undurable.changes = DEFERRED_CHANGES - 1;
    let mut both = steps.send_delete(&blocks[1..]);
    steps.step();
    assert_eq!(outcome(&mut both).unwrap_err().kind(), ErrorKind::NoSpace);
    steps.set_full(false);
    assert_eq!(steps.delete(&blocks[1]).unwrap(), [true]);
    steps.writer.shared.close();
    assert_content(dir.path(), &[&blocks[2]], &[&blocks[0], &blocks[1]]).await;
}

#[tokio::test]
async fn deletion_is_deferred_while_replay_fits_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let blocks: Vec<_> = (0..REPLAY_ENTRIES + 6).map(|n| block(&format!("block {n}"))).collect();
    // The index has them in a run, so each deletion is another entry in memory.
    let mut steps = full_disk_with(dir.path(), &blocks);
    steps.make_index_due();
    let (gone, kept) = blocks.split_at(REPLAY_ENTRIES - 1);
    let mut deleted = steps.send_delete(gone);
    steps.step();
    assert_eq!(outcome(&mut deleted).unwrap(), vec![true; gone.len()]);
    assert_eq!(steps.delete(&kept[0]).unwrap_err().kind(), ErrorKind::NoSpace);
    steps.writer.shared.close();
    assert_content(dir.path(), &kept.iter().collect::<Vec<_>>(), &gone.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn deletion_is_deferred_only_in_the_pack_that_may_be_torn() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["1", "2"].map(block);
    let mut steps = full_disk_with(dir.path(), &blocks);
    for (tail, is_deferred) in [(None, false), (Some(7), false), (Some(1), true)] {
        steps.make_index_due();
        steps.writer.tail = tail;
        assert_eq!(steps.delete(&blocks[0]).is_ok(), is_deferred, "{tail:?}");
    }
    steps.writer.shared.close();
    assert_content(dir.path(), &[&blocks[1]], &[&blocks[0]]).await;
}

#[tokio::test]
async fn deletion_is_deferred_near_torn_block() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["first", "torn", "kept"].map(block);
    let mut steps = torn_on_full_disk(dir.path(), &blocks);
    let torn = u32::try_from(steps.writer.torn.start().unwrap()).unwrap();
    let pack = steps.writer.active.clone().unwrap();
    if u64::from(pack.end()) + pack.room() < u64::from(torn + MAX_TORN_BYTES) {
        steps.writer.shared.close();
        IS_FULL.set(false);
        return skipped("packs on this disk of 4 GiB or less are too short");
    }
    // A tombstone needs more than 10 bytes and less than 1,000.
    for (free, is_deferred) in [(10, false), (1_000, true)] {
        let end = torn + MAX_TORN_BYTES - free;
        pack.file().set_len(u64::from(end)).unwrap();
        pack.publish(end);
        assert_eq!(steps.delete(&blocks[0]).is_ok(), is_deferred, "{free} bytes");
    }
    steps.writer.shared.close();
    IS_FULL.set(false);
}

#[tokio::test]
async fn put_waits_for_the_index_that_a_compaction_removed() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = dir.path().join("index/manifest");
    let [dead, gone, kept, new] = ["dead", "gone", "kept", "new"].map(block);
    let mut steps = Steps::open(dir.path(), Durability::Fsync);
    steps.put(&dead).unwrap();
    steps.delete(&dead).unwrap();
    steps.writer.seal(1).unwrap();
    steps.put(&gone).unwrap();
    steps.put(&kept).unwrap();
    steps.set_full(true);
    assert!(steps.writer.retire(1).unwrap().is_some());
    assert!(!manifest.exists());
    assert_eq!(steps.put(&new).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(steps.put(&kept).unwrap(), [Stored::Present]);
    // Deletions do not wait, even with a put that fails.
    let mut put = steps.send_put(std::slice::from_ref(&new));
    let mut delete = steps.send_delete(std::slice::from_ref(&gone));
    steps.step();
    assert_eq!(outcome(&mut put).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(outcome(&mut delete).unwrap(), [true]);
    assert!(!manifest.exists());
    steps.set_full(false);
    assert_eq!(steps.put(&new).unwrap(), [Stored::New]);
    assert!(manifest.exists());
    steps.writer.shared.close();
    assert_content(dir.path(), &[&kept, &new], &[&dead, &gone]).await;
}

/// Opens a store whose only pack holds `first` and a block that fills it, which the index does not cover.
fn full_pack(dir: &Path, first: &Block) -> (Steps, Block) {
    let mut steps = Steps::open_with(dir, PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() });
    steps.put(first).unwrap();
    let room = steps.writer.active.as_ref().unwrap().room();
    // The prefix of a block of this size has 39 bytes: a varint of 3, and a content ID of 36.
    let last = block(&"x".repeat(room as usize - 39));
    steps.put(&last).unwrap();
    assert_eq!(steps.writer.active.as_ref().unwrap().room(), 0);
    (steps, last)
}

#[tokio::test]
async fn deletion_begins_pack_before_the_index_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let [first, new] = ["first", "new"].map(block);
    let (mut steps, last) = full_pack(dir.path(), &first);
    steps.set_full(true);
    assert_eq!(steps.put(&new).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(steps.delete(&first).unwrap(), [true]);
    assert_eq!(steps.writer.active_number(), Some(2));
    // So do further deletions, while the start would have to replay both packs.
    steps.make_index_due();
    assert_eq!(steps.put(&new).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(steps.delete(&last).unwrap(), [true]);
    steps.writer.shared.close();
    assert_content(dir.path(), &[], &[&first, &last, &new]).await;
}

#[tokio::test]
async fn deletion_does_not_begin_pack_behind_torn_block() {
    let dir = tempfile::tempdir().unwrap();
    let blocks = ["first", "torn", "kept"].map(block);
    let mut steps = torn_on_full_disk(dir.path(), &blocks);
    // As if the pack was full.
    steps.writer.active = None;
    assert_eq!(steps.delete(&blocks[0]).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(steps.writer.shared.packs().len(), 1);
    steps.writer.shared.close();
    IS_FULL.set(false);
}

#[tokio::test]
async fn full_pack_is_still_the_last_after_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (steps, last) = full_pack(dir.path(), &block("first"));
    steps.writer.shared.close();
    drop(steps);
    let mut steps = Steps::open_with(dir.path(), PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() });
    assert!(steps.writer.active.is_none());
    steps.writer.undurable = Undurable::DUE;
    steps.writer.make_durable().unwrap();
    assert_eq!(steps.writer.tail, Some(1));
    steps.set_full(true);
    assert_eq!(steps.delete(&last).unwrap(), [true]);
    steps.make_index_due();
    assert_eq!(steps.delete(&block("first")).unwrap(), [true]);
    steps.writer.shared.close();
    assert_content(dir.path(), &[], &[&last]).await;
}
