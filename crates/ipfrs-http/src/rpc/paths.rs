//! Paths of content, and URIs (`ipfs://{cid}/a`, `ipfs:{cid}/a`), which Kubo's commands take in place of paths.

use ipfrs_core::{Cid, Error, Result, parse_cid, uri_as_path};
use ipfrs_node::{ContentPath, LinkName, Node};

use crate::error::RpcError;

/// Parses a path or URI as Kubo does, resolving a name: relative parts are removed first.
pub(super) async fn content_path(node: &Node, argument: &LinkName) -> Result<ContentPath, RpcError> {
    Ok(node.content_path(checked_path(argument)?).await?)
}

/// Returns a path or URI as a path without relative parts. A path without a namespace must begin with a content ID.
pub(super) fn checked_path(argument: &LinkName) -> Result<LinkName> {
    let argument = LinkName::from(&*uri_as_path(argument.as_bytes()));
    let path = cleaned(argument.as_bytes());
    let invalid = |why: &str| Err(Error::invalid(format!("invalid path {argument:?}: {why}")));
    let few = "path does not have enough components";
    let mut parts = path.as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    match (path.as_bytes().first(), parts.next()) {
        (None, _) | (_, None) => return invalid(few),
        (Some(b'/'), Some(b"ipfs" | b"ipns" | b"ipld")) if parts.next().is_none() => return invalid(few),
        (Some(b'/'), Some(b"ipfs" | b"ipns" | b"ipld")) => {}
        (Some(b'/'), Some(other)) => {
            let other = LinkName::from(other);
            return invalid(&format!("unknown namespace: {other:?}"));
        }
        (_, Some(root)) if LinkName::from(root).to_str().is_none_or(|root| parse_cid(root).is_err()) => {
            return invalid(few);
        }
        _ => {}
    }
    Ok(path)
}

/// Returns a path without empty parts, `.` and `..`, and without the name before each `..`, like Go's `path.Clean`. As
/// in Kubo, a slash at the end stays.
pub(super) fn cleaned(path: &[u8]) -> LinkName {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let start: &[u8] = if path.starts_with(b"/") { b"/" } else { b"" };
    let end: &[u8] = if path.ends_with(b"/") && !parts.is_empty() { b"/" } else { b"" };
    [start, parts.join(&b'/').as_slice(), end].concat().into()
}

/// Parses a content ID, or the path or URI of one.
///
/// # Errors
/// If the argument is none, or leads below its root.
pub(super) fn parse_root(argument: &str) -> Result<Cid> {
    let no_cid = match parse_cid(argument) {
        Ok(cid) => return Ok(cid),
        Err(e) => e,
    };
    if !argument.contains(['/', ':']) {
        return Err(no_cid);
    }
    let path = ContentPath::parse(checked_path(&argument.into())?)?;
    if path.segments().is_empty() {
        return Ok(*path.root());
    }
    Err(Error::invalid(format!("{argument:?} points below a root CID, expected a single CID")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_content_ids_and_their_paths() {
        let cid = parse_cid("bafkqaaa").unwrap();
        for argument in ["bafkqaaa", "/ipfs/bafkqaaa/", "ipfs:bafkqaaa", "ipld:/bafkqaaa", "bafkqaaa/x/.."] {
            assert_eq!(parse_root(argument).unwrap(), cid, "{argument}");
        }
        for argument in ["", "x", "ipfs:", "/ipfs/x", "ipfs:bafkqaaa/x", "bafkqaaa/x", "ipns:bafkqaaa"] {
            assert!(parse_root(argument).is_err(), "{argument}");
        }
    }
}
