//! Imports of local files and directory trees. Their own thread reads them ahead of the importer.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use futures::Stream;
#[cfg(doc)]
use ipfrs_core::ErrorKind;
use ipfrs_core::{Error, Result};
use ipfrs_unixfs::Attributes;
use ipfrs_unixfs::local_tree::{TreeVisitor, WalkOptions, read_piece, walk};
use tokio::sync::mpsc;

use super::{AddOptions, Added};
use crate::Node;

/// Size of a piece in bytes. At most [`EVENTS_AHEAD`] events are read ahead.
const PIECE_BYTES: usize = 256 * 1024;
const EVENTS_AHEAD: usize = 8;

/// Number of entries of a tree between checks for entries that have become durable.
const ENTRIES_PER_LOOK: usize = 256;

/// Options of [`Node::add_path`].
pub struct AddPathOptions<'a> {
    /// Options of the import.
    pub add: AddOptions,
    /// Which entries are imported, and the name of the root in a wrapping directory.
    pub walk: WalkOptions,
    /// Called with the number of bytes of each piece that was imported, by the task that waits for the import.
    pub progress: Option<Box<dyn FnMut(u64) + Send + 'a>>,
}

/// The default options, which follow a symlink at the root.
impl Default for AddPathOptions<'_> {
    fn default() -> Self {
        let walk = WalkOptions { follow_root: true, ..WalkOptions::default() };
        Self { add: AddOptions::default(), walk, progress: None }
    }
}

impl From<AddOptions> for AddPathOptions<'_> {
    fn from(add: AddOptions) -> Self {
        Self { add, ..Self::default() }
    }
}

impl fmt::Debug for AddPathOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddPathOptions").field("add", &self.add).field("walk", &self.walk).finish_non_exhaustive()
    }
}

impl Node {
    /// Imports the local file or directory at `path` and pins it, unless the options say otherwise. Returns its root,
    /// whose blocks are durable. Entries of directories that begin with a dot are included only with
    /// [`WalkOptions::hidden`], as in Kubo's `add`. Dropping the future ends the import; gc removes what it has
    /// written.
    ///
    /// # Errors
    /// As [`Self::add`]; also the error of the file system for an entry that cannot be read, with its path, and
    /// [`ErrorKind::InvalidInput`] for devices, sockets and pipes.
    pub async fn add_path<'a>(
        &self,
        path: impl Into<PathBuf>,
        options: impl Into<AddPathOptions<'a>>,
    ) -> Result<Added> {
        let AddPathOptions { add, walk, mut progress } = options.into();
        let mut session = self.add(add).await?;
        let mut tree = Tree::read(path.into(), walk)?;
        let (mut entries, mut latest) = (0, None);
        while let Some(event) = tree.events.recv().await.transpose()? {
            match event {
                TreeEvent::Directory { path, attributes } => session.directory(&path, attributes).await?,
                TreeEvent::Symlink { path, attributes, target } => session.symlink(&path, attributes, &target).await?,
                TreeEvent::File { path, source, attributes } => {
                    let mut counted = 0;
                    let count = |total: u64| {
                        if let Some(progress) = &mut progress {
                            progress(total.saturating_sub(counted));
                            counted = total;
                        }
                    };
                    session.file_at(&path, source.as_deref(), attributes, tree.content(), count).await?;
                }
                TreeEvent::Piece(_) | TreeEvent::FileEnd => {
                    return Err(Error::internal("received content without a file"));
                }
            }
            entries += 1;
            if entries % ENTRIES_PER_LOOK == 0 {
                latest = session.acknowledged().await?.pop().or(latest);
            }
        }
        // The import holds what was not acknowledged, and a tree may have millions of directories.
        while session.build_next().await? {
            entries += 1;
            if entries % ENTRIES_PER_LOOK == 0 {
                latest = session.acknowledged().await?.pop().or(latest);
            }
        }
        let last = session.finish().await?.pop().or(latest);
        last.ok_or_else(|| Error::internal("an import has no root"))
    }
}

/// The next item of a tree. Paths begin with the name of the root, and are separated by slashes.
#[derive(Debug)]
enum TreeEvent {
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
        /// Absolute path in the file system; `None` if the working directory is unknown.
        source: Option<PathBuf>,
        attributes: Attributes,
    },
    Piece(Bytes),
    FileEnd,
}

/// A tree that its own thread reads ahead into a bounded queue.
struct Tree {
    /// An error is the last item.
    events: mpsc::Receiver<Result<TreeEvent>>,
}

impl Tree {
    /// Starts to read the file or directory at `path`. The thread lives as long as the import, so it is none of the
    /// runtime's, which the import itself needs.
    fn read(path: PathBuf, options: WalkOptions) -> Result<Self> {
        let (sender, events) = mpsc::channel(EVENTS_AHEAD);
        let read = move || {
            let mut events = Events { sender };
            if let Err(error) = walk(&path, &options, &mut events) {
                // Fails if the importer no longer reads the events.
                let _ = events.sender.blocking_send(Err(error));
            }
        };
        let started = thread::Builder::new().name("ipfrs-add".to_owned()).spawn(read);
        started.map_err(|e| Error::io("cannot start a thread that reads local files", e))?;
        Ok(Self { events })
    }

    /// Returns the content of the current file, up to its end.
    fn content(&mut self) -> FileContent<'_> {
        FileContent { tree: self, has_ended: false }
    }
}

/// Content of a file in a [`Tree`].
struct FileContent<'a> {
    tree: &'a mut Tree,
    has_ended: bool,
}

impl Stream for FileContent<'_> {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let event = ready!(self.tree.events.poll_recv(cx));
        self.has_ended = !matches!(event, Some(Ok(TreeEvent::Piece(_))));
        Poll::Ready(match event {
            Some(Ok(TreeEvent::Piece(piece))) => Some(Ok(piece)),
            Some(Ok(TreeEvent::FileEnd)) => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(_)) | None => Some(Err(Error::internal("a file ended without an end event"))),
        })
    }
}

/// Sends what it visits as events.
struct Events {
    sender: mpsc::Sender<Result<TreeEvent>>,
}

impl Events {
    fn send(&self, event: TreeEvent) -> Result<()> {
        self.sender.blocking_send(Ok(event)).map_err(|_| Error::internal("the tree is no longer read"))
    }
}

impl TreeVisitor for Events {
    fn directory(&mut self, path: &[u8], attributes: Attributes) -> Result<()> {
        self.send(TreeEvent::Directory { path: path.to_vec(), attributes })
    }

    fn symlink(&mut self, path: &[u8], attributes: Attributes, target: &[u8]) -> Result<()> {
        self.send(TreeEvent::Symlink { path: path.to_vec(), attributes, target: target.to_vec() })
    }

    fn file(&mut self, path: &[u8], attributes: Attributes, source: &Path, content: &mut dyn Read) -> Result<()> {
        self.send(TreeEvent::File { path: path.to_vec(), source: std::path::absolute(source).ok(), attributes })?;
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = read_piece(source, content, PIECE_BYTES, &mut piece)?;
            if read > 0 {
                self.send(TreeEvent::Piece(Bytes::from(piece)))?;
            }
            if read < PIECE_BYTES {
                return self.send(TreeEvent::FileEnd);
            }
        }
    }
}
