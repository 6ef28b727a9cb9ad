//! Exclusive access to a store or a repo: the `lock` file, and the `version` file with the format of the store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};

/// Format version of the directory. A store with a higher version is rejected.
const FORMAT: u32 = 1;

/// Number of attempts to lock a file whose holder has no name, and the pause between them.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// Subject of the lock of a store, in messages.
const STORE: &str = "block store";
/// Subject of the lock of a repo, in messages.
const REPO: &str = "repo";

/// Lock files that this process holds. Processes of other containers may have the same ID.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// A lock file that this process holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    /// Subject of the lock, in messages.
    subject: &'static str,
    is_shared: bool,
    file: Option<FileNumber>,
}

impl Held {
    fn add(subject: &'static str, is_shared: bool, file: &File) {
        HELD.lock().push(Self { subject, is_shared, file: identity(file) });
    }

    /// Removes one lock of this file.
    fn remove(file: &File) {
        let (own, mut held) = (identity(file), HELD.lock());
        if let Some(at) = held.iter().position(|held| held.file == own) {
            held.swap_remove(at);
        }
    }

    /// Returns whether this process shares the lock of this file, if it holds it.
    fn is_shared(subject: Option<&str>, file: Option<FileNumber>) -> Option<bool> {
        let is_it = |held: &&Self| held.file == file && subject.is_none_or(|subject| held.subject == subject);
        HELD.lock().iter().find(is_it).filter(|_| file.is_some()).map(|held| held.is_shared)
    }
}

/// Device and number of a file.
type FileNumber = (u64, u64);

fn identity(file: &File) -> Option<FileNumber> {
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The lock of a store, held exclusively or shared until it is dropped. The operating system releases it when the
/// process ends for any reason.
#[derive(Debug)]
pub(super) enum StoreLock {
    /// No other process has the store open.
    Exclusive(File),
    /// No process writes the store.
    Shared(File),
    /// There is no lock file, and none can be created. No process can write the store then.
    Unneeded,
}

impl StoreLock {
    /// Takes the lock of the store in `dir`, which must exist, and writes the holder into the file.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with the process that holds the lock.
    pub(super) fn take(dir: &Path, holder: &str) -> Result<Self> {
        Self::take_of(STORE, dir, holder)
    }

    fn take_of(subject: &'static str, dir: &Path, holder: &str) -> Result<Self> {
        let path = dir.join("lock");
        let failed = |error| cannot("open", &path, error);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match locked(&mut file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(held_by_other(subject, dir, &mut file)),
            Err(error) => return Err(cannot("lock", &path, error.into())),
        }
        let write = |file: &mut File| {
            let text = format!("{}\n{}\n", std::process::id(), holder.replace('\n', " "));
            file.rewind()?;
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)
        };
        match write(&mut file) {
            // The name of the holder is only used in error messages, and a full disk must not prevent reading.
            Err(error) if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                tracing::warn!(path = %path.display(), "the disk is full");
            }
            written => written.map_err(|error| cannot("write", &path, error))?,
        }
        Held::add(subject, false, &file);
        Ok(Self::Exclusive(file))
    }

    /// Shares the lock of the store in `dir` with other readers. Changes nothing, except that a missing lock file is
    /// created.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with the process that writes the store.
    pub(super) fn share(dir: &Path) -> Result<Self> {
        Self::share_of(STORE, dir)
    }

    fn share_of(subject: &'static str, dir: &Path) -> Result<Self> {
        let path = dir.join("lock");
        let opened = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                match OpenOptions::new().read(true).append(true).create(true).open(&path) {
                    Err(error) if cannot_be_written(&error) => return Ok(Self::Unneeded),
                    created => created,
                }
            }
            opened => opened,
        };
        let mut file = opened.map_err(|error| cannot("open", &path, error))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                Held::add(subject, true, &file);
                Ok(Self::Shared(file))
            }
            Err(rustix::io::Errno::WOULDBLOCK) => Err(held_by_other(subject, dir, &mut file)),
            Err(error) => Err(cannot("lock", &path, error.into())),
        }
    }
}

/// The lock of a repo whose blocks are in another directory, in memory or in a custom engine. Otherwise the lock of the
/// store is that of the repo.
#[derive(Debug)]
pub struct RepoLock {
    _lock: StoreLock,
}

impl RepoLock {
    /// Takes the lock of the repo in `dir`, which must exist, as a store does.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with the process that holds the lock.
    pub fn take(dir: &Path, holder: &str) -> Result<Self> {
        StoreLock::take_of(REPO, dir, holder).map(|lock| Self { _lock: lock })
    }

    /// Takes the lock of the repo in `dir`, whose blocks are in a custom engine. Returns `None` if a store of this
    /// process holds the lock, because that store may be the engine.
    ///
    /// # Errors
    /// As [`take`](Self::take); [`ErrorKind::Conflict`] also if a store of this process is open read-only: other
    /// processes may share its lock, so it does not protect the repo.
    pub fn take_with_engine(dir: &Path, holder: &str) -> Result<Option<Self>> {
        let lock = fs::metadata(dir.join("lock")).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        match Held::is_shared(Some(STORE), lock) {
            Some(false) => Ok(None),
            Some(true) => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "the block store in {} is open read-only in this process, which keeps a node from writing to the \
                     same directory: if that store is the engine, open it for writing, or use store.read_only = true \
                     in place of an engine; otherwise close it, or give the node another directory",
                    dir.display()
                ),
            )),
            None => Self::take(dir, holder).map(Some),
        }
    }

    /// Shares the lock of the repo in `dir` with other readers, as a store does.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`], with the process that writes the repo.
    pub fn share(dir: &Path) -> Result<Self> {
        StoreLock::share_of(REPO, dir).map(|lock| Self { _lock: lock })
    }
}

fn cannot_be_written(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // The name of a former holder would be misleading. The file stays, because removing it would let two
        // processes lock two files with the same name. Unlocking is explicit, because closing does not unlock while a
        // child process that is being spawned still has a copy of the descriptor.
        let unlock = |file: &File| Ok(flock(file, FlockOperation::Unlock)?);
        let released = match self {
            Self::Exclusive(file) => {
                Held::remove(file);
                file.set_len(0).and_then(|()| unlock(file))
            }
            Self::Shared(file) => {
                Held::remove(file);
                unlock(file)
            }
            Self::Unneeded => Ok(()),
        };
        if let Err(error) = released {
            tracing::debug!(%error, "cannot release the store lock: the process holds it until it exits");
        }
    }
}

/// Locks the file. Tries again for a moment if it is locked without a name, as [`lock_holder`] does.
fn locked(file: &mut File, operation: FlockOperation) -> rustix::io::Result<()> {
    for _ in 0..ATTEMPTS {
        match flock(&*file, operation) {
            Err(rustix::io::Errno::WOULDBLOCK) if named_holder(file).is_none() => thread::sleep(PAUSE),
            outcome => return outcome,
        }
    }
    flock(&*file, operation)
}

fn held_by_other(subject: &str, dir: &Path, file: &mut File) -> Error {
    let (dir, who, own) = (dir.display(), named_holder(file), Held::is_shared(None, identity(file)));
    let message = match (own, who) {
        (Some(false), _) => {
            format!("the {subject} in {dir} is already open in this process: use what has it open, or close it first")
        }
        (Some(true), _) => format!(
            "the {subject} in {dir} is already open read-only in this process, and readers exclude writers: close what \
             reads it first, or set store.read_only = true"
        ),
        (None, Some(who)) if who.contains("gateway") => {
            format!("the {subject} in {dir} is in use by {who}: stop that process, or use its API")
        }
        (None, Some(who)) => {
            format!("the {subject} in {dir} is in use by {who}: wait until it ends, or stop that process")
        }
        // Readers do not write their names to the file, and a writer cannot if the disk is full.
        (None, None) => format!(
            "the {subject} in {dir} is in use by another process, probably one that reads it: use its API, stop that \
             process, or set IPFRS_STORE_READ_ONLY=true to read beside a reader"
        ),
    };
    Error::new(ErrorKind::Conflict, message)
}

/// Returns the process that has written its name into the lock file, as `process 17 (ipfrs gateway)`. A process that
/// was killed leaves its name.
fn named_holder(file: &mut File) -> Option<String> {
    let mut text = String::new();
    let _ = file.rewind();
    // The text may not be written yet, or may be unreadable. Messages are then only less helpful.
    let _ = file.take(4_096).read_to_string(&mut text);
    let mut lines = text.lines();
    let (pid, holder) = (lines.next()?, lines.next()?);
    is_alive(pid).then(|| format!("process {pid} ({holder})"))
}

/// Returns the process that may write the store or repo in `dir`, as `process 17 (ipfrs gateway)`, if there is one.
#[must_use]
pub fn lock_holder(dir: &Path) -> Option<String> {
    let mut file = File::open(dir.join("lock")).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => named_holder(&mut file),
        _ => {
            // A child process that is being spawned may have a copy of the descriptor.
            let _ = flock(&file, FlockOperation::Unlock);
            None
        }
    }
}

fn is_alive(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Durably creates `dir` and its missing ancestors.
///
/// # Errors
/// An error with the path and the remedy.
pub(super) fn ensure_directory(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = match dir.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    if dir.symlink_metadata().is_err() {
        ensure_directory(parent)?;
    }
    match fs::create_dir(dir).and_then(|()| sync_directory(parent)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::invalid(format!(
            "{}, on the path of the block store, is not a directory: use another path, or move the file",
            dir.display()
        ))),
        Err(error) => Err(cannot("create", dir, error)),
    }
}

/// Rejects a store written by a newer version of this program, and marks a new store. The caller must hold the lock.
///
/// # Errors
/// [`ErrorKind::Unsupported`], with both format versions.
pub(super) fn check_version(dir: &Path) -> Result<()> {
    let path = dir.join("version");
    let text = read_version(&path)?.unwrap_or_default();
    // A file without content, or with zeros, results from a crash before it was durable, so nothing else was written
    // either.
    if text.trim_matches(|c: char| c == '\0' || c.is_whitespace()).is_empty() {
        let write = || {
            // First, so that a store with a version file is one whose path is durable.
            sync_ancestors(dir)?;
            let mut file = File::create(&path)?;
            // In one call, so that a crash leaves all or nothing of it.
            file.write_all(format!("{FORMAT}\n").as_bytes())?;
            file.sync_all()?;
            sync_directory(dir)
        };
        return write().map_err(|error| cannot("write", &path, error));
    }
    expect_format(dir, &path, &text)
}

/// Like [`check_version`] for a store that must exist and is not changed.
///
/// # Errors
/// [`ErrorKind::NotFound`] if there is no store; [`ErrorKind::Unsupported`], with both format versions.
pub(super) fn require_version(dir: &Path) -> Result<()> {
    let path = dir.join("version");
    match read_version(&path)? {
        Some(text) if !text.trim().is_empty() => expect_format(dir, &path, &text),
        _ => Err(Error::not_found(format!(
            "there is no block store in {}, and none is created with store.read_only = true: set the path of an existing store, or remove \
             that key",
            dir.display()
        ))),
    }
}

/// Returns the text of the version file, if it exists.
fn read_version(path: &Path) -> Result<Option<String>> {
    match fs::read(path) {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("read", path, error)),
    }
}

fn expect_format(dir: &Path, path: &Path, text: &str) -> Result<()> {
    match text.trim().parse::<u32>() {
        Ok(FORMAT) => Ok(()),
        Ok(found) => Err(Error::unsupported(format!(
            "the block store in {} has format {found}; this program reads format {FORMAT}: use a newer version",
            dir.display()
        ))),
        Err(_) => Err(Error::corrupt(format!(
            "{} should contain the store's format number, but contains {:?}: is this the right directory?",
            path.display(),
            text.chars().take(40).collect::<String>()
        ))),
    }
}

/// Makes the path of `dir` durable. The process that created `dir` or its ancestors may not have done so.
fn sync_ancestors(dir: &Path) -> io::Result<()> {
    for ancestor in fs::canonicalize(dir)?.ancestors().skip(1) {
        match sync_directory(ancestor) {
            // Directories that this user may not read existed before, and some file systems cannot sync a directory.
            Err(error) if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) => {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Makes the entries of a directory durable.
///
/// # Errors
/// The error of the file system.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Returns the error for a file operation in the store, with the remedy if one is known.
pub(super) fn cannot(action: &str, path: &Path, error: io::Error) -> Error {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (grant this user read and write access; for read-only access, set store.read_only = true)"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            " (mount it writable, or use another path; for read-only access, set store.read_only = true)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => " (free disk space, then try again)",
        _ if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => " (raise the limit: ulimit -n)",
        _ => "",
    };
    Error::io(format_args!("cannot {action} {}{remedy}", path.display()), error)
}
