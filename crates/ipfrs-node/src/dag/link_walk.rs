//! Walk over the links of DAGs, depth first, in the order of the blocks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Cid, CidList, Error, Result};
use ipfrs_store::BlockStore;
use ipfrs_stream::Part;
use ipfrs_unixfs::{LinkName, link_names, links};
use tokio::task::coop::consume_budget;

use super::INLINE_DECODE_BYTES;
use super::reachable::can_link;
use crate::fingerprint::{ByItself, Fingerprints};
use crate::{ContentPath, Node, RequestContext, current_context, within_context};

/// Number of links whose blocks are looked up together.
const LOOKUPS: usize = 1_024;

/// Maximum memory of the links that are still to be followed, in bytes.
const MAX_HELD_BYTES: usize = 160 * 1024 * 1024;

/// Options of [`Node::dag_links`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkWalkOptions {
    /// Whether each target is returned only once.
    pub unique: bool,
    /// Maximum number of links between a root and a target; no limit if `None`.
    pub max_depth: Option<u64>,
    /// Whether the names of links are read.
    pub names: bool,
}

/// Link from a block to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagLink {
    /// Block that contains the link.
    pub from: Cid,
    /// Target of the link.
    pub to: Cid,
    /// Name of the link. Empty if the codec has no names, or if names are not read.
    pub name: LinkName,
}

impl Node {
    /// Returns the links below the targets of `paths`, depth first. The blocks of returned links are in the store, or
    /// were retrieved. An error ends the walk below one path, and the walk continues with the next path.
    ///
    /// The walk holds the links on the way to the current one, and some 40 bytes for each visited block with
    /// [`LinkWalkOptions::unique`].
    ///
    /// # Errors
    /// As [`Self::resolve_dag`].
    pub async fn dag_links(
        &self,
        paths: Vec<ContentPath>,
        options: LinkWalkOptions,
    ) -> Result<BoxStream<'static, Result<DagLink>>> {
        let mut roots = Vec::with_capacity(paths.len());
        for path in paths {
            // A missing root is an error of the walk.
            roots.push(if path.segments().is_empty() { *path.root() } else { self.resolve_dag(path).await?.cid });
        }
        let walk = LinkWalk {
            node: self.clone(),
            store: self.inner.served.clone(),
            context: current_context(),
            options,
            roots: roots.into_iter(),
            frames: Vec::new(),
            held: 0,
            fingerprints: Fingerprints::default(),
            depths: HashMap::default(),
        };
        Ok(unfold(walk, |mut walk| async move { Some((walk.next().await?, walk)) }).boxed())
    }
}

struct LinkWalk {
    node: Node,
    /// Store from which the DAG below the current root is read.
    store: Arc<dyn BlockStore>,
    /// Context of the request, which has been handled when its links are read.
    context: RequestContext,
    options: LinkWalkOptions,
    roots: std::vec::IntoIter<Cid>,
    /// Blocks whose links are being followed, outermost first.
    frames: Vec<Frame>,
    /// Memory of `frames`, in bytes.
    held: usize,
    fingerprints: Fingerprints,
    /// Smallest depth at which each block was visited.
    depths: HashMap<u128, u64, ByItself>,
}

/// Block whose links are being followed.
struct Frame {
    cid: Cid,
    depth: u64,
    links: CidList,
    names: Vec<LinkName>,
    /// Position of the next link in `links`, in bytes and in links.
    offset: usize,
    index: usize,
    /// Number of links whose blocks were looked up.
    looked_up: usize,
    /// Links among them whose blocks are not in the store.
    absent: HashSet<usize>,
    /// Memory of the links and names at the beginning, in bytes.
    memory: usize,
}

impl Frame {
    fn new(cid: Cid, depth: u64, links: CidList, names: Vec<LinkName>) -> Self {
        let name_bytes = names.iter().map(|name| name.len() + size_of::<LinkName>());
        let memory = size_of::<Self>() + links.memory() + name_bytes.sum::<usize>();
        Self { cid, depth, links, names, offset: 0, index: 0, looked_up: 0, absent: HashSet::new(), memory }
    }

    fn is_done(&self) -> bool {
        self.index == self.links.len()
    }
}

impl LinkWalk {
    async fn next(&mut self) -> Option<Result<DagLink>> {
        loop {
            consume_budget().await;
            let step = match self.frames.last() {
                Some(_) => self.step().await.map_err(below_root),
                None => {
                    let root = self.roots.next()?;
                    // Sources have no part for a number of levels.
                    let part = if self.options.max_depth.is_some() { Part::Block } else { Part::All };
                    let context = self.context.clone();
                    self.store = within_context(context, || self.node.part_store(&root.into(), part));
                    self.enter(root, 0).await.map(|()| None)
                }
            };
            match step {
                Ok(Some(link)) => return Some(Ok(link)),
                Ok(None) => {}
                Err(error) => {
                    self.frames.clear();
                    self.held = 0;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Takes the next link of the innermost block. Returns it unless it is omitted.
    async fn step(&mut self) -> Result<Option<DagLink>> {
        let Some(frame) = self.frames.last_mut() else { return Ok(None) };
        let mut rest = frame.links.iter_from(frame.offset);
        let Some(to) = rest.next() else {
            self.leave();
            return Ok(None);
        };
        let (index, depth, from) = (frame.index, frame.depth + 1, frame.cid);
        (frame.offset, frame.index) = (rest.offset(), index + 1);
        let name = frame.names.get_mut(index).map(std::mem::take).unwrap_or_default();
        let (goes_deeper, is_returned) = self.visit(&to, depth)?;
        if goes_deeper && can_link(to.codec()) {
            if self.frames.last().is_some_and(Frame::is_done) {
                // A long chain of blocks needs no memory for each of them.
                self.leave();
            }
            self.enter(to, depth).await?;
        } else if is_returned {
            self.require(index, &to).await?;
        }
        Ok(is_returned.then_some(DagLink { from, to, name }))
    }

    fn leave(&mut self) {
        if let Some(frame) = self.frames.pop() {
            self.held -= frame.memory;
        }
    }

    /// Decides whether the links of a block are followed, and whether the link to it is returned.
    fn visit(&mut self, cid: &Cid, depth: u64) -> Result<(bool, bool)> {
        let is_deepest = self.options.max_depth == Some(depth);
        if !self.options.unique {
            return Ok((!is_deepest, true));
        }
        let key = self.fingerprints.parts(&[&cid.to_bytes()]);
        let earlier = self.depths.get(&key).copied();
        if earlier.is_some_and(|earlier| self.options.max_depth.is_none() || earlier <= depth) {
            return Ok((false, false));
        }
        self.depths.insert(key, depth);
        if self.depths.len() > MAX_DAG_BLOCKS {
            return Err(Error::too_large(format!(
                "the DAG has more than the limit of {MAX_DAG_BLOCKS} blocks: request parts of it, or leave unique out"
            )));
        }
        Ok((!is_deepest, earlier.is_none()))
    }

    /// Reads a block and prepares to follow its links.
    async fn enter(&mut self, cid: Cid, depth: u64) -> Result<()> {
        let block = self.store.get(&cid).await;
        let block = block.and_then(|block| block.ok_or_else(|| missing(&cid)));
        let data = block.or_else(|error| self.node.check_block(&cid).and(Err(error)))?;
        if self.options.max_depth.is_some_and(|most| depth >= most) || !can_link(cid.codec()) {
            return Ok(());
        }
        let (links, names) = self.decode(cid, data).await?;
        let frame = Frame::new(cid, depth, links, names);
        self.held += frame.memory;
        self.frames.push(frame);
        if self.held > MAX_HELD_BYTES {
            return Err(Error::too_large(format!(
                "the DAG is too wide and too deep: the links to follow take more than the limit of {MAX_HELD_BYTES} \
                 bytes of memory"
            )));
        }
        Ok(())
    }

    async fn decode(&self, cid: Cid, data: Bytes) -> Result<(CidList, Vec<LinkName>)> {
        let (is_small, names) = (data.len() <= INLINE_DECODE_BYTES, self.options.names);
        let decode = move || {
            let names = if names { link_names(&cid, &data)? } else { Vec::new() };
            Ok((links(&cid, &data)?, names))
        };
        match is_small {
            true => decode(),
            false => {
                let decoding = tokio::task::spawn_blocking(decode);
                decoding.await.map_err(|e| Error::internal("decoding a block failed").with_source(e))?
            }
        }
    }

    /// Checks that a block that is not read exists. Looks up the blocks of the following links with it.
    async fn require(&mut self, index: usize, cid: &Cid) -> Result<()> {
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        if index >= frame.looked_up {
            let following = frame.links.iter_from(frame.offset).take(LOOKUPS - 1);
            let batch: Vec<Cid> = std::iter::once(*cid).chain(following).collect();
            let sizes = self.store.has_many(&batch).await?;
            frame.looked_up = index + batch.len();
            let absent = sizes.iter().enumerate().filter(|(_, size)| size.is_none());
            frame.absent = absent.map(|(position, _)| index + position).collect();
        }
        if !frame.absent.contains(&index) {
            return Ok(());
        }
        // The store may be able to retrieve it.
        let found = self.store.get(cid).await.and_then(|block| block.map(drop).ok_or_else(|| missing(cid)));
        found.or_else(|error| self.node.check_block(cid).and(Err(error)))
    }
}

/// Returns the error of a block below a root as Kubo begins it.
fn below_root(error: Error) -> Error {
    if error.missing_block().is_none() {
        return error;
    }
    Error::new(error.kind(), format!("failed to fetch all nodes: {error}")).with_source(error)
}

fn missing(cid: &Cid) -> Error {
    Error::no_block(cid, format!("block {cid} is not in this store"))
}
