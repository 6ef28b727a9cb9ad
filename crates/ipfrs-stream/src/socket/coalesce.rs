//! Short writes that are sent together.

use std::io::IoSlice;
use std::task::Context;

/// Longest write that is held, in bytes: a frame header and a few kilobytes.
const MAX_WRITE_BYTES: usize = 4 * 1024;
/// Maximum number of bytes that are held.
const MAX_HELD_BYTES: usize = 64 * 1024;

/// Buffer of short writes. They are sent when the task is polled again, which happens after all tasks that are ready
/// now.
#[derive(Debug)]
pub(super) struct HeldWrites {
    is_enabled: bool,
    bytes: Vec<u8>,
}

impl HeldWrites {
    pub(super) fn new() -> Self {
        Self { is_enabled: true, bytes: Vec::new() }
    }

    /// Disables holding. Bytes that are held already are still sent.
    pub(super) fn disable(&mut self) {
        self.is_enabled = false;
    }

    /// Holds `slices` if they are short and the buffer has enough space, and wakes the task to send them. Returns
    /// their size in bytes if they are held.
    pub(super) fn hold(&mut self, cx: &Context<'_>, slices: &[IoSlice<'_>]) -> Option<usize> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if !self.is_enabled || bytes > MAX_WRITE_BYTES || self.bytes.len() + bytes > MAX_HELD_BYTES {
            return None;
        }
        if self.bytes.is_empty() {
            cx.waker().wake_by_ref();
            self.bytes.reserve_exact(MAX_HELD_BYTES);
        }
        slices.iter().for_each(|slice| self.bytes.extend_from_slice(slice));
        Some(bytes)
    }

    /// Returns the held bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes the first bytes, which were sent.
    pub(super) fn advance(&mut self, sent: usize) {
        self.bytes.drain(..sent);
    }

    /// Releases the memory of the empty buffer, so that an idle connection keeps none.
    pub(super) fn release(&mut self) {
        self.bytes = Vec::new();
    }
}
