//! Memory of the decoded nodes that requests hold: directories, and the links of files. A request can hold them for as
//! long as its client takes to read the response, so all of them together have a limit.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ipfrs_core::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::retrieval::current_client;

/// Memory limit for the nodes of all requests, in bytes.
pub(super) const MAX_BYTES: usize = 512 * 1024 * 1024;

/// Memory that each node or reader may take whatever others use, in bytes. A directory with 1,000 entries needs less,
/// as does a file with 1,000 links in each node.
pub(super) const MIN_BYTES: usize = 256 * 1024;

/// Memory of the nodes of all requests, in bytes.
#[derive(Debug, Default)]
pub(crate) struct DecodedNodes {
    all: AtomicUsize,
    /// The memory of each client that uses some.
    by_client: Mutex<HashMap<Option<IpAddr>, usize>>,
}

impl DecodedNodes {
    fn replace(&self, client: Option<IpAddr>, old: usize, new: usize) {
        self.all.fetch_add(new, Ordering::Relaxed);
        self.all.fetch_sub(old, Ordering::Relaxed);
        let mut by_client = self.by_client.lock();
        let own = by_client.entry(client).or_default();
        *own = (*own + new).saturating_sub(old);
        if *own == 0 {
            by_client.remove(&client);
        }
    }

    fn of_client(&self, client: Option<IpAddr>) -> usize {
        self.by_client.lock().get(&client).copied().unwrap_or_default()
    }
}

/// The part of one request, which is released when it is dropped.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    own: usize,
    client: Option<IpAddr>,
    all: Arc<DecodedNodes>,
}

impl NodeMemory {
    /// Creates the part of a request of the current client.
    pub(super) fn new(all: &Arc<DecodedNodes>) -> Self {
        Self { own: 0, client: current_client(), all: Arc::clone(all) }
    }

    /// Creates the part of a request of the current client that holds a node of `bytes`.
    ///
    /// # Errors
    /// Those of [`Self::check`].
    pub(super) fn of(bytes: usize, all: &Arc<DecodedNodes>) -> Result<Arc<Self>> {
        let mut memory = Self::new(all);
        memory.replace(0, bytes);
        memory.check()?;
        Ok(Arc::new(memory))
    }

    /// Returns the memory of this request, in bytes.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// Replaces the memory of a node, in bytes.
    pub(super) fn replace(&mut self, old: usize, new: usize) {
        self.own = self.own - old + new;
        self.all.replace(self.client, old, new);
    }

    /// Creates another part, which holds nothing, of the same client.
    pub(super) fn another(&self) -> Self {
        Self { own: 0, client: self.client, all: Arc::clone(&self.all) }
    }

    /// Returns a function that sets the memory of this request, in bytes, and [checks](Self::check) it.
    pub(super) fn counter(mut self) -> impl FnMut(usize) -> Result<()> + Send + 'static {
        move |bytes| {
            self.replace(self.own, bytes);
            self.check()
        }
    }

    /// Checks the memory of all requests, of which a client may use as much as is free.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] over the share of the client, if this part is more than [`MIN_BYTES`].
    pub(super) fn check(&self) -> Result<()> {
        let free = MAX_BYTES.checked_sub(self.all.all.load(Ordering::Relaxed));
        if self.own <= MIN_BYTES || free.is_some_and(|free| self.all.of_client(self.client) <= free.max(MIN_BYTES)) {
            return Ok(());
        }
        let what = format!(
            "large directories and files in use take the limit of {MAX_BYTES} bytes of memory for their links, or this \
             client as much of it as is left for all others"
        );
        Err(Error::new(ErrorKind::RateLimited, format!("{what}: try again later")))
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        // Most files are small and not counted.
        if self.own > 0 {
            self.all.replace(self.client, self.own, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::TryStreamExt;
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::{Cid, codec};
    use ipfrs_store::MemoryStore;
    use ipfrs_unixfs::dag_pb::{self, PbLink};

    use super::*;
    use crate::{BlockFormat, ContentPath, LinkName, Node, Object, ObjectKind, PutBlock, Span};

    async fn put(node: &Node, codec: u64, data: Bytes) -> Cid {
        let format = BlockFormat { version: 1, codec, hash: HashFunction::Sha2_256, digest_bytes: None };
        node.put_block(PutBlock { data, cid: None, format }).await.unwrap().0
    }

    async fn resolve(node: &Node, cid: Cid) -> Result<Object> {
        node.resolve(ContentPath::new(cid, Vec::new()).unwrap()).await
    }

    #[tokio::test]
    async fn links_of_large_files_are_counted_while_they_are_held() {
        const LINKS: u64 = 20_000;
        let repo = tempfile::tempdir().unwrap();
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).open().await.unwrap();
        let leaf = put(&node, codec::RAW, Bytes::from_static(b"x")).await;
        let file = |parts: Vec<(Cid, u64)>| {
            let mut data = vec![8, 2];
            for (_, size) in &parts {
                data.push(0x20);
                let mut rest = *size;
                while rest >= 0x80 {
                    data.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                data.push(rest as u8);
            }
            let links: Vec<_> =
                parts.into_iter().map(|(cid, tsize)| PbLink { cid, name: LinkName::default(), tsize }).collect();
            dag_pb::encode(&links, &data)
        };
        let large = put(&node, codec::DAG_PB, file(vec![(leaf, 1); LINKS as usize])).await;
        let small = put(&node, codec::DAG_PB, file(vec![(leaf, 1); 1_000])).await;
        let above = put(&node, codec::DAG_PB, file(vec![(large, LINKS), (leaf, 1)])).await;
        let nodes = &node.inner.decoded_nodes;
        let all = || nodes.all.load(Ordering::Relaxed);
        let content = |object: &Object| match &object.kind {
            ObjectKind::File(file) => file.clone(),
            other => panic!("{other:?}"),
        };
        let links_bytes = LINKS as usize * 50;

        let object = resolve(&node, large).await.unwrap();
        let of_root = all();
        assert!(of_root >= links_bytes, "{of_root}");
        let mut pieces = node.read(&content(&object), Span::whole(LINKS));
        pieces.try_next().await.unwrap();
        assert!(all() >= of_root + links_bytes, "the reader has links of its own: {}", all());
        let resolved = Arc::clone(&object.resolved);
        drop(object);
        assert!(all() >= links_bytes, "a reader holds its links without the object");
        pieces.try_for_each(|_| async { Ok(()) }).await.unwrap();
        assert_eq!(all(), 0, "a cache may hold the path");
        let again = [node.load(Arc::clone(&resolved)).await.unwrap(), node.load(resolved).await.unwrap()];
        assert_eq!(all(), of_root, "requests share what the cache holds");
        drop(again);
        assert_eq!(all(), 0);

        // An inner node counts as well.
        let root_above = resolve(&node, above).await.unwrap();
        assert_eq!(all(), 0, "two links");
        let whole = Span::whole(LINKS + 1);
        let mut pieces = node.read(&content(&root_above), whole);
        pieces.try_next().await.unwrap();
        assert!(all() >= links_bytes, "{}", all());
        drop(pieces);
        assert_eq!(all(), 0);

        let object = resolve(&node, large).await.unwrap();
        let parts = node.list(&object, 0);
        drop(object);
        assert!(all() >= links_bytes, "a listing of its parts holds the file: {}", all());
        drop(parts);
        let link = PbLink { cid: large, name: "f".into(), tsize: 0 };
        let tree = put(&node, codec::DAG_PB, dag_pb::encode(&[link], &[8, 1])).await;
        let object = resolve(&node, tree).await.unwrap();
        let mut pieces = node.archive(&object, &"a".into(), None).await.unwrap().pieces;
        let mut most = 0;
        while pieces.try_next().await.unwrap().is_some() {
            most = most.max(all());
        }
        assert!(most >= links_bytes, "an archive holds the links of a file: {most}");
        drop((object, pieces));

        nodes.replace(Some([10, 0, 0, 1].into()), 0, MAX_BYTES);
        assert_eq!(resolve(&node, large).await.unwrap_err().kind(), ErrorKind::RateLimited);
        let refused = node.read(&content(&root_above), whole).try_for_each(|_| async { Ok(()) }).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::RateLimited);
        let object = resolve(&node, small).await.unwrap();
        let read: Vec<_> = node.read(&content(&object), Span::whole(1_000)).try_collect().await.unwrap();
        assert_eq!(read.concat().len(), 1_000, "ordinary files are served in any case");
        assert_eq!(all(), MAX_BYTES, "and are not counted");
    }

    #[tokio::test]
    async fn requests_share_the_memory_of_directories() {
        let repo = tempfile::tempdir().unwrap();
        let node = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).open().await.unwrap();
        let leaf = put(&node, codec::RAW, Bytes::new()).await;
        let mut directories = Vec::new();
        for count in [10, 20_000] {
            let links: Vec<_> =
                (0..count).map(|i| PbLink { cid: leaf, name: format!("{i}").into(), tsize: 0 }).collect();
            directories.push(put(&node, codec::DAG_PB, dag_pb::encode(&links, &[8, 1])).await);
        }
        let [small, large] = directories[..] else { unreachable!() };
        let directories = &node.inner.decoded_nodes;
        let all = || directories.all.load(Ordering::Relaxed);
        let object = resolve(&node, large).await.unwrap();
        let listing = node.list(&object, usize::MAX);
        let of_one = all();
        assert!(of_one > 20_000 * size_of::<Cid>(), "{of_one}");
        drop(object.clone());
        assert_eq!(all(), of_one, "a copy shares the directory");
        let archive = node.archive(&object, &"a".into(), None).await.unwrap();
        assert!(all() > of_one);
        directories.replace(Some([10, 0, 0, 1].into()), 0, MAX_BYTES);
        for refused in [resolve(&node, large).await.err(), node.archive(&object, &"a".into(), None).await.err()] {
            assert_eq!(refused.unwrap().kind(), ErrorKind::RateLimited);
        }
        let object_of_small = resolve(&node, small).await.unwrap();
        let pieces = node.archive(&object_of_small, &"a".into(), None).await.unwrap().pieces;
        assert!(pieces.try_collect::<Vec<_>>().await.unwrap().len() > 10, "small ones are served in any case");
        drop((object_of_small, archive));
        drop(object);
        assert_eq!(all(), MAX_BYTES + of_one, "a listing holds the directory");
        drop(listing);
        assert_eq!(all(), MAX_BYTES);
        directories.replace(Some([10, 0, 0, 1].into()), MAX_BYTES, 0);
        // Another client gets a directory while this one is over its half.
        directories.replace(None, 0, MAX_BYTES / 2);
        assert!(resolve(&node, large).await.is_err());
        crate::with_client(Some([10, 0, 0, 2].into()), resolve(&node, large)).await.unwrap();
        directories.replace(None, MAX_BYTES / 2, 0);
        resolve(&node, large).await.unwrap();
        assert!(directories.by_client.lock().is_empty());
    }
}
