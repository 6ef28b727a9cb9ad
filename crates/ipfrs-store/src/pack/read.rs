//! Lookups: from a CID to bytes that are in memory.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, Result, cid_from_bytes, identity_payload};

use super::PackStore;
use super::file::Pack;
use super::group::again;
use super::lock::cannot;
use super::record::{Key, Location, key_of};
use super::shared::Shared;
use super::verified::read_verified;
use crate::mapping::FileSlice;

/// Blocks that are looked up together.
const LOOKUP_BLOCKS: usize = 128;

/// Bytes that are brought into memory ahead of who takes them from [`Walk`].
const AHEAD_BYTES: usize = 2 * 1024 * 1024;

/// How often a block is looked up again because compaction has removed the pack that it was in.
const MAX_MOVES: usize = 16;

/// CIDs listed at a time.
pub(super) const PAGE_BLOCKS: usize = 1_000;

/// The section of a block, prefix included.
struct Record {
    slice: FileSlice,
    prefix: usize,
}

impl Record {
    /// The section at `location`, which may have to be read from the disk yet.
    fn of(pack: &Pack, location: Location) -> Result<Self> {
        let prefix = usize::from(location.prefix);
        let start = location.offset.saturating_sub(u32::from(location.prefix));
        Ok(Self { slice: pack.slice(start, prefix + location.len as usize)?, prefix })
    }

    /// The data, when the section is indeed about `key`: an index of other packs must not make wrong bytes of them.
    fn into_bytes(self, key: &[u8]) -> Result<Bytes> {
        // The binary CID ends with the multihash, and the prefix with the CID.
        if !self.slice.as_ref().get(..self.prefix).is_some_and(|prefix| prefix.ends_with(key)) {
            return Err(Error::corrupt(
                "the index names a place where another block is: stop the program, delete index.redb, and start again",
            ));
        }
        let data = self.slice.skip(self.prefix);
        Ok(if data.len() == 0 { Bytes::new() } else { Bytes::from_owner(data) })
    }
}

impl Shared {
    /// The block at `location`, where it can be given out at once: as a slice of its pack that is in memory.
    pub(super) fn resident(&self, location: Location, key: &[u8]) -> Result<Option<Bytes>> {
        if self.options.verify_on_read {
            return Ok(None);
        }
        let Some(pack) = self.pack(location.pack)?.filter(|pack| pack.is_intact()) else { return Ok(None) };
        let record = Record::of(&pack, location)?;
        if !record.slice.is_resident() {
            return Ok(None);
        }
        match record.into_bytes(key) {
            // What was compared may have been gone.
            Err(_) if !pack.is_intact() => Ok(None),
            data => data.map(Some),
        }
    }

    /// The block at `location`, brought into memory if it is not there; `None` when it was deleted meanwhile. Waits for
    /// the disk.
    pub(super) fn load(&self, location: Location, key: &[u8]) -> Result<Option<Bytes>> {
        self.follow(location, key, |pack, location| self.load_from(pack, location, key))
    }

    /// Reads from the pack at `location`, or from where the block is now, when that pack is gone. `None` when the block
    /// is gone too.
    fn follow<T>(
        &self,
        mut location: Location,
        key: &[u8],
        read: impl Fn(&Pack, Location) -> Result<T>,
    ) -> Result<Option<T>> {
        for _ in 0..MAX_MOVES {
            if let Some(pack) = self.pack(location.pack)? {
                return read(&pack, location).map(Some);
            }
            match self.find(&[key.into()])?.first().copied().flatten() {
                None => return Ok(None),
                // A pack is removed after the index has named it for the last time.
                Some(same) if same == location => break,
                Some(next) => location = next,
            }
        }
        Err(self.lacks_pack(location.pack))
    }

    fn load_from(&self, pack: &Pack, location: Location, key: &[u8]) -> Result<Bytes> {
        if self.options.verify_on_read || !pack.is_intact() {
            return read_verified(pack, location, key);
        }
        let record = Record::of(pack, location)?;
        let loaded = match record.slice.is_resident() {
            true => Ok(()),
            false => record.slice.populate().map_err(|error| cannot("read", pack.path(), error)),
        };
        match loaded.and_then(|()| record.into_bytes(key)) {
            Err(_) if !pack.is_intact() => read_verified(pack, location, key),
            data => data,
        }
    }

    /// Asks the index for `keys`, and remembers what it says; waits for the disk.
    pub(super) fn find(&self, keys: &[Key]) -> Result<Vec<Option<Location>>> {
        let began = self.cache.generation();
        let found = self.with_index(|index| index.locate(keys))?;
        let present = keys.iter().zip(&found).filter_map(|(key, location)| Some((key.clone(), (*location)?)));
        self.cache.fill(began, present);
        Ok(found)
    }

    /// Up to [`PAGE_BLOCKS`] CIDs after `after`, and the key of the last of them; waits for the disk. A CID that cannot be
    /// read is an error in its place.
    pub(super) fn page(&self, after: Option<&[u8]>) -> Result<(Vec<Result<Cid>>, Option<Key>)> {
        let entries = self.with_index(|index| index.page(after, PAGE_BLOCKS))?;
        let cid = |(key, location): &(Key, Location)| match location.cid(key) {
            Ok(None) => self.follow(*location, key, |pack, location| cid_in_prefix(pack, location, key)).transpose(),
            known => known.transpose(),
        };
        let cids = entries.iter().filter_map(cid).collect();
        Ok((cids, entries.into_iter().next_back().map(|(key, _)| key)))
    }
}

fn cid_in_prefix(pack: &Pack, location: Location, key: &[u8]) -> Result<Cid> {
    let mut prefix = vec![0; usize::from(location.prefix)];
    let start = u64::from(location.offset.saturating_sub(u32::from(location.prefix)));
    pack.file().read_exact_at(&mut prefix, start).map_err(|error| cannot("read", pack.path(), error))?;
    let cid = unsigned_varint::decode::u64(&prefix).ok().and_then(|(_, cid)| cid_from_bytes(cid).ok());
    cid.filter(|cid| *key_of(cid.hash()) == *key).ok_or_else(|| {
        let path = pack.path().display();
        Error::corrupt(format!(
            "the section at {start} of {path} does not begin with the content ID that it is listed by"
        ))
    })
}

impl PackStore {
    /// Runs `work`, which may wait for the disk, on a thread that may wait.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || work(&shared))
            .await
            .unwrap_or_else(|error| Err(Error::internal("a read of the block store did not end").with_source(error)))
    }

    pub(super) async fn get_block(&self, cid: &Cid) -> Result<Option<Bytes>> {
        if let Some(payload) = identity_payload(cid) {
            return Ok(Some(Bytes::copy_from_slice(payload)));
        }
        let key = key_of(cid.hash());
        let Some(location) = self.shared.cache.get(&key) else {
            return self
                .blocking(move |shared| match shared.find(std::slice::from_ref(&key))?.first().copied().flatten() {
                    Some(location) => shared.load(location, &key),
                    None => Ok(None),
                })
                .await;
        };
        if let Some(data) = self.shared.resident(location, &key)? {
            return Ok(Some(data));
        }
        self.blocking(move |shared| shared.load(location, &key)).await
    }

    pub(super) async fn sizes(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let mut sizes = Vec::with_capacity(cids.len());
        let mut unknown = Vec::new();
        for (place, cid) in cids.iter().enumerate() {
            let key = key_of(cid.hash());
            sizes.push(match identity_payload(cid) {
                Some(payload) => Some(payload.len() as u64),
                None => match self.shared.cache.get(&key) {
                    Some(location) => Some(u64::from(location.len)),
                    None => {
                        unknown.push((place, key));
                        None
                    }
                },
            });
        }
        if unknown.is_empty() {
            return Ok(sizes);
        }
        let (places, keys): (Vec<_>, Vec<_>) = unknown.into_iter().unzip();
        let found = self.blocking(move |shared| shared.find(&keys)).await?;
        for (place, location) in places.into_iter().zip(found) {
            sizes[place] = location.map(|location| u64::from(location.len));
        }
        Ok(sizes)
    }
}

/// What is known of a block that was asked for.
enum Known {
    Nothing,
    /// The index could not be asked.
    Unknowable(Error),
    Absent,
    At(Location),
    Payload(Bytes),
}

struct Wanted {
    cid: Cid,
    key: Key,
    known: Known,
}

/// A block that was asked for, and its bytes when it is here.
type Item = Result<(Cid, Option<Bytes>)>;

/// Gives many blocks one by one, in order. Looks up a batch at a time, and reads some bytes ahead of who takes them.
/// Every CID that was asked for has one item, in its place: an error about one block says nothing of the next.
pub(super) struct Walk {
    store: PackStore,
    cids: std::vec::IntoIter<Cid>,
    wanted: VecDeque<Wanted>,
    ready: VecDeque<Item>,
}

impl Walk {
    pub(super) fn new(store: PackStore, cids: Vec<Cid>) -> Self {
        Self { store, cids: cids.into_iter(), wanted: VecDeque::new(), ready: VecDeque::new() }
    }

    /// The next block, or `None` at the end.
    pub(super) async fn next_block(&mut self) -> Option<Item> {
        if let Some(item) = self.ready.pop_front() {
            return Some(item);
        }
        if self.wanted.is_empty() {
            let shared = &self.store.shared;
            self.wanted.extend(self.cids.by_ref().take(LOOKUP_BLOCKS).map(|cid| Wanted::new(cid, shared)));
        }
        if self.wanted.is_empty() {
            return None;
        }
        self.ready = take_resident(&mut self.wanted, &self.store.shared);
        if self.ready.is_empty() {
            let mut wanted = std::mem::take(&mut self.wanted);
            let count = wanted.len();
            let read = self.store.blocking(move |shared| {
                look_up(&mut wanted, shared);
                let ready = take_ahead(&mut wanted, shared);
                Ok((wanted, ready))
            });
            match read.await {
                Ok((wanted, ready)) => (self.wanted, self.ready) = (wanted, ready),
                // The batch went with the thread that read it.
                Err(error) => self.ready = (0..count).map(|_| Err(again(&error))).collect(),
            }
        }
        self.ready.pop_front()
    }
}

impl Wanted {
    fn new(cid: Cid, shared: &Shared) -> Self {
        let key = key_of(cid.hash());
        let known = match identity_payload(&cid) {
            Some(payload) => Known::Payload(Bytes::copy_from_slice(payload)),
            None => shared.cache.get(&key).map_or(Known::Nothing, Known::At),
        };
        Self { cid, key, known }
    }
}

/// Takes blocks from the front as long as that needs neither the index nor the disk.
fn take_resident(wanted: &mut VecDeque<Wanted>, shared: &Shared) -> VecDeque<Item> {
    let (mut ready, mut bytes) = (VecDeque::new(), 0);
    while bytes < AHEAD_BYTES {
        let Some(Wanted { cid, key, known }) = wanted.pop_front() else { break };
        let found = match known {
            Known::Absent => Ok(None),
            Known::Unknowable(error) => Err(error),
            Known::Payload(payload) => Ok(Some(payload)),
            Known::At(location) => match shared.resident(location, &key) {
                Ok(None) => {
                    wanted.push_front(Wanted { cid, key, known: Known::At(location) });
                    break;
                }
                data => data,
            },
            Known::Nothing => {
                wanted.push_front(Wanted { cid, key, known });
                break;
            }
        };
        bytes += len_of(&found);
        ready.push_back(found.map(|found| (cid, found)));
    }
    ready
}

/// Asks the index for all of which nothing is known; waits for the disk.
fn look_up(wanted: &mut VecDeque<Wanted>, shared: &Shared) {
    let unknown = || |wanted: &&mut Wanted| matches!(wanted.known, Known::Nothing);
    let keys: Vec<Key> = wanted.iter_mut().filter(unknown()).map(|wanted| wanted.key.clone()).collect();
    if keys.is_empty() {
        return;
    }
    match shared.find(&keys) {
        Ok(found) => {
            for (wanted, location) in wanted.iter_mut().filter(unknown()).zip(found) {
                wanted.known = location.map_or(Known::Absent, Known::At);
            }
        }
        Err(error) => {
            for wanted in wanted.iter_mut().filter(unknown()) {
                wanted.known = Known::Unknowable(again(&error));
            }
        }
    }
}

/// Takes some blocks from the front, all of which have been looked up; waits for the disk.
fn take_ahead(wanted: &mut VecDeque<Wanted>, shared: &Shared) -> VecDeque<Item> {
    let (mut ready, mut bytes) = (VecDeque::new(), 0);
    while bytes < AHEAD_BYTES {
        let Some(next) = wanted.pop_front() else { break };
        let found = match next.known {
            Known::Absent | Known::Nothing => Ok(None),
            Known::Unknowable(error) => Err(error),
            Known::Payload(payload) => Ok(Some(payload)),
            Known::At(location) => shared.load(location, &next.key),
        };
        bytes += len_of(&found);
        ready.push_back(found.map(|found| (next.cid, found)));
    }
    ready
}

fn len_of(found: &Result<Option<Bytes>>) -> usize {
    found.iter().flatten().map(Bytes::len).sum()
}
