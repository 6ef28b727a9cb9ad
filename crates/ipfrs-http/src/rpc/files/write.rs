//! `files/write`.

use axum::extract::{Request, State};
use futures::StreamExt;
use ipfrs_core::Error;
use ipfrs_node::WriteOptions;

use super::{cid_format, flushes, path};
use crate::body;
use crate::error::RpcError;
use crate::rpc::args::Args;
use crate::rpc::command_result::{CommandResult, has_body};
use crate::rpc::multipart::{self, Parts};
use crate::rpc::output;
use crate::state::AppState;

/// `files/write?arg=path[&offset=][&create=][&parents=][&truncate=][&count=][&raw-leaves=][&cid-version=][&hash=]`:
/// writes the file in the body.
pub(in crate::rpc) async fn write(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let file = path(args.one_path("path")?)?;
    let options = options(&args)?;
    let missing = || RpcError::Request("file argument 'data' is required".into());
    match multipart::boundary(request.headers())? {
        Some(boundary) => {
            let mut parts = Parts::new(&state.memory, request.into_body(), boundary);
            let content = parts.next_file().await?.ok_or_else(missing)?;
            state.node.write_to_tree(&file, options, content).await?;
        }
        None if has_body(&request) => {
            state.node.write_to_tree(&file, options, body::pieces(request.into_body()).boxed()).await?;
        }
        None => return Err(missing()),
    }
    Ok(output::nothing().await)
}

fn options(args: &Args) -> Result<WriteOptions, RpcError> {
    let negative_offset = |_| Error::invalid("cannot have negative write offset");
    let negative_count = |_| Error::invalid("cannot have negative byte count");
    let offset = args.number::<i64>("offset")?.unwrap_or(0);
    let count = args.number::<i64>("count")?.unwrap_or(i64::MAX);
    Ok(WriteOptions {
        offset: u64::try_from(offset).map_err(negative_offset)?,
        create: args.is_set("create"),
        parents: args.is_set("parents"),
        truncate: args.is_set("truncate"),
        count: u64::try_from(count).map_err(negative_count)?,
        raw_leaves: args.bool("raw-leaves"),
        format: cid_format(args)?,
        flush: flushes(args),
    })
}
