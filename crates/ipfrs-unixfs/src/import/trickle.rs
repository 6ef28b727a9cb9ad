//! The trickle layout, which puts the first leaves near the root, for content that is read from its beginning.

use ipfrs_core::{Block, Result};

use super::layout::{Part, file_node};
use super::options::ImportOptions;
use crate::data::Attributes;

/// Number of consecutive subtrees of each depth that a node has, as in boxo.
const SUBTREES_OF_A_DEPTH: usize = 4;

/// A builder for the trickle layout. It builds the tree from the root down as leaves are added. A node takes
/// `max_file_links` leaves and then subtrees of the same kind: four of depth 1, four of depth 2, and so on up to one
/// less than its own depth. The depth of the root is not limited.
///
/// Even a file of one leaf has a node above it, and an empty file consists of that node alone. The builder holds the
/// parts of the nodes on the path to the next leaf. Each node has at most `max_file_links` parts plus four for each
/// level.
#[derive(Debug)]
pub(crate) struct TrickleLayout {
    options: ImportOptions,
    root: OpenNode,
    /// The unfinished nodes below the root, each the last child of the one before.
    below: Vec<OpenNode>,
}

/// A node that may get more children.
#[derive(Debug)]
struct OpenNode {
    parts: Vec<Part>,
    /// Number of node levels in the subtree of this node, including the node itself.
    depth: usize,
}

impl OpenNode {
    fn new(depth: usize) -> Self {
        Self { parts: Vec::new(), depth }
    }

    /// Returns the depth of the next subtree, if a node that has all of its leaves may have another one.
    fn next_subtree(&self, max_leaves: usize) -> Option<usize> {
        let depth = (self.parts.len() - max_leaves) / SUBTREES_OF_A_DEPTH + 1;
        (depth < self.depth).then_some(depth)
    }
}

impl TrickleLayout {
    pub(crate) fn new(options: ImportOptions) -> Self {
        Self { options, root: OpenNode::new(usize::MAX), below: Vec::new() }
    }

    /// Adds the next leaf. Appends the blocks of completed nodes to `nodes`.
    pub(crate) fn push(&mut self, leaf: Part, nodes: &mut Vec<Block>) -> Result<()> {
        let max_leaves = self.options.max_file_links;
        loop {
            let node = self.below.last_mut().unwrap_or(&mut self.root);
            if node.parts.len() < max_leaves {
                node.parts.push(leaf);
                return Ok(());
            }
            match node.next_subtree(max_leaves) {
                Some(depth) => self.below.push(OpenNode::new(depth)),
                None => self.close(nodes)?,
            }
        }
    }

    /// Returns the root above all leaves, with `attributes`. Appends the blocks of the last nodes to `nodes`.
    pub(crate) fn finish(mut self, attributes: &Attributes, nodes: &mut Vec<Block>) -> Result<Part> {
        while !self.below.is_empty() {
            self.close(nodes)?;
        }
        file_node(&self.root.parts, attributes, &self.options, nodes)
    }

    /// Creates the deepest unfinished node and adds it to its parent.
    fn close(&mut self, nodes: &mut Vec<Block>) -> Result<()> {
        if let Some(node) = self.below.pop() {
            let part = file_node(&node.parts, &Attributes::default(), &self.options, nodes)?;
            self.below.last_mut().unwrap_or(&mut self.root).parts.push(part);
        }
        Ok(())
    }
}
