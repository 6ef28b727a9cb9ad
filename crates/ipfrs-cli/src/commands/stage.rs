//! A staging directory beside the target. `get` builds its output there, and moves it to the target when it is
//! complete.
//!
//! Names in content are untrusted. Every entry is created anew inside a directory with an unpredictable name, each
//! name is a single plain component, and no created entry is ever followed. A symlink and a directory of the same
//! name cannot both be created, so no name can lead outside.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_core::Base;
use ipfrs_rpc::client::Response;
use serde::Serialize;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::output::printable_name;
use crate::progress::Progress;

/// Maximum number of characters of the target's name, of up to 4 bytes each, in the name of the stage.
const MAX_SHOWN_CHARS: usize = 50;

/// A directory beside the target. Dropping it removes the directory and everything in it, except content that was
/// moved to the target.
#[derive(Debug)]
pub(super) struct Stage {
    directory: PathBuf,
    target: PathBuf,
}

impl Stage {
    /// Creates a stage for `target`. A file may replace an existing file. Any other existing target is an error,
    /// reported here before anything is fetched.
    pub(super) fn new(target: &Path, is_file: bool) -> Result<Self> {
        // A symlink that the user names is followed, as by other programs.
        let followed = fs::symlink_metadata(target).is_ok_and(|metadata| metadata.is_symlink());
        let followed = followed.then(|| fs::canonicalize(target)).transpose();
        let followed = followed.map_err(|e| anyhow!("cannot save to {}: {e}", target.display()))?;
        let target = followed.as_deref().unwrap_or(target);
        match fs::symlink_metadata(target) {
            Ok(metadata) if is_file && metadata.is_file() => {}
            Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
                bail!("{} is a device or a pipe: write to standard output with -o -", target.display())
            }
            Ok(_) => bail!("{} already exists: remove it, or save elsewhere with -o", target.display()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(anyhow!("cannot save to {}: {e}", target.display())),
        }
        let Some(name) = target.file_name() else { bail!("{} cannot be saved to: give a name", target.display()) };
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = parent.join(format!(".{}.partial-{}", shortened(name), std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("cannot save to {}", target.display()))?;
        Ok(Self { directory, target: target.to_owned() })
    }

    /// Returns the path at which the root is built.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// Saves the body of a response as the root.
    pub(super) async fn save(&self, response: &mut Response, progress: &Progress) -> Result<()> {
        let failed = |e| anyhow!("cannot write {}: {e}", self.target.display());
        if let Some(bytes) = response.content_length() {
            progress.expect(bytes);
        }
        let mut file = File::create_new(self.root()).await.map_err(failed)?;
        while let Some(bytes) = response.next().await? {
            file.write_all(&bytes).await.map_err(failed)?;
            progress.done(bytes.len() as u64);
        }
        file.flush().await.map_err(failed)
    }

    /// Moves the root to the target, which may be that of a symlink. Returns its path.
    pub(super) fn commit(self) -> Result<PathBuf> {
        fs::rename(self.root(), &self.target).with_context(|| format!("cannot save to {}", self.target.display()))?;
        Ok(self.target.clone())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After a commit, the directory is empty. Failing to remove it does not fail a completed command.
        if fs::remove_dir_all(&self.directory).is_err() {
            make_writable(&self.directory);
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// Makes all directories of an incomplete tree writable for their owner, so that they can be removed.
fn make_writable(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_writable(&entry.path());
        }
    }
}

/// Path of saved content, as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Saved {
    path: String,
    /// The path in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

impl Saved {
    pub(super) fn at(path: &Path) -> Self {
        let bytes = path.as_os_str().as_bytes();
        let path_bytes = path.to_str().is_none().then(|| Base::Base64Pad.encode(bytes));
        Self { path: path.to_string_lossy().into_owned(), path_bytes }
    }
}

/// Returns the beginning of a name, short enough that the prefix and suffix of the stage fit within the 255 bytes of
/// a file name.
fn shortened(name: &OsStr) -> String {
    printable_name(name).chars().take(MAX_SHOWN_CHARS).collect()
}

/// Returns the path of `name` in `directory`, or an error if `name` is not a plain name.
pub(super) fn inside(directory: &Path, name: &OsStr) -> Result<PathBuf> {
    let bytes = name.as_bytes();
    if matches!(bytes, b"" | b"." | b"..") || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
        bail!("refusing to save an entry called \"{}\": that is not a valid file name", printable_name(name));
    }
    Ok(directory.join(name))
}
