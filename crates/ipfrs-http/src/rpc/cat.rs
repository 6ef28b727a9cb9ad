//! `cat`: the bytes of files.

use axum::extract::State;
use futures::{StreamExt, stream};
use ipfrs_core::Error;
use ipfrs_node::{ObjectKind, Span};

use super::args::Args;
use super::command_result::CommandResult;
use super::output;
use crate::body::begun;
use crate::content_limits::{self, Remedy};
use crate::state::AppState;

/// `cat?arg=path[&arg=...][&offset=][&length=]`: concatenates files; offset and length apply to the whole output.
pub(super) async fn cat(State(state): State<AppState>, args: Args) -> CommandResult {
    let (offset, limit) = (args.number::<u64>("offset")?, args.number::<u64>("length")?);
    let is_part = offset.is_some() || limit.is_some();
    let (mut skip, mut left) = (offset.unwrap_or(0), limit.unwrap_or(u64::MAX));
    let (mut parts, mut length) = (Vec::new(), 0);
    for path in args.required_paths("ipfs-path")? {
        let object = state.node.resolve(state.node.content_path(path).await?).await?.whole()?;
        let file = match &object.kind {
            ObjectKind::File(file) => file.clone(),
            ObjectKind::Directory(_) => {
                return Err(Error::invalid(format!("this dag node is a directory: {path} (use ls or get)")).into());
            }
            ObjectKind::Symlink(_) => return Err(Error::unsupported(format!("{path} is a symlink")).into()),
            ObjectKind::Other => return Err(object.not_unixfs("use block/get for its block").await.into()),
        };
        content_limits::check_size(&state, file.size(), Remedy::Rpc)?;
        content_limits::check_range(&state, is_part, file.size(), Remedy::Rpc)?;
        let start = skip.min(file.size());
        let len = left.min(file.size() - start);
        skip -= start;
        left -= len;
        length += len;
        parts.push((file, Span { start, len }));
    }
    let node = state.node.clone();
    let pieces = stream::iter(parts).flat_map(move |(file, span)| node.read(&file, span));
    let pieces = begun(pieces.boxed()).await?;
    Ok(output::bytes(pieces, length, args.takes_trailers))
}
