//! `object/diff` and `object/patch/*`: links of dag-pb nodes. The other commands of this group were removed from Kubo.

use axum::extract::State;
use ipfrs_core::{Cid, Result};
use ipfrs_node::{DifferenceKind, LinkChange, PatchOptions, PutBlockOptions};
use ipfrs_rpc::types::{CidLink, ObjectChange, ObjectChanges, PatchedObject};

use super::args::Args;
use super::block::put_error;
use super::command_result::CommandResult;
use super::output;
use crate::state::AppState;

/// `object/patch/add-link?arg=root&arg=name&arg=target[&create=][&allow-non-unixfs=][&allow-big-block=]`: adds or
/// replaces a link.
pub(super) async fn add_link(State(state): State<AppState>, args: Args) -> CommandResult {
    let root = args.path_at(&state.node, 0).await?;
    let target = args.path_at(&state.node, 2).await?;
    let change = LinkChange::Add { target, creates: args.is_set("create") };
    let name = args.text_at(1);
    patched(state.node.patch_link(root, name, change, options(&args)).await, &args)
}

/// `object/patch/rm-link?arg=root&arg=name[&allow-non-unixfs=][&allow-big-block=]`: removes a link.
pub(super) async fn remove_link(State(state): State<AppState>, args: Args) -> CommandResult {
    let root = args.path_at(&state.node, 0).await?;
    let name = args.text_at(1);
    patched(state.node.patch_link(root, name, LinkChange::Remove, options(&args)).await, &args)
}

fn options(args: &Args) -> PatchOptions {
    PatchOptions { any_node: args.is_set("allow-non-unixfs"), any_size: args.is_set("allow-big-block") }
}

fn patched(patched: Result<Cid>, args: &Args) -> CommandResult {
    let put = PutBlockOptions { allows_big: args.is_set("allow-big-block"), ..PutBlockOptions::default() };
    let cid = patched.map_err(|e| put_error(e, put))?;
    Ok(output::object(PatchedObject { hash: args.render.cid(&cid)? }))
}

/// `object/diff?arg=path&arg=path`: returns the differences between two DAGs.
pub(super) async fn diff(State(state): State<AppState>, args: Args) -> CommandResult {
    let (before, after) = (args.path_at(&state.node, 0).await?, args.path_at(&state.node, 1).await?);
    let differences = state.node.diff_dags(before, after).await?;
    let link = |cid: Option<Cid>| -> Result<Option<CidLink>> { cid.map(|cid| args.render.link(&cid)).transpose() };
    let changes = differences.into_iter().map(|difference| {
        let r#type = match difference.kind {
            DifferenceKind::Added => 0,
            DifferenceKind::Removed => 1,
            DifferenceKind::Changed => 2,
        };
        let (before, after) = (link(difference.before)?, link(difference.after)?);
        Ok(ObjectChange { r#type, path: difference.path, before, after })
    });
    Ok(output::object(ObjectChanges { changes: changes.collect::<Result<_>>()? }))
}
