//! Bytes to answer with: whole, a range, or several.

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use ipfrs_core::Result;
use ipfrs_node::{FileContent, Node, Span};

use super::content_type::SNIFF_BYTES;
use super::range::Ranges;
use crate::body::{Sized, header_text};

/// Separates the parts of a `multipart/byteranges` body. Fixed: the parts have a known length, so that clients do not
/// depend on the text being absent from the content.
const BOUNDARY: &str = "ipfrs-7f1c0e5b9a3d4e62byteranges";

/// Content whose size is known before it is read.
pub(super) enum Payload {
    /// In memory, or a slice of a mapped file.
    Bytes(Bytes),
    /// A UnixFS file.
    File(FileContent),
}

impl Payload {
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(file) => file.size(),
        }
    }

    /// The first bytes, for guessing a content type. `None` where they cannot be had: a range of a file can be served
    /// although its first block is missing.
    pub(super) async fn head(&self, node: &Node) -> Option<Bytes> {
        let span = Span { start: 0, len: self.size().min(SNIFF_BYTES) };
        match (self.slice(span), self) {
            (Some(head), _) => Some(head),
            (None, Self::File(file)) => node.peek(file, span).await.ok(),
            (None, Self::Bytes(_)) => None,
        }
    }

    /// Status and body for `ranges`; the headers that depend on them are set.
    pub(super) fn respond(
        self,
        node: &Node,
        ranges: Ranges,
        headers: &mut HeaderMap,
        is_head: bool,
    ) -> (StatusCode, Body) {
        let size = self.size();
        let (status, length, body) = match ranges {
            Ranges::Unsatisfiable => {
                headers.insert(CONTENT_RANGE, header_text(&format!("bytes */{size}")));
                headers.remove(CONTENT_TYPE);
                return (StatusCode::RANGE_NOT_SATISFIABLE, Body::empty());
            }
            Ranges::Whole => {
                let whole = Span { start: 0, len: size };
                (StatusCode::OK, size, (!is_head).then(|| self.body(node, whole)))
            }
            Ranges::One(span) => {
                headers.insert(CONTENT_RANGE, header_text(&content_range(span, size)));
                (StatusCode::PARTIAL_CONTENT, span.len, (!is_head).then(|| self.body(node, span)))
            }
            Ranges::Many(spans) => {
                let parts = part_heads(&spans, size, headers.get(CONTENT_TYPE));
                let multipart =
                    HeaderValue::from_static("multipart/byteranges; boundary=ipfrs-7f1c0e5b9a3d4e62byteranges");
                headers.insert(CONTENT_TYPE, multipart);
                let length =
                    parts.iter().map(|(head, span)| head.len() as u64 + span.len).sum::<u64>() + END.len() as u64;
                (StatusCode::PARTIAL_CONTENT, length, (!is_head).then(|| self.multipart(node, parts, length)))
            }
        };
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        (status, body.unwrap_or_else(Body::empty))
    }

    fn body(self, node: &Node, span: Span) -> Body {
        match (self.slice(span), self) {
            (Some(bytes), _) => {
                node.count_download(bytes.len());
                Body::from(bytes)
            }
            (None, Self::File(file)) => Sized::body(node.read(&file, span), span.len),
            (None, Self::Bytes(_)) => Body::empty(),
        }
    }

    fn multipart(self, node: &Node, parts: Vec<(Bytes, Span)>, length: u64) -> Body {
        let node = node.clone();
        let parts = stream::iter(parts).flat_map(move |(head, span)| {
            let content = match (self.slice(span), &self) {
                (None, Self::File(file)) => node.read(file, span).boxed(),
                (bytes, _) => once(bytes.unwrap_or_default()).boxed(),
            };
            once(head).chain(content)
        });
        Sized::body(parts.chain(once(Bytes::from_static(END.as_bytes()))).boxed(), length)
    }

    /// A span of content that is in memory; `None` where the file has to be read for it.
    fn slice(&self, span: Span) -> Option<Bytes> {
        let bytes = match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::File(file) => file.inline()?,
        };
        // Spans lie within the content, whose length fits memory.
        let start = usize::try_from(span.start).unwrap_or(usize::MAX).min(bytes.len());
        let end = usize::try_from(span.start + span.len).unwrap_or(usize::MAX).min(bytes.len());
        Some(bytes.slice(start..end))
    }
}

fn once(bytes: Bytes) -> impl Stream<Item = Result<Bytes>> + Send {
    stream::once(std::future::ready(Ok(bytes)))
}

const END: &str = "\r\n--ipfrs-7f1c0e5b9a3d4e62byteranges--\r\n";

fn content_range(span: Span, size: u64) -> String {
    format!("bytes {}-{}/{size}", span.start, span.start + span.len - 1)
}

fn part_heads(spans: &[Span], size: u64, content_type: Option<&HeaderValue>) -> Vec<(Bytes, Span)> {
    let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or("application/octet-stream");
    let head = |span: &Span| {
        let range = content_range(*span, size);
        format!("\r\n--{BOUNDARY}\r\nContent-Type: {content_type}\r\nContent-Range: {range}\r\n\r\n")
    };
    spans.iter().map(|span| (Bytes::from(head(span)), *span)).collect()
}
