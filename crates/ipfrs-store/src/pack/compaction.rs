//! Compaction reclaims the space of dead blocks: it copies the needed content of a pack to the end of the newest
//! pack, and removes the old pack. `docs/design/store.md` explains why a crash at any point loses nothing.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use ipfrs_core::{Error, Result};

use super::PackStore;
use super::file::Pack;
use super::needed::{Copied, Needed};
use super::padding::padded;
use super::record::{CAR_HEADER, Key, Location, key_of, tombstone_keys};
use super::scan::{Chunk, Scanner};
use super::shared::{DiskUse, Shared};
use crate::mapping::wait_for_released;
use crate::{CompactOptions, Compacted, DamagedPack, RESERVED_CODEC};

/// Result of compacting one pack.
enum Outcome {
    Removed {
        moved_bytes: u64,
        pack_bytes: u64,
    },
    /// A compaction whose future was dropped while it waited has already removed the pack.
    Gone,
    Damaged(DamagedPack),
}

/// A pack that is worth compacting.
struct Candidate {
    pack: Arc<Pack>,
    /// Dead share of the pack.
    share: f64,
    /// Bytes to copy.
    live_bytes: u64,
}

/// The next step of a compaction.
enum Choice {
    Next(Arc<Pack>),
    Done,
    /// The disk has no space to compact any remaining pack. The flag says whether one of them would be worth
    /// compacting on a disk that is not full.
    NoRoom(Error, bool),
}

/// Result of reading the next part of a pack.
enum Next {
    Part(Needed),
    End,
    /// No sound section begins at this offset, for this reason.
    Damage(u64, String),
}

impl PackStore {
    /// Implements [`BlockStore::compact`](crate::BlockStore::compact).
    pub(super) async fn compact_packs(&self, options: CompactOptions) -> Result<Compacted> {
        options.check()?;
        let _turn = self.shared.compaction.lock().await;
        let mut compacted = Compacted::default();
        // Blocks are copied to packs created from now on, and those packs are not compacted in this run.
        let mut untried: BTreeSet<u32> = self.shared.packs().iter().map(|pack| pack.number()).collect();
        let before = self.release_removed(false).await?;
        let mut has_waited = false;
        let outcome = loop {
            if options.until_disk_bytes.is_some_and(|until| self.shared.stats().disk_bytes <= until) {
                break Ok(());
            }
            let left = untried.clone();
            let pack = match self.blocking(move |shared| Ok(choose(shared, options, &left))).await? {
                Choice::Next(pack) => pack,
                Choice::Done => break Ok(()),
                // Reads that are about to end may still occupy the missing space.
                Choice::NoRoom(..) if !has_waited => {
                    has_waited = true;
                    self.release_removed(true).await?;
                    continue;
                }
                // A pack that is only worth compacting because the disk is full does not make the compaction fail.
                Choice::NoRoom(_, false) => break Ok(()),
                Choice::NoRoom(error, _) => break Err(error),
            };
            untried.remove(&pack.number());
            match self.compact_pack(&pack).await {
                Ok(Outcome::Removed { moved_bytes, pack_bytes }) => {
                    tracing::debug!(pack = %pack.path().display(), moved_bytes, pack_bytes, "compacted and removed");
                    compacted.packs += 1;
                    compacted.moved_bytes += moved_bytes;
                }
                Ok(Outcome::Gone) => {}
                Ok(Outcome::Damaged(damaged)) => {
                    tracing::warn!(
                        pack = %damaged.path.display(), offset = damaged.offset, reason = damaged.reason,
                        "skipped compaction because a section is damaged: the file is unchanged"
                    );
                    compacted.damaged.push(damaged);
                }
                Err(error) => break Err(Error::new(error.kind(), format!("{}: {error}", pack.path().display()))),
            }
            // The next pack may need the space of this one.
            drop(pack);
            self.release_removed(false).await?;
        };
        compacted.freed_bytes = self.release_removed(options.until_disk_bytes.is_none()).await?.freed_since(before);
        let Compacted { packs, freed_bytes, moved_bytes, .. } = compacted;
        if packs > 0 {
            tracing::info!(packs, moved_bytes, freed_bytes, "compacted the store");
        }
        outcome.map(|()| compacted).map_err(|error| {
            Error::new(
                error.kind(),
                format!("compaction stopped ({packs} packs removed, {freed_bytes} bytes freed): {error}"),
            )
        })
    }

    /// Lets the disk reclaim the space of removed packs: caches drop their slices, and files are closed. If
    /// `is_last`, also waits briefly for reads. Returns the disk usage of the packs afterwards.
    async fn release_removed(&self, is_last: bool) -> Result<DiskUse> {
        let release = move |shared: &Shared| {
            shared.caches.drop_stale();
            wait_for_released();
            if is_last {
                shared.wait_for_removed();
            }
            Ok(shared.disk_use())
        };
        self.blocking(release).await
    }

    async fn compact_pack(&self, pack: &Arc<Pack>) -> Result<Outcome> {
        let number = pack.number();
        self.queue.seal(&self.shared, number).await?;
        // Calls queued at the writer earlier are done at this point.
        if self.shared.pack(number)?.is_none() {
            return Ok(Outcome::Gone);
        }
        let live_bytes = pack.known().live_bytes;
        if live_bytes > 0 {
            self.blocking(move |shared| shared.check_room_to_compact(padded(live_bytes))).await?;
        }
        let mut scanner = Scanner::new(CAR_HEADER.len() as u64, u64::from(pack.end()));
        let mut moved_bytes = 0;
        loop {
            let this = Arc::clone(pack);
            let (next, after) = self
                .blocking(move |shared| {
                    let next = read_next(shared, &this, &mut scanner)?;
                    Ok((next, scanner))
                })
                .await?;
            scanner = after;
            match next {
                Next::Part(needed) if needed.blocks.is_empty() && needed.deleted.is_empty() => {}
                Next::Part(needed) => moved_bytes += self.queue.keep(&self.shared, number, needed).await?,
                Next::End => break,
                Next::Damage(offset, reason) => return Ok(damaged(pack, offset, reason)),
            }
        }
        match self.queue.retire(&self.shared, number).await? {
            Some(pack_bytes) => Ok(Outcome::Removed { moved_bytes, pack_bytes }),
            None => Ok(damaged(pack, 0, "the index lists blocks in this pack that it does not contain".to_owned())),
        }
    }
}

fn damaged(pack: &Pack, offset: u64, reason: String) -> Outcome {
    Outcome::Damaged(DamagedPack { path: pack.path().to_owned(), offset, reason })
}

/// Returns the pack among `untried` to compact next. A pack without live blocks is first, because it needs no space.
/// Otherwise it is the pack with the largest dead share among those that fit on the disk, because it frees the most
/// for the space it needs. If all packs are to be compacted, it is the oldest that fits, so that no tombstone is
/// copied to a pack that is not visited. Queries the free space of the disk.
fn choose(shared: &Shared, options: CompactOptions, untried: &BTreeSet<u32>) -> Choice {
    let (packs, min_share) = (shared.dead(), shared.dead_share_worth(options));
    let newest = packs.last().map(|(pack, _)| pack.number());
    let worth = |(pack, dead): (Arc<Pack>, u64)| {
        let bytes = u64::from(pack.end()).saturating_sub(CAR_HEADER.len() as u64);
        // An empty pack is worth compacting only if it is not the newest, which is about to be filled.
        let share = match bytes {
            0 if Some(pack.number()) == newest => return None,
            0 => 1.0,
            _ if dead == 0 => return None,
            _ => dead as f64 / bytes as f64,
        };
        let live_bytes = pack.known().live_bytes;
        (share >= min_share && untried.contains(&pack.number())).then_some(Candidate { pack, share, live_bytes })
    };
    let by_age = options.min_dead_share <= 0.0;
    let order = |a: &Candidate, b: &Candidate| {
        let by_share = if by_age { Ordering::Equal } else { b.share.total_cmp(&a.share) };
        let by_size = if by_age { Ordering::Equal } else { a.live_bytes.cmp(&b.live_bytes) };
        let is_late = |of: &Candidate| of.live_bytes > 0 && !by_age;
        is_late(a).cmp(&is_late(b)).then(by_share).then(by_size).then(a.pack.number().cmp(&b.pack.number()))
    };
    let mut candidates: Vec<_> = packs.into_iter().filter_map(worth).collect();
    candidates.sort_unstable_by(order);
    let mut no_room = Choice::Done;
    for candidate in candidates {
        match shared.check_room_to_compact(padded(candidate.live_bytes)) {
            Err(error) if candidate.live_bytes > 0 => {
                let is_asked = candidate.share >= options.min_dead_share;
                if matches!(&no_room, Choice::Done | Choice::NoRoom(_, false)) {
                    no_room = Choice::NoRoom(error, is_asked);
                }
            }
            _ => return Choice::Next(candidate.pack),
        }
    }
    no_room
}

/// Reads and verifies the next part of a pack, and looks up in the index which blocks of it are needed. Waits for the
/// disk.
fn read_next(shared: &Shared, pack: &Pack, scanner: &mut Scanner) -> Result<Next> {
    let chunk = match scanner.next_chunk(pack.file(), pack.path()) {
        Ok(Some(chunk)) => chunk,
        Ok(None) if scanner.at() == u64::from(pack.end()) => return Ok(Next::End),
        Ok(None) => return Ok(Next::Damage(scanner.at(), "no section can be decoded".to_owned())),
        Err(error) => return Ok(Next::Damage(scanner.at(), error.to_string())),
    };
    let (mut all, lost) = match take_apart(pack.number(), &chunk) {
        Ok(all) => all,
        Err((offset, reason)) => return Ok(Next::Damage(offset, reason)),
    };
    let keys: Vec<_> = lost.iter().map(|lost| &lost.key).collect();
    let found = shared.with_index(|index| index.locate(&keys))?;
    let is_read_here = |lost: &Lost, at: &Option<Location>| {
        at.is_some_and(|at| at.pack == pack.number() && u64::from(at.offset) == lost.data)
    };
    if let Some((lost, _)) = lost.iter().zip(found).find(|(lost, at)| is_read_here(lost, at)) {
        return Ok(Next::Damage(lost.start, lost.reason.clone()));
    }
    // The writer checks again. A block that is not needed now is not needed then, because no block returns to an old
    // location.
    let keys: Vec<&[u8]> = all.keys().collect();
    let found = shared.with_index(|index| index.locate(&keys))?;
    let mut found = found.into_iter();
    all.blocks.retain(|block| found.next().flatten() == Some(block.from));
    all.deleted.retain(|_| found.next().flatten().is_none());
    Ok(Next::Part(all))
}

/// A block whose data is damaged.
struct Lost {
    key: Key,
    /// Offset of the section in the pack, and offset of the data in the pack.
    start: u64,
    data: u64,
    reason: String,
}

/// Returns all content of a chunk, needed or not, and the damaged blocks. The error is the offset of a section that
/// cannot be attributed to a block, and the reason.
fn take_apart(pack: u32, chunk: &Chunk) -> Result<(Needed, Vec<Lost>), (u64, String)> {
    let (mut all, mut lost) = (Needed::default(), Vec::new());
    for section in chunk.sections() {
        let (start, from) = (section.start, section.location(pack));
        if let (Some(key), Err(reason)) = (section.lost_block(), &section.content) {
            lost.push(Lost { key, start, data: start + section.prefix as u64, reason: reason.clone() });
            continue;
        }
        let (cid, data) = section.content.map_err(|reason| (start, reason))?;
        match from {
            Some(from) if cid.codec() != RESERVED_CODEC => {
                all.blocks.push(Copied { cid, key: key_of(cid.hash()), data: chunk.keep(data), from });
            }
            _ => all.deleted.extend(tombstone_keys(data).map_err(|error| (start, error.to_string()))?),
        }
    }
    Ok((all, lost))
}
