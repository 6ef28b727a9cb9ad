//! The trickle layout: leaves near the root first, for content that is read from its beginning.

use ipfrs_core::{Block, Result};

use super::layout::{Part, file_node};
use super::options::ImportOptions;
use crate::data::Attributes;

/// How many subtrees of each depth a node has, one after the other, as in boxo.
const SUBTREES_OF_A_DEPTH: usize = 4;

/// Builds the tree from the root down, as leaves come: a node takes `max_file_links` leaves, then subtrees of its own
/// kind, four of depth 1, four of depth 2 and so on up to the depth below its own. The root has no limit of depth.
///
/// Even a file of one leaf has a node above it, and an empty file is that node alone. Holds the parts of the nodes on
/// the way from the root to where the next leaf goes, each at most `max_file_links` and four for each level.
#[derive(Debug)]
pub(crate) struct TrickleLayout {
    options: ImportOptions,
    root: OpenNode,
    /// The nodes below the root that are not complete, each the last child of the one before.
    below: Vec<OpenNode>,
}

/// A node that may get more children.
#[derive(Debug)]
struct OpenNode {
    parts: Vec<Part>,
    /// Levels of nodes in the subtree of this one, itself included.
    depth: usize,
}

impl OpenNode {
    fn new(depth: usize) -> Self {
        Self { parts: Vec::new(), depth }
    }

    /// The depth of the next subtree, where a node that has all of its leaves may have one more.
    fn next_subtree(&self, max_leaves: usize) -> Option<usize> {
        let depth = (self.parts.len() - max_leaves) / SUBTREES_OF_A_DEPTH + 1;
        (depth < self.depth).then_some(depth)
    }
}

impl TrickleLayout {
    pub(crate) fn new(options: ImportOptions) -> Self {
        Self { options, root: OpenNode::new(usize::MAX), below: Vec::new() }
    }

    /// Adds the next leaf; blocks of nodes that are complete are added to `nodes`.
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

    /// The root over all leaves, with `attributes`; blocks of the last nodes are added to `nodes`.
    pub(crate) fn finish(mut self, attributes: &Attributes, nodes: &mut Vec<Block>) -> Result<Part> {
        while !self.below.is_empty() {
            self.close(nodes)?;
        }
        file_node(&self.root.parts, attributes, &self.options, nodes)
    }

    /// Makes the deepest node and gives it to the one above.
    fn close(&mut self, nodes: &mut Vec<Block>) -> Result<()> {
        if let Some(node) = self.below.pop() {
            let part = file_node(&node.parts, &Attributes::default(), &self.options, nodes)?;
            self.below.last_mut().unwrap_or(&mut self.root).parts.push(part);
        }
        Ok(())
    }
}
