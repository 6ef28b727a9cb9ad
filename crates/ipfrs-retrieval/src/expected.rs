//! Which blocks of a CAR belong to the requested DAG.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;

use bytes::Bytes;
use foldhash::quality::RandomState;
use ipfrs_core::{Block, Cid, Multihash, Result, codec, identity_payload};
use ipfrs_unixfs::links;

/// Maximum number of links that are remembered, and of blocks: 16 bytes each. In depth-first order few links are open
/// at a time.
const MAX_REMEMBERED: usize = 1 << 20;
/// Size up to which a block is decoded on the calling task, in bytes.
const INLINE_DECODE_BYTES: usize = 32 * 1024;
/// Codecs whose blocks have links.
const LINKING: [u64; 5] = [codec::DAG_PB, codec::DAG_CBOR, codec::DAG_JSON, codec::GIT_RAW, codec::DAG_JOSE];
/// Usual codecs whose blocks have none.
const LINKLESS: [u64; 3] = [codec::RAW, codec::CBOR, codec::JSON];

/// Blocks that may come next: the root, then what the blocks so far link to. A source can therefore send only blocks of
/// the DAG, each after a block that links to it.
///
/// Sources may leave out identity blocks, whose bytes are in their links, and the second copy of a block that is linked
/// under two codecs. The links of both are expected nevertheless.
#[derive(Debug)]
pub(crate) struct Expected {
    hasher: RandomState,
    /// Codecs under which each block that has not arrived is linked.
    open: HashMap<u64, Codecs, RandomState>,
    seen: HashMap<u64, Seen, RandomState>,
    /// Blocks that have arrived, and are linked under another codec since then.
    relinked: Vec<Cid>,
    /// Whether links may be missing from `open`.
    is_incomplete: bool,
}

/// A block that has arrived.
#[derive(Debug, Clone, Copy)]
struct Seen {
    /// Codecs under which it is linked.
    linked: Codecs,
    /// Codecs under which it has arrived.
    arrived: Codecs,
}

/// A set of codecs. Unusual ones count as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Codecs(u16);

impl Codecs {
    fn of(codec: u64) -> Self {
        let place = LINKING.iter().chain(&LINKLESS).position(|known| *known == codec);
        Self(1 << place.unwrap_or(LINKING.len() + LINKLESS.len()))
    }

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Adds a codec. Returns whether it is new.
    fn add(&mut self, other: Self) -> bool {
        let is_new = !self.contains(other);
        self.0 |= other.0;
        is_new
    }
}

/// How a block relates to the requested DAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relation {
    /// It was linked, and arrives for the first time.
    New,
    /// It has arrived before under another codec only, and is linked under both.
    Relabelled,
    /// It has arrived before.
    Repeated,
    /// No block so far links to it.
    Foreign,
    /// No known link leads to it, but not all links are known.
    Uncertain,
}

impl Expected {
    pub(crate) fn new(root: &Cid) -> Self {
        let mut expected = Self {
            hasher: RandomState::default(),
            open: HashMap::default(),
            seen: HashMap::default(),
            relinked: Vec::new(),
            is_incomplete: false,
        };
        expected.expect(root);
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
        let (cid, arrived) = (block.cid(), Codecs::of(block.cid().codec()));
        let fingerprint = self.fingerprint(cid.hash());
        let Some(linked) = self.open.remove(&fingerprint) else { return Ok(self.accept_again(fingerprint, arrived)) };
        if self.seen.len() < MAX_REMEMBERED {
            self.seen.insert(fingerprint, Seen { linked, arrived });
        }
        for codec in LINKING.into_iter().filter(|codec| linked.contains(Codecs::of(*codec))) {
            if codec == cid.codec() {
                self.expect_below(cid, block.data()).await?;
            } else {
                // A block that is malformed under another codec has no links there.
                let _malformed = self.expect_below(&Cid::new_v1(codec, *cid.hash()), block.data()).await;
            }
        }
        Ok(Relation::New)
    }

    /// Classifies a block that is not open.
    fn accept_again(&mut self, fingerprint: u64, codec: Codecs) -> Relation {
        let is_full = self.seen.len() >= MAX_REMEMBERED;
        match self.seen.get_mut(&fingerprint) {
            Some(seen) => {
                let is_relabelled = seen.linked.contains(codec) && seen.arrived.add(codec);
                if is_relabelled { Relation::Relabelled } else { Relation::Repeated }
            }
            None if self.is_incomplete => Relation::Uncertain,
            None if is_full => Relation::Repeated,
            None => Relation::Foreign,
        }
    }

    /// Returns a block that has arrived, and was linked under another codec afterwards. The caller has its bytes and
    /// calls [`Self::expect_below`], or [`Self::note_unknown`].
    pub(crate) fn take_relinked(&mut self) -> Option<Cid> {
        self.relinked.pop()
    }

    pub(crate) fn has_relinked(&self) -> bool {
        !self.relinked.is_empty()
    }

    /// Records that the links of a block are unknown.
    pub(crate) fn note_unknown(&mut self) {
        self.is_incomplete = true;
    }

    /// Expects the blocks that a block links to.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidContent`](ipfrs_core::ErrorKind) if the block is malformed.
    pub(crate) async fn expect_below(&mut self, cid: &Cid, data: &Bytes) -> Result<()> {
        let is_quick = data.len() <= INLINE_DECODE_BYTES || (cid.codec() == codec::DAG_PB && is_leaf(data));
        let linked = if is_quick {
            links(cid, data)
        } else {
            let (cid, data) = (*cid, data.clone());
            tokio::task::spawn_blocking(move || links(&cid, &data))
                .await
                .unwrap_or_else(|e| Err(ipfrs_core::Error::internal("decoding a block failed").with_source(e)))
        };
        linked?.iter().for_each(|link| self.expect(&link));
        Ok(())
    }

    /// Expects a block. If the link contains its bytes, also expects the blocks below it.
    fn expect(&mut self, link: &Cid) {
        if !self.note_link(link) || identity_payload(link).is_none() {
            return;
        }
        // Each payload is shorter than the one that contains it, so this ends.
        let mut pending = vec![*link];
        while let Some(cid) = pending.pop() {
            let Some(payload) = identity_payload(&cid) else { continue };
            let Ok(linked) = links(&cid, &Bytes::copy_from_slice(payload)) else { continue };
            pending.extend(linked.iter().filter(|link| self.note_link(link)));
        }
    }

    /// Records a link. Returns whether it is new.
    fn note_link(&mut self, link: &Cid) -> bool {
        let (fingerprint, codec) = (self.fingerprint(link.hash()), Codecs::of(link.codec()));
        if let Some(seen) = self.seen.get_mut(&fingerprint) {
            let is_new = seen.linked.add(codec);
            if is_new && LINKING.contains(&link.codec()) && identity_payload(link).is_none() {
                self.relinked.push(*link);
            }
            return is_new;
        }
        let is_full = self.open.len() >= MAX_REMEMBERED;
        match self.open.entry(fingerprint) {
            Entry::Occupied(mut linked) => linked.get_mut().add(codec),
            Entry::Vacant(_) if is_full => {
                self.is_incomplete = true;
                false
            }
            Entry::Vacant(place) => {
                place.insert(codec);
                true
            }
        }
    }
}

/// Whether a dag-pb block begins with its data, as leaves of files do. Links come first otherwise.
fn is_leaf(data: &[u8]) -> bool {
    data.first() == Some(&0x0a)
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::new_cid;

    use super::Relation::{Foreign, New, Relabelled, Repeated, Uncertain};
    use super::*;

    fn raw(data: &'static [u8]) -> Block {
        Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from_static(data)).unwrap()
    }

    fn json_of(links: &[&Cid]) -> Bytes {
        let links: Vec<_> = links.iter().map(|link| format!(r#"{{"/":"{link}"}}"#)).collect();
        format!("[{}]", links.join(",")).into()
    }

    fn node(links: &[&Cid]) -> Block {
        Block::hash(1, codec::DAG_JSON, HashFunction::Sha2_256, json_of(links)).unwrap()
    }

    async fn relations(expected: &mut Expected, blocks: &[&Block]) -> Vec<Relation> {
        let mut relations = Vec::new();
        for block in blocks {
            relations.push(expected.accept(block).await.unwrap());
        }
        relations
    }

    #[tokio::test]
    async fn blocks_are_expected_after_their_parents_only() {
        let leaves = [raw(b"one"), raw(b"two")];
        let root = node(&[leaves[0].cid(), leaves[1].cid()]);
        let mut expected = Expected::new(root.cid());
        let sent = [&leaves[0], &root, &leaves[1], &leaves[1], &raw(b"three"), &leaves[0]];
        assert_eq!(relations(&mut expected, &sent).await, [Foreign, New, New, Repeated, Foreign, New]);
    }

    #[tokio::test]
    async fn identity_blocks_may_be_left_out_or_sent() {
        let leaf = raw(b"leaf");
        // A CIDv1 in binary, so that two nodes fit into 128 bytes.
        let node_of = |link: &Cid| {
            let mut cbor = vec![0x81, 0xd8, 0x2a, 0x58, u8::try_from(link.to_bytes().len() + 1).unwrap(), 0];
            cbor.extend(link.to_bytes());
            Block::hash(1, codec::DAG_CBOR, HashFunction::Identity, cbor.into()).unwrap()
        };
        let inner = node_of(leaf.cid());
        let outer = node_of(inner.cid());
        let root = node(&[outer.cid()]);
        let mut of_root = Expected::new(root.cid());
        assert_eq!(relations(&mut of_root, &[&root, &leaf]).await, [New, New]);
        let mut of_root = Expected::new(root.cid());
        assert_eq!(relations(&mut of_root, &[&root, &outer, &inner, &leaf]).await, [New, New, New, New]);
        let mut of_identity = Expected::new(outer.cid());
        assert_eq!(relations(&mut of_identity, &[&leaf, &raw(b"other")]).await, [New, Foreign]);
    }

    #[tokio::test]
    async fn block_of_two_codecs_is_expanded_however_it_arrives() {
        let leaf = raw(b"leaf");
        let as_node = node(&[leaf.cid()]);
        let as_raw = Block::hash(1, codec::RAW, HashFunction::Sha2_256, as_node.data().clone()).unwrap();
        let root = node(&[as_raw.cid(), as_node.cid()]);
        for (first, second) in [(&as_raw, &as_node), (&as_node, &as_raw)] {
            let mut expected = Expected::new(root.cid());
            assert_eq!(relations(&mut expected, &[&root, first, &leaf]).await, [New, New, New]);
            assert_eq!(relations(&mut expected, &[second, second, first]).await, [Relabelled, Repeated, Repeated]);
        }
        // The second link is in a block that comes later.
        let later = node(&[as_node.cid()]);
        let root = node(&[as_raw.cid(), later.cid()]);
        let mut expected = Expected::new(root.cid());
        assert_eq!(relations(&mut expected, &[&root, &as_raw, &leaf, &later]).await, [New, New, Foreign, New]);
        let relinked = expected.take_relinked().unwrap();
        assert_eq!(&relinked, as_node.cid());
        expected.expect_below(&relinked, as_node.data()).await.unwrap();
        assert_eq!(relations(&mut expected, &[&leaf, &raw(b"other")]).await, [New, Foreign]);
        expected.note_unknown();
        assert_eq!(relations(&mut expected, &[&raw(b"other")]).await, [Uncertain]);
    }

    #[tokio::test]
    async fn block_that_is_linked_as_raw_leads_nowhere() {
        let leaf = raw(b"leaf");
        let as_node = node(&[leaf.cid()]);
        let as_raw = new_cid(1, codec::RAW, *as_node.cid().hash()).unwrap();
        let root = node(&[&as_raw]);
        let mut expected = Expected::new(root.cid());
        let found = relations(&mut expected, &[&root, &as_node, &leaf]).await;
        assert_eq!(found, [New, New, Foreign]);
    }

    #[tokio::test]
    async fn block_is_uncertain_if_neither_links_nor_blocks_are_all_known() {
        let mut expected = Expected::new(raw(b"root").cid());
        let (linked, arrived) = (Codecs::default(), Codecs::default());
        expected.seen.extend((0..MAX_REMEMBERED as u64).map(|fingerprint| (fingerprint, Seen { linked, arrived })));
        assert_eq!(relations(&mut expected, &[&raw(b"other")]).await, [Repeated]);
        expected.note_unknown();
        assert_eq!(relations(&mut expected, &[&raw(b"other")]).await, [Uncertain]);
    }
}
