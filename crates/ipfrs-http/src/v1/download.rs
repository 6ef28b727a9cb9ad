//! `GET /v1/stream/download/{cid}[/path]`: downloads of files, whole or in part.

use axum::body::Body;
use axum::extract::{Extension, OriginalUri, Request, State};
use axum::response::Response;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::Representation;
use ipfrs_node::{ContentPath, Expected, FileContent, Object, ObjectKind, Span, expecting};

use super::parameters::{pairs, repeated, unknown};
use super::refusal::Refusal;
use crate::access::check_root;
use crate::body::header_text;
use crate::compression::Unchanging;
use crate::content_limits::{self, Remedy};
use crate::gateway::payload::Payload;
use crate::gateway::{conditional, content_type, disposition, path, range, retrieval};
use crate::request_id::RequestId;
use crate::state::AppState;

/// URL prefix of the CID.
const PREFIX: &str = "/v1/stream/download/";

/// Responds with the bytes of a file: all of it, or the part that `offset` and `limit` or `Range` select.
pub(super) async fn download(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    let answer = async {
        let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
        check_root(&parts.extensions, path)?;
        let path = path::parse(path)?;
        serve(&state, path, &parts).await
    };
    answer.await.unwrap_or_else(|refusal: Refusal| refusal.answer(&id))
}

fn beyond_end(what: &str, size: u64) -> Refusal {
    Refusal::BeyondEnd { detail: format!("{what} is beyond the end of the file, which has {size} bytes"), size }
}

async fn serve(state: &AppState, path: ContentPath, parts: &Parts) -> Result<Response, Refusal> {
    let query = Query::read(parts.uri.query().unwrap_or_default())?;
    let name = path.segments().last().map(|name| name.to_string_lossy().into_owned());
    let expected = match range::of(&parts.headers) {
        _ if parts.method == Method::HEAD => Expected::Block,
        Some(range) => retrieval::of_range(range),
        None => Expected::of_file(query.offset.unwrap_or(0), query.limit),
    };
    let object = expecting(expected, state.node.resolve(path)).await?.whole()?;
    let etag = format!("\"{}\"", object.resolved.cid);
    let name = query.filename.clone().or(name).unwrap_or_else(|| object.resolved.cid.clone());
    let file = file(&object).await?;
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(ETAG, header_text(&etag));
    headers.insert(CACHE_CONTROL, state.immutable.clone());
    let octets = || HeaderValue::from_static("application/octet-stream");
    let content_type = content_type::by_name(&name).unwrap_or_else(octets);
    let whole = Representation { content_type: Some(content_type.clone()), length: Some(file.size()) };
    if conditional::if_match_fails(&parts.headers, &etag, None) {
        return Err(Refusal::precondition(format!("If-Match does not contain {etag}")));
    }
    if conditional::if_none_match(&parts.headers, &etag) {
        return Ok(whole.describe(response(StatusCode::NOT_MODIFIED, headers, Body::empty())));
    }
    let size = file.size();
    content_limits::check_size(state, size, Remedy::Download)?;
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CONTENT_DISPOSITION, disposition::header("attachment", &name));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));

    let is_head = parts.method == Method::HEAD;
    let range = range::of(&parts.headers).filter(|_| conditional::range_applies(&parts.headers, &etag, None));
    if let Some(span) = query.span(size)? {
        if range.is_some() {
            return Err(Error::invalid("Range cannot be combined with offset or limit: use one of them").into());
        }
        content_limits::check_range(state, true, size, Remedy::Download)?;
        headers.insert(CONTENT_LENGTH, span.len.into());
        let payload = Payload::File(file);
        let body = match is_head {
            true => payload.no_body(&state.node, &[span]).await?,
            false => payload.body(&state.node, span).await?,
        };
        return Ok(response(StatusCode::OK, headers, body));
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let ranges = range::parse(range, size, state.config.max_ranges);
    content_limits::check_range(state, ranges != range::Ranges::Whole, size, Remedy::Download)?;
    if ranges == range::Ranges::Unsatisfiable {
        return Err(beyond_end("the range", size));
    }
    let (status, body) = Payload::File(file).respond(&state.node, ranges, &mut headers, is_head).await?;
    let mut response = response(status, headers, body);
    if status == StatusCode::OK {
        response.extensions_mut().insert(Unchanging);
        return Ok(response);
    }
    Ok(whole.describe(response))
}

async fn file(object: &Object) -> Result<FileContent> {
    let path = &object.resolved.path;
    match &object.kind {
        ObjectKind::File(file) => Ok(file.clone()),
        ObjectKind::Directory(_) => Err(Error::invalid(format!("{path} is a directory: name a file in it"))),
        ObjectKind::Symlink(_) => Err(Error::unsupported(format!("{path} is a symlink"))),
        ObjectKind::Other => Err(object.not_unixfs("request its block with /ipfs/...?format=raw").await),
    }
}

fn response(status: StatusCode, headers: HeaderMap, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[derive(Default)]
struct Query {
    offset: Option<u64>,
    limit: Option<u64>,
    filename: Option<String>,
}

impl Query {
    fn read(query: &str) -> Result<Self> {
        let mut read = Self::default();
        for (name, value) in pairs(query)? {
            let bytes = || {
                let parsed = value.parse();
                parsed.map_err(|_| Error::invalid(format!("invalid {name} {value:?}: use a number of bytes")))
            };
            let is_repeated = match name.as_ref() {
                "offset" => read.offset.replace(bytes()?).is_some(),
                "limit" => read.limit.replace(bytes()?).is_some(),
                "filename" if value.is_empty() => false,
                "filename" => read.filename.replace(value.into_owned()).is_some(),
                other => return Err(unknown(other, "use offset, limit or filename")),
            };
            if is_repeated {
                return Err(repeated(&name));
            }
        }
        Ok(read)
    }

    /// Returns the span that `offset` and `limit` select in a file of `size` bytes, or `None` if both are missing.
    fn span(&self, size: u64) -> Result<Option<Span>, Refusal> {
        if self.offset.is_none() && self.limit.is_none() {
            return Ok(None);
        }
        let start = self.offset.unwrap_or(0);
        if start > size {
            return Err(beyond_end(&format!("offset {start}"), size));
        }
        Ok(Some(Span::within(size, start, self.limit)))
    }
}
