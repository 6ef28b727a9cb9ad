//! The disk as it is before something that fills it is timed, the same for all that are compared.

use rustix::fs::sync;

/// Waits until the disk has ended what others left it to do, telling it of removed files included.
///
/// Memory is another matter. The host of a virtual machine takes back what was free for some seconds ("free page reporting",
/// virtio 1.2, section 5.5.6.7), and who touches it first waits for it: writing 1 GiB into the page cache then takes 2.6 s of
/// CPU in place of 0.5. Which of the free memory a writer gets is for the system to say, so whoever fills memory is to do so
/// twice: the second time it gets what the first one gave back.
pub fn settle() {
    sync();
}
