//! Damaged copies of a database, for fuzzing and tests.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Bytes of a page.
const PAGE: usize = 4_096;

/// Content of a database file.
#[derive(Debug)]
pub(crate) struct Sample {
    bytes: Vec<u8>,
    /// Numbers of the pages that are not zeros. Damage elsewhere would change nothing.
    used: Vec<usize>,
}

/// Damage of a database file.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Damage<'a> {
    /// Other bytes: the page among those in use, the offset in it, and the byte.
    Bytes(&'a [(u8, u16, u8)]),
    /// The end is cut off, or zeros are appended.
    Length(u32),
    /// Another file.
    Replaced(&'a [u8]),
}

impl Sample {
    /// Takes the content of the file at `path`.
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = fs::read(path).expect("the sample can be read");
        let pages = bytes.chunks(PAGE).enumerate();
        let used = pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0)).map(|(number, _)| number).collect();
        Self { bytes, used }
    }

    /// Returns the content after `damage`.
    pub(crate) fn damaged(&self, damage: Damage<'_>) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        match damage {
            Damage::Bytes(changes) => {
                for (page, offset, byte) in changes {
                    let start = self.used[usize::from(*page) % self.used.len()] * PAGE;
                    let end = bytes.len().min(start + PAGE);
                    let at = start + usize::from(*offset) % (end - start);
                    bytes[at] = *byte;
                }
            }
            Damage::Length(length) => bytes.resize(length as usize % (2 * self.bytes.len()), 0),
            Damage::Replaced(content) => bytes = content.to_vec(),
        }
        bytes
    }

    /// Whether the damage changes nothing.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes
    }
}

/// Returns a directory, in memory if the system has such a file system, and the path of a file in it.
pub(crate) fn directory(file: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let directory = directory.expect("a temporary directory can be created");
    let path = directory.path().join(file);
    (directory, path)
}
