//! Name records: reading, verifying and storing them.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_ipns::{Name, Record};
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::task::{JoinHandle, spawn_blocking};

use super::IpnsConfig;
use super::store::RecordStore;
use crate::{NameRoot, Node};

/// Maximum memory of cached records, in bytes.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Approximate number of names that fit into the cache.
const CACHE_NAMES: usize = 20_000;
/// Approximate memory of a name besides its record, in bytes.
const NAME_BYTES: u64 = 512;
/// Number of groups of names.
const GROUPS: usize = 256;

/// The records on disk and the cached ones.
#[derive(Debug)]
pub(crate) struct Names {
    store: RecordStore,
    /// `None` if caching is disabled.
    cache: Option<Cache<Name, Known, ByBytes>>,
    /// For each group of names, the number of changes to its records. Cache entries from before a change are ignored.
    changes: [AtomicU64; GROUPS],
    hasher: RandomState,
    /// The background task.
    tending: Mutex<Option<JoinHandle<()>>>,
}

/// A cached record.
#[derive(Debug, Clone)]
struct Known {
    /// The record of the name, if it has one.
    record: Option<Record>,
    /// Change counter of the group before the record was read.
    changes: u64,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Name, Known> for ByBytes {
    fn weight(&self, _: &Name, known: &Known) -> u64 {
        NAME_BYTES + known.record.as_ref().map_or(0, |record| record.bytes().len() as u64)
    }
}

impl Names {
    pub(crate) fn new(repo: &Path, config: &IpnsConfig, keeps: bool) -> Self {
        Self {
            store: RecordStore::new(repo, config.max_records),
            cache: keeps.then(|| Cache::with_weighter(CACHE_NAMES, CACHE_BYTES, ByBytes)),
            changes: [const { AtomicU64::new(0) }; GROUPS],
            hasher: RandomState::new(),
            tending: Mutex::default(),
        }
    }

    fn changes(&self, name: &Name) -> &AtomicU64 {
        // The remainder is less than the number of groups, so the index is in bounds.
        &self.changes[(self.hasher.hash_one(name) % GROUPS as u64) as usize]
    }

    fn known(&self, name: &Name) -> Option<Option<Record>> {
        let known = self.cache.as_ref()?.get(name)?;
        (known.changes == self.changes(name).load(Ordering::Acquire)).then_some(known.record)
    }

    /// Stores the handle of the background task until the node is closed.
    pub(super) fn tend(&self, tending: JoinHandle<()>) {
        *self.tending.lock() = Some(tending);
    }

    /// Stops the background task.
    pub(crate) async fn close(&self) {
        let tending = self.tending.lock().take();
        if let Some(tending) = tending {
            tending.abort();
            // The task was aborted, so its result does not matter.
            drop(tending.await);
        }
    }

    /// Returns the approximate memory of the cached records, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

impl Node {
    /// Returns the valid record of a name that is stored here. A record is verified when it is stored and when it is
    /// read from the disk.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if there is none or it has expired;
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) for a damaged file, which the message names.
    pub async fn ipns_record(&self, name: &Name) -> Result<Record> {
        self.check_name(&NameRoot::Key(*name), &[])?;
        match self.last_ipns_record(name).await? {
            None => Err(Error::not_found(format!("no record of the IPNS name {name} is stored here"))),
            Some(record) if record.is_expired(SystemTime::now()) => Err(Error::not_found(format!(
                "the record of the IPNS name {name} expired at {}: whoever has its key must publish a new one",
                record.validity_text()
            ))),
            Some(record) => Ok(record),
        }
    }

    /// Returns the last stored record of a name, even if it has expired: the next record needs a higher sequence
    /// number.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) for a damaged file, which the message names.
    pub async fn last_ipns_record(&self, name: &Name) -> Result<Option<Record>> {
        let names = &self.inner.names;
        let known = names.known(name);
        self.inner.metrics.names.looked_up(known.is_some());
        if let Some(record) = known {
            return Ok(record);
        }
        let changes = names.changes(name).load(Ordering::Acquire);
        let (inner, wanted) = (self.inner.clone(), *name);
        let record = on_disk(move || inner.names.store.get(&wanted)).await?;
        if let Some(cache) = &names.cache {
            cache.insert(*name, Known { record: record.clone(), changes });
            self.inner.metrics.names.cache.bytes.set(i64::try_from(names.bytes()).unwrap_or(i64::MAX));
        }
        Ok(record)
    }

    /// Stores the record of a name durably if it is valid and no better valid one is stored. A record is better if it
    /// has a higher sequence number, or the same and a later expiry. Storing the same record again succeeds.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an invalid record;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) over 10 KiB; [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if
    /// a better one is stored; [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) over `ipns.max_records` if no stored
    /// record has expired; [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) for a read-only repo.
    pub async fn put_ipns_record(&self, name: &Name, bytes: Bytes) -> Result<()> {
        let record = self.verified(name, bytes).await?;
        match self.keep_record(name, record.clone(), false).await {
            Err(e) if e.kind() == ErrorKind::RateLimited && self.clear_records().await? => {}
            kept => return kept,
        }
        self.keep_record(name, record, false).await
    }

    /// Same as [`Self::put_ipns_record`] for a record that an own key signed. `ipns.max_records` does not apply.
    pub(super) async fn put_own_record(&self, name: &Name, bytes: Bytes) -> Result<()> {
        let record = self.verified(name, bytes).await?;
        self.keep_record(name, record, true).await
    }

    /// Returns the parsed record if it may be stored for a name.
    async fn verified(&self, name: &Name, bytes: Bytes) -> Result<Record> {
        self.check_writable()?;
        let name = *name;
        on_disk(move || {
            let record = Record::parse(bytes)?;
            record.verify(&name, SystemTime::now()).map(|()| record)
        })
        .await
    }

    async fn keep_record(&self, name: &Name, record: Record, is_own: bool) -> Result<()> {
        let (inner, name) = (self.inner.clone(), *name);
        let mut writing = inner.names.store.turn().await;
        on_disk(move || {
            let put = inner.names.store.put(&mut writing, &name, &record, is_own);
            // The counter changes even if `put` failed or the caller was cancelled.
            inner.names.changes(&name).fetch_add(1, Ordering::AcqRel);
            put
        })
        .await
    }

    /// Removes the expired records of other keys, unless this was done recently. Returns whether any were removed.
    async fn clear_records(&self) -> Result<bool> {
        let inner = self.inner.clone();
        let mut writing = inner.names.store.turn().await;
        if !inner.names.store.may_clear(&writing) {
            return Ok(false);
        }
        let own: HashSet<_> = self.keys().await?.into_iter().map(|key| key.id).collect();
        on_disk(move || {
            let removed = inner.names.store.clear(&mut writing, &own)?;
            for name in &removed {
                inner.names.changes(name).fetch_add(1, Ordering::AcqRel);
            }
            tracing::info!(removed = removed.len(), "records of IPNS names that had expired were removed");
            Ok(!removed.is_empty())
        })
        .await
    }
}

/// Runs `work` on a blocking thread: signature verification and disk access would block a runtime worker.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|e| Error::internal("work on an IPNS record failed").with_source(e))?
}
