//! Arguments that are a content ID, or the path or URI of one.

use ipfrs_core::{Cid, Error, Result, parse_cid};
use ipfrs_node::ContentPath;

use super::args::checked_path;

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
