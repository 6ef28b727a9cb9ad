//! Path resolution, from a root and a path to a block.

use std::error::Error as _;
use std::fmt;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};

use crate::blocks::{BlockSource, load};
use crate::hamt::{HamtShard, HashBits};
use crate::ipld::{Step, follow, has_paths};
use crate::link_name::LinkName;
use crate::node::{Node, decode_async, in_turns, plain_links, take_turns};
use crate::search::{Found, find};
use crate::sizes::{MAX_MEASURED_PARTS, decode_measured};

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Content ID of the block that the path names, or of the block that contains the named value.
    pub cid: Cid,
    /// Bytes of the block.
    pub data: Bytes,
    /// Decoded block, or `None` if the block is not UnixFS. [`decode`](crate::decode) returns the reason.
    pub node: Option<Node>,
    /// Content IDs of the root and of each block that the path leads to, in path order. The last one is `cid`. Inner
    /// blocks of sharded directories are not included.
    pub roots: Vec<Cid>,
    /// Content IDs of the inner blocks of sharded directories that the path leads through.
    pub shards: Vec<Cid>,
    /// Segments that lead from the root of the last block to a value in it. Only blocks with paths inside of them
    /// (dag-cbor, git-raw) have any, and dag-pb for [`resolve_values`].
    pub remainder: Vec<String>,
}

/// The error source for a path that does not exist although all blocks on it are available: see [`leads_nowhere`].
#[derive(Debug)]
struct NoSuchLink {
    /// Content IDs of the root and of each block that the path led to.
    roots: Vec<Cid>,
}

impl fmt::Display for NoSuchLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the last block on the path has no such link")
    }
}

impl std::error::Error for NoSuchLink {}

/// The error source for a path whose last block is missing, although the path leads to it.
#[derive(Debug)]
struct NoTarget {
    cid: Cid,
    cause: Error,
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the last block of the path is missing")
    }
}

impl std::error::Error for NoTarget {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Returns the content ID that a path leads to, if [resolving](resolve) it failed only because that block is missing.
#[must_use]
pub fn missing_target(error: &Error) -> Option<Cid> {
    error.source()?.downcast_ref().map(|NoTarget { cid, .. }| *cid)
}

/// Returns whether [resolving](resolve) a path failed because the path does not exist. If a block on the path is
/// missing, it is unknown whether the path exists.
#[must_use]
pub fn leads_nowhere(error: &Error) -> bool {
    roots_before(error).is_some()
}

/// Returns the content IDs of the root and of each block that a path led to before it [led nowhere](leads_nowhere).
#[must_use]
pub fn roots_before(error: &Error) -> Option<&[Cid]> {
    error.source()?.downcast_ref().map(|NoSuchLink { roots }| roots.as_slice())
}

/// Resolves `segments`, which are names without slashes, from `root`. Follows the entries of directories, the named
/// links of dag-pb blocks that are not UnixFS, the keys, list indices and links of dag-cbor and dag-json, and the keys
/// and indices of cbor and json.
///
/// # Errors
/// Returns [`ErrorKind::NotFound`] if a segment does not exist (the message names it and the block that lacks it) or
/// a block is absent. Returns [`ErrorKind::TooLarge`] for more than [`MAX_PATH_SEGMENTS`], and the errors of
/// [`decode`](crate::decode) for segments below a block of another codec. A last block that is not UnixFS is not an
/// error.
pub async fn resolve(source: &dyn BlockSource, root: &Cid, segments: &[LinkName]) -> Result<Resolved> {
    resolve_as(source, root, segments, false).await
}

/// Resolves a path as [`resolve`] does, but dag-pb blocks are values too: `Links/0/Hash` leads to the first link of a
/// directory.
///
/// # Errors
/// Returns the errors of [`resolve`].
pub async fn resolve_values(source: &dyn BlockSource, root: &Cid, segments: &[LinkName]) -> Result<Resolved> {
    resolve_as(source, root, segments, true).await
}

async fn resolve_as(source: &dyn BlockSource, root: &Cid, segments: &[LinkName], are_values: bool) -> Result<Resolved> {
    if segments.len() > MAX_PATH_SEGMENTS {
        return Err(Error::too_large(format!(
            "a path of {} segments is over the limit of {MAX_PATH_SEGMENTS}: start at a CID further down",
            segments.len()
        )));
    }
    let mut cid = *root;
    let (mut roots, mut shards) = (vec![cid], Vec::new());
    let mut rest = segments;
    let data = loop {
        let Some(segment) = rest.first() else {
            break load(source, &cid).await.map_err(|cause| match cause.kind() {
                ErrorKind::NotFound
                | ErrorKind::Timeout
                | ErrorKind::Unavailable
                | ErrorKind::Unretrievable
                | ErrorKind::BadSource
                    if !segments.is_empty() =>
                {
                    Error::new(cause.kind(), cause.message()).with_source(NoTarget { cid, cause })
                }
                _ => cause,
            })?;
        };
        let missing = |segment, roots: &[Cid]| {
            let cause = NoSuchLink { roots: roots.to_vec() };
            Error::not_found(format!("no link named {segment:?} under {cid}")).with_source(cause)
        };
        if has_paths(&cid) || are_values && cid.codec() == codec::DAG_PB {
            let block = load(source, &cid).await?;
            match follow_async(cid, block, rest).await? {
                (Step::Link { cid: next, used }, _) => (cid, rest) = (next, &rest[used..]),
                (Step::Within, block) => break block,
                (Step::Missing(at), _) => return Err(missing(&rest[at], &roots)),
            }
        } else {
            let found = lookup(source, cid, segment, &mut shards).await?;
            (cid, rest) = (found.ok_or_else(|| missing(segment, &roots))?, &rest[1..]);
        }
        roots.push(cid);
    };
    let left = AtomicUsize::new(MAX_MEASURED_PARTS);
    let node = decode_measured(source, cid, data.clone(), &left).await.ok();
    // Only keys of maps and indices of lists are left, and both are text.
    let remainder = rest.iter().map(|segment| segment.to_string_lossy().into_owned()).collect();
    Ok(Resolved { cid, data, node, roots, shards, remainder })
}

/// Follows segments like [`follow`], without blocking the runtime, and also returns the block. Keys are UTF-8, so a
/// segment that is not UTF-8 does not exist.
async fn follow_async(cid: Cid, data: Bytes, segments: &[LinkName]) -> Result<(Step, Bytes)> {
    let texts: Vec<_> = segments.iter().map_while(LinkName::to_str).map(str::to_owned).collect();
    let (text_count, is_text) = (texts.len(), texts.len() == segments.len());
    let followed = in_turns(data.len(), cid, move || Ok((follow(&cid, &data, &texts)?, data))).await?;
    Ok(match followed {
        (Step::Within, data) if !is_text => (Step::Missing(text_count), data),
        followed => followed,
    })
}

/// Largest directory block, in bytes, that a task searches inline. This takes at most half a millisecond.
const MAX_INLINE_SEARCH_BYTES: usize = 512 * 1024;

/// Bytes of a directory block that consume one unit of a task's budget. Searching them takes about a microsecond.
const SEARCHED_PER_TURN: usize = 16 * 1024;

/// Looks up `name` in a block of a codec other than dag-cbor and dag-json. In a sharded directory, each level consumes
/// bits of the name's hash, which bounds the depth. Adds the inner blocks of the directory to `shards`.
async fn lookup(source: &dyn BlockSource, cid: Cid, name: &LinkName, shards: &mut Vec<Cid>) -> Result<Option<Cid>> {
    let mut bits = HashBits::of(name.as_bytes());
    let (mut next, mut is_shard) = (cid, false);
    loop {
        let mut bits_after = bits.clone();
        let indexed = source.directory(&next).map(|index| index.find(name, &mut bits_after, is_shard));
        let found = match indexed {
            Some(Ok(found)) => {
                bits = bits_after;
                found
            }
            // The block itself explains what is wrong with it.
            Some(Err(_)) | None => {
                let block = load(source, &next).await?;
                match search(next, &block, name, &mut bits, is_shard).await? {
                    Ok(found) => {
                        source.searched(&next, &block);
                        found
                    }
                    Err(error) if is_shard => return Err(shard_error(next, block, error).await),
                    Err(error) => return lookup_elsewhere(next, block, name, error).await,
                }
            }
        };
        match found {
            Found::Entry(cid) => return Ok(Some(cid)),
            Found::Nothing => return Ok(None),
            Found::Shard(shard) => {
                shards.push(shard);
                (next, is_shard) = (shard, true);
            }
        }
    }
}

/// Searches a block of a directory, or only one of a shard if `is_shard`, without delaying other tasks. The inner
/// error is that of any other block.
async fn search(
    cid: Cid,
    block: &Bytes,
    name: &LinkName,
    bits: &mut HashBits,
    is_shard: bool,
) -> Result<Result<Found>> {
    if cid.codec() != codec::DAG_PB {
        return Ok(Err(Error::invalid("the block is not dag-pb")));
    }
    if block.len() > MAX_INLINE_SEARCH_BYTES {
        let (block, name, mut moved) = (block.clone(), name.clone(), bits.clone());
        let work = move || Ok((find(&block, &name, &mut moved, is_shard), moved));
        let (found, moved) = in_turns(usize::MAX, cid, work).await?;
        *bits = moved;
        return Ok(found);
    }
    take_turns(block.len() / SEARCHED_PER_TURN).await;
    Ok(find(block, name, bits, is_shard))
}

/// Looks up `name` in a block that is not a directory, because of `error`.
async fn lookup_elsewhere(cid: Cid, data: Bytes, name: &LinkName, error: Error) -> Result<Option<Cid>> {
    match decode_async(cid, data.clone()).await {
        Ok(Node::File(_) | Node::Symlink { .. }) => Ok(None),
        // A depth that the hash does not allow.
        Ok(Node::Directory { .. } | Node::HamtShard(_)) => Err(error),
        Err(error) if cid.codec() == codec::DAG_PB && error.kind() != ErrorKind::TooLarge => {
            let links = in_turns(data.len(), cid, move || Ok(plain_links(&data).ok().flatten())).await?;
            let links = links.ok_or(error)?;
            Ok(links.iter().find(|link| link.name == *name).map(|link| link.cid))
        }
        Err(error) => Err(error),
    }
}

/// Returns the error for a block that another shard links to, but that `error` says is not a valid shard.
async fn shard_error(cid: Cid, data: Bytes, error: Error) -> Error {
    match as_shard(cid, decode_async(cid, data).await) {
        Ok(_) => error,
        Err(error) => error,
    }
}

/// Loads a shard that another shard links to.
pub(crate) async fn load_shard(source: &dyn BlockSource, cid: &Cid) -> Result<HamtShard> {
    as_shard(*cid, decode_async(*cid, load(source, cid).await?).await)
}

fn as_shard(cid: Cid, decoded: Result<Node>) -> Result<HamtShard> {
    match decoded {
        Ok(Node::HamtShard(shard)) => Ok(shard),
        Err(error) if error.kind() != ErrorKind::Unsupported => Err(error),
        Ok(_) | Err(_) => {
            Err(Error::invalid_content(format!("block {cid} is linked as a directory shard but is not one")))
        }
    }
}
