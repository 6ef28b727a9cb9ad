//! A look at a denylist outside of a node.

use std::path::{Path, PathBuf};

use ipfrs_core::{Error, Result};

use super::files::{files_of, read_list};
use crate::fingerprint::Fingerprints;

/// What a denylist holds.
#[derive(Debug)]
pub struct DenylistReport {
    /// What it calls itself; empty where it does not.
    pub name: String,
    /// Rules that block or allow.
    pub rules: u64,
    /// Lines that are no rules; they are passed over.
    pub malformed: u64,
    /// The first of these, by line number, and why.
    pub problems: Vec<(u32, Error)>,
}

/// Reads a denylist as a node would. Waits for the disk.
///
/// # Errors
/// When it cannot be read, or as a whole is not a denylist: the message names the file and what is wrong.
pub fn inspect_denylist(path: &Path) -> Result<DenylistReport> {
    let (list, _) = read_list(path, &Fingerprints::default())?;
    let (name, rules, malformed) = (list.name().to_owned(), list.count(), list.malformed());
    Ok(DenylistReport { name, rules, malformed, problems: list.into_problems() })
}

/// Reads the lists of `sources` (files, and directories of files `*.deny`, relative to `repo`) as a node would when it is
/// opened. Waits for the disk.
///
/// # Errors
/// For what a node would not be opened with: a source that is missing, cannot be read, or is not a denylist. The message
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
