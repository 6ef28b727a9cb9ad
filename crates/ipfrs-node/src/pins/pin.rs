//! Pins, which protect blocks from garbage collection.

use std::collections::HashSet;
use std::future::Future;

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_store::{MAX_PIN_NAME_BYTES, Pin, PinMode, Pins};
use ipfrs_stream::{BlockStoreSource, Part};
use ipfrs_unixfs::{knows_links, missing_target};

use super::difference::skip_common;
use crate::dag::{Leaves, Reachable};
use crate::events::{EventData, Topic};
use crate::fetched::Claims;
use crate::gc::Lease;
use crate::{ContentPath, Node, to_the_end};

/// Options of a pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinOptions {
    /// Whether the pin covers everything below the block, instead of the block alone.
    pub recursive: bool,
    /// Name for people. If empty, an existing pin keeps its name.
    pub name: String,
}

impl Default for PinOptions {
    fn default() -> Self {
        Self { recursive: true, name: String::new() }
    }
}

/// Checks the length of a pin's name.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) with the text of Kubo.
pub fn check_pin_name(name: &str) -> Result<()> {
    match name.len() {
        0..=MAX_PIN_NAME_BYTES => Ok(()),
        bytes => Err(Error::invalid(format!("pin name is {bytes} bytes (max {MAX_PIN_NAME_BYTES} bytes)"))),
    }
}

/// Progress of a walk over DAGs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    /// Number of blocks visited.
    pub blocks: u64,
    /// Bytes of these blocks.
    pub bytes: u64,
}

/// Creates pins. The task runs to completion under the lease even if the caller is cancelled: once the lease has
/// ended, gc may delete the blocks, and a pin created after that could refer to missing blocks.
pub(crate) async fn insert(node: &Node, new: Vec<Pin>, lease: &Lease) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let node = node.clone();
    under(lease, async move { insert_for_good(&node, new).await }).await
}

/// Creates the pins of a pin request, as [`insert`] does.
#[cfg(feature = "pinning")]
pub(crate) async fn insert_for_request(node: &Node, new: Vec<Pin>, lease: &Lease) -> Result<()> {
    let node = node.clone();
    under(lease, async move { insert_all(&node, new).await }).await
}

async fn insert_all(node: &Node, new: Vec<Pin>) -> Result<()> {
    let cids = new.iter().map(|pin| pin.cid).collect();
    changing(node, cids, node.inner.pins.insert_many(new)).await
}

/// Creates pins that are not removed with a pin request that made them before.
#[cfg(feature = "pinning")]
async fn insert_for_good(node: &Node, new: Vec<Pin>) -> Result<()> {
    let requests = &node.inner.pin_requests;
    let cids: Vec<_> = new.iter().map(|pin| pin.cid).collect();
    let is_concerned = requests.concern(&cids);
    insert_all(node, new.clone()).await?;
    // A request may have been added since.
    if !is_concerned && !requests.concern(&cids) {
        return Ok(());
    }
    let _changing = requests.disown(&cids).await?;
    // A request that was removed meanwhile may have removed the pin.
    insert_all(node, new).await
}

#[cfg(not(feature = "pinning"))]
async fn insert_for_good(node: &Node, new: Vec<Pin>) -> Result<()> {
    insert_all(node, new).await
}

/// Runs `change`, which affects the pins of `cids`, and emits what it really changed. Events have the order of the
/// changes: with watchers, there is one change at a time.
async fn changing(node: &Node, cids: Vec<Cid>, change: impl Future<Output = Result<()>>) -> Result<()> {
    let events = &node.inner.events;
    if !events.are_recorded(Topic::Pins) {
        change.await?;
        events.count(Topic::Pins, cids.len());
        return Ok(());
    }
    let pins = &node.inner.pins;
    let mut cids = cids;
    let mut seen = HashSet::new();
    cids.retain(|cid| seen.insert(*cid));
    let _in_order = events.pin_order().lock().await;
    let before = pins.get_many(cids.clone()).await?;
    change.await?;
    let after = pins.get_many(cids.clone()).await?;
    let changes = cids.into_iter().zip(before.into_iter().zip(after)).filter_map(|(cid, states)| match states {
        (_, None) if states.0.is_none() => None,
        (_, None) => Some(EventData::PinRemoved { cid }),
        (before, Some(pin)) if before.as_ref() == Some(&pin) => None,
        (_, Some(Pin { mode, name, .. })) => Some(EventData::PinAdded { cid, mode, name }),
    });
    events.emit(Topic::Pins, changes);
    Ok(())
}

/// Runs `work` to completion under a lease, even if the caller is cancelled.
async fn under(lease: &Lease, work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let lease = lease.clone();
    to_the_end(async move {
        let outcome = work.await;
        drop(lease);
        outcome
    })
    .await
}

impl Node {
    /// Pins the targets of `paths`, all or none, and returns their CIDs. Every block must be in the store. Calls
    /// `progress` with the number of blocks checked so far. Garbage collection may run at the same time.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names a missing block and its root;
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for a recursive pin above a block of a codec whose links are
    /// not known; [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) for a direct pin of a CID that is pinned recursively;
    /// otherwise as [`resolve`](Self::resolve) and [`ipfrs_store::Pins::insert_many`]. Nothing is pinned then.
    pub async fn pin(
        &self,
        paths: &[ContentPath],
        options: &PinOptions,
        progress: impl FnMut(Walked) + Send,
    ) -> Result<Vec<Cid>> {
        let (pins, lease) = self.prepare_pins(paths, options, progress).await?;
        let cids = pins.iter().map(|pin| pin.cid).collect();
        insert(self, pins, &lease).await?;
        Ok(cids)
    }

    /// Does all that [`pin`](Self::pin) does before the pins are created. They may be created under the lease.
    pub(crate) async fn prepare_pins(
        &self,
        paths: &[ContentPath],
        options: &PinOptions,
        progress: impl FnMut(Walked) + Send,
    ) -> Result<(Vec<Pin>, Lease)> {
        let lease = self.inner.protection.lease();
        let cids = self.targets_of(paths).await?;
        let mode = if options.recursive { PinMode::Recursive } else { PinMode::Direct };
        self.require_all(&cids, mode, progress).await?;
        let pins = cids.into_iter().map(|cid| Pin { cid, mode, name: options.name.clone() }).collect();
        Ok((pins, lease))
    }

    /// Removes the pins of the targets of `paths`, all or none, and returns their CIDs. Without `recursive`, only
    /// direct pins are removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names a CID without a pin of its own;
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) names a CID that is pinned recursively when `recursive` is not
    /// set.
    pub async fn unpin(&self, paths: &[ContentPath], recursive: bool) -> Result<Vec<Cid>> {
        let cids = self.targets_of(paths).await?;
        let (node, removed) = (self.clone(), cids.clone());
        // Subscribers get an event.
        to_the_end(async move {
            node.unpin_for_request(&removed, recursive).await?;
            #[cfg(feature = "pinning")]
            if let Err(error) = node.note_unpinned(&removed).await {
                tracing::error!(%error, "a pin request whose pin was removed cannot be written");
            }
            Ok(())
        })
        .await?;
        Ok(cids)
    }

    /// Removes pins, as [`unpin`](Self::unpin) does, for a pin request that ends.
    pub(crate) async fn unpin_for_request(&self, cids: &[Cid], recursive: bool) -> Result<()> {
        changing(self, cids.to_vec(), self.inner.pins.remove_many(cids.to_vec(), recursive)).await
    }

    /// Replaces a pin by the direct pin that was there before a pin request that ends.
    #[cfg(feature = "pinning")]
    pub(crate) async fn restore_direct_pin(&self, cid: &Cid, name: String) -> Result<()> {
        changing(self, vec![*cid], self.inner.pins.make_direct(cid, name)).await
    }

    /// Pins `to` recursively with the name of the recursive pin `from`. Unless `keep` is set, `from` is removed in
    /// the same transaction. Returns both CIDs.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if `from` is not pinned recursively;
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if `to` is, as its name would be lost; otherwise as
    /// [`pin`](Self::pin).
    pub async fn update_pin(&self, from: &ContentPath, to: &ContentPath, keep: bool) -> Result<(Cid, Cid)> {
        let lease = self.inner.protection.lease();
        let (from, to) = (self.target_of(from).await?, self.target_of(to).await?);
        let pins = &self.inner.pins;
        // Checked before the walk, which may take long.
        if pins.get(&from).await?.is_none_or(|pin| pin.mode != PinMode::Recursive) {
            return Err(Error::not_found("'from' cid was not recursively pinned already"));
        }
        if from.hash() != to.hash() && pins.get(&to).await?.is_some_and(|pin| pin.mode == PinMode::Recursive) {
            return Err(Pins::already_pinned());
        }
        self.require_below(&[to], Some(&from), |_| {}).await?;
        let node = self.clone();
        let replacement = async move {
            let pins = &node.inner.pins;
            changing(&node, vec![to, from], pins.replace(&from, &to, keep)).await?;
            if let Some(pin) = pins.get(&to).await? {
                insert_for_good(&node, vec![pin]).await?;
            }
            #[cfg(feature = "pinning")]
            if !keep {
                node.note_unpinned(&[from]).await?;
            }
            Ok(())
        };
        under(&lease, replacement).await?;
        Ok((from, to))
    }

    /// Checks that all blocks of a pin are in the store, and makes them permanent, durably. The caller must hold a
    /// lease.
    async fn require_all(&self, roots: &[Cid], mode: PinMode, progress: impl FnMut(Walked) + Send) -> Result<()> {
        if mode == PinMode::Direct {
            let protection = &self.inner.protection;
            let mut claims = Claims::new(self.inner.fetched.as_ref());
            protection.touch(roots.iter().map(Cid::hash));
            protection.settled().await;
            let sizes = self.inner.store.has_many(roots).await?;
            for (cid, _) in roots.iter().zip(sizes).filter(|(_, size)| size.is_none()) {
                let found = self.pinned_store(cid, Part::Block).get(cid).await;
                if found.map_err(|e| Error::new(e.kind(), format!("cannot pin {cid}: {e}")).with_source(e))?.is_none() {
                    return Err(Error::no_block(cid, format!("cannot pin {cid}: block {cid} is not in this store")));
                }
            }
            claims.add(roots.iter().map(Cid::hash));
            return claims.finish().await;
        }
        self.require_below(roots, None, progress).await
    }

    /// Same as [`require_all`](Self::require_all), for recursive pins. What the DAG of the recursive pin `replaced` has
    /// at the same place is known to be complete, and stays so until that pin is removed: it is not visited.
    async fn require_below(
        &self,
        roots: &[Cid],
        replaced: Option<&Cid>,
        mut progress: impl FnMut(Walked) + Send,
    ) -> Result<()> {
        let mut claims = Claims::new(self.inner.fetched.as_ref());
        let reachable = Reachable::new(self.inner.store.clone(), Leaves::Checked);
        let mut reachable = reachable.touching(self.inner.protection.clone());
        let mut walked = Walked::default();
        for root in roots {
            if let Some(replaced) = replaced {
                skip_common(&self.inner.store, &mut reachable, replaced, root).await?;
            }
            reachable.start_in(self.pinned_store(root, Part::All), root);
            let cannot = |e: Error| Error::new(e.kind(), format!("cannot pin {root}: {e}")).with_source(e);
            while let Some(visits) = reachable.next().await.map_err(cannot)? {
                claims.add(visits.iter().filter(|visit| visit.found.is_ok()).map(|visit| visit.cid.hash()));
                for visit in visits {
                    walked.blocks += 1;
                    walked.bytes += visit.found.map_err(cannot)?;
                    let codec = visit.cid.codec();
                    if !knows_links(codec) {
                        let text = format!("no decoder registered for multicodec code {codec} (0x{codec:x})");
                        let remedy = "a direct pin keeps this block without what it links to";
                        return Err(cannot(Error::unsupported(format!(
                            "could not choose a decoder: {text}; {remedy}"
                        ))));
                    }
                }
                progress(walked);
            }
        }
        claims.finish().await
    }

    /// Returns the targets of paths.
    pub(crate) async fn targets_of(&self, paths: &[ContentPath]) -> Result<Vec<Cid>> {
        let mut cids = Vec::with_capacity(paths.len());
        for path in paths {
            cids.push(self.target_of(path).await?);
        }
        Ok(cids)
    }

    /// Returns the target of a path, whether its block is in the store or not. Denylists do not apply to pins.
    pub(crate) async fn target_of(&self, path: &ContentPath) -> Result<Cid> {
        if path.segments().is_empty() {
            return Ok(*path.root());
        }
        match path.follow(&BlockStoreSource(self.pinned_path_store(path))).await {
            Ok(resolved) => Ok(resolved.cid),
            // A block that no source delivers is an error here already: a pin would wait for it a second time.
            Err(error) if error.kind() == ErrorKind::NotFound => missing_target(&error).ok_or(error),
            Err(error) => Err(error),
        }
    }
}
