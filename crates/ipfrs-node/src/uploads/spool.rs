//! Files of resumable uploads: `<repo>/uploads/{id}.part` contains the bytes that have arrived, and `{id}.json` the
//! record with everything else.
//!
//! The record exists before the first byte is acknowledged, and the length of the part is the number of bytes that
//! arrived. Bytes are only appended, and file systems make a greater length durable after the bytes that it covers.
//! After the import, the result is written to the record and the part is removed. [`Spool::load`] handles the states
//! that a crash between these steps leaves behind.
//!
//! A request that does not announce its length may turn out to be too long, and then none of it may be kept. The
//! record therefore stores the offset at which such a request starts before its first byte is written, and the offset
//! is removed after its last byte. After a crash in between, the part is truncated to that offset.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::UploadOptions;
use crate::durable_directory::DurableDirectory;
use crate::private_file::sync_parent;
use crate::{current_client, off_workers};

/// Name of the directory in the repo.
pub(super) const DIRECTORY: &str = "uploads";

/// Version of the record format.
const VERSION: u32 = 1;

/// Number of digits in an ID.
const ID_DIGITS: usize = 32;

/// Size of the pieces in which files are read.
const PIECE_BYTES: u64 = 1024 * 1024;

/// The stored record of a resumable upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) version: u32,
    /// Size of the file, in bytes.
    pub(super) length: u64,
    /// Metadata of the client, which are returned unchanged.
    pub(super) metadata: String,
    /// ID of the operation.
    pub(super) operation: String,
    /// Options of the import.
    pub(super) options: UploadOptions,
    /// Client that began the upload, until it is imported; `None` for this program itself, and in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) client: Option<IpAddr>,
    /// Result of the import; `None` until the upload is imported.
    pub(super) imported: Option<Imported>,
    /// Length of the part before the current request of unknown length, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) revert_to: Option<u64>,
}

/// The stored result of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Imported {
    pub(super) cid: String,
    pub(super) blocks: u64,
}

impl Record {
    /// Creates the record of a new upload of the current client.
    pub(super) fn new(length: u64, metadata: String, operation: String, options: UploadOptions) -> Self {
        let client = current_client();
        Self { version: VERSION, length, metadata, operation, options, client, imported: None, revert_to: None }
    }
}

/// An upload that was found on disk.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) record: Record,
    /// Number of bytes that have arrived.
    pub(super) offset: u64,
    /// Time at which its last bytes arrived, or it was imported.
    pub(super) touched: SystemTime,
}

/// The directory of resumable uploads. Its methods may block on the disk.
#[derive(Debug, Clone)]
pub(super) struct Spool {
    directory: DurableDirectory,
    /// Free bytes of the disk, set by tests.
    #[cfg(test)]
    pub(super) free: Arc<parking_lot::Mutex<Option<u64>>>,
}

impl Spool {
    pub(super) fn new(repo: &Path) -> Self {
        Self {
            directory: DurableDirectory::new(repo.join(DIRECTORY), 0o777),
            #[cfg(test)]
            free: Arc::default(),
        }
    }

    pub(super) fn part(&self, id: &str) -> PathBuf {
        self.directory.path().join(format!("{id}.part"))
    }

    pub(super) fn record(&self, id: &str) -> PathBuf {
        self.directory.path().join(format!("{id}.json"))
    }

    /// Creates the directory if it does not exist.
    fn create_directory(&self) -> Result<()> {
        self.directory.ensure().map_err(|e| failed("cannot create", self.directory.path(), e))
    }

    /// Returns the device number (`st_dev`) of the file system of uploads, and the number of bytes that can be
    /// written to it.
    pub(super) fn free_bytes(&self) -> Result<(u64, u64)> {
        // The first upload creates the directory on the file system of the repo.
        let repo = self.directory.path().parent().filter(|_| !self.directory.path().is_dir());
        let directory = repo.unwrap_or(self.directory.path());
        let query = || Ok((fs::metadata(directory)?.dev(), rustix::fs::statvfs(directory)?));
        let (device, system) = query().map_err(|e| failed("cannot determine the free space of", directory, e))?;
        #[cfg(test)]
        if let Some(free) = *self.free.lock() {
            return Ok((device, free));
        }
        Ok((device, system.f_bavail.saturating_mul(system.f_frsize)))
    }

    /// Creates the files of a new upload.
    pub(super) fn create(&self, id: &str, record: &Record) -> Result<()> {
        self.create_directory()?;
        let part = self.part(id);
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        created.map_err(|e| failed("cannot create", &part, e))?;
        self.save(id, record)
    }

    /// Saves a record durably and atomically.
    pub(super) fn save(&self, id: &str, record: &Record) -> Result<()> {
        let path = self.record(id);
        let text =
            serde_json::to_vec_pretty(record).map_err(|e| Error::internal("cannot encode a record").with_source(e))?;
        let draft = path.with_extension("json.new");
        let mut options = OpenOptions::new();
        let written = options.write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(self.directory.path())?.sync_all()
        });
        written.map_err(|e| failed("cannot write", &path, e))
    }

    /// Truncates the part of an upload.
    fn cut(&self, id: &str, len: u64) -> Result<()> {
        let path = self.part(id);
        let cut = OpenOptions::new().write(true).open(&path).and_then(|file| {
            file.set_len(len)?;
            file.sync_data()
        });
        cut.map_err(|e| failed("cannot truncate", &path, e))
    }

    /// Removes the part of an upload.
    pub(super) fn remove_part(&self, id: &str) -> Result<()> {
        remove(&self.part(id))
    }

    /// Removes all files of an upload durably. The record is removed first: without it the upload does not exist, even
    /// if removing the part fails.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        let record = self.record(id);
        remove(&record)?;
        let synced = match sync_parent(&record) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => synced.map_err(|e| failed("cannot remove", &record, e)),
        };
        synced.and(self.remove_part(id))
    }

    /// Returns all uploads. Removes leftover files that belong to no upload. A record that cannot be read is kept and
    /// logged.
    pub(super) fn load(&self) -> Result<Vec<Found>> {
        let entries = match fs::read_dir(self.directory.path()) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed("cannot list", self.directory.path(), e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| failed("cannot list", self.directory.path(), e))?.file_name();
            let Some((id, extension)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            if !is_id(id) {
                continue;
            }
            match extension {
                "json" => match self.find(id) {
                    Ok(upload) => found.extend(upload),
                    Err(error) => {
                        tracing::error!(id, %error, "an upload cannot be resumed: restore or remove its record")
                    }
                },
                "json.new" => remove(&self.directory.path().join(&name))?,
                "part" if matches!(self.record(id).try_exists(), Ok(false)) => self.remove_part(id)?,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Returns the upload of a record, or `None` if its part is missing; the record is then removed.
    fn find(&self, id: &str) -> Result<Option<Found>> {
        let path = self.record(id);
        let text = fs::read(&path).map_err(|e| failed("cannot read", &path, e))?;
        let broken = |why: &dyn std::fmt::Display| Error::corrupt(format!("{} is not a record: {why}", path.display()));
        let mut record: Record = serde_json::from_slice(&text).map_err(|e| broken(&e))?;
        if record.version != VERSION {
            return Err(broken(&format_args!("its version is {}, not {VERSION}", record.version)));
        }
        if record.imported.is_some() {
            self.remove_part(id)?;
            let touched = modified(&path).map_err(|e| failed("cannot read", &path, e))?.1;
            return Ok(Some(Found { id: id.to_owned(), offset: record.length, record, touched }));
        }
        match modified(&self.part(id)) {
            Ok((len, touched)) => {
                let offset = record.revert_to.unwrap_or(record.length).min(len);
                if offset < len {
                    self.cut(id, offset)?;
                }
                if record.revert_to.take().is_some() {
                    self.save(id, &record)?;
                }
                Ok(Some(Found { id: id.to_owned(), offset, record, touched }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                remove(&path)?;
                Ok(None)
            }
            Err(e) => Err(failed("cannot read", &self.part(id), e)),
        }
    }
}

/// Whether `text` has the form of an upload ID.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn modified(path: &Path) -> io::Result<(u64, SystemTime)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.len(), metadata.modified()?))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed("cannot remove", path, e)),
    }
}

pub(super) fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format_args!("{what} {}", path.display()), error)
}

/// Returns a stream of the bytes of a file.
pub(super) fn read(path: PathBuf) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
    stream::unfold((None::<Arc<File>>, 0_u64), move |(file, at)| {
        let path = path.clone();
        async move {
            let piece = off_workers(move || {
                let read = || {
                    let file = file.map_or_else(|| File::open(&path).map(Arc::new), Ok)?;
                    let left = file.metadata()?.len().saturating_sub(at).min(PIECE_BYTES);
                    // At most one mebibyte.
                    let mut piece = vec![0; usize::try_from(left).unwrap_or(0)];
                    file.read_exact_at(&mut piece, at)?;
                    Ok((file, Bytes::from(piece)))
                };
                read().map_err(|e| failed("cannot read", &path, e))
            });
            match piece.await {
                Ok((_, piece)) if piece.is_empty() => None,
                Ok((file, piece)) => {
                    let end = at + piece.len() as u64;
                    Some((Ok(piece), (Some(file), end)))
                }
                // The consumer does not poll a stream that failed again.
                Err(e) => Some((Err(e), (None, at))),
            }
        }
    })
    .boxed()
}
