//! `POST /v1/block/batch/get` and `/has`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use base64_simd::STANDARD;
use bytes::Bytes;
use futures::stream::{BoxStream, Fuse};
use futures::{StreamExt, stream};
use http::HeaderValue;
use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_middleware::RequestMemory;
use ipfrs_node::{BlockBatch, car};
use ipfrs_rpc::types::{BlockExistence, BlockExistences, CidList, FailedItem};

use super::batch_body::{accepts_car, json};
use crate::body::{self, Chunked, Whole};
use crate::error::{Problem, part_text};
use crate::request_id::RequestId;
use crate::state::AppState;

/// Maximum number of bytes of one CID, with its quotes, in a request body.
const BYTES_PER_CID: usize = 520;
/// Approximate size of the pieces of a response, in bytes. A response that its client does not read holds some of them.
const PIECE_BYTES: usize = 64 * 1024;
/// Memory for the result of an item without its CID and its block, in bytes: the longest is an error.
const RESULT_BYTES: usize = 256;

/// Responds with the blocks of a batch in the requested order, as JSON, or as a CAR with
/// `Accept: application/vnd.ipld.car`. In JSON, a missing or malformed item does not affect the other items.
pub(super) async fn get(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    let as_car = accepts_car(request.headers());
    let response = async {
        let (requested, memory) = read(&state, request).await?;
        if as_car { car_response(&state, requested, memory) } else { json_response(&state, requested, memory) }
    };
    response.await.map_err(|e| Problem::new(e, &id))
}

/// Returns the requested CIDs, with the memory for them and for their results, which the response holds.
async fn read(state: &AppState, request: Request) -> Result<(Vec<String>, RequestMemory)> {
    let most = state.node.config().batch.max_batch_size;
    let (limit, remedy) = (most * BYTES_PER_CID + 1_024, "send several batches");
    let Whole { bytes, mut memory } =
        body::whole(&state.memory, request.into_body(), limit, "batch.max_batch_size", remedy).await?;
    // Each string takes at least three bytes of the body: two quotes and a comma.
    memory.add(bytes.len() / 3 * size_of::<String>() + bytes.len())?;
    let requested = json::<CidList>(&bytes, r#"{"cids":["CID"]}"#)?.cids;
    if requested.len() > most {
        return Err(Error::too_large(format!(
            "a batch of {} blocks is over the limit of {most} (batch.max_batch_size): send several batches",
            requested.len()
        )));
    }
    let held_bytes: usize = requested.iter().map(|cid| cid.capacity() + RESULT_BYTES).sum();
    drop(bytes);
    memory.shrink_to(held_bytes);
    memory.grow_to(held_bytes)?;
    Ok((requested, memory))
}

fn car_response(state: &AppState, requested: Vec<String>, memory: RequestMemory) -> Result<Response> {
    let cids = requested.iter().enumerate().map(|(index, text)| {
        parse_cid(text).map_err(|e| Error::invalid(format!("cids[{index}]: {e}; a CAR response cannot report errors")))
    });
    let cids: Arc<[Cid]> = cids.collect::<Result<Vec<_>>>()?.into();
    let batches = state.node.batch_get_together(Arc::clone(&cids))?;
    let pieces = car::encode_batches(cids, batches.boxed()).inspect(move |_| {
        let _lives_as_long = &memory;
    });
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/vnd.ipld.car; version=1")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, Chunked::body(pieces.boxed(), false)).into_response())
}

fn json_response(state: &AppState, requested: Vec<String>, memory: RequestMemory) -> Result<Response> {
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
    let batches = state.node.batch_get_together(cids.into())?.boxed().fuse();
    let writer = JsonWriter {
        start: b"{\"blocks\":[",
        batches,
        batch: BlockBatch::default(),
        next: 0,
        encoded_bytes: 0,
        texts: texts.into_iter(),
        errors,
        listed: None,
        written: 0,
        is_over: false,
        _memory: memory,
    };
    let body = Body::from_stream(stream::unfold(writer, |mut writer| async move {
        let piece = writer.piece().await?;
        Some((Ok::<_, Error>(piece), writer))
    }));
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
}

/// Writer of `{"blocks":[...],"errors":[...]}`, which runs while the blocks are read.
struct JsonWriter {
    /// The beginning, until it is written.
    start: &'static [u8],
    batches: Fuse<BoxStream<'static, BlockBatch>>,
    /// Batch being written, and the index of its next block.
    batch: BlockBatch,
    next: usize,
    /// Number of bytes of that block that were written, if it is being written.
    encoded_bytes: usize,
    /// CIDs of the remaining items as the client wrote them, so that it can match the results whatever base it uses.
    texts: std::vec::IntoIter<String>,
    errors: Vec<FailedItem>,
    /// Errors that remain to be written, after all blocks.
    listed: Option<std::vec::IntoIter<FailedItem>>,
    /// Number of blocks written, or of errors after all blocks.
    written: usize,
    /// Whether the end was written.
    is_over: bool,
    _memory: RequestMemory,
}

impl JsonWriter {
    /// Returns the next piece, or `None` after the last.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        // The last item of a piece may exceed its size.
        let mut out = Vec::with_capacity(PIECE_BYTES + 2 * BYTES_PER_CID);
        out.extend_from_slice(std::mem::take(&mut self.start));
        while out.len() < PIECE_BYTES && !self.is_over {
            if self.next < self.batch.len() {
                self.write_item(&mut out);
            } else if let Some(batch) = self.batches.next().await {
                (self.batch, self.next) = (batch, 0);
            } else {
                self.write_error(&mut out);
            }
        }
        Some(out.into())
    }

    /// Writes the next block, as far as the piece has room for it. A large block is thus kept by the store alone.
    fn write_item(&mut self, out: &mut Vec<u8>) {
        match self.batch.section(self.next) {
            Ok(Some(found)) => {
                if self.encoded_bytes == 0 {
                    begin_block(out, self.written > 0, &self.texts.next().unwrap_or_default());
                    self.written += 1;
                }
                let rest = &found.data[self.encoded_bytes..];
                // Three bytes become four. Only the last part may be padded.
                let room = PIECE_BYTES.saturating_sub(out.len()).max(4) / 4 * 3;
                let part = &rest[..rest.len().min(room)];
                STANDARD.encode_append(part, out);
                if part.len() < rest.len() {
                    self.encoded_bytes += part.len();
                    return;
                }
                end_block(out, found.data.len());
                self.encoded_bytes = 0;
            }
            Ok(None) => drop(self.texts.next()),
            Err(e) => self.errors.push(failed_item(self.texts.next().unwrap_or_default(), e)),
        }
        self.next += 1;
    }

    /// Writes the next error, or the end after the last.
    fn write_error(&mut self, out: &mut Vec<u8>) {
        let errors = self.listed.get_or_insert_with(|| {
            out.extend_from_slice(b"],\"errors\":[");
            self.written = 0;
            std::mem::take(&mut self.errors).into_iter()
        });
        let Some(error) = errors.next() else {
            out.extend_from_slice(b"]}");
            self.is_over = true;
            return;
        };
        if self.written > 0 {
            out.push(b',');
        }
        self.written += 1;
        // Strings always serialize.
        out.extend_from_slice(&serde_json::to_vec(&error).unwrap_or_default());
    }
}

fn failed_item(cid: String, error: &Error) -> FailedItem {
    FailedItem { cid, code: error.kind().code().to_owned(), error: part_text(error) }
}

/// Appends a block as JSON up to its data. Neither a CID nor base64 contains a character that JSON escapes.
fn begin_block(out: &mut Vec<u8>, follows_another: bool, cid: &str) {
    if follows_another {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"cid\":\"");
    out.extend_from_slice(cid.as_bytes());
    out.extend_from_slice(b"\",\"data\":\"");
}

/// Appends the rest of a block of `size` bytes as JSON.
fn end_block(out: &mut Vec<u8>, size: usize) {
    out.extend_from_slice(b"\",\"size\":");
    out.extend_from_slice(size.to_string().as_bytes());
    out.push(b'}');
}

/// Returns, for each CID, whether its block is stored, and the block's size. For a malformed CID, the result holds an
/// error.
pub(super) async fn has(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    let response = async {
        let (requested, mut memory) = read(&state, request).await?;
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
        // Strings and numbers always serialize.
        let json = serde_json::to_vec(&BlockExistences { results: results.collect() }).unwrap_or_default();
        // In JSON, one byte of a malformed CID can take six.
        memory.grow_to(json.capacity())?;
        let body = Body::from(memory.hold(json));
        Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response())
    };
    response.await.map_err(|e| Problem::new(e, &id))
}
