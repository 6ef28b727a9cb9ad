//! A body whose lines of JSON are converted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::RequestMemory;
use memchr::memchr;
use serde_json::Value;

use super::Conversion;
use crate::body::{X_STREAM_ERROR, header_text};
use crate::rpc::args::Args;

/// Maximum length of a line, in bytes. Lists that are longer can be streamed.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Memory for a line, its parsed value and its text, by the length of the line.
const MEMORY_FACTOR: usize = 12;
/// Lines of up to this length need no reservation.
const SHORT_LINE_BYTES: usize = 64 * 1024;

pub(super) struct Lines {
    inner: Body,
    conversion: Conversion,
    args: Args,
    /// Bytes of the line that is not complete.
    line: BytesMut,
    memory: RequestMemory,
    /// Trailers that follow the last text.
    trailers: Option<HeaderMap>,
    is_at_end: bool,
}

impl Lines {
    pub(super) fn body(inner: Body, conversion: Conversion, args: Args, memory: RequestMemory) -> Body {
        Body::new(Self { inner, conversion, args, line: BytesMut::new(), memory, trailers: None, is_at_end: false })
    }

    /// Adds a piece of the body, and returns the text of the lines that are complete.
    fn add(&mut self, piece: &[u8]) -> Result<String, Failure> {
        let mut out = String::new();
        // The line need not be complete, and may be too long.
        if let Some(why) = self.conversion.fails().filter(|_| !piece.is_empty()) {
            return Err(Failure { text: out, error: Error::invalid(why) });
        }
        let mut rest = piece;
        while let Some(end) = memchr(b'\n', rest) {
            let (head, tail) = rest.split_at(end + 1);
            rest = tail;
            let written = if self.line.is_empty() {
                self.reserve(head.len()).and_then(|()| self.write(head, &mut out))
            } else {
                self.keep(head).and_then(|()| {
                    let line = self.line.split();
                    self.write(&line, &mut out)
                })
            };
            if let Err(error) = written {
                return Err(Failure { text: out, error });
            }
        }
        match self.keep(rest) {
            Ok(()) => Ok(out),
            Err(error) => Err(Failure { text: out, error }),
        }
    }

    fn keep(&mut self, part: &[u8]) -> Result<()> {
        self.reserve(self.line.len() + part.len())?;
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Reserves the memory for a line.
    fn reserve(&mut self, length: usize) -> Result<()> {
        if length > MAX_LINE_BYTES {
            let why = format!("a line of the response has more than {MAX_LINE_BYTES} bytes: use stream=true, or json");
            return Err(Error::too_large(why));
        }
        if length <= SHORT_LINE_BYTES { Ok(()) } else { self.memory.grow_to(length * MEMORY_FACTOR) }
    }

    fn write(&self, line: &[u8], out: &mut String) -> Result<()> {
        let not_json = |e| Error::internal("a line of the response is not JSON").with_source(e);
        let value: Value = serde_json::from_slice(line).map_err(not_json)?;
        // The trailer has the error at the end of a stream.
        if value.get("Type").is_some_and(|kind| kind == "error") && value.get("Message").is_some() {
            return Ok(());
        }
        self.conversion.write(&value, &self.args, out).map_err(Error::invalid)
    }

    /// Ends the body with an error, after the text before it.
    fn fail(&mut self, Failure { text, error }: Failure) -> Option<Result<Frame<Bytes>, axum::Error>> {
        self.inner = Body::empty();
        if !self.args.takes_trailers {
            self.is_at_end = true;
            return Some(Err(axum::Error::new(error)));
        }
        self.trailers = Some(HeaderMap::from_iter([(X_STREAM_ERROR, header_text(error.message()))]));
        self.flush(text)
    }

    /// Returns the next frame at the end of the body: the last text, then the trailers.
    fn flush(&mut self, text: String) -> Option<Result<Frame<Bytes>, axum::Error>> {
        if !text.is_empty() {
            return Some(Ok(Frame::data(text.into())));
        }
        self.is_at_end = true;
        self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
    }
}

/// The text before an error.
struct Failure {
    text: String,
    error: Error,
}

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if self.is_at_end {
                return Poll::Ready(None);
            }
            if self.trailers.is_some() {
                return Poll::Ready(self.flush(String::new()));
            }
            let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()?;
            let added = match frame.map(Frame::into_data) {
                Some(Ok(data)) => match self.add(&data) {
                    Ok(text) if text.is_empty() => continue,
                    Ok(text) => return Poll::Ready(Some(Ok(Frame::data(text.into())))),
                    Err(failure) => Err(failure),
                },
                other => {
                    self.trailers = other.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                    let line = self.line.split();
                    let mut out = String::new();
                    match line.is_empty() {
                        true => Ok(out),
                        false => match self.write(&line, &mut out) {
                            Ok(()) => Ok(out),
                            Err(error) => Err(Failure { text: out, error }),
                        },
                    }
                }
            };
            return Poll::Ready(match added {
                Ok(text) if self.trailers.is_none() && text.is_empty() => {
                    self.is_at_end = true;
                    None
                }
                Ok(text) => self.flush(text),
                Err(failure) => self.fail(failure),
            });
        }
    }
}
