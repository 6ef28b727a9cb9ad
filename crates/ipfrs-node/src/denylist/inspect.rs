//! Inspection of a denylist without a node.

use std::path::{Path, PathBuf};

use ipfrs_core::{Error, Result};

use super::files::{files_of, read_list};
use crate::fingerprint::Fingerprints;

/// Summary of a denylist.
#[derive(Debug)]
pub struct DenylistReport {
    /// Name from the header; empty if it has none.
    pub name: String,
    /// Number of rules that block or allow.
    pub rules: u64,
    /// Number of lines that are not rules; they are ignored.
    pub malformed: u64,
    /// The first malformed lines, with their numbers and errors.
    pub problems: Vec<(u32, Error)>,
}

/// Reads a denylist in the same way as a node. Blocks on the disk.
///
/// # Errors
/// The file cannot be read, or is not a denylist. The message names the file and the cause.
pub fn inspect_denylist(path: &Path) -> Result<DenylistReport> {
    let (list, _) = read_list(path, &Fingerprints::default())?;
    let (name, rules, malformed) = (list.name().to_owned(), list.count(), list.malformed());
    Ok(DenylistReport { name, rules, malformed, problems: list.into_problems() })
}

/// Reads the lists of `sources` (files, and directories of `*.deny` files, relative to `repo`) in the same way as a
/// node that is opened. Blocks on the disk.
///
/// # Errors
/// A source that would prevent a node from opening: it is missing, cannot be read, or is not a denylist. The message
/// names it.
pub fn check_denylists(repo: &Path, sources: &[PathBuf]) -> Result<()> {
    let fingerprints = Fingerprints::default();
    for source in sources {
        for file in files_of(&repo.join(source))? {
            read_list(&file, &fingerprints)?;
        }
    }
    Ok(())
}
