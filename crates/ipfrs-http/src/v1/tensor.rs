//! `GET /v1/tensor/{cid}[/path]`: the tensors of a file, whole or in slices, their list, and their statistics.

mod report;
mod request;
mod response;
use std::borrow::Cow;
use std::time::Duration;

use axum::extract::{Extension, OriginalUri, Request, State};
use axum::response::Response;
use http::header::{ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::Representation;
use ipfrs_node::{ContentPath, LinkName, NameRoot, Node, ObjectKind, TensorFile, TensorFormat};
use percent_encoding::percent_decode_str;

use request::{TensorQuery, View};
use response::{Wanted, response};

use super::refusal::Refusal;
use crate::access::check_root;
use crate::body::header_text;
use crate::content_limits::{self, Remedy};
use crate::gateway::payload::Payload;
use crate::gateway::{conditional, disposition, path, range};
use crate::request_id::RequestId;
use crate::state::AppState;

/// URL prefix of the CID.
const PREFIX: &str = "/v1/tensor/";

/// Header with the size of each dimension, outermost first, separated by commas; empty for a scalar.
const X_TENSOR_SHAPE: HeaderName = HeaderName::from_static("x-tensor-shape");

/// Header with the type of the elements, as named in safetensors.
const X_TENSOR_DTYPE: HeaderName = HeaderName::from_static("x-tensor-dtype");

/// Responds with tensors in a format, with the list of tensors, or with their statistics.
pub(super) async fn tensor(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let raw = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    answer(&state, raw, &parts).await.unwrap_or_else(|refusal| refusal.answer(&id))
}

async fn answer(state: &AppState, raw: &str, parts: &Parts) -> Result<Response, Refusal> {
    check_root(&parts.extensions, raw)?;
    let mut tensor_query = TensorQuery::read(parts.uri.query().unwrap_or_default())?;
    let Location { path, ttl } = locate(&state.node, raw).await?;
    let file = find(&state.node, path, &mut tensor_query).await?;
    tensor_query.check()?;
    let etag = tensor_query.etag(&file)?;
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(ETAG, header_text(&etag));
    let cache_control = ttl.map(|ttl| header_text(&format!("public, max-age={}", ttl.as_secs())));
    headers.insert(CACHE_CONTROL, cache_control.unwrap_or_else(|| state.immutable.clone()));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if conditional::if_match_fails(&parts.headers, &etag, None) {
        return Err(Refusal::precondition(format!("If-Match does not contain {etag}")));
    }
    let is_known = conditional::if_none_match(&parts.headers, &etag);
    let wanted = match (is_known, &parts.method) {
        (true, _) => Wanted::NotModified,
        (false, &Method::HEAD) => Wanted::Head,
        (false, _) => Wanted::Whole,
    };
    match tensor_query.view {
        View::Tensors => tensors(state, &file, &tensor_query, parts, headers, wanted).await,
        View::Info | View::Stats => Ok(report::report(&state.node, file, &tensor_query, headers, wanted).await?),
    }
}

/// Resolved path of a request.
struct Location {
    path: ContentPath,
    /// Time for which the name resolves to this path; `None` for an immutable path.
    ttl: Option<Duration>,
}

/// Parses `{cid}/...`, `ipfs/{cid}/...` or `ipns/{name}/...`, and resolves the name.
async fn locate(node: &Node, raw: &str) -> Result<Location> {
    let Some(rest) = raw.strip_prefix("ipns/") else {
        let path = path::parse(raw.strip_prefix("ipfs/").unwrap_or(raw))?;
        return Ok(Location { path, ttl: None });
    };
    let path = Cow::from(percent_decode_str(rest));
    let mut segments = path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()).map(LinkName::from);
    let name = NameRoot::parse(&segments.next().unwrap_or_default().to_string_lossy())?;
    let below: Vec<LinkName> = segments.collect();
    node.check_name(&name, &below)?;
    let resolved = node.resolve_name(&name).await?;
    let path = ContentPath::new(*resolved.path.root(), [resolved.path.segments(), &below].concat())?;
    Ok(Location { path, ttl: Some(resolved.ttl) })
}

/// Finds the file with the tensors. After the path of a file, `info` and `stats` select a view of the file, because a
/// file has no entries. In a directory they are ordinary names.
async fn find(node: &Node, path: ContentPath, tensor_query: &mut TensorQuery) -> Result<TensorFile> {
    let view = path.segments().last().and_then(|last| View::named(last.to_str()?));
    let Some((view, parent)) = view.zip(path.parent()) else { return node.tensors(path).await };
    let object = node.resolve(parent).await?;
    if matches!(object.kind, ObjectKind::Directory(_)) {
        return node.tensors(path).await;
    }
    if tensor_query.view != View::Tensors && tensor_query.view != view {
        return Err(Error::invalid("the path ends with one of info and stats, and the query has the other one"));
    }
    tensor_query.view = view;
    node.tensors_of(object).await
}

async fn tensors(
    state: &AppState,
    file: &TensorFile,
    tensor_query: &TensorQuery,
    parts: &Parts,
    mut headers: HeaderMap,
    wanted: Wanted,
) -> Result<Response, Refusal> {
    let content = file.content(&tensor_query.request)?;
    let media_type = media_type(tensor_query.request.format);
    let (size, etag) = (content.size(), headers.get(ETAG).cloned());
    let whole = Representation { content_type: Some(media_type.clone()), length: Some(size) };
    if let Some((dtype, shape)) = &content.one {
        let shape: Vec<_> = shape.iter().map(u64::to_string).collect();
        headers.insert(X_TENSOR_SHAPE, header_text(&shape.join(",")));
        headers.insert(X_TENSOR_DTYPE, HeaderValue::from_static(dtype.name()));
    }
    if wanted == Wanted::NotModified {
        return Ok(whole.describe(response(StatusCode::NOT_MODIFIED, headers)));
    }
    content_limits::check_size(state, size, Remedy::Tensor)?;
    headers.insert(CONTENT_TYPE, media_type);
    headers.insert(CONTENT_DISPOSITION, disposition::header("attachment", &tensor_query.file_name(file)));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let etag = etag.as_ref().and_then(|etag| etag.to_str().ok()).unwrap_or_default();
    let range = range::of(&parts.headers).filter(|_| conditional::range_applies(&parts.headers, etag, None));
    let ranges = range::parse(range, size, state.config.max_ranges);
    content_limits::check_range(state, ranges != range::Ranges::Whole, size, Remedy::Tensor)?;
    if ranges == range::Ranges::Unsatisfiable {
        let detail = format!("the range is beyond the end, which is at byte {size}");
        return Err(Refusal::BeyondEnd { detail, size });
    }
    let payload = Payload::Tensors(content);
    let (status, body) = payload.respond(&state.node, ranges, &mut headers, wanted == Wanted::Head).await?;
    let mut answer = response(status, headers);
    *answer.body_mut() = body;
    Ok(if status == StatusCode::OK { answer } else { whole.describe(answer) })
}

/// Returns the media type of a format. `.npy` and safetensors have no registered one.
fn media_type(format: TensorFormat) -> HeaderValue {
    HeaderValue::from_static(match format {
        TensorFormat::Raw | TensorFormat::Safetensors => "application/octet-stream",
        TensorFormat::Npy => "application/x-npy",
        TensorFormat::Arrow => "application/vnd.apache.arrow.stream",
    })
}
