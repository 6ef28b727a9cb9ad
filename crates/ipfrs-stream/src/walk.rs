//! The order in which the blocks of a file are read, and the checks that each block must pass.

use std::fmt;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, Result, codec};
use ipfrs_unixfs::{Child, Children, FileNode};

use crate::{Span, StreamingConfig};

/// Most links of unfinished nodes that one walk keeps in memory: about 8 MB, if a hostile file uses them all. The
/// limit allows for three nodes of the largest block size with ordinary links.
const MAX_OPEN_LINKS: usize = 128 * 1024;

/// Approximate memory of a link in a frame, in bytes.
const LINK_BYTES: usize = 64;

/// Most blocks that are requested from the store at once.
const MAX_RUN_BLOCKS: usize = 256;

/// A depth-first walk over the nodes of a file that have bytes in a span. The walk performs no I/O:
/// [`plan`](Self::plan) returns the next blocks, and [`accept`](Self::accept) takes them one by one, in order.
///
/// The walk never visits nodes without bytes in the span, and therefore no empty nodes. Each visited node leads to at
/// least one byte within [`StreamingConfig::max_dag_depth`] steps, so a walk always ends.
#[derive(Debug)]
pub(crate) struct Walk {
    span: Span,
    config: StreamingConfig,
    frames: Vec<Frame>,
    /// Number of links in all frames.
    open_links: usize,
    /// Size of the largest leaf so far. A child of at most this size is expected to be a leaf too.
    leaf_bytes: u64,
    /// Most blocks of the next run. After an interrupted run, only few blocks are requested. A file with inner nodes
    /// that look like leaves therefore does not make the store look up hundreds of blocks for each one that is read.
    run_blocks: usize,
}

/// A node whose children are being read.
#[derive(Debug)]
struct Frame {
    /// The children that have bytes in the span.
    children: Children,
    /// Index of the first child that has not been requested.
    next: usize,
    /// Index of the first child that has not been accepted.
    pending: usize,
    /// Offset in the file of the first byte of the child at `pending`.
    offset: u64,
    depth: usize,
}

impl Frame {
    /// Returns the child that must be accepted next.
    fn expected(&self) -> Option<Child> {
        self.children.get(self.pending).filter(|_| self.pending < self.next)
    }
}

/// The result of accepting a block.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// Bytes of the file, within the span, that the block itself holds.
    pub(crate) data: Bytes,
    /// Whether the node has children, which precede the rest of the run. The rest must be requested again later.
    pub(crate) interrupts: bool,
}

impl Walk {
    /// Starts a walk at the root of a file. The second value is the part of the span that the root itself holds.
    pub(crate) fn new(root: &FileNode, span: Span, config: &StreamingConfig) -> Result<(Self, Bytes)> {
        if span.end() > root.size {
            let (start, end, size) = (span.start, span.end(), root.size);
            return Err(Error::invalid(format!("bytes {start} to {end} were requested from a file of {size} bytes")));
        }
        let config = config.clone();
        let mut walk =
            Self { span, config, frames: Vec::new(), open_links: 0, leaf_bytes: 0, run_blocks: MAX_RUN_BLOCKS };
        let data = walk.open(root, &"the root of the file", 0, 0)?;
        Ok((walk, data))
    }

    /// Returns the next blocks to request, in the order in which the caller must accept them: one block, and as many
    /// more as hold `budget` file bytes together. Returns `None` when all blocks have been accepted.
    ///
    /// Leaves are requested together. A node that has, or may have, children is requested alone, because its children
    /// precede its siblings.
    pub(crate) fn plan(&mut self, budget: u64) -> Option<Vec<Cid>> {
        while let Some(done) = self.frames.pop_if(|frame| frame.pending == frame.children.len()) {
            self.open_links -= done.children.len();
        }
        let leaf_bytes = self.leaf_bytes;
        let is_leaf = |child: &Child| child.cid.codec() == codec::RAW || child.size <= leaf_bytes;
        let frame = self.frames.last_mut()?;
        let first = frame.children.get(frame.next)?;
        let mut run = vec![first.cid];
        if is_leaf(&first) {
            let mut left = budget.saturating_sub(first.size);
            for sibling in frame.children.iter_from(frame.next + 1).take(self.run_blocks - 1) {
                if !is_leaf(&sibling) || sibling.size > left {
                    break;
                }
                left -= sibling.size;
                run.push(sibling.cid);
            }
        }
        frame.next += run.len();
        self.run_blocks = (self.run_blocks * 2).min(MAX_RUN_BLOCKS);
        Some(run)
    }

    /// Returns the block that must be accepted next.
    pub(crate) fn expected(&self) -> Option<Cid> {
        Some(self.frames.last()?.expected()?.cid)
    }

    /// Returns the approximate memory of the links of unfinished nodes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.open_links * LINK_BYTES
    }

    /// Returns the error for a requested block that cannot be accepted, either because the store does not have it or
    /// because it is not part of a file.
    pub(crate) fn refusal(&self, is_there: bool) -> Error {
        let (Some(cid), Some(frame)) = (self.expected(), self.frames.last()) else { return unrequested_block() };
        if is_there {
            return Error::invalid_content(format!("block {cid} is part of a file, but is not a file node"));
        }
        Error::no_block(&cid, format!("block {cid} is not in this store (byte {} of the file)", frame.offset))
    }

    /// Accepts the next requested block, decoded as `node`.
    pub(crate) fn accept(&mut self, node: &FileNode) -> Result<Accepted> {
        let frame = self.frames.last_mut().ok_or_else(unrequested_block)?;
        let Child { cid, size, .. } = frame.expected().ok_or_else(unrequested_block)?;
        let (offset, depth) = (frame.offset, frame.depth);
        if node.size != size {
            let found = node.size;
            return Err(Error::invalid_content(format!(
                "block {cid} has {found} file bytes, but its parent declares {size}"
            )));
        }
        frame.pending += 1;
        frame.offset += size;
        let interrupts = !node.children.is_empty();
        if interrupts {
            if frame.next > frame.pending {
                self.run_blocks = 1;
            }
            frame.next = frame.pending;
        } else {
            self.leaf_bytes = self.leaf_bytes.max(size);
        }
        let data = self.open(node, &format_args!("block {cid}"), offset, depth)?;
        Ok(Accepted { data, interrupts })
    }

    /// Checks a node that begins at `offset` of the file, pushes a frame for its children and returns the content of
    /// the node itself.
    fn open(&mut self, node: &FileNode, name: &dyn fmt::Display, offset: u64, depth: usize) -> Result<Bytes> {
        let inline = node.inline.len() as u64;
        let found = node.children.end().unwrap_or(inline);
        if found != node.size {
            let said = node.size;
            return Err(Error::invalid_content(format!("{name} declares {said} bytes, but its parts have {found}")));
        }
        if !node.children.is_empty() {
            self.forget_accepted();
        }
        let inline_end = offset + inline;
        let data = match self.span.overlap(offset, inline_end) {
            Some((from, to)) => node.inline.slice((from - offset) as usize..(to - offset) as usize),
            None => Bytes::new(),
        };
        let (mut first_offset, mut children) = (None, Children::default());
        let first_byte = self.span.start.saturating_sub(offset);
        for index in node.children.first_past(first_byte).. {
            let Some((size, end)) = node.children.extent(index) else { break };
            // The decoder checks that the sizes of the children add up. In a node from any other source, an
            // inconsistent child has no bytes.
            let start = offset + end.saturating_sub(size);
            if start >= self.span.end() {
                break;
            }
            if self.span.overlap(start, start.saturating_add(size)).is_some() {
                first_offset.get_or_insert(start);
                self.check_limits(name, depth + 1, self.open_links + children.len() + 1)?;
                children.push_from(&node.children, index);
            }
        }
        if let Some(offset) = first_offset {
            self.open_links += children.len();
            self.frames.push(Frame { children, next: 0, pending: 0, offset, depth: depth + 1 });
        }
        Ok(data)
    }

    /// Drops the accepted children of the innermost node before the walk descends. A chain of nodes in which each
    /// node ends in the next one therefore takes no memory.
    fn forget_accepted(&mut self) {
        let Some(frame) = self.frames.last_mut() else { return };
        let accepted = frame.pending;
        if accepted == frame.children.len() {
            self.open_links -= accepted;
            self.frames.pop();
        } else if 2 * accepted >= frame.children.len() {
            self.open_links -= accepted;
            frame.children.remove_first(accepted);
            frame.next -= accepted;
            frame.pending = 0;
        }
    }

    fn check_limits(&self, name: &dyn fmt::Display, depth: usize, open_links: usize) -> Result<()> {
        if depth > self.config.max_dag_depth as usize {
            return Err(self.config.too_deep("the file", name));
        }
        if open_links > MAX_OPEN_LINKS {
            let why = format!("the nodes above {name} have more than the limit of {MAX_OPEN_LINKS} links");
            return Err(Error::too_large(why));
        }
        Ok(())
    }
}

fn unrequested_block() -> Error {
    Error::internal("received a block that was not requested")
}
