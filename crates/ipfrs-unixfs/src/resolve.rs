//! From a root and a path to a block.

use bytes::Bytes;
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Cid, Error, Result};

use crate::blocks::{BlockSource, load};
use crate::hamt::{HamtShard, HashBits, Slot};
use crate::node::{Node, decode_async};

/// Where a path led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The block that the path names.
    pub cid: Cid,
    /// Its bytes.
    pub data: Bytes,
    /// What it is, or `None` when the block is not UnixFS: [`decode`](crate::decode) says why.
    pub node: Option<Node>,
    /// The content ID of the root and of each segment, in the order of the path; the last one is `cid`. Inner blocks of
    /// sharded directories are not in it.
    pub roots: Vec<Cid>,
}

/// Follows `segments`, names without slashes, from `root` through directories.
///
/// # Errors
/// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) when a segment has no link (the message names it and the block where
/// it is missing) or a block is absent; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than
/// [`MAX_PATH_SEGMENTS`]; as [`decode`](crate::decode) for segments below a block that is not UnixFS. That the last
/// block is not UnixFS is no error.
pub async fn resolve(source: &dyn BlockSource, root: &Cid, segments: &[String]) -> Result<Resolved> {
    if segments.len() > MAX_PATH_SEGMENTS {
        return Err(Error::too_large(format!(
            "a path of {} segments is over the limit of {MAX_PATH_SEGMENTS}",
            segments.len()
        )));
    }
    let mut cid = *root;
    let mut data = load(source, &cid).await?;
    let mut roots = vec![cid];
    for segment in segments {
        let found = lookup(source, &decode_async(cid, data.clone()).await?, segment).await?;
        cid = found.ok_or_else(|| Error::not_found(format!("no link named {segment:?} under {cid}")))?;
        data = load(source, &cid).await?;
        roots.push(cid);
    }
    let node = decode_async(cid, data.clone()).await.ok();
    Ok(Resolved { cid, data, node, roots })
}

async fn lookup(source: &dyn BlockSource, node: &Node, name: &str) -> Result<Option<Cid>> {
    match node {
        Node::Directory { entries, .. } => Ok(entries.iter().find(|entry| entry.name == name).map(|entry| entry.cid)),
        Node::HamtShard(shard) => lookup_sharded(source, shard, name).await,
        Node::File(_) | Node::Symlink { .. } => Ok(None),
    }
}

/// Each level uses up bits of the name's hash, which bounds the depth.
async fn lookup_sharded(source: &dyn BlockSource, root: &HamtShard, name: &str) -> Result<Option<Cid>> {
    let mut bits = HashBits::of(name);
    let mut next = match root.find(&mut bits)? {
        None => return Ok(None),
        Some(Slot::Entry(entry)) => return Ok((entry.name == name).then_some(entry.cid)),
        Some(Slot::Shard(cid)) => *cid,
    };
    loop {
        match load_shard(source, &next).await?.find(&mut bits)? {
            None => return Ok(None),
            Some(Slot::Entry(entry)) => return Ok((entry.name == name).then_some(entry.cid)),
            Some(Slot::Shard(cid)) => next = *cid,
        }
    }
}

/// A shard that another shard links to.
pub(crate) async fn load_shard(source: &dyn BlockSource, cid: &Cid) -> Result<HamtShard> {
    match decode_async(*cid, load(source, cid).await?).await? {
        Node::HamtShard(shard) => Ok(shard),
        _ => Err(Error::invalid(format!("block {cid} is linked as a directory shard but is none"))),
    }
}
