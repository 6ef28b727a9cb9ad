//! Pages of a run that are known to be in memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::mapping::FileSlice;

/// Number of seconds for which a page that was in memory is assumed to stay there. A lookup that is wrong about this
/// waits for one page.
const ASSUMED_SECONDS: u32 = 1;

/// For each page of a file, when it was last found in memory. Asking the kernel takes longer than a lookup.
#[derive(Debug)]
pub(super) struct Residency {
    started: Instant,
    page_bytes: usize,
    /// Seconds since `started`, plus an offset that makes 0 long ago.
    found: Box<[AtomicU32]>,
}

impl Residency {
    /// Creates the state of a file of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        let page_bytes = rustix::param::page_size();
        let found = (0..len.div_ceil(page_bytes)).map(|_| AtomicU32::new(0)).collect();
        Self { started: Instant::now(), page_bytes, found }
    }

    /// Whether a range of `file`, which starts at the beginning of the file, is in memory.
    pub(super) fn is_resident(&self, file: &FileSlice, range: Range<usize>) -> bool {
        if range.is_empty() {
            return true;
        }
        let now =
            u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX).saturating_add(ASSUMED_SECONDS + 1);
        let pages = &self.found[range.start / self.page_bytes..range.end.div_ceil(self.page_bytes)];
        if pages.iter().all(|page| now.saturating_sub(page.load(Ordering::Relaxed)) <= ASSUMED_SECONDS) {
            return true;
        }
        let is_resident = file.is_range_resident(range);
        if is_resident {
            for page in pages {
                page.fetch_max(now, Ordering::Relaxed);
            }
        }
        is_resident
    }
}
