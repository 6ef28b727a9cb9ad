//! Blocks and stores shared by the tests, and child processes that run this test binary.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use futures::TryStreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use ipfrs_store::{BlockStore, PackOptions, PackStore, PutMode, Stored};
use rand::{Rng, RngCore};

/// Returns a raw block of `data`.
pub(crate) fn block(data: impl Into<Bytes>) -> Block {
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, data.into()).unwrap()
}

/// Returns a raw block of `len` random bytes. From four bytes on, no two calls return the same block.
pub(crate) fn random_block(len: usize) -> Block {
    let mut data = vec![0; len];
    rand::rng().fill_bytes(&mut data);
    block(data)
}

/// Returns one small block per number.
pub(crate) fn numbered(numbers: std::ops::Range<u32>) -> Vec<Block> {
    numbers.map(|n| block(format!("block {n}"))).collect()
}

pub(crate) fn cids(blocks: &[Block]) -> Vec<Cid> {
    blocks.iter().map(|block| *block.cid()).collect()
}

/// Returns `count` random blocks of up to `largest` bytes.
pub(crate) fn random_blocks(count: usize, largest: usize) -> Vec<Block> {
    (0..count).map(|_| random_block(rand::rng().random_range(4..=largest))).collect()
}

/// Returns options with packs of the minimum size, so that a few blocks fill several.
pub(crate) fn small_packs() -> PackOptions {
    PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() }
}

pub(crate) fn open_small(dir: &Path) -> PackStore {
    PackStore::open(dir, small_packs()).unwrap()
}

/// Puts blocks and asserts that all of them are stored.
pub(crate) async fn put_all(store: &dyn BlockStore, blocks: &[Block]) -> Vec<Stored> {
    store.put_many(blocks.to_vec(), PutMode::Atomic).await.into_iter().map(Result::unwrap).collect()
}

/// Asserts that every block is present and complete, with all methods.
pub(crate) async fn assert_holds(store: &dyn BlockStore, blocks: &[Block]) {
    let sizes = store.has_many(&cids(blocks)).await.unwrap();
    let found: Vec<_> = store.get_many(cids(blocks)).try_collect().await.unwrap();
    assert_eq!(found.len(), blocks.len());
    for ((block, size), (cid, data)) in blocks.iter().zip(sizes).zip(found) {
        assert_eq!(size, Some(block.data().len() as u64), "{cid}");
        assert_eq!(cid, *block.cid());
        assert_eq!(data.as_ref(), Some(block.data()), "{cid}");
    }
}

/// Asserts that all blocks are absent.
pub(crate) async fn assert_lacks(store: &dyn BlockStore, blocks: &[Block]) {
    for block in blocks {
        assert_eq!(store.get(block.cid()).await.unwrap(), None, "{}", block.cid());
    }
}

/// Returns the files of a store's index.
pub(crate) fn index_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir.join("index")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns the length of a store's index, in bytes.
pub(crate) fn index_bytes(dir: &Path) -> u64 {
    index_files(dir).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

/// Returns all CIDs that `iterate` lists, as sorted bytes.
pub(crate) async fn listed(store: &dyn BlockStore) -> Vec<Vec<u8>> {
    sorted(store.iterate().try_collect().await.unwrap())
}

pub(crate) fn sorted(cids: Vec<Cid>) -> Vec<Vec<u8>> {
    let mut bytes: Vec<_> = cids.iter().map(Cid::to_bytes).collect();
    bytes.sort();
    bytes
}

/// Environment variable with the directory that a child works on. Without it, the children's tests do nothing.
pub(crate) const CHILD_DIR: &str = "IPFRS_STORE_TEST_CHILD_DIR";

/// Returns the directory that this process works on, if it is a child.
pub(crate) fn child_dir() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIR).map(Into::into)
}

/// Runs the test `name` of this binary in a separate process, which works on `dir` and ignores SIGXFSZ.
pub(crate) fn spawn_child(name: &str, dir: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Replaces a file with one whose first bytes cannot be read.
pub(crate) fn make_unreadable(path: &Path) {
    fs::remove_file(path).unwrap();
    symlink("/proc/self/mem", path).unwrap();
    assert_eq!(fs::read(path).unwrap_err().raw_os_error(), Some(libc::EIO));
}
