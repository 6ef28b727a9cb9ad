//! Requests with files (<https://github.com/jaydenseric/graphql-multipart-request-spec>). Files are imported while they
//! arrive, so they must be sent in the order in which the operation uses them.

use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Error, Result};
use multer::{Field, Multipart};
use serde_json::{Map, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::request::{Parsed, append, of_json, unreadable};
use crate::limits::{MAX_BODY_BYTES, MAX_FILES};
use crate::operation::Executor;
use crate::scalars::UPLOAD_MARK;

/// Maximum length of the field `map`, in bytes.
const MAX_MAP_BYTES: usize = 64 * 1024;

/// The files of a request.
pub(crate) struct Files {
    /// Names of the parts, in the order of the map.
    names: Vec<String>,
    parts: Arc<Mutex<Multipart<'static>>>,
}

/// A file while it arrives.
pub(crate) struct FilePart {
    /// File name, if the client sent one.
    pub(crate) name: Option<String>,
    pub(crate) content: BoxStream<'static, Result<Bytes>>,
}

impl Files {
    /// Returns a file, once the ones before it were read or dropped.
    ///
    /// # Errors
    /// If there is no such file, or if it was sent before one that was used already.
    pub(crate) async fn take(&self, number: usize) -> Result<FilePart> {
        let wanted = self.names.get(number).ok_or_else(|| Error::invalid("the map has no such file"))?;
        let mut parts = Arc::clone(&self.parts).lock_owned().await;
        loop {
            let Some(field) = parts.next_field().await.map_err(unreadable)? else {
                return Err(Error::invalid(format!(
                    "the file {wanted:?} of the map was not sent, or was sent before a file that the operation uses \
                     earlier: send the files in the order of their use, each for one variable"
                )));
            };
            if field.name() == Some(wanted) {
                let name = field.file_name().filter(|name| !name.is_empty()).map(str::to_owned);
                return Ok(FilePart { name, content: content(field, parts) });
            }
        }
    }
}

/// Returns the content of a part. Until it is dropped, no other part can be read.
fn content(field: Field<'static>, parts: OwnedMutexGuard<Multipart<'static>>) -> BoxStream<'static, Result<Bytes>> {
    let pieces = stream::unfold((field, parts), |(mut field, parts)| async move {
        let piece = field.chunk().await.map_err(unreadable).transpose()?;
        Some((piece, (field, parts)))
    });
    pieces.boxed()
}

/// Reads the operation of a multipart request and its map. The files follow.
pub(super) async fn read(executor: &Executor, body: Body, boundary: String) -> Result<Parsed> {
    let mut parts = Multipart::new(body.into_data_stream(), boundary);
    let mut memory = executor.memory().reservation();
    let operations = text(&mut parts, "operations", MAX_BODY_BYTES).await?;
    memory.grow_to(operations.len().saturating_mul(4))?;
    let map = text(&mut parts, "map", MAX_MAP_BYTES).await?;
    let map: Map<String, Value> = serde_json::from_slice(&map)
        .map_err(|e| Error::invalid(format!("map is not an object of file names and paths of variables: {e}")))?;
    if map.len() > MAX_FILES {
        return Err(Error::too_large(format!("a request has at most {MAX_FILES} files: send several requests")));
    }
    let mut request: Value = serde_json::from_slice(&operations)
        .map_err(|e| Error::invalid(format!("operations is not a GraphQL request: {e}")))?;
    let mut names = Vec::with_capacity(map.len());
    for (number, (name, paths)) in map.into_iter().enumerate() {
        for path in paths.as_array().map(Vec::as_slice).unwrap_or_default() {
            let path = path.as_str().ok_or_else(|| Error::invalid("the paths in map must be strings"))?;
            put(&mut request, path, number)?;
        }
        names.push(name);
    }
    let request = of_json(&serde_json::to_vec(&request).unwrap_or_default())?;
    let files = Files { names, parts: Arc::new(Mutex::new(parts)) };
    Ok(Parsed { request, files: Some(files), memory: Some(memory) })
}

/// Reads the next part, which must have this name.
async fn text(parts: &mut Multipart<'static>, name: &'static str, most: usize) -> Result<BytesMut> {
    let field = parts.next_field().await.map_err(unreadable)?;
    let Some(mut field) = field.filter(|field| field.name() == Some(name)) else {
        return Err(Error::invalid(format!(
            "the part {name:?} is missing: send the parts operations, map and then the files \
             (graphql-multipart-request-spec)"
        )));
    };
    let mut text = BytesMut::new();
    while let Some(piece) = field.chunk().await.map_err(unreadable)? {
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
