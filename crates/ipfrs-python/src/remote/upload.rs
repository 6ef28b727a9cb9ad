//! Imports: uploads to a daemon, and their results.

use std::path::PathBuf;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ipfrs_core::{Error, Result};
use ipfrs_node::Attributes;
use ipfrs_rpc::client::{Client, Form, Request, Source, multipart};
use ipfrs_rpc::mode::go_mode;
use ipfrs_rpc::types::{Added as AddedLine, ImportedLine};

use crate::backing::{AddOptions, Added, Pieces, Progress};

/// Media type of a file.
const FILE: &str = "application/octet-stream";

/// Imports one file.
pub(super) async fn add(client: &Client, content: Pieces, options: &AddOptions) -> Result<Added> {
    // The name is only used in a wrapping directory.
    if options.name.is_empty() || !options.wrap_with_directory {
        return send(client, options, FILE, content).await;
    }
    let mut form = Form::new();
    let (head, end) = (form.file(options.name.as_bytes(), Attributes::default()), form.end());
    let text = |text: String| stream::iter([Ok(Bytes::from(text))]);
    let body = text(head).chain(content).chain(text(end)).boxed();
    send(client, options, &form.media_type(), body).await
}

/// Imports the file or directory at `path`.
pub(super) async fn add_path(
    client: &Client,
    path: PathBuf,
    options: &AddOptions,
    progress: Option<Progress>,
) -> Result<Added> {
    progress.iter().for_each(|progress| progress.measure(path.clone(), options.walk()));
    let source = Source::Tree { path, options: options.walk(), sends_paths: options.nocopy };
    let count = move |bytes| progress.iter().for_each(|progress| progress.advance(bytes));
    let (media_type, body) = multipart(vec![source], count);
    send(client, options, &media_type, body).await
}

/// Sends `body` for import.
async fn send(client: &Client, options: &AddOptions, media_type: &str, body: Pieces) -> Result<Added> {
    let request = with_options(Request::command("add"), options).with_trailers().with_upload(media_type, body)?;
    let mut response = client.send(request).await?;
    let mut last = None;
    while let Some(line) = response.line::<ImportedLine>().await? {
        if let ImportedLine::Added(added) = line {
            last = Some(added);
        }
    }
    // The last line is that of the root.
    let added = last.and_then(|AddedLine { hash, size, .. }| Some(Added { cid: hash, size: size.parse().ok()? }));
    added.ok_or_else(|| Error::corrupt(format!("{} did not report what it added", client.url())))
}

/// Adds the options under their names in the RPC API.
fn with_options(request: Request, options: &AddOptions) -> Request {
    let only = |is_set: bool| is_set.then_some(true);
    request
        .with("pin", options.pin)
        .with_some("profile", options.profile.as_ref())
        .with_some("cid-version", options.cid_version)
        .with_some("raw-leaves", options.raw_leaves)
        .with_some("chunker", options.chunker.as_ref())
        .with_some("hash", options.hash.as_ref())
        .with_some("inline", options.inline_limit.map(|_| true))
        .with_some("inline-limit", options.inline_limit)
        .with_some("trickle", options.trickle)
        .with_some("mode", options.mode.map(|mode| format!("0{:o}", go_mode(mode))))
        .with_some("mtime", options.mtime.map(|(seconds, _)| seconds))
        .with_some("mtime-nsecs", options.mtime.map(|(_, nanos)| nanos).filter(|nanos| *nanos > 0))
        .with_some("preserve-mode", only(options.preserve_mode))
        .with_some("preserve-mtime", only(options.preserve_mtime))
        .with_some("max-file-links", options.max_file_links)
        .with_some("max-directory-links", options.max_directory_links)
        .with_some("max-hamt-fanout", options.hamt_fanout)
        .with_some("nocopy", only(options.nocopy))
        .with_some("fscache", only(options.fscache))
        .with_some("only-hash", only(options.only_hash))
        .with_some("wrap-with-directory", only(options.wrap_with_directory))
        .with_some("pin-name", Some(&options.pin_name).filter(|name| !name.is_empty()))
}
