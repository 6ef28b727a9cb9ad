//! `files/stat`.

use axum::extract::State;
use ipfrs_core::{Error, Result, codec};
use ipfrs_node::{Attributes, EntryKind, ListedKind, ObjectKind};
use ipfrs_rpc::types::{FileAttributes, FileStat};

use super::{content, path};
use crate::error::RpcError;
use crate::rpc::args::Args;
use crate::rpc::attributes::{SYMLINK_MODE, file_attributes, go_mode};
use crate::rpc::command_result::CommandResult;
use crate::rpc::output;
use crate::state::AppState;

/// The `format` that Kubo's command line sends if the user gives none.
const DEFAULT_FORMAT: &str = "<hash>\nSize: <size>\nCumulativeSize: <cumulsize>\nChildBlocks: <childs>\nType: <type>\n\
                              Mode: <mode> (<mode-octal>)\nMtime: <mtime>";

/// `files/stat?arg=path[&with-local=]`: returns kind, size, links and attributes of a mutable file or of content;
/// `Blocks` is the number of links of the root block. Unlike in Kubo, where symlinks have the type file, symlinks have
/// a type of their own.
pub(in crate::rpc) async fn stat(State(state): State<AppState>, args: Args) -> CommandResult {
    let has_format = args.text("format").is_some_and(|format| format != DEFAULT_FORMAT);
    if [args.is_set("hash"), args.is_set("size"), has_format].into_iter().filter(|is_set| *is_set).count() > 1 {
        let why = "invalid parameters: format was set by multiple options. Only one format option is allowed";
        return Err(RpcError::Refused(Error::invalid(why)));
    }
    let argument = args.one_path("path")?;
    let object = match content(argument) {
        Some(found) => state.node.resolve(state.node.content_path(found).await?).await?.whole()?,
        None => state.node.mutable_object(&path(argument)?).await?,
    };
    if !matches!(object.cid.codec(), codec::RAW | codec::DAG_PB) {
        let why = format!("{argument} is not UnixFS, use block/get or dag/get");
        return Err(Error::unsupported(format!("not unixfs node (proto or raw): {why}")).into());
    }
    let info = state.node.object_info(&object).await?;
    // As in Kubo, the size of a symlink is that of its target.
    let size = if let ObjectKind::Symlink(target) = &object.kind { target.len() as u64 } else { info.size };
    let with_locality = args.is_set("with-local");
    let (local, size_local) = if with_locality { state.node.local_size(&object).await? } else { (false, 0) };
    Ok(output::object(FileStat {
        hash: args.render.cid(&object.cid)?,
        size,
        cumulative_size: info.dag_size,
        blocks: info.links as u64,
        r#type: kind(info.kind)?.to_owned(),
        with_locality,
        local,
        size_local,
        attributes: attributes(info.attributes, info.kind),
    }))
}

/// Returns mode and time. Unlike in `add`, the mode includes the kind of a directory or symlink. As in Kubo, symlinks
/// have a mode.
fn attributes(attributes: Attributes, kind: ListedKind) -> FileAttributes {
    let implied = (kind == ListedKind::Symlink).then_some(SYMLINK_MODE);
    let mode = attributes.mode.or(implied).map(|mode| format!("{:04o}", go_mode(mode, kind)));
    FileAttributes { mode, ..file_attributes(attributes, EntryKind::File) }
}

fn kind(kind: ListedKind) -> Result<&'static str> {
    match kind {
        ListedKind::File => Ok("file"),
        ListedKind::Directory => Ok("directory"),
        ListedKind::Symlink => Ok("symlink"),
        ListedKind::Unknown => Err(Error::unsupported("the path resolves to neither a file nor a directory")),
    }
}
