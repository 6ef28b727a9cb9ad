//! Batches that all imports of the process share.

use std::sync::LazyLock;

use ipfrs_core::cores;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Enough for a single import to use all cores while it writes, and little beside the batches of many imports.
static SPARE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(cores() + 3));

/// The right to process a batch of blocks while another one of the same import is in the same stage.
///
/// Each stage of each import may always process one batch. All other batches are spare ones, whose number does not grow
/// with the imports: a machine is as busy with one batch of each of ten imports as with ten batches of one.
#[derive(Debug)]
pub struct SpareBatch {
    _permit: SemaphorePermit<'static>,
}

impl SpareBatch {
    /// Returns `None` if there is none, and a batch of the same import must end first.
    #[must_use]
    pub fn take() -> Option<Self> {
        SPARE.try_acquire().ok().map(|permit| Self { _permit: permit })
    }
}
