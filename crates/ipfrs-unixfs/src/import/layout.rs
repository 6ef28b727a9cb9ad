//! The arrangement of nodes above the leaves of a file, and the balanced layout.

use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, Result, codec};
use prost::Message;

use super::options::ImportOptions;
use crate::dag_pb::{self, PbLink};
use crate::data::{Attributes, Data, DataType};
use crate::link_name::LinkName;

/// The root of a part of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) cid: Cid,
    /// Number of file bytes in this part.
    pub(crate) size: u64,
    /// Total size of all blocks of this part, in bytes.
    pub(crate) tsize: u64,
}

/// A builder for a balanced tree. It builds the tree bottom-up as leaves are added, and creates a node once more
/// children exist than the node may have.
///
/// All leaves have equal depth, and a file of one leaf consists of that leaf, as in boxo's balanced builder. The
/// builder holds at most `max_file_links` parts for each level of the tree.
#[derive(Debug)]
pub(crate) struct BalancedLayout {
    options: ImportOptions,
    /// Children without a parent, by their height above the leaves. No level is empty. No node above the last leaf
    /// exists yet, so [`finish`](Self::finish) creates the root.
    waiting: Vec<Vec<Part>>,
}

impl BalancedLayout {
    pub(crate) fn new(options: ImportOptions) -> Self {
        Self { options, waiting: Vec::new() }
    }

    /// Adds the next leaf. Appends the blocks of completed nodes to `nodes`.
    pub(crate) fn push(&mut self, leaf: Part, nodes: &mut Vec<Block>) -> Result<()> {
        self.insert(0, leaf, nodes)
    }

    /// Returns the root above all leaves, with `attributes` unless the root is a leaf.
    pub(crate) fn finish(mut self, attributes: &Attributes, nodes: &mut Vec<Block>) -> Result<Part> {
        let mut height = 0;
        while let Some(parts) = self.waiting.get_mut(height).map(std::mem::take) {
            match parts.as_slice() {
                [leaf] if self.waiting.len() == 1 => return Ok(*leaf),
                parts if height + 1 == self.waiting.len() => return file_node(parts, attributes, &self.options, nodes),
                parts => {
                    let part = file_node(parts, &Attributes::default(), &self.options, nodes)?;
                    height += 1;
                    self.insert(height, part, nodes)?;
                }
            }
        }
        Err(Error::internal("a file without leaves"))
    }

    /// Adds a part at `height`. The parts of a full level become one part of the level above.
    fn insert(&mut self, height: usize, mut part: Part, nodes: &mut Vec<Block>) -> Result<()> {
        for height in height.. {
            let Some(level) = self.waiting.get_mut(height) else {
                self.waiting.push(vec![part]);
                break;
            };
            if level.len() < self.options.max_file_links {
                level.push(part);
                break;
            }
            let full = std::mem::replace(level, vec![part]);
            part = file_node(&full, &Attributes::default(), &self.options, nodes)?;
        }
        Ok(())
    }
}

/// Creates the node above `parts`, which may be empty, and appends its block to `nodes`.
pub(crate) fn file_node(
    parts: &[Part],
    attributes: &Attributes,
    options: &ImportOptions,
    nodes: &mut Vec<Block>,
) -> Result<Part> {
    let size = parts.iter().map(|part| part.size).sum();
    let data = Data {
        type_code: Some(DataType::File.code()),
        filesize: Some(size),
        blocksizes: parts.iter().map(|part| part.size).collect(),
        ..Data::default()
    };
    let links: Vec<_> =
        parts.iter().map(|part| PbLink { cid: part.cid, name: LinkName::default(), tsize: part.tsize }).collect();
    let (block, tsize) = node_block(&links, &data.with_attributes(attributes), options)?;
    let part = Part { cid: *block.cid(), size, tsize };
    nodes.push(block);
    Ok(part)
}

/// Returns the block of a dag-pb node, and the total size of the block and all blocks below it.
pub(crate) fn node_block(links: &[PbLink], data: &Data, options: &ImportOptions) -> Result<(Block, u64)> {
    let encoded: Bytes = dag_pb::encode(links, &data.encode_to_vec());
    let tsize = links.iter().map(|link| link.tsize).fold(encoded.len() as u64, u64::saturating_add);
    Ok((options.block(codec::DAG_PB, encoded)?, tsize))
}
