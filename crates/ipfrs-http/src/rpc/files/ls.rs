//! `files/ls`.

use axum::extract::State;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use ipfrs_core::{Cid, Result};
use ipfrs_node::{LinkName, ListedKind, MutableEntry, MutableListing};
use ipfrs_rpc::types::FileEntry;

use super::path;
use crate::rpc::args::Args;
use crate::rpc::command_result::CommandResult;
use crate::rpc::output;
use crate::state::AppState;

/// Number of entries that are read before the response begins.
const FIRST_ENTRIES: usize = 1_024;

/// `files/ls[?arg=path][&long=]`: one JSON object, which is written while the directory is read.
pub(in crate::rpc) async fn ls(State(state): State<AppState>, args: Args) -> CommandResult {
    let root = LinkName::from("/");
    let listed = path(args.at_most_one_path("path")?.unwrap_or(&root))?;
    let render = args.render;
    let entries: BoxStream<'static, Result<Bytes>> = match state.node.list_tree(&listed, args.is_set("long")).await? {
        MutableListing::File(entry) => stream::iter([json(&entry, |cid| render.cid(cid))]).boxed(),
        // Kubo uses `cid-base` only for single files.
        MutableListing::Directory(entries) => entries.map(|entry| json(&entry?, |cid| Ok(cid.to_string()))).boxed(),
    };
    let mut entries = entries.fuse();
    // In all but large directories, an entry that cannot be read makes the command fail as a whole.
    let mut first = Vec::new();
    while first.len() < FIRST_ENTRIES
        && let Some(entry) = entries.next().await
    {
        first.push(Ok(entry?));
    }
    let entries = stream::iter(first).chain(entries).boxed();
    Ok(output::streamed_object(document(entries), args.takes_trailers))
}

/// Returns the JSON of an entry.
fn json(entry: &MutableEntry, cid: impl Fn(&Cid) -> Result<String>) -> Result<Bytes> {
    let details = entry.details.as_ref();
    let is_directory = details.is_some_and(|details| details.kind == ListedKind::Directory);
    let symlink = details.filter(|details| details.kind == ListedKind::Symlink);
    let size = symlink.map(|details| details.target.len() as u64).or(details.map(|details| details.size));
    let line = output::line(&FileEntry {
        name: entry.name.to_string_lossy().into_owned(),
        name_bytes: output::name_bytes(&entry.name),
        r#type: u8::from(is_directory),
        size: size.unwrap_or(0),
        hash: details.map(|details| cid(&details.cid)).transpose()?.unwrap_or_default(),
    })?;
    // The line break is not needed within the document.
    Ok(line.slice(..line.len() - 1))
}

/// Returns the pieces of the document around its entries. Like Go, it has `null` in place of an empty list.
fn document(mut entries: BoxStream<'static, Result<Bytes>>) -> BoxStream<'static, Result<Bytes>> {
    let first = async move {
        let Some(first) = entries.next().await else {
            return stream::iter([Ok(Bytes::from_static(b"{\"Entries\":null}\n"))]).boxed();
        };
        let rest = entries.map(|entry| Ok(Bytes::from([b",".as_slice(), &entry?].concat())));
        let begin = stream::iter([Ok(Bytes::from_static(b"{\"Entries\":[")), first]);
        begin.chain(rest).chain(stream::iter([Ok(Bytes::from_static(b"]}\n"))])).boxed()
    };
    stream::once(first).flatten().boxed()
}
