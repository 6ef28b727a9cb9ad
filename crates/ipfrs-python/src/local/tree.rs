//! Local files and directory trees, read ahead of the importer by their own thread.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use ipfrs_core::{Error, Result};
use ipfrs_rpc::client::{Attributes, TreeVisitor, WalkOptions, read_piece, walk};
use tokio::sync::mpsc;

/// Size of a piece in bytes. At most [`EVENTS_AHEAD`] events are read ahead.
const PIECE_BYTES: usize = 256 * 1024;
const EVENTS_AHEAD: usize = 8;

/// The next item of a tree. Paths begin with the name of the root, and are separated by slashes.
#[derive(Debug)]
pub(super) enum TreeEvent {
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
pub(super) struct Tree {
    events: mpsc::Receiver<Result<TreeEvent>>,
}

impl Tree {
    /// Starts to read the file or directory at `path`. Must be called within the runtime.
    pub(super) fn read(path: PathBuf, options: WalkOptions) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_AHEAD);
        tokio::task::spawn_blocking(move || {
            let mut events = Events { sender };
            if let Err(error) = walk(&path, &options, &mut events) {
                // Fails if the importer no longer reads the events.
                let _ = events.sender.blocking_send(Err(error));
            }
        });
        Self { events }
    }

    /// Returns the next event, or `None` at the end. An error is the last item.
    pub(super) async fn next(&mut self) -> Option<Result<TreeEvent>> {
        self.events.recv().await
    }

    /// Returns the content of the current file, up to its end.
    pub(super) fn content(&mut self) -> FileContent<'_> {
        FileContent { tree: self, has_ended: false }
    }
}

/// Content of a file in a [`Tree`].
pub(super) struct FileContent<'a> {
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
        self.send(TreeEvent::File { path: path.to_vec(), attributes })?;
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
