//! `filestore/*`: blocks that stay in files of the user.

use axum::extract::State;
use futures::StreamExt;
use ipfrs_core::{Cid, Result, codec};
use ipfrs_node::{FileState, Node, Reference, ReferenceOrder};
use ipfrs_rpc::types::{CidLink, FileReference, Reference as Line};

use super::args::Args;
use super::command_result::CommandResult;
use super::paths::{checked_path, parse_root};
use super::{long_command, refs};
use crate::error::rpc_part_message;
use crate::state::AppState;

/// `filestore/ls[?arg=cid...][&file-order=]`: sends a line for each reference. Given blocks are verified, as in Kubo.
pub(super) async fn ls(State(state): State<AppState>, args: Args) -> CommandResult {
    send(state, args, Task::List).await
}

/// `filestore/verify[?arg=cid...][&file-order=][&remove-bad-blocks=]`: compares each reference, or those of the given
/// blocks, with its file, and sends a line for each.
pub(super) async fn verify(State(state): State<AppState>, args: Args) -> CommandResult {
    let removes = args.is_set("remove-bad-blocks");
    send(state, args, Task::Verify { removes }).await
}

/// Use of all references.
#[derive(Debug, Clone, Copy)]
enum Task {
    List,
    /// With `removes`, references that are not intact are removed.
    Verify {
        removes: bool,
    },
}

/// Sends a line for each given block, or for each reference.
async fn send(state: AppState, args: Args, task: Task) -> CommandResult {
    let order = if args.is_set("file-order") { ReferenceOrder::File } else { ReferenceOrder::Hash };
    // Fails without a filestore in any case.
    let mut references = state.node.file_references(order)?;
    let (arguments, removes) = (args.arguments().to_vec(), matches!(task, Task::Verify { removes: true }));
    long_command::answer(args.takes_trailers, state.config.idle_patience(), |lines| async move {
        for argument in &arguments {
            lines.send(&checked(&state.node, argument, removes).await?).await?;
        }
        if !arguments.is_empty() {
            return Ok(());
        }
        while let Some(reference) = references.next().await.transpose()? {
            let line = match task {
                Task::List => line(&reference, FileState::Intact),
                Task::Verify { removes } => verified(&state.node, &reference, removes).await?,
            };
            lines.send(&line).await?;
        }
        Ok(())
    })
    .await
}

/// `filestore/dups`: sends a line for each block that is both in a file and in the packs.
pub(super) async fn dups(State(state): State<AppState>, args: Args) -> CommandResult {
    let render = args.render;
    let lines = state.node.duplicated_blocks()?.map(move |cid| match cid.and_then(|cid| render.cid(&cid)) {
        Ok(cid) => Ok(Line { r#ref: cid, err: String::new() }),
        Err(error) => Ok(Line { r#ref: String::new(), err: rpc_part_message(&error) }),
    });
    Ok(refs::respond(lines, args.takes_trailers))
}

/// Verifies the reference to a given block.
async fn checked(node: &Node, argument: &str, removes: bool) -> Result<FileReference> {
    // As a path, since Kubo reports content IDs that are malformed as such.
    let cid = match checked_path(&argument.into()).and_then(|_| parse_root(argument)) {
        Ok(cid) => cid,
        Err(error) => {
            let why = format!("{argument}: {}", rpc_part_message(&error));
            return Ok(without_reference(None, FileReference::INVALID, why));
        }
    };
    match node.file_reference(&cid).await? {
        Some(reference) => verified(node, &reference, removes).await,
        None => {
            let cid = Cid::new_v1(codec::RAW, *cid.hash());
            Ok(without_reference(Some(cid), FileReference::NO_REFERENCE, format!("ipld: could not find {cid}")))
        }
    }
}

async fn verified(node: &Node, reference: &Reference, removes: bool) -> Result<FileReference> {
    let state = node.verify_file_reference(reference).await?;
    if removes && !matches!(state, FileState::Intact) {
        node.remove_file_reference(reference).await?;
    }
    Ok(line(reference, state))
}

fn line(reference: &Reference, state: FileState) -> FileReference {
    let (status, error_msg) = match state {
        FileState::Intact => (FileReference::INTACT, String::new()),
        FileState::Changed(why) => (FileReference::CHANGED, why),
        FileState::NoFile(why) => (FileReference::NO_FILE, why),
        FileState::Unreadable(why) => (FileReference::UNREADABLE, why),
    };
    FileReference {
        status,
        error_msg,
        key: Some(CidLink { cid: reference.cid.to_string() }),
        file_path: reference.path.to_string_lossy().into_owned(),
        offset: reference.offset,
        size: u64::from(reference.len),
    }
}

fn without_reference(cid: Option<Cid>, status: i32, error_msg: String) -> FileReference {
    let key = cid.map(|cid| CidLink { cid: cid.to_string() });
    FileReference { status, error_msg, key, file_path: String::new(), offset: 0, size: 0 }
}
