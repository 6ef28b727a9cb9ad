//! `refs`, `refs/local` and `repo/ls`: content IDs of linked and of stored blocks.

use axum::extract::State;
use axum::response::Response;
use futures::{Stream, StreamExt};
use ipfrs_core::{Cid, Error, Result, codec};
use ipfrs_node::{DagLink, LinkWalkOptions};
use ipfrs_rpc::types::Reference;

use super::args::{Args, Render};
use super::command_result::CommandResult;
use super::output;
use crate::error::rpc_part_message;
use crate::state::AppState;

const TARGET: &str = "<dst>";

/// `refs?arg=path[&arg=...][&recursive=][&unique=][&max-depth=][&format=][&edges=]`: sends a line for each link, and a
/// line with an error for a path below which a block is missing.
pub(super) async fn refs(State(state): State<AppState>, args: Args) -> CommandResult {
    args.required_paths("ipfs-path")?;
    let edges = args.is_set("edges");
    let given = args.text("format").unwrap_or(TARGET);
    if edges && given != TARGET {
        return Err(Error::invalid("using format argument with edges is not allowed").into());
    }
    let format = match given {
        _ if edges => "<src> -> <dst>",
        "" => TARGET,
        format => format,
    };
    let format = format.to_owned();
    // Negative numbers are no limit.
    let max_depth = args.number::<i64>("max-depth")?.and_then(|depth| u64::try_from(depth).ok());
    let options = LinkWalkOptions {
        unique: args.is_set("unique"),
        max_depth: if args.is_set("recursive") { max_depth } else { Some(1) },
        names: format.contains("<linkname>"),
    };
    let paths = args.paths(&state.node, "ipfs-path").await?;
    let links = state.node.dag_links(paths, options).await?;
    let render = args.render;
    let lines = links.map(move |link| match link.and_then(|link| formatted(&format, &link, render)) {
        Ok(text) => Ok(Reference { r#ref: text, err: String::new() }),
        Err(error) => Ok(Reference { r#ref: String::new(), err: rpc_part_message(&error) }),
    });
    Ok(respond(lines, args.takes_trailers))
}

fn formatted(format: &str, link: &DagLink, render: Render) -> Result<String> {
    if format == TARGET {
        return render.cid(&link.to);
    }
    // One placeholder after the other, as in Kubo.
    let text = format.replace("<src>", &render.cid(&link.from)?).replace(TARGET, &render.cid(&link.to)?);
    Ok(text.replace("<linkname>", &link.name.to_string_lossy()))
}

/// `refs/local` and `repo/ls`: sends a line with the content ID of each stored block, as a raw block.
pub(super) async fn local(State(state): State<AppState>, args: Args) -> CommandResult {
    let render = args.render;
    let lines = state.node.stored_blocks().map(move |cid| {
        let raw = Cid::new_v1(codec::RAW, *cid?.hash());
        Ok(Reference { r#ref: render.cid(&raw)?, err: String::new() })
    });
    Ok(respond(lines, args.takes_trailers))
}

/// Sends lines.
pub(super) fn respond(lines: impl Stream<Item = Result<Reference>> + Send + 'static, takes_trailers: bool) -> Response {
    output::objects(lines.map(|line| output::line(&line?)).boxed(), takes_trailers)
}
