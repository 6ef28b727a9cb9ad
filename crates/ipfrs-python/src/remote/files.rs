//! Files and directories: their bytes, entries and metadata.

use ipfrs_core::{Base, Error, ErrorKind, Result};
use ipfrs_node::LinkName;
use serde::Deserialize;

use super::failure;
use super::http::{Call, Http};
use crate::backing::{Content, Entry, Stat};

/// Maximum offset and length in the RPC API, which uses signed 64-bit integers. No file is longer.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Returns a stream of `length` bytes of a file from `offset`.
pub(super) async fn read(http: &Http, path: &LinkName, offset: u64, length: Option<u64>) -> Result<Content> {
    let offset = Some(offset.min(MAX_OFFSET)).filter(|offset| *offset > 0);
    let length = length.map(|length| length.min(MAX_OFFSET));
    let call = Call::question("cat").with_path(path).with_some("offset", offset);
    // Without trailers, a response with a fixed length could not report why it broke off.
    let response = http.send(call.with_some("length", length).with_trailers()).await?;
    match response.expected() {
        Some(size) => Ok(Content { size, pieces: response.pieces() }),
        None => Err(failure::incomplete(http.shown(), 0, "it does not report the length of the file")),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Objects {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Object {
    links: Vec<Link>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Link {
    name: String,
    hash: String,
    size: u64,
    #[serde(rename = "Type")]
    kind: u8,
    /// The name in base64, if it is not UTF-8.
    name_bytes: Option<String>,
}

impl Link {
    /// Returns the exact name.
    fn exact_name(&self) -> Result<LinkName> {
        let Some(bytes) = &self.name_bytes else { return Ok(self.name.as_str().into()) };
        let decoded = Base::Base64Pad.decode(bytes);
        decoded
            .map(LinkName::from)
            .map_err(|e| Error::corrupt(format!("the name {bytes:?} from the daemon is not base64: {e}")))
    }
}

/// Returns the entries of a directory in its order.
pub(super) async fn list(http: &Http, path: &LinkName) -> Result<Vec<Entry>> {
    let call = Call::question("ls").with_path(path).with("stream", true).with_trailers();
    let (mut response, mut entries) = (http.send(call).await?, Vec::new());
    while let Some(Objects { objects }) = response.entry().await? {
        for link in objects.into_iter().flat_map(|object| object.links) {
            entries.push(Entry {
                name: link.exact_name()?,
                cid: link.hash,
                // Number of the UnixFS `DataType`.
                kind: match link.kind {
                    1 => "directory",
                    2 => "file",
                    4 => "symlink",
                    _ => "node",
                },
                size: link.size,
            });
        }
    }
    // The RPC API also lists the parts of a file, without names. A file may also have no parts.
    if entries.iter().all(|entry| entry.name.is_empty()) && matches!(stat(http, path).await?.kind, "file" | "symlink") {
        return Err(Error::invalid(format!("{path} is not a directory: read it, or get its stat")));
    }
    Ok(entries)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FileStat {
    hash: String,
    size: u64,
    blocks: u64,
    #[serde(rename = "Type")]
    kind: String,
    mode: Option<String>,
    mtime: Option<i64>,
    mtime_nsecs: Option<u32>,
}

pub(super) async fn stat(http: &Http, path: &LinkName) -> Result<Stat> {
    let stat = match http.send(Call::question("files/stat").with_path(&rooted(path))).await {
        Ok(response) => response.document::<FileStat>().await?,
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::InvalidContent) => {
            return stat_of_node(http, path).await;
        }
        Err(e) => return Err(e),
    };
    let seconds = |seconds: i64| {
        #[expect(clippy::cast_precision_loss, reason = "Python's times are of this kind")]
        let seconds = seconds as f64;
        seconds + f64::from(stat.mtime_nsecs.unwrap_or(0)) / 1e9
    };
    Ok(Stat {
        cid: stat.hash,
        kind: match stat.kind.as_str() {
            "file" => "file",
            "directory" => "directory",
            "symlink" => "symlink",
            _ => "node",
        },
        size: stat.size,
        blocks: Some(stat.blocks),
        mode: stat.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok()).map(unix_mode),
        mtime: stat.mtime.map(seconds),
    })
}

/// Returns `path` with the prefix `/ipfs/` if it begins with a CID, because the command does not accept such paths.
fn rooted(path: &LinkName) -> LinkName {
    let bytes = path.as_bytes();
    let is_rooted = [&b"/ipfs/"[..], b"/ipns/", b"ipfs://", b"ipns://"].iter().any(|prefix| bytes.starts_with(prefix));
    if is_rooted {
        return path.clone();
    }
    let below = bytes.strip_prefix(b"/ipld/").unwrap_or(bytes);
    let slashes = below.iter().take_while(|byte| **byte == b'/').count();
    [b"/ipfs/", &below[slashes..]].concat().into()
}

/// The set-user-ID, set-group-ID and sticky bits in Unix, each with the corresponding bit of Go.
pub(super) const SPECIAL_BITS: [(u32, u32); 3] = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];

fn unix_mode(go: u32) -> u32 {
    let special: u32 = SPECIAL_BITS.iter().filter(|(_, bit)| go & bit != 0).map(|(unix, _)| unix).sum();
    go & 0o777 | special
}

/// Returns the metadata of a block, for paths that are neither files nor directories.
async fn stat_of_node(http: &Http, path: &LinkName) -> Result<Stat> {
    let cid = resolve(http, path).await?;
    let size = super::blocks::size(http, &cid).await?;
    Ok(Stat { cid, kind: "node", size, blocks: None, mode: None, mtime: None })
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Resolved {
    cid: CidLink,
    rem_path: String,
}

pub(super) async fn resolve(http: &Http, path: &LinkName) -> Result<String> {
    let Resolved { cid, rem_path } = http.send(Call::question("dag/resolve").with_path(path)).await?.document().await?;
    match rem_path.trim_start_matches('/') {
        "" => Ok(cid.cid),
        within => Err(Error::unsupported(format!(
            "{path} resolves to {within:?} within block {}: request the block",
            cid.cid
        ))),
    }
}

/// A content ID in the form in which dag-json writes links: `{"/":cid}`.
#[derive(Debug, Deserialize)]
pub(super) struct CidLink {
    #[serde(rename = "/")]
    pub(super) cid: String,
}
