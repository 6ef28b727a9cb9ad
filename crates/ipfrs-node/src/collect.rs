//! Collecting garbage: everything goes that no pin leads to. Adds, reads and pins go on meanwhile; [`crate::protection`]
//! says why nothing that is needed is lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use ipfrs_core::{Cid, Error, ErrorKind, Result, identity_payload};
use ipfrs_store::{CompactOptions, DamagedPack, PinMode, Spared};
use tokio::sync::mpsc::Sender;

use crate::Node;
use crate::pin_list::Pinned;
use crate::protection::Lease;
use crate::reachable::{Leaves, Marks, Reachable};

/// Blocks that are deleted together.
const BATCH_BLOCKS: usize = 1_000;

/// Blocks that are looked at between two tellings of how far it is.
const TELL_BLOCKS: u64 = 10_000;

/// What [`Node::collect`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Collecting {
    /// So many blocks are kept, as far as is known.
    Marked(u64),
    /// So many blocks of the store have been looked at.
    Swept(u64),
    /// These are gone.
    Removed(Vec<Cid>),
    /// Their space is being given back.
    Compacting,
}

/// What [`Node::collect`] did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Collected {
    /// Blocks that pins lead to.
    pub kept: u64,
    /// Blocks that are gone.
    pub removed: u64,
    /// Their payload, in bytes.
    pub removed_bytes: u64,
    /// Bytes that the disk got back, of earlier deletions too. Files that are being read when the collection ends
    /// are not counted: the disk gets their space back when the reads end.
    pub freed_bytes: u64,
    /// Files that should have been given back, and are damaged. They are kept with what can be read of them.
    pub damaged: Vec<DamagedPack>,
    /// How long it took.
    pub duration: Duration,
}

/// What became of a block that was to be removed.
pub type Removal = (Cid, Result<()>);

impl Node {
    /// Deletes every block that no pin leads to, and gives its space back. `events` is told in turn; the work waits for
    /// whoever listens, and goes on when nobody does. Dropping the future ends the collection between two batches.
    ///
    /// Where the pins were missing beside blocks that were there, only `force` collects, and says that the pins of now are
    /// all that there are.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] when a collection is under way, when imports that are under way have written too much, and
    /// without `force` when pins may be missing;
    /// [`ErrorKind::NotFound`] or another kind when a block below a pin is missing or malformed, with the block and the
    /// pin: nothing is deleted then, because what is below that block is not known.
    pub async fn collect(&self, force: bool, events: Sender<Collecting>) -> Result<Collected> {
        self.check_writable()?;
        let under_way = || Error::new(ErrorKind::Conflict, "a collection is under way: wait until it has ended");
        let _turn = self.inner.collecting.try_lock().map_err(|_| under_way())?;
        let metrics = &self.inner.metrics.collections;
        let _running = metrics.running();
        let start = Instant::now();
        let collected = self.mark_and_sweep(force, &events).await;
        metrics.ended(start.elapsed(), collected.is_ok());
        collected.map(|collected| Collected { duration: start.elapsed(), ..collected })
    }

    async fn mark_and_sweep(&self, force: bool, events: &Sender<Collecting>) -> Result<Collected> {
        let are_lost = self.inner.pins.are_lost().await?;
        if are_lost && !force {
            return Err(Error::new(
                ErrorKind::Conflict,
                "cannot collect: the store had blocks when its pins (pins.redb) were made, so what was pinned before is not \
                 known (nothing was removed; stop, and put pins.redb back from a copy; or pin what is to stay, and collect \
                 with force: `repo gc --force`)",
            ));
        }
        let lease = self.inner.protection.lease_of_all();
        self.inner.protection.check()?;
        let faults = self.faults();
        let (marks, kept) = self.mark(events).await?;
        if self.faults() != faults {
            return Err(Error::corrupt(
                "cannot collect: a pack was truncated while its blocks were read, so what pins lead to is not known \
                 (nothing was removed; restore the pack from a copy, or restart to go on without what is lost)",
            ));
        }
        if are_lost {
            self.inner.pins.accept_loss().await?;
        }
        let mut collected = Collected { kept, ..Collected::default() };
        self.sweep(marks, lease, &mut collected, events).await?;
        let _ = events.send(Collecting::Compacting).await;
        let compacted = self.inner.store.compact(CompactOptions::default()).await?;
        self.inner.metrics.collections.freed(compacted.freed_bytes);
        Ok(Collected { freed_bytes: compacted.freed_bytes, damaged: compacted.damaged, ..collected })
    }

    /// Marks what pins lead to.
    async fn mark(&self, events: &Sender<Collecting>) -> Result<(Marks, u64)> {
        let mut reachable = Reachable::new(self.inner.store.clone(), Leaves::Assumed);
        let (mut kept, mut told) = (0, 0);
        let mut pins = self.own_pins();
        while let Some(pin) = pins.next().await.transpose()? {
            if pin.mode == PinMode::Direct {
                reachable.mark(&pin.cid);
                kept += 1;
                continue;
            }
            let cid = pin.cid;
            let cannot = |e: Error| {
                Error::new(
                    e.kind(),
                    format!(
                        "cannot collect: what is below the pin {cid} is not known: {e} (nothing was removed; put the \
                         block back, or unpin {cid})"
                    ),
                )
            };
            reachable.start(&cid);
            while let Some(visits) = reachable.next().await.map_err(cannot)? {
                for visit in visits {
                    match visit.found {
                        Ok(_) => kept += 1,
                        Err(e) => self.excuse(&cid, &mut reachable, &visit.cid, e).await.map_err(cannot)?,
                    }
                }
                if kept - told >= TELL_BLOCKS {
                    told = kept;
                    let _ = events.send(Collecting::Marked(kept)).await;
                }
            }
        }
        let _ = events.send(Collecting::Marked(kept)).await;
        Ok((reachable.into_marks(), kept))
    }

    /// Deletes what is neither marked nor protected.
    async fn sweep(
        &self,
        marks: Marks,
        lease: Lease,
        collected: &mut Collected,
        events: &Sender<Collecting>,
    ) -> Result<()> {
        let (mut seen, mut told) = (0, 0);
        let mut garbage = Vec::with_capacity(BATCH_BLOCKS);
        let mut blocks = self.inner.store.iterate();
        while let Some(cid) = blocks.next().await.transpose()? {
            tokio::task::coop::consume_budget().await;
            seen += 1;
            if !marks.contains(cid.hash()) {
                garbage.push(cid);
            }
            if garbage.len() == BATCH_BLOCKS {
                self.remove_garbage(&mut garbage, &lease, collected, events).await?;
            }
            if seen - told >= TELL_BLOCKS {
                told = seen;
                let _ = events.send(Collecting::Swept(seen)).await;
            }
        }
        self.remove_garbage(&mut garbage, &lease, collected, events).await?;
        let _ = events.send(Collecting::Swept(seen)).await;
        Ok(())
    }

    async fn remove_garbage(
        &self,
        garbage: &mut Vec<Cid>,
        lease: &Lease,
        collected: &mut Collected,
        events: &Sender<Collecting>,
    ) -> Result<()> {
        // What has been forgotten is spared, all of it: there is no sense in going on.
        self.inner.protection.check()?;
        let garbage = std::mem::take(garbage);
        let sizes = self.inner.store.has_many(&garbage).await?;
        let removed = self.delete_untouched(garbage.clone(), lease).await?;
        let (mut gone, mut bytes) = (Vec::with_capacity(garbage.len()), 0);
        for ((cid, size), removed) in garbage.into_iter().zip(sizes).zip(removed) {
            if removed {
                bytes += size.unwrap_or(0);
                gone.push(cid);
            }
        }
        collected.removed += gone.len() as u64;
        collected.removed_bytes += bytes;
        self.inner.metrics.collections.removed(gone.len());
        if !gone.is_empty() {
            let _ = events.send(Collecting::Removed(gone)).await;
        }
        Ok(())
    }

    /// Deletes blocks but those that somebody is about to pin, under a lease of all.
    async fn delete_untouched(&self, cids: Vec<Cid>, lease: &Lease) -> Result<Vec<bool>> {
        let (protection, lease) = (self.inner.protection.clone(), lease.clone());
        let spared: Spared = Arc::new(move |hash| {
            let _lives_as_long = &lease;
            protection.is_touched(hash)
        });
        let (store, deleting) = (self.inner.store.clone(), self.inner.protection.deleting().await);
        let deletion = tokio::spawn(async move {
            let deleted = store.delete_unless(&cids, spared).await;
            drop(deleting);
            deleted
        });
        deletion.await.unwrap_or_else(|e| Err(Error::internal("a deletion did not end").with_source(e)))
    }

    /// Removes single blocks; each has its own outcome. One that is pinned, under this codec or another, stays, and so does
    /// one that an import needs.
    /// With `force` it is no error when a block is not there.
    ///
    /// # Errors
    /// When it cannot be told what is pinned, or blocks cannot be deleted.
    pub async fn remove_blocks(&self, cids: &[Cid], force: bool) -> Result<Vec<Removal>> {
        let lease = self.inner.protection.lease_of_all();
        let pinned = self.what_keeps(cids).await?;
        let free: Vec<_> =
            cids.iter().zip(&pinned).filter(|(_, pinned)| pinned.is_none()).map(|(cid, _)| *cid).collect();
        let mut deleted = self.delete_untouched(free, &lease).await?.into_iter();
        let left = self.inner.store.has_many(cids).await?;
        let removal = |((cid, left), pinned): ((&Cid, Option<u64>), Option<Pinned>)| {
            let outcome = match pinned {
                Some(Pinned::Itself(mode, _)) => Err(Error::new(ErrorKind::Conflict, format!("pinned: {mode}"))),
                Some(Pinned::Through(Some(root))) => Err(Error::new(ErrorKind::Conflict, format!("pinned via {root}"))),
                Some(Pinned::Through(None)) => Err(Error::new(ErrorKind::Conflict, "pinned: indirect")),
                None => match (deleted.next(), left) {
                    (Some(true), _) => Ok(()),
                    // There is nothing to remove of what carries its bytes itself.
                    (_, Some(_)) if identity_payload(cid).is_some() => Ok(()),
                    (_, None) if force => Ok(()),
                    (_, None) => Err(Error::no_block(cid, format!("block {cid} is not in this store"))),
                    (_, Some(_)) => {
                        let message = "an import that is under way needs it: try again when it has ended";
                        Err(Error::new(ErrorKind::Conflict, message))
                    }
                },
            };
            (*cid, outcome)
        };
        Ok(cids.iter().zip(left).zip(pinned).map(removal).collect())
    }
}
