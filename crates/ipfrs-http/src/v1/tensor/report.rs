//! JSON reports about tensors, generated while the client reads them.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::channel::mpsc::{Sender, channel};
use futures::{SinkExt, Stream, StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Catalogue, Node, Order, Summary, TensorFile, TensorInfo, TensorOperation};
use ipfrs_rpc::types::ElementStats;
use serde::Serialize;

use super::request::{TensorQuery, View};
use super::response::{Wanted, response};
use crate::body::unknown_length;
use crate::failure::broken_off;

/// Approximate size of a piece of JSON, in bytes.
const PIECE_BYTES: usize = 16 * 1024;

/// The tensors that the request names, or all of them in the order of the file if it names none.
struct Chosen {
    catalogue: Arc<Catalogue>,
    /// Positions in the catalogue.
    named: Option<Vec<usize>>,
}

impl Chosen {
    fn of(file: &TensorFile, names: &[String]) -> Result<Self> {
        let catalogue = file.catalogue.clone();
        let named = names.iter().map(|name| catalogue.place(name)).collect::<Result<_>>()?;
        Ok(Self { catalogue, named: (!names.is_empty()).then_some(named) })
    }

    fn count(&self) -> usize {
        self.named.as_ref().map_or(self.catalogue.tensors().len(), Vec::len)
    }

    fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        (0..self.count())
            .map(|index| &self.catalogue.tensors()[self.named.as_ref().map_or(index, |named| named[index])])
    }
}

/// Responds with the list of the requested tensors, or with their statistics.
pub(super) async fn report(
    node: &Node,
    file: TensorFile,
    tensor_query: &TensorQuery,
    headers: HeaderMap,
    wanted: Wanted,
) -> Result<Response> {
    let chosen = Chosen::of(&file, &tensor_query.request.names)?;
    if wanted != Wanted::Whole {
        return Ok(without_body(headers, wanted));
    }
    match tensor_query.view {
        View::Stats => Ok(answer(stats(node.clone(), file, chosen).await?, headers)),
        View::Info | View::Tensors => {
            node.count_tensor(TensorOperation::List, 0);
            Ok(answer(info(file, chosen), headers))
        }
    }
}

/// Writes `{"cid","format","metadata","tensors":[...]}`.
fn info(file: TensorFile, chosen: Chosen) -> impl Stream<Item = Result<Bytes>> + Send + 'static {
    written(async move |mut json| {
        json.opening(&file).await?;
        json.put(",\"metadata\":{").await?;
        for (index, (key, text)) in chosen.catalogue.metadata().iter().enumerate() {
            json.put(if index > 0 { "," } else { "" }).await?;
            json.text(key).await?;
            json.put(":").await?;
            json.text(text).await?;
        }
        json.put("},\"tensors\":[").await?;
        for (index, tensor) in chosen.tensors().enumerate() {
            json.put(if index > 0 { "," } else { "" }).await?;
            json.tensor(tensor).await?;
            json.put(&format!(",\"offset\":{}{}}}", tensor.offset, layout(tensor))).await?;
        }
        json.put("]}\n").await?;
        json.end().await
    })
}

/// Writes `{"cid","format","tensors":[...]}`. The statistics of a tensor are computed after the client has read the
/// previous ones.
async fn stats(
    node: Node,
    file: TensorFile,
    chosen: Chosen,
) -> Result<impl Stream<Item = Result<Bytes>> + Send + 'static> {
    // Reads the first tensor in advance, so that its error sets the status.
    let first = match chosen.tensors().next() {
        Some(tensor) => Some(node.tensor_stats(&file, tensor).await?),
        None => None,
    };
    Ok(written(async move |mut json| {
        json.opening(&file).await?;
        json.put(",\"tensors\":[").await?;
        for (index, tensor) in chosen.tensors().enumerate() {
            let summary = match first.filter(|_| index == 0) {
                Some(first) => first,
                None => node.tensor_stats(&file, tensor).await?,
            };
            json.put(if index > 0 { "," } else { "" }).await?;
            json.tensor(tensor).await?;
            // Appends the members to the open object.
            json.put(&in_json(&stats_fields(&summary))?.replacen('{', ",", 1)).await?;
            json.flush().await?;
        }
        json.put("]}\n").await?;
        json.end().await
    }))
}

/// Returns the response to HEAD, or 304. The length of a document is unknown before it is generated.
fn without_body(mut headers: HeaderMap, wanted: Wanted) -> Response {
    if wanted == Wanted::NotModified {
        return response(StatusCode::NOT_MODIFIED, headers);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = response(StatusCode::OK, headers);
    *response.body_mut() = unknown_length();
    response
}

fn answer(document: impl Stream<Item = Result<Bytes>> + Send + 'static, mut headers: HeaderMap) -> Response {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = response(StatusCode::OK, headers);
    *response.body_mut() = Body::from_stream(document.map(|piece| piece.map_err(broken_off)));
    response
}

fn stats_fields(summary: &Summary) -> ElementStats {
    let Summary { count, nan, infinite, zero, min, max, mean, std } = *summary;
    ElementStats { count, nan, inf: infinite, zero, min, max, mean, std }
}

/// Returns the members for an unusual memory layout of the tensor in the file.
fn layout(tensor: &TensorInfo) -> &'static str {
    match (tensor.order, tensor.is_big_endian) {
        (Order::RowMajor, false) => "",
        (Order::RowMajor, true) => ",\"big_endian\":true",
        (Order::ColumnMajor, false) => ",\"fortran_order\":true",
        (Order::ColumnMajor, true) => ",\"fortran_order\":true,\"big_endian\":true",
    }
}

fn in_json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::internal("JSON could not be serialized").with_source(e))
}

/// Returns the output of `write` as a stream. `write` waits after each piece until it is read.
fn written<F>(write: impl FnOnce(Json) -> F) -> impl Stream<Item = Result<Bytes>> + Send
where
    F: Future<Output = Result<()>> + Send,
{
    let (pieces, received) = channel(0);
    let written = stream::once(write(Json { pieces, piece: String::new() }));
    let errors = written.filter_map(|outcome| std::future::ready(outcome.err().map(Err)));
    stream::select(received.map(Ok), errors)
}

/// Writer of JSON for a client. It copies at most one piece of a long text at a time.
struct Json {
    pieces: Sender<Bytes>,
    piece: String,
}

impl Json {
    async fn put(&mut self, json: &str) -> Result<()> {
        self.piece.push_str(json);
        if self.piece.len() < PIECE_BYTES { Ok(()) } else { self.flush().await }
    }

    /// Sends the pending text.
    async fn flush(&mut self) -> Result<()> {
        let piece = std::mem::take(&mut self.piece);
        // The receiver is dropped together with this future.
        self.pieces.send(piece.into()).await.map_err(|e| Error::internal("the response was dropped").with_source(e))
    }

    async fn end(mut self) -> Result<()> {
        self.flush().await
    }

    /// Writes a string of any length, in quotes.
    async fn text(&mut self, mut text: &str) -> Result<()> {
        self.put("\"").await?;
        while !text.is_empty() {
            let (some, rest) = text.split_at(text.floor_char_boundary(PIECE_BYTES.min(text.len())));
            // Each character is escaped separately.
            let quoted = in_json(some)?;
            self.put(&quoted[1..quoted.len() - 1]).await?;
            text = rest;
        }
        self.put("\"").await
    }

    /// Writes `{"cid","format"`.
    async fn opening(&mut self, file: &TensorFile) -> Result<()> {
        self.put(&format!("{{\"cid\":\"{}\",\"format\":\"{}\"", file.cid, file.catalogue.format().name())).await
    }

    /// Writes `{"name","dtype","shape","size_bytes"`.
    async fn tensor(&mut self, tensor: &TensorInfo) -> Result<()> {
        self.put("{\"name\":").await?;
        self.text(&tensor.name).await?;
        let (dtype, shape) = (tensor.dtype.name(), in_json(&tensor.shape)?);
        self.put(&format!(",\"dtype\":\"{dtype}\",\"shape\":{shape},\"size_bytes\":{}", tensor.bytes)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn long_json_text_is_written_in_bounded_pieces() {
        let text: String = "\"\\é\u{1}𝄞\n".repeat(100_000);
        let expected = serde_json::json!([text, "", "\""]);
        let pieces: Vec<Bytes> = written(async move |mut json| {
            json.put("[").await?;
            json.text(&text).await?;
            json.put(",").await?;
            json.text("").await?;
            json.put(",").await?;
            json.text("\"").await?;
            json.put("]").await?;
            json.end().await
        })
        .map(|piece| piece.unwrap())
        .collect()
        .await;
        let longest = pieces.iter().map(Bytes::len).max().unwrap();
        // A character is escaped to at most six bytes.
        assert!(longest <= 8 * PIECE_BYTES, "{longest}");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&pieces.concat()).unwrap(), expected);
    }

    #[tokio::test]
    async fn json_failure_midway_is_a_stream_error() {
        let pieces = written(async |mut json| {
            json.put("[").await?;
            json.flush().await?;
            Err(Error::not_found("the rest"))
        });
        let pieces: Vec<_> = pieces.collect().await;
        assert!(pieces.iter().any(Result::is_err), "{pieces:?}");
    }
}
