//! Files of named keys: `<repo>/keystore/`, in the format of Kubo.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Base, Error, Result};
use ipfrs_ipns::PrivateKey;
use parking_lot::Mutex;

use crate::durable_directory::DurableDirectory;
use crate::private_file::{Exposed, read_private, remove_drafts, sync_parent, write_private};

/// Name of the directory in the repo.
const DIRECTORY: &str = "keystore";

/// Prefix of each file name. The name of the key follows in base32, so that it cannot form a path outside the
/// directory.
const PREFIX: &str = "key_";

/// The directory of named keys. Clones share what is known about it.
#[derive(Debug, Clone)]
pub(super) struct KeyFiles {
    dir: DurableDirectory,
    /// Names of keys that could not be used when they were last read; `None` until all keys were checked.
    unusable: Arc<Mutex<Option<BTreeSet<String>>>>,
}

impl KeyFiles {
    pub(super) fn new(repo: &Path) -> Self {
        Self { dir: DurableDirectory::new(repo.join(DIRECTORY), 0o700), unusable: Arc::default() }
    }

    pub(super) fn remove_drafts(&self) {
        remove_drafts(self.dir.path());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(format!("{PREFIX}{}", Base::Base32Lower.encode(name)))
    }

    /// Returns the names of all keys, sorted. Other files are ignored.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let cannot = |e| Error::io(format_args!("cannot list the keys in {}", self.dir.path().display()), e);
        let entries = match fs::read_dir(self.dir.path()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(cannot(e)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let file = entry.map_err(cannot)?.file_name();
            let encoded = file.to_str().and_then(|file| file.strip_prefix(PREFIX));
            let name = encoded.and_then(|encoded| Base::Base32Lower.decode(encoded).ok());
            names.extend(name.and_then(|name| String::from_utf8(name).ok()));
        }
        names.sort_unstable();
        Ok(names)
    }

    pub(super) fn has(&self, name: &str) -> Result<bool> {
        let path = self.path(name);
        fs::exists(&path).map_err(|e| Error::io(format_args!("cannot find {}", path.display()), e))
    }

    /// Returns the key of this name, if it exists. Notes the name if the key cannot be used.
    pub(super) fn read(&self, name: &str) -> Result<Option<PrivateKey>> {
        let read = self.try_read(name);
        if read.is_err()
            && let Some(unusable) = &mut *self.unusable.lock()
        {
            unusable.insert(name.to_owned());
        }
        read
    }

    /// Returns the errors of keys that cannot be used. The first call reads all keys, and later ones those that could
    /// not be used when they were last read.
    pub(super) fn errors(&self) -> Result<Vec<String>> {
        let noted = self.unusable.lock().clone();
        let is_first = noted.is_none();
        let names = match noted {
            Some(names) => names,
            None => self.names()?.into_iter().collect(),
        };
        let (mut found, mut errors) = (BTreeSet::new(), Vec::new());
        for name in &names {
            if let Err(error) = self.try_read(name) {
                // Clients receive this text.
                errors.push(format!("the key {name:?}: {}", error.public_message()));
                found.insert(name.clone());
            }
        }
        let mut unusable = self.unusable.lock();
        match &mut *unusable {
            // Others may have been noted meanwhile.
            Some(noted) if !is_first => noted.retain(|name| found.contains(name) || !names.contains(name)),
            Some(noted) => noted.append(&mut found),
            None => *unusable = Some(found),
        }
        Ok(errors)
    }

    fn try_read(&self, name: &str) -> Result<Option<PrivateKey>> {
        let path = self.path(name);
        let Some(bytes) = read_private(&path, Exposed::Refuse)? else { return Ok(None) };
        let unsound = |e: Error| {
            // Clients receive this message, so it must not reveal the location of the repo.
            let name = path.file_name().unwrap_or_default().display();
            Error::corrupt(format!("{name} in the keystore is not a key: {e}: restore it from a backup, or remove it"))
        };
        PrivateKey::from_protobuf(&bytes).map(Some).map_err(unsound)
    }

    /// Writes the key of this name durably, replacing an existing one.
    pub(super) fn write(&self, name: &str, key: &PrivateKey) -> Result<()> {
        let bytes = key.to_protobuf()?;
        let path = self.path(name);
        self.dir
            .ensure()
            .and_then(|()| write_private(&path, &bytes))
            .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))
    }

    /// Renames a key durably, replacing any key of the new name.
    pub(super) fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path(from), self.path(to));
        let renamed = fs::rename(&from, &to).and_then(|()| sync_parent(&to));
        renamed.map_err(|e| Error::io(format_args!("cannot rename {} to {}", from.display(), to.display()), e))
    }

    /// Removes the key of this name durably.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        let removed = fs::remove_file(&path).and_then(|()| sync_parent(&path));
        removed.map_err(|e| Error::io(format_args!("cannot remove {}", path.display()), e))
    }
}
