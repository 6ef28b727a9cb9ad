//! Responses: their bytes and lines, and a check that they are complete.

use std::sync::{Arc, Weak};

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, BoxStream, StreamExt};
use http_body_util::BodyExt;
use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use reqwest::header::{CONTENT_LENGTH, HeaderMap};
use reqwest::{Body, Response, StatusCode};
use serde::de::DeserializeOwned;
use tokio::sync::Mutex as AsyncMutex;

use super::failure;
use super::patience::{Patience, Sending};

/// Maximum size of a line or a document, in bytes.
const MAX_WHOLE_BYTES: usize = 64 * 1024 * 1024;

/// Maximum size of a listing, which is kept in memory, in bytes.
const MAX_LISTING_BYTES: u64 = 1 << 30;

/// Maximum number of bytes that are read of an error message.
const MAX_FAILURE_BYTES: usize = 64 * 1024;

/// A response whose headers have arrived. Reading it to its end verifies that it is complete.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Body,
    /// Size of the body in bytes, if the daemon sent it.
    expected: Option<u64>,
    seen: u64,
    /// The beginning of an incomplete line.
    line: BytesMut,
    url: Arc<str>,
    patience: Patience,
    /// State of the request body, which may still be in transit.
    sending: Option<Sending>,
    streams: Arc<Streams>,
}

/// A response that is read incrementally. `None` once its client is closed.
type Slot = AsyncMutex<Option<Answer>>;

/// Responses of a client that are read incrementally. Consumers may have stopped reading them. The unread rest would
/// keep connections open, and would delay the shutdown of a daemon.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<Vec<Weak<Slot>>>);

impl Streams {
    fn keep(&self, answer: Answer) -> Arc<Slot> {
        let slot = Arc::new(AsyncMutex::new(Some(answer)));
        let mut slots = self.0.lock();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        slot
    }

    /// Drops all responses that no task is currently reading.
    pub(super) fn end(&self) {
        let slots = std::mem::take(&mut *self.0.lock());
        for slot in slots.iter().filter_map(Weak::upgrade) {
            if let Ok(mut answer) = slot.try_lock() {
                *answer = None;
            }
        }
    }
}

impl Answer {
    pub(super) fn new(
        response: Response,
        url: Arc<str>,
        patience: Patience,
        sending: Option<Sending>,
        streams: Arc<Streams>,
    ) -> Self {
        let (head, body) = http::Response::<Body>::from(response).into_parts();
        let length = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
        let expected = length("x-content-length").or_else(|| length(CONTENT_LENGTH.as_str()));
        let (status, headers) = (head.status, head.headers);
        Self { status, headers, body, expected, seen: 0, line: BytesMut::new(), url, patience, sending, streams }
    }

    /// Returns the size of the body in bytes, if the daemon sent it.
    pub(super) fn expected(&self) -> Option<u64> {
        self.expected
    }

    /// Returns a header as text, or an empty string if it is missing.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the next bytes, or `None` at the end of a complete response.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.patience.wait(&self.url, self.sending.as_ref(), self.body.frame()).await? {
            let frame = frame.map_err(|e| failure::broken_off(&self.url, self.seen, &e))?;
            match frame.into_data() {
                Ok(data) => {
                    self.seen += data.len() as u64;
                    return Ok(Some(data));
                }
                Err(frame) => {
                    if let Some(error) = frame.trailers_ref().and_then(failure::of_trailer) {
                        return Err(error);
                    }
                }
            }
        }
        match self.expected {
            Some(expected) if expected != self.seen => {
                Err(failure::incomplete(&self.url, self.seen, &format!("expected {expected}")))
            }
            _ => Ok(None),
        }
    }

    /// Converts the response into a stream of its bytes.
    pub(super) fn pieces(self) -> BoxStream<'static, Result<Bytes>> {
        let streams = self.streams.clone();
        let next = async |slot: Arc<Slot>| {
            let piece = match slot.lock().await.as_mut() {
                Some(answer) => answer.next().await?,
                None => return Err(Error::new(ErrorKind::Conflict, "the client was closed: create another one")),
            };
            Ok(piece.map(|piece| (piece, slot)))
        };
        stream::try_unfold(streams.keep(self), next).boxed()
    }

    /// Reads the entire body, of at most `limit` bytes, into its own memory.
    pub(super) async fn whole(mut self, limit: usize) -> Result<Vec<u8>> {
        let too_long = |url: &str| {
            Error::corrupt(format!("{url} sent more than {limit} bytes, the limit for this response: is it a daemon?"))
        };
        let expected = self.expected.map_or(Ok(0), usize::try_from).unwrap_or(usize::MAX);
        if expected > limit {
            return Err(too_long(&self.url));
        }
        let mut whole = Vec::with_capacity(expected);
        while let Some(piece) = self.next().await? {
            if whole.len() + piece.len() > limit {
                return Err(too_long(&self.url));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(whole)
    }

    /// Reads the entire body as one JSON value.
    pub(super) async fn document<T: DeserializeOwned>(self) -> Result<T> {
        let url = self.url.clone();
        read(&url, &self.whole(MAX_WHOLE_BYTES).await?)
    }

    /// Returns the JSON value of the next line. If the line reports a failure, returns that error.
    pub(super) async fn line<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.line[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.line.split_to(searched + at);
                self.line.advance(1);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    return self.value(&line).map(Some);
                }
                continue;
            }
            searched = self.line.len();
            if searched > MAX_WHOLE_BYTES {
                return Err(Error::corrupt(format!("{} sent a line of over {MAX_WHOLE_BYTES} bytes", self.url)));
            }
            match self.next().await? {
                Some(piece) => self.line.extend_from_slice(&piece),
                None => {
                    let line = self.line.split();
                    return if line.trim_ascii().is_empty() { Ok(None) } else { self.value(&line).map(Some) };
                }
            }
        }
    }

    /// Returns the next line of a listing. The size of the listing is limited, because callers keep all of its lines.
    pub(super) async fn entry<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let entry = self.line().await?;
        if self.expected.unwrap_or(0).max(self.seen) > MAX_LISTING_BYTES {
            let message = format!("{} sends a listing of more than {MAX_LISTING_BYTES} bytes", self.url);
            return Err(Error::too_large(format!("{message}, the maximum: request less, or use another daemon")));
        }
        Ok(entry)
    }

    /// Returns the JSON value of the last line, if there is one. Reads the other lines too, in case one reports a
    /// failure.
    pub(super) async fn last_line<T: DeserializeOwned>(mut self) -> Result<Option<T>> {
        let mut last = None;
        while let Some(line) = self.line().await? {
            last = Some(line);
        }
        Ok(last)
    }

    fn value<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T> {
        match failure::of_line(line) {
            Some(error) => Err(error),
            None => read(&self.url, line),
        }
    }

    /// Reads the failure that the response reports.
    pub(super) async fn failure(mut self) -> Error {
        let mut body = Vec::new();
        while let Ok(Some(piece)) = self.next().await {
            body.extend_from_slice(&piece);
            if body.len() > MAX_FAILURE_BYTES {
                break;
            }
        }
        failure::of_answer(&self.url, self.status, &self.headers, &body)
    }
}

fn read<T: DeserializeOwned>(url: &str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|e| {
        Error::corrupt(format!("the response from {url} cannot be read ({e}): is it an ipfrs gateway?")).with_source(e)
    })
}
