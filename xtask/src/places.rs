//! Paths of programs and directories.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result};

/// Finds a program on the `PATH`.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Returns the root directory of the workspace.
pub(crate) fn workspace() -> Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(xtask.parent().context("xtask is not in a workspace")?.to_owned())
}

/// Returns the target directory of cargo.
pub(crate) fn target() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => Ok(env::current_dir()?.join(directory)),
        None => Ok(workspace()?.join("target")),
    }
}

/// Returns an empty directory.
pub(crate) fn emptied(directory: &Path) -> Result<PathBuf> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory.to_owned())
}
