//! Frees the disk space of removed files on a separate thread.
//!
//! A file system frees a removed file when its last descriptor is closed, and frees all of it before `close` returns.
//! With `discard`, this takes a quarter of a second for a gigabyte. The thread that drops the last slice would wait
//! for that, and it most likely serves requests. Therefore, a separate thread closes the file.
//!
//! The file is not truncated beforehand, although that would let other threads use the disk in between: another
//! process may still read a file that has no name. Slices outlive their store, which another process may have opened
//! by then, and a backup may be copying the file.

use std::collections::VecDeque;
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::View;

/// Length in bytes up to which the thread that drops the last slice closes the file itself.
const SMALL_BYTES: u64 = if cfg!(test) { 4 * 1024 } else { 1024 * 1024 };

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_served: false });

/// Notified when a file has been released.
static RELEASED: Condvar = Condvar::new();

struct Queue {
    waiting: VecDeque<View>,
    /// Whether the release thread runs. It exits when the queue is empty.
    is_served: bool,
}

/// Unmaps and closes a file. A large removed file is closed on the release thread.
pub(super) fn release(view: View) {
    let Some(bytes) = removed_bytes(&view.file) else { return };
    if bytes <= SMALL_BYTES {
        drop(view);
        // Under the lock, so that no waiter misses the notification between its check and its wait.
        let _queue = QUEUE.lock();
        RELEASED.notify_all();
        return;
    }
    let mut queue = QUEUE.lock();
    queue.waiting.push_back(view);
    if queue.is_served {
        return;
    }
    match thread::Builder::new().name("ipfrs-release".to_owned()).spawn(release_all) {
        Ok(_) => queue.is_served = true,
        Err(_) => {
            let waiting = std::mem::take(&mut queue.waiting);
            drop(queue);
            drop(waiting);
            let _queue = QUEUE.lock();
            RELEASED.notify_all();
        }
    }
}

/// Waits until the space of all files released before the call has been freed.
pub(crate) fn wait_for_released() {
    let mut queue = QUEUE.lock();
    while queue.is_served {
        RELEASED.wait(&mut queue);
    }
}

/// Waits until `is_released` returns true, checking it after each released file, but at most for `longest`.
pub(crate) fn wait_until(is_released: impl Fn() -> bool, longest: Duration) {
    let deadline = Instant::now() + longest;
    let mut queue = QUEUE.lock();
    while !is_released() && !RELEASED.wait_until(&mut queue, deadline).timed_out() {}
}

fn release_all() {
    loop {
        let mut queue = QUEUE.lock();
        let Some(view) = queue.waiting.pop_front() else {
            queue.is_served = false;
            RELEASED.notify_all();
            return;
        };
        drop(queue);
        drop(view);
        let _queue = QUEUE.lock();
        RELEASED.notify_all();
    }
}

/// Returns the length of a file that has no name. Returns `None` if it has one, because closing it then frees
/// nothing.
fn removed_bytes(file: &File) -> Option<u64> {
    let status = rustix::fs::fstat(file).ok()?;
    (status.st_nlink == 0).then(|| u64::try_from(status.st_size).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::Arc;

    use super::super::{MappedFile, Mappings};
    use super::*;

    const LEN: u64 = 64 * 1024;

    #[test]
    fn removed_file_stays_readable_after_last_slice_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("removed");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all_at(&[7; LEN as usize], 0).unwrap();
        let other = File::open(&path).unwrap();
        let mapped = Arc::new(MappedFile::new(file, LEN as usize, LEN, &Mappings::default()).unwrap());
        let slice = mapped.slice(LEN - 1, 1).unwrap();
        std::fs::remove_file(&path).unwrap();
        drop(mapped);
        wait_for_released();
        assert_eq!(slice.as_ref(), [7]);
        drop(slice);
        wait_for_released();
        let mut bytes = vec![0; LEN as usize];
        other.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
