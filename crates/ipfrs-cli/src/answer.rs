//! Response bodies, as bytes or as JSON lines, with a check that they are complete.

use anyhow::{Result, anyhow, bail};
use axum::body::Body;
use axum::http::{HeaderMap, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum size of a JSON line, or of a response that is read as a whole, in bytes.
const MAX_WHOLE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of bytes of an error message that are shown.
const MAX_ERROR_BYTES: usize = 16 * 1024;

/// A content ID in the form in which dag-json writes links: `{"/":cid}`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CidLink {
    #[serde(rename = "/")]
    pub(crate) cid: String,
}

/// Body of a successful response. Reading it to the end verifies that it is complete.
#[derive(Debug)]
pub(crate) struct Answer {
    body: Body,
    expected_bytes: Option<u64>,
    seen_bytes: u64,
    buffer: BytesMut,
}

impl Answer {
    pub(crate) fn new(response: Response<Body>) -> Self {
        let length = |name| header(response.headers(), name).and_then(|value| value.parse().ok());
        let expected_bytes = length("x-content-length").or_else(|| length("content-length"));
        Self { body: response.into_body(), expected_bytes, seen_bytes: 0, buffer: BytesMut::new() }
    }

    /// Returns the length of the body in bytes, if the server sent it.
    pub(crate) fn expected_bytes(&self) -> Option<u64> {
        self.expected_bytes
    }

    /// Returns the next bytes, or `None` at the end of a complete body.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let frame =
                frame.map_err(|e| anyhow!("the response ended early after {} bytes: {}", self.seen_bytes, root(&e)))?;
            match frame.into_data() {
                Ok(data) => {
                    self.seen_bytes += data.len() as u64;
                    return Ok(Some(data));
                }
                Err(frame) => {
                    if let Some(error) = frame.trailers_ref().and_then(|trailers| header(trailers, "x-stream-error")) {
                        bail!("{error}");
                    }
                }
            }
        }
        match self.expected_bytes {
            Some(expected) if expected != self.seen_bytes => {
                bail!("the response is incomplete: received {} of {expected} bytes", self.seen_bytes)
            }
            _ => Ok(None),
        }
    }

    /// Returns the next JSON value of a body with one value per line.
    pub(crate) async fn next_object<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut searched = 0;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(searched + at + 1);
                searched = 0;
                if !line.trim_ascii().is_empty() {
                    return object(&line).map(Some);
                }
                continue;
            }
            searched = self.buffer.len();
            if searched > MAX_WHOLE_BYTES {
                bail!("the server sent a line of more than {MAX_WHOLE_BYTES} bytes");
            }
            match self.next().await? {
                Some(bytes) => self.buffer.extend_from_slice(&bytes),
                None => {
                    let line = self.buffer.split();
                    return if line.trim_ascii().is_empty() { Ok(None) } else { object(&line).map(Some) };
                }
            }
        }
    }

    /// Returns the entire body of a short response.
    pub(crate) async fn bytes(mut self) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.next().await? {
            whole.extend_from_slice(&bytes);
            if whole.len() > MAX_WHOLE_BYTES {
                bail!("the server sent more than {MAX_WHOLE_BYTES} bytes");
            }
        }
        Ok(whole)
    }

    /// Returns the only JSON value of a short response.
    pub(crate) async fn whole<T: DeserializeOwned>(self) -> Result<T> {
        parse(&self.bytes().await?)
    }
}

/// A failure: the only object of a response, or the last one if the server failed midway.
#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "Message", alias = "detail")]
    message: String,
}

/// Parses one of many objects.
fn object<T: DeserializeOwned>(line: &[u8]) -> Result<T> {
    // Only failures begin with this key.
    if line.starts_with(b"{\"Message\":") {
        bail!("{}", parse::<Failure>(line)?.message);
    }
    parse(line)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|e| anyhow!("the server's response cannot be read ({e}): is it an ipfrs gateway?"))
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).filter(|value| !value.is_empty())
}

fn root(error: &axum::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

/// Returns the message of a response that reports a failure: `{"Message": ...}` from the RPC API, `{"detail": ...}`
/// from the native API, or otherwise the text of the body.
pub(crate) async fn message_of(response: Response<Body>) -> String {
    let status = response.status();
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data.as_ref()));
        if text.len() > MAX_ERROR_BYTES {
            break;
        }
    }
    if let Ok(failure) = serde_json::from_slice::<Failure>(&text) {
        return failure.message;
    }
    match String::from_utf8_lossy(&text).trim() {
        "" => format!("the server responded with {status}"),
        text => format!("the server responded with {status}: {text}"),
    }
}
