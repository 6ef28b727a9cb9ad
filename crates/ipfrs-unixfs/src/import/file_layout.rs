//! Builders for the nodes of a file, in the layout of its options.

use ipfrs_core::{Block, Result};

use super::layout::{BalancedLayout, Part};
use super::options::{ImportOptions, Layout};
use super::trickle::TrickleLayout;
use crate::data::Attributes;

/// A builder for the nodes of one file, in either layout.
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

    /// Adds the next leaf. Appends the blocks of completed nodes to `nodes`.
    pub(crate) fn push(&mut self, leaf: Part, nodes: &mut Vec<Block>) -> Result<()> {
        match self {
            Self::Balanced(layout) => layout.push(leaf, nodes),
            Self::Trickle(layout) => layout.push(leaf, nodes),
        }
    }

    /// Returns the root above all leaves, with `attributes` unless the root is a leaf. Appends the blocks of the last
    /// nodes to `nodes`.
    pub(crate) fn finish(self, attributes: &Attributes, nodes: &mut Vec<Block>) -> Result<Part> {
        match self {
            Self::Balanced(layout) => layout.finish(attributes, nodes),
            Self::Trickle(layout) => layout.finish(attributes, nodes),
        }
    }
}
