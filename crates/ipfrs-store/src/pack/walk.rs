//! Reads of many blocks: batched lookups, and loading ahead of the consumer.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use ipfrs_core::{Cid, Error, Result, identity_payload};

use super::PackStore;
use super::errors::again;
use super::read::LOOKUP_BLOCKS;
use super::readahead::{AHEAD_BYTES, Run};
use super::record::{Key, Location, StackKey, key_of};
use super::shared::Shared;
use crate::BlockBatch;
use crate::batch::Place;

/// Maximum gap between sections whose residency is checked together, in bytes. The gap is most likely on a page of
/// one of the sections.
const GAP_BYTES: usize = 4 * 1024;

/// Result of looking up a requested block so far.
enum Known {
    Nothing,
    /// The lookup in the index failed.
    Unknowable(Error),
    Absent,
    At(Location),
    Payload(Bytes),
}

impl Known {
    fn of(cid: &Cid, key: &StackKey, shared: &Shared) -> Self {
        if let Some(payload) = identity_payload(cid) {
            return Self::Payload(Bytes::copy_from_slice(payload));
        }
        match shared.find_resident(key) {
            Ok(Some(found)) => found.map_or(Self::Absent, Self::At),
            // A thread that may wait reads the index again, which also reports its errors.
            Ok(None) | Err(_) => Self::Nothing,
        }
    }
}

/// Returns the blocks of several CIDs in order, in batches of blocks that are available together. Every CID has
/// exactly one result, and an error for one block does not affect the next.
pub(super) struct Walk {
    store: PackStore,
    cids: Arc<[Cid]>,
    /// Number of CIDs whose results were returned.
    completed: usize,
    /// Lookup results of the next CIDs.
    known: VecDeque<Known>,
}

impl Walk {
    pub(super) fn new(store: PackStore, cids: Arc<[Cid]>) -> Self {
        Self { store, cids, completed: 0, known: VecDeque::new() }
    }

    /// Returns the results for the next CIDs, at least one, or `None` at the end.
    async fn next_batch(&mut self) -> Option<BlockBatch> {
        let shared = &self.store.shared;
        let requested = self.cids.get(self.completed..).unwrap_or_default();
        if self.known.is_empty() {
            let requested = requested.iter().take(LOOKUP_BLOCKS);
            let keys: Vec<_> = requested.clone().map(|cid| StackKey::of(cid.hash())).collect();
            shared.preload(&keys);
            self.known.extend(requested.zip(&keys).map(|(cid, key)| Known::of(cid, key, shared)));
        }
        if self.known.is_empty() {
            return None;
        }
        // A caller that continues a long read must read all blocks through the same file, or the kernel would stop
        // reading ahead.
        let goes_on = || next_run(&self.known, shared).is_some_and(|run| shared.long_reads.continue_with(run));
        let mut batch = match shared.long_reads.are_under_way() && goes_on() {
            true => BlockBatch::default(),
            false => take_resident(requested, &mut self.known, shared),
        };
        while batch.is_empty() {
            batch = self.read_batch().await;
        }
        self.completed += batch.len();
        Some(batch)
    }

    /// Returns results for the next CIDs after waiting for the index and the disk. The batch may be empty if only the
    /// index was read.
    async fn read_batch(&mut self) -> BlockBatch {
        let (cids, completed) = (Arc::clone(&self.cids), self.completed);
        let mut known = std::mem::take(&mut self.known);
        let count = known.len();
        let shared = &self.store.shared;
        let long = next_run(&known, shared).filter(|run| shared.long_reads.want(*run));
        let read = move |shared: &Shared| {
            let requested = cids.get(completed..).unwrap_or_default();
            if let Some(run) = long {
                // If this fails, the blocks are read one by one, which reports the cause.
                let _ = shared.read_run(run);
            }
            look_up(requested, &mut known, shared);
            let mut batch = take_resident(requested, &mut known, shared);
            // If the blocks found now form a long read, the read must be queued first.
            let must_wait =
                || long.is_none() && next_run(&known, shared).is_some_and(|run| shared.long_reads.want(run));
            if batch.is_empty() && !must_wait() {
                batch = take_ahead(requested, &mut known, shared);
            }
            Ok((known, batch))
        };
        let read = match long {
            Some(_) => self.store.in_turn(read).await,
            None => self.store.blocking(read).await,
        };
        match read {
            Ok((known, batch)) => {
                self.known = known;
                batch
            }
            // The lookup results were lost with the thread that used them.
            Err(error) => {
                let mut batch = BlockBatch::default();
                (0..count).for_each(|_| batch.push(Err(again(&error))));
                batch
            }
        }
    }

    /// Returns all batches.
    pub(super) fn batches(self) -> BoxStream<'static, BlockBatch> {
        stream::unfold(self, |mut walk| async move { Some((walk.next_batch().await?, walk)) }).boxed()
    }

    /// Returns all blocks, one by one.
    pub(super) fn blocks(self) -> BoxStream<'static, Result<(Cid, Option<Bytes>)>> {
        let (cids, mut next) = (Arc::clone(&self.cids), self.completed);
        let blocks = self.batches().flat_map(move |batch| {
            let (cids, first) = (Arc::clone(&cids), next);
            next += batch.len();
            let found = (first..).zip(batch.into_answers());
            stream::iter(found.filter_map(move |(at, found)| {
                let cid = *cids.get(at)?;
                Some(found.map(|found| (cid, found)))
            }))
        });
        blocks.boxed()
    }
}

/// Returns the run of adjacent blocks that comes next. Returns `None` if reads are verified, because blocks are then
/// not returned as slices.
fn next_run(known: &VecDeque<Known>, shared: &Shared) -> Option<Run> {
    if shared.options.verify_on_read {
        return None;
    }
    Run::of(known.iter().map_while(|known| if let Known::At(location) = known { Some(*location) } else { None }))
}

/// Takes results from the front while they need neither the index nor the disk, up to [`AHEAD_BYTES`]. `requested`
/// holds the CIDs of `known`, in order.
fn take_resident(requested: &[Cid], known: &mut VecDeque<Known>, shared: &Shared) -> BlockBatch {
    let (mut count, mut bytes) = (0, 0);
    let mut locations = Vec::new();
    for known in known.iter() {
        match known {
            _ if bytes >= AHEAD_BYTES => break,
            Known::Nothing => break,
            Known::At(location) => {
                bytes += location.len as usize;
                locations.push((*location, count));
            }
            Known::Payload(payload) => bytes += payload.len(),
            Known::Absent | Known::Unknowable(_) => {}
        }
        count += 1;
    }
    let mut batch = BlockBatch::default();
    let mut places = vec![None; count];
    find_resident(requested, locations, shared, &mut batch, &mut places);
    for place in places {
        match (known.pop_front(), place) {
            (Some(Known::At(_)), Some(place)) => batch.push_place(place),
            (Some(Known::Absent), _) => batch.push(Ok(None)),
            (Some(Known::Unknowable(error)), _) => batch.push(Err(error)),
            (Some(Known::Payload(payload)), _) => batch.push(Ok(Some(payload))),
            (Some(other), _) => {
                known.push_front(other);
                break;
            }
            (None, _) => break,
        }
    }
    batch
}

/// Finds the blocks of `locations` that are in memory, and adds them to the batch as parts of slices of their packs.
/// `locations` holds locations with their positions in `requested`. Adjacent blocks are parts of one slice, and their
/// residency is checked together. Blocks that are not found here are left to [`Shared::load`], which also reports
/// errors.
fn find_resident(
    requested: &[Cid],
    mut locations: Vec<(Location, usize)>,
    shared: &Shared,
    batch: &mut BlockBatch,
    places: &mut [Option<Place>],
) {
    if shared.options.verify_on_read {
        return;
    }
    locations.sort_unstable_by_key(|(location, _)| (location.pack, location.start()));
    let mut found = Vec::new();
    for in_pack in locations.chunk_by(|(a, _), (b, _)| a.pack == b.pack) {
        let pack = in_pack.first().and_then(|(location, _)| shared.pack(location.pack).ok().flatten());
        let Some(pack) = pack.filter(|pack| pack.is_intact()) else { continue };
        for run in in_pack.chunk_by(|(a, _), (b, _)| b.start() <= a.end() + GAP_BYTES) {
            let start = run.first().map_or(0, |(location, _)| location.start());
            let end = run.iter().map(|(location, _)| location.end()).max().unwrap_or(start);
            let slice = u32::try_from(start).ok().and_then(|at| pack.slice(at, end - start).ok());
            if let Some(slice) = slice.filter(|slice| pack.is_resident(slice)) {
                found.push((Bytes::from_owner(slice), start, run));
            }
        }
    }
    // The processor waits for the memory of all prefixes at the same time instead of one after the other.
    let first = |memory: &Bytes, start: usize, location: &Location| memory.get(location.start() - start).copied();
    let firsts = |(memory, start, run): &(Bytes, usize, &[(Location, usize)])| {
        run.iter().filter_map(|(location, _)| first(memory, *start, location)).fold(0, |all, byte| all ^ byte)
    };
    black_box(found.iter().map(firsts).fold(0, |all, byte| all ^ byte));
    for (memory, start, run) in found {
        let mut is_needed = false;
        let span = batch.next_span();
        for (location, index) in run {
            let place = Place {
                span,
                start: location.start() - start,
                prefix: usize::from(location.prefix),
                len: location.len as usize,
            };
            let prefix = memory.get(place.start..place.start + place.prefix);
            // The binary CID ends with the multihash, and the prefix ends with the CID.
            let is_it = |cid: &Cid| prefix.is_some_and(|prefix| prefix.ends_with(&StackKey::of(cid.hash())));
            if requested.get(*index).is_some_and(is_it) {
                is_needed = true;
                places[*index] = Some(place);
            }
        }
        if is_needed {
            batch.push_span(memory);
        }
    }
}

/// Looks up all blocks in the index that were not looked up yet. Waits for the disk.
fn look_up(requested: &[Cid], known: &mut VecDeque<Known>, shared: &Shared) {
    let unknown = || |(_, known): &(&Cid, &mut Known)| matches!(known, Known::Nothing);
    let keys: Vec<Key> =
        requested.iter().zip(known.iter_mut()).filter(unknown()).map(|(cid, _)| key_of(cid.hash())).collect();
    if keys.is_empty() {
        return;
    }
    let unknown = requested.iter().zip(known.iter_mut()).filter(unknown()).map(|(_, known)| known);
    match shared.find(&keys) {
        Ok(found) => {
            for (known, location) in unknown.zip(found) {
                *known = location.map_or(Known::Absent, Known::At);
            }
        }
        Err(error) => unknown.for_each(|known| *known = Known::Unknowable(again(&error))),
    }
}

/// Takes some results from the front, all of which were looked up, and loads their blocks. Waits for the disk.
fn take_ahead(requested: &[Cid], known: &mut VecDeque<Known>, shared: &Shared) -> BlockBatch {
    let (mut batch, mut bytes) = (BlockBatch::default(), 0);
    for cid in requested {
        if bytes >= AHEAD_BYTES {
            break;
        }
        let Some(next) = known.pop_front() else { break };
        let found = match next {
            Known::Absent | Known::Nothing => Ok(None),
            Known::Unknowable(error) => Err(error),
            Known::Payload(payload) => Ok(Some(payload)),
            Known::At(location) => shared.load(location, &key_of(cid.hash())),
        };
        bytes += found.iter().flatten().map(Bytes::len).sum::<usize>();
        batch.push(found);
    }
    batch
}
