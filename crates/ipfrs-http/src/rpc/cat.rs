//! `cat`: the bytes of files.

use axum::extract::State;
use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::Error;
use ipfrs_node::{FileContent, ObjectKind, Span};

use super::args::Args;
use super::command_result::CommandResult;
use super::output;
use super::paths::content_path;
use crate::body::begun;
use crate::content_limits::{self, Remedy};
use crate::state::AppState;

/// Part of the output.
enum Part {
    File(FileContent, Span),
    Bytes(Bytes),
}

/// `cat?arg=path[&arg=...][&offset=][&length=]`: concatenates files; offset and length apply to the whole output.
pub(super) async fn cat(State(state): State<AppState>, args: Args) -> CommandResult {
    let (offset, limit) = (args.number::<u64>("offset")?, args.number::<u64>("length")?);
    let is_part = offset.is_some() || limit.is_some();
    let (mut skip, mut left) = (offset.unwrap_or(0), limit.unwrap_or(u64::MAX));
    let (mut parts, mut length) = (Vec::new(), 0);
    let (mut memory, mut taken) = (state.memory.reservation(), 0);
    for path in args.required_paths("ipfs-path")? {
        // As in Kubo, paths behind the end of the output are not looked up.
        if left == 0 {
            break;
        }
        let object = state.node.resolve(content_path(&state.node, path).await?).await?.whole()?;
        taken += state.node.object_bytes(&object);
        memory.grow_to(taken)?;
        let file = match &object.kind {
            ObjectKind::File(file) => file.clone(),
            ObjectKind::Directory(_) => {
                return Err(Error::invalid("this dag node is a directory").into());
            }
            // As in Kubo, the content of a symlink is its target.
            ObjectKind::Symlink(target) => {
                let (start, len) = (skip.min(target.len() as u64), left);
                let end = start.saturating_add(len).min(target.len() as u64);
                skip -= start;
                left -= end - start;
                length += end - start;
                parts.push(Part::Bytes(target.slice(start as usize..end as usize)));
                continue;
            }
            ObjectKind::Other => return Err(object.not_unixfs("use block/get for its block").await.into()),
        };
        content_limits::check_size(&state, file.size(), Remedy::Rpc)?;
        content_limits::check_range(&state, is_part, file.size(), Remedy::Rpc)?;
        let start = skip.min(file.size());
        let len = left.min(file.size() - start);
        skip -= start;
        left -= len;
        length += len;
        parts.push(Part::File(file, Span { start, len }));
    }
    let node = state.node.clone();
    let pieces = stream::iter(parts).flat_map(move |part| {
        // Held until all files are read.
        let _ = &memory;
        match part {
            Part::File(file, span) => node.read(&file, span).boxed(),
            Part::Bytes(bytes) => stream::iter([Ok(bytes)]).boxed(),
        }
    });
    let pieces = begun(pieces.boxed()).await?;
    Ok(output::bytes(pieces, length, args.takes_trailers))
}
