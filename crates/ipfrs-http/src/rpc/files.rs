//! `files/*`: mutable files.

mod change;
mod ls;
mod read;
mod stat;
mod write;

pub(super) use change::{chcid, chmod, cp, flush, mkdir, mv, rm, touch};
use ipfrs_core::{Result, uri_as_path};
use ipfrs_node::{CidFormat, LinkName, MutablePath};
pub(super) use ls::ls;
pub(super) use read::read;
pub(super) use stat::stat;
pub(super) use write::write;

use super::args::Args;
use super::hash_option;
use crate::error::RpcError;

/// Returns a path of mutable files.
fn path(argument: &LinkName) -> Result<MutablePath> {
    MutablePath::parse(argument)
}

/// Prefixes of paths of content. All other paths are those of mutable files.
const CONTENT: [&[u8]; 3] = [b"/ipfs/", b"/ipns/", b"/ipld/"];

/// Returns an argument that is a path or URI of content, as a path. Its parts `.` and `..` stay names, unlike in Kubo:
/// the Python clients resolve paths with `files/stat`.
fn content(argument: &LinkName) -> Option<LinkName> {
    let path = uri_as_path(argument.as_bytes());
    CONTENT.iter().any(|prefix| path.starts_with(prefix)).then(|| LinkName::from(&*path))
}

/// Returns the two arguments of a command, which are paths or text.
fn two<'a>(args: &'a Args, first: &str, second: &str) -> Result<(&'a LinkName, &'a LinkName), RpcError> {
    match args.required_paths(first)? {
        [a, b] => Ok((a, b)),
        [_] => Err(RpcError::Request(format!("argument {second:?} is required"))),
        more => Err(RpcError::Request(format!("{} arguments given, {first:?} and {second:?} expected", more.len()))),
    }
}

/// Whether a command flushes its change.
fn flushes(args: &Args) -> bool {
    args.is_set("flush")
}

/// Returns the format that `cid-version` and `hash` select, if one of them is given.
fn cid_format(args: &Args) -> Result<Option<CidFormat>, RpcError> {
    let (version, hash) = (args.number::<i64>("cid-version")?, args.text("hash"));
    if version.is_none() && hash.is_none() {
        return Ok(None);
    }
    let hash = hash.map(hash_option::known).transpose()?;
    Ok(Some(CidFormat::new(version.unwrap_or(0), hash)?))
}
