//! Parts of DAGs: which links of each node a walk follows.

use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use ipfrs_core::{Cid, CidList, Error, ErrorKind, Result, codec};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::{FileNode, Node, ShardLink, decode_async, decode_measured, is_without_sizes, links, part_cids};
use tokio::task::coop::consume_budget;

use crate::Span;
use crate::source::StoreRef;

/// Largest node, in bytes, that a task decodes inline. Larger nodes are decoded on a blocking thread.
const MAX_INLINE_DECODE_BYTES: usize = 32 * 1024;

/// Bytes of a node that consume one unit of a task's budget. Decoding them takes a few microseconds.
const BYTES_PER_TURN: usize = 1024;

/// The part of the DAG below a block that a walk covers (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>,
/// `dag-scope` and `entity-bytes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All descendants.
    All,
    /// The block alone.
    Block,
    /// All descendants that are at most this many links below the block.
    Levels(u32),
    /// The blocks that a client needs to read a whole UnixFS file or to list a directory: all shards of the
    /// directory, but nothing below its entries. For a block that is not UnixFS, the block alone.
    Entity,
    /// The fewest blocks that a client needs to read these bytes of a UnixFS file. For anything but a file, the same
    /// as [`Self::Entity`].
    Bytes(Span),
}

/// The links of a node that are within a part.
pub(super) struct Links {
    pub(super) cids: CidList,
    pub(super) below: Below,
}

/// The parts to walk below the links of a node.
#[derive(Debug, Clone, Copy)]
pub(super) enum Below {
    /// The same part below each link.
    Each(Part),
    /// No descendants, except this part below the last link. Used for the blocks of a path and its target.
    Last(Part),
    /// All bytes of each child, except that the first child starts at `start` and the last one ends at `end`. Each
    /// offset is relative to the first byte of its child.
    Cut { start: u64, end: u64 },
}

impl Below {
    /// Returns the part to walk below the link at `index` of `count` links.
    pub(super) fn part(self, index: usize, count: usize) -> Part {
        let is_last = index + 1 == count;
        match self {
            Self::Each(part) => part,
            Self::Last(part) if is_last => part,
            Self::Last(_) => Part::Block,
            Self::Cut { start, end } => {
                let start = if index == 0 { start } else { 0 };
                let end = if is_last { end } else { u64::MAX };
                Part::Bytes(Span { start, len: end - start })
            }
        }
    }
}

/// Returns whether a block is a raw leaf, or a dag-pb block that consists of a single `Data` field, as leaves do. Takes
/// constant time for any block size.
pub(super) fn has_no_links(cid: &Cid, block: &[u8]) -> bool {
    match cid.codec() {
        codec::RAW => true,
        codec::DAG_PB => block
            .strip_prefix(&[0x0a])
            .is_some_and(|rest| unsigned_varint::decode::usize(rest).is_ok_and(|(len, data)| len == data.len())),
        _ => false,
    }
}

/// Returns the links of block `cid` that are within `part`. Sizes that the part needs and a file lacks are found in
/// `store`, by reading at most `measurable` parts.
pub(super) async fn links_below(
    store: &dyn BlockStore,
    measurable: &AtomicUsize,
    cid: Cid,
    data: Bytes,
    part: Part,
) -> Result<Links> {
    let none = Links { cids: CidList::default(), below: Below::Each(Part::Block) };
    let span = match part {
        Part::Block => return Ok(none),
        Part::Levels(0) => return Ok(none),
        Part::Levels(levels) => {
            return Ok(Links { cids: all_links(cid, data).await?, below: Below::Each(Part::Levels(levels - 1)) });
        }
        Part::All => return Ok(Links { cids: all_links(cid, data).await?, below: Below::Each(part) }),
        Part::Entity => None,
        Part::Bytes(span) => Some(span),
    };
    let entity = |cids| Links { cids, below: Below::Each(Part::Entity) };
    let decoded = match span {
        Some(_) => decode_measured(&StoreRef(store), cid, data, measurable).await,
        None => match decode_async(cid, data.clone()).await {
            Err(error) if is_without_sizes(&error) => return Ok(entity(part_cids(&data)?.into_iter().collect())),
            decoded => decoded,
        },
    };
    Ok(match (decoded, span) {
        (Ok(Node::File(file)), Some(span)) => links_within(&file, span),
        (Ok(Node::File(file)), None) => entity(file.children.iter_from(0).map(|child| child.cid).collect()),
        (Ok(Node::HamtShard(shard)), _) => entity(shard.slots().iter().filter_map(inner_shard).collect()),
        (Ok(Node::Directory { .. } | Node::Symlink { .. }), _) => none,
        // The walk still yields the block, so its consumer detects what is wrong with it.
        (Err(e), _) if matches!(e.kind(), ErrorKind::InvalidContent | ErrorKind::Unsupported) => none,
        (Err(e), _) => return Err(e),
    })
}

fn inner_shard(slot: &ShardLink) -> Option<Cid> {
    match slot {
        ShardLink::Shard(cid) => Some(*cid),
        ShardLink::Entry(_) => None,
    }
}

/// Returns the children of a file that have bytes within a span.
fn links_within(file: &FileNode, span: Span) -> Links {
    let (mut cids, mut cut) = (CidList::default(), None);
    for child in file.children.iter_from(file.children.first_past(span.start)) {
        // The decoder has checked that the sizes of the file's children add up.
        let offset = child.end - child.size;
        if offset >= span.end() {
            break;
        }
        if let Some((from, to)) = span.overlap(offset, child.end) {
            let (start, _) = cut.unwrap_or((from - offset, 0));
            cut = Some((start, to - offset));
            cids.push(&child.cid);
        }
    }
    let (start, end) = cut.unwrap_or_default();
    Links { cids, below: Below::Cut { start, end } }
}

/// Returns the same as [`links`], without blocking the runtime.
async fn all_links(cid: Cid, data: Bytes) -> Result<CidList> {
    if data.len() > MAX_INLINE_DECODE_BYTES {
        let decoding = tokio::task::spawn_blocking(move || links(&cid, &data));
        return decoding.await.map_err(|e| Error::internal(format!("decoding block {cid} failed")).with_source(e))?;
    }
    for _ in 0..=data.len() / BYTES_PER_TURN {
        consume_budget().await;
    }
    links(&cid, &data)
}
