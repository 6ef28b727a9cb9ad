//! What is told of tensors, as JSON.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Node, Summary, TensorFile, TensorInfo, TensorOperation};
use serde::Serialize;

use super::response;
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

/// The places of the tensors that are named; without names all of them, in the order of the file.
fn chosen(file: &TensorFile, names: &[String]) -> Result<Vec<TensorInfo>> {
    match names {
        [] => Ok(file.catalogue.tensors().to_vec()),
        names => names.iter().map(|name| file.catalogue.get(name).cloned()).collect(),
    }
}

/// `{"cid","format","metadata","tensors":[...]}`, made as the client takes it.
pub(super) fn info(
    node: &Node,
    file: TensorFile,
    names: Vec<String>,
    headers: HeaderMap,
    is_known: bool,
) -> Result<Response> {
    let tensors = chosen(&file, &names)?;
    if is_known {
        return Ok(response(StatusCode::NOT_MODIFIED, headers));
    }
    node.count_tensor(TensorOperation::List, 0);
    let metadata = json(file.catalogue.metadata())?;
    let head = format!("{},\"metadata\":{metadata},\"tensors\":[", opening(&file)?);
    let pieces = (0..tensors.len().div_ceil(TENSORS_PER_PIECE)).map(move |piece| {
        let first = piece * TENSORS_PER_PIECE;
        let mut text = String::new();
        for (index, tensor) in tensors.iter().enumerate().skip(first).take(TENSORS_PER_PIECE) {
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
    names: Vec<String>,
    headers: HeaderMap,
    is_known: bool,
) -> Result<Response> {
    let tensors = chosen(&file, &names)?;
    if is_known {
        return Ok(response(StatusCode::NOT_MODIFIED, headers));
    }
    let (head, node) = (format!("{},\"tensors\":[", opening(&file)?), node.clone());
    let sums = stream::iter(tensors.into_iter().enumerate()).then(move |(index, tensor)| {
        let (node, file) = (node.clone(), file.clone());
        async move {
            let summary = node.tensor_stats(&file, &tensor).await?;
            let comma = if index > 0 { "," } else { "" };
            Ok(Bytes::from(format!("{comma}{}", json(&summed(&tensor, &summary))?)))
        }
    });
    // A tensor that cannot be read is an error with a status, where it is the first.
    let mut sums = sums.boxed();
    let first = sums.next().await.transpose()?;
    Ok(document(head, stream::iter(first.map(Ok)).chain(sums), headers))
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
