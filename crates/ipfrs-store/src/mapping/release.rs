//! Giving the room of removed files back, beside everything else.
//!
//! A file system frees a removed file when its last descriptor is closed, and all of it before `close` returns: a quarter of
//! a second for a gigabyte where the disk is told of it (`discard`). Whoever happens to hold the last slice would wait for
//! that, most likely a thread that serves requests. So a thread of its own does it.
//!
//! The file is not shortened, which would let others have the disk in between: that it has no name does not say that nobody
//! else reads it. Slices outlive their store, which may be open again elsewhere by then, and a backup may be copying it.

use std::collections::VecDeque;
use std::fs::File;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::View;

/// Files of no more than this are closed by whoever held them last.
const SMALL_BYTES: u64 = if cfg!(test) { 4 * 1024 } else { 1024 * 1024 };

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_served: false });

/// Notified when a file was released.
static RELEASED: Condvar = Condvar::new();

struct Queue {
    waiting: VecDeque<View>,
    /// Whether the thread runs. It ends when there is nothing to do.
    is_served: bool,
}

/// Unmaps and closes a file; elsewhere, if that may take long.
pub(super) fn release(view: View) {
    let Some(bytes) = removed_bytes(&view.file) else { return };
    if bytes <= SMALL_BYTES {
        drop(view);
        // Under the lock, so that no waiter misses it between its check and its wait.
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

/// Waits until the room of all files that were released before is given back.
pub(crate) fn wait_for_released() {
    let mut queue = QUEUE.lock();
    while queue.is_served {
        RELEASED.wait(&mut queue);
    }
}

/// Waits until `is_released`, which is asked again whenever a file was released, but no longer than `longest`.
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

/// Length of a file without a name; `None` where it has one, and closing it frees nothing.
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
    fn a_removed_file_stays_whole_for_who_else_has_it_once_its_last_slice_is_gone() {
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
