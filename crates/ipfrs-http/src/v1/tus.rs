//! Resumable uploads under `/v1/stream/upload`: the tus protocol 1.0.0 (<https://tus.io/protocols/resumable-upload>)
//! with the extensions creation, creation-with-upload, expiration and termination.

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;

use std::collections::HashSet;

use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{NewUpload, UploadStatus};

use super::parameters::{self, InPath};
use super::refusal::Refusal;
use super::upload::{self, Query};
use crate::access::StoredObject;
use crate::body::{self, header_text};
use crate::origin;
use crate::request_id::{RequestId, X_OPERATION_ID};
use crate::single_header::single;
use crate::state::AppState;

const VERSION: &str = "1.0.0";
const EXTENSIONS: HeaderValue = HeaderValue::from_static("creation,creation-with-upload,expiration,termination");
const OFFSET_OCTET_STREAM: &str = "application/offset+octet-stream";

const TUS_RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const TUS_VERSION: HeaderName = HeaderName::from_static("tus-version");
const TUS_EXTENSION: HeaderName = HeaderName::from_static("tus-extension");
const TUS_MAX_SIZE: HeaderName = HeaderName::from_static("tus-max-size");
const UPLOAD_LENGTH: HeaderName = HeaderName::from_static("upload-length");
const UPLOAD_DEFER_LENGTH: HeaderName = HeaderName::from_static("upload-defer-length");
const UPLOAD_CONCAT: HeaderName = HeaderName::from_static("upload-concat");
const UPLOAD_CHECKSUM: HeaderName = HeaderName::from_static("upload-checksum");
const UPLOAD_METADATA: HeaderName = HeaderName::from_static("upload-metadata");
const UPLOAD_OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const UPLOAD_EXPIRES: HeaderName = HeaderName::from_static("upload-expires");
const X_HTTP_METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");

/// Header with the content ID of a finished upload.
const X_IPFS_CID: HeaderName = HeaderName::from_static("x-ipfs-cid");

/// Allowed methods of the routes.
const COLLECTION_METHODS: &str = "OPTIONS, POST";
const UPLOAD_METHODS: &str = "DELETE, HEAD, OPTIONS, PATCH";

/// Maximum length of `Upload-Metadata`, in bytes: each response to HEAD repeats it.
const MAX_METADATA_BYTES: usize = 4_096;

/// `/v1/stream/upload`: server capabilities, and creation of uploads. A POST without tus headers uploads a whole
/// file.
pub(super) async fn collection(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    mut request: Request,
) -> Response {
    if let Err(refusal) = override_method(&state, &mut request) {
        return refusal.answer(&id);
    }
    match *request.method() {
        Method::OPTIONS => options(&state),
        Method::POST if is_tus(request.headers()) => with_version(create(&state, request).await, &id),
        Method::POST => upload::upload(&state, request, &id).await,
        _ => method_not_allowed(COLLECTION_METHODS, &id),
    }
}

/// `/v1/stream/upload/{id}`: one upload.
pub(super) async fn one(
    State(state): State<AppState>,
    Extension(id): Extension<RequestId>,
    upload: Result<InPath, Response>,
    mut request: Request,
) -> Response {
    if let Err(refusal) = override_method(&state, &mut request) {
        return refusal.answer(&id);
    }
    let method = request.method().clone();
    match method {
        // Clients of tus ask any address for the capabilities of the server.
        Method::OPTIONS => return options(&state),
        Method::HEAD | Method::PATCH | Method::DELETE => {}
        _ => return method_not_allowed(UPLOAD_METHODS, &id),
    }
    let upload = match upload {
        Ok(InPath(upload)) => upload,
        Err(refusal) => return refusal,
    };
    if let Err(error) = parameters::check_none(request.uri()) {
        return Refusal::from(error).answer(&id);
    }
    let answer = match method {
        Method::HEAD => head(&state, request.headers(), &upload).await,
        Method::PATCH => patch(&state, request, &upload).await,
        _ => delete(&state, request.headers(), &upload).await,
    };
    with_version(answer, &id)
}

/// Replaces POST by the method in `X-HTTP-Method-Override`, for clients that can send nothing else. The access rule and
/// the guard have decided about the method that was sent, so a method that needs less than POST must not become another
/// one, and the origin is checked again.
fn override_method(state: &AppState, request: &mut Request) -> Result<(), Refusal> {
    let Some(name) = single(request.headers(), &X_HTTP_METHOD_OVERRIDE)? else { return Ok(()) };
    if request.method() != Method::POST {
        return Err(Error::invalid("X-HTTP-Method-Override replaces the method of POST requests only").into());
    }
    let method = Method::from_bytes(name.as_bytes());
    *request.method_mut() =
        method.map_err(|e| Error::invalid("X-HTTP-Method-Override is not a method").with_source(e))?;
    Ok(origin::check(request, state.port)?)
}

fn is_tus(headers: &HeaderMap) -> bool {
    [TUS_RESUMABLE, UPLOAD_LENGTH, UPLOAD_DEFER_LENGTH, UPLOAD_CONCAT].iter().any(|name| headers.contains_key(name))
}

/// Whether a request names a protocol version, in which case every response must name one as well.
pub(super) fn is_spoken(headers: &HeaderMap) -> bool {
    headers.contains_key(TUS_RESUMABLE)
}

/// Adds the supported version to a response.
pub(super) fn tell_version(headers: &mut HeaderMap) {
    headers.insert(TUS_RESUMABLE, HeaderValue::from_static(VERSION));
}

/// Finishes the response to a tus request.
fn with_version(answer: Result<Response, Refusal>, id: &RequestId) -> Response {
    let mut response = answer.unwrap_or_else(|refusal| refusal.answer(id));
    tell_version(response.headers_mut());
    if response.status() == StatusCode::PRECONDITION_FAILED {
        response.headers_mut().insert(TUS_VERSION, HeaderValue::from_static(VERSION));
    }
    response
}

fn method_not_allowed(allow: &'static str, id: &RequestId) -> Response {
    let mut response = Refusal::Http {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "method_not_allowed",
        detail: format!("use {allow}"),
    }
    .answer(id);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

fn options(state: &AppState) -> Response {
    let headers = [
        (TUS_RESUMABLE, HeaderValue::from_static(VERSION)),
        (TUS_VERSION, HeaderValue::from_static(VERSION)),
        (TUS_EXTENSION, EXTENSIONS),
        (TUS_MAX_SIZE, state.node.config().upload.max_bytes.into()),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// Creates an upload, possibly with its first bytes.
async fn create(state: &AppState, request: Request) -> Result<Response, Refusal> {
    let headers = request.headers();
    check_version(headers)?;
    check_extensions(headers)?;
    let length = number(headers, &UPLOAD_LENGTH)?;
    if headers.contains_key(&UPLOAD_OFFSET) && number(headers, &UPLOAD_OFFSET)? != 0 {
        return Err(Error::invalid("Upload-Offset of a new upload is 0: send the file from its beginning").into());
    }
    let metadata = Metadata::read(headers)?;
    let Query { mut options, operation } = Query::read(&request)?;
    options.filename = options.filename.or(metadata.filename);
    let has_content = has_content(&request)?;
    let announced = http_body::Body::size_hint(request.body()).exact();
    if announced.is_some_and(|bytes| bytes > length) {
        return Err(Error::too_large(format!(
            "the body is longer than Upload-Length, which is {length}: send at most that many bytes"
        ))
        .into());
    }
    let new = NewUpload { length, metadata: metadata.text, options, operation };
    let first = (has_content || length == 0).then(|| body::pieces(request.into_body()));
    let upload = state.node.begin_upload(new, announced, first).await?;
    let mut headers = headers_of(&upload);
    headers.insert(LOCATION, header_text(&format!("/v1/stream/upload/{}", upload.id)));
    Ok(with_stored(&upload, (StatusCode::CREATED, headers)))
}

async fn head(state: &AppState, headers: &HeaderMap, upload: &str) -> Result<Response, Refusal> {
    check_version(headers)?;
    let upload = state.node.upload_status(upload).await?;
    let mut headers = headers_of(&upload);
    headers.insert(UPLOAD_LENGTH, upload.length.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if !upload.metadata.is_empty() {
        headers.insert(UPLOAD_METADATA, header_text(&upload.metadata));
    }
    Ok((StatusCode::OK, headers).into_response())
}

async fn patch(state: &AppState, request: Request, upload: &str) -> Result<Response, Refusal> {
    check_version(request.headers())?;
    check_extensions(request.headers())?;
    if !has_content(&request)? {
        return Err(Refusal::media_type(format!("a PATCH request requires Content-Type: {OFFSET_OCTET_STREAM}")));
    }
    let offset = number(request.headers(), &UPLOAD_OFFSET)?;
    if request.headers().contains_key(&UPLOAD_LENGTH) {
        let sent = number(request.headers(), &UPLOAD_LENGTH)?;
        let length = state.node.upload_status(upload).await?.length;
        if sent != length {
            return Err(Error::invalid(format!("Upload-Length is {sent}, and was {length}: it cannot change")).into());
        }
    }
    let announced = http_body::Body::size_hint(request.body()).exact();
    let upload = state.node.continue_upload(upload, offset, announced, body::pieces(request.into_body())).await?;
    Ok(with_stored(&upload, (StatusCode::NO_CONTENT, headers_of(&upload))))
}

async fn delete(state: &AppState, headers: &HeaderMap, upload: &str) -> Result<Response, Refusal> {
    check_version(headers)?;
    state.node.end_upload(upload).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Returns the response to a request that may have finished an upload, with the content for the audit log.
fn with_stored(upload: &UploadStatus, response: impl IntoResponse) -> Response {
    let stored = upload.uploaded.as_ref().map(|uploaded| Extension(StoredObject(uploaded.cid.to_string())));
    (stored, response).into_response()
}

/// Returns the headers of every response about an upload.
fn headers_of(upload: &UploadStatus) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(10);
    headers.insert(UPLOAD_OFFSET, upload.offset.into());
    headers.insert(UPLOAD_EXPIRES, header_text(&httpdate::fmt_http_date(upload.expires)));
    headers.insert(X_OPERATION_ID, header_text(&upload.operation));
    if let Some(uploaded) = &upload.uploaded {
        headers.insert(X_IPFS_CID, header_text(&uploaded.cid.to_string()));
    }
    headers
}

fn check_version(headers: &HeaderMap) -> Result<(), Refusal> {
    if single(headers, &TUS_RESUMABLE)?.is_some_and(|version| version == VERSION) {
        return Ok(());
    }
    Err(Refusal::precondition(format!("resumable uploads use tus {VERSION}: send Tus-Resumable: {VERSION}")))
}

/// Refuses requests that use unsupported extensions. A client whose checksum was ignored would assume that the data
/// had been verified.
fn check_extensions(headers: &HeaderMap) -> Result<()> {
    for (name, extension, remedy) in [
        (UPLOAD_DEFER_LENGTH, "creation-defer-length", "send Upload-Length"),
        (UPLOAD_CONCAT, "concatenation", "send one upload with its Upload-Length"),
        (UPLOAD_CHECKSUM, "checksum", "leave out Upload-Checksum, and compare the content ID at the end"),
    ] {
        if headers.contains_key(&name) {
            return Err(Error::unsupported(format!("the tus extension {extension} is not supported: {remedy}")));
        }
    }
    Ok(())
}

/// Parses a header with a number of bytes.
fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64> {
    let missing = || Error::invalid(format!("the header {name} is missing"));
    let value = single(headers, name)?.ok_or_else(missing)?;
    let digits = value.to_str().ok().filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| Error::invalid(format!("the header {name} is {value:?}: send a number of bytes")))
}

fn media_type(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_TYPE)?.to_str().ok()?.split(';').next().map(str::trim)
}

/// Whether the body is a part of the file; any other body is refused.
fn has_content(request: &Request) -> Result<bool, Refusal> {
    if media_type(request.headers()).is_some_and(|media| media.eq_ignore_ascii_case(OFFSET_OCTET_STREAM)) {
        return Ok(true);
    }
    match http_body::Body::is_end_stream(request.body()) {
        true => Ok(false),
        false => Err(Refusal::media_type(format!("a request body requires Content-Type: {OFFSET_OCTET_STREAM}"))),
    }
}

/// The header `Upload-Metadata`.
struct Metadata {
    /// The value that the client sent.
    text: String,
    filename: Option<String>,
}

impl Metadata {
    /// Parses pairs of a key and a base64 value, separated by commas. Several headers are one list (RFC 9110, 5.3).
    fn read(headers: &HeaderMap) -> Result<Self> {
        let invalid = |why: &str| Error::invalid(format!("invalid Upload-Metadata: {why}"));
        let lines = headers.get_all(UPLOAD_METADATA).iter().map(HeaderValue::to_str);
        let lines = lines.collect::<Result<Vec<_>, _>>().map_err(|e| invalid("it is not ASCII").with_source(e))?;
        let text = lines.join(",");
        if text.len() > MAX_METADATA_BYTES {
            return Err(Error::too_large(format!(
                "Upload-Metadata is over the limit of {MAX_METADATA_BYTES} bytes: leave out values only your client needs"
            )));
        }
        let (mut keys, mut filename) = (HashSet::new(), None);
        for pair in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
            if key.is_empty() || !keys.insert(key) {
                return Err(invalid(&format!("the key {key:?} is empty or duplicated")));
            }
            let value = STANDARD.decode(value);
            let value = value.map_err(|e| invalid(&format!("the value of {key:?} is not base64")).with_source(e))?;
            if key == "filename" {
                let name = String::from_utf8(value);
                filename = Some(name.map_err(|e| invalid("the filename is not UTF-8").with_source(e))?);
            }
        }
        Ok(Self { text, filename: filename.filter(|name| !name.is_empty()) })
    }
}
