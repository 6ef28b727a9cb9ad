//! Listing and verification of pins.

use std::collections::{HashMap, VecDeque};
use std::str::FromStr;

use futures::stream::{self, BoxStream, StreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use ipfrs_store::{BlockStoreExt, Pin, PinMode};
use tokio::task::coop::consume_budget;

use crate::dag::{Leaves, Reachable};
use crate::{ContentPath, Node};

/// Maximum number of bad blocks that are reported for one pin.
const MAX_BAD_BLOCKS: usize = 1_000;

/// Selection of pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PinFilter {
    /// All of them.
    #[default]
    All,
    /// Direct pins, each of a single block.
    Direct,
    /// Recursive pins, each of a DAG.
    Recursive,
    /// Blocks below a recursive pin that are not pinned themselves.
    Indirect,
}

impl FromStr for PinFilter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "all" => Ok(Self::All),
            "direct" => Ok(Self::Direct),
            "recursive" => Ok(Self::Recursive),
            "indirect" => Ok(Self::Indirect),
            other => Err(Error::invalid(format!(
                "invalid type '{other}', must be one of {{direct, indirect, recursive, all}}"
            ))),
        }
    }
}

impl PinFilter {
    fn takes(self, mode: PinMode) -> bool {
        match self {
            Self::All => true,
            Self::Direct => mode == PinMode::Direct,
            Self::Recursive => mode == PinMode::Recursive,
            Self::Indirect => false,
        }
    }

    fn takes_indirect(self) -> bool {
        matches!(self, Self::All | Self::Indirect)
    }
}

/// Way in which a block is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pinned {
    /// By a pin of its own, with its mode and name.
    Itself(PinMode, String),
    /// By a recursive pin above it, with the CID of that pin if known.
    Through(Option<Cid>),
}

/// Recursive pin with the errors found below it.
#[derive(Debug)]
pub struct VerifiedPin {
    /// Root of the pin.
    pub cid: Cid,
    /// Blocks below the root that are missing or that their codec cannot decode, at most 1,000.
    pub bad: Vec<(Cid, Error)>,
}

impl Node {
    /// Returns the pins that `filter` selects: direct and recursive pins first, then the blocks below recursive pins.
    /// The former need bounded memory; for the latter, the walk keeps a few bytes per block.
    #[must_use]
    pub fn pins(&self, filter: PinFilter) -> BoxStream<'static, Result<(Cid, Pinned)>> {
        let own = self.own_pins().filter_map(move |pin| {
            let own = match pin {
                Ok(pin) => filter.takes(pin.mode).then_some(Ok((pin.cid, Pinned::Itself(pin.mode, pin.name)))),
                Err(e) => Some(Err(e)),
            };
            async move { own }
        });
        let indirect = stream::iter(filter.takes_indirect().then(|| self.indirect_pins())).flatten();
        own.chain(indirect).boxed()
    }

    /// Returns up to `most` direct and recursive pins behind that of `after`, in the order of their content IDs, and
    /// whether there are more.
    ///
    /// # Errors
    /// If the pins cannot be read.
    pub async fn pin_page(&self, after: Option<Cid>, filter: PinFilter, most: usize) -> Result<(Vec<Pin>, bool)> {
        let (mut selected, mut after) = (Vec::new(), after);
        loop {
            let page = self.inner.pins.page(after).await?;
            let Some(last) = page.last() else { return Ok((selected, false)) };
            after = Some(last.cid);
            for pin in page.into_iter().filter(|pin| filter.takes(pin.mode)) {
                if selected.len() == most {
                    return Ok((selected, true));
                }
                selected.push(pin);
            }
        }
    }

    /// Returns the target of each of `paths` and how it is pinned; `None` if `filter` selects no pin of it.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub async fn pinned(&self, paths: &[ContentPath], filter: PinFilter) -> Result<Vec<(Cid, Option<Pinned>)>> {
        let cids = self.targets_of(paths).await?;
        let found = self.how_pinned(&cids, filter).await?;
        Ok(cids.into_iter().zip(found).collect())
    }

    /// Returns how each of `cids` is pinned; `None` for a CID that is not pinned. As in Kubo, content with a recursive
    /// pin of its own is not pinned indirectly too, but content with a direct pin may be.
    async fn how_pinned(&self, cids: &[Cid], filter: PinFilter) -> Result<Vec<Option<Pinned>>> {
        let is_indirect = filter == PinFilter::Indirect;
        let mut found = self.pinned_itself(cids, if is_indirect { PinFilter::Recursive } else { filter }).await?;
        if filter.takes_indirect() {
            self.find_pins(cids, Same::Content, &mut found).await?;
        }
        let is_selected = |pinned: &Pinned| !is_indirect || matches!(pinned, Pinned::Through(_));
        Ok(found.into_iter().map(|pinned| pinned.filter(is_selected)).collect())
    }

    /// Returns the pin that keeps the block of each of `cids`, under any codec, because deleting a block removes it
    /// for all codecs.
    pub(crate) async fn what_keeps(&self, cids: &[Cid]) -> Result<Vec<Option<Pinned>>> {
        let mut found = self.pinned_itself(cids, PinFilter::All).await?;
        self.find_pins(cids, Same::Block, &mut found).await?;
        Ok(found)
    }

    async fn pinned_itself(&self, cids: &[Cid], filter: PinFilter) -> Result<Vec<Option<Pinned>>> {
        let pins = self.inner.pins.get_many(cids.to_vec()).await?;
        let own = pins.into_iter().map(|pin| pin.filter(|pin| filter.takes(pin.mode)));
        Ok(own.map(|pin| pin.map(|pin| Pinned::Itself(pin.mode, pin.name))).collect())
    }

    /// Fills in how each of `cids` is pinned whose entry in `found` is still `None`.
    async fn find_pins(&self, cids: &[Cid], same: Same, found: &mut [Option<Pinned>]) -> Result<()> {
        let unknown = cids.iter().zip(&*found).filter(|(_, pinned)| pinned.is_none());
        let mut wanted: HashMap<_, _> = unknown.map(|(cid, _)| (same.key(cid), None)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        self.find_above(&mut wanted, same).await?;
        for (cid, pinned) in cids.iter().zip(found) {
            if pinned.is_none() {
                *pinned = wanted.get(&same.key(cid)).cloned().flatten();
            }
        }
        Ok(())
    }

    /// Decides whether a missing or invalid block below the recursive pin of `root` is an error. It is none if the
    /// pin has been removed since it was read. If the block has been stored again since then, the walk visits it once
    /// more.
    ///
    /// # Errors
    /// `failure`, if the pin still exists and the block is still missing or invalid.
    pub(crate) async fn excuse(&self, root: &Cid, reachable: &mut Reachable, cid: &Cid, failure: Error) -> Result<()> {
        let pin = self.inner.pins.get(root).await?;
        if pin.is_none_or(|pin| pin.mode != PinMode::Recursive) {
            return Ok(());
        }
        if failure.kind() == ErrorKind::NotFound && self.inner.store.size(cid).await?.is_some() {
            reachable.retry(cid);
            return Ok(());
        }
        Err(failure)
    }

    /// Finds a recursive pin above each of `wanted`; with [`Same::Block`], any pin.
    async fn find_above(&self, wanted: &mut HashMap<Key, Option<Pinned>>, same: Same) -> Result<()> {
        let (mut left, mut unknown) = (wanted.len(), None);
        let mut reachable = Reachable::new(self.inner.store.clone(), Leaves::Assumed);
        let mut pins = self.own_pins();
        while let Some(pin) = pins.next().await.transpose()? {
            let pinned = same.key(&pin.cid);
            if same == Same::Block
                && let Some(how @ None) = wanted.get_mut(&pinned)
            {
                *how = Some(Pinned::Itself(pin.mode, pin.name));
                left -= 1;
            }
            if left == 0 {
                return Ok(());
            }
            // Nothing is below a raw block.
            if pin.mode == PinMode::Recursive && pin.cid.codec() != codec::RAW {
                reachable.start(&pin.cid);
            }
            while let Some(visits) = reachable.next().await? {
                for visit in visits {
                    let key = same.key(&visit.cid);
                    if let Some(how @ None) = wanted.get_mut(&key)
                        && key != pinned
                    {
                        *how = Some(Pinned::Through(Some(pin.cid)));
                        left -= 1;
                    }
                    if let Err(e) = visit.found {
                        unknown = unknown.or(self.excuse(&pin.cid, &mut reachable, &visit.cid, e).await.err());
                    }
                }
                if left == 0 {
                    return Ok(());
                }
            }
        }
        // The CIDs that were not found might be below the block that could not be read.
        unknown.map_or(Ok(()), Err)
    }

    /// Returns all direct and recursive pins.
    pub(crate) fn own_pins(&self) -> BoxStream<'static, Result<Pin>> {
        let pins = self.inner.pins.clone();
        let pages = stream::try_unfold(None, move |after| {
            let pins = pins.clone();
            async move {
                let page = pins.page(after).await?;
                Ok::<_, Error>(page.last().map(|last| Some(last.cid)).map(|next| (page, next)))
            }
        });
        pages
            .map(|page| match page {
                Ok(page) => stream::iter(page.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(e) => stream::iter(vec![Err(e)]),
            })
            .flatten()
            .then(|pin| async move {
                // A filter behind this may select none of a million pins.
                consume_budget().await;
                pin
            })
            .boxed()
    }

    fn indirect_pins(&self) -> BoxStream<'static, Result<(Cid, Pinned)>> {
        let walk = Indirect {
            node: self.clone(),
            reachable: Reachable::new(self.inner.store.clone(), Leaves::Assumed),
            roots: self.own_pins(),
            root: None,
            ready: VecDeque::new(),
        };
        stream::try_unfold(walk, |mut walk| async move { Ok(walk.next().await?.map(|next| (next, walk))) }).boxed()
    }

    /// Checks that every block below every recursive pin is in the store and can be decoded with its codec. Leaves
    /// are not read.
    #[must_use]
    pub fn verify_pins(&self) -> BoxStream<'static, Result<VerifiedPin>> {
        let node = self.clone();
        let recursive = self.own_pins().filter(|pin| {
            let takes = pin.as_ref().map_or(true, |pin| pin.mode == PinMode::Recursive);
            async move { takes }
        });
        recursive
            .then(move |pin| {
                let node = node.clone();
                async move { node.verify_pin(pin?.cid).await }
            })
            .filter_map(|verified| async move { verified.transpose() })
            .boxed()
    }

    /// Verifies one pin. Returns `None` if it is no longer pinned.
    async fn verify_pin(&self, cid: Cid) -> Result<Option<VerifiedPin>> {
        let mut bad = Vec::new();
        // Each pin is walked separately, so that a bad block which two pins share is reported for both.
        let mut reachable = Reachable::new(self.inner.store.clone(), Leaves::Checked);
        reachable.start(&cid);
        while let Some(visits) = reachable.next().await? {
            let faulty = visits.into_iter().filter_map(|visit| Some((visit.cid, visit.found.err()?)));
            bad.extend(faulty.take(MAX_BAD_BLOCKS - bad.len()));
        }
        let is_pinned = bad.is_empty() || self.inner.pins.get(&cid).await?.is_some();
        Ok(is_pinned.then_some(VerifiedPin { cid, bad }))
    }
}

/// Equivalence of CIDs, regardless of their version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Same {
    /// CIDs of one block under one codec.
    Content,
    /// CIDs of one block under any codec.
    Block,
}

/// Key that is equal for equivalent CIDs.
type Key = (Option<u64>, Vec<u8>);

impl Same {
    fn key(self, cid: &Cid) -> Key {
        ((self == Self::Content).then(|| cid.codec()), cid.hash().to_bytes())
    }
}

/// Walk over the blocks below recursive pins.
struct Indirect {
    node: Node,
    reachable: Reachable,
    roots: BoxStream<'static, Result<Pin>>,
    /// Root of the pin that is being walked.
    root: Option<Cid>,
    ready: VecDeque<Cid>,
}

impl Indirect {
    async fn next(&mut self) -> Result<Option<(Cid, Pinned)>> {
        loop {
            if let Some(cid) = self.ready.pop_front() {
                return Ok(Some((cid, Pinned::Through(None))));
            }
            if let Some(visits) = self.reachable.next().await? {
                let mut cids = Vec::with_capacity(visits.len());
                for visit in visits {
                    match (visit.found, self.root) {
                        (Err(e), Some(root)) => self.node.excuse(&root, &mut self.reachable, &visit.cid, e).await?,
                        _ => cids.push(visit.cid),
                    }
                }
                let own = self.node.inner.pins.get_many(cids.clone()).await?;
                self.ready = cids.into_iter().zip(own).filter(|(_, pin)| pin.is_none()).map(|(cid, _)| cid).collect();
            } else {
                match self.roots.next().await.transpose()? {
                    Some(pin) if pin.mode == PinMode::Recursive => {
                        self.root = Some(pin.cid);
                        self.reachable.start(&pin.cid);
                    }
                    Some(_) => {}
                    None => return Ok(None),
                }
            }
        }
    }
}
