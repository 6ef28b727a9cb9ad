//! `ipfrs.block.v1.BlockService`.

mod pipeline;
mod streams;
use bytes::Bytes;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, ErrorKind, codec, parse_cid};
use ipfrs_middleware::{Lifecycle, MemoryPool};
use ipfrs_node::{BlockFormat, Node, PutBlock, PutBlockOptions};
use ipfrs_proto::block::v1::batch_get_blocks_response::Result as GotResult;
use ipfrs_proto::block::v1::block_service_server::BlockService;
use ipfrs_proto::block::v1::{
    BatchGetBlocksRequest, BatchGetBlocksResponse, BatchPutBlocksRequest, BatchPutBlocksResponse, Block,
    DeleteBlockRequest, DeleteBlockResponse, GetBlockRequest, GetBlockResponse, HasBlockRequest, HasBlockResponse,
    PutBlockRequest, PutBlockResponse, PutOptions, StreamBlocksRequest, StreamBlocksResponse,
};
use tonic::{Request, Response, Status, Streaming};

use crate::Limits;
use crate::audit_target;
use crate::error::{Fault, in_field};
use crate::inbound::Inbound;

/// Implementation of the service for a node.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    pub(crate) node: Node,
    pub(crate) memory: MemoryPool,
    pub(crate) limits: Limits,
    pub(crate) lifecycle: Lifecycle,
}

type Answers<T> = BoxStream<'static, Result<T, Status>>;

#[async_trait::async_trait]
impl BlockService for Blocks {
    async fn get_block(&self, request: Request<GetBlockRequest>) -> Result<Response<GetBlockResponse>, Status> {
        let block = get(&self.node, request.into_inner()).await?;
        Ok(Response::new(GetBlockResponse { block: Some(block) }))
    }

    async fn put_block(&self, request: Request<PutBlockRequest>) -> Result<Response<PutBlockResponse>, Status> {
        let audited = audit_target::of(&request);
        audited.note(&request.get_ref().cid);
        let stored = put(&self.node, request.into_inner()).await?;
        audited.note(&stored.cid);
        Ok(Response::new(stored))
    }

    async fn has_block(&self, request: Request<HasBlockRequest>) -> Result<Response<HasBlockResponse>, Status> {
        Ok(Response::new(has(&self.node, request.into_inner()).await?))
    }

    async fn delete_block(
        &self,
        request: Request<DeleteBlockRequest>,
    ) -> Result<Response<DeleteBlockResponse>, Status> {
        audit_target::note(&request, &request.get_ref().cid);
        Ok(Response::new(delete(&self.node, request.into_inner()).await?))
    }

    type BatchGetBlocksStream = Answers<BatchGetBlocksResponse>;

    async fn batch_get_blocks(
        &self,
        request: Request<BatchGetBlocksRequest>,
    ) -> Result<Response<Self::BatchGetBlocksStream>, Status> {
        let responses = batch_get(&self.node, request.into_inner().cids)?;
        Ok(Response::new(responses.map(Ok).boxed()))
    }

    async fn batch_put_blocks(
        &self,
        request: Request<Streaming<BatchPutBlocksRequest>>,
    ) -> Result<Response<BatchPutBlocksResponse>, Status> {
        let audited = audit_target::of(&request);
        let blocks = Inbound::new(request.into_inner(), self.limits.upload_idle);
        Ok(Response::new(streams::put_all(&self.node, self.memory.reservation(), blocks, &audited).await?))
    }

    type StreamBlocksStream = Answers<StreamBlocksResponse>;

    async fn stream_blocks(
        &self,
        request: Request<Streaming<StreamBlocksRequest>>,
    ) -> Result<Response<Self::StreamBlocksStream>, Status> {
        let (memory, idle) = (self.memory.reservation(), self.limits.upload_idle);
        let (audited, requests) = (audit_target::of(&request), request.into_inner());
        let responses = streams::responses(&self.node, memory, &self.lifecycle, idle, requests, audited);
        Ok(Response::new(responses.boxed()))
    }
}

pub(crate) async fn get(node: &Node, request: GetBlockRequest) -> Result<Block, Fault> {
    let cid = parse_cid(&request.cid).map_err(in_field("cid"))?;
    let data = node.get_block(&cid).await?;
    Ok(Block { cid: request.cid, data })
}

async fn has(node: &Node, request: HasBlockRequest) -> Result<HasBlockResponse, Fault> {
    let cid = parse_cid(&request.cid).map_err(in_field("cid"))?;
    match node.block_size(&cid).await {
        Ok(size) => Ok(HasBlockResponse { exists: true, size: Some(size) }),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(HasBlockResponse { exists: false, size: None }),
        Err(e) => Err(e.into()),
    }
}

async fn delete(node: &Node, request: DeleteBlockRequest) -> Result<DeleteBlockResponse, Fault> {
    let cid = parse_cid(&request.cid).map_err(in_field("cid"))?;
    match node.remove_blocks(&[cid], false).await?.pop() {
        Some((_, Err(e))) if e.kind() == ErrorKind::NotFound => Ok(DeleteBlockResponse { deleted: false }),
        Some((cid, Err(e))) => Err(Error::new(e.kind(), format!("cannot delete {cid}: {}", e.message())).into()),
        Some((_, Ok(()))) => Ok(DeleteBlockResponse { deleted: true }),
        None => Ok(DeleteBlockResponse { deleted: false }),
    }
}

async fn put(node: &Node, request: PutBlockRequest) -> Result<PutBlockResponse, Fault> {
    let pin = request.options.as_ref().is_some_and(|options| options.pin);
    let block = to_put(request.data, request.options.unwrap_or_default(), &request.cid)?;
    let (cid, size) = node.put_block_with(block, PutBlockOptions { pin, ..PutBlockOptions::default() }).await?;
    Ok(PutBlockResponse { cid: cid.to_string(), size: size as u64 })
}

/// Parses a block to put. Missing options have defaults, and a CID determines all of them.
fn to_put(data: Bytes, options: PutOptions, cid: &str) -> Result<PutBlock, Fault> {
    let given = |text: &String| !text.is_empty();
    let hash = Some(&options.hash).filter(|text| given(text)).map(|text| HashFunction::from_name(text)).transpose();
    let hash = hash.map_err(in_field("options.hash"))?;
    let codec = Some(&options.codec).filter(|text| given(text)).map(|text| codec::parse(text)).transpose();
    let codec = codec.map_err(in_field("options.codec"))?;
    if cid.is_empty() {
        let version = options.cid_version.unwrap_or(1);
        if version > 1 {
            let why = format!("CID version {version} does not exist: use 0 or 1");
            return Err(in_field("options.cid_version")(Error::invalid(why)));
        }
        let default_codec = if version == 0 { codec::DAG_PB } else { codec::RAW };
        let (codec, hash) = (codec.unwrap_or(default_codec), hash.unwrap_or_default());
        return Ok(PutBlock {
            data,
            cid: None,
            format: BlockFormat { version: version.into(), codec, hash, digest_bytes: None },
        });
    }
    let cid = parse_cid(cid).map_err(in_field("cid"))?;
    if codec.is_some_and(|codec| codec != cid.codec())
        || hash.is_some_and(|hash| hash.code() != cid.hash().code())
        || options.cid_version.is_some_and(|version| u64::from(version) != u64::from(cid.version()))
    {
        let why = format!("codec, hash or version does not match {cid}: omit them if a CID is given");
        return Err(in_field("options")(Error::invalid(why)));
    }
    Ok(PutBlock { data, cid: Some(cid), format: BlockFormat::default() })
}

/// Returns the blocks in the order of the request. A malformed CID or an unavailable block results in an error at its
/// position.
fn batch_get(
    node: &Node,
    requested: Vec<String>,
) -> Result<impl Stream<Item = BatchGetBlocksResponse> + Send + use<>, Fault> {
    let parsed: Vec<_> = requested.iter().map(|text| parse_cid(text)).collect();
    let cids: Vec<Cid> = parsed.iter().flatten().copied().collect();
    let most = node.config().batch.max_batch_size;
    if requested.len() > most {
        let count = requested.len();
        let why = format!("a batch of {count} blocks is over the limit of {most} (batch.max_batch_size): send several");
        return Err(Error::too_large(why).into());
    }
    let blocks = node.batch_get(cids)?.boxed();
    let items = requested.into_iter().zip(parsed).zip(0_u32..);
    Ok(stream::unfold((blocks, items), |(mut blocks, mut items)| async move {
        let ((cid, parsed), index) = items.next()?;
        let outcome = match parsed {
            Ok(_) => blocks.next().await.map(|(_, data)| data.map_err(Fault::from)).unwrap_or_else(cut_short),
            Err(e) => Err(in_field("cids")(e)),
        };
        let result = match outcome {
            Ok(data) => GotResult::Block(Block { cid, data }),
            Err(fault) => GotResult::Error(fault.of_block(cid)),
        };
        Some((BatchGetBlocksResponse { index, result: Some(result) }, (blocks, items)))
    }))
}

/// Returns the error for the blocks after a failure of the store.
fn cut_short() -> Result<Bytes, Fault> {
    Err(Error::new(ErrorKind::Unavailable, "the batch ended early, because the store failed: try again").into())
}
