//! `files/*`: mutable files.

mod change;
mod ls;
mod read;
mod stat;
mod write;

pub(super) use change::{chcid, chmod, cp, flush, mkdir, mv, rm, touch};
use ipfrs_core::Result;
use ipfrs_node::{CidFormat, ContentPath, LinkName, MutablePath};
pub(super) use ls::ls;
pub(super) use read::read;
pub(super) use stat::stat;
pub(super) use write::write;

use super::args::{Args, checked_path};
use super::hash_option;
use crate::error::RpcError;

/// Returns a path of mutable files.
fn path(argument: &LinkName) -> Result<MutablePath> {
    MutablePath::parse(argument)
}

/// Returns an argument that is a path or URI of content, as a path. As in Kubo, all other arguments are paths of
/// mutable files, also one such as `/ipfs/x` without a content ID.
fn content(argument: &LinkName) -> Option<LinkName> {
    let path = checked_path(argument).ok().filter(|path| path.as_bytes().starts_with(b"/"))?;
    let is_content = path.as_bytes().starts_with(b"/ipns/") || ContentPath::parse(&path).is_ok();
    is_content.then_some(path)
}

/// Returns the two arguments of a command, which are paths or text.
fn two<'a>(args: &'a Args, first: &str, second: &str) -> Result<(&'a LinkName, &'a LinkName), RpcError> {
    match args.required_paths(first)? {
        [a, b] => Ok((a, b)),
        [_] => Err(RpcError::Request(format!("argument {second:?} is required"))),
        more => Err(RpcError::Request(format!("{} arguments given, {first:?} and {second:?} expected", more.len()))),
    }
}

/// Whether a command flushes its change, which is the default.
fn flushes(args: &Args) -> bool {
    args.bool("flush").unwrap_or(true)
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
