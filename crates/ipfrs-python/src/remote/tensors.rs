//! Tensors in files.

use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::LinkName;
use ipfrs_rpc::client::{Client, Request, escape_path};
use ipfrs_rpc::types::{self, TensorStatsList};

use crate::backing::{Content, TensorBytes, TensorEntry, TensorList, TensorStats};

/// Returns a request for the tensors of a file.
fn request(path: &LinkName) -> Result<Request> {
    Ok(Request::get(format!("/v1/tensor/{}", escape_path(path.as_bytes())?)))
}

pub(super) async fn list(client: &Client, path: &LinkName) -> Result<TensorList> {
    let list: types::TensorList = client.send(request(path)?.with("info", "")).await?.json().await?;
    let tensors = list.tensors.into_iter().map(|tensor| TensorEntry {
        name: tensor.name,
        dtype: tensor.dtype,
        shape: tensor.shape,
        bytes: tensor.size_bytes,
        offset: tensor.offset,
    });
    Ok(TensorList {
        cid: list.cid,
        format: list.format,
        metadata: list.metadata.into_iter().collect(),
        tensors: tensors.collect(),
    })
}

pub(super) async fn tensor(client: &Client, path: &LinkName, name: &str, slice: &str) -> Result<TensorBytes> {
    let slice = Some(slice).filter(|slice| !slice.is_empty());
    let raw = |name: Option<&str>| {
        request(path).map(|request| request.with_some("name", name).with_some("slice", slice).with("format", "raw"))
    };
    let response = match client.send(raw(Some(name).filter(|name| !name.is_empty()))?).await {
        // Without a name, the only tensor is read. Of several, one may have the empty name.
        Err(e) if name.is_empty() && e.kind() == ErrorKind::InvalidInput => match client.send(raw(Some(name))?).await {
            Err(other) if other.kind() == ErrorKind::NotFound => return Err(e),
            response => response?,
        },
        response => response?,
    };
    let (dtype, shape) = (response.header("x-tensor-dtype").to_owned(), response.header("x-tensor-shape"));
    let shape: Option<Vec<u64>> =
        shape.split(',').filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect();
    match (dtype.is_empty(), shape, response.content_length()) {
        (false, Some(shape), Some(size)) => {
            Ok(TensorBytes { dtype, shape, content: Content { size, pieces: response.into_pieces() } })
        }
        _ => Err(Error::corrupt(format!("{} did not report the type and shape of the tensor", client.url()))),
    }
}

pub(super) async fn stats(client: &Client, path: &LinkName, name: &str) -> Result<TensorStats> {
    // Without a name, the daemon would read all tensors of the file.
    let name = match name {
        "" => match &list(client, path).await?.tensors[..] {
            [_] => None,
            several if several.iter().any(|tensor| tensor.name.is_empty()) => Some(name),
            _ => return Err(Error::invalid(format!("{path} has several tensors: select one by name"))),
        },
        name => Some(name),
    };
    let request = request(path)?.with("stats", "").with_some("name", name);
    let tensors = client.send(request).await?.json::<TensorStatsList>().await?.tensors;
    let one = <[types::TensorStats; 1]>::try_from(tensors);
    one.map(|[one]| one.into())
        .map_err(|_| Error::corrupt(format!("{} did not return the statistics of exactly one tensor", client.url())))
}
