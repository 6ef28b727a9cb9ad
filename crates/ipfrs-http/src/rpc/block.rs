//! `block/get`, `block/put`, `block/stat`.

use axum::extract::{Request, State};
use bytes::Bytes;
use futures::stream;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Error, codec};
use ipfrs_node::{BlockFormat, ContentPath, PutBlock};
use serde::Serialize;

use super::add_multipart;
use super::args::Args;
use super::{Answer, output};
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
    let path = ContentPath::parse(args.one("cid")?)?;
    let block = match path.segments() {
        [] => state.node.get_block(path.root()).await?,
        _ => state.node.resolve(path).await?.block,
    };
    let length = block.len() as u64;
    Ok(output::bytes(stream::iter([Ok(block)]), length, args.takes_trailers))
}

/// `block/stat?arg=cid`: the size of a block.
pub(super) async fn stat(State(state): State<AppState>, args: Args) -> Answer {
    let path = ContentPath::parse(args.one("cid")?)?;
    let cid = match path.segments() {
        [] => *path.root(),
        _ => state.node.resolve(path).await?.cid,
    };
    let size = state.node.block_size(&cid).await?;
    Ok(output::object(BlockStat { key: args.render.cid(&cid)?, size }))
}

/// `block/put[?cid-codec=][&mhtype=][&mhlen=]`: stores each file of a multipart body, or the body itself, as a block.
pub(super) async fn put(State(state): State<AppState>, args: Args, request: Request) -> Answer {
    let format = format(&args)?;
    let mut blocks = Vec::new();
    match add_multipart::boundary(request.headers())? {
        None => blocks.push(body::whole(request.into_body(), MAX_BLOCK_BYTES).await?),
        Some(boundary) => blocks.append(&mut parts(&state, request, boundary).await?),
    }
    let mut lines = Vec::with_capacity(blocks.len());
    for data in blocks {
        let (cid, size) = state.node.put_block(PutBlock { data, cid: None, format }).await?;
        lines.push(output::line(&BlockStat { key: args.render.cid(&cid)?, size: size as u64 }));
    }
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}

/// The files of a multipart body, whole: together at most `batch.max_batch_bytes`.
async fn parts(state: &AppState, request: Request, boundary: String) -> Result<Vec<Bytes>, RpcError> {
    let (limit, _) = state.node.body_limits();
    let mut multipart = multer::Multipart::new(request.into_body().into_data_stream(), boundary);
    let (mut blocks, mut total) = (Vec::new(), 0);
    while let Some(mut field) = multipart.next_field().await.map_err(add_multipart::broken)? {
        let mut data = Vec::new();
        while let Some(piece) = field.chunk().await.map_err(add_multipart::broken)? {
            data.extend_from_slice(&piece);
            if data.len() > MAX_BLOCK_BYTES {
                return Err(Error::too_large(format!("a block is over the limit of {MAX_BLOCK_BYTES} bytes")).into());
            }
        }
        total += data.len();
        if total > limit {
            return Err(Error::too_large(format!("the blocks are over {limit} bytes together: send them apart")).into());
        }
        blocks.push(Bytes::from(data));
    }
    if blocks.is_empty() {
        return Err(RpcError::Request("argument \"data\" is required: the body holds no file".into()));
    }
    Ok(blocks)
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
