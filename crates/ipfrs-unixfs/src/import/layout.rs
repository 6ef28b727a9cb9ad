//! Which nodes stand above the leaves of a file; the balanced layout.

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use prost::Message;

use super::options::{ImportOptions, Layout};
use super::trickle::TrickleLayout;
use crate::dag_pb::{self, PbLink};
use crate::data::{Data, DataType};

/// The root of a part of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) cid: Cid,
    /// Bytes of the file in it.
    pub(crate) size: u64,
    /// Bytes of all of its blocks.
    pub(crate) tsize: u64,
}

/// Builds the nodes of one file, in either layout.
#[derive(Debug)]
pub(crate) enum FileLayout {
    Balanced(BalancedLayout),
    Trickle(TrickleLayout),
}

impl FileLayout {
    pub(crate) fn new(options: ImportOptions) -> Self {
        match options.layout {
            Layout::Balanced => Self::Balanced(BalancedLayout::new(options)),
            Layout::Trickle => Self::Trickle(TrickleLayout::new(options)),
        }
    }

    /// Adds the next leaf; blocks of nodes that are complete are added to `nodes`.
    pub(crate) fn push(&mut self, leaf: Part, nodes: &mut Vec<Block>) -> Result<()> {
        match self {
            Self::Balanced(layout) => layout.push(leaf, nodes),
            Self::Trickle(layout) => layout.push(leaf, nodes),
        }
    }

    /// The root over all leaves; blocks of the last nodes are added to `nodes`.
    pub(crate) fn finish(self, nodes: &mut Vec<Block>) -> Result<Part> {
        match self {
            Self::Balanced(layout) => layout.finish(nodes),
            Self::Trickle(layout) => layout.finish(nodes),
        }
    }
}

/// Builds the tree from the leaves up, as they come: a node is made once it has all of the children that it may have.
///
/// All leaves are equally deep and a file of one leaf is that leaf, as in boxo's balanced builder. Holds at most
/// `max_file_links` parts for each level of the tree.
#[derive(Debug)]
pub(crate) struct BalancedLayout {
    options: ImportOptions,
    /// Children that wait for their parent, by their height above the leaves.
    waiting: Vec<Vec<Part>>,
}

impl BalancedLayout {
    fn new(options: ImportOptions) -> Self {
        Self { options, waiting: Vec::new() }
    }

    fn push(&mut self, leaf: Part, nodes: &mut Vec<Block>) -> Result<()> {
        let mut part = leaf;
        for height in 0.. {
            if height == self.waiting.len() {
                self.waiting.push(Vec::new());
            }
            self.waiting[height].push(part);
            if self.waiting[height].len() < self.options.max_file_links {
                break;
            }
            part = self.join(height, nodes)?;
        }
        Ok(())
    }

    fn finish(mut self, nodes: &mut Vec<Block>) -> Result<Part> {
        let mut height = 0;
        while height < self.waiting.len() {
            let is_top = height + 1 == self.waiting.len();
            match self.waiting[height].as_slice() {
                [root] if is_top => return Ok(*root),
                [] => {}
                _ => {
                    let part = self.join(height, nodes)?;
                    match self.waiting.get_mut(height + 1) {
                        Some(above) => above.push(part),
                        None => self.waiting.push(vec![part]),
                    }
                }
            }
            height += 1;
        }
        Err(Error::internal("a file without leaves"))
    }

    /// Makes the parent of the parts that wait at `height`.
    fn join(&mut self, height: usize, nodes: &mut Vec<Block>) -> Result<Part> {
        let parts = std::mem::take(&mut self.waiting[height]);
        let (block, part) = file_node(&parts, &self.options)?;
        nodes.push(block);
        Ok(part)
    }
}

/// The node above `parts`, which may be none.
pub(crate) fn file_node(parts: &[Part], options: &ImportOptions) -> Result<(Block, Part)> {
    let size = parts.iter().map(|part| part.size).sum();
    let data = Data {
        type_code: Some(DataType::File.code()),
        filesize: Some(size),
        blocksizes: parts.iter().map(|part| part.size).collect(),
        ..Data::default()
    };
    let links: Vec<_> =
        parts.iter().map(|part| PbLink { cid: part.cid, name: String::new(), tsize: part.tsize }).collect();
    let (block, tsize) = node_block(&links, &data, options)?;
    let part = Part { cid: *block.cid(), size, tsize };
    Ok((block, part))
}

/// The block of a dag-pb node, and the bytes of it and of all blocks below.
pub(crate) fn node_block(links: &[PbLink], data: &Data, options: &ImportOptions) -> Result<(Block, u64)> {
    let encoded: Bytes = dag_pb::encode(links, &data.encode_to_vec());
    let tsize = links.iter().map(|link| link.tsize).fold(encoded.len() as u64, u64::saturating_add);
    Ok((options.block(codec::DAG_PB, encoded)?, tsize))
}
