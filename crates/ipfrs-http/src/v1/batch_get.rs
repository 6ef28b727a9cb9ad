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
use http::header::{ACCEPT, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_node::{BlockBatch, car};
use serde::Serialize;

use super::{CidList, json, names_car};
use crate::body::{self, Chunked};
use crate::error::{Problem, part_text};
use crate::request_id::RequestId;
use crate::router::AppState;

/// Room in a request's body for one CID with its quotes.
const BYTES_PER_CID: usize = 520;
/// Answers are sent in pieces of about this size.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Serialize)]
struct ItemError {
    cid: String,
    code: &'static str,
    error: String,
}

/// The blocks of a batch in the order asked, as JSON, or as CAR with `Accept: application/vnd.ipld.car`. An item that
/// cannot be had spoils no other.
pub(super) async fn get(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    let as_car = names_car(request.headers(), ACCEPT);
    let answer = async {
        let asked = read(&state, request).await?;
        if as_car { car_answer(&state, asked) } else { json_answer(&state, asked) }
    };
    answer.await.map_err(|e| Problem::new(e, &id))
}

async fn read(state: &AppState, request: Request) -> Result<Vec<String>> {
    let most = state.node.config().batch.max_batch_size;
    let (limit, remedy) = (most * BYTES_PER_CID + 1_024, "send several batches");
    let mut body = body::whole(&state.node, request.into_body(), limit, "batch.max_batch_size", remedy).await?;
    // A text takes more than its two quotes and the comma.
    body.memory.add(body.bytes.len() / 3 * size_of::<String>() + body.bytes.len())?;
    let asked = json::<CidList>(&body.bytes, r#"{"cids":["CID"]}"#)?.cids;
    if asked.len() > most {
        return Err(Error::too_large(format!(
            "a batch of {} blocks is over the limit of {most} (batch.max_batch_size): send several batches",
            asked.len()
        )));
    }
    Ok(asked)
}

fn car_answer(state: &AppState, asked: Vec<String>) -> Result<Response> {
    let cids = asked.iter().enumerate().map(|(index, text)| {
        parse_cid(text).map_err(|e| Error::invalid(format!("cids[{index}]: {e}; a CAR answer has no place for errors")))
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

fn json_answer(state: &AppState, asked: Vec<String>) -> Result<Response> {
    let (mut cids, mut texts, mut errors) =
        (Vec::with_capacity(asked.len()), Vec::with_capacity(asked.len()), Vec::new());
    for text in asked {
        match parse_cid(&text) {
            Ok(cid) => {
                cids.push(cid);
                texts.push(text);
            }
            Err(e) => errors.push(ItemError { cid: text, code: e.kind().code(), error: part_text(&e) }),
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

/// Writes `{"blocks":[...],"errors":[...]}` while the blocks come.
struct JsonWriter {
    batches: BoxStream<'static, BlockBatch>,
    /// The last that came, and which of its answers is next.
    batch: BlockBatch,
    next: usize,
    /// What each was asked by that is not answered yet: a client finds its answer by it, whatever base it uses.
    texts: std::vec::IntoIter<String>,
    errors: Vec<ItemError>,
    /// Blocks that were written.
    written: usize,
    /// Whether the beginning was written.
    is_open: bool,
    /// Whether the end was written.
    is_over: bool,
}

impl JsonWriter {
    /// The next piece, or `None` after the last.
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
            let room = self.batch.section(self.next).ok().flatten().map_or(0, |found| written_bytes(found.data));
            if out.is_empty() {
                out.reserve(room.max(PIECE_BYTES));
            } else if out.len() + room > out.capacity() {
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
                Err(e) => self.errors.push(ItemError { cid: text, code: e.kind().code(), error: part_text(e) }),
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
        // Strings and numbers always serialise.
        out.extend_from_slice(&serde_json::to_vec(&self.errors).unwrap_or_else(|_| b"[]".to_vec()));
        out.push(b'}');
    }
}

/// No less than what [`write_block`] writes.
fn written_bytes(data: &[u8]) -> usize {
    data.len().div_ceil(3) * 4 + 2 * BYTES_PER_CID
}

/// Written by hand: neither CID nor base64 has a character that JSON escapes.
fn write_block(out: &mut Vec<u8>, cid: &str, data: &[u8]) {
    out.extend_from_slice(b"{\"cid\":\"");
    out.extend_from_slice(cid.as_bytes());
    out.extend_from_slice(b"\",\"data\":\"");
    STANDARD.encode_append(data, out);
    out.extend_from_slice(b"\",\"size\":");
    out.extend_from_slice(data.len().to_string().as_bytes());
    out.push(b'}');
}

#[derive(Serialize)]
pub(super) struct HasAnswer {
    results: Vec<HasResult>,
}

#[derive(Serialize)]
struct HasResult {
    cid: String,
    exists: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// For each CID, whether its block is here, and its size. A malformed CID is a result with its error.
pub(super) async fn has(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<axum::Json<HasAnswer>, Problem> {
    let answer = async {
        let asked = read(&state, request).await?;
        let parsed: Vec<_> = asked.iter().map(|text| parse_cid(text)).collect();
        let cids: Vec<Cid> = parsed.iter().flatten().copied().collect();
        let mut sizes = state.node.batch_has(&cids).await?.into_iter();
        let results = asked.into_iter().zip(parsed).map(|(cid, parsed)| match parsed {
            Ok(_) => {
                let size = sizes.next().flatten();
                HasResult { cid, exists: size.is_some(), size, error: None }
            }
            Err(e) => HasResult { cid, exists: false, size: None, error: Some(part_text(&e)) },
        });
        Ok(axum::Json(HasAnswer { results: results.collect() }))
    };
    answer.await.map_err(|e| Problem::new(e, &id))
}
