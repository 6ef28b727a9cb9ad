//! Sorted table of byte strings that keeps only its recent entries in memory.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use ipfrs_core::{Error, Result};

/// Approximate memory of an entry besides its bytes: its place in the tree and two allocations.
const ENTRY_OVERHEAD_BYTES: usize = 96;

/// Memory for the read buffers of all runs, in bytes, within the limits for each buffer.
const READ_AHEAD_BYTES: usize = 4 * 1024 * 1024;
const MIN_BUFFER_BYTES: usize = 8 * 1024;
const MAX_BUFFER_BYTES: usize = 64 * 1024;

/// Size of the header of an entry in a run: the lengths of key and value, 32 bits each, little-endian.
const HEADER_BYTES: usize = 8;

type Bytes = Box<[u8]>;

/// Key and value of an entry.
pub(crate) type Record = (Bytes, Bytes);

/// Queue that yields any number of entries in the order of their keys. Entries may be added while others are being
/// taken, as long as their keys are greater than those already taken.
///
/// Entries that do not fit in memory are written to a file without a name, so that nothing is left of it however the
/// process ends. The file consists of sorted runs, one for each time that the memory was full. The runs are merged as
/// entries are taken.
#[derive(Debug)]
pub(crate) struct SortedTable {
    recent: BTreeMap<Bytes, Bytes>,
    /// Memory that `recent` uses, in bytes.
    recent_bytes: usize,
    /// Memory that `recent` may use, in bytes.
    max_recent_bytes: usize,
    /// Directory of the temporary file.
    dir: PathBuf,
    file: Option<Arc<File>>,
    runs: Vec<Run>,
    /// First key of each run, once entries are being taken.
    merge: Option<BinaryHeap<Reverse<(Bytes, usize)>>>,
}

impl SortedTable {
    /// Creates a table that keeps about `max_recent_bytes` in memory. The file is created only when needed, in `dir`,
    /// or in the system's directory for temporary files if `dir` is not writable.
    pub(crate) fn new(dir: PathBuf, max_recent_bytes: usize) -> Self {
        Self {
            recent: BTreeMap::new(),
            recent_bytes: 0,
            max_recent_bytes,
            dir,
            file: None,
            runs: Vec::new(),
            merge: None,
        }
    }

    /// Adds an entry. When [`Self::is_full`] returns `true`, the caller should [`spill`](Self::spill). Returns the
    /// previous value of the key if it is still in memory. A value that was already written to the file is yielded
    /// before this one.
    pub(crate) fn insert(&mut self, key: Vec<u8>, value: Vec<u8>) -> Option<Bytes> {
        self.recent_bytes += key.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        let replaced = self.recent.insert(key.into(), value.into());
        if let Some(replaced) = &replaced {
            self.recent_bytes = self.recent_bytes.saturating_sub(replaced.len() + ENTRY_OVERHEAD_BYTES);
        }
        replaced
    }

    /// Returns whether the memory is full.
    pub(crate) fn is_full(&self) -> bool {
        self.recent_bytes > self.max_recent_bytes
    }

    /// Returns whether reading may wait for the disk.
    pub(crate) fn is_on_disk(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Writes the entries in memory to the file. Waits for the disk.
    pub(crate) fn spill(&mut self) -> Result<()> {
        let file = match &self.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(self.file.insert(Arc::new(self.make_file()?))),
        };
        let start = self.runs.last().map_or(0, |run| run.end);
        let mut end = start;
        let mut buffer = Vec::with_capacity(2 * MAX_BUFFER_BYTES);
        for (key, value) in std::mem::take(&mut self.recent) {
            let length = |bytes: &[u8]| u32::try_from(bytes.len()).map(u32::to_le_bytes);
            let lengths = (length(&key), length(&value));
            let (Ok(key_length), Ok(value_length)) = lengths else {
                return Err(Error::internal("an entry of a sorted table is over 4 GiB"));
            };
            buffer.extend([key_length, value_length].as_flattened());
            buffer.extend([key, value].concat());
            if buffer.len() >= MAX_BUFFER_BYTES {
                file.write_all_at(&buffer, end).map_err(|e| self.failed("write", e))?;
                end += buffer.len() as u64;
                buffer.clear();
            }
        }
        file.write_all_at(&buffer, end).map_err(|e| self.failed("write", e))?;
        end += buffer.len() as u64;
        self.recent_bytes = 0;
        self.runs.push(Run {
            file,
            next: start,
            end,
            buffer: Vec::new(),
            at: 0,
            buffer_bytes: MIN_BUFFER_BYTES,
            value: Bytes::default(),
        });
        if self.merge.is_some() {
            self.advance(self.runs.len() - 1)?;
        }
        Ok(())
    }

    /// Returns the first key. Waits for the disk if [`Self::is_on_disk`].
    pub(crate) fn first(&mut self) -> Result<Option<&[u8]>> {
        self.begin_merge()?;
        let spilled = self.merge.as_ref().and_then(BinaryHeap::peek).map(|Reverse((key, _))| key);
        let recent = self.recent.first_key_value().map(|(key, _)| key);
        Ok(spilled.into_iter().chain(recent).min().map(|key| &**key))
    }

    /// Removes and returns the first entry if its key begins with `prefix`. Waits for the disk if
    /// [`Self::is_on_disk`].
    pub(crate) fn take(&mut self, prefix: &[u8]) -> Result<Option<Record>> {
        if self.first()?.is_none_or(|key| !key.starts_with(prefix)) {
            return Ok(None);
        }
        let recent = self.recent.first_key_value().map(|(key, _)| key);
        let spilled = self.merge.as_ref().and_then(BinaryHeap::peek).map(|Reverse((key, _))| key);
        if spilled.is_some_and(|spilled| recent.is_none_or(|recent| spilled <= recent)) {
            let Some(Reverse((key, run))) = self.merge.as_mut().and_then(BinaryHeap::pop) else { return Ok(None) };
            let value = std::mem::take(&mut self.runs[run].value);
            self.advance(run)?;
            return Ok(Some((key, value)));
        }
        let first = self.recent.pop_first();
        if let Some((key, value)) = &first {
            self.recent_bytes = self.recent_bytes.saturating_sub(key.len() + value.len() + ENTRY_OVERHEAD_BYTES);
        }
        Ok(first)
    }

    fn begin_merge(&mut self) -> Result<()> {
        if self.merge.is_some() {
            return Ok(());
        }
        self.merge = Some(BinaryHeap::with_capacity(self.runs.len()));
        let buffer_bytes = READ_AHEAD_BYTES / self.runs.len().max(1);
        for run in 0..self.runs.len() {
            self.runs[run].buffer_bytes = buffer_bytes.clamp(MIN_BUFFER_BYTES, MAX_BUFFER_BYTES);
            self.advance(run)?;
        }
        Ok(())
    }

    /// Adds the next entry of a run to the merge.
    fn advance(&mut self, run: usize) -> Result<()> {
        let key = self.runs[run].next_key().map_err(|e| self.failed("read", e))?;
        if let (Some(key), Some(merge)) = (key, &mut self.merge) {
            merge.push(Reverse((key, run)));
        }
        Ok(())
    }

    fn make_file(&self) -> Result<File> {
        match tempfile::tempfile_in(&self.dir) {
            Err(e) if matches!(e.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) => {
                tempfile::tempfile()
            }
            created => created,
        }
        .map_err(|e| self.failed("create", e))
    }

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::io(format_args!("cannot {what} the temporary file for a large import in {}", self.dir.display()), error)
    }
}

/// Sorted entries in the file.
#[derive(Debug)]
struct Run {
    file: Arc<File>,
    /// Offset of the part that has not been read.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    /// Number of bytes of the buffer that have been consumed.
    at: usize,
    buffer_bytes: usize,
    /// Value of the entry whose key is in the merge.
    value: Bytes,
}

impl Run {
    /// Returns the next key and stores its value in `value`.
    fn next_key(&mut self) -> io::Result<Option<Bytes>> {
        if self.at == self.buffer.len() && self.next == self.end {
            self.buffer = Vec::new();
            return Ok(None);
        }
        let header = self.read(HEADER_BYTES)?;
        let length =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]) as usize;
        let (key_length, value_length) = (length(0), length(4));
        let key = self.read(key_length)?.into();
        self.value = self.read(value_length)?.into();
        Ok(Some(key))
    }

    fn read(&mut self, len: usize) -> io::Result<&[u8]> {
        if self.buffer.len() - self.at < len {
            self.buffer.drain(..self.at);
            self.at = 0;
            let left = usize::try_from(self.end - self.next).unwrap_or(usize::MAX);
            let had = self.buffer.len();
            let more = left.min(self.buffer_bytes.max(len) - had);
            self.buffer.resize(had + more, 0);
            self.file.read_exact_at(&mut self.buffer[had..], self.next)?;
            self.next += more as u64;
        }
        let start = self.at;
        self.at += len;
        self.buffer.get(start..self.at).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> Vec<u8> {
        // Scattered keys of all lengths.
        [&number.wrapping_mul(0x9e37_79b1).to_be_bytes()[..], &vec![b'k'; number as usize % 300]].concat()
    }

    fn take_all(table: &mut SortedTable, prefix: &[u8]) -> Vec<Record> {
        std::iter::from_fn(|| table.take(prefix).unwrap()).collect()
    }

    #[test]
    fn sorted_table_yields_sorted_entries_from_memory_and_runs() {
        let dir = tempfile::tempdir().unwrap();
        for (max_bytes, runs) in [(usize::MAX, 0..1), (1_000_000, 1..10), (2_000, 1_000..3_000)] {
            let mut table = SortedTable::new(dir.path().to_owned(), max_bytes);
            let mut expected = BTreeMap::new();
            for number in 0..20_000 {
                let value = number.to_string().into_bytes();
                assert_eq!(table.insert(key(number), value.clone()), None);
                expected.insert(Bytes::from(key(number)), Bytes::from(value));
                if table.is_full() {
                    table.spill().unwrap();
                }
            }
            assert!(runs.contains(&table.runs.len()), "{} runs", table.runs.len());
            assert_eq!(table.first().unwrap(), expected.keys().next().map(|key| &**key));
            assert_eq!(take_all(&mut table, b""), expected.into_iter().collect::<Vec<_>>());
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn sorted_table_accepts_entries_while_taking() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = SortedTable::new(dir.path().to_owned(), 0);
        for key in ["a1", "b1", "a3", "c1"] {
            table.insert(key.into(), vec![]);
            table.spill().unwrap();
        }
        let mut taken = Vec::new();
        while let Some((key, _)) = table.take(b"a").unwrap() {
            taken.push(String::from_utf8(key.into()).unwrap());
            match taken.len() {
                1 => assert_eq!(table.insert("a2".into(), vec![]), None),
                2 => assert_eq!(table.insert("b2".into(), vec![]), None),
                _ => table.spill().unwrap(),
            }
        }
        assert_eq!(taken, ["a1", "a2", "a3"]);
        let rest: Vec<_> = take_all(&mut table, b"").into_iter().map(|(key, _)| key).collect();
        assert_eq!(rest, [&b"b1"[..], b"b2", b"c1"].map(Bytes::from));
    }

    #[test]
    fn sorted_table_keeps_insertion_order_of_equal_keys() {
        let dir = tempfile::tempdir().unwrap();
        let mut table = SortedTable::new(dir.path().to_owned(), 0);
        for value in [b"1", b"2"] {
            assert_eq!(table.insert(b"k".into(), value.into()), None);
            table.spill().unwrap();
        }
        assert_eq!(table.insert(b"k".into(), b"3".into()), None);
        assert_eq!(table.insert(b"k".into(), b"4".into()), Some(b"3"[..].into()));
        let values: Vec<_> = take_all(&mut table, b"k").into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [&b"1"[..], b"2", b"4"].map(Bytes::from));
    }

    #[test]
    fn sorted_table_falls_back_to_system_temp_dir() {
        for (dir, is_written) in [("/proc/self", true), ("/does/not/exist", false)] {
            let mut table = SortedTable::new(dir.into(), 0);
            table.insert(b"k".into(), b"v".into());
            let spilled = table.spill();
            assert_eq!(spilled.is_ok(), is_written, "{dir}");
            match spilled {
                Ok(()) => assert!(table.take(b"k").unwrap().is_some()),
                Err(error) => assert!(error.to_string().contains(dir), "{error}"),
            }
        }
    }
}
