//! Name records: reading, verifying and storing them.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_ipns::{Name, Record};

use crate::{NameRoot, Node, off_workers};

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
                "the record of the IPNS name {name} expired at {}: the owner of its key must publish a new one",
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
        let cached = names.get(name);
        self.inner.metrics.names.looked_up(cached.is_some());
        if let Some(record) = cached {
            return Ok(record);
        }
        let changes = names.changes(name).load(Ordering::Acquire);
        let (inner, wanted) = (self.inner.clone(), *name);
        let record = off_workers(move || inner.names.store.get(&wanted)).await?;
        names.insert(*name, record.clone(), changes);
        self.inner.metrics.names.cache.bytes.set(i64::try_from(names.bytes()).unwrap_or(i64::MAX));
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
    #[cfg(feature = "keys")]
    pub(super) async fn put_own_record(&self, name: &Name, bytes: Bytes) -> Result<()> {
        let record = self.verified(name, bytes).await?;
        self.keep_record(name, record, true).await
    }

    /// Returns the parsed record if it may be stored for a name.
    async fn verified(&self, name: &Name, bytes: Bytes) -> Result<Record> {
        self.check_writable()?;
        let name = *name;
        off_workers(move || {
            let record = Record::parse(bytes)?;
            record.verify(&name, SystemTime::now()).map(|()| record)
        })
        .await
    }

    async fn keep_record(&self, name: &Name, record: Record, is_own: bool) -> Result<()> {
        let (inner, name) = (self.inner.clone(), *name);
        let mut writing = inner.names.store.write_lock().await;
        let own = if writing.is_counted() { HashSet::new() } else { self.own_names().await? };
        off_workers(move || {
            if !writing.is_counted() {
                inner.names.store.count(&mut writing, &own)?;
            }
            let put = inner.names.store.put(&mut writing, &name, &record, is_own);
            // The counter changes even if `put` failed or the caller was cancelled.
            inner.names.changes(&name).fetch_add(1, Ordering::AcqRel);
            put
        })
        .await
    }

    /// Returns the names of own keys.
    #[cfg(feature = "keys")]
    async fn own_names(&self) -> Result<HashSet<Name>> {
        Ok(self.keys().await?.into_iter().map(|key| key.id).collect())
    }

    #[cfg(not(feature = "keys"))]
    fn own_names(&self) -> std::future::Ready<Result<HashSet<Name>>> {
        std::future::ready(Ok(HashSet::new()))
    }

    /// Removes the expired records of other keys, unless this was done recently. Returns whether any were removed.
    async fn clear_records(&self) -> Result<bool> {
        let inner = self.inner.clone();
        // Without the keys, the expired record of an own key cannot be told from others. Its value is needed later.
        if !cfg!(feature = "keys") {
            return Ok(false);
        }
        let mut writing = inner.names.store.write_lock().await;
        if !inner.names.store.may_clear(&writing) {
            return Ok(false);
        }
        let own = self.own_names().await?;
        off_workers(move || {
            let removed = inner.names.store.clear(&mut writing, &own)?;
            for name in &removed {
                inner.names.changes(name).fetch_add(1, Ordering::AcqRel);
            }
            tracing::info!(removed = removed.len(), "expired IPNS records were removed");
            Ok(!removed.is_empty())
        })
        .await
    }
}
