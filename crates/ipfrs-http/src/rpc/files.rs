//! `files/stat`, the only command of `files`: this version has no mutable files (MFS).

use axum::extract::State;
use ipfrs_core::{Error, Result};
use ipfrs_node::ListedKind;
use serde::Serialize;

use super::args::Args;
use super::attributes::AttributeFields;
use super::output;
use super::response::CommandResult;
use crate::state::AppState;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FileStat {
    hash: String,
    size: u64,
    cumulative_size: u64,
    blocks: usize,
    #[serde(rename = "Type")]
    kind: &'static str,
    #[serde(flatten)]
    attributes: AttributeFields,
}

/// `files/stat?arg=/ipfs/cid[/path]`: returns kind, size, links and attributes; `Blocks` is the number of links of
/// the root block. Unlike in Kubo, where symlinks have the type file, symlinks have a type of their own.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = args.one_path("path")?;
    if !["/ipfs/", "/ipns/", "ipfs://", "ipns://"].iter().any(|prefix| path.as_bytes().starts_with(prefix.as_bytes())) {
        let why = format!("{path:?} is a path of mutable files (MFS), which this version does not support");
        return Err(Error::unsupported(format!("{why}: use /ipfs/CID or /ipns/NAME, followed by a path")).into());
    }
    let object = state.node.resolve(state.node.content_path(path).await?).await?.whole()?;
    let info = state.node.object_info(&object).await?;
    Ok(output::object(FileStat {
        hash: args.render.cid(&object.cid)?,
        size: info.size,
        cumulative_size: info.dag_size,
        blocks: info.links,
        kind: kind(info.kind)?,
        attributes: AttributeFields::of(info.attributes),
    }))
}

fn kind(kind: ListedKind) -> Result<&'static str> {
    match kind {
        ListedKind::File => Ok("file"),
        ListedKind::Directory => Ok("directory"),
        ListedKind::Symlink => Ok("symlink"),
        ListedKind::Unknown => Err(Error::unsupported("the path resolves to neither a file nor a directory")),
    }
}
