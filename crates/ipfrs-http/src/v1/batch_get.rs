//! `POST /v1/block/batch/get` and `/has`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use base64_simd::STANDARD;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use http::HeaderValue;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_node::{BlockBatch, car};
use ipfrs_rpc::types::{BlockExistence, BlockExistences, CidList, FailedItem};

use super::batch_body::{accepts_car, check_no_query, json};
use crate::body::{self, Chunked};
use crate::error::{Problem, part_text};
use crate::request_id::RequestId;
use crate::state::AppState;

/// Maximum number of bytes of one CID, with its quotes, in a request body.
const BYTES_PER_CID: usize = 520;
/// Approximate size of the pieces of a response, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// Responds with the blocks of a batch in the requested order, as JSON, or as a CAR with
/// `Accept: application/vnd.ipld.car`. In JSON, a missing or malformed item does not affect the other items.
pub(super) async fn get(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    let as_car = accepts_car(request.headers());
    let response = async {
        let requested = read(&state, request).await?;
        if as_car { car_response(&state, requested) } else { json_response(&state, requested) }
    };
    response.await.map_err(|e| Problem::new(e, &id))
}

async fn read(state: &AppState, request: Request) -> Result<Vec<String>> {
    check_no_query(request.uri())?;
    let most = state.node.config().batch.max_batch_size;
    let (limit, remedy) = (most * BYTES_PER_CID + 1_024, "send several batches");
    let mut body = body::whole(&state.memory, request.into_body(), limit, "batch.max_batch_size", remedy).await?;
    // Each string takes at least three bytes of the body: two quotes and a comma.
    body.memory.add(body.bytes.len() / 3 * size_of::<String>() + body.bytes.len())?;
    let requested = json::<CidList>(&body.bytes, r#"{"cids":["CID"]}"#)?.cids;
    if requested.len() > most {
        return Err(Error::too_large(format!(
            "a batch of {} blocks is over the limit of {most} (batch.max_batch_size): send several batches",
            requested.len()
        )));
    }
    Ok(requested)
}

fn car_response(state: &AppState, requested: Vec<String>) -> Result<Response> {
    let cids = requested.iter().enumerate().map(|(index, text)| {
        parse_cid(text).map_err(|e| Error::invalid(format!("cids[{index}]: {e}; a CAR response cannot report errors")))
    });
    let cids: Arc<[Cid]> = cids.collect::<Result<Vec<_>>>()?.into();
    let batches = state.node.batch_get_together(Arc::clone(&cids))?;
    let pieces = car::encode_batches(cids, batches.boxed());
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.car; version=1")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, Chunked::body(pieces.boxed(), false)).into_response())
}

fn json_response(state: &AppState, requested: Vec<String>) -> Result<Response> {
    let (mut cids, mut texts, mut errors) =
        (Vec::with_capacity(requested.len()), Vec::with_capacity(requested.len()), Vec::new());
    for text in requested {
        match parse_cid(&text) {
            Ok(cid) => {
                cids.push(cid);
                texts.push(text);
            }
            Err(e) => errors.push(failed_item(text, &e)),
        }
    }
    let batches = state.node.batch_get_together(cids.into())?.boxed();
    let (batch, texts) = (BlockBatch::default(), texts.into_iter());
    let writer = JsonWriter { batches, batch, next: 0, texts, errors, written: 0, is_open: false, is_over: false };
    let body = Body::from_stream(stream::unfold(writer, |mut writer| async move {
        let piece = writer.piece().await?;
        Some((Ok::<_, Error>(piece), writer))
    }));
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
}

/// Writer of `{"blocks":[...],"errors":[...]}`, which runs while the blocks are read.
struct JsonWriter {
    batches: BoxStream<'static, BlockBatch>,
    /// Batch being written, and the index of its next block.
    batch: BlockBatch,
    next: usize,
    /// CIDs of the remaining items as the client wrote them, so that it can match the results whatever base it uses.
    texts: std::vec::IntoIter<String>,
    errors: Vec<FailedItem>,
    /// Number of blocks written.
    written: usize,
    /// Whether the beginning was written.
    is_open: bool,
    /// Whether the end was written.
    is_over: bool,
}

impl JsonWriter {
    /// Returns the next piece, or `None` after the last.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let mut out = Vec::new();
        loop {
            if self.next == self.batch.len() {
                match self.batches.next().await {
                    Some(batch) => (self.batch, self.next) = (batch, 0),
                    None => {
                        self.end(&mut out);
                        break;
                    }
                }
            }
            let entry_bytes = self.batch.section(self.next).ok().flatten().map_or(0, |found| written_bytes(found.data));
            if out.is_empty() {
                out.reserve(entry_bytes.max(PIECE_BYTES));
            } else if out.len() + entry_bytes > out.capacity() {
                break;
            }
            self.begin(&mut out);
            let text = self.texts.next().unwrap_or_default();
            match self.batch.section(self.next) {
                Ok(Some(found)) => {
                    if self.written > 0 {
                        out.push(b',');
                    }
                    self.written += 1;
                    write_block(&mut out, &text, found.data);
                }
                Ok(None) => {}
                Err(e) => self.errors.push(failed_item(text, e)),
            }
            self.next += 1;
        }
        Some(out.into())
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.is_open, true) {
            out.extend_from_slice(b"{\"blocks\":[");
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        self.begin(out);
        self.is_over = true;
        out.extend_from_slice(b"],\"errors\":");
        // Strings and numbers always serialize.
        out.extend_from_slice(&serde_json::to_vec(&self.errors).unwrap_or_else(|_| b"[]".to_vec()));
        out.push(b'}');
    }
}

fn failed_item(cid: String, error: &Error) -> FailedItem {
    FailedItem { cid, code: error.kind().code().to_owned(), error: part_text(error) }
}

/// Returns an upper bound for the number of bytes that [`write_block`] writes.
fn written_bytes(data: &[u8]) -> usize {
    data.len().div_ceil(3) * 4 + 2 * BYTES_PER_CID
}

/// Appends a block as JSON. Neither a CID nor base64 contains a character that JSON escapes.
fn write_block(out: &mut Vec<u8>, cid: &str, data: &[u8]) {
    out.extend_from_slice(b"{\"cid\":\"");
    out.extend_from_slice(cid.as_bytes());
    out.extend_from_slice(b"\",\"data\":\"");
    STANDARD.encode_append(data, out);
    out.extend_from_slice(b"\",\"size\":");
    out.extend_from_slice(data.len().to_string().as_bytes());
    out.push(b'}');
}

/// Returns, for each CID, whether its block is stored, and the block's size. For a malformed CID, the result holds an
/// error.
pub(super) async fn has(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<axum::Json<BlockExistences>, Problem> {
    let response = async {
        let requested = read(&state, request).await?;
        let parsed: Vec<_> = requested.iter().map(|text| parse_cid(text)).collect();
        let cids: Vec<Cid> = parsed.iter().flatten().copied().collect();
        let mut sizes = state.node.batch_has(&cids).await?.into_iter();
        let results = requested.into_iter().zip(parsed).map(|(cid, parsed)| match parsed {
            Ok(_) => {
                let size = sizes.next().flatten();
                BlockExistence { cid, exists: size.is_some(), size, error: None }
            }
            Err(e) => BlockExistence { cid, exists: false, size: None, error: Some(part_text(&e)) },
        });
        Ok(axum::Json(BlockExistences { results: results.collect() }))
    };
    response.await.map_err(|e| Problem::new(e, &id))
}
