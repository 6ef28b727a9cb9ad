//! Pins at pinning services (<https://ipfs.github.io/pinning-services-api-spec/>).

mod client;
mod services;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, ErrorKind, Result};
use ipfrs_rpc::types::{PinState, PinStatus, RemotePinCount, RequestedPin};
use ipfrs_store::BlockStoreExt;
use tokio::time::sleep;

use self::client::Client;
pub use self::services::PinningService;
pub(crate) use self::services::PinningServices;
use crate::pin_requests::MAX_ORIGINS;
use crate::{ContentPath, Node, check_pin_name};

/// Interval at which the state of a new pin is requested.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Largest number of addresses of a service to which this node connects.
const MAX_DELEGATES: usize = 20;

/// Largest number of pins that are removed together.
const MAX_REMOVED: usize = 100_000;

/// Number of pins that are removed at the same time.
const CONCURRENT_REMOVALS: usize = 8;

/// Selection of pins at a pinning service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemotePinFilter {
    /// Exact name; `None` for any.
    pub name: Option<String>,
    /// Content IDs; empty for any.
    pub cids: Vec<Cid>,
    /// States.
    pub states: Vec<PinState>,
}

impl Default for RemotePinFilter {
    /// Selects everything that is pinned.
    fn default() -> Self {
        Self { name: None, cids: Vec::new(), states: vec![PinState::Pinned] }
    }
}

impl Node {
    /// Returns the pinning services, by name.
    ///
    /// # Errors
    /// If their file cannot be read.
    pub async fn pinning_services(&self) -> Result<Vec<PinningService>> {
        self.inner.pinning_services.list().await
    }

    /// Adds a pinning service durably. `key` authenticates this node there.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the endpoint is not the URL of a service; [`ErrorKind::Conflict`] if the name is
    /// in use; errors of the file system.
    pub async fn add_pinning_service(&self, name: &str, endpoint: &str, key: &str) -> Result<()> {
        self.check_writable()?;
        self.inner.pinning_services.add(name, endpoint, key).await
    }

    /// Removes a pinning service, if it exists. Its pins stay.
    ///
    /// # Errors
    /// Errors of the file system.
    pub async fn remove_pinning_service(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        self.inner.pinning_services.remove(name).await
    }

    /// Returns the number of pins at a service.
    ///
    /// # Errors
    /// As [`Self::remote_pins`].
    pub async fn count_remote_pins(&self, service: &str) -> Result<RemotePinCount> {
        let client = self.pinning_client(service).await?;
        let count = |state| client.count(state);
        let (queued, pinning, pinned, failed) = futures::try_join!(
            count(PinState::Queued),
            count(PinState::Pinning),
            count(PinState::Pinned),
            count(PinState::Failed)
        )?;
        Ok(RemotePinCount { queued, pinning, pinned, failed })
    }

    /// Asks a service to pin the target of a path. Unless `in_background` is set, waits until it is pinned.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown service; [`ErrorKind::InvalidInput`] for a long name;
    /// [`ErrorKind::BadSource`] if the service refuses or fails; [`ErrorKind::Unavailable`] if it does not respond.
    pub async fn pin_remotely(
        &self,
        service: &str,
        path: &ContentPath,
        name: &str,
        in_background: bool,
    ) -> Result<PinStatus> {
        check_pin_name(name)?;
        let client = self.pinning_client(service).await?;
        let cid = self.target_of(path).await?;
        let pin = RequestedPin {
            cid: cid.to_string(),
            name: name.to_owned(),
            origins: self.origins_of(&cid).await?,
            meta: BTreeMap::new(),
        };
        let mut status = client.add(&pin).await?;
        self.connect_to(&status.delegates);
        if in_background {
            return Ok(status);
        }
        let id = status.requestid;
        loop {
            status = client.status(&id).await.map_err(|e| {
                let why = format!("failed to check pin status for requestid={id:?} due to error: {e}");
                Error::new(e.kind(), why).with_source(e)
            })?;
            if status.requestid != id {
                let other = status.requestid;
                return Err(Error::new(
                    ErrorKind::BadSource,
                    format!(
                        "failed to check pin status for requestid={id:?}, remote service sent unexpected \
                         requestid={other:?}"
                    ),
                ));
            }
            match status.status {
                PinState::Pinned => return Ok(status),
                PinState::Failed => {
                    let why = format!("remote service failed to pin requestid={id:?}");
                    return Err(Error::new(ErrorKind::BadSource, why));
                }
                PinState::Queued | PinState::Pinning => sleep(POLL_INTERVAL).await,
            }
        }
    }

    /// Returns the pins at a service, newest first.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an unknown service; [`ErrorKind::InvalidInput`] for a long name. Items are errors if
    /// the service fails.
    pub async fn remote_pins(
        &self,
        service: &str,
        filter: RemotePinFilter,
    ) -> Result<BoxStream<'static, Result<PinStatus>>> {
        filter.name.as_deref().map_or(Ok(()), check_pin_name)?;
        Ok(self.pinning_client(service).await?.list(filter).boxed())
    }

    /// Removes the pins at a service that `filter` selects, and returns their number. Several are removed only with
    /// `many`.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for several pins without `many`; otherwise as [`Self::remote_pins`].
    pub async fn remove_remote_pins(&self, service: &str, filter: RemotePinFilter, many: bool) -> Result<usize> {
        let listed = |e: Error| Error::new(e.kind(), format!("error while listing remote pins: {e}")).with_source(e);
        let pins = self.remote_pins(service, filter).await?;
        let ids: Vec<_> = pins.map_ok(|pin| pin.requestid).take(MAX_REMOVED).try_collect().await.map_err(listed)?;
        if ids.len() > 1 && !many {
            let why = "multiple remote pins are matching this query, add --force to confirm the bulk removal";
            return Err(Error::new(ErrorKind::Conflict, why));
        }
        let count = ids.len();
        let client = self.pinning_client(service).await?;
        let removals = ids.into_iter().map(|id| {
            let client = &client;
            async move {
                client.remove(&id).await.map_err(|e| {
                    let why = format!("removing pin identified by requestid={id:?} failed: {e}");
                    Error::new(e.kind(), why).with_source(e)
                })
            }
        });
        stream::iter(removals).buffer_unordered(CONCURRENT_REMOVALS).try_collect::<()>().await?;
        Ok(count)
    }

    async fn pinning_client(&self, service: &str) -> Result<Client> {
        let (endpoint, key) = self.inner.pinning_services.access(service).await?;
        Client::new(endpoint, key)
    }

    /// Returns the addresses at which a service can get a block, if it is stored here.
    async fn origins_of(&self, cid: &Cid) -> Result<Vec<String>> {
        if self.inner.store.size(cid).await?.is_none() {
            return Ok(Vec::new());
        }
        Ok(self.addresses_with_id().into_iter().take(MAX_ORIGINS).collect())
    }

    /// Connects to the peers of a service, which then need not find this node.
    fn connect_to(&self, delegates: &[String]) {
        let (node, delegates) = (self.clone(), delegates.iter().take(MAX_DELEGATES).cloned().collect::<Vec<_>>());
        if delegates.is_empty() || self.peers().is_err() {
            return;
        }
        tokio::spawn(async move {
            for delegate in delegates {
                if let Err(e) = node.connect_peer(&delegate).await {
                    tracing::info!(%delegate, "cannot connect to a peer of a pinning service: {e}");
                }
            }
        });
    }
}
