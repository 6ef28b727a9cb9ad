//! `block/get`, `block/put`, `block/rm`, `block/stat`.

use axum::extract::{Request, State};
use bytes::Bytes;
use futures::stream;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Cid, Error, ErrorKind, codec};
use ipfrs_middleware::RequestMemory;
use ipfrs_node::{BlockFormat, LinkName, PutBlock, PutBlockOptions};
use ipfrs_rpc::types::{BlockStat, RemovedBlock};

use super::args::Args;
use super::command_result::{CommandResult, has_body};
use super::multipart::{self, Parts};
use super::paths::content_path;
use super::{hash_option, output};
use crate::access::with_stored;
use crate::body;
use crate::error::{RpcError, rpc_removal_message};
use crate::state::AppState;

/// `block/get?arg=cid`: returns the bytes of a block.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = args.path(&state.node, "cid").await?;
    let block = match path.segments() {
        [] => state.node.get_block(path.root()).await?,
        _ => state.node.resolve(path).await?.whole()?.block,
    };
    let length = block.len() as u64;
    let block = stream::iter([Ok(block)]);
    Ok(output::stream_of("application/vnd.ipld.raw", block, Some(length), args.takes_trailers))
}

/// `block/stat?arg=cid`: returns the size of a block.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> CommandResult {
    let path = args.path(&state.node, "cid").await?;
    let cid = match path.segments() {
        [] => *path.root(),
        _ => state.node.resolve(path).await?.whole()?.cid,
    };
    let size = state.node.block_size(&cid).await?;
    Ok(output::object(BlockStat { key: args.render.cid(&cid)?, size }))
}

/// `block/put[?cid-codec=][&mhtype=][&mhlen=][&pin=][&allow-big-block=]`: stores each file of a multipart body, or the
/// body itself, as a block. With `pin`, pins the block recursively.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let format = format(&args, state.node.default_hash())?;
    let options = put_options(&args);
    let (blocks, _memory) = match multipart::boundary(request.headers())? {
        None if !has_body(&request) => return Err(RpcError::Request("argument \"data\" is required".into())),
        None => {
            let (body, limit) = (request.into_body(), "maximum block size");
            let block = body::whole(&state.memory, body, MAX_BIG_BLOCK_BYTES, limit, "use add").await;
            let block = block.map_err(|e| big_block_error(e, options))?;
            (vec![block.bytes], block.memory)
        }
        Some(boundary) => files(&state, Parts::new(&state.memory, request.into_body(), boundary), options).await?,
    };
    let (mut lines, mut stored) = (Vec::with_capacity(blocks.len()), Vec::with_capacity(blocks.len()));
    for data in blocks {
        let block = PutBlock { data, cid: None, format };
        let put = state.node.put_block_with(block, options).await;
        let (cid, size) = put.map_err(|e| put_error(e, options))?;
        lines.push(output::line(&BlockStat { key: args.render.cid(&cid)?, size: size as u64 }));
        stored.push(cid);
    }
    Ok(with_stored(output::objects(stream::iter(lines), args.takes_trailers), &stored))
}

/// `block/rm?arg=cid[&arg=...][&force=][&quiet=]`: removes unpinned blocks. Sends a line for each block, with an
/// error if the block was not removed; with `quiet`, only for blocks that were not removed. A path that leads to no
/// block ends the response, after the blocks before it.
pub(super) async fn rm(State(state): State<AppState>, args: Args) -> CommandResult {
    let (force, quiet) = (args.is_set("force"), args.is_set("quiet"));
    let paths = args.required_paths("cid")?;
    let (mut cids, mut failure) = (Vec::with_capacity(paths.len()), None);
    for path in paths {
        match block_at(&state, path).await {
            Ok(cid) => cids.push(cid),
            Err(error) if cids.is_empty() => return Err(error),
            Err(RpcError::Command(error) | RpcError::Refused(error)) => failure = Some(error),
            Err(RpcError::Request(why)) => failure = Some(Error::invalid(why)),
        }
        if failure.is_some() {
            break;
        }
    }
    let mut lines = Vec::with_capacity(cids.len());
    for (cid, outcome) in state.node.remove_blocks(&cids, force).await? {
        if !quiet || outcome.is_err() {
            let (error, kind) = outcome.err().map(|e| (rpc_removal_message(&e), e.kind().code().to_owned())).unzip();
            let (hash, error) = (args.render.cid(&cid)?, error.unwrap_or_default());
            lines.push(output::line(&RemovedBlock { hash, error, kind }));
        }
    }
    lines.extend(failure.map(Err));
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

/// Returns the content ID of the block to which a path leads.
async fn block_at(state: &AppState, path: &LinkName) -> Result<Cid, RpcError> {
    let path = content_path(&state.node, path).await?;
    Ok(match path.segments() {
        [] => *path.root(),
        _ => state.node.resolve(path).await?.whole()?.cid,
    })
}

/// Returns the options of `block/put` and `dag/put` that concern the storage of a block.
pub(super) fn put_options(args: &Args) -> PutBlockOptions {
    PutBlockOptions { pin: args.is_set("pin"), allows_big: args.is_set("allow-big-block") }
}

/// Kubo's message for a block over 2 MiB.
const BIG_BLOCK: &str = "produced block is over 2MiB: big blocks can't be exchanged with other peers. consider using \
                         UnixFS for automatic chunking of bigger files, or pass --allow-big-block to override";

/// Returns the error for a block that is over 2 MiB or over the maximum, with Kubo's text for the former.
pub(super) fn big_block_error(error: Error, options: PutBlockOptions) -> Error {
    if options.allows_big || error.kind() != ErrorKind::TooLarge {
        return error;
    }
    Error::large_block(format!("{BIG_BLOCK}: {error}")).with_source(error)
}

/// Same as [`big_block_error`], for an attempt to store a block: other things may be too large, too.
pub(super) fn put_error(error: Error, options: PutBlockOptions) -> Error {
    if error.is_large_block() { big_block_error(error, options) } else { error }
}

/// Returns the error of an import, with Kubo's text behind it if a block is over 2 MiB: it begins with the place.
pub(super) fn import_error(error: Error, allows_big: bool) -> Error {
    if allows_big || !error.is_large_block() {
        return error;
    }
    Error::large_block(format!("{error}; {BIG_BLOCK}")).with_source(error)
}

/// Reads the files of a multipart body, within the limits of a batch on their number and total size.
async fn files(
    state: &AppState,
    mut parts: Parts,
    options: PutBlockOptions,
) -> Result<(Vec<Bytes>, RequestMemory), RpcError> {
    let batch = &state.node.config().batch;
    let (mut blocks, mut total, mut memory) = (Vec::new(), 0, state.memory.reservation());
    while let Some(part) = parts.next_file().await? {
        let remedy = "use add, which splits the content into several";
        let data = part.whole_behind(MAX_BIG_BLOCK_BYTES, "a block", remedy, &mut memory, total).await;
        let data = data.map_err(|e| big_block_error(e, options))?;
        total += data.len();
        if blocks.len() == batch.max_batch_size || total > batch.max_batch_bytes {
            return Err(Error::too_large(format!(
                "the files are over the limit of {} blocks or {} bytes (batch.max_batch_size, batch.max_batch_bytes): \
                 send several requests",
                batch.max_batch_size, batch.max_batch_bytes
            ))
            .into());
        }
        blocks.push(data);
    }
    if blocks.is_empty() {
        return Err(RpcError::Request("argument \"data\" is required: the body contains no file".into()));
    }
    Ok((blocks, memory))
}

/// Returns the version, codec and hash of the options. `format` is the older name of `cid-codec`, and only
/// `format=v0` produces a CIDv0. Kubo's command line also sends `cid-codec=raw`, its default, when `format` is given.
fn format(args: &Args, default_hash: HashFunction) -> Result<BlockFormat, RpcError> {
    let hash = args.nonempty_text("mhtype").map_or(Ok(default_hash), multihash)?;
    // Kubo's clients send -1 for the whole digest, which every negative length selects.
    let digest_bytes = args.number::<i64>("mhlen")?.and_then(|length| usize::try_from(length).ok());
    let (version, codec) = match (args.nonempty_text("format"), args.nonempty_text("cid-codec")) {
        (Some(_), Some(codec)) if codec != "raw" => {
            let why =
                "unable to use \"format\" (deprecated) and a custom \"cid-codec\" at the same time: leave one out";
            return Err(Error::invalid(why).into());
        }
        (Some("v0"), _) if hash != HashFunction::Sha2_256 => {
            let why = "only sha2-256-32 is allowed with CIDv0: leave out \"format=v0\", or set \"mhtype=sha2-256\"";
            return Err(Error::invalid(why).into());
        }
        (Some("v0"), _) => (0, codec::DAG_PB),
        (Some("protobuf"), _) => (1, codec::DAG_PB),
        (Some("cbor"), _) => (1, codec::DAG_CBOR),
        (Some(name), _) | (None, Some(name)) => (1, codec::parse(name)?),
        (None, None) => (1, codec::RAW),
    };
    Ok(BlockFormat { version, codec, hash, digest_bytes })
}

fn multihash(name: &str) -> Result<HashFunction, Error> {
    hash_option::named(name, |_| Error::unsupported(format!("unrecognized multihash function: {name}")))
}
