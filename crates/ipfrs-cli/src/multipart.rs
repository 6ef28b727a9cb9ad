//! Uploads: files and directory trees as a multipart body, read from disk while the body is sent.

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Result, anyhow, bail};
use axum::body::Body;
use bytes::Bytes;
use futures::{TryStreamExt, stream};
use tokio::sync::mpsc;

use crate::progress::Progress;
use crate::uri::escape;

/// Size of a piece of the body, in bytes. The reader thread stays at most [`PIECES_AHEAD`] pieces ahead of the
/// connection.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_AHEAD: usize = 4;

/// A file, directory or stream named on the command line.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Stdin,
    Path { path: PathBuf, name: Vec<u8> },
}

impl Source {
    /// Returns the sources that `paths` name. No path, and the path `-`, mean standard input.
    pub(crate) fn of(paths: &[PathBuf], is_recursive: bool) -> Result<Vec<Self>> {
        if paths.is_empty() {
            return Ok(vec![Self::Stdin]);
        }
        paths
            .iter()
            .map(|path| if path == Path::new("-") { Ok(Self::Stdin) } else { Self::path(path, is_recursive) })
            .collect()
    }

    fn path(path: &Path, is_recursive: bool) -> Result<Self> {
        let metadata = fs::symlink_metadata(path).map_err(|e| anyhow!("cannot read {}: {e}", path.display()))?;
        if metadata.is_dir() && !is_recursive {
            bail!("{} is a directory: use -r to add it recursively", path.display());
        }
        // "." and ".." have no file name.
        let resolved = match path.file_name() {
            Some(_) => path.to_owned(),
            None => fs::canonicalize(path).map_err(|e| anyhow!("cannot read {}: {e}", path.display()))?,
        };
        let Some(name) = resolved.file_name() else { bail!("{} has no name to add it under", path.display()) };
        Ok(Self::Path { path: path.to_owned(), name: name.as_bytes().to_owned() })
    }
}

/// A multipart body, written by its own thread into a bounded queue.
#[derive(Debug)]
pub(crate) struct Upload {
    boundary: String,
    body: Option<Body>,
    failure: Arc<OnceLock<String>>,
}

impl Upload {
    /// Starts to read `sources`. Hidden directory entries are skipped unless `with_hidden` is true.
    pub(crate) fn start(sources: Vec<Source>, with_hidden: bool) -> Self {
        let boundary = boundary();
        let failure = Arc::new(OnceLock::new());
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let mut writer =
            Writer { sender, boundary: boundary.clone(), buffer: Vec::with_capacity(PIECE_BYTES), with_hidden };
        let writer_failure = Arc::clone(&failure);
        tokio::task::spawn_blocking(move || {
            if let Err(Stop::Failed(message)) = writer.write(&sources) {
                // The error makes the connection close early, so that the server does not take the body for complete.
                let error = io::Error::other(message.clone());
                let _ = writer_failure.set(message);
                let _ = writer.sender.blocking_send(Err(error));
            }
        });
        let pieces =
            stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|piece| (piece, receiver)) });
        Self { boundary, body: Some(Body::from_stream(pieces)), failure }
    }

    /// Reports all bytes of the body to `progress` as they are sent.
    pub(crate) fn counted(mut self, progress: &Progress) -> Self {
        let progress = progress.clone();
        let count = move |piece: &Bytes| progress.done(piece.len() as u64);
        self.body = self.body.map(|body| Body::from_stream(body.into_data_stream().inspect_ok(count)));
        self
    }

    pub(crate) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// Takes the body. Later calls return an empty body.
    pub(crate) fn take_body(&mut self) -> Body {
        self.body.take().unwrap_or_default()
    }

    /// Returns the reason for a failed request: the local read error if there was one, and `error` otherwise.
    pub(crate) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match self.failure.get() {
            Some(message) => anyhow!("{message}"),
            None => error,
        }
    }
}

/// Returns a random boundary. Content that contained the boundary would end its part early, so an attacker must not
/// be able to predict it.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("ipfrs-{:016x}{:016x}", random(), random())
}

/// Reason for stopping early.
enum Stop {
    /// The connection no longer reads the body.
    Unwanted,
    Failed(String),
}

struct Writer {
    sender: mpsc::Sender<io::Result<Bytes>>,
    boundary: String,
    buffer: Vec<u8>,
    with_hidden: bool,
}

impl Writer {
    fn write(&mut self, sources: &[Source]) -> Result<(), Stop> {
        for source in sources {
            match source {
                Source::Stdin => {
                    self.head(b"", None, "application/octet-stream")?;
                    self.content(Path::new("standard input"), io::stdin().lock())?;
                }
                Source::Path { path, name } => self.tree(path, name)?,
            }
        }
        self.text(&format!("--{}--\r\n", self.boundary))?;
        self.send()
    }

    fn tree(&mut self, path: &Path, name: &[u8]) -> Result<(), Stop> {
        let failed = |e: io::Error| Stop::Failed(format!("cannot read {}: {e}", path.display()));
        let metadata = fs::symlink_metadata(path).map_err(failed)?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(failed)?;
            self.head(name, Some(&metadata), "application/symlink")?;
            self.append(target.as_os_str().as_bytes())?;
            self.text("\r\n")
        } else if kind.is_dir() {
            self.head(name, Some(&metadata), "application/x-directory")?;
            self.text("\r\n")?;
            for entry in entries(path, self.with_hidden).map_err(failed)? {
                self.tree(&path.join(&entry), &[name, b"/", entry.as_bytes()].concat())?;
            }
            Ok(())
        } else if kind.is_file() {
            let file = File::open(path).map_err(failed)?;
            self.head(name, Some(&metadata), "application/octet-stream")?;
            self.content(path, file)
        } else {
            Err(Stop::Failed(format!(
                "{} is neither a file nor a directory nor a symlink: move it away, or add the others by name",
                path.display()
            )))
        }
    }

    /// Writes the head of a part. As in Kubo's clients, the whole path is escaped, including its slashes.
    fn head(&mut self, name: &[u8], metadata: Option<&Metadata>, content_type: &str) -> Result<(), Stop> {
        let attributes = metadata.map(attributes).unwrap_or_default();
        let head = format!(
            "--{}\r\nContent-Disposition: form-data; name=\"file{attributes}\"; filename=\"{}\"\r\nContent-Type: {content_type}\r\n\r\n",
            self.boundary,
            escape(name)
        );
        self.text(&head)
    }

    fn content(&mut self, path: &Path, mut content: impl Read) -> Result<(), Stop> {
        loop {
            let free_bytes = PIECE_BYTES.saturating_sub(self.buffer.len());
            let read = content.by_ref().take(free_bytes as u64).read_to_end(&mut self.buffer);
            let read = read.map_err(|e| Stop::Failed(format!("cannot read {}: {e}", path.display())))?;
            if read < free_bytes {
                return self.text("\r\n");
            }
            self.send()?;
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Stop> {
        self.append(text.as_bytes())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), Stop> {
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES));
        self.sender.blocking_send(Ok(Bytes::from(piece))).map_err(|_| Stop::Unwanted)
    }
}

/// Returns the mode and modification time in the form that Kubo's clients append to the name of a part. The server
/// decides which of them to keep.
fn attributes(metadata: &Metadata) -> String {
    // The bits of Go's `FileMode` for set-user-ID, set-group-ID and sticky.
    let special = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];
    let special: u32 = special.iter().filter(|(unix, _)| metadata.mode() & unix != 0).map(|(_, go)| go).sum();
    let mode = metadata.mode() & 0o777 | special;
    format!("?mode=0{mode:o}&mtime={}&mtime-nsecs={}", metadata.mtime(), metadata.mtime_nsec())
}

/// Returns the names in a directory in byte order, the order in which Kubo adds them.
fn entries(path: &Path, with_hidden: bool) -> io::Result<Vec<std::ffi::OsString>> {
    let names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name()));
    let is_wanted = |name: &OsStr| with_hidden || !name.as_bytes().starts_with(b".");
    let names = names.filter(|name| name.as_ref().map_or(true, |name| is_wanted(name)));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Starts a thread that computes the total size of `sources` for `progress`. The upload reports unreadable files. The
/// total is unknown if standard input is among the sources.
pub(crate) fn measure(sources: &[Source], with_hidden: bool, progress: &Progress) {
    let paths: Option<Vec<PathBuf>> = sources
        .iter()
        .map(|source| match source {
            Source::Stdin => None,
            Source::Path { path, .. } => Some(path.clone()),
        })
        .collect();
    let (Some(paths), true) = (paths, progress.is_shown()) else { return };
    let progress = progress.clone();
    tokio::task::spawn_blocking(move || {
        progress.expect(paths.iter().map(|path| size_of_tree(path, with_hidden)).sum())
    });
}

fn size_of_tree(path: &Path, with_hidden: bool) -> u64 {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            let names = entries(path, with_hidden).unwrap_or_default();
            names.iter().map(|name| size_of_tree(&path.join(name), with_hidden)).sum()
        }
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    }
}
