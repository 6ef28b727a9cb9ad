//! Losses of blocks that were found when the store was opened: packs that are missing, shorter or damaged. The file
//! `lost-blocks` lists them until the operator removes it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ipfrs_core::{Error, Result};
use parking_lot::Mutex;

use super::changes::PackUse;
#[cfg(test)]
use super::crash_recorder;
use super::lock::{cannot, sync_directory};

/// Name of the file in the directory of the store.
const FILE: &str = "lost-blocks";
/// Name of the file while it is written.
const DRAFT: &str = "lost-blocks.new";
/// Length of the file from which nothing is added, in bytes.
const MAX_BYTES: usize = 64 * 1024;

/// End of the text of a loss if a crash leaves the same traces: only an index tells unfinished writes from damage, and
/// earlier versions did not mark those that they skipped.
pub(super) const OR_UNFINISHED: &str =
    "(or a crash, under an earlier version or before the index was lost, left unfinished writes)";

/// Losses of blocks. Those that a read-only store has found are kept in memory.
#[derive(Debug)]
pub(super) struct Losses {
    path: PathBuf,
    is_read_only: bool,
    found: Mutex<Vec<String>>,
}

impl Losses {
    pub(super) fn of(dir: &Path, is_read_only: bool) -> Self {
        Self { path: dir.join(FILE), is_read_only, found: Mutex::default() }
    }

    /// Logs a loss and adds it to the file durably.
    ///
    /// # Errors
    /// If the file cannot be written. The store must then not be opened: what follows replaces the index or the bytes
    /// that prove the loss, so the next start would not find it.
    pub(super) fn add(&self, what: &str) -> Result<()> {
        tracing::error!(note = %self.path.display(), "blocks are lost: {what}");
        if self.is_read_only {
            self.found.lock().push(what.to_owned());
            return Ok(());
        }
        self.write(what).map_err(|error| {
            let remedy = "it must be noted there before the store is opened, except with store.read_only = true";
            Error::new(error.kind(), format!("blocks are lost: {what}; {remedy}: {error}"))
        })
    }

    /// Returns the losses that were found now or earlier.
    pub(super) fn all(&self) -> Result<Vec<String>> {
        let mut all: Vec<_> = self.read()?.lines().map(str::to_owned).collect();
        for found in self.found.lock().iter() {
            if !all.contains(found) {
                all.push(found.clone());
            }
        }
        Ok(all)
    }

    /// Replaces the file, so that it never has a part of a line, or a line whose sync failed.
    fn write(&self, what: &str) -> Result<()> {
        let known = self.read()?;
        let is_known = known.len() > MAX_BYTES || known.lines().any(|line| line == what);
        let draft = self.path.with_file_name(DRAFT);
        let write = || {
            if !is_known {
                #[cfg(test)]
                crash_recorder::before(&draft);
                let mut file = File::create(&draft)?;
                let end = if known.is_empty() || known.ends_with('\n') { "" } else { "\n" };
                file.write_all(format!("{known}{end}{what}\n").as_bytes())?;
                #[cfg(test)]
                let syncing = crash_recorder::before_sync(&file);
                file.sync_all()?;
                #[cfg(test)]
                drop(syncing);
                #[cfg(test)]
                crash_recorder::before(&self.path);
                fs::rename(&draft, &self.path)?;
            }
            // Also if it is known: the start that wrote it may have ended before this.
            sync_directory(self.path.parent().unwrap_or(&self.path))
        };
        write().inspect_err(|_| drop(fs::remove_file(&draft))).map_err(|error| cannot("write", &self.path, error))
    }

    fn read(&self) -> Result<String> {
        match fs::read(&self.path) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(cannot("read", &self.path, error)),
        }
    }
}

/// Returns how an index proves that blocks were lost: packs with live blocks are missing or shorter. `None` if it does
/// not.
pub(super) fn proven_by(uses: &BTreeMap<u32, PackUse>, packs: &BTreeMap<u32, u32>) -> Option<String> {
    let lost = uses.iter().filter(|(_, pack)| pack.live_bytes > 0).filter_map(|(number, pack)| {
        let (live, covered) = (pack.live_bytes, pack.covered);
        match packs.get(number) {
            None => Some(format!("pack {number} with {live} bytes of blocks is missing")),
            Some(len) if *len < covered => Some(format!("pack {number} has {len} bytes instead of at least {covered}")),
            Some(_) => None,
        }
    });
    let lost: Vec<_> = lost.collect();
    (!lost.is_empty()).then(|| lost.join(", "))
}
