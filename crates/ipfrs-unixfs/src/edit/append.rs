//! Growth of files at their end, in the trickle layout.

use std::collections::VecDeque;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use ipfrs_core::{Block, Error, Result, codec};
use prost::Message;
use tokio::task::spawn_blocking;

use super::cid_format::CidFormat;
use super::file_part::{FileNode, FilePart, MAX_DEPTH};
use super::staging::Staging;
use crate::dag_pb;
use crate::data::{Data, DataType, WireMtime};
use crate::import::{Chunker, Part};

/// Leaves of a node before its subtrees, as in boxo. The import options do not apply.
const MAX_LEAVES: usize = 174;
/// Number of consecutive subtrees of equal depth, as in boxo.
const SUBTREES_OF_A_DEPTH: usize = 4;

/// Size in bytes below which content is hashed on the runtime's thread.
const MAX_INLINE_BYTES: usize = 32 * 1024;

/// The leaves that are to be appended.
pub(super) enum Leaves {
    /// Hashed leaves with content.
    Content(VecDeque<Part>),
    /// Zeros. Equal leaves are one block.
    Zeros { full: Box<Part>, count: u64, last: Option<Box<Part>> },
}

impl Leaves {
    /// Splits each of `parts` into leaves by itself, hashes the leaves of all parts together, and adds them to
    /// `staging`. All but little content is processed on a blocking thread.
    pub(super) async fn of_parts(
        staging: &mut Staging,
        parts: Vec<Vec<Bytes>>,
        chunker: Chunker,
        format: CidFormat,
        is_raw: bool,
    ) -> Result<Vec<Self>> {
        let is_little = parts.iter().flatten().map(Bytes::len).sum::<usize>() < MAX_INLINE_BYTES;
        let hash = move || {
            let chunks: Vec<_> = parts.into_iter().map(|part| chunker.split(part)).collect();
            let counts: Vec<_> = chunks.iter().map(Vec::len).collect();
            Ok::<_, Error>((counts, leaves(chunks.into_iter().flatten().collect(), format, is_raw)?))
        };
        let (counts, hashed) = if is_little {
            hash()?
        } else {
            spawn_blocking(hash)
                .await
                .map_err(|e| Error::internal("a task that hashes leaves failed").with_source(e))??
        };
        let mut hashed = hashed.into_iter().map(|(block, part)| {
            staging.insert(block);
            part
        });
        Ok(counts.into_iter().map(|count| Self::Content(hashed.by_ref().take(count).collect())).collect())
    }

    /// Returns leaves of `size` zeros in total.
    pub(super) fn of_zeros(
        staging: &mut Staging,
        size: u64,
        chunk_bytes: usize,
        format: CidFormat,
        is_raw: bool,
    ) -> Result<Self> {
        let mut zeros = |len: usize| {
            let hashed = leaves(vec![Bytes::from(vec![0; len])], format, is_raw)?.pop();
            let (block, part) = hashed.ok_or_else(|| Error::internal("a leaf was not hashed"))?;
            staging.insert(block);
            Ok::<_, Error>(part)
        };
        let (count, rest) = (size / chunk_bytes as u64, size % chunk_bytes as u64);
        let last = (rest > 0).then(|| zeros(rest as usize)).transpose()?;
        match (count, last) {
            (0, Some(last)) => Ok(Self::Content(VecDeque::from([last]))),
            (count, last) => Ok(Self::Zeros { full: Box::new(zeros(chunk_bytes)?), count, last: last.map(Box::new) }),
        }
    }

    fn next(&mut self) -> Option<Part> {
        match self {
            Self::Content(parts) => parts.pop_front(),
            Self::Zeros { count: 0, last, .. } => last.take().map(|last| *last),
            Self::Zeros { full, count, .. } => {
                *count -= 1;
                Some(**full)
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Content(parts) => parts.is_empty(),
            Self::Zeros { count, last, .. } => *count == 0 && last.is_none(),
        }
    }
}

/// Hashes leaves with the content of `chunks`, in order.
fn leaves(chunks: Vec<Bytes>, format: CidFormat, is_raw: bool) -> Result<Vec<(Block, Part)>> {
    let sizes: Vec<_> = chunks.iter().map(|chunk| chunk.len() as u64).collect();
    let blocks = match is_raw {
        true => format.blocks(codec::RAW, chunks)?,
        false => format.blocks(codec::DAG_PB, chunks.into_iter().map(dag_pb_leaf).collect())?,
    };
    let hashed = blocks.into_iter().zip(sizes).map(|(block, size)| {
        let part = Part { cid: *block.cid(), size, tsize: block.data().len() as u64 };
        (block, part)
    });
    Ok(hashed.collect())
}

fn dag_pb_leaf(chunk: Bytes) -> Bytes {
    let size = chunk.len() as u64;
    let data =
        Data { type_code: Some(DataType::Raw.code()), data: Some(chunk), filesize: Some(size), ..Data::default() };
    dag_pb::encode(&[], &data.encode_to_vec())
}

/// An append to a file in progress. It follows boxo's `trickle.Append` step by step, because content IDs depend on
/// them: an append that begins a new level continues one depth deeper than an import of the same content.
pub(super) struct Append<'a> {
    pub(super) staging: &'a mut Staging,
    pub(super) leaves: Leaves,
    /// Format of new nodes.
    pub(super) format: CidFormat,
    pub(super) now: &'a WireMtime,
}

impl Append<'_> {
    /// Appends all leaves below `root`. The caller commits the root.
    pub(super) async fn run(&mut self, root: &mut FileNode) -> Result<()> {
        let (mut depth, repeated) = next_subtree(root);
        if depth == 0 {
            self.fill_leaves(root);
            if self.leaves.is_empty() {
                root.touch(self.now);
                return Ok(());
            }
            depth = 1;
        }
        self.fill_last_child(root, depth - 1, repeated, 0).await?;
        if !self.leaves.is_empty() {
            depth += 1;
        }
        self.fill_subtrees(root, depth, i64::MAX)
    }

    /// Adds leaves to the node until it has its share.
    fn fill_leaves(&mut self, node: &mut FileNode) {
        while node.links.len() < MAX_LEAVES
            && let Some(leaf) = self.leaves.next()
        {
            node.push(&leaf);
        }
    }

    /// Adds subtrees of the depths from `first` to below `end`, four of each.
    fn fill_subtrees(&mut self, node: &mut FileNode, first: i64, end: i64) -> Result<()> {
        let mut depth = first;
        while depth < end && !self.leaves.is_empty() {
            self.fill_depth(node, depth, 0)?;
            depth += 1;
        }
        Ok(())
    }

    /// Adds subtrees of `depth`, of which the node has `repeated`.
    fn fill_depth(&mut self, node: &mut FileNode, depth: i64, repeated: usize) -> Result<()> {
        for _ in repeated..SUBTREES_OF_A_DEPTH {
            if self.leaves.is_empty() {
                break;
            }
            let subtree = self.subtree(depth)?;
            node.push(&subtree);
        }
        Ok(())
    }

    /// Creates a subtree with leaves, and below them subtrees of all smaller depths.
    fn subtree(&mut self, depth: i64) -> Result<Part> {
        let mut node = FileNode::empty(self.format);
        self.fill_leaves(&mut node);
        self.fill_subtrees(&mut node, 1, depth)?;
        node.commit_inline(self.staging)
    }

    /// Continues the last child of a node, and then adds the missing ones of the same depth.
    fn fill_last_child<'a>(
        &'a mut self,
        node: &'a mut FileNode,
        depth: i64,
        repeated: usize,
        level: usize,
    ) -> BoxFuture<'a, Result<()>> {
        async move {
            if level > MAX_DEPTH {
                return Err(Error::invalid_content(format!("the file has more than {MAX_DEPTH} levels")));
            }
            let Some(last) = node.links.last().filter(|_| node.links.len() > MAX_LEAVES) else { return Ok(()) };
            let FilePart::Node(mut child) = FilePart::load(self.staging, &last.cid).await? else {
                return Err(Error::invalid_content("expected protobuf dag node"));
            };
            self.fill(&mut child, depth - 1, level + 1).await?;
            let part = child.commit_inline(self.staging)?;
            node.pop();
            node.push(&part);
            if repeated != 0 { self.fill_depth(node, depth, repeated) } else { Ok(()) }
        }
        .boxed()
    }

    /// Continues a subtree up to subtrees of a depth below `end`.
    async fn fill(&mut self, node: &mut FileNode, end: i64, level: usize) -> Result<()> {
        if end == 0 || self.leaves.is_empty() {
            return Ok(());
        }
        let (mut depth, repeated) = next_subtree(node);
        if depth == 0 {
            self.fill_leaves(node);
            depth = 1;
        }
        if depth == end {
            return Ok(());
        }
        self.fill_last_child(node, depth, repeated, level).await?;
        if !self.leaves.is_empty() {
            depth += 1;
        }
        self.fill_subtrees(node, depth, end)
    }
}

/// Returns the depth of the next subtree of a node, or 0 if it is not full of leaves, and the number of subtrees of
/// that depth that it has.
fn next_subtree(node: &FileNode) -> (i64, usize) {
    match node.links.len().checked_sub(MAX_LEAVES) {
        None => (0, 0),
        Some(subtrees) => ((subtrees / SUBTREES_OF_A_DEPTH + 1) as i64, subtrees % SUBTREES_OF_A_DEPTH),
    }
}
