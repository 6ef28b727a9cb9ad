//! Where programs and files are.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A program on the `PATH`.
pub(crate) fn found(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// The directory of the whole project.
pub(crate) fn workspace() -> Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(xtask.parent().context("xtask lies in no workspace")?.to_owned())
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => Ok(env::current_dir()?.join(directory)),
        None => Ok(workspace()?.join("target")),
    }
}
