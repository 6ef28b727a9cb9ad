//! Lookups of single blocks.

use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use ipfrs_core::{Cid, Error, Result, cid_from_bytes, identity_payload};

use super::PackStore;
use super::file::Pack;
use super::lock::cannot;
use super::readahead::Run;
use super::record::{Key, Location, StackKey, key_of};
use super::shared::Shared;
use super::verified::read_verified;
use crate::mapping::FileSlice;

/// Maximum number of lookups of one block that are repeated because compaction removed its pack.
const MAX_MOVES: usize = 16;

/// Maximum number of blocks that a call looks up without another thread.
pub(super) const LOOKUP_BLOCKS: usize = 128;

/// CIDs per page of a listing.
pub(super) const PAGE_BLOCKS: usize = 1_000;

/// The section of a block, including its prefix.
struct Record {
    slice: FileSlice,
    prefix: usize,
}

impl Record {
    /// Returns the section at `location`. It may still have to be read from the disk.
    fn of(pack: &Pack, location: Location) -> Result<Self> {
        let prefix = usize::from(location.prefix);
        let start = location.offset.saturating_sub(u32::from(location.prefix));
        Ok(Self { slice: pack.slice(start, prefix + location.len as usize)?, prefix })
    }

    /// Returns the data if the section belongs to `key`. An index of other packs must not lead to wrong bytes.
    fn into_bytes(self, key: &[u8]) -> Result<Bytes> {
        // The binary CID ends with the multihash, and the prefix ends with the CID.
        if !self.slice.as_ref().get(..self.prefix).is_some_and(|prefix| prefix.ends_with(key)) {
            return Err(Error::corrupt(
                "the index points to a different block: stop the program, delete the directory `index` of its repo, and \
                 start again",
            ));
        }
        let data = self.slice.skip(self.prefix);
        Ok(if data.len() == 0 { Bytes::new() } else { Bytes::from_owner(data) })
    }
}

impl Shared {
    /// Returns the block at `location` as a slice of its pack, if it is in memory and may be returned unverified.
    pub(super) fn resident(&self, location: Location, key: &[u8]) -> Result<Option<Bytes>> {
        if self.options.verify_on_read {
            return Ok(None);
        }
        let Some(pack) = self.pack(location.pack)?.filter(|pack| pack.is_intact()) else { return Ok(None) };
        let record = Record::of(&pack, location)?;
        if !pack.is_resident(&record.slice) {
            return Ok(None);
        }
        match record.into_bytes(key) {
            // The compared bytes may have been missing.
            Err(_) if !pack.is_intact() => Ok(None),
            data => data.map(Some),
        }
    }

    /// Returns the block at `location`, reading it from the disk if necessary. Returns `None` if it was deleted
    /// meanwhile. Waits for the disk.
    pub(super) fn load(&self, location: Location, key: &[u8]) -> Result<Option<Bytes>> {
        self.follow(location, key, |pack, location| self.load_from(pack, location, key))
    }

    /// Reads from the pack at `location`, or from the block's current location if that pack was removed. Returns
    /// `None` if the block was deleted.
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
                // A pack is removed only after the index has stopped referring to it.
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
        if !pack.is_resident(&record.slice) && record.slice.populate().is_err() {
            // Logs it if another program has truncated the pack.
            pack.is_intact();
            // Its error has a cause, which that of a page has not.
            return read_verified(pack, location, key);
        }
        match record.into_bytes(key) {
            Err(_) if !pack.is_intact() => read_verified(pack, location, key),
            data => data,
        }
    }

    /// Loads adjacent blocks into memory if they can be read sequentially. Waits for the disk.
    pub(super) fn read_run(&self, run: Run) -> io::Result<()> {
        let Some(pack) = self.pack(run.pack()).ok().flatten() else { return Err(io::ErrorKind::NotFound.into()) };
        let read = self.long_reads.read(run, pack.path(), pack.claim());
        // Compaction may have removed the pack meanwhile.
        if !matches!(self.pack(run.pack()), Ok(Some(_))) {
            self.long_reads.retain(|number| number != run.pack());
        }
        read
    }

    /// Looks up a block in the index. Returns the outer `None` if that would wait for the disk or for a change of the
    /// index.
    pub(super) fn find_resident(&self, key: &[u8]) -> Result<Option<Option<Location>>> {
        self.with_index_at_once(|index| index.locate_resident(key))
    }

    /// Loads the index entries of `keys` into the processor's cache, without waiting for the disk. Lookups of many keys
    /// are faster afterwards.
    pub(super) fn preload(&self, keys: &[StackKey]) {
        // Lookups report errors.
        let _ = self.with_index_at_once(|index| {
            index.preload(keys);
            Ok(Some(()))
        });
    }

    /// Looks up `keys` in the index. Waits for the disk.
    pub(super) fn find(&self, keys: &[Key]) -> Result<Vec<Option<Location>>> {
        self.with_index(|index| index.locate(keys))
    }

    /// Returns up to [`PAGE_BLOCKS`] CIDs after `after`, and the key of the last of them. A CID that cannot be read
    /// is an error at its position. Waits for the disk.
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
            "the section at {start} of {path} does not start with the content ID that the index lists"
        ))
    })
}

impl PackStore {
    /// Runs `work`, which may wait for the disk, on a blocking thread.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || work(&shared)).await.unwrap_or_else(|error| {
            Err(Error::internal("a read of the block store did not complete").with_source(error))
        })
    }

    pub(super) async fn get_block(&self, cid: &Cid) -> Result<Option<Bytes>> {
        if let Some(payload) = identity_payload(cid) {
            return Ok(Some(Bytes::copy_from_slice(payload)));
        }
        let location = match self.shared.find_resident(&StackKey::of(cid.hash()))? {
            Some(Some(location)) => location,
            Some(None) => return Ok(None),
            None => {
                let key = key_of(cid.hash());
                return self
                    .blocking(move |shared| match shared.find(std::slice::from_ref(&key))?.first().copied().flatten() {
                        Some(location) => shared.load(location, &key),
                        None => Ok(None),
                    })
                    .await;
            }
        };
        if let Some(data) = self.shared.resident(location, &StackKey::of(cid.hash()))? {
            return Ok(Some(data));
        }
        let key = key_of(cid.hash());
        self.blocking(move |shared| shared.load(location, &key)).await
    }

    pub(super) async fn sizes(&self, cids: &[Cid]) -> Result<Vec<Option<u64>>> {
        let mut sizes = Vec::with_capacity(cids.len());
        let mut unknown = Vec::new();
        for (place, cid) in cids.iter().enumerate() {
            if let Some(payload) = identity_payload(cid) {
                sizes.push(Some(payload.len() as u64));
                continue;
            }
            let key = key_of(cid.hash());
            let found = if place < LOOKUP_BLOCKS { self.shared.find_resident(&key)? } else { None };
            sizes.push(found.flatten().map(|location| u64::from(location.len)));
            if found.is_none() {
                unknown.push((place, key));
            }
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
