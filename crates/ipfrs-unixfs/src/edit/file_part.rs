//! A node of a file that is being changed.

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use prost::Message;

use super::cid_format::CidFormat;
use super::staging::{NewLink, Staging};
use crate::dag_pb::{self, PbLink};
use crate::data::{Data, DataType, WireMtime};
use crate::import::Part;
use crate::link_name::LinkName;

/// Most levels of a file's tree that a change follows.
pub(super) const MAX_DEPTH: usize = 128;

/// A node of a file that is being changed.
#[derive(Debug, Clone)]
pub(super) enum FilePart {
    /// A raw block.
    Raw { data: Bytes, format: CidFormat },
    /// A dag-pb node with UnixFS data.
    Node(FileNode),
}

/// A dag-pb node of a file. There is a link for each of `data.blocksizes`.
#[derive(Debug, Clone)]
pub(super) struct FileNode {
    pub(super) links: Vec<PbLink>,
    pub(super) data: Data,
    pub(super) format: CidFormat,
}

impl FilePart {
    /// Loads a node and checks that its sizes are consistent.
    pub(super) async fn load(staging: &Staging, cid: &Cid) -> Result<Self> {
        Self::decode(cid, &staging.load(cid).await?)
    }

    pub(super) fn decode(cid: &Cid, block: &Bytes) -> Result<Self> {
        let format = CidFormat::of(cid)?;
        let data = match cid.codec() {
            codec::RAW => return Ok(Self::Raw { data: block.clone(), format }),
            codec::DAG_PB => dag_pb::decode(block)?,
            _ => return Err(Error::unsupported("unrecognized node type")),
        };
        let links = data.links;
        let data = Data::read(data.data.unwrap_or_default())?;
        match data.data_type()? {
            DataType::File | DataType::Raw => {}
            DataType::Symlink => return Err(Error::unsupported("symlinks not yet supported")),
            DataType::Directory | DataType::HamtShard | DataType::Metadata => {
                return Err(Error::unsupported("unsupported fsnode type for 'file'"));
            }
        }
        data.file_size()?;
        if links.len() != data.blocksizes.len() {
            let (links, sizes) = (links.len(), data.blocksizes.len());
            return Err(Error::invalid_content(format!("block {cid} has {links} links with {sizes} sizes")));
        }
        Ok(Self::Node(FileNode { links, data, format }))
    }

    /// Returns the number of file bytes below this node.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Raw { data, .. } => data.len() as u64,
            Self::Node(node) => node.size(),
        }
    }

    /// Creates the block, without delaying the runtime for a long one.
    pub(super) async fn block(&self) -> Result<Block> {
        match self {
            Self::Raw { data, format } => format.block_in_turn(codec::RAW, data.clone()).await,
            Self::Node(node) => node.format.block_in_turn(codec::DAG_PB, node.encode()).await,
        }
    }

    /// Creates the block and adds it to `staging`.
    pub(super) async fn commit(&self, staging: &mut Staging) -> Result<NewLink> {
        let block = self.block().await?;
        let links = match self {
            Self::Raw { .. } => &[][..],
            Self::Node(node) => &node.links,
        };
        let tsize = links.iter().fold(block.data().len() as u64, |sum, link| sum.saturating_add(link.tsize));
        let cid = *block.cid();
        staging.insert(block);
        Ok(NewLink { cid, tsize })
    }
}

impl FileNode {
    /// Creates a node without content.
    pub(super) fn empty(format: CidFormat) -> Self {
        let data = Data { type_code: Some(DataType::File.code()), filesize: Some(0), ..Data::default() };
        Self { links: Vec::new(), data, format }
    }

    pub(super) fn encode(&self) -> Bytes {
        dag_pb::encode(&self.links, &self.data.encode_to_vec())
    }

    pub(super) fn size(&self) -> u64 {
        self.inline_bytes().saturating_add(self.data.blocksizes.iter().fold(0, |sum, size| sum.saturating_add(*size)))
    }

    /// Returns the number of content bytes in the node itself.
    pub(super) fn inline_bytes(&self) -> u64 {
        self.data.data.as_ref().map_or(0, Bytes::len) as u64
    }

    /// Appends a child.
    pub(super) fn push(&mut self, part: &Part) {
        self.links.push(PbLink { cid: part.cid, name: LinkName::default(), tsize: part.tsize });
        self.data.blocksizes.push(part.size);
        self.data.filesize = Some(self.size());
    }

    /// Removes the last child.
    pub(super) fn pop(&mut self) {
        self.links.pop();
        self.data.blocksizes.pop();
        self.data.filesize = Some(self.size());
    }

    /// Sets the modification time to `now` if the node has one.
    pub(super) fn touch(&mut self, now: &WireMtime) {
        if self.data.attributes().mtime.is_some() {
            self.data.mtime = Some(now.clone());
        }
    }

    /// Creates the block of a node without long content and adds it to `staging`.
    pub(super) fn commit_inline(self, staging: &mut Staging) -> Result<Part> {
        let size = self.size();
        let block = self.format.block(codec::DAG_PB, self.encode())?;
        let tsize = self.links.iter().fold(block.data().len() as u64, |sum, link| sum.saturating_add(link.tsize));
        let cid = *block.cid();
        staging.insert(block);
        Ok(Part { cid, size, tsize })
    }
}
