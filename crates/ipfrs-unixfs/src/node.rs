//! What a block is in the file system.

use bytes::Bytes;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use prost::encoding::decode_varint;
use tokio::task::coop::consume_budget;
use tokio_util::task::AbortOnDropHandle;

use crate::dag_pb::{self, PbLink, RawNode};
use crate::data::{Attributes, Data, DataType};
use crate::hamt::HamtShard;
use crate::link_name::LinkName;

/// A part of a file that is in another block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// The block with this part's root.
    pub cid: Cid,
    /// Bytes of the file below this link.
    pub size: u64,
    /// Where this part ends, from the first byte of its parent: so that a place is found without a look at all parts.
    pub end: u64,
}

/// A file, or a part of one: `inline`, then what `children` hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileNode {
    /// Bytes of the file: the sum of its parts.
    pub size: u64,
    /// Content in the block itself; a slice of the block.
    pub inline: Bytes,
    /// The parts in other blocks, in the order of the file.
    pub children: Vec<Child>,
    /// Permissions and time, where they were kept.
    pub attributes: Attributes,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, which may be anything.
    pub name: LinkName,
    /// What the name stands for.
    pub cid: Cid,
    /// Bytes of all blocks below this entry, as the writer of the directory claims.
    pub tsize: u64,
}

/// What a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A file or a part of one.
    File(FileNode),
    /// A directory in one block.
    Directory {
        /// The entries in the order of the block.
        entries: Vec<DirEntry>,
        /// Permissions and time, where they were kept.
        attributes: Attributes,
    },
    /// A block of a directory that is spread over many: its root or a part.
    HamtShard(HamtShard),
    /// A symbolic link; the target is a slice of the block.
    Symlink {
        /// The path that the link points to, in bytes as they were stored.
        target: Bytes,
        /// Permissions and time, where they were kept.
        attributes: Attributes,
    },
}

impl Node {
    /// Permissions and time, where they were kept; of a sharded directory those of this shard, of which only the root has
    /// any.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        match self {
            Self::File(file) => file.attributes,
            Self::HamtShard(shard) => shard.attributes(),
            Self::Directory { attributes, .. } | Self::Symlink { attributes, .. } => *attributes,
        }
    }
}

/// Reads a block. Byte fields of the result are slices of `data`.
///
/// A raw block is a file. In dag-pb, the types File and Raw are files.
///
/// # Errors
/// [`ErrorKind::Unsupported`] for codecs other than raw and dag-pb, and for the UnixFS type Metadata;
/// [`ErrorKind::InvalidContent`] names the block and says what makes it invalid.
pub fn decode(cid: &Cid, data: &Bytes) -> Result<Node> {
    match cid.codec() {
        codec::RAW => Ok(Node::File(FileNode {
            size: data.len() as u64,
            inline: data.clone(),
            children: Vec::new(),
            attributes: Attributes::default(),
        })),
        codec::DAG_PB => decode_dag_pb(data).map_err(|error| match error.kind() {
            ErrorKind::InvalidInput => Error::invalid_content(format!("block {cid} is not valid UnixFS: {error}")),
            kind => Error::new(kind, format!("block {cid}: {error}")),
        }),
        other => {
            let name = codec::name(other).map_or_else(|| format!("0x{other:x}"), str::to_owned);
            Err(Error::unsupported(format!("block {cid} is {name}, which is not UnixFS (raw or dag-pb)")))
        }
    }
}

/// Bytes of a node, content aside, that are one unit of a task's budget: decoding them takes some microseconds.
const BYTES_PER_TURN: usize = 1024;

/// Bytes of a node, content aside, that a task decodes itself: about a millisecond where the links are as short as they
/// can be, a tenth of that where they are ordinary ones.
const MAX_INLINE_DECODE_BYTES: usize = 32 * 1024;

/// As [`decode`], for tasks of a Tokio runtime: however large nodes are, and however many of them a task decodes one after
/// the other, others run in between. Large nodes are decoded on a thread that may be busy.
///
/// # Errors
/// As [`decode`].
///
/// # Panics
/// Outside of a Tokio runtime, for a large node.
pub async fn decode_async(cid: Cid, data: Bytes) -> Result<Node> {
    let structure = data.len() - content_len(&cid, &data);
    if structure > MAX_INLINE_DECODE_BYTES {
        return Box::pin(in_turns(structure, cid, move || decode(&cid, &data))).await;
    }
    take_turns(structure).await;
    decode(&cid, &data)
}

/// Uses up the budget of a task that is about to read `structure` bytes of a block.
async fn take_turns(structure: usize) {
    for _ in 0..=structure / BYTES_PER_TURN {
        consume_budget().await;
    }
}

/// Does the `work` of reading `structure` bytes of block `cid`, content aside, without keeping other tasks waiting.
pub(crate) async fn in_turns<T: Send + 'static>(
    structure: usize,
    cid: Cid,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if structure > MAX_INLINE_DECODE_BYTES {
        let decoding = AbortOnDropHandle::new(tokio::task::spawn_blocking(work));
        return decoding.await.map_err(|e| Error::internal(format!("decoding block {cid} failed")).with_source(e))?;
    }
    take_turns(structure).await;
    work()
}

/// Bytes of content at the start of a leaf, which decoding does not look at.
fn content_len(cid: &Cid, block: &[u8]) -> usize {
    if cid.codec() == codec::DAG_PB { dag_pb_content_len(block).unwrap_or(0) } else { block.len() }
}

/// The length of `Data.Data` where only the keys of the node's data and of `Data.Type` come before, as in every leaf.
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
    let data = node.data.ok_or_else(|| Error::unsupported("dag-pb node without data, which is not UnixFS"))?;
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

/// The links of a dag-pb block that is not UnixFS at all: without data, or with data that is something else. `None` for one
/// that is, or claims to be.
pub(crate) fn plain_links(block: &Bytes) -> Result<Option<Vec<PbLink>>> {
    let node = dag_pb::decode(block)?;
    let claimed = node.data.and_then(|data| Data::read(data).ok()?.data_type().ok());
    Ok(matches!(claimed, None | Some(DataType::Metadata)).then_some(node.links))
}

fn decode_file(node: &RawNode<'_>, data: &Data) -> Result<FileNode> {
    if node.link_count() != data.blocksizes.len() {
        return Err(Error::invalid(format!("{} links with {} sizes", node.link_count(), data.blocksizes.len())));
    }
    // The sum of all of them, so that none of those below overflows.
    let size = data.file_size()?;
    let inline = data.data.clone().unwrap_or_default();
    let mut end = inline.len() as u64;
    let mut children = Vec::with_capacity(node.link_count());
    for (cid, size) in node.cids().zip(&data.blocksizes) {
        end += size;
        children.push(Child { cid: cid?, size: *size, end });
    }
    Ok(FileNode { size, children, inline, attributes: data.attributes() })
}

impl From<PbLink> for DirEntry {
    fn from(link: PbLink) -> Self {
        Self { name: link.name, cid: link.cid, tsize: link.tsize }
    }
}
