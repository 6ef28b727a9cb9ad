//! References to parts of files, and their states.

use std::path::PathBuf;

use ipfrs_core::Cid;

/// A stored reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// Path of the file, relative to the root of the filestore.
    pub(super) path: PathBuf,
    /// Offset of the block in the file, in bytes.
    pub(super) offset: u64,
    /// Length of the block, in bytes.
    pub(super) len: u32,
}

/// A block that is part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Content ID of the block, as a raw block of version 1.
    pub cid: Cid,
    /// Path of the file, relative to the root of the filestore.
    pub path: PathBuf,
    /// Offset of the block in the file, in bytes.
    pub offset: u64,
    /// Length of the block, in bytes.
    pub len: u32,
}

/// An order of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReferenceOrder {
    /// By the multihashes of the blocks.
    #[default]
    Hash,
    /// By path and offset.
    File,
}

/// A position in an order of references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Position(pub(super) Box<[u8]>);

/// State of the part of a file that a block is.
#[derive(Debug)]
pub enum FileState {
    /// It has the bytes of the block.
    Intact,
    /// It has other bytes, or the file ends before it.
    Changed(String),
    /// The file does not exist.
    NoFile(String),
    /// The file cannot be read.
    Unreadable(String),
}
