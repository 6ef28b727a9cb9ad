//! Requests: from the query of a GET, or from the body of a POST.

use async_graphql::Request;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::Uri;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::{MemoryPool, RequestMemory, broken_body};

use super::multipart;
use super::parsed::{Parsed, append, memory_of, of_json};
use crate::error::no_query;
use crate::limits::MAX_BODY_BYTES;
use crate::operation::Executor;

/// Reads a request from the query of a target.
pub(super) fn of_query(uri: &Uri) -> Result<Parsed> {
    let query = uri.query().unwrap_or_default();
    let (mut document, mut operation, mut variables, mut extensions) = (None, None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let parameter = match &*name {
            "query" => &mut document,
            "operationName" => &mut operation,
            "variables" => &mut variables,
            "extensions" => &mut extensions,
            _ => continue,
        };
        if parameter.replace(value.into_owned()).is_some() {
            return Err(Error::invalid(format!("the parameter {name} is repeated")));
        }
    }
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (document, variables, extensions) = (given(document), given(variables), given(extensions));
    if document.is_none() && extensions.is_none() {
        return Err(no_query());
    }
    let mut request = Request::new(document.unwrap_or_default());
    request.operation_name = given(operation);
    let malformed = |name: &str| {
        let name = name.to_owned();
        move |e| Error::invalid(format!("{name} is not a JSON object: {e}"))
    };
    if let Some(text) = variables {
        request.variables = serde_json::from_str(&text).map_err(malformed("variables"))?;
    }
    if let Some(text) = extensions {
        request.extensions = serde_json::from_str(&text).map_err(malformed("extensions"))?;
    }
    Ok(Parsed { request, files: None, memory: None })
}

/// Reads a request from a body: JSON, a document (`application/graphql`), or a multipart form with files.
pub(super) async fn of_body(executor: &Executor, request: axum::extract::Request) -> Result<Parsed> {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if media.starts_with("multipart/") {
        let boundary = multer::parse_boundary(content_type)
            .map_err(|e| Error::invalid(format!("the Content-Type has no boundary: {e}")))?;
        return multipart::read(executor, request.into_body(), boundary).await;
    }
    let (body, memory) = whole(executor.memory(), request.into_body()).await?;
    let request = if media == "application/graphql" {
        let document = str::from_utf8(&body).map_err(|e| Error::invalid(format!("the document is not UTF-8: {e}")))?;
        Request::new(document)
    } else {
        // As everywhere in the API, JSON is read as JSON whatever the type says.
        of_json(&body)?
    };
    Ok(Parsed { request, files: None, memory: Some(memory) })
}

/// Reads a body into memory.
async fn whole(memory: &MemoryPool, mut body: Body) -> Result<(Bytes, RequestMemory)> {
    let (mut bytes, mut memory) = (BytesMut::new(), memory.reservation());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| broken_body(e.into()))?;
        let Ok(piece) = frame.into_data() else { continue };
        append(&mut bytes, &piece, MAX_BODY_BYTES)?;
        memory.grow_to(bytes.len())?;
    }
    memory.grow_to(memory_of(&bytes))?;
    Ok((bytes.freeze(), memory))
}
