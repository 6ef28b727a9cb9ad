//! Places in files.

use std::path::Path;
use std::sync::Arc;

/// The place in a file where the bytes of a block begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOffset {
    /// Absolute path of the file.
    pub path: Arc<Path>,
    /// Offset in the file, in bytes.
    pub offset: u64,
}
