//! Which blocks of a CAR belong to the requested DAG.

use std::collections::HashSet;
use std::hash::BuildHasher;

use foldhash::quality::RandomState;
use ipfrs_core::{Block, Cid, Multihash, Result, codec};
use ipfrs_unixfs::links;

/// Maximum number of links that are remembered, and of blocks: 16 bytes each. In depth-first order few links are open
/// at a time.
const MAX_REMEMBERED: usize = 1 << 20;
/// Size up to which a block is decoded on the calling task, in bytes.
const INLINE_DECODE_BYTES: usize = 32 * 1024;

/// Blocks that may come next: the root, then what the blocks so far link to. A source can therefore send only blocks of
/// the DAG, each after a block that links to it.
#[derive(Debug)]
pub(crate) struct Expected {
    hasher: RandomState,
    open: HashSet<u64, RandomState>,
    seen: HashSet<u64, RandomState>,
}

/// How a block relates to the requested DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// It was linked, and arrives for the first time.
    New,
    /// It has arrived before.
    Repeated,
    /// No block so far links to it.
    Foreign,
}

impl Expected {
    pub(crate) fn new(root: &Cid) -> Self {
        let mut expected = Self { hasher: RandomState::default(), open: HashSet::default(), seen: HashSet::default() };
        expected.open.insert(expected.fingerprint(root.hash()));
        expected
    }

    fn fingerprint(&self, hash: &Multihash) -> u64 {
        self.hasher.hash_one((hash.code(), hash.digest()))
    }

    /// Classifies the next block, and expects the blocks that it links to.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind) if the block is malformed.
    pub(crate) async fn accept(&mut self, block: &Block) -> Result<Relation> {
        let fingerprint = self.fingerprint(block.cid().hash());
        if !self.open.remove(&fingerprint) {
            let is_repeated = self.seen.contains(&fingerprint) || self.seen.len() >= MAX_REMEMBERED;
            return Ok(if is_repeated { Relation::Repeated } else { Relation::Foreign });
        }
        if self.seen.len() < MAX_REMEMBERED {
            self.seen.insert(fingerprint);
        }
        let (cid, data) = (*block.cid(), block.data().clone());
        let linked = match cid.codec() {
            codec::RAW => return Ok(Relation::New),
            _ if data.len() <= INLINE_DECODE_BYTES || is_leaf(&data) => links(&cid, &data),
            _ => tokio::task::spawn_blocking(move || links(&cid, &data))
                .await
                .unwrap_or_else(|e| Err(ipfrs_core::Error::internal("decoding a block failed").with_source(e))),
        };
        for link in linked?.iter() {
            let fingerprint = self.fingerprint(link.hash());
            if self.open.len() < MAX_REMEMBERED && !self.seen.contains(&fingerprint) {
                self.open.insert(fingerprint);
            }
        }
        Ok(Relation::New)
    }
}

/// Whether a dag-pb block begins with its data, as leaves of files do. Links come first otherwise.
fn is_leaf(data: &[u8]) -> bool {
    data.first() == Some(&0x0a)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ipfrs_core::hash::HashFunction;

    use super::*;

    fn raw(data: &'static [u8]) -> Block {
        Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from_static(data)).unwrap()
    }

    #[tokio::test]
    async fn blocks_are_expected_after_their_parents_only() {
        let leaves = [raw(b"one"), raw(b"two")];
        let links = leaves.iter().map(|leaf| format!(r#"{{"/":"{}"}}"#, leaf.cid())).collect::<Vec<_>>().join(",");
        let root = Block::hash(1, codec::DAG_JSON, HashFunction::Sha2_256, format!("[{links}]").into()).unwrap();
        let mut expected = Expected::new(root.cid());
        assert_eq!(expected.accept(&leaves[0]).await.unwrap(), Relation::Foreign);
        assert_eq!(expected.accept(&root).await.unwrap(), Relation::New);
        assert_eq!(expected.accept(&leaves[1]).await.unwrap(), Relation::New);
        assert_eq!(expected.accept(&leaves[1]).await.unwrap(), Relation::Repeated);
        assert_eq!(expected.accept(&raw(b"three")).await.unwrap(), Relation::Foreign);
        assert_eq!(expected.accept(&leaves[0]).await.unwrap(), Relation::New);
    }
}
