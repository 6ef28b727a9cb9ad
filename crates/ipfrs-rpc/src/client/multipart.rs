//! Multipart bodies for `add` and other commands that take files, with one part per file, directory and symlink.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_unixfs::Attributes;
use ipfrs_unixfs::local_tree::{TreeVisitor, WalkOptions, read_piece, walk};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use tokio::sync::mpsc;

use super::Pieces;
use crate::mode::go_mode;

/// Size of a piece of the body, in bytes. The thread that reads the sources stays at most [`PIECES_AHEAD`] pieces
/// ahead of the connection.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES_AHEAD: usize = 4;

const FILE: &str = "application/octet-stream";
const DIRECTORY: &str = "application/x-directory";
const SYMLINK: &str = "application/symlink";

/// A generator for the text between the contents of parts.
#[derive(Debug)]
pub struct Form {
    boundary: String,
    /// Whether a part has been started.
    has_parts: bool,
}

impl Default for Form {
    fn default() -> Self {
        Self::new()
    }
}

impl Form {
    /// Creates a form with a random boundary.
    #[must_use]
    pub fn new() -> Self {
        // Content that contained the boundary would end its part early, so an attacker must not be able to predict
        // it.
        let random = || RandomState::new().build_hasher().finish();
        Self { boundary: format!("ipfrs-{:016x}{:016x}", random(), random()), has_parts: false }
    }

    /// Returns the media type of the body.
    #[must_use]
    pub fn media_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// Returns the text before the content of a file, including the end of the previous part.
    pub fn file(&mut self, path: &[u8], attributes: Attributes) -> String {
        self.part(path, attributes, FILE, None)
    }

    fn part(&mut self, path: &[u8], attributes: Attributes, media_type: &str, source: Option<&Path>) -> String {
        let before = if std::mem::replace(&mut self.has_parts, true) { "\r\n" } else { "" };
        // As in Kubo's clients, the field name has the attributes, and the whole path is escaped, including its
        // slashes. The daemon decides which attributes to keep.
        let mode = attributes.mode.map(|mode| format!("mode=0{:o}", go_mode(mode)));
        let mtime = attributes.mtime.map(|time| format!("mtime={}&mtime-nsecs={}", time.seconds, time.nanos));
        let attributes: Vec<_> = [mode, mtime].into_iter().flatten().collect();
        let query = if attributes.is_empty() { String::new() } else { format!("?{}", attributes.join("&")) };
        let source = source.map(|source| percent_encode(source.as_os_str().as_bytes(), NON_ALPHANUMERIC));
        let source = source.map(|source| format!("Abspath-Encoded: {source}\r\n")).unwrap_or_default();
        format!(
            "{before}--{}\r\nContent-Disposition: form-data; name=\"file{}\"; filename=\"{}\"\r\n\
             Content-Type: {media_type}\r\n{source}\r\n",
            self.boundary,
            query,
            percent_encode(path, NON_ALPHANUMERIC)
        )
    }

    /// Returns the text after the last part.
    #[must_use]
    pub fn end(&self) -> String {
        let before = if self.has_parts { "\r\n" } else { "" };
        format!("{before}--{}--\r\n", self.boundary)
    }
}

/// Content of a multipart body.
pub enum Source {
    /// A file.
    Reader {
        /// Its name, which may be empty.
        file_name: String,
        /// Its content.
        content: Box<dyn Read + Send>,
        /// How errors call it.
        name: &'static str,
    },
    /// A file or directory.
    Tree {
        /// Its local path.
        path: PathBuf,
        /// How to walk over it.
        options: WalkOptions,
        /// Whether the body has the absolute path of each file, for imports with `nocopy`.
        sends_paths: bool,
    },
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Reader { name, .. } => f.write_str(name),
            Self::Tree { path, .. } => path.fmt(f),
        }
    }
}

/// Returns the media type and the pieces of a body that contains `sources`. A thread reads them ahead of the
/// connection. `sent` is called with the number of bytes of content, without the text between parts, as pieces are
/// passed on. Must be called within a runtime.
pub fn multipart(sources: Vec<Source>, mut sent: impl FnMut(u64) + Send + 'static) -> (String, Pieces) {
    let form = Form::new();
    let media_type = form.media_type();
    let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
    let mut writer =
        Writer { sender, form, piece: Vec::with_capacity(PIECE_BYTES), content_bytes: 0, sends_paths: false };
    tokio::task::spawn_blocking(move || {
        if let Err(error) = writer.write(sources) {
            // Fails if the connection no longer reads the body.
            let _ = writer.sender.blocking_send(Err(error));
        }
    });
    let pieces =
        stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|piece| (piece, receiver)) });
    let pieces = pieces.map(move |piece| {
        piece.map(|(piece, content_bytes)| {
            sent(content_bytes);
            piece
        })
    });
    (media_type, pieces.boxed())
}

struct Writer {
    sender: mpsc::Sender<Result<(Bytes, u64)>>,
    form: Form,
    piece: Vec<u8>,
    /// Bytes of content in the piece.
    content_bytes: u64,
    /// Whether parts have the paths of their files.
    sends_paths: bool,
}

impl Writer {
    fn write(&mut self, sources: Vec<Source>) -> Result<()> {
        for source in sources {
            match source {
                Source::Reader { file_name, mut content, name } => {
                    let head = self.form.file(file_name.as_bytes(), Attributes::default());
                    self.append(head.as_bytes())?;
                    self.content(Path::new(name), &mut content)?;
                }
                Source::Tree { path, options, sends_paths } => {
                    self.sends_paths = sends_paths;
                    walk(&path, &options, self)?;
                }
            }
        }
        let end = self.form.end();
        self.append(end.as_bytes())?;
        self.send()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES { self.send() } else { Ok(()) }
    }

    fn content(&mut self, path: &Path, content: &mut dyn Read) -> Result<()> {
        loop {
            let free_bytes = PIECE_BYTES.saturating_sub(self.piece.len());
            let read = read_piece(path, content, free_bytes, &mut self.piece)?;
            self.content_bytes += read as u64;
            if read < free_bytes {
                return Ok(());
            }
            self.send()?;
        }
    }

    fn send(&mut self) -> Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let content_bytes = std::mem::take(&mut self.content_bytes);
        let sent = self.sender.blocking_send(Ok((piece.into(), content_bytes)));
        sent.map_err(|_| Error::internal("the body is no longer read"))
    }
}

impl TreeVisitor for Writer {
    fn directory(&mut self, path: &[u8], attributes: Attributes) -> Result<()> {
        let head = self.form.part(path, attributes, DIRECTORY, None);
        self.append(head.as_bytes())
    }

    fn symlink(&mut self, path: &[u8], attributes: Attributes, target: &[u8]) -> Result<()> {
        let head = self.form.part(path, attributes, SYMLINK, None);
        self.append(head.as_bytes())?;
        self.append(target)
    }

    fn file(&mut self, path: &[u8], attributes: Attributes, source: &Path, content: &mut dyn Read) -> Result<()> {
        let absolute = self.sends_paths.then(|| std::path::absolute(source).ok()).flatten();
        let head = self.form.part(path, attributes, FILE, absolute.as_deref());
        self.append(head.as_bytes())?;
        self.content(source, content)
    }
}
