//! Where `get` builds what it saves: beside the target, moved there when it is whole.
//!
//! Names come from strangers. Everything is made anew inside a directory that nobody else knows, each name is one plain
//! component, and nothing that was made is ever followed: a symlink and a directory of the same name cannot both be
//! made, so no name can lead outside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::answer::Answer;
use crate::output::printable;
use crate::progress::Progress;

/// A directory beside the target, removed with everything in it unless its content was moved to the target.
#[derive(Debug)]
pub(super) struct Stage {
    directory: PathBuf,
    target: PathBuf,
}

impl Stage {
    /// A stage for `target`. An existing file may be replaced by a file; anything else in the way is an error now,
    /// before anything is fetched.
    pub(super) fn new(target: &Path, is_file: bool) -> Result<Self> {
        match fs::symlink_metadata(target) {
            Ok(metadata) if is_file && metadata.is_file() => {}
            Ok(_) => bail!("{} is there already: remove it, or save elsewhere with -o", target.display()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(anyhow!("cannot save to {}: {e}", target.display())),
        }
        let Some(name) = target.file_name() else { bail!("{} cannot be saved to: give a name", target.display()) };
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = parent.join(format!(".{}.partial-{}", name.to_string_lossy(), std::process::id()));
        fs::create_dir(&directory).with_context(|| format!("cannot save to {}", target.display()))?;
        Ok(Self { directory, target: target.to_owned() })
    }

    /// Where the root is built.
    pub(super) fn root(&self) -> PathBuf {
        self.directory.join("root")
    }

    /// Makes a file of an answer the root.
    pub(super) async fn save(&self, answer: &mut Answer, progress: &Progress) -> Result<()> {
        let failed = |e| anyhow!("cannot write {}: {e}", self.target.display());
        if let Some(bytes) = answer.expected_bytes() {
            progress.expect(bytes);
        }
        let mut file = File::create_new(self.root()).await.map_err(failed)?;
        while let Some(bytes) = answer.next().await? {
            file.write_all(&bytes).await.map_err(failed)?;
            progress.done(bytes.len() as u64);
        }
        file.flush().await.map_err(failed)
    }

    /// Moves the root to the target.
    pub(super) fn commit(self) -> Result<()> {
        fs::rename(self.root(), &self.target).with_context(|| format!("cannot save to {}", self.target.display()))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // After a commit the directory is empty. What cannot be removed is no reason to fail what was done.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// `name` in `directory`, if it is a name and not a way to somewhere else.
pub(super) fn inside(directory: &Path, name: &str) -> Result<PathBuf> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        bail!("refusing to save an entry called \"{}\": that is no name within a directory", printable(name));
    }
    Ok(directory.join(name))
}
