//! Which memory is a view of which file, so that a socket can send from the file instead of from memory.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use parking_lot::RwLock;

/// The mapped files of a store: a shared table from address ranges to files. Cloning shares the table.
#[derive(Debug, Clone, Default)]
pub struct Mappings {
    by_start: Arc<RwLock<BTreeMap<usize, Region>>>,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    end: usize,
    fd: RawFd,
}

/// Where in a file a slice of memory comes from.
#[derive(Debug)]
pub struct MappedSlice<'a> {
    /// The file, open for at least as long as the slice that was looked up.
    pub file: BorrowedFd<'a>,
    /// Offset of the slice's first byte in the file.
    pub offset: u64,
}

impl Mappings {
    // register / unregister are crate-private: only the pack engine maps files.
}
