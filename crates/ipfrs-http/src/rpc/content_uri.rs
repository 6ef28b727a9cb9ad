//! URIs of content (`ipfs://{cid}/a`, `ipfs:{cid}/a`), which Kubo's commands take in place of paths.

use std::borrow::Cow;

use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_node::ContentPath;

use super::args::checked_path;

/// Schemes, which are the namespaces of paths.
const SCHEMES: [&str; 3] = ["ipfs", "ipns", "ipld"];

/// Returns a URI as a path (`/ipfs/{cid}/a`), and anything else unchanged. As in Kubo, the case of the scheme does not
/// matter, the two slashes after it are optional, and nothing is percent-decoded.
pub(super) fn as_path(argument: &[u8]) -> Cow<'_, [u8]> {
    for scheme in SCHEMES {
        let Some((start, rest)) = argument.split_at_checked(scheme.len()) else { continue };
        let Some(rest) = rest.strip_prefix(b":").filter(|_| start.eq_ignore_ascii_case(scheme.as_bytes())) else {
            continue;
        };
        let mut path = format!("/{scheme}/").into_bytes();
        path.extend_from_slice(rest.strip_prefix(b"//").unwrap_or(rest));
        return Cow::Owned(path);
    }
    Cow::Borrowed(argument)
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
    fn uris_become_paths_and_all_else_stays() {
        for (argument, path) in [
            ("ipfs://bafkqaaa/a/b", "/ipfs/bafkqaaa/a/b"),
            ("ipfs:bafkqaaa", "/ipfs/bafkqaaa"),
            ("ipfs:/bafkqaaa", "/ipfs//bafkqaaa"),
            ("ipns:docs.ipfs.tech", "/ipns/docs.ipfs.tech"),
            ("ipld://bafkqaaa/a", "/ipld/bafkqaaa/a"),
            ("IpFs://QmX/%20/", "/ipfs/QmX/%20/"),
            ("ipfs:", "/ipfs/"),
            ("ipfs", "ipfs"),
            ("ipfsfile", "ipfsfile"),
            ("ipfsbar:baz", "ipfsbar:baz"),
            ("ip\u{e9}s:x", "ip\u{e9}s:x"),
            ("/ipfs/bafkqaaa", "/ipfs/bafkqaaa"),
            ("", ""),
        ] {
            assert_eq!(as_path(argument.as_bytes()), path.as_bytes(), "{argument}");
        }
    }

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
