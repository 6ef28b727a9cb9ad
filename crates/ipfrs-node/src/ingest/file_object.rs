//! An object that is a file below the repo.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::files_directory::FilesDirectory;
use super::{IngestName, OpenMark, exists};
use crate::off_workers;

/// Free bytes that stay on the disk, so that gc and deletions can run.
const KEEP_FREE_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of messages in one system call.
const MAX_SLICES: usize = 512;

/// A file that grows.
#[derive(Debug)]
pub(super) struct FileObject {
    directory: FilesDirectory,
    path: Arc<PathBuf>,
    file: Arc<Mutex<File>>,
    /// Whether the file was created here and has had no commit.
    is_draft: bool,
    mark: Arc<OpenMark>,
}

impl FileObject {
    /// Opens the file. Returns its length too.
    pub(super) async fn open(
        directory: &FilesDirectory,
        name: &IngestName,
        append: bool,
        mark: &Arc<OpenMark>,
    ) -> Result<(Self, u64)> {
        let (directory, name, mark) = (directory.clone(), name.clone(), Arc::clone(mark));
        off_workers(move || {
            directory.create()?;
            directory.reserve(0)?;
            let path = directory.path().join(name.as_str());
            let cannot = |e: io::Error| match e.kind() {
                io::ErrorKind::AlreadyExists => exists(&name),
                _ => Error::io(format_args!("cannot create {}", path.display()), e),
            };
            let mut options = OpenOptions::new();
            options.append(true).mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
            let file = match append {
                true => options.create(true).open(&path),
                false => options.create_new(true).open(&path),
            };
            let file = file.map_err(cannot)?;
            File::open(directory.path()).and_then(|dir| dir.sync_all()).map_err(cannot)?;
            let metadata = file.metadata().map_err(cannot)?;
            if !metadata.is_file() {
                return Err(Error::new(ErrorKind::Conflict, format!("{} is not a file", path.display())));
            }
            let (length, file) = (metadata.len(), Arc::new(Mutex::new(file)));
            Ok((Self { directory, path: Arc::new(path), file, is_draft: !append, mark }, length))
        })
        .await
    }

    /// Appends messages of `added` bytes. If that fails, the file keeps its length.
    pub(super) async fn append(&mut self, messages: Vec<Bytes>, added: u64) -> Result<()> {
        let (directory, path, file) = (self.directory.clone(), self.path.clone(), self.file.clone());
        off_workers(move || {
            directory.reserve(added)?;
            let mut file = file.lock();
            let written = check_free_space(&directory, added).and_then(|()| {
                let cannot = |e| Error::io(format_args!("cannot write {}", path.display()), e);
                let length = file.metadata().map_err(cannot)?.len();
                write_all(&mut file, &messages).map_err(|e| {
                    // A part of the messages was not acknowledged.
                    let _ = file.set_len(length);
                    cannot(e)
                })
            });
            written.inspect_err(|_| directory.release(added))
        })
        .await
    }

    /// Makes the file durable.
    pub(super) async fn commit(&mut self) -> Result<()> {
        let (path, file) = (self.path.clone(), self.file.clone());
        off_workers(move || {
            let cannot = |e| Error::io(format_args!("cannot sync {}", path.display()), e);
            let file = file.lock();
            file.sync_data().map_err(cannot)?;
            match file.metadata().map_err(cannot)?.nlink() {
                0 => Err(Error::new(ErrorKind::Conflict, "the object was removed while it was written")),
                _ => Ok(()),
            }
        })
        .await?;
        self.is_draft = false;
        Ok(())
    }
}

impl Drop for FileObject {
    /// Removes an object of which nothing was acknowledged, so that it does not keep its name from the next attempt,
    /// which waits for that.
    fn drop(&mut self) {
        if !self.is_draft {
            return;
        }
        self.mark.begin_removal();
        let (path, file, mark) = (Arc::clone(&self.path), Arc::clone(&self.file), Arc::clone(&self.mark));
        let remove = move || {
            let _mark = mark;
            remove_if_empty(&path, &file.lock());
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

fn remove_if_empty(path: &Path, file: &File) {
    let Ok(metadata) = file.metadata() else { return };
    let is_there = || fs::symlink_metadata(path).is_ok_and(|found| found.ino() == metadata.ino());
    if metadata.len() == 0 && is_there() {
        let _ = fs::remove_file(path);
    }
}

fn check_free_space(directory: &FilesDirectory, bytes: u64) -> Result<()> {
    let Ok(disk) = rustix::fs::statvfs(directory.path()) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= bytes.saturating_add(KEEP_FREE_BYTES) {
        return Ok(());
    }
    let text = format!("the disk has {free} bytes left, of which {KEEP_FREE_BYTES} are kept free: free space");
    Err(Error::new(ErrorKind::NoSpace, text))
}

fn write_all(file: &mut File, messages: &[Bytes]) -> io::Result<()> {
    for messages in messages.chunks(MAX_SLICES) {
        let mut slices: Vec<_> = messages.iter().map(|message| IoSlice::new(message)).collect();
        let mut slices = slices.as_mut_slice();
        IoSlice::advance_slices(&mut slices, 0);
        while !slices.is_empty() {
            match file.write_vectored(slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut slices, written),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::IngestConfig;
    use crate::ingest::{IngestStore, Ingestion};

    #[tokio::test]
    async fn draft_that_is_being_written_is_removed_without_delaying_its_task() {
        let repo = tempfile::tempdir().unwrap();
        let ingestion = Ingestion::new(repo.path(), &IngestConfig::default());
        let name: IngestName = "draft".parse().unwrap();
        let key = (IngestStore::FileSystem, name.clone());
        let mark = ingestion.mark(key.clone()).await.unwrap();
        let (draft, _) = FileObject::open(&ingestion.files, &name, false, &mark).await.unwrap();
        drop(mark);
        assert_eq!(ingestion.mark(key.clone()).await.unwrap_err().kind(), ErrorKind::Conflict);
        let file = Arc::clone(&draft.file);
        let written = file.lock();
        drop(draft);
        let mut next = std::pin::pin!(ingestion.mark(key));
        assert!(next.as_mut().now_or_never().is_none(), "the name is taken until the file is removed");
        drop(written);
        let mark = next.await.unwrap();
        FileObject::open(&ingestion.files, &name, false, &mark).await.unwrap();
    }
}
