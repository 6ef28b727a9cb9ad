//! Directory listings as streams and pages.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use ipfrs_core::{Cid, Error, Result};
use tokio::task::coop::consume_budget;

use crate::blocks::BlockSource;
use crate::dir_entry::DirEntry;
use crate::hamt::ShardLink;
use crate::node::Node;
use crate::resolve::load_shard;

/// Returns the entries of the directory `node`, basic or sharded, in the order of its blocks. Shards are listed depth
/// first. A shared node is read in place.
///
/// Memory is bounded by the shards from the root to the current one (at most 21, with at most 1,024 links each). The
/// stream ends after its first error: [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if `node` is not a
/// directory, [`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind) if a shard is invalid, and any error of `source`.
///
/// A few blocks can form a directory with an astronomical number of entries by linking to the same shard many times.
/// The work is therefore done as the consumer takes entries. Because a shard without entries below it is an error, an
/// entry costs at most the shards of one path. Loading shards consumes the budget of a Tokio task, so other tasks run
/// even if the consumer takes entries without pause.
#[must_use]
pub fn entries(source: Arc<dyn BlockSource>, node: impl Into<Arc<Node>>) -> BoxStream<'static, Result<DirEntry>> {
    let node = node.into();
    match &*node {
        Node::Directory { entries, .. } => {
            let count = entries.len();
            stream::iter((0..count).filter_map(move |at| basic_entry(&node, at).cloned().map(Ok))).boxed()
        }
        _ => match Entries::new(source, node) {
            Ok(entries) => stream::try_unfold(entries, |mut entries| async move {
                Ok(entries.next().await?.map(|entry| (entry, entries)))
            })
            .boxed(),
            Err(error) => stream::iter([Err(error)]).boxed(),
        },
    }
}

/// The entries of a directory, read one at a time as [`entries`] gives them, for callers that bound the memory of many
/// open directories.
pub struct Entries(Walk);

impl Entries {
    /// Starts at the first entry of the directory `node`, basic or sharded.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when `node` is not a directory.
    pub fn new(source: Arc<dyn BlockSource>, node: impl Into<Arc<Node>>) -> Result<Self> {
        let node = node.into();
        let hash_bits = hash_bits(&node)?;
        Ok(Self(Walk::of(source, &node, hash_bits)))
    }

    /// Returns the next entry, or `None` after the last one.
    ///
    /// # Errors
    /// As [`entries`].
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        self.0.next().await
    }

    /// Returns the memory of the blocks from the root to the current entry, decoded, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.0.path.iter().map(|level| level.memory).sum()
    }
}

/// Returns how many bits of a name's hash select a link of the root of a directory.
fn hash_bits(root: &Node) -> Result<u32> {
    match root {
        Node::HamtShard(shard) => Ok(shard.fanout().trailing_zeros()),
        Node::Directory { .. } => Ok(0),
        Node::File(_) | Node::Symlink { .. } => {
            Err(Error::invalid("only directories have entries, and this is not one"))
        }
    }
}

fn basic_entry(node: &Node, at: usize) -> Option<&DirEntry> {
    match node {
        Node::Directory { entries, .. } => entries.get(at),
        _ => None,
    }
}

/// A position between two entries of a directory. For each block from the root to the position, it holds the number
/// of links that were taken. The text form is, for example, `3.0.17`. The default is the beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place(Vec<usize>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, taken) in self.0.iter().enumerate() {
            write!(f, "{}{taken}", if level == 0 { "" } else { "." })?;
        }
        Ok(())
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let taken = text.split('.').take(MAX_LEVELS + 1).map(str::parse).collect::<std::result::Result<Vec<_>, _>>();
        let place = taken.ok().filter(|taken| taken.len() <= MAX_LEVELS).map(Self);
        place.ok_or_else(|| Error::invalid("a position in a directory has one number for each of its levels"))
    }
}

/// Returns the entries of the directory `node` that follow the position `from`, at most `most` of them (1 or more).
/// Also returns the position after them, unless they are the last entries. The page ends early once its names exceed
/// `most_bytes` in total. Only the blocks from the root to the position are read again.
///
/// # Errors
/// Returns the errors of [`entries`], and [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a position that is
/// not in this directory.
pub async fn page(
    source: Arc<dyn BlockSource>,
    node: impl Into<Arc<Node>>,
    from: &Place,
    most: usize,
    most_bytes: usize,
) -> Result<(Vec<DirEntry>, Option<Place>)> {
    let mut walk = Walk::to(source, node.into(), from).await?;
    let (mut taken, mut bytes) = (Vec::new(), 0);
    while taken.len() < most && bytes <= most_bytes {
        consume_budget().await;
        let Some(entry) = walk.next().await? else { return Ok((taken, None)) };
        bytes += entry.name.len();
        taken.push(entry);
    }
    Ok((taken, walk.place()))
}

/// A walk over the entries: the unread rest of each shard from the root to the current position.
struct Walk {
    source: Arc<dyn BlockSource>,
    path: Vec<Level>,
}

struct Level {
    /// A [`Node::HamtShard`], or the only block of a basic directory.
    shard: Arc<Node>,
    /// Index of the first slot or entry that has not been taken.
    next: usize,
    /// Number of bits of a name's hash that lead to one of the slots.
    hash_bits: u32,
    /// Memory of the links and their names, in bytes.
    memory: usize,
}

impl Iterator for Level {
    type Item = ShardLink;

    fn next(&mut self) -> Option<ShardLink> {
        let slot = match &*self.shard {
            Node::HamtShard(shard) => shard.slots().get(self.next).cloned(),
            node => basic_entry(node, self.next).cloned().map(ShardLink::Entry),
        };
        self.next += 1;
        slot
    }
}

impl Level {
    fn new(shard: Arc<Node>, hash_bits: u32) -> Self {
        let of_entry = |entry: &DirEntry| size_of::<ShardLink>() + entry.name.len();
        let memory = match &*shard {
            Node::HamtShard(shard) => {
                let of_slot = |slot: &ShardLink| {
                    if let ShardLink::Entry(entry) = slot { of_entry(entry) } else { size_of::<ShardLink>() }
                };
                shard.slots().iter().map(of_slot).sum()
            }
            Node::Directory { entries, .. } => entries.iter().map(of_entry).sum(),
            Node::File(_) | Node::Symlink { .. } => 0,
        };
        Self { shard, next: 0, hash_bits, memory }
    }

    /// Returns the number of all links, taken or not.
    fn links(&self) -> usize {
        match &*self.shard {
            Node::HamtShard(shard) => shard.slots().len(),
            Node::Directory { entries, .. } => entries.len(),
            Node::File(_) | Node::Symlink { .. } => 0,
        }
    }
}

/// Links of a shard that consume one unit of a task's budget. Decoding them takes a few microseconds.
const LINKS_PER_TURN: usize = 16;

/// Most blocks from the root of a directory to an entry. Each level consumes at least 3 of the 64 bits of a name's
/// hash.
const MAX_LEVELS: usize = 22;

impl Walk {
    /// Starts at the beginning of the directory `root`, in which `hash_bits` bits of a name's hash lead to an entry.
    fn of(source: Arc<dyn BlockSource>, root: &Arc<Node>, hash_bits: u32) -> Self {
        Self { source, path: vec![Level::new(Arc::clone(root), hash_bits)] }
    }

    /// Starts at a position.
    async fn to(source: Arc<dyn BlockSource>, root: Arc<Node>, place: &Place) -> Result<Self> {
        let hash_bits = hash_bits(&root)?;
        let not_here = || Error::invalid(format!("{place} is not a position in this directory"));
        let mut walk = Self::of(source, &root, hash_bits);
        for (depth, taken) in place.0.iter().enumerate() {
            if depth > 0 {
                let above = walk.path.last().ok_or_else(not_here)?;
                // This block is the target of the last link taken from the block above.
                let link = match (&*above.shard, above.next.checked_sub(1)) {
                    (Node::HamtShard(shard), Some(at)) => shard.slots().get(at),
                    _ => None,
                };
                let Some(ShardLink::Shard(cid)) = link.cloned() else { return Err(not_here()) };
                let level = walk.descend(&cid, above.hash_bits).await?;
                walk.path.push(level);
            }
            let level = walk.path.last_mut().filter(|level| *taken <= level.links()).ok_or_else(not_here)?;
            level.next = *taken;
        }
        Ok(walk)
    }

    /// Returns the position of the walk, or `None` at its end.
    fn place(&mut self) -> Option<Place> {
        while self.path.last().is_some_and(|level| level.next >= level.links()) {
            self.path.pop();
        }
        let taken: Vec<_> = self.path.iter().map(|level| level.next).collect();
        (!taken.is_empty()).then_some(Place(taken))
    }

    async fn next(&mut self) -> Result<Option<DirEntry>> {
        while let Some(level) = self.path.last_mut() {
            match level.next() {
                Some(ShardLink::Entry(entry)) => return Ok(Some(entry)),
                Some(ShardLink::Shard(cid)) => {
                    let above = level.hash_bits;
                    let level = self.descend(&cid, above).await?;
                    self.path.push(level);
                }
                None => {
                    self.path.pop();
                }
            }
        }
        Ok(None)
    }

    /// Loads the shard `cid`, to which `above` bits of a name's hash lead.
    async fn descend(&self, cid: &Cid, above: u32) -> Result<Level> {
        let shard = load_shard(self.source.as_ref(), cid).await?;
        let links = shard.slots().len();
        for _ in 0..=links / LINKS_PER_TURN {
            consume_budget().await;
        }
        if links == 0 {
            return Err(Error::invalid_content(format!(
                "directory shard {cid} is empty, but only a root may be empty"
            )));
        }
        let hash_bits = above + shard.fanout().trailing_zeros();
        if hash_bits > u64::BITS {
            return Err(Error::invalid_content(format!(
                "directory shard {cid} is deeper than the 64 bits of a name hash allow"
            )));
        }
        Ok(Level::new(Arc::new(Node::HamtShard(shard)), hash_bits))
    }
}
