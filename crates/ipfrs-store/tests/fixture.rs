//! Blocks and stores shared by the tests, and child processes that run this test binary.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ipfrs_core::Block;
pub(crate) use ipfrs_store::testing::{
    assert_holds, assert_lacks, block, cids, listed, numbered, put_all, random_block, skipped, sorted,
};
use ipfrs_store::{CompactOptions, PackOptions, PackStore};
use rand::Rng;

/// The default compaction on a disk with room. It compacts the same packs however full the disk of the tests is.
pub(crate) const USUAL: CompactOptions = CompactOptions::from_share(0.25);

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
