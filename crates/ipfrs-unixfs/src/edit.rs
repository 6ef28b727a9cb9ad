//! Changes of existing files and directories. A change creates new blocks only for the blocks that it touches and for
//! the nodes above them, with the same content IDs as Kubo's mutable files.

mod append;
mod attributes;
mod basic;
mod cid_format;
mod directory;
mod file;
mod file_part;
mod overwrite;
mod pieces;
mod shard;
mod staging;
mod truncate;

pub use attributes::AttributeChange;
pub use cid_format::CidFormat;
pub use directory::DirectoryEdit;
pub use file::{FileEdit, MAX_HOLE_BYTES};
pub use staging::{NewLink, Staging};
