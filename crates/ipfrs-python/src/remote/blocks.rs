//! Operations on blocks, individually and in batches.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::StreamExt;
use ipfrs_core::hash::{self, HashFunction};
use ipfrs_core::limits::{MAX_BIG_BLOCK_BYTES, MAX_BLOCK_BYTES};
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result, codec, parse_cid};
use ipfrs_node::car::{self, CarLimits, CarReader};
use ipfrs_rpc::client::{Client, Request, Response};
use ipfrs_rpc::types::{BatchPutStatus, BlockExistences, BlockStat, CidList, RemovedBlock};
use serde::de::IgnoredAny;
use tokio::task::{block_in_place, spawn_blocking};

use super::sized::Sized;
use crate::backing::BlockOptions;

const CAR: &str = "application/vnd.ipld.car";
const RAW: &str = "application/vnd.ipld.raw";
const JSON: &str = "application/json";

/// Maximum size of blocks that are hashed on the current thread. Larger ones would delay other tasks.
const INLINE_HASH_BYTES: usize = 32 * 1024;

/// Blocks below this size are copied. As slices of the received buffer, they would keep all of it in memory.
const OWN_MEMORY_BYTES: usize = 64 * 1024;

/// Initial number of blocks per request, until a daemon reports that it is too large. This is the default of
/// `batch.max_batch_size`.
const BATCH_BLOCKS: usize = 1_000;

/// Number of CIDs that fit into a URL.
const CIDS_PER_URL: usize = 400;

/// Maximum number of blocks that the daemon accepts per request.
#[derive(Debug)]
pub(super) struct BatchLimit(AtomicUsize);

impl BatchLimit {
    pub(super) fn new() -> Self {
        Self(AtomicUsize::new(BATCH_BLOCKS))
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Lowers the limit if `error` means that `count` blocks were too many. Returns whether it was lowered.
    fn lower(&self, error: &Error, count: usize) -> bool {
        let is_over = error.kind() == ErrorKind::TooLarge && count > 1;
        if is_over {
            self.0.fetch_min(count / 2, Ordering::Relaxed);
        }
        is_over
    }
}

/// Rejects blocks that the daemon would reject only after receiving them.
fn check_size(data: &Bytes) -> Result<()> {
    let bytes = data.len();
    if bytes > MAX_BLOCK_BYTES {
        let what = format!("a block of {bytes} bytes is over the limit of {MAX_BLOCK_BYTES} bytes");
        return Err(Error::too_large(format!("{what}: add it as a file")));
    }
    Ok(())
}

pub(super) async fn put(client: &Client, data: Bytes, options: &BlockOptions) -> Result<String> {
    check_size(&data)?;
    let request = Request::command("block/put").with("cid-codec", &options.codec).with("mhtype", &options.mhtype);
    let request = request.with("pin", options.pin).with_body(RAW, data)?;
    Ok(client.send(request).await?.json::<BlockStat>().await?.key)
}

/// Stores all blocks in one transaction, with one request that contains a CAR.
pub(super) async fn put_many(client: &Client, blocks: Vec<Bytes>, options: &BlockOptions) -> Result<Vec<String>> {
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let (codec, hash) = (codec::parse(&options.codec)?, HashFunction::from_name(&options.mhtype)?);
    let framed = spawn_blocking(move || frame(blocks, codec, hash)).await;
    let (cids, body) = framed.map_err(|e| Error::internal("hashing the blocks failed").with_source(e))??;
    let request = Request::post("/v1/block/batch/put").with("transaction_mode", "atomic");
    let request = request.with_body(CAR, body.into_body())?;
    let status = client.send(request).await?.json::<BatchPutStatus>().await?.transaction_status;
    if status != "committed" {
        let what = format!("{} stored the blocks with the outcome {status:?}", client.url());
        return Err(Error::internal(format!("{what}, but an atomic put was requested")));
    }
    for cids in cids.chunks(CIDS_PER_URL).filter(|_| options.pin) {
        client.send(Request::command("pin/add").with_args(cids)).await?.json::<IgnoredAny>().await?;
    }
    Ok(cids)
}

/// Returns the CIDs of blocks, and a CAR that contains the blocks.
fn frame(blocks: Vec<Bytes>, codec: u64, hash: HashFunction) -> Result<(Vec<String>, Sized)> {
    let (mut cids, mut body) = (Vec::with_capacity(blocks.len()), Sized::default());
    body.push(car::header(&[]));
    for (index, data) in blocks.iter().enumerate() {
        check_size(data).map_err(|e| Error::new(e.kind(), format!("block {index}: {e}")))?;
    }
    for block in Block::hash_all(1, codec, hash, blocks)? {
        let (cid, data) = block.into_parts();
        car::frame(&cid, data).into_iter().for_each(|piece| body.push(piece));
        cids.push(cid.to_string());
    }
    Ok((cids, body))
}

pub(super) async fn get(client: &Client, cid: &str) -> Result<Bytes> {
    let expected = parse_cid(cid)?;
    let response = client.send(Request::query("block/get").with_arg(cid)).await?;
    let data = response.bytes(MAX_BIG_BLOCK_BYTES).await?;
    let check = || hash::verify(&expected, &data);
    let checked = if data.len() <= INLINE_HASH_BYTES { check() } else { block_in_place(check) };
    checked.map_err(|e| if is_of_bytes(&e) { unexpected(client, &e) } else { e })?;
    Ok(data.into())
}

/// Whether an error is about the received bytes, and not about the transfer.
fn is_of_bytes(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::InvalidInput)
}

/// Returns the error for a response that cannot be right for any request.
fn unexpected(client: &Client, error: &Error) -> Error {
    Error::corrupt(format!("{} sent an unexpected response: {error}", client.url()))
}

/// Queries as many of the first `cids` as the daemon accepts. Returns the response and their number.
async fn request_batch(
    client: &Client,
    limit: &BatchLimit,
    path: &str,
    media_type: &'static str,
    cids: &[Cid],
) -> Result<(Response, usize)> {
    loop {
        let count = cids.len().min(limit.now());
        let list = CidList { cids: cids[..count].iter().map(ToString::to_string).collect() };
        let body =
            serde_json::to_vec(&list).map_err(|e| Error::internal("cannot encode CIDs as JSON").with_source(e))?;
        let request = Request::post(path).accepting(media_type).with_body(JSON, body)?.repeatable();
        match client.send(request).await {
            Ok(response) => return Ok((response, count)),
            Err(e) if limit.lower(&e, count) => {}
            Err(e) => return Err(e),
        }
    }
}

fn parse_all(cids: &[String]) -> Result<Vec<Cid>> {
    cids.iter().map(|cid| parse_cid(cid)).collect()
}

pub(super) async fn get_many(client: &Client, limit: &BatchLimit, cids: &[String]) -> Result<Vec<Option<Bytes>>> {
    let cids = parse_all(cids)?;
    let (mut found, mut rest) = (Vec::with_capacity(cids.len()), &cids[..]);
    while !rest.is_empty() {
        let (response, count) = request_batch(client, limit, "/v1/block/batch/get", CAR, rest).await?;
        let (requested, later) = rest.split_at(count);
        let blocks =
            read(response, requested).await.map_err(|e| if is_of_bytes(&e) { unexpected(client, &e) } else { e })?;
        found.extend(blocks);
        rest = later;
    }
    Ok(found)
}

/// Returns the requested blocks that a CAR contains. The CAR has them in the requested order.
async fn read(response: Response, requested: &[Cid]) -> Result<Vec<Option<Bytes>>> {
    let mut blocks = CarReader::new(response.into_pieces(), CarLimits::default());
    blocks.header().await?;
    let mut found = Vec::with_capacity(requested.len());
    let mut next = blocks.next().await.transpose()?;
    for cid in requested {
        found.push(match next.take_if(|block| block.cid() == cid) {
            Some(block) => {
                next = blocks.next().await.transpose()?;
                Some(own(block.into_parts().1))
            }
            None => None,
        });
    }
    match next {
        Some(block) => Err(Error::corrupt(format!("block {} is out of order", block.cid()))),
        None => Ok(found),
    }
}

/// Copies a small block into its own memory, and returns larger ones unchanged.
fn own(data: Bytes) -> Bytes {
    if data.len() < OWN_MEMORY_BYTES { Bytes::copy_from_slice(&data) } else { data }
}

pub(super) async fn has_many(client: &Client, limit: &BatchLimit, cids: &[String]) -> Result<Vec<bool>> {
    let cids = parse_all(cids)?;
    let (mut found, mut rest) = (Vec::with_capacity(cids.len()), &cids[..]);
    while !rest.is_empty() {
        let (response, count) = request_batch(client, limit, "/v1/block/batch/has", JSON, rest).await?;
        let results = response.json::<BlockExistences>().await?.results;
        if results.len() != count {
            let received = results.len();
            return Err(unexpected(client, &Error::corrupt(format!("{received} results for {count} blocks"))));
        }
        found.extend(results.into_iter().map(|result| result.exists));
        rest = &rest[count..];
    }
    Ok(found)
}

pub(super) async fn size(client: &Client, cid: &str) -> Result<u64> {
    parse_cid(cid)?;
    Ok(client.send(Request::query("block/stat").with_arg(cid)).await?.json::<BlockStat>().await?.size)
}

pub(super) async fn remove(client: &Client, cids: &[String], force: bool) -> Result<()> {
    parse_all(cids)?;
    for cids in cids.chunks(CIDS_PER_URL) {
        let request = Request::command("block/rm").with("force", force).with("quiet", true).with_trailers();
        let mut response = client.send(request.with_args(cids)).await?;
        let mut first = None;
        while let Some(RemovedBlock { hash, error, kind }) = response.line().await? {
            let kind = kind.as_deref().and_then(ErrorKind::from_code).unwrap_or(ErrorKind::Internal);
            let error = (!error.is_empty()).then(|| Error::new(kind, format!("cannot remove {hash}: {error}")));
            first = first.or(error);
        }
        if let Some(error) = first {
            return Err(error);
        }
    }
    Ok(())
}
