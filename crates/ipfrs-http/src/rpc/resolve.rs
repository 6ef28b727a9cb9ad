//! `resolve`: resolution of paths and names.

use axum::extract::State;
use ipfrs_node::Answers;

use super::args::Args;
use super::command_result::CommandResult;
use super::name::{check_dht_timeout, one_step, resolved_path};
use super::output;
use super::paths::checked_path;
use crate::state::AppState;

/// `resolve?arg=path[&recursive=]`: returns the block at the end of a path, and the remaining path within the block.
/// Without `recursive`, a name is resolved by one step. The content ID is written in the base of the one in the path.
pub(super) async fn resolve(State(state): State<AppState>, args: Args) -> CommandResult {
    let text = args.one("name")?;
    let is_recursive = args.is_set("recursive");
    let path = checked_path(args.one_path("name")?)?;
    if !is_recursive && let Some(name) = path.as_bytes().strip_prefix(b"/ipns/") {
        check_dht_timeout(&args)?;
        let path = one_step(&state.node, name, Answers::Kept).await?;
        return Ok(output::object(resolved_path(path)));
    }
    let found = state.node.resolve_dag(args.path(&state.node, "name").await?).await?;
    let below: String = found.remainder.iter().map(|segment| format!("/{segment}")).collect();
    let namespace = if path.as_bytes().starts_with(b"/ipld/") { "ipld" } else { "ipfs" };
    let path = format!("/{namespace}/{}{below}", args.render.or_like(text).cid(&found.cid)?);
    Ok(output::object(resolved_path(path)))
}
