//! Writing the bytes of one request to the file of a resumable upload.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use ipfrs_core::{Error, ErrorKind, Result};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{Instant, timeout_at};

use super::spool::{Record, Spool, failed};
use crate::off_workers;

/// Approximate size of a batch. One batch is written while the next one arrives.
const BATCH_BYTES: usize = 1024 * 1024;

/// Maximum age of a batch: a killed daemon loses no more of a slow request with `Content-Length`. Of a request without
/// it, all is lost.
const MAX_GATHERING: Duration = Duration::from_secs(1);

/// Maximum number of pieces in a batch: a client may send single bytes, and each piece takes memory of its own.
const BATCH_PIECES: usize = 1024;

/// Result of an append.
#[derive(Debug)]
pub(super) struct Appended {
    /// Number of durable bytes in the file.
    pub(super) offset: u64,
    /// The error that ended the append early.
    pub(super) error: Option<Error>,
}

/// A request that appends to an upload.
#[derive(Debug)]
pub(super) struct Append {
    pub(super) spool: Spool,
    pub(super) id: String,
    /// Record of the upload.
    pub(super) record: Record,
    /// Whether the record on disk notes where a request began; it may still do so after a request that failed.
    pub(super) is_noted: Arc<AtomicBool>,
    /// Offset at which the content of the request starts.
    pub(super) offset: u64,
    /// Whether the request announced its length, and that length fits in the upload.
    pub(super) fits: bool,
    /// Number of bytes to keep free on the disk.
    pub(super) kept: u64,
}

/// Writes `content` to the file of an upload and makes it durable. If the content breaks off or the disk is full, the
/// bytes written so far are kept. If the content is too long, none of it is kept. Calls `progress` with the number of
/// bytes that have arrived.
pub(super) async fn append<S>(request: Append, mut content: S, mut progress: impl FnMut(u64) + Send) -> Appended
where
    S: Stream<Item = Result<Bytes>> + Send + Unpin,
{
    let (offset, length, path) = (request.offset, request.record.length, request.spool.part(&request.id));
    let opened = off_workers(move || {
        let opened = OpenOptions::new().write(true).open(&path);
        opened.map_err(|e| failed("cannot open", &path, e))
    });
    let mut writer = match opened.await {
        Ok(file) => Writer::new(file, request),
        Err(error) => return Appended { offset, error: Some(error) },
    };
    let mut arrived = offset;
    let mut error = None;
    loop {
        let next = match writer.due() {
            Some(due) => timeout_at(due, content.next()).await.ok(),
            None => Some(content.next().await),
        };
        let accepted = match next {
            None => writer.begin_write().await,
            Some(None) => break,
            Some(Some(piece)) => match piece {
                Ok(piece) if piece.len() as u64 > length - arrived => Err(Error::too_large(format!(
                    "more bytes than the {length} of Upload-Length, and nothing of this request was kept: send at most \
                     {} bytes",
                    length - offset
                ))),
                Ok(piece) => {
                    arrived += piece.len() as u64;
                    progress(arrived);
                    writer.push(piece).await
                }
                Err(e) => Err(e),
            },
        };
        if let Err(e) = accepted {
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

/// Writes batches in order, on a blocking thread.
struct Writer {
    file: Arc<File>,
    request: Arc<Append>,
    /// Length of the file that is written.
    written: u64,
    batch: Vec<Bytes>,
    batch_bytes: usize,
    /// Time at which the first piece of the batch arrived.
    begun: Instant,
    /// Whether a batch could not be written. Later batches are then discarded.
    has_failed: bool,
    /// The write in progress, which returns the length of the file after it.
    writing: Option<JoinHandle<Result<u64>>>,
}

impl Writer {
    fn new(file: File, request: Append) -> Self {
        Self {
            file: Arc::new(file),
            written: request.offset,
            request: Arc::new(request),
            batch: Vec::new(),
            batch_bytes: 0,
            begun: Instant::now(),
            has_failed: false,
            writing: None,
        }
    }

    /// Returns the time at which the batch must be written, unless it is empty.
    fn due(&self) -> Option<Instant> {
        (!self.batch.is_empty()).then(|| self.begun + MAX_GATHERING)
    }

    async fn push(&mut self, piece: Bytes) -> Result<()> {
        if self.batch.is_empty() {
            self.begun = Instant::now();
        }
        self.batch_bytes += piece.len();
        self.batch.push(piece);
        if self.batch_bytes < BATCH_BYTES && self.batch.len() < BATCH_PIECES {
            return Ok(());
        }
        self.begin_write().await
    }

    /// Starts to write the batch. A request that may turn out to be too long is noted before.
    async fn begin_write(&mut self) -> Result<()> {
        if !self.request.fits && !self.request.is_noted() {
            let request = Arc::clone(&self.request);
            off_workers(move || request.save(Some(request.offset))).await.inspect_err(|_| self.has_failed = true)?;
        }
        self.write().await
    }

    /// Starts to write the batch after the previous write has completed.
    async fn write(&mut self) -> Result<()> {
        self.written().await?;
        let (file, start, request) = (self.file.clone(), self.written, Arc::clone(&self.request));
        let batch = std::mem::take(&mut self.batch);
        let bytes = std::mem::take(&mut self.batch_bytes) as u64;
        self.writing = Some(spawn_blocking(move || {
            if bytes > 0 {
                request.check_room(bytes)?;
            }
            let written = batch.iter().try_fold(start, |at, piece| {
                file.write_all_at(piece, at)?;
                Ok(at + piece.len() as u64)
            });
            written.map_err(|e| failed("cannot write", &request.spool.part(&request.id), e))
        }));
        Ok(())
    }

    /// Waits for the write in progress.
    async fn written(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let end = writing.await.map_err(|e| Error::internal("a task that writes an upload failed").with_source(e));
        self.written = end.and_then(|end| end).inspect_err(|_| self.has_failed = true)?;
        Ok(())
    }

    /// Writes the last batch and makes the file durable, or truncates it to `keep` bytes. Returns its length.
    async fn finish(mut self, keep: Option<u64>) -> (u64, Result<()>) {
        let mut outcome = match keep {
            None if !self.has_failed => self.write().await,
            _ => Ok(()),
        };
        outcome = outcome.and(self.written().await);
        let (file, len, request) = (self.file.clone(), keep.unwrap_or(self.written), self.request);
        let start = request.offset;
        let ended = spawn_blocking(move || {
            // Truncates the bytes of a failed write.
            let synced = file.set_len(len).and_then(|()| file.sync_data());
            let synced = synced.map_err(|e| failed("cannot sync", &request.spool.part(&request.id), e));
            let settled = synced.and_then(|()| if request.is_noted() { request.save(None) } else { Ok(()) });
            match settled {
                Ok(()) => (len, Ok(())),
                // Nothing of this request is durable for certain: the kernel reports a failed write once, and a restart
                // cuts the file to where the record notes that the request began.
                Err(e) => {
                    // The next request overwrites the bytes behind the offset, where this fails as well.
                    let _ = file.set_len(request.offset);
                    (request.offset, Err(e))
                }
            }
        });
        match ended.await {
            Ok((len, ended)) => (len, outcome.and(ended)),
            Err(e) => (start, Err(Error::internal("a task that ends an upload's request failed").with_source(e))),
        }
    }
}

impl Append {
    /// Saves the record durably, with or without the offset at which this request started.
    fn save(&self, revert_to: Option<u64>) -> Result<()> {
        // A failed save may have replaced the record all the same.
        self.is_noted.fetch_or(revert_to.is_some(), Ordering::Relaxed);
        self.spool.save(&self.id, &Record { revert_to, ..self.record.clone() })?;
        self.is_noted.store(revert_to.is_some(), Ordering::Relaxed);
        Ok(())
    }

    fn is_noted(&self) -> bool {
        self.is_noted.load(Ordering::Relaxed)
    }

    /// Checks that `bytes` can be written without using the space that is kept free.
    fn check_room(&self, bytes: u64) -> Result<()> {
        let (_, free) = self.spool.free_bytes()?;
        if free >= bytes.saturating_add(self.kept) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NoSpace,
            format!(
                "the disk has {free} bytes left, of which {} are reserved for gc: the bytes received so far are \
                 kept (see Upload-Offset): free some space, then continue from there",
                self.kept
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, copy};
    use std::path::Path;

    use futures::stream;

    use super::super::UploadOptions;
    use super::super::spool::DIRECTORY;
    use super::*;

    const MIB: usize = 1024 * 1024;

    /// Creates an upload of `length` bytes in its own directory, and the content to upload.
    fn upload(repo: &Path, length: usize) -> (Spool, Record, String, Bytes) {
        let spool = Spool::new(repo);
        let record = Record::new(length as u64, String::new(), String::new(), UploadOptions::default());
        let id = "0123456789abcdef".repeat(2);
        spool.create(&id, &record).unwrap();
        (spool, record, id, (0..length).map(|n| (n / 7) as u8).collect())
    }

    fn request(upload: &(Spool, Record, String, Bytes), offset: u64, fits: bool, kept: u64) -> Append {
        let (spool, record, id, _) = upload;
        let is_noted = Arc::default();
        Append { spool: spool.clone(), id: id.clone(), record: record.clone(), is_noted, offset, fits, kept }
    }

    /// Returns the body of a request in pieces of one mebibyte.
    fn body(content: &Bytes) -> Vec<Result<Bytes>> {
        (0..content.len()).step_by(MIB).map(|at| Ok(content.slice(at..content.len().min(at + MIB)))).collect()
    }

    #[tokio::test]
    async fn full_disk_ends_a_request_at_what_was_written() {
        let repo = tempfile::tempdir().unwrap();
        let upload = upload(repo.path(), 3 * MIB + 10);
        let (spool, _, id, content) = &upload;
        let first = append(request(&upload, 0, true, 0), stream::iter(body(&content.slice(..MIB))), |_| {}).await;
        assert_eq!((first.offset, first.error.is_none()), (MIB as u64, true));
        // The disk has space for the short last batch of the request, but not for the batch before it.
        *spool.free.lock() = Some(1_000 + MIB as u64 / 2);
        let pieces = stream::iter(body(&content.slice(MIB..)));
        let second = append(request(&upload, first.offset, true, 1_000), pieces, |_| {}).await;
        assert_eq!((second.offset, second.error.unwrap().kind()), (MIB as u64, ErrorKind::NoSpace));
        assert_eq!(fs::read(spool.part(id)).unwrap(), content[..MIB]);
        *spool.free.lock() = Some(1_000 + MIB as u64);
        let pieces = stream::iter(body(&content.slice(MIB..)));
        let third = append(request(&upload, second.offset, true, 1_000), pieces, |_| {}).await;
        assert_eq!((third.offset, third.error.is_none()), (content.len() as u64, true));
        assert_eq!(fs::read(spool.part(id)).unwrap(), content[..]);
    }

    /// Returns the offset that [`Spool::load`] finds, and the file length, after a crash near the end of a request.
    async fn found_after_a_crash(fits: bool) -> (u64, u64) {
        let repo = tempfile::tempdir().unwrap();
        let upload = upload(repo.path(), 6 * MIB);
        let (spool, _, id, content) = &upload;
        let start = append(request(&upload, 0, true, 0), stream::iter(body(&content.slice(..MIB))), |_| {}).await;
        let crash = repo.path().join("crash");
        fs::create_dir_all(crash.join(DIRECTORY)).unwrap();
        let (found, crashed) = (Spool::new(&crash), spool.clone());
        let (part, record) = ((found.part(id), spool.part(id)), (found.record(id), crashed.record(id)));
        // The content of the request fills the upload. At the crash, at most one batch is still being written.
        let at_crash = stream::once(async move {
            copy(record.1, record.0).unwrap();
            copy(part.1, part.0).unwrap();
            Err(Error::internal("killed"))
        });
        let pieces = stream::iter(body(&content.slice(MIB..))).chain(at_crash.boxed());
        append(request(&upload, start.offset, fits, 0), pieces, |_| {}).await;
        let offset = found.load().unwrap().pop().unwrap().offset;
        // A second load finds the same state.
        assert_eq!(found.load().unwrap().pop().unwrap().offset, offset);
        (offset, fs::metadata(found.part(id)).unwrap().len())
    }

    #[tokio::test]
    async fn crash_keeps_bytes_only_of_requests_that_fit() {
        let (offset, len) = found_after_a_crash(true).await;
        assert!(offset == len && offset >= 5 * MIB as u64, "{offset}, {len}");
        assert_eq!(found_after_a_crash(false).await, (MIB as u64, MIB as u64));
    }

    #[tokio::test]
    async fn load_cuts_a_part_that_is_longer_than_its_upload() {
        let repo = tempfile::tempdir().unwrap();
        let (spool, _, id, _) = upload(repo.path(), 10);
        fs::write(spool.part(&id), "0123456789 and more").unwrap();
        assert_eq!(spool.load().unwrap().pop().unwrap().offset, 10);
        assert_eq!(fs::read(spool.part(&id)).unwrap(), b"0123456789");
    }

    #[tokio::test]
    async fn request_of_unknown_length_leaves_the_record_as_it_was() {
        let repo = tempfile::tempdir().unwrap();
        let upload = upload(repo.path(), 4 * MIB);
        let (spool, _, id, content) = &upload;
        let record = fs::read(spool.record(id)).unwrap();
        let broken = stream::iter(body(&content.slice(..2 * MIB))).chain(stream::iter([Err(Error::internal("cut"))]));
        let kept = append(request(&upload, 0, false, 0), broken, |_| {}).await;
        assert_eq!((kept.offset, kept.error.is_some()), (2 * MIB as u64, true));
        assert_eq!(fs::read(spool.record(id)).unwrap(), record);
        let long = stream::iter(body(&content.slice(..3 * MIB)));
        let refused = append(request(&upload, kept.offset, false, 0), long, |_| {}).await;
        assert_eq!((refused.offset, refused.error.unwrap().kind()), (kept.offset, ErrorKind::TooLarge));
        assert_eq!(fs::metadata(spool.part(id)).unwrap().len(), kept.offset);
        assert_eq!(fs::read(spool.record(id)).unwrap(), record);
    }

    #[tokio::test]
    async fn note_that_could_not_be_removed_is_removed_by_the_next_request() {
        let repo = tempfile::tempdir().unwrap();
        let upload = upload(repo.path(), 6 * MIB);
        let (spool, _, id, content) = &upload;
        // The note cannot be removed: another file has the name that the new record is written to.
        let in_the_way = repo.path().join(DIRECTORY).join(format!("{id}.json.new"));
        let blocked = in_the_way.clone();
        let block = stream::once(async move {
            fs::create_dir(&blocked).unwrap();
            Err(Error::internal("cut"))
        });
        let first = request(&upload, 0, false, 0);
        let is_noted = Arc::clone(&first.is_noted);
        let pieces = stream::iter(body(&content.slice(..3 * MIB))).chain(block.boxed());
        let failed = append(first, pieces, |_| {}).await;
        assert_eq!((failed.offset, failed.error.is_some()), (0, true));
        fs::remove_dir(in_the_way).unwrap();
        let second = Append { is_noted, ..request(&upload, 0, true, 0) };
        let done = append(second, stream::iter(body(content)), |_| {}).await;
        assert_eq!((done.offset, done.error.is_none()), (content.len() as u64, true));
        assert_eq!(spool.load().unwrap().pop().unwrap().offset, content.len() as u64, "after a restart");
    }
}
