//! Pinning: what stays when garbage is collected.

use std::future::Future;

use ipfrs_core::{Cid, Error, Result};
use ipfrs_store::{Pin, PinMode, Pins};
use ipfrs_stream::BlockStoreSource;

use crate::protection::Lease;
use crate::reachable::{Leaves, Reachable};
use crate::{ContentPath, Node};

/// How something is pinned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinOptions {
    /// With everything below it; else the block alone.
    pub recursive: bool,
    /// A name for people; an empty one leaves the name of a pin that is there.
    pub name: String,
}

impl Default for PinOptions {
    fn default() -> Self {
        Self { recursive: true, name: String::new() }
    }
}

/// How far a walk over DAGs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walked {
    /// Blocks that were visited.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Makes pins. They are made under the lease whatever becomes of the caller: a pin that comes after it would be one of
/// blocks that may be gone.
pub(crate) async fn insert(pins: &Pins, new: Vec<Pin>, lease: &Lease) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let pins = pins.clone();
    under(lease, async move { pins.insert_many(new).await }).await
}

/// Does to its end what is done under a lease.
async fn under(lease: &Lease, work: impl Future<Output = Result<()>> + Send + 'static) -> Result<()> {
    let lease = lease.clone();
    let task = tokio::spawn(async move {
        let outcome = work.await;
        drop(lease);
        outcome
    });
    task.await.unwrap_or_else(|e| Err(Error::internal("pinning did not end").with_source(e)))
}

impl Node {
    /// Pins what `paths` lead to, all or none, and gives the CIDs. Every block must be here; `progress` is told how many
    /// were looked at. What collections do meanwhile does not matter.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names the block that is missing and the root,
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) for a direct pin of what is pinned recursively; else as
    /// [`resolve`](Self::resolve) and [`ipfrs_store::Pins::insert_many`]. Nothing is pinned then.
    pub async fn pin(
        &self,
        paths: &[ContentPath],
        options: &PinOptions,
        progress: impl FnMut(Walked) + Send,
    ) -> Result<Vec<Cid>> {
        let lease = self.inner.protection.lease();
        let cids = self.targets_of(paths).await?;
        let mode = if options.recursive { PinMode::Recursive } else { PinMode::Direct };
        self.require_all(&cids, mode, progress).await?;
        let pins = cids.iter().map(|cid| Pin { cid: *cid, mode, name: options.name.clone() }).collect();
        insert(&self.inner.pins, pins, &lease).await?;
        Ok(cids)
    }

    /// Removes the pins of what `paths` lead to, all or none, and gives the CIDs. Without `recursive` only direct pins
    /// are removed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) names what is not pinned itself,
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) what is pinned recursively and must not be.
    pub async fn unpin(&self, paths: &[ContentPath], recursive: bool) -> Result<Vec<Cid>> {
        let cids = self.targets_of(paths).await?;
        self.inner.pins.remove_many(cids.clone(), recursive).await?;
        Ok(cids)
    }

    /// Pins `to` recursively, with the name of the recursive pin `from`, which goes away in the same moment unless
    /// `keep`. Gives both CIDs.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) when `from` is not pinned recursively; else as [`pin`](Self::pin).
    pub async fn update_pin(&self, from: &ContentPath, to: &ContentPath, keep: bool) -> Result<(Cid, Cid)> {
        let lease = self.inner.protection.lease();
        let (from, to) = (self.target_of(from).await?, self.target_of(to).await?);
        let pins = &self.inner.pins;
        // Before the walk, which may take long.
        if pins.get(&from).await?.is_none_or(|pin| pin.mode != PinMode::Recursive) {
            return Err(Error::not_found(format!("{from} is not pinned recursively: pin {to} itself")));
        }
        self.require_all(&[to], PinMode::Recursive, |_| {}).await?;
        let pins = pins.clone();
        under(&lease, async move { pins.replace(&from, &to, keep).await }).await?;
        Ok((from, to))
    }

    /// Checks that the blocks of a pin are here. The caller holds a lease.
    async fn require_all(&self, roots: &[Cid], mode: PinMode, mut progress: impl FnMut(Walked) + Send) -> Result<()> {
        let protection = &self.inner.protection;
        if mode == PinMode::Direct {
            protection.touch(roots.iter().map(Cid::hash));
            protection.settled().await;
            let sizes = self.inner.store.has_many(roots).await?;
            return match roots.iter().zip(sizes).find(|(_, size)| size.is_none()) {
                Some((cid, _)) => {
                    Err(Error::no_block(cid, format!("cannot pin {cid}: its block is not in this store")))
                }
                None => Ok(()),
            };
        }
        let reachable = Reachable::new(self.inner.store.clone(), Leaves::Checked);
        let mut reachable = reachable.touching(protection.clone());
        let mut walked = Walked::default();
        for root in roots {
            reachable.start(root);
            let cannot = |e: Error| Error::new(e.kind(), format!("cannot pin {root}: {e}")).with_source(e);
            while let Some(visits) = reachable.next().await.map_err(cannot)? {
                for visit in visits {
                    walked.blocks += 1;
                    walked.bytes += visit.found.map_err(cannot)?;
                }
                progress(walked);
            }
        }
        Ok(())
    }

    /// What paths lead to.
    pub(crate) async fn targets_of(&self, paths: &[ContentPath]) -> Result<Vec<Cid>> {
        let mut cids = Vec::with_capacity(paths.len());
        for path in paths {
            cids.push(self.target_of(path).await?);
        }
        Ok(cids)
    }

    /// What a path leads to; a CID alone leads to itself, be it here or not. Denylists say nothing about what is kept.
    async fn target_of(&self, path: &ContentPath) -> Result<Cid> {
        match path.segments() {
            [] => Ok(*path.root()),
            _ => {
                let source = BlockStoreSource(self.inner.store.clone());
                Ok(ipfrs_unixfs::resolve(&source, path.root(), path.segments()).await?.cid)
            }
        }
    }
}
