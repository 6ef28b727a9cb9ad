//! One segment of the ledger's log: a file, or memory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ipfrs_core::{Error, Result};
use ipfrs_store::sync_directory;
use parking_lot::RwLock;

/// First bytes of a segment.
pub(super) const MAGIC: &[u8; 8] = b"ipfrsfet";
/// Version of the format.
pub(super) const FORMAT: u32 = 1;

/// Header of a segment: magic (8), format (4), number (4), whether older segments are obsolete (4), CRC-32 (4).
pub(super) const HEADER_BYTES: u32 = 24;

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Unfinished segment.
pub(super) const UNFINISHED: &str = "unfinished";

/// A segment to which records are appended.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) number: u32,
    /// Bytes that were written completely.
    pub(super) len: AtomicU32,
    pub(super) data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    File(File),
    Memory(RwLock<Vec<u8>>),
}

impl Segment {
    pub(super) fn len(&self) -> u32 {
        self.len.load(Ordering::Acquire)
    }

    /// Appends bytes, or leaves the segment as it is.
    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let at = self.len();
        match &self.data {
            Data::Memory(memory) => memory.write().extend_from_slice(bytes),
            Data::File(file) => {
                if let Err(error) = file.write_all_at(bytes, u64::from(at)) {
                    // A part would make the records behind it unreadable. They overwrite it if this fails.
                    let _rest = file.set_len(u64::from(at));
                    return Err(error);
                }
            }
        }
        self.len.store(at + bytes.len() as u32, Ordering::Release);
        Ok(())
    }

    /// Reads the next bytes into `chunk`.
    pub(super) fn read(&self, offset: u32, chunk: &mut Vec<u8>) -> io::Result<()> {
        let len = (self.len().saturating_sub(offset) as usize).min(CHUNK_BYTES);
        chunk.resize(len, 0);
        match &self.data {
            Data::File(file) => file.read_exact_at(chunk, u64::from(offset)),
            Data::Memory(memory) => {
                chunk.copy_from_slice(&memory.read()[offset as usize..offset as usize + len]);
                Ok(())
            }
        }
    }
}

/// Returns the header of a segment. With `is_base`, older segments are obsolete.
pub(super) fn header(number: u32, is_base: bool) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    for field in [FORMAT, number, u32::from(is_base)] {
        header.extend_from_slice(&field.to_le_bytes());
    }
    header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
    header
}

pub(super) fn cannot(action: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format_args!("cannot {action} {}", path.display()), error)
}

/// Segment that is being written under another name.
enum Output {
    File(BufWriter<File>, PathBuf),
    Memory(Vec<u8>),
}

/// A segment that replaces others.
pub(super) struct Target {
    output: Output,
    pub(super) len: u32,
}

impl Target {
    pub(super) fn create(dir: Option<&Path>, header: &[u8]) -> Result<Self> {
        let output = match dir.map(|dir| dir.join(UNFINISHED)) {
            None => Output::Memory(Vec::new()),
            Some(path) => {
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
                Output::File(BufWriter::new(file.map_err(|error| cannot("create", &path, error))?), path)
            }
        };
        let mut target = Self { output, len: 0 };
        target.append(header)?;
        Ok(target)
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let len = self.len.checked_add(bytes.len() as u32);
        self.len = len.ok_or_else(|| Error::too_large("the log of fetched blocks is too long to be rewritten"))?;
        match &mut self.output {
            Output::Memory(memory) => memory.extend_from_slice(bytes),
            Output::File(file, path) => file.write_all(bytes).map_err(|error| cannot("write", path, error))?,
        }
        Ok(())
    }

    /// Makes the segment durable, under its name.
    pub(super) fn finish(self, number: u32, name: Option<&Path>) -> Result<Segment> {
        let data = match (self.output, name) {
            (Output::File(file, path), Some(name)) => {
                let finish = || {
                    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.sync_all()?;
                    fs::rename(&path, name)?;
                    sync_directory(name.parent().unwrap_or(name))?;
                    Ok(file)
                };
                Data::File(finish().map_err(|error| cannot("write", name, error))?)
            }
            (Output::Memory(memory), _) => Data::Memory(RwLock::new(memory)),
            (Output::File(_, path), None) => {
                return Err(Error::internal(format!("{} has no name", path.display())));
            }
        };
        Ok(Segment { number, len: AtomicU32::new(self.len), data })
    }
}
