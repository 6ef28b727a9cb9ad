//! Listings: entries of directories and parts of other objects, with their targets.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Cid, CidList, Error, ErrorKind, Result, codec};
use ipfrs_store::BlockStore;
use ipfrs_stream::{BlockStoreSource, Part};
use ipfrs_unixfs::{
    Attributes, Child, DirEntry, LinkName, Node as UnixFsNode, Place, declared_size, decode_async, is_without_sizes,
};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout_at};

use crate::{Node, Object, ObjectKind};

/// Kind of the target of a directory entry or of a link of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListedKind {
    /// A file or a raw block.
    File,
    /// A directory.
    Directory,
    /// A symlink.
    Symlink,
    /// The block is not in the store, or is not UnixFS.
    Unknown,
}

/// Entry of a directory, with its target.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Name of the entry. Empty for the parts of a file, and for links of formats without link names.
    pub name: LinkName,
    /// Content ID of the target.
    pub cid: Cid,
    /// Kind of the target.
    pub kind: ListedKind,
    /// Size of a file in bytes. 0 for directories and symlinks; the cumulative size in the link if the target is
    /// unknown.
    pub size: u64,
    /// Bytes of all blocks below the entry, as the directory claims. 0 for links of formats without sizes.
    pub dag_size: u64,
    /// Target of a symlink. Empty if it is longer than any path may be (4,096 bytes, `PATH_MAX` on Linux).
    pub target: LinkName,
    /// Mode and modification time, if they are stored and the target is known.
    pub attributes: Attributes,
}

/// Consecutive entries of a directory.
#[derive(Debug, Clone)]
pub struct ListedPage {
    /// The entries, in stored order.
    pub entries: Vec<Listed>,
    /// Start of the next page; `None` if this page is the last one.
    pub next: Option<Place>,
}

/// Size of the names and symlink targets at which a page ends, in bytes.
const PAGE_BYTES: usize = 1024 * 1024;

/// Number of entries whose blocks [`Node::list`] looks up together.
const LIST_BATCH: usize = 256;

/// Maximum length of a symlink target in a listing, in bytes. Without a limit, a batch of entries could repeat one
/// block of 2 MiB 256 times.
const MAX_LISTED_TARGET_BYTES: usize = 4_096;

impl Node {
    /// Same as [`Self::list_within`], but waits for all targets.
    #[must_use]
    pub fn list(&self, object: &Object, look_at: usize) -> BoxStream<'static, Result<Listed>> {
        self.list_within(object, look_at, None)
    }

    /// Same as [`Self::list`] for all entries. A missing target is an error. A target that a denylist blocks is
    /// listed.
    #[must_use]
    pub fn list_complete(&self, object: &Object) -> BoxStream<'static, Result<Listed>> {
        self.listing(object, usize::MAX, None, Missing::Fails)
    }

    /// Returns the entries of a directory, the parts of a file or the links of any other block, with the kind and
    /// size of their targets. Only the targets of the first `look_at` entries are read. The others have the kind
    /// [`ListedKind::Unknown`] and the size of the link. So have those whose targets are not read within `limit` after
    /// the first one: targets may have to be retrieved.
    #[must_use]
    pub fn list_within(
        &self,
        object: &Object,
        look_at: usize,
        limit: Option<Duration>,
    ) -> BoxStream<'static, Result<Listed>> {
        self.listing(object, look_at, limit, Missing::IsListed)
    }

    fn listing(
        &self,
        object: &Object,
        look_at: usize,
        limit: Option<Duration>,
        missing: Missing,
    ) -> BoxStream<'static, Result<Listed>> {
        let entries = match &object.kind {
            ObjectKind::Directory(directory) => self.entries(&object.resolved.path, directory),
            ObjectKind::File(file) => {
                let (file, parts) = (file.clone(), 0..file.node.children.len());
                let part = move |index| {
                    // The whole content, whose memory counts until the end of the stream.
                    let file = &file;
                    file.node.children.get(index).map(part_of_file)
                };
                stream::iter(parts.filter_map(part)).boxed()
            }
            ObjectKind::Other => links_of(object.cid, object.block.clone()).boxed(),
            ObjectKind::Symlink(_) => stream::empty().boxed(),
        };
        if look_at == 0 {
            return entries.map(|entry| entry.map(unresolved)).boxed();
        }
        let store = self.part_store(&object.resolved.path, Part::Block);
        let (mut left, mut deadline) = (look_at, None);
        entries
            .chunks(LIST_BATCH)
            .then(move |batch| {
                let store = Arc::clone(&store);
                let looked_at = left.min(batch.len());
                left -= looked_at;
                deadline = deadline.or_else(|| limit.map(|limit| Instant::now() + limit));
                async move { stream::iter(Self::look_at(&*store, batch, looked_at, deadline, missing).await) }
            })
            .flatten()
            .boxed()
    }

    /// Returns at most `most` (1 or more) entries of a directory from a position on, with the kind and size of their
    /// targets. If names are long, the page has fewer entries.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the object is not a directory or the position is not in it; also errors of the
    /// store.
    pub async fn list_page(&self, object: &Object, from: &Place, most: usize) -> Result<ListedPage> {
        let ObjectKind::Directory(directory) = &object.kind else {
            return Err(Error::invalid(format!("{} is not a directory", object.resolved.path)));
        };
        let targets = self.part_store(&object.resolved.path, Part::Block);
        let (mut entries, mut bytes, mut next) = (Vec::new(), 0, Some(from.clone()));
        while entries.len() < most
            && bytes < PAGE_BYTES
            && let Some(from) = &next
        {
            let source = Arc::new(BlockStoreSource(self.part_store(&object.resolved.path, Part::Entity)));
            let batch = LIST_BATCH.min(most - entries.len());
            let (batch, behind) =
                ipfrs_unixfs::page(source, directory.node.clone(), from, batch, PAGE_BYTES - bytes).await?;
            next = behind;
            let count = batch.len();
            let batch = batch.into_iter().map(Ok).collect();
            for entry in Self::look_at(&*targets, batch, count, None, Missing::IsListed).await {
                let entry = entry?;
                bytes += entry.name.len() + entry.target.len();
                entries.push(entry);
            }
        }
        Ok(ListedPage { entries, next })
    }

    /// Returns the entries of a batch, the first `count` of them with their targets.
    async fn look_at(
        store: &dyn BlockStore,
        batch: Vec<Result<DirEntry>>,
        count: usize,
        deadline: Option<Instant>,
        missing: Missing,
    ) -> Vec<Result<Listed>> {
        let targets = Self::targets(store, &batch[..count], deadline, missing).await;
        let mut listed = Vec::with_capacity(batch.len());
        for (at, entry) in batch.into_iter().enumerate() {
            consume_budget().await;
            if at >= count {
                listed.push(entry.map(unresolved));
                continue;
            }
            listed.push(entry.and_then(|entry| match targets.get(&entry.cid) {
                Some(Ok(target)) => Ok(target.clone().under(entry)),
                Some(Err(e)) => Err(match (e.missing_block(), e.not_unixfs_reason()) {
                    (Some(cid), _) => Error::no_block(&cid, e.message()),
                    (None, Some(reason)) => Error::not_unixfs(reason, e.message()),
                    (None, None) => Error::new(e.kind(), e.message()),
                }),
                None if entry.cid.codec() == codec::RAW => Ok(Listed { kind: ListedKind::File, ..unresolved(entry) }),
                None => Ok(unresolved(entry)),
            }));
        }
        listed
    }

    /// Returns the targets of a batch, except for raw blocks and blocks that are missing or not UnixFS. Each block is
    /// decoded once, however many entries point to it. Targets that are not read before the deadline are left out.
    async fn targets(
        store: &dyn BlockStore,
        batch: &[Result<DirEntry>],
        deadline: Option<Instant>,
        missing: Missing,
    ) -> HashMap<Cid, Result<Target>> {
        let mut seen = HashSet::new();
        let linked = batch.iter().flatten().map(|entry| entry.cid);
        let cids: Vec<_> = linked.filter(|cid| cid.codec() != codec::RAW && seen.insert(*cid)).collect();
        let mut blocks = store.get_many(cids.clone());
        let mut targets = HashMap::with_capacity(cids.len());
        for cid in cids {
            let next = match deadline {
                Some(deadline) => timeout_at(deadline, blocks.next()).await,
                None => Ok(blocks.next().await),
            };
            let Ok(next) = next else { break };
            let target = match next {
                Some(Ok((_, Some(data)))) => {
                    match decode_async(cid, data.clone()).await {
                        Ok(node) => Some(Ok(Target::of(&node))),
                        // Its parts are not read for a listing.
                        Err(error) if is_without_sizes(&error) => Some(Ok(Target::file(declared_size(&data)))),
                        Err(_) => None,
                    }
                }
                Some(Ok((_, None))) if missing == Missing::IsListed => None,
                Some(Ok((_, None))) => Some(Err(Error::no_block(&cid, format!("block {cid} is not in this store")))),
                // Entries whose target is blocked are listed, but the target is not read.
                Some(Err(e)) if matches!(e.kind(), ErrorKind::Gone | ErrorKind::LegalReasons) => None,
                // So are entries whose target no source delivers.
                Some(Err(e))
                    if missing == Missing::IsListed
                        && matches!(e.kind(), ErrorKind::Unretrievable | ErrorKind::BadSource) =>
                {
                    None
                }
                Some(Err(e)) => Some(Err(e)),
                None => Some(Err(Error::internal("the store returned fewer results than requested"))),
            };
            targets.extend(target.map(|target| (cid, target)));
        }
        targets
    }
}

/// Treatment of an entry whose target is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// Its kind is [`ListedKind::Unknown`].
    IsListed,
    /// The listing ends with an error.
    Fails,
}

/// Target of an entry.
#[derive(Debug, Clone)]
struct Target {
    kind: ListedKind,
    size: u64,
    symlink: LinkName,
    attributes: Attributes,
}

impl Target {
    fn of(node: &UnixFsNode) -> Self {
        let (kind, size) = match node {
            UnixFsNode::File(file) => (ListedKind::File, file.size),
            UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_) => (ListedKind::Directory, 0),
            UnixFsNode::Symlink { target, .. } => (ListedKind::Symlink, target.len() as u64),
        };
        let symlink = match node {
            UnixFsNode::Symlink { target, .. } if target.len() <= MAX_LISTED_TARGET_BYTES => LinkName::from(&**target),
            _ => LinkName::default(),
        };
        Self { kind, size, symlink, attributes: node.attributes() }
    }

    /// Returns a file without attributes.
    fn file(size: u64) -> Self {
        let (symlink, attributes) = (LinkName::default(), Attributes::default());
        Self { kind: ListedKind::File, size, symlink, attributes }
    }

    fn under(self, entry: DirEntry) -> Listed {
        Listed {
            name: entry.name,
            cid: entry.cid,
            kind: self.kind,
            size: self.size,
            dag_size: entry.tsize,
            target: self.symlink,
            attributes: self.attributes,
        }
    }
}

fn part_of_file(child: Child) -> Result<DirEntry> {
    Ok(DirEntry { name: LinkName::default(), cid: child.cid, tsize: child.size })
}

/// Returns the links of a block that is not UnixFS, as entries without names and sizes.
fn links_of(cid: Cid, block: Bytes) -> impl Stream<Item = Result<DirEntry>> + Send {
    let links = async move {
        let decoding = tokio::task::spawn_blocking(move || ipfrs_unixfs::links(&cid, &block));
        decoding.await.map_err(|e| Error::internal(format!("decoding block {cid} failed")).with_source(e))?
    };
    let entries = |links: CidList| {
        let mut offset = 0;
        stream::iter(std::iter::from_fn(move || {
            let mut rest = links.iter_from(offset);
            let cid = rest.next()?;
            offset = rest.offset();
            Some(Ok(DirEntry { name: LinkName::default(), cid, tsize: 0 }))
        }))
    };
    stream::once(links).map_ok(entries).try_flatten()
}

fn unresolved(entry: DirEntry) -> Listed {
    Listed {
        name: entry.name,
        cid: entry.cid,
        kind: ListedKind::Unknown,
        size: entry.tsize,
        dag_size: entry.tsize,
        target: LinkName::default(),
        attributes: Attributes::default(),
    }
}
