//! Requests on disk: `<repo>/pin-requests/{id}.json`. Each has one file, which is replaced atomically. Its last field
//! is a checksum, because damage may leave valid JSON with another content ID or owner.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipfrs_core::{Base, Cid, Error, Result, as_v1, hash, parse_cid};
use ipfrs_rpc::types::{PinState, RequestedPin};
use serde::{Deserialize, Serialize};

use super::MAX_ID_BYTES;
use crate::durable_directory::DurableDirectory;
use crate::off_workers;
use crate::private_file::{Exposed, read_private, sync_parent, write_private};

/// Name of the directory in the repo.
const DIRECTORY: &str = "pin-requests";
const EXTENSION: &str = "json";
/// Bytes before the checksum, and its length in hexadecimal digits.
const CHECK: &[u8] = b",\"check\":\"";
const CHECK_DIGITS: usize = 16;
/// Bytes after the checksum.
const END: &[u8] = b"\"}";

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: String,
    /// Name of the caller that requested the pin; `None` without authentication.
    pub(super) owner: Option<String>,
    /// Time in milliseconds since 1970. No two requests have the same.
    pub(super) created: u64,
    pub(super) status: PinState,
    pub(super) cid: Cid,
    pub(super) pin: RequestedPin,
    /// Why the request has failed.
    pub(super) details: String,
    /// Whether the request made the pin, and no other command has pinned the content since: then the pin is removed
    /// with the request.
    pub(super) made_pin: bool,
    /// Name of the direct pin that the pin of this request has replaced.
    pub(super) direct: Option<String>,
    /// Pins of the requests that this one replaces, until this one has ended.
    pub(super) replaces: Vec<MadePin>,
}

/// A pin that a request made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MadePin {
    pub(super) cid: Cid,
    /// Name of the direct pin that was there before, and is there again after the request.
    pub(super) direct: Option<String>,
}

impl Record {
    /// Returns the pins that this request made, and those that it replaces.
    pub(super) fn left_behind(&self) -> impl Iterator<Item = MadePin> {
        let own = self.made_pin.then(|| MadePin { cid: self.cid, direct: self.direct.clone() });
        own.into_iter().chain(self.replaces.iter().cloned())
    }

    /// Takes over the pin of the same content that a replaced request made.
    pub(super) fn inherit(&mut self) {
        let content = as_v1(&self.cid);
        for made in self.replaces.extract_if(.., |replaced| as_v1(&replaced.cid) == content) {
            self.made_pin = true;
            self.direct = self.direct.take().or(made.direct);
        }
    }

    /// Returns the CIDv1s of the content that this request is for, and of what it replaces.
    pub(super) fn content(&self) -> impl Iterator<Item = Cid> {
        [&self.cid].into_iter().chain(self.replaces.iter().map(|pin| &pin.cid)).map(as_v1)
    }
}

#[derive(Serialize, Deserialize)]
struct Saved {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    created: u64,
    status: PinState,
    pin: RequestedPin,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    details: String,
    #[serde(default)]
    made_pin: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    direct: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replaces: Vec<SavedPin>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SavedPin {
    Cid(String),
    Direct { cid: String, direct: String },
}

impl SavedPin {
    fn of(pin: &MadePin) -> Self {
        let cid = pin.cid.to_string();
        match &pin.direct {
            None => Self::Cid(cid),
            Some(direct) => Self::Direct { cid, direct: direct.clone() },
        }
    }

    fn parse(self) -> Result<MadePin> {
        let (cid, direct) = match self {
            Self::Cid(cid) => (cid, None),
            Self::Direct { cid, direct } => (cid, Some(direct)),
        };
        Ok(MadePin { cid: parse_cid(&cid)?, direct })
    }
}

/// The directory of requests.
#[derive(Debug, Clone)]
pub(super) struct Directory(Arc<DurableDirectory>);

impl Directory {
    pub(super) fn new(repo: &Path) -> Self {
        Self(Arc::new(DurableDirectory::new(repo.join(DIRECTORY), 0o700)))
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.path().join(id).with_extension(EXTENSION)
    }

    /// Reads all requests. Also returns the files that are no requests. Blocks on the disk.
    pub(super) fn read(&self) -> Result<(Vec<Record>, Vec<PathBuf>)> {
        let directory = self.0.path();
        let cannot = |e| Error::io(format_args!("cannot list the requests in {}", directory.display()), e);
        let entries = match fs::read_dir(directory) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
            Err(e) => return Err(cannot(e)),
        };
        let (mut records, mut damaged) = (Vec::new(), Vec::new());
        for entry in entries {
            let path = entry.map_err(cannot)?.path();
            let id = path.file_stem().and_then(|id| id.to_str()).filter(|id| id.len() <= MAX_ID_BYTES);
            let Some(id) = id.filter(|_| path.extension().is_some_and(|extension| extension == EXTENSION)) else {
                continue;
            };
            match read_private(&path, Exposed::Warn)?.map(|bytes| parse(id, &bytes)) {
                Some(Ok(record)) => records.push(record),
                Some(Err(error)) => {
                    tracing::warn!(file = %path.display(), %error, "a file is no pin request, and is ignored");
                    damaged.push(path);
                }
                None => {}
            }
        }
        Ok((records, damaged))
    }

    /// Writes a request durably.
    pub(super) async fn write(&self, record: &Record) -> Result<()> {
        let saved = Saved {
            owner: record.owner.clone(),
            created: record.created,
            status: record.status,
            pin: record.pin.clone(),
            details: record.details.clone(),
            made_pin: record.made_pin,
            direct: record.direct.clone(),
            replaces: record.replaces.iter().map(SavedPin::of).collect(),
        };
        let bytes = serde_json::to_vec(&saved)
            .map(with_checksum)
            .map_err(|e| Error::internal("a pin request cannot be written as JSON").with_source(e))?;
        let (directory, path) = (Arc::clone(&self.0), self.path(&record.id));
        off_workers(move || {
            directory
                .ensure()
                .and_then(|()| write_private(&path, &bytes))
                .map_err(|e| Error::io(format_args!("cannot write {}", path.display()), e))
        })
        .await
    }

    /// Removes the file of a request durably, if there is one.
    pub(super) async fn remove(&self, id: &str) -> Result<()> {
        let path = self.path(id);
        off_workers(move || {
            let removed = match fs::remove_file(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed.and_then(|()| sync_parent(&path)),
            };
            removed.map_err(|e| Error::io(format_args!("cannot remove {}", path.display()), e))
        })
        .await
    }
}

fn checksum(json: &[u8]) -> String {
    let mut digits = Base::Base16Lower.encode(hash::sha2_256(json).digest());
    digits.truncate(CHECK_DIGITS);
    digits
}

/// Adds the checksum of a JSON object as its last field.
fn with_checksum(mut json: Vec<u8>) -> Vec<u8> {
    let check = checksum(&json);
    json.pop();
    [&json, CHECK, check.as_bytes(), END].concat()
}

/// Whether the bytes are those that were written. Earlier versions wrote no checksum.
fn is_unchanged(bytes: &[u8]) -> bool {
    let start = bytes.len().saturating_sub(CHECK.len() + CHECK_DIGITS + END.len());
    let (json, check) = bytes.split_at(start);
    match check.strip_prefix(CHECK) {
        Some(check) => check.starts_with(checksum(&[json, b"}"].concat()).as_bytes()),
        None => true,
    }
}

fn parse(id: &str, bytes: &[u8]) -> Result<Record> {
    if !is_unchanged(bytes) {
        return Err(Error::corrupt("its checksum does not match"));
    }
    let Saved { owner, created, status, pin, details, made_pin, direct, replaces } =
        serde_json::from_slice(bytes).map_err(|e| Error::corrupt(format!("it is malformed: {e}")))?;
    // The task that pinned it has ended with the process.
    let status = if status == PinState::Pinning { PinState::Queued } else { status };
    Ok(Record {
        id: id.to_owned(),
        owner,
        created,
        status,
        cid: parse_cid(&pin.cid)?,
        pin,
        details,
        made_pin,
        direct,
        replaces: replaces.into_iter().map(SavedPin::parse).collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_with_another_byte_is_damaged() {
        let cid = "bafkqaaa";
        let json = format!(r#"{{"owner":"a","created":1,"status":"queued","pin":{{"cid":"{cid}"}},"made_pin":false}}"#);
        let written = with_checksum(json.clone().into_bytes());
        assert_eq!(parse("id", &written).unwrap(), parse("id", json.as_bytes()).unwrap());
        let text = String::from_utf8(written).unwrap();
        for (from, to) in [("\"a\"", "\"b\""), ("\"created\":1", "\"created\":2"), (",\"made_pin\":false", "")] {
            assert!(parse("id", text.replacen(from, to, 1).as_bytes()).is_err(), "{from}");
        }
    }
}
