//! Files that contain private keys: `<repo>/keystore/`, in the format of Kubo, and `identity.key`.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ipfrs_core::{Base, Error, ErrorKind, Result};
use ipfrs_ipns::PrivateKey;
use zeroize::Zeroizing;

/// Name of the directory in the repo.
const DIRECTORY: &str = "keystore";

/// Prefix of each file name. The name of the key follows in base32, so that it cannot form a path outside the
/// directory.
const PREFIX: &str = "key_";

/// Maximum size of a key file, far above that of the largest key.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Permission bits of the group and of others.
const OTHERS: u32 = 0o077;

/// The directory of named keys.
#[derive(Debug, Clone)]
pub(super) struct KeyFiles {
    dir: PathBuf,
}

impl KeyFiles {
    pub(super) fn new(repo: &Path) -> Self {
        Self { dir: repo.join(DIRECTORY) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{PREFIX}{}", Base::Base32Lower.encode(name)))
    }

    /// Returns the names of all keys, sorted. Other files are ignored.
    pub(super) fn names(&self) -> Result<Vec<String>> {
        let cannot = |e| Error::io(format_args!("cannot list the keys in {}", self.dir.display()), e);
        let entries = match fs::read_dir(&self.dir) {
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

    /// Returns the key of this name, if it exists.
    pub(super) fn read(&self, name: &str) -> Result<Option<PrivateKey>> {
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
        self.make_directory()
            .and_then(|()| write_private(&path, &bytes))
            .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))
    }

    fn make_directory(&self) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(&self.dir) {
            Ok(()) => sync_parent(&self.dir),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
        }
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

/// Policy for a private key that users other than its owner can access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposed {
    /// Refuse to use it, as ssh does.
    Refuse,
    /// Log a warning.
    Warn,
}

/// Reads a file with a private key. Returns `None` if it does not exist.
pub(crate) fn read_private(path: &Path, exposed: Exposed) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let cannot = |e| Error::io(format_args!("cannot read {}", path.display()), e);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(cannot(e)),
    };
    let metadata = file.metadata().map_err(cannot)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        let file = path.display();
        if exposed == Exposed::Refuse {
            // Clients receive this message, so it must not reveal the location of the repo.
            let name = path.file_name().unwrap_or_default().display();
            let what = format!("{name} in the keystore is a private key that other users can access (mode {mode:04o})");
            return Err(Error::new(ErrorKind::Forbidden, format!("{what}, and is not used: run chmod 600 on it")));
        }
        tracing::warn!(%file, mode = format!("{mode:04o}"), "other users can access a private key: run chmod 600");
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(metadata.len().min(MAX_FILE_BYTES) as usize));
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(Some(bytes))
}

/// Writes a file with a private key, durably and atomically. Only its owner can read it.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    // A draft that a crash left behind could have another mode.
    match fs::remove_file(&draft) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    sync_parent(path)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
