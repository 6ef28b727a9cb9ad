//! Files of the store `filesystem`, which are removed at the end.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;

use parking_lot::Mutex;

/// Maximum size of the files, in bytes. With those that are open, they are below `ingest.max_files_bytes`. The oldest
/// are removed earlier.
const MAX_BYTES: u64 = 6 << 30;

/// Files that objects have left. Dropping this removes those that are on this machine. A daemon elsewhere keeps its
/// files.
///
/// They stay while others are written, as the blocks of the store `ipfs` do. Otherwise each file would get the memory
/// of the page cache that the last one has just freed. On a virtual machine, a page that was not used before costs
/// several times as much, because the host must provide it first.
#[derive(Debug, Default)]
pub(super) struct WrittenFiles(Mutex<Files>);

#[derive(Debug, Default)]
struct Files {
    /// Paths and sizes in bytes, the oldest first.
    files: VecDeque<(PathBuf, u64)>,
    bytes: u64,
}

impl WrittenFiles {
    /// Adds a file.
    pub(super) fn add(&self, path: PathBuf, bytes: u64) {
        let mut files = self.0.lock();
        files.bytes += bytes;
        files.files.push_back((path, bytes));
        while files.bytes > MAX_BYTES && files.remove_oldest() {}
    }
}

impl Files {
    /// Removes the oldest file. Returns whether there was one.
    fn remove_oldest(&mut self) -> bool {
        let Some((path, bytes)) = self.files.pop_front() else { return false };
        self.bytes -= bytes;
        let _ = fs::remove_file(path);
        true
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        while self.remove_oldest() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_until_the_end_unless_they_are_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let files = WrittenFiles::default();
        for (name, bytes) in [("first", MAX_BYTES / 2), ("second", MAX_BYTES / 2), ("third", 1)] {
            fs::write(path(name), b"").unwrap();
            files.add(path(name), bytes);
        }
        assert_eq!(["first", "second", "third"].map(|name| path(name).exists()), [false, true, true]);
        drop(files);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
