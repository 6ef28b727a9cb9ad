//! A look at a denylist outside of a node.

use std::path::Path;

use ipfrs_core::{Error, Result};

use super::files::read_list;
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
