//! The number of cores.

use std::sync::LazyLock;
use std::thread::available_parallelism;

/// Returns the number of cores that the process may use, or 1 if it is unknown. The standard library asks the kernel
/// anew in each call, and reads files of control groups, which takes as long as the import of a small file.
#[must_use]
pub fn cores() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));
    *CORES
}
