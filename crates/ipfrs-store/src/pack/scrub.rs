//! Verification of stored blocks. Packs are read one by one and sequentially, which is fastest for a disk; reading in
//! index order would access the packs at random for every block.
//!
//! The index is verified first: every run is compared with its checksums, because a block whose entry is damaged
//! would not be found in any pack. A section of a pack then counts if the index locates its block there. The index
//! knows the total length of the live sections of each pack. If the total of the visited sections differs, because
//! blocks were put or deleted meanwhile or the pack is damaged, the index is scanned for the blocks of that pack that
//! were not visited. Those blocks are left to be read one by one. One scan of the index serves many packs.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, Multihash, Result, codec, cores, new_cid};
use parking_lot::Mutex;

use super::PackStore;
use super::file::Pack;
use super::read::PAGE_BLOCKS;
use super::record::{CAR_HEADER, Key, Location, key_of};
use super::scan::{Chunk, Scanner};
use super::shared::Shared;
use crate::{RESERVED_CODEC, Scrubbed};

/// Maximum number of offsets kept for packs with blocks that were not visited: 16 MiB.
const REMEMBERED: usize = 4 * 1024 * 1024;

/// The visited sections of a pack that hold live blocks, in order.
#[derive(Debug, Default)]
struct Met {
    /// Offsets of their data.
    offsets: Vec<u32>,
    /// Total length of the sections, in bytes.
    bytes: u64,
}

/// The visited sections of packs, by pack number.
type MetByPack = BTreeMap<u32, Met>;

impl PackStore {
    /// Implements [`BlockStore::scrub`](crate::BlockStore::scrub).
    pub(super) fn scrub_packs(&self) -> BoxStream<'static, Result<Scrubbed>> {
        let store = self.clone();
        let scrubbed = async move {
            let packs = store.blocking(|shared| {
                shared.with_index(|index| {
                    index.verify()?;
                    Ok(index.packs())
                })
            });
            let numbers =
                packs.await?.into_iter().filter(|(_, pack_use)| pack_use.live_bytes > 0).map(|(number, _)| number);
            let numbers: Vec<u32> = numbers.collect();
            let (last, met) = (numbers.last().copied(), Arc::<Mutex<MetByPack>>::default());
            let scrub = move |number| {
                let unread = store.unread(number, Some(number) == last, Arc::clone(&met));
                store.scrub_pack(number, Arc::clone(&met)).chain(unread)
            };
            Ok::<_, Error>(stream::iter(numbers).map(scrub).flatten())
        };
        stream::once(scrubbed).try_flatten().boxed()
    }

    fn scrub_pack(&self, number: u32, met: Arc<Mutex<MetByPack>>) -> impl Stream<Item = Result<Scrubbed>> + use<> {
        let store = self.clone();
        let check = move |chunk: Result<Chunk>| {
            let store = store.clone();
            async move {
                let chunk = chunk?;
                store.blocking(move |shared| check(shared, number, &chunk)).await
            }
        };
        let threads = cores();
        let note = move |(scrubbed, mut here): (Scrubbed, Met)| {
            let mut met = met.lock();
            let met = met.entry(number).or_default();
            met.offsets.append(&mut here.offsets);
            met.bytes += here.bytes;
            scrubbed
        };
        self.chunks(number).map(check).buffered(threads).map_ok(note)
    }

    /// Returns the chunks of a pack in order, up to the first that cannot be read.
    fn chunks(&self, number: u32) -> impl Stream<Item = Result<Chunk>> + use<> {
        let start = (self.clone(), None::<(Arc<Pack>, Scanner)>);
        stream::try_unfold(start, move |(store, place)| async move {
            let next = store.blocking(move |shared| {
                let (pack, mut scanner) = match (place, shared.pack(number)?) {
                    (Some(place), _) => place,
                    (None, Some(pack)) => {
                        let end = u64::from(pack.end());
                        (pack, Scanner::new(CAR_HEADER.len() as u64, end))
                    }
                    // Compaction has removed the pack, and has verified the blocks that it copied.
                    (None, None) => return Ok(None),
                };
                // Blocks after an error are read one by one, and each gets its own error.
                let chunk = scanner.next_chunk(pack.file(), pack.path()).ok().flatten();
                Ok(chunk.map(|chunk| (chunk, (pack, scanner))))
            });
            Ok(next.await?.map(|(chunk, place)| (chunk, (store, Some(place)))))
        })
    }

    /// Returns the blocks that were not visited, for all packs that wait for a scan of the index. Called after each
    /// pack was read. Scans the index only if enough offsets are waiting or if this was the last pack.
    fn unread(
        &self,
        number: u32,
        is_last: bool,
        met: Arc<Mutex<MetByPack>>,
    ) -> impl Stream<Item = Result<Scrubbed>> + use<> {
        let store = self.clone();
        let unread = async move {
            let due = store.blocking(move |shared| due(shared, number, is_last, &mut met.lock())).await?;
            let pages = stream::try_unfold((store, Arc::new(due), None::<Key>), |(store, due, after)| async move {
                let here = Arc::clone(&due);
                let page = store.blocking(move |shared| unread_page(shared, &here, after.as_deref()));
                Ok(page.await?.map(|(cids, last)| (Scrubbed::Unread(cids), (store, due, Some(last)))))
            });
            Ok::<_, Error>(pages)
        };
        stream::once(unread).try_flatten()
    }
}

/// Drops the visited sections of a pack if they are complete. Returns the packs for which the index must be scanned
/// now.
fn due(shared: &Shared, number: u32, is_last: bool, met: &mut MetByPack) -> Result<MetByPack> {
    let pack_use = shared.with_index(|index| Ok(index.packs()))?;
    let live_bytes = pack_use.get(&number).map_or(0, |pack_use| pack_use.live_bytes);
    if met.entry(number).or_default().bytes == live_bytes {
        met.remove(&number);
    }
    let remembered: usize = met.values().map(|met| met.offsets.len()).sum();
    Ok(if is_last || remembered > REMEMBERED { mem::take(met) } else { MetByPack::new() })
}

/// Compares the blocks of a chunk with their content IDs, if the index locates them there.
fn check(shared: &Shared, pack: u32, chunk: &Chunk) -> Result<(Scrubbed, Met)> {
    let blocks = chunk.sections().filter_map(|section| {
        let cid = section.cid.filter(|cid| cid.codec() != RESERVED_CODEC)?;
        Some((key_of(cid.hash()), (cid, section)))
    });
    let (keys, sections): (Vec<Key>, Vec<_>) = blocks.unzip();
    let located = shared.with_index(|index| index.locate(&keys))?;
    let mut met = Met::default();
    let (mut bytes, mut corrupt) = (0, Vec::new());
    for ((cid, section), at) in sections.into_iter().zip(located) {
        let is_here = |at: &Location| {
            at.pack == pack
                && (at.start() as u64, at.end() as u64) == (section.start, section.end)
                && usize::from(at.prefix) == section.prefix
        };
        let Some(at) = at.filter(is_here) else { continue };
        met.offsets.push(at.offset);
        met.bytes += at.section_bytes();
        bytes += u64::from(at.len);
        corrupt.extend(section.content.err().map(|reason| (cid, Error::corrupt(reason))));
    }
    Ok((Scrubbed::Read { blocks: met.offsets.len() as u64, bytes, corrupt }, met))
}

/// Reads the next page of the index after `after`. Returns the blocks of the packs in `met` that were not visited,
/// and the last key read. Returns `None` at the end, and if `met` is empty.
fn unread_page(shared: &Shared, met: &MetByPack, after: Option<&[u8]>) -> Result<Option<(Vec<Cid>, Key)>> {
    if met.is_empty() {
        return Ok(None);
    }
    let entries = shared.with_index(|index| index.page(after, PAGE_BLOCKS))?;
    let Some(last) = entries.last().map(|(key, _)| key.clone()) else { return Ok(None) };
    let is_unread = |at: &Location| met.get(&at.pack).is_some_and(|met| met.offsets.binary_search(&at.offset).is_err());
    let unread = entries.iter().filter(|(_, at)| is_unread(at)).map(|(key, at)| match at.cid(key)? {
        Some(cid) => Ok(cid),
        // Only the prefix contains the codec, but the block is found under any codec.
        None => {
            let malformed = |error| Error::corrupt("the index contains a malformed multihash").with_source(error);
            new_cid(1, codec::RAW, Multihash::from_bytes(key).map_err(malformed)?)
        }
    });
    Ok(Some((unread.collect::<Result<_>>()?, last)))
}
