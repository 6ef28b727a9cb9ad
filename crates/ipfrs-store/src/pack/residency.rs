//! Parts of a mapped file that are known to be in memory.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::time::{ClockId, clock_gettime};

use crate::mapping::MappedFile;

/// Unit of time, in milliseconds. A part that was in memory is assumed to stay there until the end of the next unit. A
/// read that is wrong about this waits for one page.
const TICK_MILLIS: i64 = 500;

/// For each part of a file, when it was last found in memory. Asking the kernel takes longer than a lookup in the
/// index.
#[derive(Debug)]
pub(super) struct Residency {
    started_millis: i64,
    /// Length of a part, in bytes.
    part_bytes: usize,
    /// Number of the time unit, at least 2, or 0 for parts that were never found in memory.
    found: Box<[AtomicU32]>,
}

impl Residency {
    /// Creates the state of a file whose mapping has `len` bytes. A part has `part_bytes` bytes.
    pub(super) fn new(len: usize, part_bytes: usize) -> Self {
        let found = (0..len.div_ceil(part_bytes)).map(|_| AtomicU32::new(0)).collect();
        Self { started_millis: now_millis(), part_bytes, found }
    }

    /// Whether a range of `file` is in memory. The range must be within the readable part of the file.
    pub(super) fn is_resident(&self, file: &Arc<MappedFile>, range: Range<usize>) -> bool {
        let numbers = range.start / self.part_bytes..range.end.div_ceil(self.part_bytes);
        let Some(parts) = self.found.get(numbers.clone()) else { return false };
        let ticks = now_millis().saturating_sub(self.started_millis) / TICK_MILLIS;
        let now = u32::try_from(ticks).unwrap_or(u32::MAX).saturating_add(2);
        if parts.iter().all(|part| now - part.load(Ordering::Relaxed).min(now) <= 1) {
            return true;
        }
        let is_resident =
            |range: Range<usize>| file.slice(range.start as u64, range.len()).is_some_and(|slice| slice.is_resident());
        let end = (numbers.end * self.part_bytes).min(usize::try_from(file.readable()).unwrap_or(usize::MAX));
        let whole = numbers.start * self.part_bytes..end;
        if is_resident(whole.clone()) {
            parts.iter().for_each(|part| _ = part.fetch_max(now, Ordering::Relaxed));
            return true;
        }
        whole != range && is_resident(range)
    }
}

/// Returns the time of a clock that is exact to a few milliseconds and takes a tenth of the time of the exact one.
fn now_millis() -> i64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec * 1_000 + now.tv_nsec / 1_000_000
}
