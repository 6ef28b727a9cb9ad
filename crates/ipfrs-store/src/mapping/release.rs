//! Giving the room of removed files back, beside everything else.
//!
//! A file system frees a removed file when its last descriptor is closed, and all of it before `close` returns: a quarter of
//! a second for a gigabyte where the disk is told of it (`discard`). Whoever happens to hold the last slice would wait for
//! that, most likely a thread that serves requests, and so would everybody whose writes are synced meanwhile. So a thread of
//! its own does it, a piece at a time, and lets the others have the disk in between.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::View;

/// What is freed at a time, in bytes: some milliseconds of work. Whole pages of any size, so that none is cleared of which
/// a socket still sends a part.
const STEP_BYTES: u64 = if cfg!(test) { 64 * 1024 } else { 16 * 1024 * 1024 };

/// Files of no more than this are closed by whoever held them last.
const SMALL_BYTES: u64 = if cfg!(test) { 4 * 1024 } else { 1024 * 1024 };

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), is_served: false });

/// Told when nothing is left to be released.
static EMPTY: Condvar = Condvar::new();

struct Queue {
    waiting: VecDeque<View>,
    /// Whether the thread runs. It ends when there is nothing to do.
    is_served: bool,
}

/// Unmaps and closes a file; elsewhere, if that may take long.
pub(super) fn release(view: View) {
    if removed_bytes(&view.file).is_none_or(|bytes| bytes <= SMALL_BYTES) {
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
        }
    }
}

/// Waits until the room of all files that were released before is given back.
pub(crate) fn wait_for_released() {
    let mut queue = QUEUE.lock();
    while queue.is_served {
        EMPTY.wait(&mut queue);
    }
}

fn release_all() {
    loop {
        let mut queue = QUEUE.lock();
        let Some(view) = queue.waiting.pop_front() else {
            queue.is_served = false;
            EMPTY.notify_all();
            return;
        };
        drop(queue);
        let View { protected, map, file } = view;
        drop(protected);
        drop(map);
        // A file that is open for reading only cannot be shortened: closing it frees all of it at once.
        let _ = shorten(&file, thread::sleep);
    }
}

/// Length of a file without a name; `None` where it has one, and is to stay as it is: the other link may be a copy.
fn removed_bytes(file: &File) -> Option<u64> {
    let status = rustix::fs::fstat(file).ok()?;
    (status.st_nlink == 0).then(|| u64::try_from(status.st_size).unwrap_or(0))
}

/// Cuts a file off, step by step, and pauses in between for as long as each step took.
fn shorten(file: &File, mut pause: impl FnMut(Duration)) -> io::Result<()> {
    let mut left = file.metadata()?.len();
    while left > 0 {
        let began = Instant::now();
        left = (left - 1) / STEP_BYTES * STEP_BYTES;
        file.set_len(left)?;
        pause(began.elapsed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::super::{MappedFile, Mappings};
    use super::*;

    const LEN: u64 = 3 * STEP_BYTES + 1;

    #[test]
    fn a_removed_file_keeps_its_bytes_until_its_last_slice_is_gone_and_is_freed_then() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LEN).unwrap();
        let watched = file.try_clone().unwrap();
        let mapped = Arc::new(MappedFile::new(file, LEN as usize, LEN, &Mappings::default()).unwrap());
        let slice = mapped.slice(LEN - 1, 1).unwrap();
        drop(mapped);
        wait_for_released();
        assert_eq!((watched.metadata().unwrap().len(), slice.as_ref()), (LEN, &[0][..]));
        drop(slice);
        wait_for_released();
        assert_eq!(watched.metadata().unwrap().len(), 0);
    }

    #[test]
    fn a_file_is_shortened_step_by_step() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LEN).unwrap();
        let mut lengths = Vec::new();
        shorten(&file, |_| lengths.push(file.metadata().unwrap().len())).unwrap();
        assert_eq!(lengths, [3 * STEP_BYTES, 2 * STEP_BYTES, STEP_BYTES, 0]);
    }

    #[test]
    fn a_file_that_has_another_name_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let [name, copy] = ["name", "copy"].map(|name| dir.path().join(name));
        let file = File::options().read(true).write(true).create_new(true).open(&name).unwrap();
        file.set_len(LEN).unwrap();
        fs::hard_link(&name, &copy).unwrap();
        let mapped = MappedFile::new(file, LEN as usize, LEN, &Mappings::default()).unwrap();
        fs::remove_file(&name).unwrap();
        drop(mapped);
        wait_for_released();
        assert_eq!(fs::metadata(&copy).unwrap().len(), LEN);
    }
}
