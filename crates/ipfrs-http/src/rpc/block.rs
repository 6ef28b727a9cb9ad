//! `block/get`, `block/put`, `block/rm`, `block/stat`.

use axum::extract::{Request, State};
use bytes::Bytes;
use futures::stream;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Error, codec};
use ipfrs_node::{BlockFormat, ContentPath, PutBlock, RequestMemory};
use serde::Serialize;

use super::args::Args;
use super::multipart::{self, Parts};
use super::{Answer, has_body, output};
use crate::body;
use crate::error::RpcError;
use crate::router::AppState;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct BlockStat {
    key: String,
    size: u64,
}

/// `block/get?arg=cid`: the bytes of a block.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> Answer {
    let path = args.path(&state.node, "cid").await?;
    let block = match path.segments() {
        [] => state.node.get_block(path.root()).await?,
        _ => state.node.resolve(path).await?.whole()?.block,
    };
    let length = block.len() as u64;
    let block = stream::iter([Ok(block)]);
    Ok(output::stream_of("application/vnd.ipld.raw", block, Some(length), args.takes_trailers))
}

/// `block/stat?arg=cid`: the size of a block.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> Answer {
    let path = args.path(&state.node, "cid").await?;
    let cid = match path.segments() {
        [] => *path.root(),
        _ => state.node.resolve(path).await?.whole()?.cid,
    };
    let size = state.node.block_size(&cid).await?;
    Ok(output::object(BlockStat { key: args.render.cid(&cid)?, size }))
}

/// `block/put[?cid-codec=][&mhtype=][&mhlen=][&pin=]`: stores each file of a multipart body, or the body itself, as a
/// block; with `pin`, pins it and what is below it.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> Answer {
    let format = format(&args)?;
    let pin = args.bool("pin")?.unwrap_or(false);
    let (blocks, _memory) = match multipart::boundary(request.headers())? {
        None if !has_body(&request) => return Err(RpcError::Request("argument \"data\" is required".into())),
        None => {
            let block = body::whole(&state.node, request.into_body(), MAX_BLOCK_BYTES, "a block's").await?;
            (vec![block.bytes], block.memory)
        }
        Some(boundary) => files(&state, Parts::new(&state.node, request.into_body(), boundary)).await?,
    };
    let mut lines = Vec::with_capacity(blocks.len());
    for data in blocks {
        let block = PutBlock { data, cid: None, format };
        let put = if pin { state.node.put_pinned_block(block).await } else { state.node.put_block(block).await };
        let (cid, size) = put?;
        lines.push(output::line(&BlockStat { key: args.render.cid(&cid)?, size: size as u64 }));
    }
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct RemovedBlock {
    hash: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
}

/// `block/rm?arg=cid[&arg=...][&force=][&quiet=]`: removes blocks that no pin leads to. A line for each, with the error where
/// it stays; with `quiet`, only for those that stay.
pub(super) async fn rm(State(state): State<AppState>, args: Args) -> Answer {
    let (force, quiet) = (args.bool("force")?.unwrap_or(false), args.bool("quiet")?.unwrap_or(false));
    let paths = args.required("cid")?.iter().map(|text| ContentPath::parse(text)).collect::<Result<Vec<_>, _>>()?;
    if let Some(path) = paths.iter().find(|path| !path.segments().is_empty()) {
        return Err(Error::invalid(format!("{path} is a path: give the CIDs of the blocks")).into());
    }
    let cids: Vec<_> = paths.iter().map(|path| *path.root()).collect();
    let mut lines = Vec::with_capacity(cids.len());
    for (cid, outcome) in state.node.remove_blocks(&cids, force).await? {
        if !quiet || outcome.is_err() {
            let (error, kind) = outcome.err().map(|e| (e.to_string(), e.kind().code())).unzip();
            let (hash, error) = (args.render.cid(&cid)?, error.unwrap_or_default());
            lines.push(output::line(&RemovedBlock { hash, error, kind }));
        }
    }
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

/// The files of a multipart body, whole: as many and as large together as a batch may be.
async fn files(state: &AppState, mut parts: Parts) -> Result<(Vec<Bytes>, RequestMemory), RpcError> {
    let batch = &state.node.config().batch;
    let (mut blocks, mut total, mut memory) = (Vec::new(), 0, state.node.request_memory());
    while let Some(part) = parts.next().await? {
        let data = part.whole_behind(MAX_BLOCK_BYTES, "a block is over the limit", &mut memory, total).await?;
        total += data.len();
        if blocks.len() == batch.max_batch_size || total > batch.max_batch_bytes {
            return Err(Error::too_large(format!(
                "the files are over the limit of {} blocks or {} bytes (batch.max_batch_size, batch.max_batch_bytes): \
                 send them apart",
                batch.max_batch_size, batch.max_batch_bytes
            ))
            .into());
        }
        blocks.push(data);
    }
    if blocks.is_empty() {
        return Err(RpcError::Request("argument \"data\" is required: the body holds no file".into()));
    }
    Ok((blocks, memory))
}

/// `cid-codec` makes a CIDv1; `format` is its older name, whose `v0` makes a CIDv0.
fn format(args: &Args) -> Result<BlockFormat, RpcError> {
    args.refuse(&["allow-big-block"])?;
    let hash = args.text("mhtype").map_or(Ok(HashFunction::default()), HashFunction::from_name)?;
    let is_whole = |length: &i64| *length == -1 || usize::try_from(*length).ok() == hash.digest_bytes();
    if let Some(length) = args.get::<i64>("mhlen")?.filter(|length| !is_whole(length)) {
        return Err(Error::unsupported(format!("mhlen={length}: digests are not cut, leave the option out")).into());
    }
    let (version, codec) = match (args.text("cid-codec"), args.text("format")) {
        (Some(name), _) => (1, codec::parse(name)?),
        (None, Some("v0")) => (0, codec::DAG_PB),
        (None, Some("protobuf")) => (1, codec::DAG_PB),
        (None, Some("cbor")) => (1, codec::DAG_CBOR),
        (None, Some(name)) => (1, codec::parse(name)?),
        (None, None) => (1, codec::RAW),
    };
    Ok(BlockFormat { version, codec, hash })
}
