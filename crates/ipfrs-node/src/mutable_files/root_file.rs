//! The root on the disk: `mutable-files.root`, with the content ID of the last flushed root.
//!
//! The file has two slots, and a flush overwrites the older one. That costs one `fdatasync` without a change of
//! metadata, and the flush can store its blocks at the same time: the slot lists them, so if a crash leaves a root of
//! which some were not stored, the other slot has the previous one. A note behind the slots says which write was
//! acknowledged: that root is never given up. The note is written before the next slot, or once no flush follows, and
//! without a sync of its own. A file of an older version has no note, or a content ID alone, and is replaced.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind as Io, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ipfrs_core::{Cid, Error, Result, parse_cid};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Duration, sleep};

/// Name of the file in the directory of the store.
const FILE: &str = "mutable-files.root";
/// Extension of an incomplete file.
const DRAFT: &str = "root-new";
/// Length of a slot and of the note, in bytes. Each has its own checksum.
const SLOT_BYTES: usize = 4_096;
/// Position of the note, in bytes.
const NOTE_AT: usize = 2 * SLOT_BYTES;
/// Length of the file, in bytes. What follows in a longer one is ignored.
const MAX_BYTES: u64 = 3 * SLOT_BYTES as u64;

/// Time after which a flush is noted, if no other flush follows before.
const NOTE_AFTER: Duration = Duration::from_millis(20);

/// Space for the fields of a slot other than the list of blocks, in bytes.
const FIELDS_BYTES: usize = 512;
/// Maximum number of blocks in the list of a slot.
const MAX_LISTED: usize = 64;

/// A root that was read from the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedRoot {
    /// Number of the slot; `None` in a file of an older version.
    slot: Option<usize>,
    /// Number of the write.
    sequence: u64,
    /// Content ID of the root.
    pub(crate) root: Cid,
    /// Blocks that were stored while the root was written, the root among them. The root counts only if they are
    /// there.
    pub(crate) storing: Vec<Cid>,
    /// Whether the other slot was never written. Attempts that fail use the same slot again.
    is_alone: bool,
    /// Whether the flush was acknowledged, as far as is known. Blocks that are missing were lost later.
    pub(crate) is_confirmed: bool,
}

impl SavedRoot {
    /// Whether no root was saved before, and this one may not have been stored.
    pub(crate) fn is_first_attempt(&self) -> bool {
        self.is_alone && !self.storing.is_empty()
    }
}

/// File with the root. All methods but [`RootFile::note_later`] block on the disk.
#[derive(Debug)]
pub(crate) struct RootFile {
    path: PathBuf,
    /// The file, once it has slots.
    file: Option<File>,
    /// The slot with the root that is durable together with its blocks.
    durable: usize,
    /// Number of the last write.
    sequence: u64,
    /// Number of the last write that is confirmed.
    confirmed: u64,
    /// Number of the write that the note in the file names, if it was written here.
    noted: u64,
    /// Whether a task is going to write the note.
    is_note_due: bool,
}

impl RootFile {
    /// Returns the file in the directory of a store.
    pub(crate) fn new(dir: &Path) -> Self {
        let path = dir.join(FILE);
        Self { path, file: None, durable: 0, sequence: 0, confirmed: 0, noted: 0, is_note_due: false }
    }

    /// Returns the saved roots, the latest first. It is the current one if its block is stored.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) if the file is not empty and holds no content ID; otherwise the
    /// error of the file system.
    pub(crate) fn read(&self) -> Result<Vec<SavedRoot>> {
        let cannot = |e| Error::io(format_args!("cannot read {}", self.path.display()), e);
        let mut bytes = Vec::new();
        match File::open(&self.path) {
            Ok(file) => file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(cannot)?,
            Err(e) if e.kind() == Io::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(cannot(e)),
        };
        let (slots, note) = bytes.split_at(bytes.len().min(NOTE_AT));
        let slots = slots.chunks(SLOT_BYTES).enumerate();
        let blank = slots.clone().filter(|(_, bytes)| is_blank(bytes)).count();
        let unreadable = slots.clone().find(|(slot, bytes)| !is_blank(bytes) && parse_slot(*slot, bytes).is_none());
        let mut saved: Vec<_> = slots.filter_map(|(slot, bytes)| parse_slot(slot, bytes)).collect();
        let confirmed = checked_line(note).and_then(|sequence| u64::from_str(sequence).ok());
        for saved in &mut saved {
            saved.is_alone = blank > 0;
            saved.is_confirmed = confirmed == Some(saved.sequence);
        }
        saved.sort_by_key(|saved| std::cmp::Reverse(saved.sequence));
        // A note follows its slot, so that slot was damaged later. Another root would be an older one.
        if confirmed > saved.first().map(|latest| latest.sequence) {
            return Err(self.damaged("the slot of the last flush cannot be read"));
        }
        if !saved.is_empty() && bytes.len() < NOTE_AT {
            return Err(self.damaged("its end is missing, which may have had the last flush"));
        }
        // A crash may have torn a slot, but leaves text in it. The note is too short to be torn.
        if let (Some((_, slot)), None) = (unreadable, confirmed)
            && (!is_blank(note) || !slot.iter().all(|byte| is_text(*byte)))
            && !saved.is_empty()
        {
            return Err(self.damaged("a slot, which may be that of the last flush, and its note cannot be read"));
        }
        let is_new = bytes.len() >= NOTE_AT && bytes.iter().all(|byte| *byte == b' ');
        if !saved.is_empty() || is_new {
            return Ok(saved);
        }
        let root = std::str::from_utf8(&bytes).ok().and_then(|text| parse_cid(text.trim()).ok());
        let root = root.ok_or_else(|| self.damaged("it has no content ID"))?;
        let (slot, storing) = (None, Vec::new());
        Ok(vec![SavedRoot { slot, sequence: 0, root, storing, is_alone: false, is_confirmed: false }])
    }

    fn damaged(&self, why: &str) -> Error {
        Error::corrupt(format!(
            "{} is damaged: {why}; restore it from a backup, or write the content ID of a directory into it (without the \
             file, there are no mutable files, and gc removes their content)",
            self.path.display()
        ))
    }

    /// Sets the root that the next write keeps, which is one of those that were read, or none.
    pub(crate) fn keep(&mut self, current: Option<&SavedRoot>, all: &[SavedRoot]) {
        self.durable = current.and_then(|current| current.slot).unwrap_or(0);
        self.sequence = all.iter().map(|saved| saved.sequence).max().unwrap_or(0);
    }

    /// Whether a slot has space to list these blocks.
    pub(crate) fn can_list(blocks: &[Cid]) -> bool {
        let text_bytes = || blocks.iter().map(|cid| cid.to_string().len() + 1).sum::<usize>();
        blocks.len() <= MAX_LISTED && text_bytes() <= SLOT_BYTES - FIELDS_BYTES
    }

    /// Writes a root durably, whose blocks in `storing` may not be stored yet. A crash leaves this one or that of the
    /// last [`Self::confirm`].
    ///
    /// # Errors
    /// The error of the file system.
    pub(crate) fn write(&mut self, root: &Cid, storing: &[Cid], confirmed: Option<&Cid>) -> Result<()> {
        let written = self.try_write(root, storing, confirmed);
        written.map_err(|e| Error::io(format_args!("cannot write {}", self.path.display()), e))
    }

    /// Confirms that the blocks of the root that was written last are stored. Returns whether the caller must call
    /// [`Self::note_later`], which an earlier caller may have done.
    pub(crate) fn confirm(&mut self) -> bool {
        self.durable = 1 - self.durable;
        self.confirmed = self.sequence;
        !std::mem::replace(&mut self.is_note_due, true)
    }

    /// Notes the last [`Self::confirm`] in the file. Without the note, a root of which blocks are missing could be one
    /// that was not acknowledged, so that this may fail.
    pub(crate) fn note(&mut self) {
        self.is_note_due = false;
        self.write_note();
    }

    /// Calls [`Self::note`] after [`NOTE_AFTER`], without waiting for it, unless the file is dropped before. Of many
    /// flushes in that time, only the first needs this: each write of a root also notes the flush before.
    pub(crate) fn note_later(file: &Arc<Mutex<Self>>) {
        let file = Arc::downgrade(file);
        drop(tokio::spawn(async move {
            sleep(NOTE_AFTER).await;
            if let Some(file) = file.upgrade() {
                drop(spawn_blocking(move || file.lock().note()));
            }
        }));
    }

    fn write_note(&mut self) {
        let is_new = self.confirmed == self.sequence && self.confirmed != self.noted;
        let Some(file) = self.file.as_ref().filter(|_| is_new) else { return };
        match file.write_all_at(&page(&self.confirmed.to_string()), NOTE_AT as u64) {
            Ok(()) => self.noted = self.confirmed,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot note the last flush of the mutable files");
            }
        }
    }

    /// Writes the note that another task may not have written yet. Later ones are not written.
    pub(crate) fn close(&mut self) {
        self.note();
        self.file = None;
    }

    fn try_write(&mut self, root: &Cid, storing: &[Cid], confirmed: Option<&Cid>) -> io::Result<()> {
        self.write_note();
        let file = match &self.file {
            Some(file) => file,
            None => {
                let file = self.create(confirmed)?;
                self.file.insert(file)
            }
        };
        self.sequence += 1;
        file.write_all_at(&slot(self.sequence, root, storing), ((1 - self.durable) * SLOT_BYTES) as u64)?;
        file.sync_data()
    }

    /// Opens the file, and replaces it if it has no slots.
    fn create(&self, confirmed: Option<&Cid>) -> io::Result<File> {
        let existing = OpenOptions::new().read(true).write(true).open(&self.path);
        if let Ok(file) = existing
            && file.metadata()?.len() == MAX_BYTES
        {
            // A process that was killed may have left a slot that is not durable. The next write replaces the other
            // slot.
            file.sync_data()?;
            return Ok(file);
        }
        let mut content = vec![b' '; NOTE_AT + SLOT_BYTES];
        if let Some(root) = confirmed {
            content[self.durable * SLOT_BYTES..][..SLOT_BYTES].copy_from_slice(&slot(self.sequence, root, &[]));
        }
        let draft = self.path.with_extension(DRAFT);
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&draft)?;
        let renamed =
            file.write_all(&content).and_then(|()| file.sync_all()).and_then(|()| fs::rename(&draft, &self.path));
        if let Err(e) = renamed {
            // A partial draft is useless.
            let _ = fs::remove_file(&draft);
            return Err(e);
        }
        if let Some(dir) = self.path.parent() {
            File::open(dir)?.sync_all()?;
        }
        Ok(file)
    }
}

/// Returns a slot: the number of the write, the root, and the blocks that it lists.
fn slot(sequence: u64, root: &Cid, storing: &[Cid]) -> [u8; SLOT_BYTES] {
    let mut fields = format!("{sequence} {root}");
    for cid in storing {
        fields.extend([" ", &cid.to_string()]);
    }
    page(&fields)
}

/// Returns a line of text with a checksum, and spaces.
fn page(fields: &str) -> [u8; SLOT_BYTES] {
    let line = format!("{fields} {:08x}\n", crc32fast::hash(fields.as_bytes()));
    let mut page = [b' '; SLOT_BYTES];
    page[..line.len()].copy_from_slice(line.as_bytes());
    page
}

/// Whether a page was never written.
fn is_blank(page: &[u8]) -> bool {
    page.iter().all(|byte| *byte == b' ')
}

/// Whether slots and notes have such bytes.
fn is_text(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b' ' | b'\n')
}

/// Returns the text of a page, if its checksum is right.
fn checked_line(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let (fields, sum) = std::str::from_utf8(line).ok()?.rsplit_once(' ')?;
    (u32::from_str_radix(sum, 16).ok()? == crc32fast::hash(fields.as_bytes())).then_some(fields)
}

fn parse_slot(slot: usize, bytes: &[u8]) -> Option<SavedRoot> {
    let (sequence, cids) = checked_line(bytes)?.split_once(' ')?;
    let mut cids = cids.split(' ').map(|cid| parse_cid(cid).ok());
    let root = cids.next()??;
    let storing = cids.collect::<Option<_>>()?;
    // The next write increments the number, which must not overflow.
    let sequence = u64::from_str(sequence).ok().filter(|sequence| *sequence < u64::MAX)?;
    let slot = Some(slot);
    Some(SavedRoot { slot, sequence, root, storing, is_alone: false, is_confirmed: false })
}

#[cfg(test)]
mod tests {
    use ipfrs_core::{Multihash, codec};

    use super::*;

    fn root(number: u8) -> Cid {
        Cid::new_v1(codec::DAG_PB, Multihash::wrap(0, &[number]).unwrap())
    }

    fn roots(dir: &Path) -> Vec<Cid> {
        RootFile::new(dir).read().unwrap().into_iter().map(|saved| saved.root).collect()
    }

    #[test]
    fn unconfirmed_root_is_overwritten_before_the_confirmed_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = RootFile::new(dir.path());
        assert_eq!(roots(dir.path()), []);
        file.write(&root(1), &[], None).unwrap();
        file.confirm();
        file.write(&root(2), &[], Some(&root(1))).unwrap();
        assert_eq!(roots(dir.path()), [root(2), root(1)]);
        file.write(&root(3), &[], Some(&root(1))).unwrap();
        assert_eq!(roots(dir.path()), [root(3), root(1)]);
        file.confirm();
        let mut again = RootFile::new(dir.path());
        let saved = again.read().unwrap();
        again.keep(Some(&saved[0]), &saved);
        again.write(&root(4), &[], Some(&root(3))).unwrap();
        assert_eq!(roots(dir.path()), [root(4), root(3)]);
    }

    #[test]
    fn attempts_before_the_first_root_are_told_from_a_lost_root() {
        let dir = tempfile::tempdir().unwrap();
        let first = |count| {
            let saved = RootFile::new(dir.path()).read().unwrap();
            assert_eq!(saved.len(), count);
            saved[0].is_first_attempt()
        };
        let mut file = RootFile::new(dir.path());
        for attempt in 1..4 {
            file.write(&root(attempt), &[root(attempt)], None).unwrap();
            assert!(first(1));
        }
        file.confirm();
        file.write(&root(5), &[root(5)], Some(&root(3))).unwrap();
        assert!(!first(2));
    }

    #[test]
    fn a_note_says_which_write_was_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let confirmed =
            || RootFile::new(dir.path()).read().unwrap().iter().map(|saved| saved.is_confirmed).collect::<Vec<_>>();
        let mut file = RootFile::new(dir.path());
        file.write(&root(1), &[root(1)], None).unwrap();
        file.note();
        assert_eq!(confirmed(), [false]);
        file.confirm();
        file.note();
        assert_eq!(confirmed(), [true]);
        file.write(&root(2), &[root(2)], Some(&root(1))).unwrap();
        file.note();
        assert_eq!(confirmed(), [false, true]);
        let damaged = OpenOptions::new().write(true).open(dir.path().join(FILE)).unwrap();
        let whole = fs::read(dir.path().join(FILE)).unwrap();
        damaged.write_all_at(&page("2"), NOTE_AT as u64).unwrap();
        assert_eq!(confirmed(), [true, false]);
        damaged.write_all_at(b"9", 3).unwrap();
        assert!(RootFile::new(dir.path()).read().unwrap_err().to_string().contains("the slot of the last flush"));
        fs::write(dir.path().join(FILE), whole).unwrap();
        // A file of an earlier version ends with the slots.
        let path = dir.path().join(FILE);
        fs::write(&path, &fs::read(&path).unwrap()[..NOTE_AT]).unwrap();
        assert_eq!(confirmed(), [false, false]);
        let mut file = RootFile::new(dir.path());
        let saved = file.read().unwrap();
        file.keep(Some(&saved[0]), &saved);
        file.write(&root(3), &[], Some(&root(2))).unwrap();
        file.confirm();
        file.note();
        assert_eq!((roots(dir.path()), confirmed()), (vec![root(3), root(2)], vec![true, false]));
    }

    #[test]
    fn each_write_notes_the_flush_before_and_one_task_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let confirmed =
            || RootFile::new(dir.path()).read().unwrap().iter().map(|saved| saved.is_confirmed).collect::<Vec<_>>();
        let mut file = RootFile::new(dir.path());
        file.write(&root(1), &[root(1)], None).unwrap();
        assert!(file.confirm());
        assert_eq!(confirmed(), [false]);
        file.write(&root(2), &[root(2)], Some(&root(1))).unwrap();
        assert_eq!(confirmed(), [false, true]);
        // The task for the first flush is still due.
        assert!(!file.confirm());
        file.note();
        assert_eq!(confirmed(), [true, false]);
        file.write(&root(3), &[root(3)], Some(&root(2))).unwrap();
        assert!(file.confirm());
    }

    #[tokio::test]
    async fn a_flush_that_none_follows_is_noted_later() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = RootFile::new(dir.path());
        file.write(&root(1), &[root(1)], None).unwrap();
        file.confirm();
        let file = Arc::new(Mutex::new(file));
        RootFile::note_later(&file);
        let noted = async {
            while !RootFile::new(dir.path()).read().unwrap()[0].is_confirmed {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), noted).await.expect("nothing notes the flush");
    }

    #[test]
    fn a_slot_lists_as_many_blocks_as_it_has_space_for() {
        let dir = tempfile::tempdir().unwrap();
        let blocks: Vec<_> = (0..=MAX_LISTED as u8).map(root).collect();
        assert!(RootFile::can_list(&blocks[1..]) && !RootFile::can_list(&blocks));
        let long = Cid::new_v1(codec::RAW, Multihash::wrap(0, &[7; 127]).unwrap());
        assert!(RootFile::can_list(&[long; 16]) && !RootFile::can_list(&[long; 17]));
        for storing in [&blocks[1..], &[long; 16]] {
            RootFile::new(dir.path()).write(&long, storing, None).unwrap();
            let saved = RootFile::new(dir.path()).read().unwrap();
            assert_eq!((saved[0].root, saved[0].storing.as_slice()), (long, storing));
            fs::remove_file(dir.path().join(FILE)).unwrap();
        }
    }

    #[test]
    fn torn_slot_is_ignored_and_an_old_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        fs::write(&path, format!("{}\n", root(1))).unwrap();
        let mut file = RootFile::new(dir.path());
        let saved = file.read().unwrap();
        file.keep(Some(&saved[0]), &saved);
        file.write(&root(2), &[], Some(&saved[0].root)).unwrap();
        assert_eq!(roots(dir.path()), [root(2), root(1)]);
        let damaged = OpenOptions::new().write(true).open(&path).unwrap();
        damaged.write_all_at(b"9", SLOT_BYTES as u64 + 3).unwrap();
        assert_eq!(roots(dir.path()), [root(1)]);
        fs::write(&path, "nothing").unwrap();
        assert!(RootFile::new(dir.path()).read().unwrap_err().to_string().contains("is damaged"));
    }

    #[test]
    fn no_earlier_root_is_read_if_the_latest_is_cut_off_or_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let mut file = RootFile::new(dir.path());
        for flush in 1..=3 {
            file.write(&root(flush), &[], None).unwrap();
            file.confirm();
            file.note();
        }
        let whole = fs::read(&path).unwrap();
        assert_eq!(roots(dir.path()), [root(3), root(2)]);
        let read = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            RootFile::new(dir.path()).read().map(|saved| saved[0].root)
        };
        for bytes in [100, SLOT_BYTES, SLOT_BYTES + 4, NOTE_AT - 1] {
            assert!(read(&whole[..bytes]).unwrap_err().to_string().contains("is damaged"), "{bytes}");
        }
        assert_eq!(read(&whole[..NOTE_AT]).unwrap(), root(3));
        let zeroed = |range: std::ops::Range<usize>| {
            let mut content = whole.clone();
            content[range].fill(0);
            read(&content)
        };
        for damaged in [SLOT_BYTES..NOTE_AT, SLOT_BYTES..3 * SLOT_BYTES, 0..NOTE_AT, 0..3 * SLOT_BYTES] {
            assert!(zeroed(damaged.clone()).unwrap_err().to_string().contains("is damaged"), "{damaged:?}");
        }
        // The latest root is there.
        for harmless in [0..SLOT_BYTES, NOTE_AT..3 * SLOT_BYTES] {
            assert_eq!(zeroed(harmless.clone()).unwrap(), root(3), "{harmless:?}");
        }
        let mut without_note = whole[..NOTE_AT].to_vec();
        without_note[SLOT_BYTES..].fill(0);
        assert!(read(&without_note).unwrap_err().to_string().contains("is damaged"));
    }
}
