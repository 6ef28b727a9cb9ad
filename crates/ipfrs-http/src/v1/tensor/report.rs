//! What is told of tensors, as JSON.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Catalogue, Node, Summary, TensorFile, TensorInfo, TensorOperation};
use serde::Serialize;

use super::{Wanted, response};
use crate::body::unknown_length;
use crate::failure::broken_off;

/// Tensors that are listed in one piece.
const TENSORS_PER_PIECE: usize = 256;

/// What is listed of a tensor.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [u64],
    size_bytes: u64,
    offset: u64,
}

/// What is told of its elements.
#[derive(Debug, Serialize)]
struct Summed<'a> {
    name: &'a str,
    dtype: &'static str,
    shape: &'a [u64],
    size_bytes: u64,
    count: u64,
    nan: u64,
    inf: u64,
    zero: u64,
    min: Option<f64>,
    max: Option<f64>,
    mean: Option<f64>,
    std: Option<f64>,
}

/// The tensors that are named; without names all of them, in the order of the file.
struct Chosen {
    catalogue: Arc<Catalogue>,
    named: Option<Vec<TensorInfo>>,
}

impl Chosen {
    fn of(file: &TensorFile, names: &[String]) -> Result<Self> {
        let catalogue = file.catalogue.clone();
        let named = names.iter().map(|name| catalogue.get(name).cloned()).collect::<Result<_>>()?;
        Ok(Self { catalogue, named: (!names.is_empty()).then_some(named) })
    }

    fn tensors(&self) -> &[TensorInfo] {
        self.named.as_deref().unwrap_or(self.catalogue.tensors())
    }
}

/// `{"cid","format","metadata","tensors":[...]}`, made as the client takes it.
pub(super) fn info(
    node: &Node,
    file: TensorFile,
    names: &[String],
    headers: HeaderMap,
    wanted: Wanted,
) -> Result<Response> {
    let chosen = Chosen::of(&file, names)?;
    if wanted != Wanted::Whole {
        return Ok(without_body(headers, wanted));
    }
    node.count_tensor(TensorOperation::List, 0);
    let metadata = json(file.catalogue.metadata())?;
    let head = format!("{},\"metadata\":{metadata},\"tensors\":[", opening(&file)?);
    let count = chosen.tensors().len().div_ceil(TENSORS_PER_PIECE);
    let pieces = (0..count).map(move |piece| {
        let first = piece * TENSORS_PER_PIECE;
        let mut text = String::new();
        for (index, tensor) in chosen.tensors().iter().enumerate().skip(first).take(TENSORS_PER_PIECE) {
            let TensorInfo { name, dtype, shape, offset, bytes } = tensor;
            let listed = Listed { name, dtype: dtype.name(), shape, size_bytes: *bytes, offset: *offset };
            text.push_str(if index > 0 { "," } else { "" });
            text.push_str(&json(&listed)?);
        }
        Ok(Bytes::from(text))
    });
    Ok(document(head, stream::iter(pieces), headers))
}

/// `{"cid","format","tensors":[...]}`, each tensor summed up when the client has taken the one before.
pub(super) async fn stats(
    node: &Node,
    file: TensorFile,
    names: &[String],
    headers: HeaderMap,
    wanted: Wanted,
) -> Result<Response> {
    let chosen = Arc::new(Chosen::of(&file, names)?);
    if wanted != Wanted::Whole {
        return Ok(without_body(headers, wanted));
    }
    let (head, node) = (format!("{},\"tensors\":[", opening(&file)?), node.clone());
    let sums = stream::iter(0..chosen.tensors().len()).then(move |index| {
        let (node, file, chosen) = (node.clone(), file.clone(), chosen.clone());
        async move {
            let tensor = &chosen.tensors()[index];
            let summary = node.tensor_stats(&file, tensor).await?;
            let comma = if index > 0 { "," } else { "" };
            Ok(Bytes::from(format!("{comma}{}", json(&summed(tensor, &summary))?)))
        }
    });
    // A tensor that cannot be read is an error with a status, where it is the first.
    let mut sums = sums.boxed();
    let first = sums.next().await.transpose()?;
    Ok(document(head, stream::iter(first.map(Ok)).chain(sums), headers))
}

/// The answer to HEAD, or 304. How long a document is nobody knows before it is made.
fn without_body(mut headers: HeaderMap, wanted: Wanted) -> Response {
    if wanted == Wanted::NotModified {
        return response(StatusCode::NOT_MODIFIED, headers);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = response(StatusCode::OK, headers);
    *response.body_mut() = unknown_length();
    response
}

fn summed<'a>(tensor: &'a TensorInfo, summary: &Summary) -> Summed<'a> {
    let Summary { count, nan, infinite, zero, min, max, mean, std } = *summary;
    Summed {
        name: &tensor.name,
        dtype: tensor.dtype.name(),
        shape: &tensor.shape,
        size_bytes: tensor.bytes,
        count,
        nan,
        inf: infinite,
        zero,
        min,
        max,
        mean,
        std,
    }
}

fn opening(file: &TensorFile) -> Result<String> {
    let format = json(file.catalogue.format().name())?;
    Ok(format!("{{\"cid\":\"{}\",\"format\":{format}", file.cid))
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::internal("JSON could not be written").with_source(e))
}

fn document(
    head: String,
    pieces: impl Stream<Item = Result<Bytes>> + Send + 'static,
    mut headers: HeaderMap,
) -> Response {
    let once = |text: String| stream::once(std::future::ready(Ok(Bytes::from(text))));
    let pieces = once(head).chain(pieces).chain(once(String::from("]}\n")));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let mut response = response(StatusCode::OK, headers);
    *response.body_mut() = Body::from_stream(pieces.map(|piece| piece.map_err(broken_off)));
    response
}
