//! A body whose lines of JSON are converted.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame};
use ipfrs_core::{Error, Result};
use ipfrs_middleware::RequestMemory;
use memchr::memchr;
use serde_json::Value;

use super::Conversion;
use crate::body::{X_STREAM_ERROR, header_text};
use crate::rpc::args::Args;
use crate::rpc::output::{RENDERED_INLINE_BYTES, on_blocking_thread};

/// Maximum length of a line, in bytes. Lists that are longer can be streamed.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Memory for a line, its parsed value and its text, by the length of the line.
const MEMORY_FACTOR: usize = 12;

pub(super) struct Lines {
    inner: Body,
    conversion: Conversion,
    args: Args,
    /// Bytes of the line that is not complete.
    line: BytesMut,
    /// Bytes of the body after that line.
    rest: Bytes,
    /// Conversion of a long line.
    converting: Option<BoxFuture<'static, Result<Converted>>>,
    /// `None` while a blocking thread converts a long line and holds it. That thread completes even if the client
    /// disconnects.
    memory: Option<RequestMemory>,
    /// Trailers that follow the last text.
    trailers: Option<HeaderMap>,
    /// Whether nothing more is read from `inner`.
    inner_has_ended: bool,
    is_complete: bool,
}

/// A long line that was converted on a blocking thread.
struct Converted {
    text: String,
    written: Result<()>,
    memory: Option<RequestMemory>,
}

impl Lines {
    pub(super) fn body(inner: Body, conversion: Conversion, args: Args, memory: RequestMemory) -> Body {
        Body::new(Self {
            inner,
            conversion,
            args,
            line: BytesMut::new(),
            rest: Bytes::new(),
            converting: None,
            memory: Some(memory),
            trailers: None,
            inner_has_ended: false,
            is_complete: false,
        })
    }

    /// Returns the text of the complete lines in `rest`. Stops at a long line, whose conversion begins.
    fn convert_rest(&mut self) -> Result<String, Failure> {
        let mut text = String::new();
        // The line need not be complete, and may be too long.
        if let Some(why) = self.conversion.fails() {
            return Err(Failure { text, error: Error::invalid(why) });
        }
        while self.converting.is_none()
            && let Some(end) = memchr(b'\n', &self.rest)
        {
            let head = self.rest.split_to(end + 1);
            let converted = self.complete(head).and_then(|line| self.convert(line, &mut text));
            if let Err(error) = converted {
                return Err(Failure { text, error });
            }
        }
        if self.converting.is_some() {
            return Ok(text);
        }
        let rest = std::mem::take(&mut self.rest);
        match self.keep(&rest) {
            Ok(()) => Ok(text),
            Err(error) => Err(Failure { text, error }),
        }
    }

    /// Returns the line that ends with `head`.
    fn complete(&mut self, head: Bytes) -> Result<Bytes> {
        if self.line.is_empty() {
            return self.reserve(head.len()).map(|()| head);
        }
        self.keep(&head)?;
        Ok(self.line.split().freeze())
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
        match &mut self.memory {
            // Shorter lines need no reservation.
            Some(memory) if length > RENDERED_INLINE_BYTES => memory.grow_to(length * MEMORY_FACTOR),
            _ => Ok(()),
        }
    }

    /// Adds the text of a line. That of a long one follows, because its conversion would take the time of other
    /// requests on this thread.
    fn convert(&mut self, line: Bytes, text: &mut String) -> Result<()> {
        if line.len() <= RENDERED_INLINE_BYTES {
            return write(self.conversion, &self.args, &line, text);
        }
        let (conversion, args, memory) = (self.conversion, self.args.clone(), self.memory.take());
        let converting = on_blocking_thread(move || {
            let mut text = String::new();
            let written = write(conversion, &args, &line, &mut text);
            Converted { text, written, memory }
        });
        self.converting = Some(converting.boxed());
        Ok(())
    }

    /// Begins to convert the last line, which need not end with a line feed.
    fn convert_last(&mut self) -> Result<String, Failure> {
        let (line, mut text) = (self.line.split().freeze(), String::new());
        if line.is_empty() {
            return Ok(text);
        }
        match self.convert(line, &mut text) {
            Ok(()) => Ok(text),
            Err(error) => Err(Failure { text, error }),
        }
    }

    /// Ends the body with an error, after the text before it.
    fn fail(&mut self, Failure { text, error }: Failure) -> Option<Result<Frame<Bytes>, axum::Error>> {
        (self.inner, self.rest, self.inner_has_ended) = (Body::empty(), Bytes::new(), true);
        if !self.args.takes_trailers {
            self.is_complete = true;
            return Some(Err(axum::Error::new(error)));
        }
        self.trailers = Some(HeaderMap::from_iter([(X_STREAM_ERROR, header_text(error.message()))]));
        if text.is_empty() { self.end() } else { Some(Ok(Frame::data(text.into()))) }
    }

    /// Ends the body, with the trailers.
    fn end(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        self.is_complete = true;
        self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers)))
    }
}

/// Writes the text of a line.
fn write(conversion: Conversion, args: &Args, line: &[u8], text: &mut String) -> Result<()> {
    let not_json = |e| Error::internal("a line of the response is not JSON").with_source(e);
    let value: Value = serde_json::from_slice(line).map_err(not_json)?;
    // The trailer has the error at the end of a stream.
    if value.get("Type").is_some_and(|kind| kind == "error") && value.get("Message").is_some() {
        return Ok(());
    }
    conversion.write(&value, args, text).map_err(Error::invalid)
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
        let this = &mut *self;
        loop {
            if this.is_complete {
                return Poll::Ready(None);
            }
            let converted = if let Some(converting) = &mut this.converting {
                let converted = ready!(converting.poll_unpin(cx));
                this.converting = None;
                match converted {
                    Ok(Converted { text, written, memory }) => {
                        this.memory = memory;
                        match written {
                            Ok(()) => Ok(text),
                            Err(error) => Err(Failure { text, error }),
                        }
                    }
                    Err(error) => Err(Failure { text: String::new(), error }),
                }
            } else if !this.rest.is_empty() {
                this.convert_rest()
            } else if this.inner_has_ended {
                return Poll::Ready(this.end());
            } else {
                match ready!(Pin::new(&mut this.inner).poll_frame(cx)).transpose()?.map(Frame::into_data) {
                    Some(Ok(data)) => {
                        this.rest = data;
                        continue;
                    }
                    last => {
                        this.inner_has_ended = true;
                        this.trailers = last.and_then(Result::err).and_then(|frame| frame.into_trailers().ok());
                        this.convert_last()
                    }
                }
            };
            match converted {
                Ok(text) if text.is_empty() => {}
                Ok(text) => return Poll::Ready(Some(Ok(Frame::data(text.into())))),
                Err(failure) => return Poll::Ready(this.fail(failure)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::thread;

    use http_body_util::BodyExt;

    use super::*;
    use crate::rpc::multipart::tests::pool;
    use crate::rpc::text::Done;

    /// Writes the thread that converts, and the length of a text.
    fn thread_and_length(value: &Value, _: &Args, out: &mut String) -> Done {
        let length = value.as_str().map_or(0, str::len);
        writeln!(out, "{:?} {length}", thread::current().id()).map_err(|e| e.to_string())
    }

    #[tokio::test]
    async fn long_lines_are_converted_on_blocking_threads() {
        let (_repo, pool) = pool().await;
        let lengths = [1, RENDERED_INLINE_BYTES, 2, RENDERED_INLINE_BYTES + 1, RENDERED_INLINE_BYTES + 2];
        let lines = lengths.map(|length| format!("\"{}\"", "a".repeat(length))).join("\n");
        // All in one piece, and in pieces that end amid lines. The last line has no line feed.
        let whole = Body::from(lines.clone());
        let pieces: Vec<_> = lines.into_bytes().chunks(50_000).map(Bytes::copy_from_slice).collect();
        let pieces = Body::from_stream(futures::stream::iter(pieces.into_iter().map(Ok::<_, Error>)));
        for inner in [whole, pieces] {
            let conversion = Conversion::Text(thread_and_length);
            let body = Lines::body(inner, conversion, Args::default(), pool.reservation());
            let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            let own = format!("{:?}", thread::current().id());
            let converted: Vec<_> = text.lines().map(|line| line.rsplit_once(' ').unwrap()).collect();
            let expected = lengths.map(|length| (length < RENDERED_INLINE_BYTES, length.to_string()));
            let found: Vec<_> = converted.iter().map(|(id, length)| (*id == own, (*length).to_owned())).collect();
            assert_eq!(found, expected);
        }
    }
}
