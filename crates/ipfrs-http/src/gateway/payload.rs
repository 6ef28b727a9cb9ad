//! Payload of a response: whole, one range, or several.

use std::hash::{BuildHasher, RandomState};

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::{Error, Result};
use ipfrs_node::{FileContent, Node, Span, TensorContent, current_context, within_context};

use super::content_type::SNIFF_BYTES;
use super::range::Ranges;
use crate::body::{BEGINNING_BYTES, Sized, begun, header_text};

/// Content whose size is known before it is read.
pub(crate) enum Payload {
    /// In memory, or a slice of a mapped file.
    Bytes(Bytes),
    /// A UnixFS file.
    File(FileContent),
    /// Tensors of a file.
    Tensors(TensorContent),
}

impl Payload {
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.size(),
            Self::Tensors(tensors) => tensors.size(),
        }
    }

    /// Returns the first bytes, for guessing a content type. Returns `None` if they cannot be read: ranges of a file
    /// can be served even if its first block is missing.
    pub(super) async fn head(&self, node: &Node) -> Option<Bytes> {
        let span = Span { start: 0, len: self.size().min(SNIFF_BYTES) };
        match (self.slice(span), self) {
            (Some(head), _) => Some(head),
            (None, Self::File(file)) => node.peek(file, span).await.ok(),
            (None, Self::Bytes(_) | Self::Tensors(_)) => None,
        }
    }

    /// Returns the status and the body for `ranges`, and sets the headers that depend on them. The beginning of a
    /// file is read before the head is sent, so that a missing block there results in an error response instead of a
    /// truncated one.
    ///
    /// # Errors
    /// The error of reading the beginning; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if the total length of the
    /// ranges overflows.
    pub(crate) async fn respond(
        self,
        node: &Node,
        ranges: Ranges,
        headers: &mut HeaderMap,
        is_head: bool,
    ) -> Result<(StatusCode, Body)> {
        let size = self.size();
        let (status, length, body) = match ranges {
            Ranges::Unsatisfiable => {
                headers.insert(CONTENT_RANGE, header_text(&format!("bytes */{size}")));
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
                headers.remove(CONTENT_TYPE);
                return Ok((StatusCode::RANGE_NOT_SATISFIABLE, Body::empty()));
            }
            Ranges::Whole | Ranges::One(_) if is_head => {
                let span = one_span(&ranges, size, headers);
                (status_of(&ranges), span.len, self.no_body(node, &[span]).await?)
            }
            Ranges::Whole | Ranges::One(_) => {
                let span = one_span(&ranges, size, headers);
                (status_of(&ranges), span.len, self.body(node, span).await?)
            }
            Ranges::Many(spans) => {
                let multipart = Multipart::new(&spans, size, headers.get(CONTENT_TYPE));
                headers.insert(CONTENT_TYPE, multipart.content_type());
                let too_long = || Error::too_large("these ranges have more than 2^64 bytes together: request fewer");
                let length = multipart.length().ok_or_else(too_long)?;
                let body = match is_head {
                    true => self.no_body(node, &spans).await?,
                    false => Box::pin(self.multipart(node, multipart, length)).await?,
                };
                (StatusCode::PARTIAL_CONTENT, length, body)
            }
        };
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        Ok((status, body))
    }

    /// Returns the body of a response to HEAD for spans of the content.
    ///
    /// # Errors
    /// As the response to GET before its head, because both have the same status (RFC 9110, 9.3.2).
    pub(crate) async fn no_body(&self, node: &Node, spans: &[Span]) -> Result<Body> {
        let Self::File(file) = self else { return Ok(Body::empty()) };
        let mut left = BEGINNING_BYTES as u64;
        for span in spans {
            let beginning = Span { start: span.start, len: span.len.min(left) };
            if beginning.len > 0 && self.slice(beginning).is_none() {
                Box::pin(node.check_beginning(file, beginning)).await?;
            }
            left -= beginning.len;
        }
        Ok(Body::empty())
    }

    /// Returns a body with a span of the content.
    ///
    /// # Errors
    /// The error of reading its beginning.
    pub(crate) async fn body(self, node: &Node, span: Span) -> Result<Body> {
        match (self.slice(span), self) {
            (Some(bytes), _) => {
                node.count_download(bytes.len());
                Ok(Body::from(bytes))
            }
            (None, Self::File(file)) => {
                let mut pieces = node.read(&file, span);
                match pieces.next().await.transpose()? {
                    Some(whole) if whole.len() as u64 == span.len => Ok(Body::from(whole)),
                    first => {
                        let pieces = stream::iter(first.map(Ok)).chain(pieces);
                        Ok(Sized::body(begun(pieces).await?, span.len))
                    }
                }
            }
            (None, Self::Tensors(tensors)) => Box::pin(tensors_body(node, tensors, span)).await,
            (None, Self::Bytes(_)) => Ok(Body::empty()),
        }
    }

    /// Returns a body with several ranges of the content.
    ///
    /// # Errors
    /// The error of reading its beginning.
    async fn multipart(self, node: &Node, multipart: Multipart, length: u64) -> Result<Body> {
        // All ranges but the first are read while the response is sent.
        let (node, context) = (node.clone(), current_context());
        let parts = stream::iter(multipart.parts).flat_map(move |(head, span)| {
            let content = || match (self.slice(span), &self) {
                (None, Self::File(file)) => node.read(file, span).boxed(),
                (None, Self::Tensors(tensors)) => node.read_tensors(tensors, span).boxed(),
                (bytes, _) => {
                    let bytes = bytes.unwrap_or_default();
                    node.count_download(bytes.len());
                    once(bytes).boxed()
                }
            };
            once(head).chain(within_context(context.clone(), content))
        });
        let pieces = begun(parts.chain(once(multipart.end)).boxed()).await?;
        Ok(Sized::body(pieces, length))
    }

    /// Returns a span of content that is in memory, or `None` if the file has to be read.
    fn slice(&self, span: Span) -> Option<Bytes> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::File(file) => file.inline()?,
            Self::Tensors(_) => return None,
        };
        // Spans are within the content, whose length fits in memory.
        let start = usize::try_from(span.start).unwrap_or(usize::MAX).min(bytes.len());
        let end = usize::try_from(span.start + span.len).unwrap_or(usize::MAX).min(bytes.len());
        Some(bytes.slice(start..end))
    }
}

/// Returns a body with a span of tensors.
async fn tensors_body(node: &Node, tensors: TensorContent, span: Span) -> Result<Body> {
    // Reads only up to the first piece with tensor data. A span may consist of little data from each of many blocks.
    let first = 1 + usize::from(tensors.has_head());
    let mut pieces = node.read_tensors(&tensors, span).boxed();
    let first: Vec<_> = pieces.by_ref().take(first).try_collect().await?;
    Ok(Sized::body(stream::iter(first).map(Ok).chain(pieces), span.len))
}

fn once(bytes: Bytes) -> impl Stream<Item = Result<Bytes>> + Send {
    stream::once(std::future::ready(Ok(bytes)))
}

fn status_of(ranges: &Ranges) -> StatusCode {
    if *ranges == Ranges::Whole { StatusCode::OK } else { StatusCode::PARTIAL_CONTENT }
}

/// Returns the span of a response with one part, and sets `Content-Range` for it.
fn one_span(ranges: &Ranges, size: u64, headers: &mut HeaderMap) -> Span {
    let Ranges::One(span) = *ranges else { return Span { start: 0, len: size } };
    headers.insert(CONTENT_RANGE, content_range(span, size));
    span
}

/// Returns the `Content-Range` value of a span.
pub(super) fn content_range(span: Span, size: u64) -> HeaderValue {
    header_text(&range_text(span, size))
}

fn range_text(span: Span, size: u64) -> String {
    let [first, last, size] = [span.start, span.start + span.len - 1, size].map(|number| number.to_string());
    ["bytes ", &first, "-", &last, "/", &size].concat()
}

/// A `multipart/byteranges` body (RFC 9110, 14.6). Its boundary is random, so that content cannot be crafted to
/// contain it.
struct Multipart {
    boundary: String,
    parts: Vec<(Bytes, Span)>,
    end: Bytes,
}

impl Multipart {
    fn new(spans: &[Span], size: u64, content_type: Option<&HeaderValue>) -> Self {
        let random = || RandomState::new().hash_one(size);
        let boundary = format!("{:016x}{:016x}", random(), random());
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or("application/octet-stream");
        let head = |span: &Span| {
            let range = range_text(*span, size);
            format!("\r\n--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: {range}\r\n\r\n")
        };
        let parts = spans.iter().map(|span| (Bytes::from(head(span)), *span)).collect();
        Self { parts, end: format!("\r\n--{boundary}--\r\n").into(), boundary }
    }

    fn content_type(&self) -> HeaderValue {
        header_text(&format!("multipart/byteranges; boundary={}", self.boundary))
    }

    /// Returns the length of the body in bytes, or `None` on overflow.
    fn length(&self) -> Option<u64> {
        let mut parts = self.parts.iter().flat_map(|(head, span)| [head.len() as u64, span.len]);
        parts.try_fold(self.end.len() as u64, u64::checked_add)
    }
}
