//! Republishing of the records of own names before they expire.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipfrs_core::Result;
use ipfrs_ipns::Record;
use tokio::time::sleep;

use super::publish::sign;
use crate::keys::NamedKey;
use crate::{LinkName, Node};

/// Maximum interval between two checks of the records, as in Kubo.
const MAX_PERIOD: Duration = Duration::from_secs(4 * 3_600);

impl Node {
    /// Starts a background task that renews the records of own keys until the node is closed. It signs each record
    /// again that has expired or expires within half of `ipns.record_lifetime_seconds`, so that published names stay
    /// resolvable while the daemon runs. Value, sequence number and TTL stay the same. Does nothing with
    /// `ipns.republish = false` or for a read-only repo.
    pub(crate) fn start_republishing(&self) {
        let config = &self.inner.config.ipns;
        if !config.republish || self.check_writable().is_err() {
            return;
        }
        let period = MAX_PERIOD.min(config.record_lifetime() / 4);
        let node = Arc::downgrade(&self.inner);
        let background_task = tokio::spawn(async move {
            while let Some(inner) = node.upgrade() {
                let node = Self { inner };
                if let Err(error) = node.republish().await {
                    tracing::error!(%error, "republishing the records of own names failed");
                }
                drop(node);
                sleep(period).await;
            }
        });
        self.inner.names.tend(background_task);
    }

    async fn republish(&self) -> Result<()> {
        for key in self.keys().await? {
            if let Err(error) = self.republish_key(&key).await {
                tracing::error!(key = key.name, name = %key.id, %error, "the record of an own name could not be renewed");
            }
        }
        Ok(())
    }

    async fn republish_key(&self, key: &NamedKey) -> Result<()> {
        let lifetime = self.inner.config.ipns.record_lifetime();
        let _publishing = self.inner.keystore.publishing.lock().await;
        let now = SystemTime::now();
        let ends_soon = |record: &Record| record.is_expired(now + lifetime / 2);
        let Some(record) = self.last_ipns_record(&key.id).await?.filter(ends_soon) else { return Ok(()) };
        let value = LinkName::from(record.value().as_ref());
        let (_, private) = self.private_key(&key.name).await?;
        let ttl = record.ttl().unwrap_or_else(|| self.inner.config.ipns.record_ttl());
        let has_v1 = record.signature_v1().is_some();
        let renewed = sign(private, value, record.sequence(), now + lifetime, ttl, has_v1).await?;
        self.put_own_record(&key.id, renewed.bytes().clone()).await?;
        tracing::info!(key = key.name, name = %key.id, "a record is valid for longer");
        Ok(())
    }
}
