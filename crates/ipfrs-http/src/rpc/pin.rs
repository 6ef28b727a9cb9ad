//! `pin/add`, `pin/ls`, `pin/rm`, `pin/update`, `pin/verify`.

use std::time::{Duration, Instant};

use axum::extract::State;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_node::{PinFilter, PinOptions, Pinned, Walked, check_pin_name};
use ipfrs_rpc::types::{BadNode, PinLine, PinProgress, Pins, VerifiedPin};
use serde::Serialize;

use super::args::{Args, Render};
use super::command_result::CommandResult;
use super::{long_command, output};
use crate::error::{RpcError, rpc_part_message};
use crate::state::AppState;

/// Minimum time between two progress lines.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

fn pins(cids: &[Cid], render: Render) -> Result<Pins> {
    Ok(Pins { pins: cids.iter().map(|cid| render.cid(cid)).collect::<Result<_>>()? })
}

fn progress_line(walked: Walked) -> PinProgress {
    PinProgress { progress: walked.blocks, bytes: walked.bytes }
}

/// `pin/add?arg=path[&arg=...][&recursive=][&name=][&progress=]`: pins all the given paths, or none of them. With
/// progress, lines report the number of visited blocks from time to time and at the end.
pub(super) async fn add(State(state): State<AppState>, args: Args) -> CommandResult {
    let paths = args.paths(&state.node, "ipfs-path").await?;
    let recursive = args.is_set("recursive");
    let options = PinOptions { recursive, name: args.text("name").unwrap_or_default().to_owned() };
    let render = args.render;
    if !args.is_set("progress") {
        let cids = state.node.pin(&paths, &options, |_| {}).await?;
        return Ok(output::object(pins(&cids, render)?));
    }
    long_command::answer(args.takes_trailers, state.config.idle_patience(), |lines| async move {
        let (mut last, mut walked) = (Instant::now(), Walked::default());
        let progress = |now| {
            walked = now;
            if last.elapsed() >= PROGRESS_INTERVAL {
                last = Instant::now();
                lines.offer(&progress_line(walked));
            }
        };
        let cids = state.node.pin(&paths, &options, progress).await?;
        lines.send(&progress_line(walked)).await?;
        lines.send(&pins(&cids, render)?).await
    })
    .await
}

/// `pin/rm?arg=path[&arg=...][&recursive=]`: unpins all the given paths, or none of them.
pub(super) async fn rm(State(state): State<AppState>, args: Args) -> CommandResult {
    let cids = state.node.unpin(&args.paths(&state.node, "ipfs-path").await?, args.is_set("recursive")).await?;
    Ok(output::object(pins(&cids, args.render)?))
}

/// `pin/update?arg=from&arg=to[&unpin=]`: moves a pin to another root.
pub(super) async fn update(State(state): State<AppState>, args: Args) -> CommandResult {
    let paths = args.paths(&state.node, "ipfs-path").await?;
    let [from, to] = paths.as_slice() else {
        return Err(RpcError::Request("two arguments are required: \"from-path\" and \"to-path\"".into()));
    };
    let (from, to) = state.node.update_pin(from, to, !args.is_set("unpin")).await?;
    Ok(output::object(pins(&[from, to], args.render)?))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct PinEntry {
    r#type: String,
    name: String,
}

/// `pin/ls[?arg=path][&type=][&names=][&name=][&stream=]`: lists pins. `name` selects pins whose name contains it.
pub(super) async fn ls(State(state): State<AppState>, args: Args) -> CommandResult {
    let filter: PinFilter = args.text_or_default("type").parse()?;
    let part_of_name = args.nonempty_text("name").map(str::to_owned);
    part_of_name.as_deref().map_or(Ok(()), check_pin_name)?;
    let with_names = args.is_set("names") || part_of_name.is_some();
    let streamed = args.is_set("stream");
    // As in Kubo, the name filters lists only.
    let part_of_name = part_of_name.filter(|_| !args.has_arguments());
    let pins = match args.has_arguments() {
        true => {
            let found = state.node.pinned(&args.paths(&state.node, "ipfs-path").await?, filter).await?;
            let found = args.required("ipfs-path")?.iter().zip(found).map(|(path, (cid, pinned))| match pinned {
                Some(pinned) => Ok((cid, pinned)),
                None => Err(Error::not_found(format!("path '{path}' is not pinned"))),
            });
            stream::iter(found.collect::<Result<Vec<_>>>()?.into_iter().map(Ok)).boxed()
        }
        false => state.node.pins(filter),
    };
    let render = args.render;
    let pins = pins.filter_map(move |pin| {
        let line = pin.and_then(|(cid, pinned)| line(&cid, pinned, render));
        let matches_name = match (&line, &part_of_name) {
            (Ok(line), Some(part)) => line.name.contains(part.as_str()),
            _ => true,
        };
        let line = line.map(|line| PinLine { name: if with_names { line.name } else { String::new() }, ..line });
        async move { matches_name.then_some(line) }
    });
    let mut pins = pins.boxed().peekable();
    // The first item is read in advance, so that an early failure sets the status.
    if let Some(Err(e)) = std::pin::Pin::new(&mut pins).next_if(Result::is_err).await {
        return Err(e.into());
    }
    if !streamed {
        return Ok(output::streamed_object(keys(pins.boxed()), args.takes_trailers));
    }
    Ok(output::objects(pins.map(|pin| output::line(&pin?)).boxed(), args.takes_trailers))
}

fn line(cid: &Cid, pinned: Pinned, render: Render) -> Result<PinLine> {
    let (r#type, name) = match pinned {
        Pinned::Itself(mode, name) => (mode.to_string(), name),
        Pinned::Through(None) => ("indirect".to_owned(), String::new()),
        Pinned::Through(Some(root)) => (format!("indirect through {}", render.cid(&root)?), String::new()),
    };
    Ok(PinLine { cid: render.cid(cid)?, name, r#type })
}

/// Returns one object, `{"Keys":{cid:{"Type","Name"}}}`, as a stream of its members.
fn keys(pins: BoxStream<'static, Result<PinLine>>) -> BoxStream<'static, Result<Bytes>> {
    let members = pins.enumerate().map(|(index, pin)| {
        let PinLine { cid, name, r#type } = pin?;
        let not_serialized = |e| Error::internal("a response is not valid JSON").with_source(e);
        let entry = serde_json::to_string(&PinEntry { r#type, name }).map_err(not_serialized)?;
        let comma = if index == 0 { "" } else { "," };
        Ok(Bytes::from(format!("{comma}\"{cid}\":{entry}")))
    });
    let (head, tail) = (Bytes::from_static(b"{\"Keys\":{"), Bytes::from_static(b"}}\n"));
    stream::iter([Ok(head)]).chain(members).chain(stream::iter([Ok(tail)])).boxed()
}

/// `pin/verify[?verbose=][&quiet=]`: sends a line for each incomplete recursive pin; with `verbose`, for each
/// recursive pin.
pub(super) async fn verify(State(state): State<AppState>, args: Args) -> CommandResult {
    let (verbose, quiet) = (args.is_set("verbose"), args.is_set("quiet"));
    if verbose && quiet {
        return Err(Error::invalid("the --verbose and --quiet options can not be used at the same time").into());
    }
    let render = args.render;
    let lines = state.node.verify_pins().filter_map(move |pin| {
        let line = pin.and_then(|pin| {
            let bad = pin.bad.iter().filter(|_| !quiet);
            let bad_nodes = bad.map(|(cid, e)| Ok(BadNode { cid: render.cid(cid)?, err: rpc_part_message(e) }));
            let bad_nodes = bad_nodes.collect::<Result<_>>()?;
            Ok(VerifiedPin { cid: render.cid(&pin.cid)?, ok: pin.bad.is_empty(), bad_nodes })
        });
        let is_reported = line.as_ref().map_or(true, |line| verbose || !line.ok);
        async move { is_reported.then(|| output::line(&line?)) }
    });
    Ok(output::objects(lines.boxed(), args.takes_trailers))
}
