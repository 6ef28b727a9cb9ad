//! A client of `/api/v0`, for both programs.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ipfrs_benches::{Client, post};
use serde::de::DeserializeOwned;
use serde_json::Value;

const FORM: &str = "multipart/form-data; boundary=ipfrs-benches-kubo-5d01";
const PART: &str = "--ipfrs-benches-kubo-5d01\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
                    Content-Type: application/octet-stream\r\n\r\n";
const END: &str = "\r\n--ipfrs-benches-kubo-5d01--\r\n";

/// Idle time after which a connection is replaced. Our daemon closes it after 30 s.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// A persistent connection, which is replaced when the server closes it or may soon do so.
pub(crate) struct Rpc {
    address: SocketAddr,
    client: Client,
    /// Time of the latest request.
    used: Instant,
}

/// A response that was read while it arrived.
pub(crate) struct Streamed {
    pub(crate) body: Vec<u8>,
    /// Time until the first byte of the body.
    pub(crate) first: Duration,
    /// Time until the end.
    pub(crate) total: Duration,
}

impl Rpc {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self { address, client: Client::connect(address)?, used: Instant::now() })
    }

    /// Calls a command, such as `pin/ls?arg=CID`, with a file or without one. Returns the body of the response, or the
    /// message of the error with which the command failed.
    pub(crate) fn attempt(&mut self, command: &str, file: Option<&[u8]>) -> Result<Result<Vec<u8>, String>> {
        self.send(command, file)?;
        let (status, body) = self.client.read_any().with_context(|| short(command).to_owned())?;
        Ok(if status == 200 { Ok(body) } else { Err(message(&body)) })
    }

    /// Calls a command that must succeed.
    pub(crate) fn call(&mut self, command: &str, file: Option<&[u8]>) -> Result<Vec<u8>> {
        self.attempt(command, file)?.map_err(|message| anyhow!("{}: {message}", short(command)))
    }

    /// Calls a command, and parses its response.
    pub(crate) fn json<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        let body = self.call(command, None)?;
        serde_json::from_slice(&body).with_context(|| format!("{}: {}", short(command), String::from_utf8_lossy(&body)))
    }

    /// Calls a command, and parses each value of its response.
    pub(crate) fn lines<T: DeserializeOwned>(&mut self, command: &str) -> Result<Vec<T>> {
        values(&self.call(command, None)?).with_context(|| short(command).to_owned())
    }

    /// Calls a command, and measures how its response arrives.
    pub(crate) fn stream(&mut self, command: &str) -> Result<Streamed> {
        let (mut body, mut first) = (Vec::new(), None);
        let start = Instant::now();
        self.send(command, None)?;
        self.client
            .stream(200, &mut |piece| {
                first.get_or_insert_with(|| start.elapsed());
                body.extend_from_slice(piece);
                Ok(())
            })
            .with_context(|| short(command).to_owned())?;
        let total = start.elapsed();
        Ok(Streamed { body, first: first.unwrap_or(total), total })
    }

    fn send(&mut self, command: &str, file: Option<&[u8]>) -> Result<()> {
        if self.client.is_closing() || self.used.elapsed() > MAX_IDLE {
            self.client = Client::connect(self.address)?;
        }
        self.used = Instant::now();
        let target = format!("/api/v0/{command}");
        match file {
            None => self.client.send(&post(&target, "text/plain", "", 0)),
            Some(file) => {
                let length = PART.len() + file.len() + END.len();
                let head = post(&target, FORM, "", length as u64);
                self.client.send(&[head.as_slice(), PART.as_bytes(), file, END.as_bytes()].concat())
            }
        }
    }
}

/// Parses the JSON values that follow each other in a response.
pub(crate) fn values<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>> {
    let values = serde_json::Deserializer::from_slice(body).into_iter::<T>();
    values.collect::<Result<Vec<T>, _>>().context("the response has unexpected JSON")
}

/// Returns the message of an error, or the whole response if it has none.
fn message(body: &[u8]) -> String {
    let message =
        serde_json::from_slice(body).ok().and_then(|value: Value| Some(value["Message"].as_str()?.to_owned()));
    message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}

/// Returns the beginning of a command, for messages.
fn short(command: &str) -> &str {
    command.char_indices().nth(200).map_or(command, |(end, _)| &command[..end])
}
