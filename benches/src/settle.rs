//! A defined state of the disk before a measurement that writes to it.

use rustix::fs::sync;

/// Waits until the disk has finished earlier work, including the discards of removed files.
///
/// This does not settle memory. The host of a virtual machine reclaims memory that was free for some seconds ("free
/// page reporting", virtio 1.2, section 5.5.6.7), and the first access to such a page waits for the host: writing 1
/// GiB into the page cache then takes 2.6 s of CPU time instead of 0.5 s. The system decides which free memory a
/// writer receives, so a benchmark that fills memory must run twice. The second run reuses the memory that the first
/// one freed.
pub fn settle() {
    sync();
}
