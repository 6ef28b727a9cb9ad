//! Decoded UnixFS nodes.

use std::fmt;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use ipfrs_core::{Cid, Error, ErrorKind, NotUnixfs, Result, codec, cores};
use prost::encoding::decode_varint;
use tokio::sync::Semaphore;
use tokio::task::coop::consume_budget;
use tokio_util::task::AbortOnDropHandle;

use crate::children::Children;
use crate::dag_pb::{self, PbLink, RawNode};
use crate::data::{Attributes, Data, DataType};
use crate::dir_entry::DirEntry;
use crate::hamt::HamtShard;

/// A file, or a part of one: the content is `inline`, followed by that of `children`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNode {
    /// Size of the file in bytes: the sum of its parts.
    pub size: u64,
    /// Content in the block itself, as a slice of the block.
    pub inline: Bytes,
    /// Parts in other blocks, in file order.
    pub children: Children,
    /// Permissions and modification time, if the block has them.
    pub attributes: Attributes,
}

/// A decoded block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file, or a part of one.
    File(FileNode),
    /// A directory in one block.
    Directory {
        /// Entries, in the order of the block.
        entries: Vec<DirEntry>,
        /// Permissions and modification time, if the block has them.
        attributes: Attributes,
    },
    /// A block of a sharded directory: its root or an inner shard.
    HamtShard(HamtShard),
    /// A symbolic link. The target is a slice of the block.
    Symlink {
        /// Path that the link points to, as the stored bytes.
        target: Bytes,
        /// Permissions and modification time, if the block has them.
        attributes: Attributes,
    },
}

impl Node {
    /// Returns the permissions and the modification time, if the block has them. In a sharded directory, only the
    /// root shard has any.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        match self {
            Self::File(file) => file.attributes,
            Self::HamtShard(shard) => shard.attributes(),
            Self::Directory { attributes, .. } | Self::Symlink { attributes, .. } => *attributes,
        }
    }
}

/// Decodes a block. Byte fields of the result are slices of `data`.
///
/// A raw block is a file. In dag-pb, the types File and Raw are files.
///
/// # Errors
/// Returns [`ErrorKind::Unsupported`] for codecs other than raw and dag-pb, and for the UnixFS type Metadata. Returns
/// [`ErrorKind::InvalidContent`] for an invalid block; the message names the block and the fault.
pub fn decode(cid: &Cid, data: &Bytes) -> Result<Node> {
    match cid.codec() {
        codec::RAW => Ok(Node::File(FileNode {
            size: data.len() as u64,
            inline: data.clone(),
            children: Children::default(),
            attributes: Attributes::default(),
        })),
        codec::DAG_PB => decode_dag_pb(data).map_err(|error| in_block(cid, error)),
        other => {
            let name = codec::name(other).map_or_else(|| format!("0x{other:x}"), str::to_owned);
            let message = format!("block {cid} is {name}, which is not UnixFS (raw or dag-pb)");
            Err(Error::not_unixfs(NotUnixfs::OtherCodec, message))
        }
    }
}

/// Adds the block to an error.
fn in_block(cid: &Cid, error: Error) -> Error {
    let named = match error.kind() {
        ErrorKind::InvalidInput => Error::invalid_content(format!("block {cid} is not valid UnixFS: {error}")),
        kind => return Error::new(kind, format!("block {cid}: {error}")).with_source(error),
    };
    if is_without_sizes(&error) { named.with_source(WithoutSizes) } else { named }
}

/// The cause of errors about a file whose links have no sizes.
#[derive(Debug)]
struct WithoutSizes;

impl fmt::Display for WithoutSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the links of a file have no sizes")
    }
}

impl std::error::Error for WithoutSizes {}

/// Whether an error of [`decode`] says that a block is a file whose links have no sizes.
#[must_use]
pub fn is_without_sizes(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|cause| cause.is::<WithoutSizes>())
}

/// Returns the size that a dag-pb file declares, or 0 if it declares none.
#[must_use]
pub fn declared_size(block: &Bytes) -> u64 {
    let data = RawNode::read(block).ok().and_then(|node| Data::read(block.slice_ref(node.data?)).ok());
    data.and_then(|data| data.filesize).unwrap_or(0)
}

/// Returns the name of the UnixFS type that a dag-pb block declares, whether the rest of it is valid or not. `None` for
/// a block that is not UnixFS.
#[must_use]
pub fn declared_type(block: &Bytes) -> Option<&'static str> {
    let node = RawNode::read(block).ok()?;
    let data_type = Data::read(block.slice_ref(node.data?)).ok()?.data_type().ok()?;
    Some(match data_type {
        DataType::Raw => "Raw",
        DataType::Directory => "Directory",
        DataType::File => "File",
        DataType::Metadata => "Metadata",
        DataType::Symlink => "Symlink",
        DataType::HamtShard => "HAMTShard",
    })
}

/// Returns the content IDs of the parts of a dag-pb file.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`] for a malformed block.
pub fn part_cids(block: &Bytes) -> Result<Vec<Cid>> {
    RawNode::read(block)?.cids().collect()
}

/// Decodes a block of a file whose links have no sizes, with the given ones.
pub(crate) fn decode_with_sizes(cid: &Cid, block: &Bytes, sizes: Vec<u64>) -> Result<Node> {
    let decoded = || {
        let node = RawNode::read(block)?;
        let data = Data::read(block.slice_ref(node.data.unwrap_or_default()))?;
        Ok(Node::File(decode_file(&node, &Data { blocksizes: sizes, ..data })?))
    };
    decoded().map_err(|error| in_block(cid, error))
}

/// Bytes of a node, excluding content, that consume one unit of a task's budget. Decoding them takes a few
/// microseconds.
const BYTES_PER_TURN: usize = 1024;

/// Largest node, in bytes excluding content, that a task decodes inline. This takes about a millisecond with the
/// shortest possible links, and a tenth of that with ordinary ones.
const MAX_INLINE_DECODE_BYTES: usize = 32 * 1024;

/// One permit for each large node that is being decoded, as many as there are cores. Decoding takes up to ten times the
/// memory of the block, so that a few hundred requests would otherwise take gigabytes.
static DECODING: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(cores())));

/// Decodes a block like [`decode`], without blocking the runtime. Other tasks run in between, whatever the size and
/// number of the nodes that a task decodes. Large nodes are decoded on a blocking thread, a few at a time.
///
/// # Errors
/// Returns the errors of [`decode`].
///
/// # Panics
/// Panics for a large node outside of a Tokio runtime.
pub async fn decode_async(cid: Cid, data: Bytes) -> Result<Node> {
    let structure = data.len() - content_len(&cid, &data);
    if structure > MAX_INLINE_DECODE_BYTES {
        return Box::pin(in_turns(structure, cid, move || decode(&cid, &data))).await;
    }
    take_turns(structure / BYTES_PER_TURN).await;
    decode(&cid, &data)
}

/// Consumes `count` units of a task's budget, and one more.
pub(crate) async fn take_turns(count: usize) {
    for _ in 0..=count {
        consume_budget().await;
    }
}

/// Runs `work`, which reads `structure` bytes of block `cid` (excluding content), without delaying other tasks.
pub(crate) async fn in_turns<T: Send + 'static>(
    structure: usize,
    cid: Cid,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if structure > MAX_INLINE_DECODE_BYTES {
        let failed = || Error::internal(format!("decoding block {cid} failed"));
        let permit = Arc::clone(&DECODING).acquire_owned().await.map_err(|e| failed().with_source(e))?;
        let decoding = AbortOnDropHandle::new(tokio::task::spawn_blocking(move || {
            let _until_done = permit;
            work()
        }));
        return decoding.await.map_err(|e| failed().with_source(e))?;
    }
    take_turns(structure / BYTES_PER_TURN).await;
    work()
}

/// Returns the number of content bytes at the start of a leaf, which the decoder does not examine.
fn content_len(cid: &Cid, block: &[u8]) -> usize {
    if cid.codec() == codec::DAG_PB { dag_pb_content_len(block).unwrap_or(0) } else { block.len() }
}

/// Returns the length of `Data.Data` if only the keys of the node's data and of `Data.Type` precede it, as in every
/// leaf.
fn dag_pb_content_len(mut rest: &[u8]) -> Option<usize> {
    let mut field = |key: u64| {
        let found = decode_varint(&mut rest).ok()?;
        (found == key).then(|| decode_varint(&mut rest).ok()).flatten()
    };
    field(0x0a)?;
    field(0x08)?;
    let len = usize::try_from(field(0x12)?).ok()?;
    (len <= rest.len()).then_some(len)
}

fn decode_dag_pb(block: &Bytes) -> Result<Node> {
    let node = RawNode::read(block)?;
    let without_data = || Error::not_unixfs(NotUnixfs::WithoutData, "dag-pb node without data, which is not UnixFS");
    let data = node.data.ok_or_else(without_data)?;
    let data = Data::read(block.slice_ref(data))?;
    match data.data_type()? {
        DataType::File | DataType::Raw => Ok(Node::File(decode_file(&node, &data)?)),
        DataType::Directory => {
            let entries = node.links()?.into_iter().map(DirEntry::from).collect();
            Ok(Node::Directory { entries, attributes: data.attributes() })
        }
        DataType::HamtShard => Ok(Node::HamtShard(HamtShard::new(node.links()?, &data)?)),
        DataType::Symlink => Ok(Node::Symlink { attributes: data.attributes(), target: data.data.unwrap_or_default() }),
        DataType::Metadata => Err(Error::unsupported("UnixFS metadata nodes are neither files nor directories")),
    }
}

/// Returns the links of a dag-pb block that is not UnixFS, because it has no data or other data. Returns `None` for a
/// block that is UnixFS or declares a UnixFS type.
pub(crate) fn plain_links(block: &Bytes) -> Result<Option<Vec<PbLink>>> {
    let node = dag_pb::decode(block)?;
    let claimed = node.data.and_then(|data| Data::read(data).ok()?.data_type().ok());
    Ok(matches!(claimed, None | Some(DataType::Metadata)).then_some(node.links))
}

fn decode_file(node: &RawNode<'_>, data: &Data) -> Result<FileNode> {
    if node.link_count() != data.blocksizes.len() {
        let error = Error::invalid(format!("{} links with {} sizes", node.link_count(), data.blocksizes.len()));
        return Err(if data.blocksizes.is_empty() { error.with_source(WithoutSizes) } else { error });
    }
    // The checked sum of all sizes, so the additions below cannot overflow.
    let size = data.file_size()?;
    let inline = data.data.clone().unwrap_or_default();
    let mut end = inline.len() as u64;
    let mut children = Children::with_capacity(node.link_count());
    for (cid, size) in node.encoded_cids().zip(&data.blocksizes) {
        end += size;
        children.push_encoded(cid?, *size, end);
    }
    Ok(FileNode { size, children, inline, attributes: data.attributes() })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use futures::poll;

    use super::*;

    #[test]
    fn large_node_waits_until_fewer_are_decoded() {
        // One thread, so that its work runs in order.
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let cores = u32::try_from(cores()).unwrap();
            let others = DECODING.acquire_many(cores).await.unwrap();
            let has_run = Arc::new(AtomicBool::new(false));
            let work = Arc::clone(&has_run);
            let mut large = Box::pin(in_turns(MAX_INLINE_DECODE_BYTES + 1, Cid::default(), move || {
                work.store(true, Ordering::Relaxed);
                Ok(())
            }));
            assert!(poll!(&mut large).is_pending());
            tokio::task::spawn_blocking(|| ()).await.unwrap();
            assert!(!has_run.load(Ordering::Relaxed));
            in_turns(1, Cid::default(), || Ok(())).await.unwrap();
            drop(others);
            large.await.unwrap();
            assert!(has_run.load(Ordering::Relaxed));
        });
    }
}
