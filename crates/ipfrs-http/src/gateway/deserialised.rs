//! Files, directories, symbolic links and pages.

use axum::response::Response;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{Object, ObjectKind, leads_nowhere};

use super::codec::Codec;
use super::content_response::{ContentResponse, etag, redirect_to_slash};
use super::payload::Payload;
use super::request::GatewayRequest;
use super::{block, content_type, disposition, listing, preview};
use crate::body::{header_text, unknown_length};
use crate::content_limits::{self, Remedy};
use crate::state::AppState;

/// Responds with content in its default form: a file, a page, or a block under the media type of its codec.
pub(super) async fn shown(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    match &object.kind {
        ObjectKind::File(file) => {
            let payload = Payload::File(file.clone());
            deserialised(state, request, headers, &object, payload, request.file_name().as_deref()).await
        }
        ObjectKind::Symlink(target) => {
            let mut response = ContentResponse::new(state, request, &object, etag(&object, ""));
            response.last_modified(request, state.node.object_info(&object).await?.attributes.mtime);
            response.set(CONTENT_TYPE, HeaderValue::from_static("inode/symlink"));
            set_disposition(&mut response, request, &object);
            response.payload(state, headers, Payload::Bytes(target.clone())).await
        }
        ObjectKind::Directory(_) => Box::pin(directory(state, request, headers, object)).await,
        ObjectKind::Other if preview::is_wanted(request, headers, &object) => {
            Box::pin(preview::page(state, request, headers, object)).await
        }
        ObjectKind::Other => match Codec::of(&object.cid) {
            Some(stored) => Box::pin(block::block(state, request, headers, object, stored)).await,
            None => Err(Box::pin(object.not_unixfs("request its block with ?format=raw")).await),
        },
    }
}

/// Responds with a file, using the `Content-Type` of its name or its first bytes. `etag_of` is the file, or the
/// directory whose index it is.
async fn deserialised(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    etag_of: &Object,
    file: Payload,
    name: Option<&str>,
) -> Result<Response> {
    let mut response = ContentResponse::new(state, request, etag_of, etag(etag_of, ""));
    if let Payload::File(file) = &file {
        response.last_modified(request, file.mtime());
    }
    // A file that is too large is not read for its type. The client may have it already (RFC 9110, 13.2.2).
    if !response.is_settled(headers) {
        content_limits::check_size(state, file.size(), Remedy::Gateway)?;
    }
    response.set(CONTENT_TYPE, content_type_of(state, request, &file, name).await);
    set_disposition(&mut response, request, etag_of);
    response.payload(state, headers, file).await
}

/// Sets `Content-Disposition` if the request names the file or asks for a download.
fn set_disposition(response: &mut ContentResponse, request: &GatewayRequest<'_>, object: &Object) {
    if request.download || request.filename.is_some() {
        let kind = if request.download { "attachment" } else { "inline" };
        let name = request.file_name().unwrap_or_else(|| object.resolved.cid.as_str().into());
        response.set(CONTENT_DISPOSITION, disposition::header(kind, &name));
    }
}

/// Returns the type of a file by its name, or else by its content.
pub(super) async fn content_type_of(
    state: &AppState,
    request: &GatewayRequest<'_>,
    file: &Payload,
    name: Option<&str>,
) -> HeaderValue {
    let cached = request.cached.as_ref().and_then(|cached| cached.content_type.get());
    match (name.and_then(content_type::by_name), cached) {
        (Some(by_name), _) => by_name,
        (None, Some(cached)) => cached.clone(),
        (None, None) => Box::pin(sniffed(state, request, file)).await,
    }
}

/// Guesses the type of a file from its content. The result is kept, unless the first bytes could not be read.
async fn sniffed(state: &AppState, request: &GatewayRequest<'_>, file: &Payload) -> HeaderValue {
    let Some(head) = file.head(&state.node).await else {
        return HeaderValue::from_static("application/octet-stream");
    };
    let by_content = header_text(&content_type::by_content(&head));
    match &request.cached {
        Some(cached) => cached.content_type.get_or_init(|| by_content).clone(),
        None => by_content,
    }
}

async fn directory(
    state: &AppState,
    request: &GatewayRequest<'_>,
    headers: &HeaderMap,
    object: Object,
) -> Result<Response> {
    if !request.ends_with_slash && !request.is_go_get {
        return Ok(redirect_to_slash(state, request));
    }
    match state.node.resolve(request.path.join("index.html")).await {
        Ok(Object { kind: ObjectKind::File(index), .. }) => {
            let index = Payload::File(index);
            return deserialised(state, request, headers, &object, index, Some("index.html")).await;
        }
        Ok(_) => return Err(Error::invalid_content("index.html could not be read: not a file")),
        Err(e) if leads_nowhere(&e) => {}
        // The directory may have an index.
        Err(e) => return Err(e),
    }
    let mut response = ContentResponse::page(state, request, &object, "DirIndex");
    if let Some(settled) = response.settled(headers, None) {
        return Ok(settled);
    }
    let body = if request.is_head { unknown_length() } else { listing::body(&state.node, request, &object)? };
    Ok(response.into_response(StatusCode::OK, body))
}
