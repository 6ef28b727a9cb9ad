//! The records of names as the Node gives and takes them.

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

/// Most bytes of records that are kept in memory.
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// How many names fit there, about.
const CACHE_NAMES: usize = 20_000;
/// What a name takes in memory beside its record, about.
const NAME_BYTES: u64 = 512;
/// How many groups of names there are.
const GROUPS: usize = 256;

/// The records on disk and those in memory.
#[derive(Debug)]
pub(crate) struct Names {
    store: RecordStore,
    /// `None` where nothing is kept in memory.
    cache: Option<Cache<Name, Known, ByBytes>>,
    /// For each group of names, how often one of its records changed: what was read before is not believed afterwards.
    changes: [AtomicU64; GROUPS],
    hasher: RandomState,
    /// What runs in the background.
    tending: Mutex<Option<JoinHandle<()>>>,
}

/// What is known of a name.
#[derive(Debug, Clone)]
struct Known {
    /// Its record, where there is one.
    record: Option<Record>,
    /// The changes of its group before the record was read.
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
        // The remainder is less than the number of groups.
        &self.changes[(self.hasher.hash_one(name) % GROUPS as u64) as usize]
    }

    fn known(&self, name: &Name) -> Option<Option<Record>> {
        let known = self.cache.as_ref()?.get(name)?;
        (known.changes == self.changes(name).load(Ordering::Acquire)).then_some(known.record)
    }

    /// Keeps what runs in the background until the node is closed.
    pub(super) fn tend(&self, tending: JoinHandle<()>) {
        *self.tending.lock() = Some(tending);
    }

    /// Stops what runs in the background.
    pub(crate) async fn close(&self) {
        let tending = self.tending.lock().take();
        if let Some(tending) = tending {
            tending.abort();
            // It was told to end: how it did says nothing.
            drop(tending.await);
        }
    }

    /// Approximate bytes of the records in memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

impl Node {
    /// The valid record of a name that is stored here. It is verified when it comes in and when it is read from the
    /// disk.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) where there is none, or it has expired;
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) names a damaged file.
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

    /// The last record of a name that was stored here, also if it has expired: the next one needs a higher sequence.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`](ipfrs_core::ErrorKind) names a damaged file.
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

    /// Stores the record of a name durably, if it is valid and no better one is stored that is valid as well: one with
    /// a higher sequence, or the same and a later end. Storing the same record again is no error.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) says what is wrong with the record;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) over 10 KiB; [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) where
    /// a better one is stored; [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) over `ipns.max_records`, where none has
    /// expired either; [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) for a read-only repo.
    pub async fn put_ipns_record(&self, name: &Name, bytes: Bytes) -> Result<()> {
        let record = self.verified(name, bytes).await?;
        match self.keep_record(name, record.clone(), false).await {
            Err(e) if e.kind() == ErrorKind::RateLimited && self.clear_records().await? => {}
            kept => return kept,
        }
        self.keep_record(name, record, false).await
    }

    /// The same for a record that an own key has signed: there is always room for it.
    pub(super) async fn put_own_record(&self, name: &Name, bytes: Bytes) -> Result<()> {
        let record = self.verified(name, bytes).await?;
        self.keep_record(name, record, true).await
    }

    /// A record that may be stored for a name.
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
            // Whatever became of it, and of whoever asked for it.
            inner.names.changes(&name).fetch_add(1, Ordering::AcqRel);
            put
        })
        .await
    }

    /// Removes the records of other keys that have expired, unless that was done a short time ago. Gives whether there was
    /// any.
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

/// Verifying and waiting for a disk are nothing for a runtime worker.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    spawn_blocking(work).await.map_err(|e| Error::internal("work on an IPNS record failed").with_source(e))?
}
