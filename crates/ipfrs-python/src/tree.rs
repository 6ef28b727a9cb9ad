//! Local files and directory trees, read ahead of the importer in the order in which Kubo adds them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use ipfrs_core::{Error, Result};
use tokio::sync::mpsc;

use crate::backing::{AddOptions, Progress};

/// Size of a piece in bytes. At most [`PIECES_AHEAD`] events are read ahead.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_AHEAD: usize = 8;

/// Maximum depth of nested directories. Limits of local paths apply long before.
const MAX_DEPTH: usize = 1_024;

/// Permissions and modification time of an entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// The lowest 12 bits of `st_mode`.
    pub(crate) mode: u32,
    /// Modification time in seconds since 1970, and nanoseconds.
    pub(crate) mtime: (i64, u32),
}

/// The next item of a tree. Paths begin with the name of the root, and are separated by slashes.
#[derive(Debug)]
pub(crate) enum TreeEvent {
    Directory {
        path: Vec<u8>,
        attributes: Attributes,
    },
    Symlink {
        path: Vec<u8>,
        attributes: Attributes,
        target: Vec<u8>,
    },
    /// A file. Its content follows in pieces, and then [`Self::FileEnd`].
    File {
        path: Vec<u8>,
        attributes: Attributes,
    },
    Piece(Bytes),
    FileEnd,
}

/// A tree that its own thread reads ahead into a bounded queue.
pub(crate) struct Tree {
    events: mpsc::Receiver<Result<TreeEvent>>,
}

impl Tree {
    /// Starts to read the file or directory at `path`, under the name in `options`, or else its last component.
    /// Directory entries whose names begin with a dot are skipped unless `options.hidden` is set. Reports the total
    /// size of the files to `progress`, if given. Must be called within the runtime.
    pub(crate) fn read(path: PathBuf, options: &AddOptions, progress: Option<Progress>) -> Self {
        let hidden = options.hidden;
        // The name is only used in a wrapping directory.
        let name =
            Some(options.name.as_bytes().to_vec()).filter(|name| options.wrap_with_directory && !name.is_empty());
        let (sender, events) = mpsc::channel(PIECES_AHEAD);
        if let Some(progress) = progress {
            let path = path.clone();
            // The import reports unreadable files.
            tokio::task::spawn_blocking(move || progress.expect(size_of_tree(&path, hidden, 0)));
        }
        tokio::task::spawn_blocking(move || {
            let walk = Walk { sender, hidden };
            if let Err(Stop::Failed(error)) = walk.start(&path, name) {
                let _ = walk.sender.blocking_send(Err(error));
            }
        });
        Self { events }
    }

    /// Returns the next event, or `None` at the end. An error is the last item.
    pub(crate) async fn next(&mut self) -> Option<Result<TreeEvent>> {
        self.events.recv().await
    }

    /// Returns the content of the current file, up to its end.
    pub(crate) fn content(&mut self) -> FileContent<'_> {
        FileContent { tree: self, has_ended: false }
    }
}

/// Content of a file in a [`Tree`].
pub(crate) struct FileContent<'a> {
    tree: &'a mut Tree,
    has_ended: bool,
}

impl Stream for FileContent<'_> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let event = std::task::ready!(self.tree.events.poll_recv(cx));
        self.has_ended = !matches!(event, Some(Ok(TreeEvent::Piece(_))));
        Poll::Ready(match event {
            Some(Ok(TreeEvent::Piece(piece))) => Some(Ok(piece)),
            Some(Ok(TreeEvent::FileEnd)) => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(_)) | None => Some(Err(Error::internal("a file ended without an end event"))),
        })
    }
}

/// Reason for stopping early.
enum Stop {
    /// The importer no longer reads the events.
    Unwanted,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

struct Walk {
    sender: mpsc::Sender<Result<TreeEvent>>,
    hidden: bool,
}

impl Walk {
    fn start(&self, path: &Path, name: Option<Vec<u8>>) -> Result<(), Stop> {
        if let Some(name) = name {
            return self.entry(path, name, 0);
        }
        // "." and ".." have no file name.
        let resolved = match path.file_name() {
            Some(_) => path.to_owned(),
            None => fs::canonicalize(path).map_err(|e| unreadable(path, e))?,
        };
        let Some(name) = resolved.file_name() else {
            return Err(Error::invalid(format!("{} has no name to add it under", path.display())).into());
        };
        self.entry(path, name.as_bytes().to_vec(), 0)
    }

    fn entry(&self, path: &Path, name: Vec<u8>, depth: usize) -> Result<(), Stop> {
        let metadata = metadata(path, depth).map_err(|e| unreadable(path, e))?;
        let (kind, attributes) = (metadata.file_type(), attributes(&metadata));
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(|e| unreadable(path, e))?;
            let target = target.into_os_string().into_vec();
            return self.send(TreeEvent::Symlink { path: name, attributes, target });
        }
        if kind.is_dir() {
            if depth == MAX_DEPTH {
                let message = format!("{} is more than {MAX_DEPTH} directories deep", path.display());
                return Err(Error::too_large(message).into());
            }
            self.send(TreeEvent::Directory { path: name.clone(), attributes })?;
            for entry in names(path, self.hidden).map_err(|e| unreadable(path, e))? {
                let path = path.join(&entry);
                let name = [&name, &b"/"[..], entry.as_bytes()].concat();
                self.entry(&path, name, depth + 1)?;
            }
            return Ok(());
        }
        if kind.is_file() {
            let (file, metadata) = open(path, depth).map_err(|e| unreadable(path, e))?;
            if metadata.is_file() {
                self.send(TreeEvent::File { path: name, attributes: self::attributes(&metadata) })?;
                return self.content(path, file);
            }
        }
        let message = format!(
            "{} is neither a file nor a directory nor a symlink: move it away, or add the others by name",
            path.display()
        );
        Err(Error::invalid(message).into())
    }

    fn content(&self, path: &Path, mut file: File) -> Result<(), Stop> {
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
            let read = read.map_err(|e| unreadable(path, e))?;
            if read > 0 {
                self.send(TreeEvent::Piece(Bytes::from(piece)))?;
            }
            if read < PIECE_BYTES {
                return self.send(TreeEvent::FileEnd);
            }
        }
    }

    fn send(&self, event: TreeEvent) -> Result<(), Stop> {
        self.sender.blocking_send(Ok(event)).map_err(|_| Stop::Unwanted)
    }
}

/// Returns metadata, following a symlink only at the root, because a user who names a symlink means its target.
fn metadata(path: &Path, depth: usize) -> io::Result<Metadata> {
    if depth == 0 { fs::metadata(path) } else { fs::symlink_metadata(path) }
}

/// Opens an entry that was a file when it was listed, and returns its current metadata. A symlink that has replaced
/// it is not followed, and a pipe does not block.
fn open(path: &Path, depth: usize) -> io::Result<(File, Metadata)> {
    let unfollowed = if depth == 0 { 0 } else { libc::O_NOFOLLOW };
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | unfollowed).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    Error::io(format_args!("cannot read {}", path.display()), error)
}

fn attributes(metadata: &Metadata) -> Attributes {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Attributes { mode: metadata.mode() & 0o7777, mtime: (metadata.mtime(), nanos) }
}

/// Returns the names in a directory in byte order.
fn names(path: &Path, hidden: bool) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name()));
    let is_wanted = |name: &OsStr| hidden || !name.as_bytes().starts_with(b".");
    let names = names.filter(|name| name.as_ref().map_or(true, |name| is_wanted(name)));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

fn size_of_tree(path: &Path, hidden: bool, depth: usize) -> u64 {
    match metadata(path, depth) {
        Ok(metadata) if metadata.is_dir() && depth < MAX_DEPTH => {
            let names = names(path, hidden).unwrap_or_default();
            names.iter().map(|name| size_of_tree(&path.join(name), hidden, depth + 1)).sum()
        }
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    }
}
