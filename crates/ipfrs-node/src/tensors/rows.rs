//! Rows of a tensor that a slice lists.

use std::ops::Range;
use std::sync::Arc;

use ipfrs_core::{Error, Result};
use ipfrs_tensor::Selection;

/// Rows of a tensor that a slice lists.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    pub(super) selection: Selection,
    /// Size of a row in bytes.
    pub(super) row_bytes: u64,
    /// Number of rows before each range.
    pub(super) before: Arc<[u64]>,
    count: u64,
}

impl Rows {
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if the rows have more than 2^64 bytes together.
    pub(super) fn new(selection: Selection, row_bytes: u64) -> Result<Self> {
        let mut count = 0;
        let ranges = selection.rows().map(|rows| &**rows).unwrap_or_default();
        let before = ranges.iter().map(|range| {
            let before = count;
            count += range.end - range.start;
            before
        });
        let before = before.collect();
        match count.checked_mul(row_bytes) {
            Some(_) => Ok(Self { selection, row_bytes, before, count }),
            None => Err(Error::too_large("these rows have more than 2^64 bytes together")),
        }
    }

    /// Returns the size of all rows in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.count * self.row_bytes
    }

    pub(super) fn ranges(&self) -> &[Range<u64>] {
        self.selection.rows().map(|rows| &**rows).unwrap_or_default()
    }
}
