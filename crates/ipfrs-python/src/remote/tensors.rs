//! Tensors in files.

use std::collections::BTreeMap;

use ipfrs_core::{Error, Result};
use ipfrs_node::LinkName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;

use super::http::{Call, Http};
use crate::backing::{Content, TensorBytes, TensorEntry, TensorList, TensorStats};

/// Characters to escape in a path segment: all except the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Returns the route for the tensors of a file. It contains the path in the form of the gateway's URLs.
///
/// # Errors
/// Returns an error for names that cannot occur in URLs, because they would resolve to another route.
fn route(path: &LinkName) -> Result<Call> {
    let below = |prefixes: &[&str]| prefixes.iter().find_map(|prefix| path.as_bytes().strip_prefix(prefix.as_bytes()));
    let (root, rest) = match below(&["/ipns/", "ipns://"]) {
        Some(rest) => ("ipns/", rest),
        None => ("", below(&["/ipfs/", "/ipld/", "ipfs://"]).unwrap_or(path.as_bytes())),
    };
    let names = || rest.split(|byte| *byte == b'/');
    if let Some(name) = names().find(|name| matches!(*name, b"." | b"..")) {
        return Err(Error::not_found(format!("no link named {:?} in {path}", LinkName::from(name))));
    }
    let segments: Vec<_> = names().map(|name| percent_encode(name, ESCAPED).to_string()).collect();
    Ok(Call::get(format!("/v1/tensor/{root}{}", segments.join("/"))))
}

#[derive(Deserialize)]
struct Info {
    cid: String,
    format: String,
    metadata: Option<BTreeMap<String, String>>,
    tensors: Vec<InfoOfOne>,
}

#[derive(Deserialize)]
struct InfoOfOne {
    name: String,
    dtype: String,
    shape: Vec<u64>,
    size_bytes: u64,
    offset: u64,
}

pub(super) async fn list(http: &Http, path: &LinkName) -> Result<TensorList> {
    let info: Info = http.send(route(path)?.with("info", "")).await?.document().await?;
    let tensors = info.tensors.into_iter().map(|tensor| TensorEntry {
        name: tensor.name,
        dtype: tensor.dtype,
        shape: tensor.shape,
        bytes: tensor.size_bytes,
        offset: tensor.offset,
    });
    Ok(TensorList {
        cid: info.cid,
        format: info.format,
        metadata: info.metadata.unwrap_or_default().into_iter().collect(),
        tensors: tensors.collect(),
    })
}

pub(super) async fn tensor(http: &Http, path: &LinkName, name: &str, slice: &str) -> Result<TensorBytes> {
    let non_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let call =
        route(path)?.with_some("name", non_empty(name)).with_some("slice", non_empty(slice)).with("format", "raw");
    let response = http.send(call).await?;
    let (dtype, shape) = (response.header("x-tensor-dtype").to_owned(), response.header("x-tensor-shape"));
    let shape: Option<Vec<u64>> =
        shape.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect();
    match (dtype.is_empty(), shape, response.expected()) {
        (false, Some(shape), Some(size)) => {
            Ok(TensorBytes { dtype, shape, content: Content { size, pieces: response.pieces() } })
        }
        _ => Err(Error::corrupt(format!("{} did not report the type and shape of the tensor", http.shown()))),
    }
}

#[derive(Deserialize)]
struct Stats {
    tensors: Vec<TensorStats>,
}

pub(super) async fn stats(http: &Http, path: &LinkName, name: &str) -> Result<TensorStats> {
    // Without a name, the daemon would read all tensors of the file.
    if name.is_empty() && list(http, path).await?.tensors.len() != 1 {
        return Err(Error::invalid(format!("{path} has several tensors: select one by name")));
    }
    let call = route(path)?.with("stats", "").with_some("name", Some(name).filter(|name| !name.is_empty()));
    let tensors = http.send(call).await?.document::<Stats>().await?.tensors;
    let one = <[TensorStats; 1]>::try_from(tensors);
    one.map(|[one]| one)
        .map_err(|_| Error::corrupt(format!("{} did not return the statistics of exactly one tensor", http.shown())))
}
