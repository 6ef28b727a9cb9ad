//! `POST /v1/block/batch/put`.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use futures::StreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Result, codec, parse_cid};
use ipfrs_middleware::RequestMemory;
use ipfrs_middleware::auth::stored_blocks;
use ipfrs_middleware::json_object::Object;
use ipfrs_node::{BatchItem, BatchPut, BatchPutOutcome, BlockFormat, PutBlock, PutMode, TransactionStatus, car};
use ipfrs_rpc::types::{RefusedItem, StoredBatch, StoredItem};
use parking_lot::Mutex;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::batch_body::{is_car, json};
use super::parameters;
use crate::access::StoredObject;
use crate::body::{self, Whole};
use crate::error::{Problem, part_text};
use crate::request_id::RequestId;
use crate::state::AppState;

/// Base64 with optional padding, since some JavaScript and Go clients omit it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutRequest<'a> {
    #[serde(borrow, deserialize_with = "bounded")]
    blocks: Vec<PutItem<'a>>,
    transaction_mode: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutItem<'a> {
    // Borrowed from the body if it contains no escapes.
    #[serde(borrow)]
    data: Cow<'a, str>,
    cid: Option<String>,
    codec: Option<String>,
    mhtype: Option<String>,
}

/// Maximum number of items that are parsed from a batch: one more than any configuration accepts.
const MAX_ITEMS: usize = 100_001;

/// Parses at most [`MAX_ITEMS`] items of a list, since parsed items take more memory than their text. The Node
/// rejects a batch of this size.
fn bounded<'de, D: Deserializer<'de>>(list: D) -> std::result::Result<Vec<PutItem<'de>>, D::Error> {
    struct Items;

    impl<'de> Visitor<'de> for Items {
        type Value = Vec<PutItem<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of blocks")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while items.len() < MAX_ITEMS {
                let Some(Object(item)) = list.next_element()? else { return Ok(items) };
                items.push(item);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(items)
        }
    }

    list.deserialize_seq(Items)
}

/// Bytes of memory for a block of a CAR in addition to its data.
const SECTION_BYTES: usize = 512;

/// Stores a batch durably: a JSON body, or a CAR body whose blocks are all verified.
pub(super) async fn put(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    let outcome = async {
        // For a CAR, which cannot contain it.
        let by_query = parameters::only(request.uri(), "transaction_mode")?.as_deref().map(mode).transpose()?;
        if is_car(request.headers()) {
            let memory = Arc::new(Mutex::new(state.memory.reservation()));
            let mode = by_query.unwrap_or_default();
            let batch = from_car(&state, request.into_body(), mode, memory.clone()).await?;
            return state.node.batch_put(batch).await;
        }
        let (batch, _memory) = from_json(&state, request.into_body(), by_query).await?;
        state.node.batch_put(batch).await
    };
    let outcome = outcome.await.map_err(|e| Problem::new(e, &id))?;
    render(outcome, &String::from_utf8_lossy(&state.request_ids.make()), &id)
}

/// Parses a transaction mode.
fn mode(name: &str) -> Result<PutMode> {
    match name {
        "atomic" => Ok(PutMode::Atomic),
        "best_effort" => Ok(PutMode::BestEffort),
        other => Err(Error::invalid(format!("transaction_mode {other:?} is unknown: use atomic or best_effort"))),
    }
}

/// Parses a batch, and returns it with the memory reserved for it.
async fn from_json(state: &AppState, body: Body, by_query: Option<PutMode>) -> Result<(BatchPut, RequestMemory)> {
    let batch = &state.node.config().batch;
    let most = batch.max_batch_bytes;
    // Base64 encodes three bytes as four; the rest of an item fits into a kilobyte.
    let limit = batch.max_batch_bytes / 3 * 4 + batch.max_batch_size.min(batch.max_batch_bytes / 1_024) * 1_024;
    let whole = body::whole(
        &state.memory,
        body,
        limit,
        "four thirds of batch.max_batch_bytes, for base64",
        "send several batches",
    );
    let Whole { bytes: body, mut memory } = whole.await?;
    // The decoded blocks take three quarters of it, and strings with escapes the rest.
    memory.add(body.len())?;
    // Decoding megabytes must not block a runtime worker.
    let decoded = tokio::task::spawn_blocking(move || {
        let request: PutRequest = json(&body, r#"{"blocks":[{"data":"BASE64"}]}"#)?;
        let by_body = request.transaction_mode.as_deref().map(mode).transpose()?;
        let mode = by_query.or(by_body).unwrap_or_default();
        let items: Vec<_> = request.blocks.into_iter().map(item).collect();
        let of_item = |item: &Result<BatchItem>| match item {
            Ok(BatchItem::Put(block)) => block.data.len(),
            _ => 0,
        };
        let bytes: usize = items.iter().map(of_item).sum();
        if bytes > most {
            return Err(Error::too_large(format!(
                "the blocks have {bytes} bytes, over the limit of {most} (batch.max_batch_bytes): send several batches"
            )));
        }
        Ok((BatchPut { items, mode }, memory))
    });
    decoded.await.map_err(|e| Error::internal("decoding the batch failed").with_source(e))?
}

fn item(item: PutItem<'_>) -> Result<BatchItem> {
    let data = BASE64.decode(item.data.as_bytes()).map_err(|e| Error::invalid(format!("data is not base64: {e}")))?;
    let codec = item.codec.as_deref().map_or(Ok(codec::RAW), codec::parse)?;
    let hash = item.mhtype.as_deref().map_or(Ok(HashFunction::default()), HashFunction::from_name)?;
    let cid = item.cid.as_deref().map(parse_cid).transpose()?;
    if let Some(cid) = &cid {
        let differs = (item.codec.is_some() && cid.codec() != codec)
            || (item.mhtype.is_some() && cid.hash().code() != hash.code());
        if differs {
            return Err(Error::invalid(format!(
                "codec or mhtype differs from that of {cid}: leave them out if a cid is given"
            )));
        }
    }
    Ok(BatchItem::Put(PutBlock {
        data: data.into(),
        cid,
        format: BlockFormat { version: 1, codec, hash, digest_bytes: None },
    }))
}

/// Reads a complete CAR, which is limited to the size of a batch.
async fn from_car(state: &AppState, body: Body, mode: PutMode, memory: Arc<Mutex<RequestMemory>>) -> Result<BatchPut> {
    let batch = &state.node.config().batch;
    // Only the blocks of a batch and their content IDs are kept.
    let most = batch.max_batch_bytes.saturating_add(batch.max_batch_size.saturating_mul(SECTION_BYTES));
    let mut received_bytes = 0_usize;
    let pieces = body::pieces(body).map(move |piece| {
        let piece = piece?;
        received_bytes = received_bytes.saturating_add(piece.len());
        memory.lock().grow_to(received_bytes.min(most))?;
        Ok(piece)
    });
    let mut reader = car::CarReader::new(Box::pin(pieces), car::CarLimits::default());
    reader.header().await?;
    let (mut items, mut bytes) = (Vec::new(), 0);
    while let Some(block) = reader.next().await {
        let block = block?;
        bytes += block.data().len();
        if items.len() == batch.max_batch_size || bytes > batch.max_batch_bytes {
            return Err(Error::too_large(format!(
                "the CAR is over the limit of {} blocks or {} bytes (batch.max_batch_size, batch.max_batch_bytes): send \
                 several",
                batch.max_batch_size, batch.max_batch_bytes
            )));
        }
        items.push(Ok(BatchItem::Verified(block)));
    }
    Ok(BatchPut { items, mode })
}

/// Renders `{"stored","errors","transaction_id","transaction_status"}`. If nothing was stored, the response is a
/// problem document with the same members and the status of the first error.
fn render(outcome: BatchPutOutcome, transaction: &str, id: &RequestId) -> Result<Response, Problem> {
    let status = match outcome.status {
        TransactionStatus::Committed => "committed",
        TransactionStatus::PartialSuccess => "partial_success",
        TransactionStatus::RolledBack => "rolled_back",
    };
    let stored = outcome.stored.iter().map(|(index, cid, size)| {
        let (cid, size, index) = (cid.to_string(), *size, *index);
        StoredItem { cid, size, index }
    });
    let errors = outcome.errors.iter().map(|(index, e)| {
        let (index, code) = (*index, e.kind().code().to_owned());
        RefusedItem { index, code, error: part_text(e) }
    });
    let (transaction_id, transaction_status) = (transaction.to_owned(), status.to_owned());
    let batch = StoredBatch { stored: stored.collect(), errors: errors.collect(), transaction_id, transaction_status };
    match outcome.errors.into_iter().next() {
        Some((index, error)) if outcome.status == TransactionStatus::RolledBack => {
            let error = Error::new(error.kind(), format!("nothing was stored: blocks[{index}]: {error}"));
            Err(Problem { error, request_id: id.clone(), members: members_of(&batch) })
        }
        _ => {
            let stored = batch.stored.first().map(|first| stored_blocks(&first.cid, batch.stored.len()));
            let mut response = Json(batch).into_response();
            if let Some(stored) = stored {
                response.extensions_mut().insert(StoredObject(stored));
            }
            Ok(response)
        }
    }
}

/// Returns the fields of a result as members of a problem document.
fn members_of(batch: &StoredBatch) -> Map<String, Value> {
    match serde_json::to_value(batch) {
        Ok(Value::Object(members)) => members,
        // Strings and numbers always serialize.
        _ => Map::new(),
    }
}
