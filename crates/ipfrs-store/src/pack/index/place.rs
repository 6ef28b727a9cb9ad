//! The directory of an index.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ipfrs_core::{Error, Result};
use rustix::fs::MemfdFlags;

use super::run::Run;
use crate::Mappings;
#[cfg(test)]
use crate::pack::crash_recorder;
use crate::pack::disk::free_bytes;
use crate::pack::index::decode::unreadable;
use crate::pack::lock::{cannot, ensure_directory, sync_directory};

/// Free disk space that a merge leaves, in bytes. A merge can wait, but other writes cannot.
pub(super) const KEEP_FREE_BYTES: u64 = 64 * 1024 * 1024;

/// File name of the manifest.
const MANIFEST: &str = "manifest";

/// The directory of an index. For a read-only index, new files are kept in memory.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    is_read_only: bool,
    /// Mapped runs. Separate from the mapped packs, whose faults callers observe.
    mappings: Mappings,
    #[cfg(test)]
    pub(super) fault: super::fault::Countdown,
}

impl Place {
    /// Returns the directory at `dir`, which need not exist.
    pub(super) fn new(dir: &Path, is_read_only: bool) -> Self {
        Self {
            dir: dir.to_owned(),
            is_read_only,
            mappings: Mappings::default(),
            #[cfg(test)]
            fault: super::fault::Countdown::default(),
        }
    }

    /// Returns the manifest, or `None` if there is none.
    pub(super) fn read_manifest(&self) -> Result<Option<Vec<u8>>> {
        let path = self.dir.join(MANIFEST);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // The path is not a directory.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                Err(Error::corrupt(format!("{} is not a directory", self.dir.display())))
            }
            Err(error) => Err(unreadable("read", &path, error)),
        }
    }

    /// Durably replaces the manifest, and makes the names of the directory's other files durable.
    pub(super) fn write_manifest(&self, bytes: &[u8]) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        let (path, draft) = (self.dir.join(MANIFEST), self.dir.join("manifest.new"));
        let write = || {
            #[cfg(test)]
            crash_recorder::before(&draft);
            let mut file = File::create(&draft)?;
            file.write_all(bytes)?;
            self.sync(&file)?;
            #[cfg(test)]
            crash_recorder::before(&path);
            fs::rename(&draft, &path)?;
            self.sync_names()
        };
        // A failed sync is not repeated on the same file.
        write().inspect_err(|_| drop(fs::remove_file(&draft))).map_err(|error| cannot("write", &path, error))
    }

    /// Removes the manifest durably.
    pub(super) fn remove_manifest(&self) -> Result<()> {
        let path = self.dir.join(MANIFEST);
        #[cfg(test)]
        crash_recorder::before(&path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            removed => removed.map_err(|error| cannot("remove", &path, error))?,
        }
        #[cfg(test)]
        crash_recorder::before(&self.dir);
        sync_directory(&self.dir).map_err(|error| cannot("sync", &self.dir, error))
    }

    /// Returns the path of a run.
    pub(super) fn run_path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:08}.run"))
    }

    /// Creates the file of run `number`.
    pub(super) fn create_run(&self, number: u64) -> Result<File> {
        let path = self.run_path(number);
        #[cfg(test)]
        crash_recorder::before(&path);
        let file = match self.is_read_only {
            true => rustix::fs::memfd_create("ipfrs-index", MemfdFlags::CLOEXEC).map(File::from).map_err(Into::into),
            false => OpenOptions::new().read(true).write(true).create_new(true).open(&path),
        };
        file.map_err(|error| cannot("create", &path, error))
    }

    /// Opens run `number` in this file.
    pub(super) fn open_run(&self, number: u64, file: File) -> Result<Run> {
        Run::open(file, number, &self.run_path(number), &self.mappings)
    }

    /// Opens run `number`, which the manifest names.
    pub(super) fn find_run(&self, number: u64) -> Result<Run> {
        let path = self.run_path(number);
        match File::open(&path) {
            Ok(file) => self.open_run(number, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Error::corrupt(format!("{} is missing", path.display())))
            }
            Err(error) => Err(unreadable("open", &path, error)),
        }
    }

    /// Whether the disk has space for `bytes` more, and for the writes that cannot wait.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        // If the file system does not report its free space, it is assumed to be sufficient.
        self.is_read_only || self.free_bytes().is_none_or(|free| free >= bytes.saturating_add(KEEP_FREE_BYTES))
    }

    fn free_bytes(&self) -> Option<u64> {
        #[cfg(test)]
        if let Some(free) = self.fault.free_bytes() {
            return Some(free);
        }
        free_bytes(&self.dir)
    }

    /// Removes the file of a run. A file that cannot be removed now is removed at the next start.
    pub(super) fn remove_run(&self, number: u64) {
        if self.is_read_only {
            return;
        }
        let path = self.run_path(number);
        #[cfg(test)]
        crash_recorder::before(&path);
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(path = %path.display(), %error, "cannot remove an index run that is no longer needed");
        }
    }

    /// Creates the directory if it is missing, and removes every file except the manifest and the runs that
    /// `is_kept`.
    pub(super) fn tidy(&self, is_kept: impl Fn(u64) -> bool) -> Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        ensure_directory(&self.dir)?;
        let is_needed = |name: &str| match name.strip_suffix(".run") {
            Some(number) => number.parse().is_ok_and(&is_kept),
            None => name == MANIFEST,
        };
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|error| cannot("read", &self.dir, error))? {
            let entry = entry.map_err(|error| cannot("read", &self.dir, error))?;
            // Directories such as `lost+found` do not belong to the index.
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if !is_directory && !entry.file_name().to_str().is_some_and(is_needed) {
                left.push(entry.path());
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        // The manifest that no longer names these files may not be on the disk yet.
        self.sync_names().map_err(|error| cannot("sync", &self.dir, error))?;
        left.iter().try_for_each(|path| {
            #[cfg(test)]
            crash_recorder::before(path);
            fs::remove_file(path).map_err(|error| cannot("remove", path, error))
        })
    }

    /// Removes the directory and its content.
    pub(super) fn clear(&self) -> Result<()> {
        let cleared = match fs::symlink_metadata(&self.dir) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(&self.dir),
            Ok(_) => fs::remove_file(&self.dir),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        cleared.map_err(|error| cannot("remove", &self.dir, error))
    }

    /// Waits until a file is on the disk.
    pub(super) fn sync(&self, file: &File) -> io::Result<()> {
        #[cfg(test)]
        self.fault.step()?;
        #[cfg(test)]
        let _syncing = crash_recorder::before_sync(file);
        if self.is_read_only { Ok(()) } else { file.sync_data() }
    }

    fn sync_names(&self) -> io::Result<()> {
        #[cfg(test)]
        self.fault.step()?;
        #[cfg(test)]
        crash_recorder::before(&self.dir);
        sync_directory(&self.dir)
    }
}
