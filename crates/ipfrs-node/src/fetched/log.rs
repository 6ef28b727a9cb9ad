//! The ledger's log: segments of records, to which records are only appended. `docs/design/fetched.md` has the format.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_store::sync_directory;
use parking_lot::{Mutex, RwLock};

use super::record::{Heads, MAX_RECORD_BYTES, Position, Record};
use super::segment::{Data, FORMAT, HEADER_BYTES, MAGIC, Segment, Target, UNFINISHED, cannot, header};

/// Length at which a segment is full, in bytes.
const SEGMENT_BYTES: u32 = 4 * 1024 * 1024;

/// Log of the ledger. Its methods wait for the disk.
#[derive(Debug)]
pub(super) struct Log {
    /// Directory of the segments; `None` if they are in memory.
    dir: Option<PathBuf>,
    /// Whether records survive a power failure once [`Self::sync`] returns.
    is_synced: bool,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    writer: Mutex<Writer>,
}

#[derive(Debug, Default)]
struct Writer {
    /// Bytes that were appended since the last sync.
    unsynced: u64,
    /// Reason why nothing can be appended until a restart.
    failed: Option<String>,
}

impl Log {
    /// Returns a log that lives as long as the process.
    pub(super) fn in_memory() -> Self {
        Self { dir: None, is_synced: false, segments: RwLock::default(), writer: Mutex::default() }
    }

    /// Opens the log in `dir`, which need not exist, and passes each record to `each`. An incomplete record at the
    /// end, which a crash leaves, is removed.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if the log is damaged, [`ErrorKind::Unsupported`] if it has another format; otherwise
    /// errors of the file system.
    pub(super) fn open(dir: &Path, is_synced: bool, mut each: impl FnMut(Record)) -> Result<Self> {
        let log = Self { dir: Some(dir.to_owned()), is_synced, ..Self::in_memory() };
        let mut numbers = match fs::read_dir(dir) {
            Ok(entries) => numbers(entries).map_err(|error| cannot("read", dir, error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(log),
            Err(error) => return Err(cannot("read", dir, error)),
        };
        numbers.sort_unstable();
        // A crash may have left it.
        let _absent = fs::remove_file(dir.join(UNFINISHED));
        let mut segments: Vec<(u32, File, u32, PathBuf)> = Vec::new();
        let newest = numbers.last().copied();
        for number in numbers {
            let path = log.path(dir, number);
            let file = OpenOptions::new().read(true).write(true).open(&path).map_err(|e| cannot("open", &path, e))?;
            let len = file.metadata().map_err(|error| cannot("inspect", &path, error))?.len();
            let len = u32::try_from(len).map_err(|_| damaged(&path, 0))?;
            let mut found = vec![0; HEADER_BYTES as usize];
            let is_read = file.read_exact_at(&mut found, 0).is_ok();
            let is_base = is_read && found == header(number, true);
            if !(is_base || is_read && found == header(number, false)) {
                if is_read && found.starts_with(MAGIC) && found[8..12] != FORMAT.to_le_bytes() {
                    let message = format!("{} has a format that this program does not know", path.display());
                    return Err(Error::unsupported(format!("{message}: use a newer version")));
                }
                if Some(number) != newest {
                    return Err(damaged(&path, 0));
                }
                // It was being created.
                fs::remove_file(&path).map_err(|error| cannot("remove", &path, error))?;
                continue;
            }
            if is_base {
                for (number, ..) in segments.drain(..) {
                    let path = log.path(dir, number);
                    fs::remove_file(&path).map_err(|error| cannot("remove", &path, error))?;
                }
            }
            segments.push((number, file, len, path));
        }
        let first = segments.first().map_or(0, |(number, ..)| *number);
        let last = segments.len().saturating_sub(1);
        for (index, (number, file, len, path)) in segments.into_iter().enumerate() {
            if number != first + index as u32 {
                return Err(damaged(&path, 0));
            }
            let segment = Segment { number, len: AtomicU32::new(len), data: Data::File(file) };
            let end = scan(&segment, &mut each).map_err(|error| cannot("read", &path, error))?;
            if end < len {
                if index != last {
                    return Err(damaged(&path, end));
                }
                if let Data::File(file) = &segment.data {
                    file.set_len(u64::from(end)).map_err(|error| cannot("shorten", &path, error))?;
                }
                segment.len.store(end, Ordering::Release);
            }
            log.segments.write().insert(number, Arc::new(segment));
        }
        Ok(log)
    }

    fn path(&self, dir: &Path, number: u32) -> PathBuf {
        dir.join(format!("{number:08}.log"))
    }

    /// Whether anything was ever recorded.
    pub(super) fn is_empty(&self) -> bool {
        self.segments.read().is_empty()
    }

    /// Returns the length of all segments, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.read().values().map(|segment| u64::from(segment.len())).sum()
    }

    /// Returns the number of bytes that a power failure may lose.
    pub(super) fn unsynced(&self) -> u64 {
        self.writer.lock().unsynced
    }

    /// Appends whole records, all or none.
    ///
    /// # Errors
    /// Errors of the disk. The call can be repeated, except after [`ErrorKind::Unavailable`].
    pub(super) fn append(&self, records: &[u8]) -> Result<()> {
        let mut writer = self.writer.lock();
        self.check(&writer)?;
        // Whole records are written together, so that a segment ends with one.
        let mut rest = records;
        while !rest.is_empty() {
            let newest = self.segments.read().last_key_value().map(|(_, newest)| Arc::clone(newest));
            let segment = match newest.filter(|newest| newest.len() < SEGMENT_BYTES) {
                Some(segment) => segment,
                None => self.begin_segment(&mut writer)?,
            };
            let (now, later) = rest.split_at(whole_records(rest, SEGMENT_BYTES as usize));
            segment.append(now).map_err(|error| Error::io(format_args!("cannot write to {}", self.name()), error))?;
            writer.unsynced += now.len() as u64;
            rest = later;
            if !rest.is_empty() {
                self.begin_segment(&mut writer)?;
            }
        }
        Ok(())
    }

    /// Waits until all records are on the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if the disk failed. Nothing can be appended then until the next start, because a
    /// second attempt may succeed although data was lost.
    pub(super) fn sync(&self) -> Result<()> {
        self.sync_newest(&mut self.writer.lock())
    }

    fn sync_newest(&self, writer: &mut Writer) -> Result<()> {
        self.check(writer)?;
        let newest = self.segments.read().last_key_value().map(|(_, newest)| Arc::clone(newest));
        let Some(newest) = newest.filter(|_| writer.unsynced > 0) else { return Ok(()) };
        if let Data::File(file) = &newest.data
            && self.is_synced
            && let Err(error) = file.sync_data()
        {
            writer.failed = Some(error.to_string());
            tracing::error!(%error, log = self.name(), "cannot sync the log of fetched blocks");
            return self.check(writer);
        }
        writer.unsynced = 0;
        Ok(())
    }

    fn check(&self, writer: &Writer) -> Result<()> {
        let Some(failed) = &writer.failed else { return Ok(()) };
        let message = format!("{} can no longer be written: {failed} (check the disk, then restart)", self.name());
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    fn name(&self) -> String {
        self.dir.as_ref().map_or_else(|| "the log in memory".to_owned(), |dir| dir.display().to_string())
    }

    /// Begins a segment. All older ones are on the disk then.
    fn begin_segment(&self, writer: &mut Writer) -> Result<Arc<Segment>> {
        self.sync_newest(writer)?;
        let number = self.segments.read().last_key_value().map_or(1, |(newest, _)| newest + 1);
        let segment = Arc::new(self.create(number)?);
        self.segments.write().insert(number, Arc::clone(&segment));
        Ok(segment)
    }

    /// Creates a durable segment without records.
    fn create(&self, number: u32) -> Result<Segment> {
        let (header, len) = (header(number, false), AtomicU32::new(HEADER_BYTES));
        let Some(dir) = &self.dir else {
            return Ok(Segment { number, len, data: Data::Memory(RwLock::new(header)) });
        };
        let path = self.path(dir, number);
        let create = || {
            // Without its parents: if the store was removed or unmounted meanwhile, it must not appear again.
            match fs::create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                // An earlier call may have created it without making that durable.
                _ => sync_directory(dir.parent().unwrap_or(dir))?,
            }
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
            file.write_all_at(&header, 0)?;
            file.sync_all()?;
            sync_directory(dir)?;
            Ok(file)
        };
        let file = create().map_err(|error| cannot("write", &path, error))?;
        Ok(Segment { number, len, data: Data::File(file) })
    }

    /// Removes the segments before `head`, whose records have no effect.
    ///
    /// # Errors
    /// Errors of the file system. The next call tries again.
    pub(super) fn trim(&self, head: Position) -> Result<()> {
        loop {
            let oldest = self.segments.read().first_key_value().map(|(oldest, _)| *oldest);
            let newest = self.segments.read().last_key_value().map(|(newest, _)| *newest);
            let Some(oldest) = oldest.filter(|oldest| *oldest < head.segment && Some(*oldest) != newest) else {
                return Ok(());
            };
            self.remove(oldest)?;
        }
    }

    fn remove(&self, number: u32) -> Result<()> {
        if let Some(dir) = &self.dir {
            let path = self.path(dir, number);
            fs::remove_file(&path).map_err(|error| cannot("remove", &path, error))?;
        }
        self.segments.write().remove(&number);
        Ok(())
    }

    /// Replaces all records up to now by those that `is_current` accepts, in the same order. Updates the heads, which
    /// nothing else may record meanwhile. Records may be appended meanwhile.
    ///
    /// # Errors
    /// Errors of the disk. The records are unchanged then.
    pub(super) fn rewrite(&self, heads: &mut Heads, is_current: impl Fn(Position, &Record) -> bool) -> Result<()> {
        let last = {
            let mut writer = self.writer.lock();
            let Some(last) = self.segments.read().last_key_value().map(|(last, _)| *last) else { return Ok(()) };
            self.begin_segment(&mut writer)?;
            last
        };
        let mut target = Target::create(self.dir.as_deref(), &header(last, true))?;
        let mut moved = *heads;
        let mut waiting =
            [(heads.small, &mut moved.small), (heads.main, &mut moved.main), (heads.ghost, &mut moved.ghost)];
        waiting.sort_unstable_by_key(|(old, _)| *old);
        let mut waiting = waiting.into_iter().filter(|(old, _)| old.segment <= last).peekable();
        let (mut cursor, mut bytes) = (Cursor::new(Position::default()), Vec::new());
        while let Some((at, record)) = cursor.next(self)?.filter(|(at, _)| at.segment <= last) {
            while let Some((_, new)) = waiting.next_if(|(old, _)| *old <= at) {
                *new = Position { segment: last, offset: target.len };
            }
            if !matches!(record, Record::Heads(_)) && is_current(at, &record) {
                bytes.clear();
                record.write(&mut bytes);
                target.append(&bytes)?;
            }
        }
        let end = Position { segment: last, offset: target.len };
        waiting.for_each(|(_, new)| *new = end);
        bytes.clear();
        Record::Heads(moved).write(&mut bytes);
        target.append(&bytes)?;
        let path = self.dir.as_ref().map(|dir| self.path(dir, last));
        let rewritten = Arc::new(target.finish(last, path.as_deref())?);
        let old: Vec<_> = self.segments.read().range(..last).map(|(number, _)| *number).collect();
        self.segments.write().insert(last, rewritten);
        *heads = moved;
        old.into_iter().try_for_each(|number| self.remove(number))
    }
}

fn damaged(path: &Path, offset: u32) -> Error {
    Error::corrupt(format!("{} is damaged at byte {offset}", path.display()))
}

fn numbers(entries: fs::ReadDir) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".log")?.parse::<u32>().ok()));
    }
    Ok(numbers)
}

/// Passes each record of a segment to `each`. Returns the offset behind the last valid one.
fn scan(segment: &Segment, each: &mut impl FnMut(Record)) -> io::Result<u32> {
    let (mut chunk, mut offset) = (Vec::new(), HEADER_BYTES);
    loop {
        segment.read(offset, &mut chunk)?;
        let mut used = 0;
        while let Some((record, len)) = chunk.get(used..).and_then(Record::read) {
            each(record);
            used += len;
        }
        if used == 0 {
            return Ok(offset);
        }
        offset += used as u32;
    }
}

/// Returns the length of the records at the beginning of `records` that have at most `most` bytes together.
fn whole_records(records: &[u8], most: usize) -> usize {
    if records.len() <= most {
        return records.len();
    }
    let mut len = 0;
    while let Some(next) = records.get(len + 1).map(|key| len + 10 + usize::from(*key)).filter(|next| *next <= most) {
        len = next;
    }
    len
}

/// Reads records one after another.
#[derive(Debug)]
pub(super) struct Cursor {
    /// Place of the next record.
    at: Position,
    chunk: Vec<u8>,
    used: usize,
}

impl Cursor {
    pub(super) fn new(at: Position) -> Self {
        Self { at, chunk: Vec::new(), used: 0 }
    }

    /// Returns the place behind the last record that was returned.
    pub(super) fn position(&self) -> Position {
        self.at
    }

    /// Returns the next record and its place, or `None` at the end of the log.
    ///
    /// # Errors
    /// Errors of the disk; [`ErrorKind::Corrupt`] if the record is damaged.
    pub(super) fn next(&mut self, log: &Log) -> Result<Option<(Position, Record)>> {
        loop {
            if let Some((record, len)) = self.chunk.get(self.used..).and_then(Record::read) {
                let at = self.at;
                self.used += len;
                self.at.offset += len as u32;
                return Ok(Some((at, record)));
            }
            let segment = {
                let segments = log.segments.read();
                let Some((_, segment)) = segments.range(self.at.segment..).next() else { return Ok(None) };
                let is_newest = segments.range(segment.number + 1..).next().is_none();
                if segment.number != self.at.segment {
                    self.at = Position { segment: segment.number, offset: HEADER_BYTES };
                }
                self.at.offset = self.at.offset.max(HEADER_BYTES);
                if self.at.offset >= segment.len() {
                    if is_newest {
                        return Ok(None);
                    }
                    self.at = Position { segment: segment.number + 1, offset: HEADER_BYTES };
                    continue;
                }
                Arc::clone(segment)
            };
            let failed = |error| Error::io(format_args!("cannot read {}", log.name()), error);
            segment.read(self.at.offset, &mut self.chunk).map_err(failed)?;
            self.used = 0;
            let is_whole =
                self.chunk.len() >= MAX_RECORD_BYTES || self.at.offset + self.chunk.len() as u32 >= segment.len();
            if is_whole && Record::read(&self.chunk).is_none() {
                return Err(Error::corrupt(format!("{} is damaged at {:?}", log.name(), self.at)));
            }
        }
    }
}
