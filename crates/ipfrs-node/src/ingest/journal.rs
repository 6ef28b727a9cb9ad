//! Journal of a mutable file that grows: bytes that are durable, but not yet part of the tree.
//!
//! A commit to the tree hashes and stores a leaf, a root and the directories above. For a few bytes that costs far more
//! than the bytes. The journal takes small commits instead. Its space is allocated in advance, so that a write changes
//! no metadata of the file system and one `fdatasync` suffices. When the node opens, it moves what is left in journals
//! into the tree.
//!
//! A record is its length, a checksum, the offset of its bytes in the object, and the bytes. Records of an earlier
//! round may follow the last one; their offsets do not continue it.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use ipfrs_core::{Error, Result};

use crate::off_workers;

/// Length of the file, in bytes.
const JOURNAL_BYTES: usize = 1024 * 1024;
/// Length of the head of a record, in bytes.
const HEAD_BYTES: usize = 16;
/// Maximum number of bytes of a record without its head. After the last record, a reader tries each offset, and
/// computes a checksum of up to this length there.
pub(super) const MAX_RECORD_BYTES: usize = 64 * 1024;

/// A journal that is being written.
#[derive(Debug)]
pub(super) struct Journal {
    path: Arc<Path>,
    file: Arc<File>,
    /// Offset of the next record.
    position: usize,
}

/// Content of a journal.
#[derive(Debug)]
pub(super) struct Found {
    /// Bytes that the object lacks.
    pub(super) leftover: Option<Leftover>,
    /// Whether records with more of them follow one that cannot be read. A crash tears only the last record.
    pub(super) is_damaged: bool,
}

/// Bytes that were read from a journal.
#[derive(Debug)]
pub(super) struct Leftover {
    /// Offset in the object.
    pub(super) offset: u64,
    pub(super) bytes: Bytes,
}

impl Journal {
    /// Creates an empty journal durably.
    pub(super) async fn create(path: PathBuf) -> Result<Self> {
        let path: Arc<Path> = path.into();
        let file = in_background(&path, "create", |path| {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
            file.write_all_at(&vec![0; JOURNAL_BYTES], 0)?;
            file.sync_all()?;
            if let Some(dir) = path.parent() {
                File::open(dir)?.sync_all()?;
            }
            Ok(file)
        })
        .await?;
        Ok(Self { path, file: Arc::new(file), position: 0 })
    }

    /// Whether a record of so many bytes fits.
    pub(super) fn fits(&self, bytes: usize) -> bool {
        self.position + HEAD_BYTES + bytes <= JOURNAL_BYTES
    }

    /// Appends a record durably.
    pub(super) async fn append(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let record = encode(offset, bytes)?;
        let (file, position, len) = (self.file.clone(), self.position as u64, record.len());
        in_background(&self.path, "write", move |_| {
            file.write_all_at(&record, position)?;
            file.sync_data()
        })
        .await?;
        self.position += len;
        Ok(())
    }

    /// Begins again, because the tree has all bytes.
    pub(super) fn reset(&mut self) {
        self.position = 0;
    }

    /// Removes the journal, because the tree has all bytes.
    pub(super) async fn remove(&self) {
        // A journal that stays is found to be obsolete later.
        let _ = in_background(&self.path, "remove", |path| fs::remove_file(path)).await;
    }
}

/// Returns a record.
fn encode(offset: u64, bytes: &[u8]) -> Result<BytesMut> {
    let mut record = BytesMut::with_capacity(HEAD_BYTES + bytes.len());
    record.put_u32_le(u32::try_from(bytes.len()).map_err(|e| Error::internal("long record").with_source(e))?);
    record.put_u32_le(checksum(offset, bytes));
    record.put_u64_le(offset);
    record.put_slice(bytes);
    Ok(record)
}

/// Reads what a journal has beyond the first `size` bytes of its object.
pub(super) fn read(path: &Path, size: u64) -> io::Result<Found> {
    let mut content = Vec::new();
    File::open(path)?.take(JOURNAL_BYTES as u64).read_to_end(&mut content)?;
    Ok(parse(&content, size))
}

/// Returns what a journal with this content has beyond the first `size` bytes of its object.
fn parse(content: &[u8], size: u64) -> Found {
    let (mut position, mut end, mut bytes) = (0, None, BytesMut::new());
    while let Some((offset, record)) = record(content, position) {
        if *end.get_or_insert(offset) != offset {
            break;
        }
        position += HEAD_BYTES + record.len();
        end = Some(offset + record.len() as u64);
        // The tree may have a part of the records.
        let known = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(record.len());
        bytes.extend_from_slice(&record[known..]);
    }
    let is_damaged = has_later_record(content, position, end.unwrap_or(size), size);
    let leftover = end.filter(|_| !bytes.is_empty());
    let leftover = leftover.map(|end| Leftover { offset: end - bytes.len() as u64, bytes: bytes.freeze() });
    Found { leftover, is_damaged }
}

/// Whether a record that the object lacks follows the one at `position`, whose bytes would begin at offset `end`.
/// Records of earlier rounds are in the object.
fn has_later_record(content: &[u8], position: usize, end: u64, size: u64) -> bool {
    (position..content.len()).any(|later| {
        let Some(head) = content[later..].first_chunk::<HEAD_BYTES>() else { return false };
        // Between the two positions are the bytes between the two offsets, and the heads of their records.
        let (bytes, distance) = (offset_in(head).saturating_sub(end), (later - position) as u64);
        if bytes == 0 || bytes >= distance || !(distance - bytes).is_multiple_of(HEAD_BYTES as u64) {
            return false;
        }
        record(content, later).is_some_and(|(offset, record)| offset.saturating_add(record.len() as u64) > size)
    })
}

/// Returns the record at a position, with the offset of its bytes in the object, if its checksum is right. A record
/// whose end exceeds `u64::MAX` is damage.
fn record(content: &[u8], position: usize) -> Option<(u64, &[u8])> {
    let (head, after) = content.get(position..)?.split_first_chunk::<HEAD_BYTES>()?;
    let offset = offset_in(head);
    let length = Some(number_in(head, 0) as usize).filter(|length| *length <= MAX_RECORD_BYTES)?;
    let bytes = after.get(..length)?;
    offset.checked_add(bytes.len() as u64)?;
    (!bytes.is_empty() && number_in(head, 4) == checksum(offset, bytes)).then_some((offset, bytes))
}

fn offset_in(head: &[u8; HEAD_BYTES]) -> u64 {
    u64::from(number_in(head, 8)) | u64::from(number_in(head, 12)) << 32
}

fn number_in(head: &[u8; HEAD_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn checksum(offset: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&offset.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Does something with the file at `path`, off the workers. `what` names it in errors.
pub(super) async fn in_background<T: Send + 'static>(
    path: &Path,
    what: &'static str,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let path = path.to_owned();
    off_workers(move || work(&path).map_err(|e| Error::io(format_args!("cannot {what} {}", path.display()), e))).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn records_of_earlier_rounds_and_torn_ones_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut journal = Journal::create(path.clone()).await.unwrap();
        let leftover = |size| read(&path, size).unwrap().leftover.map(|left| (left.offset, left.bytes.to_vec()));
        assert_eq!(leftover(0), None);
        journal.append(0, b"one").await.unwrap();
        journal.append(3, b"three").await.unwrap();
        assert_eq!(leftover(0), Some((0, b"onethree".to_vec())));
        assert_eq!(leftover(5), Some((5, b"ree".to_vec())));
        assert_eq!(leftover(8), None);
        journal.reset();
        journal.append(8, b"new").await.unwrap();
        assert_eq!(leftover(8), Some((8, b"new".to_vec())));
        journal.append(11, b"torn").await.unwrap();
        let torn = OpenOptions::new().write(true).open(&path).unwrap();
        torn.write_all_at(b"X", (2 * HEAD_BYTES + 3) as u64).unwrap();
        assert_eq!(leftover(8), Some((8, b"new".to_vec())));
        assert!(!read(&path, 8).unwrap().is_damaged);
    }

    #[tokio::test]
    async fn journal_is_damaged_if_lacking_records_follow_an_unreadable_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let mut journal = Journal::create(path.clone()).await.unwrap();
        for offset in (0..40).step_by(4) {
            journal.append(offset, b"data").await.unwrap();
        }
        journal.reset();
        for offset in (40..52).step_by(4) {
            journal.append(offset, b"data").await.unwrap();
        }
        let whole = fs::read(&path).unwrap();
        // A byte of the length, the checksum, the offset, or the data of a record.
        for (record, byte) in (0..3).flat_map(|record| [0, 4, 8, 17].map(|byte| (record, byte))) {
            let mut content = whole.clone();
            content[record * (HEAD_BYTES + 4) + byte] ^= 0x10;
            fs::write(&path, content).unwrap();
            let found = read(&path, 40).unwrap();
            assert_eq!(found.is_damaged, record < 2, "{record}, {byte}");
            assert_eq!(found.leftover.map_or(0, |left| left.bytes.len()), record * 4, "{record}, {byte}");
            assert!(!read(&path, 52).unwrap().is_damaged, "the object has everything");
        }
    }
}
