//! The configuration file: reading and changing it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_http::Change;
use parking_lot::Mutex;
use rustix::io::Errno;
use tempfile::NamedTempFile;

use super::credentials::{HIDDEN, is_placeholder};
use super::edit::{edited, replacing};
use super::{Config, Settings, Sources};

/// Maximum time to wait for another program that is changing the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between attempts to lock it.
const LOCK_POLL: Duration = Duration::from_millis(20);

/// Changes of files by this process, one after the other.
static CHANGING: Mutex<()> = Mutex::new(());

/// The configuration file of a daemon, with the sources that take precedence over it.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    sources: Sources,
}

impl ConfigFile {
    /// Returns the file of these sources, if they have one.
    #[must_use]
    pub fn new(sources: &Sources) -> Option<Self> {
        let file = sources.file.clone()?;
        // Messages to clients omit absolute paths, but relative ones are not recognized.
        let path = std::path::absolute(&file).unwrap_or(file);
        Some(Self { sources: Sources { file: Some(path.clone()), ..sources.clone() }, path })
    }

    /// Returns the path of the file, which may not exist.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the settings of all sources as they are now. A running daemon has those of its start.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn settings(&self) -> Result<Settings> {
        Settings::read(&self.sources)
    }

    /// Sets a key such as `server.port` in the file, durably. `text` is a value as in the file, or a text without
    /// quotes. Returns whether the file has changed.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn set(&self, key: &str, text: &str) -> Result<bool> {
        let key = parsed_key(key)?;
        let change = |value| {
            let changes = replacing(vec![Change { key: key.clone(), value: Some(value) }]);
            self.write(&changes, false).map(|(_, has_changed)| has_changed)
        };
        let text_value = || serde_json::Value::String(text.to_owned());
        let value = match toml::from_str::<toml::Table>(&format!("value = {text}")) {
            Ok(table) if table.len() == 1 => serde_json::to_value(&table["value"]).unwrap_or_else(|_| text_value()),
            _ => text_value(),
        };
        match change(value.clone()) {
            // A text may look like a number.
            Err(error) if error.kind() == ErrorKind::InvalidInput && !value.is_string() => {
                change(text_value()).map_err(|_| error)
            }
            changed => changed,
        }
    }

    /// Removes a key from the file, durably, so that its default applies. Returns whether the file has changed.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn unset(&self, key: &str) -> Result<bool> {
        let key = parsed_key(key)?;
        let (settings, has_changed) = self.write(&[Change { key: key.clone(), value: None }], false)?;
        if !has_changed {
            settings.get(&key)?;
            check_precedence(&settings, &key)?;
        }
        Ok(has_changed)
    }

    /// Changes settings in the file, durably, or all of them fail. Returns all settings that apply after a restart.
    /// With `is_dry`, the file stays as it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an unknown key or a value with which the daemon would not start,
    /// [`ErrorKind::Conflict`] if another source takes precedence for a key, a value contains a placeholder of a
    /// credential, or another program is changing the file. Otherwise the file cannot be read or written.
    pub fn change(&self, changes: &[Change], is_dry: bool) -> Result<Settings> {
        self.write(changes, is_dry).map(|(settings, _)| settings)
    }

    fn write(&self, changes: &[Change], is_dry: bool) -> Result<(Settings, bool)> {
        let path = self.target()?;
        let (text, edited, settings) = self.prepare(&path, changes)?;
        if is_dry || text == edited {
            return Ok((settings, false));
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let _changing = CHANGING.lock();
        fs::create_dir_all(directory).map_err(|e| cannot("create", directory, e))?;
        let _lock = locked(directory)?;
        // Another change may have come first.
        let (_, edited, settings) = self.prepare(&path, changes)?;
        replace(&path, directory, &edited)?;
        Ok((settings, true))
    }

    /// Returns the path of the file itself: a link to it stays one. A file would replace a device such as `/dev/null`.
    fn target(&self) -> Result<PathBuf> {
        let is_link = fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.is_symlink());
        match fs::canonicalize(&self.path) {
            Ok(path) if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) => {
                let why = "it is not a regular file; name another one with --config";
                Err(Error::new(ErrorKind::Conflict, format!("cannot change {}: {why}", path.display())))
            }
            Ok(path) => Ok(path),
            Err(e) if is_link => Err(cannot("follow the link", &self.path, e)),
            Err(_) => Ok(self.path.clone()),
        }
    }

    /// Returns the text of the file, the text with changes, and the settings that it has.
    fn prepare(&self, path: &Path, changes: &[Change]) -> Result<(String, String, Settings)> {
        if let Some(change) = changes.iter().find(|change| change.value.as_ref().is_some_and(has_placeholder)) {
            let key = change.key.join(".");
            let why = format!("{key} contains credentials, which are not shown as {HIDDEN}: change it in the file");
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let text = match fs::read_to_string(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.sources.is_file_optional => String::new(),
            read => read.map_err(|e| cannot("read", path, e))?,
        };
        let edited = edited(&text, changes)?;
        let settings = Settings::with_change(&self.sources, &edited)?;
        let config = settings.config()?;
        // The daemon may have other variables in its environment, without which it would not start before either.
        let repo = self.sources.repo.as_deref();
        let starts_now =
            || Settings::with_change(&self.sources, &text).and_then(|now| check_start(&now.config()?, repo));
        if let Err(error) = check_start(&config, repo)
            && starts_now().is_ok()
        {
            return Err(error);
        }
        for change in changes {
            // Nothing changes if a setting is removed that the file does not have.
            if change.value.is_some() || self::edited(&text, slice::from_ref(change))? != text {
                check_precedence(&settings, &change.key)?;
            }
        }
        Ok((text, edited, settings))
    }
}

/// Refuses a change of a setting for which another source takes precedence over the file.
fn check_precedence(settings: &Settings, key: &[String]) -> Result<()> {
    let [section, key, ..] = key else { return Ok(()) };
    let Some(origin) = settings.origin_besides_file(section, key) else { return Ok(()) };
    let why = "which takes precedence over the file: change it there";
    Err(Error::new(ErrorKind::Conflict, format!("{section}.{key} is set by {origin}, {why}")))
}

impl ipfrs_http::Configuration for ConfigFile {
    fn shown(&self) -> Result<String> {
        self.settings()?.shown()
    }

    fn change(&self, changes: &[Change], is_dry: bool) -> Result<String> {
        Self::change(self, changes, is_dry)?.shown()
    }
}

/// Checks what would keep a daemon from starting, as far as it is known before.
fn check_start(config: &Config, repo: Option<&Path>) -> Result<()> {
    config.check_hosts()?;
    if let Some(repo) = repo {
        config.check_references(repo)?;
    }
    if let Some(path) = &config.api.unix_socket {
        let is_other = fs::metadata(path).is_ok_and(|metadata| metadata.is_file() || metadata.is_dir());
        if is_other || !path.parent().is_some_and(Path::is_dir) {
            let given = path.display();
            let why = "give a path in a directory that exists, at which there is no file";
            return Err(Error::invalid(format!("api.unix_socket = {given}: {why}")));
        }
    }
    match &config.store.filestore_root {
        Some(root) if root.is_absolute() && !root.is_dir() => {
            Err(Error::invalid(format!("store.filestore_root = {}: there is no such directory", root.display())))
        }
        _ => Ok(()),
    }
}

/// Whether a value contains what is shown in place of credentials.
fn has_placeholder(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::String(text) => is_placeholder(text),
        serde_json::Value::Array(values) => values.iter().any(has_placeholder),
        serde_json::Value::Object(fields) => fields.values().any(has_placeholder),
        _ => false,
    }
}

/// Splits a key at its points, except within quotes.
pub(super) fn parsed_key(text: &str) -> Result<Vec<String>> {
    let not_a_key = |_| Error::invalid(format!("{text:?} is not a key: give section.key, such as server.port"));
    let names = toml_edit::Key::parse(text).map_err(not_a_key)?;
    Ok(names.iter().map(|name| name.get().to_owned()).collect())
}

fn cannot(what: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format_args!("cannot {what} {}", path.display()), error)
}

/// Prevents other programs from changing files of a directory through this function, until the result is dropped.
fn locked(directory: &Path) -> Result<File> {
    let handle = File::open(directory).map_err(|e| cannot("open", directory, e))?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match handle.try_lock() {
            Ok(()) => return Ok(handle),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => {
                let why = "another program is changing the configuration, or has locked its directory: try again";
                return Err(Error::new(ErrorKind::Conflict, why));
            }
            Err(TryLockError::Error(e)) => return Err(cannot("lock", directory, e)),
        }
    }
}

/// Replaces the file at once, by one with the same mode and owner. A new one is readable for the owner of the directory
/// only.
fn replace(path: &Path, directory: &Path, text: &str) -> Result<()> {
    let write = || {
        // Removed if it does not become the file.
        let mut draft = NamedTempFile::with_prefix_in(".config.", directory)?;
        let old = match fs::metadata(path) {
            Ok(old) => Some(old),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let (new, owner) = (draft.as_file().metadata()?, fs::metadata(directory)?);
        let owner = old.as_ref().unwrap_or(&owner);
        if (owner.uid(), owner.gid()) != (new.uid(), new.gid()) {
            fchown(draft.as_file(), Some(owner.uid()), Some(owner.gid()))?;
        }
        if let Some(old) = old {
            draft.as_file().set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        draft.write_all(text.as_bytes())?;
        draft.as_file().sync_all()?;
        draft.persist(path).map_err(|e| e.error)?;
        File::open(directory)?.sync_all()
    };
    write().map_err(|e| match Errno::from_io_error(&e) {
        Some(Errno::BUSY) => {
            let why = "it is mounted by itself; mount its directory instead, or change it outside";
            Error::new(ErrorKind::Conflict, format!("cannot replace {}: {why}", path.display()))
        }
        _ => cannot("write", path, e),
    })
}
