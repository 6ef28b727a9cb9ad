//! What bench targets read of their command line and of their environment.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};

/// A file that was named on the command line: cargo runs targets in the package's directory, people type paths in the
/// workspace's.
#[must_use]
pub fn workspace_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The number in an environment variable, or `default` where it is not set.
///
/// # Errors
/// When it is no number, with the variable's name.
pub fn number<T: FromStr>(name: &str, default: T) -> Result<T> {
    match env::var(name) {
        Ok(value) => value.parse().ok().with_context(|| format!("{name} = {value:?} is no number")),
        Err(_) => Ok(default),
    }
}
