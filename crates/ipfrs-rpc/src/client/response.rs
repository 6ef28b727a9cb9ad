//! Responses: their bytes and lines, and a check that they are complete.

use std::sync::{Arc, Weak};

use bytes::{Buf, Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderMap};
use http_body_util::BodyExt;
use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex as AsyncMutex;

use super::idle_timeout::IdleTimeout;
use super::upload::Upload;
use super::{Pieces, ResponseBody, failure};

/// Maximum size of a line or a document, in bytes.
const MAX_DOCUMENT_BYTES: usize = 64 * 1024 * 1024;

/// Maximum size of a listing, which is kept in memory, in bytes.
const MAX_LISTING_BYTES: u64 = 1 << 30;

/// Maximum number of bytes that are read of an error message.
const MAX_FAILURE_BYTES: usize = 64 * 1024;

/// A response whose headers have arrived. Reading it to its end verifies that it is complete.
#[derive(Debug)]
pub struct Response {
    status: StatusCode,
    headers: HeaderMap,
    body: ResponseBody,
    /// Size of the body in bytes, if the daemon sent it.
    content_length: Option<u64>,
    received_bytes: u64,
    /// The beginning of an incomplete line.
    line: BytesMut,
    url: Arc<str>,
    timeout: IdleTimeout,
    /// The source of the request's body, which may still be in transit.
    upload: Option<Upload>,
    open: Arc<OpenResponses>,
}

/// A response that is read incrementally. `None` once its client is closed.
type OpenResponse = AsyncMutex<Option<Response>>;

/// Responses of a client that are read incrementally. Consumers may have stopped reading them.
#[derive(Debug, Default)]
pub(super) struct OpenResponses(Mutex<Vec<Weak<OpenResponse>>>);

impl OpenResponses {
    fn insert(&self, response: Response) -> Arc<OpenResponse> {
        let response = Arc::new(AsyncMutex::new(Some(response)));
        let mut open = self.0.lock();
        open.retain(|response| response.strong_count() > 0);
        open.push(Arc::downgrade(&response));
        response
    }

    /// Drops all responses that no task is currently reading.
    pub(super) fn close(&self) {
        let open = std::mem::take(&mut *self.0.lock());
        for response in open.iter().filter_map(Weak::upgrade) {
            if let Ok(mut response) = response.try_lock() {
                *response = None;
            }
        }
    }
}

impl Response {
    pub(super) fn new(
        response: http::Response<ResponseBody>,
        url: Arc<str>,
        timeout: IdleTimeout,
        upload: Option<Upload>,
        open: Arc<OpenResponses>,
    ) -> Self {
        let (head, body) = response.into_parts();
        let length = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
        let content_length = length("x-content-length").or_else(|| length(CONTENT_LENGTH.as_str()));
        let (status, headers, line) = (head.status, head.headers, BytesMut::new());
        Self { status, headers, body, content_length, received_bytes: 0, line, url, timeout, upload, open }
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// Returns the size of the body in bytes, if the daemon sent it.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content_length
    }

    /// Returns a header as text, or an empty string if it is missing.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the next bytes, or `None` at the end of a complete response.
    ///
    /// # Errors
    /// Fails if the response reports a failure in its trailers, ends early or is idle for too long. If producing the
    /// request's body failed, returns that error.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let next = self.next_piece().await;
        next.map_err(|error| self.explain(error))
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        let upload = self.upload.as_ref().map(|upload| &upload.state);
        while let Some(frame) = self.timeout.wait(&self.url, upload, self.body.frame()).await? {
            let frame = frame.map_err(|e| failure::ended_early(&self.url, self.received_bytes, &*e))?;
            match frame.into_data() {
                Ok(data) => {
                    self.received_bytes += data.len() as u64;
                    return Ok(Some(data));
                }
                Err(frame) => {
                    if let Some(error) = frame.trailers_ref().and_then(failure::of_trailer) {
                        return Err(error);
                    }
                }
            }
        }
        match self.content_length {
            Some(expected) if expected != self.received_bytes => {
                Err(failure::incomplete(&self.url, self.received_bytes, &format!("expected {expected}")))
            }
            _ => Ok(None),
        }
    }

    /// Returns the error for a response without a length, where the API requires one.
    #[must_use]
    pub fn without_length(&self) -> Error {
        failure::incomplete(&self.url, 0, "it does not report its length")
    }

    fn explain(&self, error: Error) -> Error {
        match &self.upload {
            Some(upload) => upload.state.explain(error),
            None => error,
        }
    }

    /// Converts the response into a stream of its bytes.
    #[must_use]
    pub fn into_pieces(self) -> Pieces {
        let open = self.open.clone();
        let next = async |response: Arc<OpenResponse>| {
            let piece = match response.lock().await.as_mut() {
                Some(response) => response.next().await?,
                None => return Err(Error::new(ErrorKind::Conflict, "the client was closed: create another one")),
            };
            Ok(piece.map(|piece| (piece, response)))
        };
        stream::try_unfold(open.insert(self), next).boxed()
    }

    /// Reads the entire body, of at most `limit` bytes, into its own memory.
    ///
    /// # Errors
    /// As [`next`](Self::next), and [`ErrorKind::Corrupt`] for a longer body.
    pub async fn bytes(mut self, limit: usize) -> Result<Vec<u8>> {
        let too_long = |url: &str| {
            Error::corrupt(format!("{url} sent more than {limit} bytes, the limit for this response: is it a daemon?"))
        };
        let expected = self.content_length.map_or(Ok(0), usize::try_from).unwrap_or(usize::MAX);
        if expected > limit {
            return Err(too_long(&self.url));
        }
        let mut bytes = Vec::with_capacity(expected);
        while let Some(piece) = self.next().await? {
            if bytes.len() + piece.len() > limit {
                return Err(too_long(&self.url));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// Reads the entire body as one JSON value.
    ///
    /// # Errors
    /// As [`next`](Self::next), and [`ErrorKind::Corrupt`] if it is not a `T`.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let url = self.url.clone();
        parse(&url, &self.bytes(MAX_DOCUMENT_BYTES).await?)
    }

    /// Returns the JSON value of the next line, or `None` at the end.
    ///
    /// # Errors
    /// As [`next`](Self::next), the failure that the line reports, and [`ErrorKind::Corrupt`] if it is not a `T`.
    pub async fn line<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.line[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.line.split_to(searched + at);
                self.line.advance(1);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    return self.parse_line(&line).map(Some);
                }
                continue;
            }
            searched = self.line.len();
            if searched > MAX_DOCUMENT_BYTES {
                return Err(Error::corrupt(format!("{} sent a line of over {MAX_DOCUMENT_BYTES} bytes", self.url)));
            }
            match self.next().await? {
                Some(piece) => self.line.extend_from_slice(&piece),
                None => {
                    let line = self.line.split();
                    return if line.trim_ascii().is_empty() { Ok(None) } else { self.parse_line(&line).map(Some) };
                }
            }
        }
    }

    /// Returns the next line of a listing. The size of the listing is limited, because callers keep all of its lines.
    ///
    /// # Errors
    /// As [`line`](Self::line), and [`ErrorKind::TooLarge`] for a longer listing.
    pub async fn entry<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let entry = self.line().await?;
        if self.content_length.unwrap_or(0).max(self.received_bytes) > MAX_LISTING_BYTES {
            let message = format!("{} sends a listing of more than {MAX_LISTING_BYTES} bytes", self.url);
            return Err(Error::too_large(format!("{message}, the maximum: request less, or use another daemon")));
        }
        Ok(entry)
    }

    fn parse_line<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T> {
        match failure::of_line(line) {
            Some(error) => Err(self.explain(error)),
            None => parse(&self.url, line),
        }
    }

    /// Reads the failure that the response reports.
    pub(super) async fn failure(mut self) -> Error {
        let mut body = Vec::new();
        while let Ok(Some(piece)) = self.next_piece().await {
            body.extend_from_slice(&piece);
            if body.len() > MAX_FAILURE_BYTES {
                break;
            }
        }
        self.explain(failure::of_response(&self.url, self.status, &self.headers, &body))
    }
}

fn parse<T: DeserializeOwned>(url: &str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|e| {
        Error::corrupt(format!("the response from {url} cannot be read ({e}): is it an ipfrs gateway?")).with_source(e)
    })
}
