//! A redb database in a file, which is opened again after a write has failed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{Database, StorageBackend, WriteTransaction};

use crate::redb_overlay::Overlay;

/// Maximum size of redb's page cache, in bytes.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// A database with its file. redb rejects everything after a failed write, for example on a full disk, although the
/// file is sound. The database is then opened again; until the disk can be written, it can only be read.
#[derive(Debug)]
pub(crate) struct RedbFile {
    path: PathBuf,
    /// Name of the contents, for error messages.
    contents: &'static str,
    is_read_only: bool,
    state: RwLock<State>,
}

#[derive(Debug)]
enum State {
    Writable(Database),
    /// Changes would be lost.
    Readable(Database),
    Unavailable,
    /// Until the end of the process.
    Closed,
}

impl State {
    fn database(&self) -> Option<&Database> {
        match self {
            Self::Writable(database) | Self::Readable(database) => Some(database),
            Self::Unavailable | Self::Closed => None,
        }
    }
}

impl RedbFile {
    /// Opens the database at `path`. Creates it, with what `prepare` writes, if there is none. With `is_read_only`,
    /// nothing on the disk is changed. Waits for the disk.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a damaged file; otherwise the error of the file system.
    pub(crate) fn open(
        path: &Path,
        contents: &'static str,
        is_read_only: bool,
        prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<Self> {
        let file = Self { path: path.to_owned(), contents, is_read_only, state: RwLock::new(State::Unavailable) };
        let is_there = path.try_exists().map_err(|e| file.failed("find", redb::Error::Io(e)))?;
        let state = match is_read_only {
            true => {
                let database = file.readable()?;
                if !is_there {
                    // In memory.
                    set_up(&database, prepare).map_err(|e| file.failed("read", e))?;
                }
                State::Readable(database)
            }
            false => {
                if !is_there {
                    file.create(prepare)?;
                }
                State::Writable(file.writable()?)
            }
        };
        *file.state.write() = state;
        Ok(file)
    }

    /// Runs `read` on the database. Waits for the disk.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T> {
        if self.state.read().database().is_none() {
            self.reopen()?;
        }
        let state = self.state.read();
        let database = state.database().ok_or_else(|| self.unavailable())?;
        self.guarded("read", || read(database))
    }

    /// Runs `write` on the database. Waits for the disk.
    ///
    /// # Errors
    /// If the database cannot be written. Nothing has changed then, except if the disk failed during the commit.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T> {
        if self.is_read_only {
            let (contents, place) = (self.contents, self.path.display());
            let message =
                format!("the {contents} in {place} are open read-only (store.read_only): nothing can be changed");
            return Err(Error::read_only(message));
        }
        if !matches!(&*self.state.read(), State::Writable(_)) {
            self.reopen_writable()?;
        }
        let written = {
            let state = self.state.read();
            let database = state.database().ok_or_else(|| self.unavailable())?;
            self.guarded("write", || write(database))
        };
        if written.is_err() {
            // The next call reports it if this fails.
            let _ = self.reopen();
        }
        written
    }

    /// Closes the file, once running calls have ended. Later calls fail. Waits for the disk.
    pub(crate) fn close(&self) {
        *self.state.write() = State::Closed;
    }

    /// Runs `run` and converts its errors. redb panics if damage violates its invariants.
    fn guarded<T>(&self, action: &str, run: impl FnOnce() -> Result<T, redb::Error>) -> Result<T> {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result.map_err(|e| self.failed(action, e)),
            Err(_) => Err(self.damaged(&"it is inconsistent")),
        }
    }

    /// Creates an empty file and renames it into place, so that an interrupted creation and damage can be told apart.
    fn create(&self, prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>) -> Result<()> {
        let draft = self.path.with_extension("redb.new");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(0o600);
        let made = || -> Result<(), redb::Error> {
            let database = load(FileBackend::new(options.open(&draft)?)?)?;
            set_up(&database, prepare)?;
            drop(database);
            fs::rename(&draft, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(())
        };
        self.guarded("create", made)
    }

    fn writable(&self) -> Result<Database> {
        self.guarded("open", || {
            let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
            if file.metadata()?.len() == 0 {
                // The file is created atomically, so an empty file is damaged.
                return Err(redb::Error::Io(io::ErrorKind::UnexpectedEof.into()));
            }
            load(FileBackend::new(file)?)
        })
    }

    fn readable(&self) -> Result<Database> {
        self.guarded("open", || load(Overlay::open(&self.path)?))
    }

    fn reopen_writable(&self) -> Result<()> {
        let mut state = self.state.write();
        if matches!(&*state, State::Writable(_)) {
            return Ok(());
        }
        if matches!(&*state, State::Closed) {
            return Err(self.unavailable());
        }
        // The readable database stays if this fails.
        *state = State::Writable(self.writable()?);
        Ok(())
    }

    /// Opens the file again, for writing if that is possible.
    fn reopen(&self) -> Result<()> {
        let mut state = self.state.write();
        if matches!(&*state, State::Closed) {
            return Err(self.unavailable());
        }
        // The failed database must release its lock first.
        *state = State::Unavailable;
        *state = match self.writable() {
            Ok(database) => State::Writable(database),
            Err(_) => State::Readable(self.readable()?),
        };
        Ok(())
    }

    fn unavailable(&self) -> Error {
        let (contents, place) = (self.contents, self.path.display());
        Error::new(ErrorKind::Unavailable, format!("the {contents} in {place} are not available: check the disk"))
    }

    fn failed(&self, action: &str, error: redb::Error) -> Error {
        let (contents, place) = (self.contents, self.path.display());
        match error {
            redb::Error::DatabaseAlreadyOpen => {
                let message = format!("{place} is open in another process: stop it, then try again");
                Error::new(ErrorKind::Conflict, message)
            }
            redb::Error::Corrupted(why) => self.damaged(&why),
            redb::Error::Io(e) if is_damage(&e) => self.damaged(&e),
            redb::Error::Io(e) => Error::io(format_args!("cannot {action} the {contents} in {place}"), e),
            error => {
                let message =
                    format!("cannot {action} the {contents} in {place}: {error} (check the disk, then restart)");
                Error::new(ErrorKind::Unavailable, message).with_source(error)
            }
        }
    }

    fn damaged(&self, why: &dyn std::fmt::Display) -> Error {
        let (contents, place) = (self.contents, self.path.display());
        Error::corrupt(format!(
            "the {contents} in {place} cannot be read: {why}. Restore the file from a copy, or move it away and restart"
        ))
    }
}

/// Whether an I/O error is caused by the content of the file and not by the system.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput)
}

fn load(file: impl StorageBackend) -> Result<Database, redb::Error> {
    Ok(Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file)?)
}

fn set_up(
    database: &Database,
    prepare: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    prepare(&write)?;
    Ok(write.commit()?)
}
