//! Losses of blocks that were found when the store was opened: packs that are missing, shorter or damaged. The file
//! `lost-blocks` lists them until the operator removes it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ipfrs_core::Result;
use parking_lot::Mutex;

use super::changes::PackUse;
use super::lock::{cannot, sync_directory};
use super::pack_store::PackStore;

/// Name of the file in the directory of the store.
const FILE: &str = "lost-blocks";
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

    /// Logs a loss and adds it to the file. Without the file, the loss is known until the store is closed.
    pub(super) fn add(&self, what: &str) {
        if let Err(error) = self.try_add(what) {
            tracing::error!(%error, "the loss cannot be noted");
        }
    }

    /// Same as [`add`](Self::add), but fails if the file cannot be written.
    fn try_add(&self, what: &str) -> Result<()> {
        tracing::error!(note = %self.path.display(), "blocks are lost: {what}");
        let written = if self.is_read_only { Ok(()) } else { self.write(what) };
        if self.is_read_only || written.is_err() {
            self.found.lock().push(what.to_owned());
        }
        written
    }

    fn write(&self, what: &str) -> Result<()> {
        let known = self.read()?;
        if known.len() > MAX_BYTES || known.lines().any(|line| line == what) {
            return Ok(());
        }
        let write = || {
            let mut file = OpenOptions::new().create(true).append(true).open(&self.path)?;
            writeln!(file, "{what}")?;
            file.sync_all()?;
            sync_directory(self.path.parent().unwrap_or(&self.path))
        };
        write().map_err(|error| cannot("write", &self.path, error))
    }

    fn read(&self) -> Result<String> {
        match fs::read(&self.path) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(cannot("read", &self.path, error)),
        }
    }
}

impl PackStore {
    /// Reports a loss of blocks that is not one of the packs. Waits for the disk.
    ///
    /// # Errors
    /// If the loss cannot be noted in the file. A read-only store notes nothing.
    pub fn add_loss(&self, what: &str) -> Result<()> {
        self.shared.losses.try_add(what)
    }

    /// Returns the losses of blocks that were found when the store was opened, now or earlier, as lines of text. They
    /// are in the file `lost-blocks` in the directory of the store, until the operator removes it. Waits for the disk.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn losses(&self) -> Result<Vec<String>> {
        let losses = &self.shared.losses;
        let mut all: Vec<_> = losses.read()?.lines().map(str::to_owned).collect();
        all.extend(losses.found.lock().iter().cloned());
        Ok(all)
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
