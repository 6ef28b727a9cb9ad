//! Files and directories: their bytes, entries and metadata.

use ipfrs_core::{Base, Error, ErrorKind, Result};
use ipfrs_node::LinkName;
use ipfrs_rpc::client::{Client, Request};
use ipfrs_rpc::mode::unix_mode;
use ipfrs_rpc::types::{FileStat, Link, Listings, ResolvedNode};

use super::arg;
use crate::backing::{Content, Entry, Stat};

/// Maximum offset and length in the RPC API, which uses signed 64-bit integers. No file is longer.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Returns a stream of `length` bytes of a file from `offset`.
pub(super) async fn read(client: &Client, path: &LinkName, offset: u64, length: Option<u64>) -> Result<Content> {
    let offset = Some(offset.min(MAX_OFFSET)).filter(|offset| *offset > 0);
    let length = length.map(|length| length.min(MAX_OFFSET));
    let request = Request::query("cat").with_arg(arg(path)).with_some("offset", offset);
    // Without trailers, a response with a fixed length could not report why it broke off.
    let response = client.send(request.with_some("length", length).with_trailers()).await?;
    match response.content_length() {
        Some(size) => Ok(Content { size, pieces: response.into_pieces() }),
        None => Err(response.without_length()),
    }
}

/// Returns the exact name of an entry.
fn exact_name(link: &Link) -> Result<LinkName> {
    let Some(bytes) = &link.name_bytes else { return Ok(link.name.as_str().into()) };
    let decoded = Base::Base64Pad.decode(bytes);
    decoded
        .map(LinkName::from)
        .map_err(|e| Error::corrupt(format!("the name {bytes:?} from the daemon is not base64: {e}")))
}

/// Returns the entries of a directory in its order.
pub(super) async fn list(client: &Client, path: &LinkName) -> Result<Vec<Entry>> {
    let request = Request::query("ls").with_arg(arg(path)).with("stream", true).with_trailers();
    let (mut response, mut entries) = (client.send(request).await?, Vec::new());
    while let Some(Listings { objects }) = response.entry().await? {
        for link in objects.into_iter().flat_map(|object| object.links) {
            entries.push(Entry {
                name: exact_name(&link)?,
                cid: link.hash,
                kind: match link.r#type {
                    Link::DIRECTORY => "directory",
                    Link::FILE => "file",
                    Link::SYMLINK => "symlink",
                    _ => "node",
                },
                size: link.size,
            });
        }
    }
    // The RPC API also lists the parts of a file, without names. A file may also have no parts.
    if entries.iter().all(|entry| entry.name.is_empty()) && matches!(stat(client, path).await?.kind, "file" | "symlink")
    {
        return Err(Error::invalid(format!("{path} is not a directory: read it, or get its stat")));
    }
    Ok(entries)
}

pub(super) async fn stat(client: &Client, path: &LinkName) -> Result<Stat> {
    let rooted = match path.as_bytes().starts_with(b"/ipld/") {
        true => LinkName::from(format!("/ipfs/{}", resolve(client, path).await?).as_str()),
        false => rooted(path),
    };
    let stat = match client.send(Request::query("files/stat").with_arg(arg(&rooted))).await {
        Ok(response) => response.json::<FileStat>().await?,
        Err(e) if matches!(e.kind(), ErrorKind::Unsupported | ErrorKind::InvalidContent) => {
            return stat_of_node(client, path).await;
        }
        Err(e) => return Err(e),
    };
    let attributes = stat.attributes;
    let seconds = |seconds: i64| {
        #[expect(clippy::cast_precision_loss, reason = "Python's times are of this kind")]
        let seconds = seconds as f64;
        seconds + f64::from(attributes.mtime_nsecs.unwrap_or(0)) / 1e9
    };
    Ok(Stat {
        cid: stat.hash,
        kind: match stat.r#type.as_str() {
            "file" => "file",
            "directory" => "directory",
            "symlink" => "symlink",
            _ => "node",
        },
        size: stat.size,
        links: Some(stat.blocks),
        mode: attributes.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok()).map(unix_mode),
        mtime: attributes.mtime.map(seconds),
    })
}

/// Returns `path` with the prefix `/ipfs/` if it begins with a CID, because the command does not accept such paths.
fn rooted(path: &LinkName) -> LinkName {
    let bytes = path.as_bytes();
    if bytes.starts_with(b"/ipfs/") || bytes.starts_with(b"/ipns/") {
        return path.clone();
    }
    let slashes = bytes.iter().take_while(|byte| **byte == b'/').count();
    [b"/ipfs/", &bytes[slashes..]].concat().into()
}

/// Returns the metadata of a block, for paths that are neither files nor directories.
async fn stat_of_node(client: &Client, path: &LinkName) -> Result<Stat> {
    let cid = resolve(client, path).await?;
    let size = super::blocks::size(client, &cid).await?;
    Ok(Stat { cid, kind: "node", size, links: None, mode: None, mtime: None })
}

/// Returns the CID that a path leads to in which `.` and `..` are names.
pub(super) async fn resolve_dots(client: &Client, path: &LinkName) -> Result<String> {
    if path.as_bytes().starts_with(b"/ipld/") {
        return Err(Error::not_found(format!("no link named \".\" or \"..\" in {path}")));
    }
    Ok(client.send(Request::query("files/stat").with_arg(arg(&rooted(path)))).await?.json::<FileStat>().await?.hash)
}

pub(super) async fn resolve(client: &Client, path: &LinkName) -> Result<String> {
    let response = client.send(Request::query("dag/resolve").with_arg(arg(path))).await?;
    let ResolvedNode { cid, rem_path } = response.json().await?;
    match rem_path.trim_start_matches('/') {
        "" => Ok(cid.cid),
        within => Err(Error::unsupported(format!(
            "{path} resolves to {within:?} within block {}: request the block",
            cid.cid
        ))),
    }
}
