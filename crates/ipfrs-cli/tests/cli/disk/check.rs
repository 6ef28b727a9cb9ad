//! Compares the content of a daemon with the content that it must hold.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reqwest::{Client, Response, StatusCode};

use super::load::{Expected, Key, Value, continued, ingested};

/// Returns how the daemon at `url` with this repo differs from what is expected.
pub(crate) async fn differences(url: &str, repo: &Path, expected: &Expected) -> Vec<String> {
    let reader = Reader { url, repo, client: Client::builder().no_proxy().build().unwrap() };
    let mut found = Vec::new();
    let mut actual = BTreeMap::new();
    let open = expected.open.values().flatten().map(|(key, _)| key);
    for key in expected.there.keys().chain(open) {
        if actual.contains_key(key) {
            continue;
        }
        match reader.read(key).await {
            Ok(value) => drop(actual.insert(key.clone(), value)),
            Err(error) => found.push(format!("{key:?}: {error}")),
        }
    }
    for (key, value) in &expected.there {
        let Some(actual) = actual.get(key) else { continue };
        let open = expected.open.values().flatten().filter(|(other, _)| other == key).map(|(_, value)| value);
        if !is_between(key, actual, value, open) {
            found.push(format!("{key:?} is {}, but must be {}", shown(actual), shown(value)));
        }
    }
    for request in expected.open.values().filter(|request| request.len() > 1) {
        let is_new = |(key, value): &&(Key, Value)| actual.get(key) == Some(value);
        let was_read = |(key, _): &&(Key, Value)| actual.contains_key(key);
        let (new, old): (Vec<_>, Vec<_>) = request.iter().filter(was_read).partition(is_new);
        if !new.is_empty() && !old.is_empty() {
            let keys =
                |changes: Vec<&(Key, Value)>| changes.iter().map(|(key, _)| format!("{key:?}")).collect::<Vec<_>>();
            found.push(format!("a part of a request was done: {:?}, but not {:?}", keys(new), keys(old)));
        }
    }
    found.extend(reader.damaged().await);
    found
}

/// Whether a value is the acknowledged one or that of a request that was not. Counts may be between these.
fn is_between<'a>(key: &Key, actual: &Value, value: &Value, mut open: impl Iterator<Item = &'a Value>) -> bool {
    if let Key::Upload(_) | Key::Ingested(_) | Key::Object(_) = key {
        let count = |value: &Value| -> Option<u64> { std::str::from_utf8(value.as_deref()?).ok()?.parse().ok() };
        return count(actual) >= count(value);
    }
    actual == value || open.any(|value| value == actual)
}

fn shown(value: &Value) -> String {
    match value {
        None => "absent".to_owned(),
        Some(bytes) if bytes.len() < 80 => format!("{:?}", String::from_utf8_lossy(bytes)),
        Some(bytes) => format!("{} bytes", bytes.len()),
    }
}

struct Reader<'a> {
    url: &'a str,
    repo: &'a Path,
    client: Client,
}

impl Reader<'_> {
    async fn post(&self, command: &str) -> Response {
        self.client.post(format!("{}/api/v0/{command}", self.url)).send().await.unwrap()
    }

    /// Reads what is stored. The error is a response that says neither this nor that there is nothing.
    async fn read(&self, key: &Key) -> Result<Value, String> {
        match key {
            Key::Block(cid) => value(self.post(&format!("block/get?arg={cid}&offline=true")).await, "not found").await,
            Key::Content(cid) => {
                let response = self.client.get(format!("{}/ipfs/{cid}", self.url)).send().await.unwrap();
                value(response, "not found").await
            }
            Key::Pin(cid) => {
                let response = self.post(&format!("pin/ls?arg={cid}")).await;
                Ok(value(response, "not pinned").await?.map(|_| Vec::new()))
            }
            Key::File(path) => value(self.post(&format!("files/read?arg={path}")).await, "does not exist").await,
            Key::Signer(name) => {
                let keys: serde_json::Value = self.post("key/list").await.json().await.unwrap();
                let is_there = keys["Keys"].as_array().unwrap().iter().any(|key| key["Name"] == name.as_str());
                Ok(is_there.then(Vec::new))
            }
            Key::Name(key) => {
                let keys: serde_json::Value = self.post("key/list").await.json().await.unwrap();
                let keys = keys["Keys"].as_array().unwrap();
                let Some(key) = keys.iter().find(|known| known["Name"] == key.as_str()) else { return Ok(None) };
                let id = key["Id"].as_str().unwrap();
                let response = self.post(&format!("name/resolve?arg={id}&offline=true")).await;
                let text = value(response, "could not resolve name").await?;
                let path = |text: Vec<u8>| {
                    let resolved: serde_json::Value = serde_json::from_slice(&text).unwrap();
                    resolved["Path"].as_str().unwrap().as_bytes().to_vec()
                };
                Ok(text.map(path))
            }
            Key::Upload(path) => {
                let request = self.client.head(format!("{}{path}", self.url)).header("tus-resumable", "1.0.0");
                let response = request.send().await.unwrap();
                match response.status() {
                    StatusCode::OK => Ok(Some(response.headers()["upload-offset"].as_bytes().to_vec())),
                    StatusCode::NOT_FOUND => Ok(None),
                    other => Err(other.to_string()),
                }
            }
            Key::Ingested(name) => {
                let bytes = fs::read(self.repo.join("ingest").join(name)).map_err(|error| error.to_string())?;
                Ok(Some(count_of_right(&bytes)))
            }
            Key::Object(name) => {
                // Its last bytes may be in its journal alone, from which they are read when it is continued.
                continued(self.url, name).await.map_err(|error| format!("it cannot be continued: {error}"))?;
                let bytes = value(self.post(&format!("files/read?arg=/ingest/{name}")).await, "does not exist").await?;
                Ok(bytes.map(|bytes| count_of_right(&bytes)))
            }
        }
    }

    /// Verifies all blocks.
    async fn damaged(&self) -> Option<String> {
        let response = self.post("repo/verify").await;
        let (status, text) = (response.status(), response.text().await.unwrap());
        (!status.is_success() || ["corrupt", "unreadable"].iter().any(|what| text.contains(what)))
            .then(|| format!("repo/verify: {status}: {text}"))
    }
}

/// Returns the number of right bytes of an ingested object, in decimal. Those after the acknowledged ones may be
/// anything.
fn count_of_right(bytes: &[u8]) -> Vec<u8> {
    let right = bytes.iter().enumerate().take_while(|(position, byte)| **byte == ingested(*position));
    right.count().to_string().into_bytes()
}

/// Returns the body of a response, or `None` if it is an error with `absent` in its text.
async fn value(response: Response, absent: &str) -> Result<Value, String> {
    let status = response.status();
    let body = response.bytes().await.map_err(|error| error.to_string())?;
    if status.is_success() {
        return Ok(Some(body.to_vec()));
    }
    let text = String::from_utf8_lossy(&body);
    if text.contains(absent) { Ok(None) } else { Err(format!("{status}: {text}")) }
}
