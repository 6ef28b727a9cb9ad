//! The records on disk: `<repo>/ipns/{name}.ipns-record`. Each name has one file, which is replaced atomically.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind as Io, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_ipns::{MAX_RECORD_BYTES, Name, Record};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::durable_directory::DurableDirectory;

/// Name of the directory in the repo.
const DIRECTORY: &str = "ipns";
/// Extension of record files.
const EXTENSION: &str = "ipns-record";
/// Extension of incomplete files.
const DRAFT: &str = "new";

/// Minimum interval between searches for expired records, which read all records.
const CLEARING_PERIOD: Duration = Duration::from_secs(3_600);

/// The directory of records. All methods block on the disk except [`write_lock`](Self::write_lock).
#[derive(Debug)]
pub(super) struct RecordStore {
    dir: DurableDirectory,
    /// Maximum number of records of keys that are not in the keystore.
    max_records: usize,
    writing: Arc<Mutex<Writing>>,
}

/// State of the writer. The lock is held while a record is compared with the stored one and written, so that an older
/// record cannot replace it.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// Number of records besides those of own keys, once counted.
    count: Option<usize>,
    /// Time of the last search for expired records.
    cleared: Option<Instant>,
}

impl Writing {
    pub(super) fn is_counted(&self) -> bool {
        self.count.is_some()
    }
}

impl RecordStore {
    pub(super) fn new(repo: &Path, max_records: usize) -> Self {
        Self { dir: DurableDirectory::new(repo.join(DIRECTORY), 0o777), max_records, writing: Arc::default() }
    }

    /// Waits for exclusive write access without blocking a thread.
    pub(super) async fn write_lock(&self) -> OwnedMutexGuard<Writing> {
        Arc::clone(&self.writing).lock_owned().await
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.dir.path().join(format!("{name}.{EXTENSION}"))
    }

    /// Returns the record of a name after verifying its signature. The record may have expired.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a file that is not a record. The message names it and a remedy.
    pub(super) fn get(&self, name: &Name) -> Result<Option<Record>> {
        let path = self.path(name);
        let cannot = |e| Error::io(format_args!("cannot read {}", path.display()), e);
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX_RECORD_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?,
            Err(e) if e.kind() == Io::NotFound => return Ok(None),
            Err(e) => return Err(cannot(e)),
        };
        let record = Record::parse(bytes).and_then(|record| record.verify_signature(name).map(|()| record));
        record.map(Some).map_err(|e| {
            let message =
                format!("{} is damaged: store the record of the name again, or remove the file", path.display());
            Error::corrupt(message).with_source(e)
        })
    }

    /// Counts the records besides those of `own` names, for the limit. Removes drafts that a crash left behind: the
    /// caller holds the write lock, so none is in use.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn count(&self, writing: &mut Writing, own: &HashSet<Name>) -> Result<()> {
        self.make_directory()?;
        let own: HashSet<_> = own.iter().map(|name| self.path(name)).collect();
        let mut count = 0;
        for path in self.files()? {
            let path = path?;
            match path.extension().and_then(OsStr::to_str) {
                Some(EXTENSION) => count += usize::from(!own.contains(&path)),
                Some(DRAFT) => drop(fs::remove_file(&path)),
                _ => {}
            }
        }
        writing.count = Some(count);
        Ok(())
    }

    /// Stores a valid record durably, unless a better valid one is stored. The limit on records does not apply to own
    /// keys. The others must be [counted](Self::count).
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if a better record is stored; [`ErrorKind::RateLimited`] if there are too many;
    /// otherwise the error of the file system.
    pub(super) fn put(&self, writing: &mut Writing, name: &Name, record: &Record, is_own: bool) -> Result<()> {
        match self.get(name) {
            Ok(Some(stored)) if stored.bytes() == record.bytes() => return Ok(()),
            Ok(Some(stored)) if stored.supersedes(record) && !stored.is_expired(SystemTime::now()) => {
                return Err(older(name, record, &stored));
            }
            // A damaged record cannot be compared, so it is replaced.
            Err(e) if e.kind() == ErrorKind::Corrupt => tracing::warn!(error = %e, "a damaged record is replaced"),
            Ok(_) => {}
            Err(e) => return Err(e),
        }
        self.make_directory()?;
        let count = writing.count.unwrap_or_default();
        let path = self.path(name);
        let is_new = !path.exists();
        if is_new && !is_own && count >= self.max_records {
            let what = format!("records of {count} IPNS names are stored (ipns.max_records = {})", self.max_records);
            let remedy = format!("raise the limit, or remove unneeded records from {}", self.dir.path().display());
            return Err(Error::new(ErrorKind::RateLimited, format!("{what}: {remedy}")));
        }
        self.write(&path, record).map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))?;
        writing.count = Some(count + usize::from(is_new && !is_own));
        Ok(())
    }

    fn write(&self, path: &Path, record: &Record) -> std::io::Result<()> {
        // The complete record is written under another name first, so a crash cannot leave a partial one.
        let draft = path.with_extension(DRAFT);
        let written = File::create(&draft).and_then(|mut file| {
            file.write_all(record.bytes())?;
            file.sync_all()?;
            fs::rename(&draft, path)
        });
        if written.is_err() {
            // A partial draft is useless.
            let _ = fs::remove_file(&draft);
        }
        written.and_then(|()| File::open(self.dir.path())?.sync_all())
    }

    fn make_directory(&self) -> Result<()> {
        let cannot = |e| Error::io(format_args!("cannot create {}", self.dir.path().display()), e);
        self.dir.ensure().map_err(cannot)
    }

    /// Whether enough time has passed since the last search for expired records.
    pub(super) fn may_clear(&self, writing: &Writing) -> bool {
        writing.cleared.is_none_or(|cleared| cleared.elapsed() >= CLEARING_PERIOD)
    }

    /// Removes expired records and returns their names. Records of `own` names are kept, because they contain the
    /// last sequence number.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub(super) fn clear(&self, writing: &mut Writing, own: &HashSet<Name>) -> Result<Vec<Name>> {
        writing.cleared = Some(Instant::now());
        let now = SystemTime::now();
        let mut removed = Vec::new();
        for path in self.files()? {
            let path = path?;
            let name = path.file_stem().and_then(OsStr::to_str).and_then(|name| Name::parse(name).ok());
            let Some(name) = name.filter(|name| self.path(name) == path && !own.contains(name)) else { continue };
            // A damaged record is kept for inspection.
            let has_expired = matches!(self.get(&name), Ok(Some(record)) if record.is_expired(now));
            if has_expired && fs::remove_file(&path).is_ok() {
                removed.push(name);
            }
        }
        writing.count = writing.count.map(|count| count.saturating_sub(removed.len()));
        Ok(removed)
    }

    /// Returns all files in the directory.
    fn files(&self) -> Result<impl Iterator<Item = Result<PathBuf>> + '_> {
        let cannot = |e| Error::io(format_args!("cannot list {}", self.dir.path().display()), e);
        let entries = fs::read_dir(self.dir.path()).map_err(cannot)?;
        Ok(entries.map(move |entry| entry.map(|entry| entry.path()).map_err(cannot)))
    }
}

fn older(name: &Name, record: &Record, stored: &Record) -> Error {
    let (given, stored_sequence) = (record.sequence(), stored.sequence());
    let message = if given == stored_sequence {
        format!("the stored record of the IPNS name {name} has the same sequence {given} and is valid for longer")
    } else {
        format!("a newer record of the IPNS name {name} is stored, with sequence {stored_sequence} instead of {given}")
    };
    Error::new(ErrorKind::Conflict, message)
}
