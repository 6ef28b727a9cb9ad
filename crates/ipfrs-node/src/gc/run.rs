//! Garbage collection: removes every block that neither a pin nor the mutable files lead to. Adds, reads and pins
//! continue meanwhile; [`crate::gc::protection`] explains why no needed block is lost.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use ipfrs_core::{Cid, Error, ErrorKind, Result, identity_payload};
use ipfrs_store::{CompactOptions, PinMode, Spared};
use tokio::sync::mpsc::{Sender, channel};

use crate::dag::{Leaves, Marks, Reachable};
use crate::events::{EventData, GcPhase, Topic};
use crate::gc::{GcReport, Lease};
use crate::pins::Pinned;
use crate::{Node, to_the_end};

/// Number of blocks that are deleted together.
const BATCH_BLOCKS: usize = 1_000;

/// Number of blocks between two progress events.
const TELL_BLOCKS: u64 = 10_000;

/// Number of events of [`Node::gc`] that wait for the closure.
const EVENTS_AHEAD: usize = 16;

/// Options of [`Node::gc`].
#[derive(Default)]
pub struct GcOptions<'a> {
    /// Whether gc runs although the pin database was missing when the store already had blocks. The caller accepts
    /// the current pins as complete.
    pub force: bool,
    /// Called with each progress event, by the task that waits for gc.
    pub progress: Option<Box<dyn FnMut(GcEvent) + Send + 'a>>,
}

impl fmt::Debug for GcOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GcOptions").field("force", &self.force).finish_non_exhaustive()
    }
}

/// Progress event of [`Node::gc`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GcEvent {
    /// Number of blocks that are known to be kept so far.
    Marked(u64),
    /// Number of blocks in the store that have been examined so far.
    Swept(u64),
    /// Blocks that were removed.
    Removed(Vec<Cid>),
    /// The store is reclaiming the space of the removed blocks.
    Compacting,
}

/// Emits the end of a run whose future is dropped.
struct EmitAborted<'a>(Option<&'a Node>);

impl<'a> EmitAborted<'a> {
    /// Emits the start of a run.
    fn begin(node: &'a Node) -> Self {
        node.emit_gc(GcPhase::Started);
        Self(Some(node))
    }

    /// The caller emits the end itself.
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for EmitAborted<'_> {
    fn drop(&mut self) {
        if let Some(node) = self.0 {
            let message = "aborted: the client disconnected, or the daemon stopped".to_owned();
            node.emit_gc(GcPhase::Failed { kind: ErrorKind::Gone, message });
        }
    }
}

/// Block that a caller asked to remove, and the outcome.
pub type Removal = (Cid, Result<()>);

impl Node {
    /// Deletes every block that no pin leads to and reclaims the space. Dropping the future ends gc between two
    /// batches.
    ///
    /// # Errors
    /// As [`Self::collect`].
    pub async fn gc(&self, options: GcOptions<'_>) -> Result<GcReport> {
        let GcOptions { force, mut progress } = options;
        let (sender, mut events) = channel(EVENTS_AHEAD);
        let report = async {
            while let Some(event) = events.recv().await {
                if let Some(progress) = &mut progress {
                    progress(event);
                }
            }
        };
        let (collected, ()) = futures::join!(self.collect(force, sender), report);
        collected
    }

    /// Same as [`Self::gc`], for callers that pass the events on to a client and must not buffer them. gc waits while
    /// the channel is full, so the receiver must be read or dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if gc is already running, if running imports have written too much, or, without
    /// `force`, if pins or the root of the mutable files may be missing; [`ErrorKind::NotFound`] or another kind if a
    /// block below a pin is missing or malformed. The error names the block and the pin. Nothing is deleted then,
    /// because the blocks below that block are unknown.
    pub async fn collect(&self, force: bool, events: Sender<GcEvent>) -> Result<GcReport> {
        self.check_writable()?;
        let already_running =
            || Error::new(ErrorKind::Conflict, "a garbage collection is in progress: wait until it ends");
        let _guard = self.inner.collecting.try_lock().map_err(|_| already_running())?;
        // The packs that they name would keep their disk space.
        self.remove_unused_snapshots().await;
        let metrics = &self.inner.metrics.collections;
        let _running = metrics.running();
        let start = Instant::now();
        let aborted = EmitAborted::begin(self);
        let collected = self.mark_and_sweep(force, &events).await;
        aborted.end();
        metrics.ended(start.elapsed(), collected.is_ok());
        let collected = collected.map(|collected| GcReport { duration: start.elapsed(), ..collected });
        self.emit_gc(match &collected {
            Ok(report) => GcPhase::Done(report.clone()),
            Err(error) => GcPhase::Failed { kind: error.kind(), message: error.message().to_owned() },
        });
        collected
    }

    fn emit_gc(&self, phase: GcPhase) {
        self.inner.events.emit(Topic::Gc, [EventData::Gc(phase)]);
    }

    /// Reports progress to the caller and to those who watch.
    async fn report_gc(&self, event: GcEvent, events: &Sender<GcEvent>) {
        match &event {
            GcEvent::Marked(blocks) => self.emit_gc(GcPhase::Marked(*blocks)),
            GcEvent::Swept(blocks) => self.emit_gc(GcPhase::Swept(*blocks)),
            // The topic of blocks has these.
            GcEvent::Removed(_) => {}
            GcEvent::Compacting => self.emit_gc(GcPhase::Compacting),
        }
        // The caller may have stopped to read the events.
        let _ = events.send(event).await;
    }

    async fn mark_and_sweep(&self, force: bool, events: &Sender<GcEvent>) -> Result<GcReport> {
        let are_lost = self.inner.pins.are_lost().await?;
        if are_lost && !force {
            return Err(Error::new(
                ErrorKind::Conflict,
                "cannot collect garbage: the store already had blocks when pins.redb was created, so older pins are not \
                 known (nothing was removed; stop the daemon and restore pins.redb from a backup, or pin what must be kept \
                 and run `repo gc --force`)",
            ));
        }
        if !force {
            self.check_root_is_not_lost().await?;
        }
        self.inner.protection.renew_leases();
        let lease = self.inner.protection.lease_of_all();
        self.inner.protection.check()?;
        let faults = self.faults();
        let durable = self.ensure_pins_are_durable(None).await?;
        let (marks, kept) = self.mark(events).await?;
        self.ensure_pins_are_durable(Some(durable)).await?;
        if self.faults() != faults {
            return Err(Error::corrupt(
                "cannot collect garbage: a pack was truncated while it was read, so the pinned blocks are not known \
                 (nothing was removed; restore the pack from a backup, or restart to continue without the lost data)",
            ));
        }
        if are_lost {
            self.inner.pins.accept_loss().await?;
        }
        self.accept_lost_root().await?;
        let mut collected = GcReport { kept, ..GcReport::default() };
        self.sweep(marks, lease, &mut collected, events).await?;
        self.report_gc(GcEvent::Compacting, events).await;
        let compacted = self.inner.store.compact(CompactOptions::default()).await?;
        self.inner.metrics.collections.freed(compacted.freed_bytes);
        Ok(GcReport { freed_bytes: compacted.freed_bytes, damaged: compacted.damaged, ..collected })
    }

    /// Ensures that the pins are durable, and that they were since `before`, which this returned.
    async fn ensure_pins_are_durable(&self, before: Option<u64>) -> Result<u64> {
        let cannot = |kind, why: &str| {
            Error::new(
                kind,
                format!("cannot remove blocks: {why} (nothing was removed; try again when the disk works)"),
            )
        };
        let now = self.inner.pins.ensure_durable().await.map_err(|e| cannot(e.kind(), e.message()))?;
        if before.is_some_and(|before| before != now) {
            return Err(cannot(ErrorKind::Unavailable, "the disk failed while the pins were read"));
        }
        Ok(now)
    }

    /// Marks every block that a pin leads to.
    async fn mark(&self, events: &Sender<GcEvent>) -> Result<(Marks, u64)> {
        let mut reachable = Reachable::new(self.inner.store.clone(), Leaves::Assumed);
        let (mut kept, mut reported) = (0, 0);
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
                        "cannot collect garbage: the blocks below the pin {cid} are unknown: {e} (nothing was removed; \
                         restore the block, or unpin {cid})"
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
                if kept - reported >= TELL_BLOCKS {
                    reported = kept;
                    self.report_gc(GcEvent::Marked(kept), events).await;
                }
            }
        }
        kept += self.mark_mutable_files(&mut reachable).await?;
        self.report_gc(GcEvent::Marked(kept), events).await;
        Ok((reachable.into_marks(), kept))
    }

    /// Marks the blocks of the mutable files, and returns their number. A missing block below the root is no error,
    /// because a copy into the tree does not need the blocks below its own root.
    async fn mark_mutable_files(&self, reachable: &mut Reachable) -> Result<u64> {
        let mut kept = 0;
        for root in self.mutable_roots().await? {
            let cannot = |e: Error| {
                let message = format!(
                    "cannot collect garbage: the blocks below the mutable files {root} are unknown: {e} (nothing was \
                     removed; restore the block, or remove the file)"
                );
                Error::new(e.kind(), message)
            };
            reachable.start_in(self.store_below(&root), &root);
            while let Some(visits) = reachable.next().await.map_err(cannot)? {
                for visit in visits {
                    match visit.found {
                        Ok(_) => kept += 1,
                        Err(e) if e.kind() == ErrorKind::NotFound && visit.cid == root => {
                            return Err(Error::new(
                                e.kind(),
                                format!(
                                    "cannot collect garbage: the root {root} of the mutable files is missing (nothing was \
                                     removed; restore it from a backup, or stop the daemon and write the content ID of \
                                     another directory into mutable-files.root)"
                                ),
                            ));
                        }
                        Err(e) if e.kind() == ErrorKind::NotFound => {}
                        Err(e) => return Err(cannot(e)),
                    }
                }
            }
        }
        Ok(kept)
    }

    /// Deletes every block that is neither marked nor protected.
    async fn sweep(
        &self,
        marks: Marks,
        lease: Lease,
        collected: &mut GcReport,
        events: &Sender<GcEvent>,
    ) -> Result<()> {
        let (mut seen, mut reported) = (0, 0);
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
            if seen - reported >= TELL_BLOCKS {
                reported = seen;
                self.report_gc(GcEvent::Swept(seen), events).await;
            }
        }
        self.remove_garbage(&mut garbage, &lease, collected, events).await?;
        self.report_gc(GcEvent::Swept(seen), events).await;
        Ok(())
    }

    async fn remove_garbage(
        &self,
        garbage: &mut Vec<Cid>,
        lease: &Lease,
        collected: &mut GcReport,
        events: &Sender<GcEvent>,
    ) -> Result<()> {
        // If too many touches were recorded, every block is spared, so there is no point in continuing.
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
            self.report_gc(GcEvent::Removed(gone), events).await;
        }
        Ok(())
    }

    /// Deletes `cids`, except for blocks that a client is about to pin. `lease` must come from
    /// [`lease_of_all`](crate::gc::Protection::lease_of_all).
    async fn delete_untouched(&self, cids: Vec<Cid>, lease: &Lease) -> Result<Vec<bool>> {
        let (protection, lease) = (self.inner.protection.clone(), lease.clone());
        let spared: Spared = Arc::new(move |hash| {
            let _lives_as_long = &lease;
            protection.is_touched(hash)
        });
        let (store, deleting) = (self.inner.store.clone(), self.inner.protection.deleting().await);
        to_the_end(async move {
            let deleted = store.delete_unless(&cids, spared).await;
            drop(deleting);
            deleted
        })
        .await
    }

    /// Removes single blocks and returns one outcome for each. A block that is pinned, under this or another codec,
    /// is kept. The root of the mutable files is kept too, and a block that an import needs. With `force`, a missing
    /// block is no error.
    ///
    /// # Errors
    /// If the pins cannot be read or the blocks cannot be deleted.
    pub async fn remove_blocks(&self, cids: &[Cid], force: bool) -> Result<Vec<Removal>> {
        let protection = &self.inner.protection;
        if cids.iter().any(|cid| protection.is_touched(cid.hash())) {
            protection.renew_leases();
        }
        let lease = protection.lease_of_all();
        let durable = self.ensure_pins_are_durable(None).await?;
        let pinned = self.what_keeps(cids).await?;
        self.ensure_pins_are_durable(Some(durable)).await?;
        // Without it, no mutable file can be read.
        let root = self.inner.mutable_files.durable_root().await.root();
        let is_root = |cid: &Cid| root.is_some_and(|root| root.hash() == cid.hash());
        let is_free = |(cid, pinned): &(&Cid, &Option<Pinned>)| pinned.is_none() && !is_root(cid);
        let free: Vec<_> = cids.iter().zip(&pinned).filter(is_free).map(|(cid, _)| *cid).collect();
        let mut deleted = self.delete_untouched(free, &lease).await?.into_iter();
        let left = self.inner.store.has_many(cids).await?;
        let removal = |((cid, left), pinned): ((&Cid, Option<u64>), Option<Pinned>)| {
            let outcome = match pinned {
                Some(Pinned::Itself(mode, _)) => Err(Error::new(ErrorKind::Conflict, format!("pinned: {mode}"))),
                Some(Pinned::Through(Some(root))) => Err(Error::new(ErrorKind::Conflict, format!("pinned via {root}"))),
                Some(Pinned::Through(None)) => Err(Error::new(ErrorKind::Conflict, "pinned: indirect")),
                None if is_root(cid) => Err(Error::new(ErrorKind::Conflict, "it is the root of the mutable files")),
                None => match (deleted.next(), left) {
                    (Some(true), _) => Ok(()),
                    // An identity CID carries its bytes itself, so there is nothing to remove.
                    (_, Some(_)) if identity_payload(cid).is_some() => Ok(()),
                    (_, None) if force => Ok(()),
                    (_, None) => Err(Error::no_block(cid, format!("block {cid} is not in this store"))),
                    (_, Some(_)) => {
                        let message = "an import in progress needs it: try again when it has ended";
                        Err(Error::new(ErrorKind::Conflict, message))
                    }
                },
            };
            (*cid, outcome)
        };
        Ok(cids.iter().zip(left).zip(pinned).map(removal).collect())
    }
}
