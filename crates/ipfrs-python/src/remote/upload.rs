//! Imports: uploads to a daemon, and their results.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use reqwest::Body;
use serde::Deserialize;

use super::files::SPECIAL_BITS;
use super::http::{Call, Http};
use super::multipart::Form;
use super::patience::Sending;
use crate::backing::{AddOptions, Added, Pieces, Progress};
use crate::tree::{Attributes, Tree, TreeEvent};

/// Content being sent. It is dropped when the call ends, because a connection whose peer does not read would keep it
/// alive.
pub(super) struct Outgoing(Arc<Mutex<Option<Pieces>>>);

impl Outgoing {
    pub(super) fn new(pieces: Pieces) -> Self {
        Self(Arc::new(Mutex::new(Some(pieces.fuse().boxed()))))
    }

    /// Returns the body of a request. It records in `sending` which side has to act next.
    pub(super) fn body(&self, sending: Sending) -> Body {
        let pieces = Arc::clone(&self.0);
        Body::wrap_stream(stream::poll_fn(move |cx| {
            let mut pieces = pieces.lock();
            // Ending the stream would make the daemon take the received part for the whole content.
            let Some(left) = pieces.as_mut() else { return Poll::Ready(Some(Err(aborted()))) };
            let polled = left.poll_next_unpin(cx);
            if polled.is_pending() {
                sending.is_ours();
            } else {
                sending.is_theirs();
            }
            polled.map_err(|error| sending.fail(error))
        }))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Drop the pieces without holding the lock, because dropping them may wait for Python.
        let pieces = self.0.lock().take();
        drop(pieces);
    }
}

fn aborted() -> Error {
    Error::new(ErrorKind::Unavailable, "the call was aborted")
}

/// Media type of files.
const FILE: &str = "application/octet-stream";

/// Imports one file.
pub(super) async fn add(http: &Http, content: Pieces, options: &AddOptions) -> Result<Added> {
    // The name is only used in a wrapping directory.
    if options.name.is_empty() || !options.wrap_with_directory {
        return send(http, options, FILE, content).await;
    }
    let mut form = Form::new();
    let (head, end) = (form.part(options.name.as_bytes(), "", FILE), form.end());
    let text = |text: String| stream::iter([Ok(Bytes::from(text))]);
    let body = text(head).chain(content).chain(text(end)).boxed();
    send(http, options, &form.content_type(), body).await
}

/// Imports the file or directory at `path`.
pub(super) async fn add_path(
    http: &Http,
    path: PathBuf,
    options: &AddOptions,
    progress: Option<Progress>,
) -> Result<Added> {
    let form = Form::new();
    let media_type = form.content_type();
    let walk = Walk { tree: Some(Tree::read(path, options, progress.clone())), form, progress };
    let body = stream::try_unfold(walk, async |mut walk| Ok(walk.next().await?.map(|piece| (piece, walk))));
    send(http, options, &media_type, body.boxed()).await
}

/// A tree that is converted to a multipart body.
struct Walk {
    /// `None` at the end.
    tree: Option<Tree>,
    form: Form,
    progress: Option<Progress>,
}

impl Walk {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let Some(tree) = &mut self.tree else { return Ok(None) };
            let Some(event) = tree.next().await.transpose()? else {
                self.tree = None;
                return Ok(Some(self.form.end().into()));
            };
            return Ok(Some(match event {
                TreeEvent::Directory { path, attributes } => {
                    self.form.part(&path, &text(attributes), "application/x-directory").into()
                }
                TreeEvent::Symlink { path, attributes, target } => {
                    let head = self.form.part(&path, &text(attributes), "application/symlink");
                    [head.as_bytes(), &target].concat().into()
                }
                TreeEvent::File { path, attributes } => self.form.part(&path, &text(attributes), FILE).into(),
                TreeEvent::Piece(piece) => {
                    self.progress.iter().for_each(|progress| progress.advance(piece.len() as u64));
                    piece
                }
                TreeEvent::FileEnd => continue,
            }));
        }
    }
}

/// Returns the mode and modification time in the form that Kubo's clients append to a field name. The daemon decides
/// which of them to keep.
fn text(attributes: Attributes) -> String {
    let (seconds, nanos) = attributes.mtime;
    format!("?mode=0{:o}&mtime={seconds}&mtime-nsecs={nanos}", go_mode(attributes.mode))
}

/// One line of the response. The last line is that of the root.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    hash: String,
    size: String,
}

/// Sends `body` for import.
async fn send(http: &Http, options: &AddOptions, media_type: &str, body: Pieces) -> Result<Added> {
    let (outgoing, sending) = (Outgoing::new(body), Sending::default());
    let call = query(Call::command("add"), options).with_trailers();
    let call = call.streams(media_type, outgoing.body(sending.clone()), sending.clone())?;
    let last = async { http.send(call).await?.last_line::<Line>().await };
    let last = last.await.map_err(|e| sending.explain(e))?;
    let added = last.and_then(|line| Some(Added { cid: line.hash, size: line.size.parse().ok()? }));
    added.ok_or_else(|| Error::corrupt(format!("{} did not report what it added", http.shown())))
}

/// Adds the options under their names in the RPC API.
fn query(call: Call, options: &AddOptions) -> Call {
    let only = |is_set: bool| is_set.then_some(true);
    call.with("pin", options.pin)
        .with_some("profile", options.profile.as_ref())
        .with_some("cid-version", options.cid_version)
        .with_some("raw-leaves", options.raw_leaves)
        .with_some("chunker", options.chunker.as_ref())
        .with_some("hash", options.hash.as_ref())
        .with_some("inline", options.inline_limit.map(|_| true))
        .with_some("inline-limit", options.inline_limit)
        .with_some("trickle", only(options.trickle))
        .with_some("mode", options.mode.map(|mode| format!("0{:o}", go_mode(mode))))
        .with_some("mtime", options.mtime.map(|(seconds, _)| seconds))
        .with_some("mtime-nsecs", options.mtime.map(|(_, nanos)| nanos).filter(|nanos| *nanos > 0))
        .with_some("preserve-mode", only(options.preserve_mode))
        .with_some("preserve-mtime", only(options.preserve_mtime))
        .with_some("max-file-links", options.max_file_links)
        .with_some("max-directory-links", options.max_directory_links)
        .with_some("max-hamt-fanout", options.hamt_fanout)
        .with_some("only-hash", only(options.only_hash))
        .with_some("wrap-with-directory", only(options.wrap_with_directory))
        .with_some("pin-name", Some(&options.pin_name).filter(|name| !name.is_empty()))
}

/// Converts permission bits to those of Go.
fn go_mode(unix: u32) -> u32 {
    let special: u32 = SPECIAL_BITS.iter().filter(|(bit, _)| unix & bit != 0).map(|(_, go)| go).sum();
    unix & 0o777 | special
}
