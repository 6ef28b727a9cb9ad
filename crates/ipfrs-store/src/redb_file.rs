//! A redb database in a file, which is opened again after the disk has failed.

mod check;
#[cfg(any(test, fuzzing))]
pub(crate) mod damage;
mod noting_syncs;
mod panics;
#[cfg(test)]
pub(crate) mod recorded;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{Database, Key, ReadTransaction, ReadableTable, StorageBackend, TableDefinition, Value, WriteTransaction};
use rustix::fs::{Advice, fadvise};

use self::noting_syncs::NotingSyncs;
use self::panics::caught;
pub use self::panics::is_panic_an_error;
use crate::pack::sync_directory;
use crate::redb_overlay::Overlay;

/// Path of a database in memory, in messages.
const IN_MEMORY: &str = "memory";

/// Maximum size of redb's page cache, in bytes.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Table of values that concern the whole file.
pub(crate) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// Contents of a database.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Name, for error messages.
    pub(crate) name: &'static str,
    /// Remedy for a damaged file.
    pub(crate) remedy: &'static str,
    /// Format version, which is `format` in the table [`META`].
    pub(crate) format: u64,
    /// Checks the tables when the file is opened.
    pub(crate) check: fn(&Database) -> Result<(), redb::Error>,
}

/// A database with its file. redb rejects everything after a failed read or write. The file is then opened again,
/// because its content decides whether the change was made; until the disk can be written, it can only be read.
///
/// The caller holds the lock of the store.
#[derive(Debug)]
pub(crate) struct RedbFile {
    path: PathBuf,
    contents: &'static Contents,
    is_read_only: bool,
    state: RwLock<State>,
    /// Number of times that the file was opened.
    openings: AtomicU64,
    /// Whether a sync of the file failed. What was written before it may never reach the disk, even if a later sync
    /// succeeds (the kernel drops such pages), so the file must be replaced by a copy before it is written again.
    has_failed_sync: Arc<AtomicBool>,
}

#[derive(Debug)]
enum State {
    Writable(Database),
    /// Changes would be lost.
    Readable {
        database: Database,
        /// Whether a power failure could not undo what can be read.
        is_durable: bool,
    },
    Unavailable,
    /// Until the end of the process.
    Closed,
}

impl State {
    fn database(&self) -> Option<&Database> {
        match self {
            Self::Writable(database) | Self::Readable { database, .. } => Some(database),
            Self::Unavailable | Self::Closed => None,
        }
    }
}

impl RedbFile {
    /// Opens the database at `path`. Creates it, with what `prepare` writes, if there is none. With `is_read_only`,
    /// nothing on the disk is changed. Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a damaged file; [`ErrorKind::Unsupported`] for another format; otherwise the error of
    /// the file system.
    pub(crate) fn open(
        path: &Path,
        contents: &'static Contents,
        is_read_only: bool,
        prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<Self> {
        let file = Self::new(path, contents, is_read_only);
        let is_there = path.try_exists().map_err(|e| file.failed("find", redb::Error::Io(e)))?;
        let state = match is_read_only {
            true if is_there => State::Readable { database: file.readable()?, is_durable: true },
            true => {
                // In memory.
                let prepared = || prepared(Overlay::open(path)?, contents.format, prepare);
                State::Readable { database: file.guarded("read", prepared)?, is_durable: true }
            }
            false => {
                if !is_there {
                    file.guarded("create", || file.create(prepare))?;
                }
                // The process that created it may have ended before that was durable.
                let unsynced = |e| Error::io(format_args!("cannot sync the directory of {}", path.display()), e);
                sync_name(path).map_err(unsynced)?;
                // A process that was killed may have left it.
                let _ = fs::remove_file(file.draft_path());
                State::Writable(file.writable()?)
            }
        };
        *file.state.write() = state;
        Ok(file)
    }

    /// Creates a database in memory.
    ///
    /// # Errors
    /// If the tables cannot be created.
    pub(crate) fn in_memory(
        contents: &'static Contents,
        prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<Self> {
        let file = Self::new(Path::new(IN_MEMORY), contents, false);
        let database = file.guarded("create", || prepared(InMemoryBackend::new(), contents.format, prepare))?;
        *file.state.write() = State::Writable(database);
        Ok(file)
    }

    /// Writes the tables of `moment`, which `copy` copies, and [`META`] to a new file, which opens like the original.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the file exists; otherwise if the tables cannot be read or written.
    pub(crate) fn save(
        moment: &ReadTransaction,
        path: &Path,
        contents: &'static Contents,
        copy: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<()> {
        if path.exists() {
            return Err(Error::new(ErrorKind::Conflict, format!("{} exists already", path.display())));
        }
        Self::open(path, contents, false, |to| copy(to).and_then(|()| copy_table(moment, to, META))).map(drop)
    }

    fn new(path: &Path, contents: &'static Contents, is_read_only: bool) -> Self {
        let (path, state) = (path.to_owned(), RwLock::new(State::Unavailable));
        let openings = AtomicU64::new(0);
        Self { path, contents, is_read_only, state, openings, has_failed_sync: Arc::default() }
    }

    /// Runs `read` on the database, and again after the disk failed. Waits for the disk.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(crate) fn read<T>(&self, read: impl Fn(&Database) -> Result<T, redb::Error>) -> Result<T> {
        let opening = {
            let state = self.state.read();
            let opening = self.openings.load(Ordering::Acquire);
            match state.database().map(|database| self.guarded("read", || attempted(read(database)))) {
                Some(Ok(Ok(value))) => return Ok(value),
                // redb rejects everything after a failed read, too.
                Some(Ok(Err(error))) => tracing::warn!(path = %self.path.display(), %error, "a read failed"),
                Some(Err(error)) => return Err(error),
                None if matches!(&*state, State::Closed) => return Err(self.unavailable(&state)),
                None => {}
            }
            opening
        };
        self.reopen(opening)?;
        let state = self.state.read();
        let database = state.database().ok_or_else(|| self.unavailable(&state))?;
        self.guarded("read", || read(database))
    }

    /// Runs `write` on the database. Waits for the disk.
    ///
    /// # Errors
    /// If the database cannot be written. If the disk failed during the commit, the change may have been made
    /// nevertheless: from the return on, [`read`](Self::read) says so, and
    /// [`ensure_durable`](Self::ensure_durable) makes that final.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T> {
        self.check_writable()?;
        let (written, opening) = loop {
            let state = self.state.read();
            let opening = self.openings.load(Ordering::Acquire);
            match &*state {
                State::Writable(database) => break (self.guarded("write", || write(database)), opening),
                State::Closed => return Err(self.unavailable(&state)),
                State::Readable { .. } | State::Unavailable => {}
            }
            drop(state);
            self.reopen_writable()?;
        };
        if written.is_err()
            && let Err(error) = self.reopen(opening)
        {
            tracing::error!(%error, "the {} cannot be read", self.contents.name);
        }
        written
    }

    /// Checks that changes are allowed.
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if the file is open read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if !self.is_read_only {
            return Ok(());
        }
        let (name, place) = (self.contents.name, self.path.display());
        let message = format!("the {name} in {place} are open read-only (store.read_only): nothing can be changed");
        Err(Error::read_only(message))
    }

    /// Makes what can be read durable, unless it is. Returns the number of times that the file was opened: until that
    /// changes, all that is read is durable. Waits for the disk.
    ///
    /// # Errors
    /// If that fails: a power failure could undo a change during which the disk failed.
    pub(crate) fn ensure_durable(&self) -> Result<u64> {
        loop {
            if let State::Writable(_) | State::Readable { is_durable: true, .. } = &*self.state.read() {
                return Ok(self.openings.load(Ordering::Acquire));
            }
            self.reopen_writable()?;
        }
    }

    /// Closes the file, once running calls have ended. Later calls fail. Waits for the disk.
    pub(crate) fn close(&self) {
        self.set(&mut self.state.write(), State::Closed);
    }

    /// Runs `run` and converts its errors. redb panics if damage violates its invariants.
    fn guarded<T>(&self, action: &str, run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T> {
        match caught(run) {
            Ok(result) => result.map_err(|e| self.failed(action, e)),
            Err(panic) => Err(self.damaged(&"it is inconsistent").with_source(panic)),
        }
    }

    /// Creates a file and renames it into place, so that an interrupted creation and damage can be told apart.
    fn create(&self, prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>) -> Result<(), redb::Error> {
        let (draft, file) = self.draft()?;
        let created = || -> Result<(), redb::Error> {
            drop(prepared(FileBackend::new(file)?, self.contents.format, prepare)?);
            Ok(fs::rename(&draft, &self.path)?)
        };
        created().inspect_err(|_| drop(fs::remove_file(&draft)))
    }

    /// Replaces the file by a copy that is on the disk.
    fn replace(&self) -> io::Result<()> {
        let (draft, mut copy) = self.draft()?;
        let mut file = File::open(&self.path)?;
        let _ = fadvise(&file, 0, None, Advice::DontNeed);
        let copied = io::copy(&mut file, &mut copy).and_then(|_| copy.sync_all());
        if let Err(error) = copied {
            // It takes space, and the next attempt replaces it.
            let _ = fs::remove_file(&draft);
            return Err(error);
        }
        fs::rename(&draft, &self.path)?;
        sync_name(&self.path)?;
        self.has_failed_sync.store(false, Ordering::Release);
        Ok(())
    }

    fn draft_path(&self) -> PathBuf {
        self.path.with_extension("redb.new")
    }

    fn draft(&self) -> io::Result<(PathBuf, File)> {
        let draft = self.draft_path();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        Ok((draft, file))
    }

    fn writable(&self) -> Result<Database> {
        let database = self.guarded("open", || {
            if self.has_failed_sync.load(Ordering::Acquire) {
                self.replace()?;
            }
            let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            // An earlier process may have failed to sync it.
            self.forget_unwritten(&file)?;
            if file.metadata()?.len() == 0 {
                // The file is created atomically, so an empty file is damaged.
                return Err(redb::Error::Corrupted("it is empty".to_owned()));
            }
            let has_failed_sync = Arc::clone(&self.has_failed_sync);
            let backend = NotingSyncs::new(FileBackend::new(file)?, has_failed_sync);
            #[cfg(test)]
            let backend = recorded::Recorded::new(backend, &self.path);
            load(backend)
        })?;
        self.checked(database)
    }

    fn readable(&self) -> Result<Database> {
        let database = self.guarded("open", || load(Overlay::open(&self.path)?))?;
        self.checked(database)
    }

    fn reopen_writable(&self) -> Result<()> {
        let mut state = self.state.write();
        match &*state {
            State::Writable(_) => return Ok(()),
            State::Closed => return Err(self.unavailable(&state)),
            State::Readable { .. } | State::Unavailable => {}
        }
        // The readable database stays if this fails.
        let opened = State::Writable(self.writable()?);
        self.set(&mut state, opened);
        Ok(())
    }

    /// Opens the file again, for writing if that is possible, unless it was opened again since the given time.
    fn reopen(&self, opening: u64) -> Result<()> {
        let mut state = self.state.write();
        if matches!(&*state, State::Closed) {
            return Err(self.unavailable(&state));
        }
        if self.openings.load(Ordering::Acquire) != opening {
            return Ok(());
        }
        if self.is_in_memory() {
            return Err(self.damaged(&"a change failed"));
        }
        self.set(&mut state, State::Unavailable);
        let opened = match (!self.is_read_only).then(|| self.writable()) {
            Some(Ok(database)) => State::Writable(database),
            // Nothing was changed.
            None => State::Readable { database: self.readable()?, is_durable: true },
            Some(Err(_)) => State::Readable { database: self.readable()?, is_durable: self.sync() },
        };
        self.set(&mut state, opened);
        Ok(())
    }

    /// Changes the state.
    fn set(&self, state: &mut State, to: State) {
        let old = std::mem::replace(state, to);
        self.openings.fetch_add(1, Ordering::AcqRel);
        self.discard(old);
    }

    /// Drops a database. redb panics if it drops a damaged one, or one after another panic.
    fn discard<T>(&self, database: T) {
        if let Err(panic) = caught(|| drop(database)) {
            tracing::error!(path = %self.path.display(), panic, "the file could not be closed in order");
        }
    }

    fn is_in_memory(&self) -> bool {
        !self.is_read_only && self.path == Path::new(IN_MEMORY)
    }

    /// Writes what is only in the page cache, and then drops it: what is read afterwards is on the disk.
    fn forget_unwritten(&self, file: &File) -> io::Result<()> {
        let synced = file.sync_all();
        self.has_failed_sync.fetch_or(synced.is_err(), Ordering::AcqRel);
        synced?;
        // A hint, which file systems without a cache ignore.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        Ok(())
    }

    /// Makes the file durable as it is. Returns whether it is.
    fn sync(&self) -> bool {
        let synced = File::open(&self.path).and_then(|file| file.sync_all());
        let has_failed = self.has_failed_sync.fetch_or(synced.is_err(), Ordering::AcqRel);
        synced.is_ok() && !has_failed
    }

    fn unavailable(&self, state: &State) -> Error {
        let why = if matches!(state, State::Closed) { "closed" } else { "not available: check the disk" };
        let message = format!("the {} in {} are {why}", self.contents.name, self.path.display());
        Error::new(ErrorKind::Unavailable, message)
    }

    fn failed(&self, action: &str, error: redb::Error) -> Error {
        let (name, place) = (self.contents.name, self.path.display());
        match error {
            redb::Error::Corrupted(why) => self.damaged(&why),
            redb::Error::Io(e) if is_damage(&e) => self.damaged(&e),
            redb::Error::Io(e) => Error::io(format_args!("cannot {action} the {name} in {place}"), e),
            error @ (redb::Error::PreviousIo | redb::Error::DatabaseClosed | redb::Error::TransactionPoisoned) => {
                let message = format!("cannot {action} the {name} in {place}: {error} (check the disk)");
                Error::new(ErrorKind::Unavailable, message).with_source(error)
            }
            error => self.damaged(&error),
        }
    }

    fn damaged(&self, why: &dyn std::fmt::Display) -> Error {
        let (Contents { name, remedy, .. }, place) = (self.contents, self.path.display());
        Error::corrupt(format!("the {name} in {place} cannot be read: {why}. {remedy}"))
    }
}

impl Drop for RedbFile {
    fn drop(&mut self) {
        self.close();
    }
}

/// Copies a table into another database.
pub(crate) fn copy_table<K: Key + 'static, V: Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    table: TableDefinition<'_, K, V>,
) -> Result<(), redb::Error> {
    let mut copy = to.open_table(table)?;
    for entry in from.open_table(table)?.iter()? {
        let (key, value) = entry?;
        copy.insert(key.value(), value.value())?;
    }
    Ok(())
}

/// Separates errors of the disk, after which another attempt may succeed.
fn attempted<T>(outcome: Result<T, redb::Error>) -> Result<Result<T, redb::Error>, redb::Error> {
    match outcome {
        Err(error @ redb::Error::PreviousIo) => Ok(Err(error)),
        Err(redb::Error::Io(error)) if !is_damage(&error) => Ok(Err(redb::Error::Io(error))),
        other => other.map(Ok),
    }
}

/// Whether an I/O error is caused by the content of the file and not by the system.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput)
}

/// Makes the name of the file at `path` durable.
fn sync_name(path: &Path) -> io::Result<()> {
    sync_directory(path.parent().unwrap_or(Path::new(".")))
}

fn load(backend: impl StorageBackend) -> Result<Database, redb::Error> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(backend)?)
}

/// Creates a database with what `prepare` writes.
fn prepared(
    backend: impl StorageBackend,
    format: u64,
    prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
) -> Result<Database, redb::Error> {
    let database = load(backend)?;
    let write = database.begin_write()?;
    write.open_table(META)?.insert("format", format)?;
    prepare(&write)?;
    write.commit()?;
    Ok(database)
}
