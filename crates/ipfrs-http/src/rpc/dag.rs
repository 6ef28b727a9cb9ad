//! Commands on whole DAGs (`dag/export`, `dag/import`, `dag/resolve`, `dag/stat`) and on single nodes (`dag/get`,
//! `dag/put`).

use axum::extract::{Request, State};
use bytes::Bytes;
use futures::{StreamExt, stream};
use ipfrs_core::limits::{MAX_BIG_BLOCK_BYTES, MAX_BLOCK_BYTES};
use ipfrs_core::{Cid, Error, Result, codec};
use ipfrs_node::{DagImport, DagImportOptions, DagSize, PutNode};
use ipfrs_rpc::types::{self, DagStat, ImportedCar, ResolvedNode, StoredNode};

use super::args::{Args, Render};
use super::block::{import_error, put_error, put_options};
use super::command_result::{CommandResult, has_body};
use super::multipart::{self, Parts};
use super::{hash_option, output};
use crate::access::with_stored;
use crate::body::{self, begun};
use crate::error::{RpcError, rpc_pin_message};
use crate::state::AppState;

/// `dag/export?arg=path[&local-only=]`: returns the DAG as a CAR of version 1. With `local-only`, it has only stored
/// blocks.
pub(super) async fn export(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = args.path(&state.node, "root").await?;
    let export = if args.is_set("local-only") {
        if args.is_explicitly_online() {
            let why = "--local-only implies --offline and cannot be combined with --offline=false; please drop one of \
                       them";
            return Err(Error::invalid(why).into());
        }
        state.node.export_available_dag(path).await?
    } else {
        state.node.export_dag(path).await?
    };
    let car = begun(export.car).await?;
    Ok(output::stream_of("application/vnd.ipld.car", car, None, args.takes_trailers))
}

/// `dag/resolve?arg=path`: returns the last block along the path and the remaining path, which is empty or begins
/// with a slash.
pub(super) async fn resolve(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = state.node.resolve_dag(args.path(&state.node, "ref").await?).await?;
    let rem_path = path.remainder.iter().map(|segment| format!("/{segment}")).collect();
    Ok(output::object(ResolvedNode { cid: args.render.link(&path.cid)?, rem_path }))
}

/// `dag/get?arg=path[&output-codec=]`: returns a block, or the value at a path within it, as dag-json or in another
/// codec.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let output = codec::parse(args.text_or_default("output-codec"))?;
    let path = args.path(&state.node, "ref").await?;
    let (_, node) = state.node.get_node(path, output).await?;
    let length = node.len() as u64;
    Ok(output::bytes(stream::iter([Ok(node)]), length, args.takes_trailers))
}

/// `dag/put[?input-codec=][&store-codec=][&hash=][&pin=][&allow-big-block=]`: stores each file of a multipart body, or
/// the body itself, as a node.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let options = put_options(&args);
    let node = PutNode {
        data: Bytes::new(),
        input: codec::parse(args.text_or_default("input-codec"))?,
        store: codec::parse(args.text_or_default("store-codec"))?,
        hash: args.nonempty_text("hash").map_or(Ok(state.node.default_hash()), hash_option::multicodec)?,
        options,
    };
    // Text can be larger than the block that it is converted to.
    let max_bytes = 2 * if options.allows_big { MAX_BIG_BLOCK_BYTES } else { MAX_BLOCK_BYTES };
    let boundary = multipart::boundary(request.headers())?;
    if boundary.is_none() && !has_body(&request) {
        return Err(RpcError::Request("argument \"object data\" is required: the request has no body".into()));
    }
    let mut cids = Vec::new();
    let Some(boundary) = boundary else {
        let (body, remedy) = (request.into_body(), "split it into several linked nodes");
        let text = body::whole(&state.memory, body, max_bytes, "maximum node size", remedy).await?;
        let put = state.node.put_node(PutNode { data: text.bytes, ..node }).await;
        cids.push(put.map_err(|e| put_error(e, options))?);
        return put_response(&cids, &args);
    };
    let mut parts = Parts::new(&state.memory, request.into_body(), boundary);
    while let Some(part) = parts.next_file().await? {
        if cids.len() == state.node.config().batch.max_batch_size {
            let most = cids.len();
            return Err(Error::too_large(format!(
                "more than {most} files (batch.max_batch_size): send several requests"
            ))
            .into());
        }
        let text = part.whole(max_bytes, "a node", "split it into several linked nodes").await?;
        let put = state.node.put_node(PutNode { data: text.bytes, ..node.clone() }).await;
        cids.push(put.map_err(|e| put_error(e, options))?);
    }
    if cids.is_empty() {
        return Err(RpcError::Request("argument \"object data\" is required: the body contains no file".into()));
    }
    put_response(&cids, &args)
}

fn put_response(cids: &[Cid], args: &Args) -> CommandResult {
    let lines = cids.iter().map(|cid| output::line(&StoredNode { cid: args.render.link(cid)? }));
    Ok(with_stored(output::objects(stream::iter(lines.collect::<Vec<_>>()), args.takes_trailers), cids))
}

/// `dag/import[?pin-roots=][&stats=][&allow-big-block=]`: stores the blocks of each CAR in a multipart body, or of the
/// body itself, and pins the roots that the CARs name.
pub(super) async fn import(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    // With `local-only` the DAG may be partial, and a partial DAG cannot be pinned.
    let pin_roots = args.bool("pin-roots").unwrap_or(!args.is_set("local-only"));
    // `silent` affects only the output of command-line clients; other clients need to know whether roots were pinned.
    let stats = args.is_set("stats");
    if pin_roots && args.is_set("local-only") {
        let why = "--local-only implies --pin-roots=false and cannot be combined with --pin-roots=true; please drop one of \
                   them";
        return Err(Error::invalid(why).into());
    }
    let boundary = multipart::boundary(request.headers())?;
    if boundary.is_none() && !has_body(&request) {
        return Err(RpcError::Request("argument \"path\" is required: the request has no body".into()));
    }
    let allows_big = args.is_set("allow-big-block");
    let mut import = state.node.import_dags(DagImportOptions { pin_roots, allows_big_blocks: allows_big }).await?;
    let explained = |e| import_error(e, allows_big);
    match boundary {
        None => import.car(body::pieces(request.into_body())).await.map_err(explained)?,
        Some(boundary) => {
            cars(&mut import, Parts::new(&state.memory, request.into_body(), boundary), explained).await?;
        }
    }
    let imported = import.finish().await?;
    let roots: Vec<_> = imported.roots.iter().map(|(root, _)| *root).collect();
    let mut lines = Vec::with_capacity(roots.len() + 1);
    for (root, error) in imported.roots {
        let pin_error_msg = error.as_ref().map_or_else(String::new, |error| rpc_pin_message(error, &root));
        lines.push(output::line(&ImportedCar::Root { cid: args.render.link(&root)?, pin_error_msg }));
    }
    if stats {
        let (block_count, block_bytes_count) = (imported.blocks, imported.bytes);
        lines.push(output::line(&ImportedCar::Stats { block_count, block_bytes_count }));
    }
    Ok(with_stored(output::objects(stream::iter(lines), args.takes_trailers), &roots))
}

/// Imports every file of a multipart body.
async fn cars(import: &mut DagImport, mut parts: Parts, explained: impl Fn(Error) -> Error) -> Result<(), RpcError> {
    let mut is_empty = true;
    while let Some(part) = parts.next_file().await? {
        let name = part.file_name();
        import.car(part).await.map_err(&explained).map_err(|error| match name.is_empty() {
            true => error,
            false => Error::new(error.kind(), format!("{name}: {error}")).with_source(error),
        })?;
        is_empty = false;
    }
    if is_empty {
        return Err(RpcError::Request("argument \"path\" is required: the body contains no file".into()));
    }
    Ok(())
}

/// Number of DAGs in a line of progress for each interval until the next line. A line lists all DAGs so far: long lines
/// are sent less often, or those of thousands of DAGs would take more time than the traversal.
const DAGS_PER_INTERVAL: usize = 100;

/// Maximum number of intervals between two lines of progress: clients wait for some time only.
const MAX_INTERVALS: usize = 50;

/// Approximate size of a DAG in a line, in bytes.
const DAG_JSON_BYTES: usize = 110;

/// `dag/stat?arg=path[&arg=...][&progress=]`: returns the number of blocks and bytes of each DAG and of all together.
/// With progress, the default, a line is also sent from time to time during the traversal. As in Kubo, it lists the
/// DAGs that were begun.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> CommandResult {
    let paths = args.paths(&state.node, "root").await?;
    let (progress, render) = (args.bool("progress").unwrap_or(true), args.render);
    let mut stats = state.node.dag_stats(paths).await?;
    // The first step runs before the head is sent, so that an early failure sets the status.
    let has_more = stats.advance().await.map_err(of_traversal)?;
    let lines = stream::try_unfold(Some((stats, has_more, 0_usize)), move |state| async move {
        let Some((mut stats, mut has_more, mut intervals)) = state else { return Ok(None) };
        while has_more && (intervals > 0 || !progress) {
            has_more = stats.advance().await.map_err(of_traversal)?;
            intervals = intervals.saturating_sub(1);
        }
        let (dags, unique) = (stats.begun().to_vec(), stats.unique());
        let intervals = intervals_after(dags.len());
        let bytes = dags.len() * DAG_JSON_BYTES;
        let line = move || output::line(&summary(&dags, unique, has_more, render)?);
        let line = output::rendered(bytes, line).await?;
        Ok(Some((line, has_more.then_some((stats, has_more, intervals)))))
    });
    Ok(output::objects(lines.boxed(), args.takes_trailers))
}

/// Returns an error below a root as Kubo begins it. One on the way to the root has no such beginning.
fn of_traversal(error: Error) -> Error {
    Error::new(error.kind(), format!("error traversing DAG: {error}")).with_source(error)
}

/// Returns the number of intervals from a line of progress with this number of DAGs to the next.
fn intervals_after(dags: usize) -> usize {
    (1 + dags / DAGS_PER_INTERVAL).min(MAX_INTERVALS)
}

fn summary(
    dags: &[DagSize],
    (unique_blocks, total_size): (u64, u64),
    has_more: bool,
    render: Render,
) -> Result<types::DagStats> {
    let with_repeated: u64 = dags.iter().map(|dag| dag.bytes).sum();
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = if total_size == 0 { 1.0 } else { with_repeated as f64 / total_size as f64 };
    let dag_stats =
        dags.iter().map(|dag| Ok(DagStat { cid: render.cid(&dag.root)?, size: dag.bytes, num_blocks: dag.blocks }));
    Ok(types::DagStats {
        unique_blocks: (!has_more).then_some(unique_blocks),
        total_size,
        shared_size: Some(with_repeated - total_size).filter(|shared| !has_more && *shared > 0),
        ratio: (!has_more).then_some(ratio),
        dag_stats: dag_stats.collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_of_progress_are_sent_less_often() {
        assert_eq!([1, 99, 100, 1_000, 65_536].map(intervals_after), [1, 1, 2, 11, 50]);
    }
}
