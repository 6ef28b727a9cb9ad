//! Requests with files (<https://github.com/jaydenseric/graphql-multipart-request-spec>). Files are imported while they
//! arrive, so they must be sent in the order in which the operation uses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use bytes::BytesMut;
use ipfrs_core::{Error, Result};
use ipfrs_middleware::MultipartFeed;
use multer::Multipart;
use serde_json::{Map, Value};

use super::parsed::{Parsed, append, memory_of, of_json};
use crate::error::unreadable;
use crate::files::Files;
use crate::limits::{MAX_BODY_BYTES, MAX_FILES};
use crate::operation::Executor;
use crate::scalars::UPLOAD_MARK;

/// Maximum length of the field `map`, in bytes.
const MAX_MAP_BYTES: usize = 64 * 1024;

/// Reads the operation of a multipart request and its map. The files follow.
pub(super) async fn read(executor: &Executor, body: Body, boundary: String) -> Result<Parsed> {
    let claims = Arc::new(AtomicUsize::new(0));
    let feed = MultipartFeed::new(body.into_data_stream(), Arc::clone(&claims), executor.memory().reservation());
    let mut parts = Multipart::new(feed, boundary);
    let mut memory = executor.memory().reservation();
    let operations = text(&mut parts, &claims, "operations", MAX_BODY_BYTES).await?;
    memory.grow_to(memory_of(&operations))?;
    let map = text(&mut parts, &claims, "map", MAX_MAP_BYTES).await?;
    let map: Map<String, Value> = serde_json::from_slice(&map)
        .map_err(|e| Error::invalid(format!("map is not an object of file names and paths of variables: {e}")))?;
    if map.len() > MAX_FILES {
        return Err(Error::too_large(format!("a request has at most {MAX_FILES} files: send several requests")));
    }
    let mut request: Value = serde_json::from_slice(&operations)
        .map_err(|e| Error::invalid(format!("operations is not a GraphQL request: {e}")))?;
    let mut names = Vec::with_capacity(map.len());
    for (number, (name, paths)) in map.into_iter().enumerate() {
        let Value::Array(paths) = paths else {
            return Err(Error::invalid(format!("the file {name:?} of map has no list of paths of variables")));
        };
        let [path] = &*paths else {
            let why = "a file is imported while it arrives, once: send it once for each variable";
            return Err(Error::invalid(format!("the file {name:?} of map has {} variables: {why}", paths.len())));
        };
        let path = path.as_str().ok_or_else(|| Error::invalid("the paths in map must be strings"))?;
        put(&mut request, path, number)?;
        names.push(name);
    }
    let request = of_json(&serde_json::to_vec(&request).unwrap_or_default())?;
    // Without files, this is a request like any other.
    let files = (!names.is_empty()).then(|| Files::new(names, parts, claims));
    Ok(Parsed { request, files, memory: Some(memory) })
}

/// Reads the next part, which must have this name.
async fn text(
    parts: &mut Multipart<'static>,
    claims: &AtomicUsize,
    name: &'static str,
    most: usize,
) -> Result<BytesMut> {
    let field = parts.next_field().await.map_err(unreadable)?;
    claims.fetch_add(1, Ordering::Relaxed);
    let Some(mut field) = field.filter(|field| field.name() == Some(name)) else {
        return Err(Error::invalid(format!(
            "the part {name:?} is missing: send the parts operations, map and then the files \
             (graphql-multipart-request-spec)"
        )));
    };
    let mut text = BytesMut::new();
    while let Some(piece) = field.chunk().await.map_err(unreadable)? {
        claims.fetch_add(1, Ordering::Relaxed);
        append(&mut text, &piece, most)?;
    }
    Ok(text)
}

/// Puts the mark of a file at a path such as `variables.files.0`.
fn put(request: &mut Value, path: &str, number: usize) -> Result<()> {
    let invalid = || Error::invalid(format!("{path:?} in map does not lead to a variable: such as variables.file"));
    let mut segments = path.split('.');
    if segments.next() != Some("variables") {
        return Err(invalid());
    }
    let mut target = request.get_mut("variables").ok_or_else(invalid)?;
    for segment in segments {
        target = match target {
            Value::Object(members) => members.get_mut(segment),
            Value::Array(items) => segment.parse::<usize>().ok().and_then(|index| items.get_mut(index)),
            _ => None,
        }
        .ok_or_else(invalid)?;
    }
    if !target.is_null() {
        return Err(Error::invalid(format!("the variable {path:?} must be null, because a file takes its place")));
    }
    *target = Value::String(format!("{UPLOAD_MARK}{number}"));
    Ok(())
}
