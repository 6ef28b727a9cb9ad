//! Multipart bodies of `add`, `block/put` and other commands in the form that Kubo's clients send, parsed with
//! bounded memory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::{MemoryPool, MultipartFeed, RequestMemory};
use ipfrs_node::LinkName;
use percent_encoding::percent_decode;

use super::command_result::has_body;
use super::disposition::{is_escaped, parameter};
use crate::body::{Whole, append, broken_body, whole};
use crate::error::RpcError;

/// Returns the boundary of a multipart body, or `None` for any other body.
///
/// # Errors
/// If a multipart type has no boundary.
pub(super) fn boundary(headers: &HeaderMap) -> Result<Option<String>> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.trim_start().to_ascii_lowercase().starts_with("multipart/") {
        return Ok(None);
    }
    let parameters = content_type.split(';').skip(1).filter_map(|parameter| parameter.split_once('='));
    let boundary = parameters.map(|(name, value)| (name.trim(), value.trim().trim_matches('"')));
    match boundary.filter(|(name, _)| name.eq_ignore_ascii_case("boundary")).map(|(_, value)| value).next() {
        Some(value) if !value.is_empty() => Ok(Some(value.to_owned())),
        _ => Err(Error::invalid(format!("Content-Type {content_type:?} has no boundary"))),
    }
}

/// Removes the type of an empty body that is multipart but no form. As in Kubo, such a request has no body.
pub(super) fn remove_type_of_no_body(request: &mut Request) {
    let content_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.trim_start().to_ascii_lowercase();
    let is_other = content_type.starts_with("multipart/") && !content_type.starts_with("multipart/form-data");
    if is_other && http_body::Body::is_end_stream(request.body()) {
        request.headers_mut().remove(CONTENT_TYPE);
    }
}

/// Converts an error of a multipart body to an error worded for the client.
fn multipart_error(error: multer::Error) -> Error {
    match error {
        multer::Error::IncompleteStream
        | multer::Error::IncompleteFieldData { .. }
        | multer::Error::IncompleteHeaders => {
            Error::invalid("the multipart body is cut off: the last file was not added")
        }
        multer::Error::StreamReadFailed(cause) => broken_body(cause),
        other => Error::invalid(format!("the multipart body is malformed: {other}")).with_source(other),
    }
}

/// Reads the only file of a request: the one in a multipart body, or the body itself. `argument` is used in error
/// messages.
pub(super) async fn one_file(
    memory: &MemoryPool,
    request: Request,
    argument: &str,
    limit: usize,
) -> Result<Whole, RpcError> {
    let missing = || RpcError::Request(format!("file argument '{argument}' is required"));
    let boundary = boundary(request.headers())?;
    let Some(boundary) = boundary else {
        if !has_body(&request) {
            return Err(missing());
        }
        let remedy = "send only the expected file";
        return Ok(whole(memory, request.into_body(), limit, argument, remedy).await?);
    };
    let mut parts = Parts::new(memory, request.into_body(), boundary);
    let file = parts.next_file().await?.ok_or_else(missing)?;
    let content = file.whole(limit, &format!("the file with the {argument}"), "send nothing else in it").await?;
    if parts.next().await?.is_some() {
        return Err(Error::invalid(format!("more than one file: one {argument} is expected")).into());
    }
    Ok(content)
}

/// The parts of a multipart body, read in sequence.
pub(super) struct Parts {
    memory: MemoryPool,
    parser: multer::Multipart<'static>,
    claims: Arc<AtomicUsize>,
}

impl Parts {
    pub(super) fn new(memory: &MemoryPool, body: Body, boundary: String) -> Self {
        let claims = Arc::new(AtomicUsize::new(0));
        let feed = MultipartFeed::new(body.into_data_stream(), claims.clone(), memory.reservation());
        Self { memory: memory.clone(), parser: multer::Multipart::new(feed, boundary), claims }
    }

    /// Returns the next part. The unread rest of the previous part is skipped.
    pub(super) async fn next(&mut self) -> Result<Option<Part>> {
        let field = self.parser.next_field().await.map_err(multipart_error)?;
        self.claims.fetch_add(1, Ordering::Relaxed);
        // The parser takes the first lines of the content of such a part for its head.
        if field.as_ref().is_some_and(|field| field.headers().is_empty()) {
            return Err(Error::invalid("expected a file argument: a part of the multipart body has no headers"));
        }
        Ok(field.map(|field| Part { memory: self.memory.clone(), field, claims: self.claims.clone() }))
    }

    /// Returns the next part, which must not be a directory.
    pub(super) async fn next_file(&mut self) -> Result<Option<Part>> {
        let part = self.next().await?;
        if let Some(part) = part.as_ref().filter(|part| part.kind() == PartKind::Directory) {
            let name = part.file_name();
            return Err(Error::invalid(format!("{name:?} is a directory, a file is expected: send the files in it")));
        }
        Ok(part)
    }
}

/// Kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    File,
    Directory,
    /// A symlink whose target is the content.
    Symlink,
}

/// A part: its headers, and its content as a stream.
pub(super) struct Part {
    memory: MemoryPool,
    field: multer::Field<'static>,
    claims: Arc<AtomicUsize>,
}

impl Part {
    /// Returns the unescaped file name, or an empty name if there is none. It need not be UTF-8.
    pub(super) fn file_name(&self) -> LinkName {
        file_name(self.field.headers())
    }

    /// Returns the headers of the part.
    pub(super) fn headers(&self) -> &HeaderMap {
        self.field.headers()
    }

    /// Returns the absolute path of the file on the machine of the client, if it sends one. Kubo's Go client sends an
    /// empty one for content that is in no file.
    pub(super) fn source(&self) -> Option<PathBuf> {
        let header = |name| Some(self.field.headers().get(name)?.as_bytes());
        // Escaped as a query component.
        let encoded = header("abspath-encoded").map(|path| {
            let spaced: Vec<_> = path.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
            percent_decode(&spaced).collect()
        });
        let path = encoded.or_else(|| header("abspath").map(<[u8]>::to_vec)).filter(|path| !path.is_empty())?;
        Some(PathBuf::from(OsString::from_vec(path)))
    }

    /// Returns the kind of the part, according to its content type.
    pub(super) fn kind(&self) -> PartKind {
        let value = self.field.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = value.split(';').next().unwrap_or_default().trim();
        let is = |other: &str| media_type.eq_ignore_ascii_case(other);
        if is("application/x-directory") || is("multipart/form-data") {
            PartKind::Directory
        } else if is("application/symlink") {
            PartKind::Symlink
        } else {
            PartKind::File
        }
    }

    /// Reads the whole content.
    ///
    /// # Errors
    /// `TooLarge` above `limit` bytes, with `what` and the `remedy` in its message; `RateLimited` if the memory for
    /// request bodies is exhausted.
    pub(super) async fn whole(self, limit: usize, what: &str, remedy: &str) -> Result<Whole> {
        let mut memory = self.memory.reservation();
        let bytes = self.whole_behind(limit, what, remedy, &mut memory, 0).await?;
        Ok(Whole { bytes, memory })
    }

    /// Same as [`Self::whole`], with `memory` that already holds `before` bytes for other data.
    ///
    /// # Errors
    /// See [`Self::whole`].
    pub(super) async fn whole_behind(
        mut self,
        limit: usize,
        what: &str,
        remedy: &str,
        memory: &mut RequestMemory,
        before: usize,
    ) -> Result<Bytes> {
        let mut content = Vec::new();
        while let Some(piece) = self.next().await.transpose()? {
            if piece.len() > limit - content.len() {
                return Err(Error::too_large(format!("{what} is over the limit of {limit} bytes: {remedy}")));
            }
            append(&mut content, &piece, memory, before)?;
        }
        Ok(content.into())
    }
}

impl Stream for Part {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let piece = ready!(self.field.poll_next_unpin(cx));
        self.claims.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(piece.map(|piece| piece.map_err(multipart_error)))
    }
}

/// Returns the `filename` of a part, whatever its disposition type. Clients escape it as a query component. A name
/// that is not validly escaped, as some clients (curl) send, is used unchanged.
fn file_name(headers: &HeaderMap) -> LinkName {
    let disposition = headers.get(CONTENT_DISPOSITION).map(HeaderValue::as_bytes);
    let mut name = disposition.and_then(|disposition| parameter(disposition, "filename")).unwrap_or_default();
    if is_escaped(&name) {
        name.iter_mut().filter(|byte| **byte == b'+').for_each(|byte| *byte = b' ');
        name = percent_decode(&name).collect();
    }
    name.into()
}

#[cfg(test)]
pub(super) mod tests {
    use ipfrs_node::{MemoryStore, Node, NodeConfig};
    use prometheus::Registry;

    use super::*;

    /// Returns the memory of a node, and its repo.
    pub(in crate::rpc) async fn pool() -> (tempfile::TempDir, MemoryPool) {
        let (repo, config) = (tempfile::tempdir().unwrap(), NodeConfig::default());
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).config(config).open().await;
        (repo, MemoryPool::register(&node.unwrap(), &Registry::new()).unwrap())
    }

    fn name_of(disposition: impl AsRef<[u8]>) -> LinkName {
        let value = HeaderValue::from_bytes(disposition.as_ref()).unwrap();
        file_name(&HeaderMap::from_iter([(CONTENT_DISPOSITION, value)]))
    }

    #[test]
    fn file_names_are_read_as_clients_write_them() {
        assert_eq!(name_of(r#"form-data; name="file"; filename="a.txt""#), "a.txt");
        assert_eq!(name_of(r#"form-data; name="file"; filename="dir%2Fa+b%C3%BC.txt""#), "dir/a bü.txt");
        assert_eq!(name_of(r#"attachment; filename="x%20y""#), "x y");
        assert_eq!(name_of(r#"form-data; name="filename="; filename="a\"b""#), "a\"b");
        assert_eq!(name_of("form-data; name=file; filename=plain"), "plain");
        assert_eq!(name_of(r#"form-data; filename="100%.txt""#), "100%.txt");
        assert_eq!(name_of("form-data; filename=\"tést\""), "tést");
        assert_eq!(name_of(r#"form-data; name="file""#), "");
        assert_eq!(name_of("filename=\"first\""), "");
        assert_eq!(name_of(r#"form-data; filename="C:\dev\a.txt""#), r"C:\dev\a.txt");
        assert_eq!(name_of(r#"form-data; filename="a\\b\;c""#), r"a\b;c");
        assert_eq!(name_of("form-data; filename*=utf-8''%C3%A9.txt"), "\u{e9}.txt");
        assert_eq!(name_of(r#"form-data; filename="e.txt"; filename*=UTF-8'fr'%C3%A9.txt"#), "\u{e9}.txt");
        assert_eq!(name_of(r#"form-data; filename="e.txt"; filename*=latin-1''%E9.txt"#), "e.txt");
        assert_eq!(name_of(r#"form-data; name="x; filename=evil"; filename="good""#), "good");
        assert_eq!(name_of(r#"form-data; filename = "a" ; name=b"#), "a");
        assert_eq!(name_of(r#"form-data; filename="unclosed"#), "unclosed");
        assert_eq!(name_of("form-data; filename"), "");
        for not_utf8 in [&br#"form-data; filename="a%FF""#[..], b"form-data; filename=\"a\xff\""] {
            assert_eq!(name_of(not_utf8), LinkName::from(b"a\xff"));
        }
    }

    #[tokio::test]
    async fn multipart_body_arriving_at_once_is_complete() {
        let form = "--b\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\ncontent\r\n--b--\r\n";
        let mut has_waited = false;
        let mut rest = Some(Ok::<_, Error>(Bytes::from_static(form.as_bytes())));
        let pieces = futures::stream::poll_fn(move |cx| {
            if !std::mem::replace(&mut has_waited, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(rest.take())
        });
        let (_repo, pool) = pool().await;
        let mut parts = Parts::new(&pool, Body::from_stream(pieces), "b".into());
        let part = parts.next().await.unwrap().unwrap();
        assert_eq!(part.file_name(), "a");
        assert_eq!(part.whole(100, "the file", "send less").await.unwrap().bytes, b"content"[..]);
        assert!(parts.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn part_without_headers_is_refused() {
        let (_repo, pool) = pool().await;
        for form in ["--b\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--\r\n", "--b\r\n\r\nx\r\n\r\ny\r\n--b--\r\n"] {
            let refused = Parts::new(&pool, Body::from(form), "b".into()).next().await.err().unwrap();
            assert!(refused.message().starts_with("expected a file argument"), "{refused}");
        }
    }

    #[tokio::test]
    async fn multipart_small_parts_are_not_read_far_ahead() {
        let part = Bytes::from("--b\r\nContent-Disposition: form-data; filename=\"a\"\r\n\r\nx\r\n".repeat(100));
        let part_bytes = part.len() / 100;
        let read = Arc::new(AtomicUsize::new(0));
        let counted = read.clone();
        let endless = futures::stream::repeat_with(move || {
            counted.fetch_add(part.len(), Ordering::Relaxed);
            Ok::<_, Error>(part.clone())
        });
        let (_repo, pool) = pool().await;
        let mut parts = Parts::new(&pool, Body::from_stream(endless), "b".into());
        for taken in 0..20_000 {
            let part = parts.next().await.unwrap().unwrap();
            assert_eq!(part.whole(10, "the file", "send less").await.unwrap().bytes, b"x"[..]);
            let ahead = read.load(Ordering::Relaxed) - taken * part_bytes;
            assert!(ahead < 3 * 256 * 1024, "{ahead} bytes ahead of part {taken}");
        }
    }
}
