//! Changes of the configuration file, which keep its comments and its order.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_rpc::kubo_config::Change;
use serde::Serialize;
use toml_edit::ser::ValueSerializer;
use toml_edit::{DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::{Settings, Sources};

/// Mode of a new file, which may contain passwords.
const NEW_MODE: u32 = 0o600;

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
    /// quotes.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn set(&self, key: &str, text: &str) -> Result<()> {
        let key = parsed_key(key)?;
        let change = |value| self.change(&[Change { key: key.clone(), value: Some(value) }], false).map(drop);
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

    /// Removes a key from the file, durably, so that its default applies.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn unset(&self, key: &str) -> Result<()> {
        let key = parsed_key(key)?;
        self.settings()?.get(&key)?;
        self.change(&[Change { key, value: None }], false).map(drop)
    }

    /// Changes settings in the file, durably, or all of them fail. Returns all settings that apply after a restart.
    /// With `is_dry`, the file stays as it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an unknown key or a value that is not accepted, [`ErrorKind::Conflict`] if
    /// another source takes precedence for a key, or another program is changing the file. Otherwise the file cannot be
    /// read or written.
    pub fn change(&self, changes: &[Change], is_dry: bool) -> Result<Settings> {
        // A link to the file stays one.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !is_dry {
            fs::create_dir_all(directory).map_err(|e| cannot("create", directory, e))?;
        }
        let lock = if is_dry { None } else { Some(locked(directory)?) };
        let text = match fs::read_to_string(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.sources.is_file_optional => String::new(),
            read => read.map_err(|e| cannot("read", &path, e))?,
        };
        let edited = edited(&text, changes)?;
        let settings = Settings::of(&self.sources, Some(&edited))?;
        settings.config()?;
        for change in changes {
            let [section, key, ..] = &change.key[..] else { continue };
            if let Some(origin) = settings.origin_besides_file(section, key) {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    format!(
                        "{section}.{key} is set by {origin}, which takes precedence over the file: change it there"
                    ),
                ));
            }
        }
        if lock.is_some() && edited != text {
            replace(&path, directory, &edited)?;
        }
        Ok(settings)
    }
}

impl ipfrs_http::Configuration for ConfigFile {
    fn shown(&self) -> Result<String> {
        self.settings()?.shown()
    }

    fn change(&self, changes: &[Change], is_dry: bool) -> Result<String> {
        Self::change(self, changes, is_dry)?.shown()
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
    match handle.try_lock() {
        Ok(()) => Ok(handle),
        Err(TryLockError::WouldBlock) => {
            Err(Error::new(ErrorKind::Conflict, "another request or program is changing the configuration: try again"))
        }
        Err(TryLockError::Error(e)) => Err(cannot("lock", directory, e)),
    }
}

/// Replaces the file at once, by one with the same mode and owner.
fn replace(path: &Path, directory: &Path, text: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let draft = directory.join(name);
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(NEW_MODE).open(&draft)?;
        if let Ok(old) = fs::metadata(path) {
            let new = file.metadata()?;
            if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
                fchown(&file, Some(old.uid()), Some(old.gid()))?;
            }
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        File::open(directory)?.sync_all()
    };
    // A draft that was not renamed is useless.
    write().inspect_err(|_| drop(fs::remove_file(&draft))).map_err(|e| cannot("write", path, e))
}

/// Returns the text of a configuration file with changes.
pub(super) fn edited(text: &str, changes: &[Change]) -> Result<String> {
    let mut document: DocumentMut =
        text.parse().map_err(|e: toml_edit::TomlError| Error::invalid(format!("the configuration file: {e}")))?;
    for Change { key, value } in changes {
        let (Some((last, tables)), true) = (key.split_last(), key.len() > 1) else {
            return Err(Error::invalid(format!(
                "{:?} is not a key: give section.key, such as server.port",
                key.concat()
            )));
        };
        match value {
            Some(value) => set_at(document.as_table_mut(), tables, Item::Table(Table::new()), last, value)?,
            None => remove(document.as_table_mut(), tables, last),
        }
    }
    Ok(document.to_string())
}

/// Sets a value in tables within tables, and creates those that are missing.
fn set_at(table: &mut dyn TableLike, path: &[String], new: Item, name: &str, value: &serde_json::Value) -> Result<()> {
    let [first, rest @ ..] = path else { return set(table, name, value) };
    let item = table.entry(first).or_insert(new);
    let why = || Error::invalid(format!("{first} is not a table in the configuration file"));
    let inner = item.as_table_like_mut().ok_or_else(why)?;
    set_at(inner, rest, Item::Value(InlineTable::new().into()), name, value)?;
    tidy(item);
    Ok(())
}

/// Sets the spaces in a table on one line.
fn tidy(item: &mut Item) {
    if let Some(table) = item.as_inline_table_mut()
        && !table.to_string().contains('\n')
    {
        table.fmt();
    }
}

/// Sets a value. Fields of an object are set in the table that is there.
fn set(table: &mut dyn TableLike, name: &str, value: &serde_json::Value) -> Result<()> {
    if let serde_json::Value::Object(fields) = value {
        let item = table.entry(name).or_insert_with(|| Item::Value(InlineTable::new().into()));
        let Some(inner) = item.as_table_like_mut() else {
            return Err(Error::invalid(format!("{name} is not a table in the configuration file")));
        };
        for (field, value) in fields {
            match value {
                serde_json::Value::Null => drop(inner.remove(field)),
                value => set(inner, field, value)?,
            }
        }
        tidy(item);
        return Ok(());
    }
    let unfit = |e| Error::invalid(format!("{name} = {value}: not a value of a configuration file ({e})"));
    let mut new: Value = value.serialize(ValueSerializer::new()).map_err(unfit)?;
    match table.get_mut(name) {
        // The comment after it stays.
        Some(Item::Value(old)) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        Some(old) => *old = Item::Value(new),
        None => drop(table.insert(name, Item::Value(new))),
    }
    Ok(())
}

/// Removes a setting. The comments above it may belong to others, and stay if another key follows.
fn remove(document: &mut Table, path: &[String], name: &str) {
    let mut table: &mut dyn TableLike = document;
    for part in path {
        let Some(inner) = table.get_mut(part).and_then(Item::as_table_like_mut) else { return };
        table = inner;
    }
    let comments = table.key(name).and_then(|key| key.leaf_decor().prefix()?.as_str().map(str::to_owned));
    let next = table.iter().skip_while(|(key, _)| *key != name).nth(1).map(|(key, _)| key.to_owned());
    if table.remove(name).is_none() {
        return;
    }
    if let (Some(comments), Some(mut next)) = (comments, next.and_then(|next| table.key_mut(&next))) {
        let own = next.leaf_decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
        let joined = format!("{comments}{own}");
        next.leaf_decor_mut().set_prefix(joined);
    }
}
