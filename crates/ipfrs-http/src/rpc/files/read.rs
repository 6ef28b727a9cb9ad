//! `files/read`.

use axum::extract::State;
use futures::StreamExt;
use ipfrs_core::Error;
use ipfrs_node::Span;

use super::path;
use crate::body::begun;
use crate::content_limits::{self, Remedy};
use crate::rpc::args::Args;
use crate::rpc::command_result::CommandResult;
use crate::rpc::output;
use crate::state::AppState;

/// `files/read?arg=path[&offset=][&count=]`: the bytes of a file.
pub(in crate::rpc) async fn read(State(state): State<AppState>, args: Args) -> CommandResult {
    let file = state.node.mutable_file(&path(args.one_path("path")?)?).await?;
    let (offset, count) = (args.number::<i64>("offset")?, args.number::<i64>("count")?);
    let start = u64::try_from(offset.unwrap_or(0)).map_err(|_| Error::invalid("cannot specify negative offset"))?;
    if start > file.size() {
        let size = file.size();
        return Err(Error::invalid(format!("offset was past end of file ({start} > {size})")).into());
    }
    let most = count.map(u64::try_from).transpose();
    let most = most.map_err(|_| Error::invalid("cannot specify negative 'count'"))?;
    content_limits::check_size(&state, file.size(), Remedy::Rpc)?;
    content_limits::check_range(&state, offset.is_some() || count.is_some(), file.size(), Remedy::Rpc)?;
    let len = most.unwrap_or(u64::MAX).min(file.size() - start);
    let pieces = begun(state.node.read(&file, Span { start, len }).boxed()).await?;
    Ok(output::bytes(pieces, len, args.takes_trailers))
}
