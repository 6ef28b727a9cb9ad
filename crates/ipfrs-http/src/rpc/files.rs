//! `files/stat`, the only command of `files`: this version has no mutable files (MFS).

use axum::extract::State;
use ipfrs_core::{Error, Result};
use ipfrs_node::ListedKind;
use ipfrs_rpc::types::FileStat;

use super::args::Args;
use super::attributes::file_attributes;
use super::command_result::CommandResult;
use super::output;
use crate::state::AppState;

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
        blocks: info.links as u64,
        r#type: kind(info.kind)?.to_owned(),
        attributes: file_attributes(info.attributes),
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
