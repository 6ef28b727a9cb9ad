//! The records on disk: `<repo>/ipns/{name}.ipns-record`, one file for each name, always whole.

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

/// The directory in the repo.
const DIRECTORY: &str = "ipns";
/// How files of records end.
const EXTENSION: &str = "ipns-record";
/// How files end that are not whole yet.
const DRAFT: &str = "new";

/// How often records that have expired are looked for at most: all have to be read for that.
const CLEARING_PERIOD: Duration = Duration::from_secs(3_600);

/// The directory of records. Its methods wait for the disk, but for [`turn`](Self::turn).
#[derive(Debug)]
pub(super) struct RecordStore {
    dir: PathBuf,
    /// Most records of keys that are not here.
    max_records: usize,
    writing: Arc<Mutex<Writing>>,
}

/// What the one who writes knows. Held while a record is compared with the one that is there and written: then nobody
/// writes an older one over it.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// How many records there are, once somebody has counted.
    count: Option<usize>,
    /// When records that have expired were looked for.
    cleared: Option<Instant>,
}

impl RecordStore {
    pub(super) fn new(repo: &Path, max_records: usize) -> Self {
        Self { dir: repo.join(DIRECTORY), max_records, writing: Arc::default() }
    }

    /// Waits for the turn to write. Whoever waits takes no thread.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<Writing> {
        Arc::clone(&self.writing).lock_owned().await
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.dir.join(format!("{name}.{EXTENSION}"))
    }

    /// The record of a name, its signature verified; it may have expired.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] names a file that holds something else, and says what to do.
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
                format!("{} is damaged: put the record of the name again, or remove the file", path.display());
            Error::corrupt(message).with_source(e)
        })
    }

    /// Keeps a record, which is valid, unless a better one is kept that is valid as well. It is durable then. For names of
    /// own keys there is always room.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when a better one is kept; [`ErrorKind::RateLimited`] when there are too many; else what
    /// the file system says.
    pub(super) fn put(&self, writing: &mut Writing, name: &Name, record: &Record, is_own: bool) -> Result<()> {
        match self.get(name) {
            Ok(Some(kept)) if kept.bytes() == record.bytes() => return Ok(()),
            Ok(Some(kept)) if kept.supersedes(record) && !kept.is_expired(SystemTime::now()) => {
                return Err(older(name, record, &kept));
            }
            // What is there cannot be believed.
            Err(e) if e.kind() == ErrorKind::Corrupt => tracing::warn!(error = %e, "a damaged record is replaced"),
            Ok(_) => {}
            Err(e) => return Err(e),
        }
        self.make_directory()?;
        let count = match writing.count {
            Some(count) => count,
            None => self.count()?,
        };
        writing.count = Some(count);
        let path = self.path(name);
        let is_new = !path.exists();
        if is_new && !is_own && count >= self.max_records {
            let what = format!("records of {count} IPNS names are kept (ipns.max_records = {})", self.max_records);
            let remedy = format!("raise it, or remove what nobody needs from {}", self.dir.display());
            return Err(Error::new(ErrorKind::RateLimited, format!("{what}: {remedy}")));
        }
        self.write(&path, record).map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))?;
        writing.count = Some(count + usize::from(is_new));
        Ok(())
    }

    fn write(&self, path: &Path, record: &Record) -> std::io::Result<()> {
        // Written whole under another name first: a crash never leaves half a record.
        let draft = path.with_extension(DRAFT);
        let written = File::create(&draft).and_then(|mut file| {
            file.write_all(record.bytes())?;
            file.sync_all()?;
            fs::rename(&draft, path)
        });
        if written.is_err() {
            // Half a draft is of no use to anybody.
            let _ = fs::remove_file(&draft);
        }
        written.and_then(|()| File::open(&self.dir)?.sync_all())
    }

    fn make_directory(&self) -> Result<()> {
        let made = match fs::create_dir(&self.dir) {
            Ok(()) => self.dir.parent().map_or(Ok(()), |repo| File::open(repo)?.sync_all()),
            Err(e) if e.kind() == Io::AlreadyExists => Ok(()),
            Err(e) => Err(e),
        };
        made.map_err(|e| Error::io(format_args!("cannot make {}", self.dir.display()), e))
    }

    /// Whether it makes sense to look for records that have expired.
    pub(super) fn may_clear(&self, writing: &Writing) -> bool {
        writing.cleared.is_none_or(|cleared| cleared.elapsed() >= CLEARING_PERIOD)
    }

    /// Removes the records that have expired, but for those of `own` names, which say what the next sequence is. Gives their
    /// names.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub(super) fn clear(&self, writing: &mut Writing, own: &HashSet<Name>) -> Result<Vec<Name>> {
        writing.cleared = Some(Instant::now());
        let now = SystemTime::now();
        let mut removed = Vec::new();
        for path in self.files()? {
            let path = path?;
            let name = path.file_stem().and_then(OsStr::to_str).and_then(|name| Name::parse(name).ok());
            let Some(name) = name.filter(|name| self.path(name) == path && !own.contains(name)) else { continue };
            // One that is damaged stays for whoever looks into it.
            let has_expired = matches!(self.get(&name), Ok(Some(record)) if record.is_expired(now));
            if has_expired && fs::remove_file(&path).is_ok() {
                removed.push(name);
            }
        }
        writing.count = writing.count.map(|count| count.saturating_sub(removed.len()));
        Ok(removed)
    }

    /// Everything in the directory.
    fn files(&self) -> Result<impl Iterator<Item = Result<PathBuf>> + '_> {
        let cannot = |e| Error::io(format_args!("cannot list {}", self.dir.display()), e);
        let entries = fs::read_dir(&self.dir).map_err(cannot)?;
        Ok(entries.map(move |entry| entry.map(|entry| entry.path()).map_err(cannot)))
    }

    /// How many records there are. Drafts that a crash left are removed: nobody writes one meanwhile.
    fn count(&self) -> Result<usize> {
        let mut count = 0;
        for path in self.files()? {
            let path = path?;
            match path.extension().and_then(OsStr::to_str) {
                Some(EXTENSION) => count += 1,
                Some(DRAFT) => drop(fs::remove_file(&path)),
                _ => {}
            }
        }
        Ok(count)
    }
}

fn older(name: &Name, record: &Record, kept: &Record) -> Error {
    let (given, kept_sequence) = (record.sequence(), kept.sequence());
    let message = if given == kept_sequence {
        format!("the record of the IPNS name {name} that is kept has the same sequence {given} and is valid for longer")
    } else {
        format!(
            "a newer record of the IPNS name {name} is kept: its sequence is {kept_sequence}, and that of this one {given}"
        )
    };
    Error::new(ErrorKind::Conflict, message)
}
