//! What resumable uploads leave on disk: `<repo>/uploads/{id}.part` with the bytes that have arrived, and
//! `{id}.json` with everything else.
//!
//! A record is there before the first byte is acknowledged, and the length of the part is how much has arrived: bytes are
//! only appended, and file systems make a longer length durable after the bytes that it covers. When the file is
//! imported the record gets the result, and the part goes. What a crash leaves between these steps is found by
//! [`Spool::load`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use ipfrs_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::task::{JoinHandle, spawn_blocking};

use super::UploadOptions;

/// Directory in the repo.
const DIRECTORY: &str = "uploads";

/// The version of the records.
const VERSION: u32 = 1;

/// Digits of an ID.
const ID_DIGITS: usize = 32;

/// What arrives is written in batches of about this size, one while the next arrives.
const BATCH_BYTES: usize = 1024 * 1024;

/// Files are read in pieces of this size.
const PIECE_BYTES: u64 = 1024 * 1024;

/// A resumable upload, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    version: u32,
    /// Bytes of the file.
    pub(super) length: u64,
    /// What the client wants to be told again.
    pub(super) metadata: String,
    /// The operation, as clients know it.
    pub(super) operation: String,
    /// What is to be made of the file.
    pub(super) options: UploadOptions,
    /// What was made of it.
    pub(super) imported: Option<Imported>,
}

/// The result of an upload, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Imported {
    pub(super) cid: String,
    pub(super) blocks: u64,
}

impl Record {
    pub(super) fn new(length: u64, metadata: String, operation: String, options: UploadOptions) -> Self {
        Self { version: VERSION, length, metadata, operation, options, imported: None }
    }
}

/// An upload that was found on disk.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) id: String,
    pub(super) record: Record,
    /// Bytes that have arrived.
    pub(super) offset: u64,
    /// When its last bytes arrived, or when it was imported.
    pub(super) touched: SystemTime,
}

/// The directory. Its functions may wait for the disk.
#[derive(Debug, Clone)]
pub(super) struct Spool {
    directory: PathBuf,
}

impl Spool {
    pub(super) fn new(repo: &Path) -> Self {
        Self { directory: repo.join(DIRECTORY) }
    }

    pub(super) fn part(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.part"))
    }

    fn record(&self, id: &str) -> PathBuf {
        self.directory.join(format!("{id}.json"))
    }

    /// Makes the directory where it is not there yet.
    fn make(&self) -> Result<()> {
        if self.directory.is_dir() {
            return Ok(());
        }
        let made = fs::create_dir(&self.directory).and_then(|()| match self.directory.parent() {
            Some(repo) => File::open(repo)?.sync_all(),
            None => Ok(()),
        });
        match made {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(failed("cannot make", &self.directory, e)),
            _ => Ok(()),
        }
    }

    /// Bytes that can be written.
    pub(super) fn free_bytes(&self) -> Result<u64> {
        self.make()?;
        let system = rustix::fs::statvfs(&self.directory);
        let system = system.map_err(|e| failed("cannot ask for the free space of", &self.directory, e.into()))?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// Makes the files of a new upload.
    pub(super) fn create(&self, id: &str, record: &Record) -> Result<()> {
        self.make()?;
        let part = self.part(id);
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
        created.map_err(|e| failed("cannot make", &part, e))?;
        self.save(id, record)
    }

    /// Makes a record durable: whole or not at all.
    pub(super) fn save(&self, id: &str, record: &Record) -> Result<()> {
        let path = self.record(id);
        let text =
            serde_json::to_vec_pretty(record).map_err(|e| Error::internal("a record is no JSON").with_source(e))?;
        let draft = path.with_extension("json.new");
        let mut options = OpenOptions::new();
        let written = options.write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(&self.directory)?.sync_all()
        });
        written.map_err(|e| failed("cannot write", &path, e))
    }

    /// Removes the bytes of an upload.
    pub(super) fn remove_part(&self, id: &str) -> Result<()> {
        remove(&self.part(id))
    }

    /// Removes everything of an upload. Without its record it is gone, whatever happens to the rest.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        remove(&self.record(id))?;
        self.remove_part(id)
    }

    /// All uploads. What belongs to none is removed; a record that cannot be read stays, and is told.
    pub(super) fn load(&self) -> Result<Vec<Found>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed("cannot list", &self.directory, e)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| failed("cannot list", &self.directory, e))?.file_name();
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
                "json.new" => remove(&self.directory.join(&name))?,
                "part" if matches!(self.record(id).try_exists(), Ok(false)) => self.remove_part(id)?,
                _ => {}
            }
        }
        Ok(found)
    }

    /// The upload of a record; `None` when its bytes are gone, and so it is.
    fn find(&self, id: &str) -> Result<Option<Found>> {
        let path = self.record(id);
        let text = fs::read(&path).map_err(|e| failed("cannot read", &path, e))?;
        let broken = |why: &dyn std::fmt::Display| Error::corrupt(format!("{} is no record: {why}", path.display()));
        let record: Record = serde_json::from_slice(&text).map_err(|e| broken(&e))?;
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
                Ok(Some(Found { id: id.to_owned(), offset: len.min(record.length), record, touched }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                remove(&path)?;
                Ok(None)
            }
            Err(e) => Err(failed("cannot read", &self.part(id), e)),
        }
    }
}

/// Whether `text` could be an ID that we made.
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

fn failed(what: &str, path: &Path, error: io::Error) -> Error {
    Error::io(format_args!("{what} {}", path.display()), error)
}

/// Runs what waits for the disk.
pub(super) async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|e| Error::internal("a task that works on a file failed").with_source(e))?
}

/// How far an append came, and what ended it early.
#[derive(Debug)]
pub(super) struct Appended {
    /// Bytes of the file that are durable.
    pub(super) offset: u64,
    /// Why there are not more.
    pub(super) error: Option<Error>,
}

/// Writes `content` to the file at `offset`, at most up to `length`, and makes it durable. Of content that breaks off, what
/// arrived is kept; of content that is too long, nothing. `progress` is told how far the file has arrived.
pub(super) async fn append<S>(
    path: PathBuf,
    offset: u64,
    length: u64,
    mut content: S,
    mut progress: impl FnMut(u64) + Send,
) -> Appended
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin,
{
    let opened = on_disk(move || {
        let opened = OpenOptions::new().write(true).open(&path);
        opened.map_err(|e| failed("cannot open", &path, e))
    });
    let mut writer = match opened.await {
        Ok(file) => Writer { file: Arc::new(file), written: offset, batch: Vec::new(), batch_bytes: 0, writing: None },
        Err(error) => return Appended { offset, error: Some(error) },
    };
    let mut arrived = offset;
    let mut error = None;
    while let Some(piece) = content.next().await {
        let taken = match piece {
            Ok(piece) if piece.len() as u64 > length - arrived => Err(Error::too_large(format!(
                "more bytes than the {length} of Upload-Length: nothing of this request was taken"
            ))),
            Ok(piece) => {
                arrived += piece.len() as u64;
                progress(arrived);
                writer.push(piece).await
            }
            Err(e) => Err(e),
        };
        if let Err(e) = taken {
            error = Some(e);
            break;
        }
    }
    let keep = match &error {
        Some(e) if e.kind() == ErrorKind::TooLarge => Some(offset),
        _ => None,
    };
    let (offset, ended) = writer.finish(keep).await;
    Appended { offset, error: error.or(ended.err()) }
}

/// Writes batches one after the other, on a thread that may wait.
struct Writer {
    file: Arc<File>,
    /// How much of the file is written.
    written: u64,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// The batch that is being written; it gives the length of the file after it.
    writing: Option<JoinHandle<io::Result<u64>>>,
}

impl Writer {
    async fn push(&mut self, piece: Bytes) -> Result<()> {
        self.batch_bytes += piece.len();
        self.batch.push(piece);
        if self.batch_bytes >= BATCH_BYTES {
            self.write().await?;
        }
        Ok(())
    }

    /// Starts to write the batch, once the one before is written.
    async fn write(&mut self) -> Result<()> {
        self.written().await?;
        let (file, start) = (self.file.clone(), self.written);
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        self.writing = Some(spawn_blocking(move || {
            batch.iter().try_fold(start, |at, piece| {
                file.write_all_at(piece, at)?;
                Ok(at + piece.len() as u64)
            })
        }));
        Ok(())
    }

    /// Waits for the batch that is being written.
    async fn written(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let end = writing.await.map_err(|e| Error::internal("a task that writes an upload failed").with_source(e))?;
        self.written = end.map_err(|e| Error::io("cannot write an upload", e))?;
        Ok(())
    }

    /// Writes the rest and makes the file durable; or makes it `keep` bytes long again. Gives its length.
    async fn finish(mut self, keep: Option<u64>) -> (u64, Result<()>) {
        let mut outcome = match keep {
            None => self.write().await,
            Some(_) => Ok(()),
        };
        outcome = outcome.and(self.written().await);
        let (file, len) = (self.file.clone(), keep.unwrap_or(self.written));
        let synced = on_disk(move || {
            // What a failed write left behind is not part of the file.
            let synced = file.set_len(len).and_then(|()| file.sync_data());
            synced.map_err(|e| Error::io("cannot make an upload durable", e))
        });
        (len, outcome.and(synced.await))
    }
}

/// The bytes of a file.
pub(super) fn read(path: PathBuf) -> impl Stream<Item = Result<Bytes>> + Send + Unpin {
    stream::unfold((None::<Arc<File>>, 0_u64), move |(file, at)| {
        let path = path.clone();
        async move {
            let piece = on_disk(move || {
                let read = || {
                    let file = file.map_or_else(|| File::open(&path).map(Arc::new), Ok)?;
                    let left = file.metadata()?.len().saturating_sub(at).min(PIECE_BYTES);
                    // At most a mebibyte.
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
                // A stream that failed is not asked again.
                Err(e) => Some((Err(e), (None, at))),
            }
        }
    })
    .boxed()
}
