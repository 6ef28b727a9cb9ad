//! Permits for connections. They leave files for the store and for requests, which need some to end.

use std::fs;
use std::sync::Arc;

use ipfrs_middleware::{Client, FairPool, Share, Shortage};
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Minimum number of files that are not connections.
const MIN_RESERVE: u64 = 64;
/// Files besides those that are open at the start.
const MORE_FILES: u64 = 32;
/// Minimum number of connections, even if files may lack then.
const MIN_CONNECTIONS: u64 = 8;
/// Maximum number of connections that only the API listener may use.
const API_CONNECTIONS: usize = 16;
/// Number of connections that a client may have in any case. While no permit is free, only clients with fewer wait for
/// one.
const CLIENT_MINIMUM: usize = 16;

/// Returns the number of connections that a process may have which can open `limit` files. An eighth of them is for
/// other files. A connection takes one.
#[must_use]
pub fn connections_within(limit: u64) -> u64 {
    limit.saturating_sub(reserve_of(limit)).max(MIN_CONNECTIONS)
}

fn reserve_of(limit: u64) -> u64 {
    MIN_RESERVE.max(limit / 8)
}

/// Permits for the connections of all listeners.
#[derive(Debug, Clone)]
pub(super) struct ConnectionPermits {
    shared: Arc<Semaphore>,
    /// Permits that only the API listener may take, so that it responds while clients of the gateway have the others.
    api: Arc<Semaphore>,
    /// Parts of the shared permits that clients use.
    shares: FairPool<Client>,
    size: Arc<Mutex<Size>>,
}

/// Numbers of permits, with what they depend on.
#[derive(Debug)]
struct Size {
    /// Number of shared permits.
    shared: usize,
    /// Number of permits of the API listener alone.
    api: usize,
    /// Whether there is an API listener.
    has_api: bool,
    /// Files that were open before there were connections.
    open_files: u64,
}

impl ConnectionPermits {
    /// Creates permits for `max_connections`, or for as many as the limit on open files admits. `has_api` says whether
    /// there is an API listener.
    pub(super) fn new(max_connections: usize, has_api: bool) -> Self {
        let open_files = open_files();
        let (shared, api) = split(admitted(max_connections, open_files), has_api);
        Self {
            shared: Arc::new(Semaphore::new(shared)),
            api: Arc::new(Semaphore::new(api)),
            shares: FairPool::new(shared, CLIENT_MINIMUM, usize::MAX),
            size: Arc::new(Mutex::new(Size { shared, api, has_api, open_files })),
        }
    }

    /// Returns the share of a client for one more connection, which also needs a permit. Returns `None` if the client
    /// has as many connections as are left for all others: they must not wait because of one client. While none is
    /// left, only clients with few connections may wait for a permit. Their share is then empty.
    pub(super) fn share(&self, client: Client) -> Option<Share<Client>> {
        // Connections that count for no client hold permits, of which the shares do not know. The connection has not
        // taken its own permit yet.
        let free = self.shared.available_permits();
        if self.shares.held(client) >= CLIENT_MINIMUM.max(free.saturating_sub(1)) {
            return None;
        }
        match self.shares.take(client, 1) {
            Ok(share) => Some(share),
            Err(Shortage::Total) => Some(self.shares.nothing(client)),
            Err(Shortage::Share | Shortage::Client) => None,
        }
    }

    /// Returns the empty share of a connection that counts for no client.
    pub(super) fn empty_share(&self, client: Client) -> Share<Client> {
        self.shares.nothing(client)
    }

    /// Returns the number of connections that count for a client.
    pub(super) fn held(&self, client: Client) -> usize {
        self.shares.held(client)
    }

    /// Changes the numbers of permits to those for `max_connections`. If there are fewer than before, new connections
    /// wait until enough have ended.
    pub(super) fn resize(&self, max_connections: usize) {
        let mut size = self.size.lock();
        let (shared, api) = split(admitted(max_connections, size.open_files), size.has_api);
        self.shares.resize(shared, usize::MAX);
        change(&self.shared, size.shared, shared);
        change(&self.api, size.api, api);
        (size.shared, size.api) = (shared, api);
    }

    /// Waits for a permit. With `is_api`, it may be one of the API listener. Returns `None` if the daemon ends.
    pub(super) async fn take(&self, is_api: bool) -> Option<OwnedSemaphorePermit> {
        let shared = Arc::clone(&self.shared).acquire_owned();
        if !is_api {
            return shared.await.ok();
        }
        tokio::select! {
            biased;
            permit = shared => permit.ok(),
            permit = Arc::clone(&self.api).acquire_owned() => permit.ok(),
        }
    }
}

/// Divides `most` permits into shared ones and those of the API listener alone.
fn split(most: usize, has_api: bool) -> (usize, usize) {
    let api = if has_api { API_CONNECTIONS.min(most / 8) } else { 0 };
    (most - api, api)
}

/// Changes the number of permits of a semaphore. If there are fewer than `before`, each is removed once it is free.
fn change(permits: &Arc<Semaphore>, before: usize, after: usize) {
    if after >= before {
        permits.add_permits(after - before);
        return;
    }
    let permits = Arc::clone(permits);
    tokio::spawn(async move {
        for _ in after..before {
            let Ok(permit) = permits.acquire().await else { return };
            permit.forget();
        }
    });
}

/// Returns the number of connections for `max_connections` that the limit on open files admits.
fn admitted(max_connections: usize, open_files: u64) -> usize {
    match getrlimit(Resource::Nofile).current {
        Some(limit) => within(limit, open_files, max_connections),
        None => max_connections,
    }
}

/// Returns the number of connections of a process that has `open` files, of `limit`. Warns if they are fewer than
/// `wanted`.
fn within(limit: u64, open: u64, wanted: usize) -> usize {
    let others = reserve_of(limit).max(open + MORE_FILES);
    let most = usize::try_from(limit.saturating_sub(others).max(MIN_CONNECTIONS)).unwrap_or(usize::MAX);
    if most < wanted {
        tracing::warn!(
            open_files = limit,
            connections = most,
            max_connections = wanted,
            "the limit on open files admits fewer connections than server.max_connections: raise it (LimitNOFILE, \
             ulimit -n)"
        );
    }
    most.min(wanted)
}

/// Returns the number of files that this process has open; 0 if the system does not say.
fn open_files() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn files_are_left_for_the_store_and_requests() {
        for (limit, open, wanted, most) in [
            (65_536, 30, 50_000, 50_000),
            (65_536, 30, 100_000, 57_344),
            (1_024, 30, 50_000, 896),
            (1_024, 700, 50_000, 292),
            (200, 30, 50_000, 136),
            (80, 30, 50_000, 16),
            (64, 60, 50_000, 8),
            (64, 60, 1, 1),
        ] {
            assert_eq!(within(limit, open, wanted), most, "{open} of {limit} files are open");
        }
    }

    #[test]
    fn client_leaves_as_many_connections_as_it_has() {
        let client = |number: u8| Client::of(IpAddr::from([192, 0, 2, number]));
        let permits = ConnectionPermits::new(100, false);
        let mut held = Vec::new();
        while let Some(share) = permits.share(client(1)) {
            held.push(share);
        }
        assert_eq!(held.len(), 50);
        let other = permits.share(client(2)).unwrap();
        assert_eq!(other.units(), 1);
        held.truncate(40);
        assert!(permits.share(client(1)).is_some());
        // All wait if no connection is left.
        let single = ConnectionPermits::new(1, false);
        let units = [1, 1, 2].map(|number| single.share(client(number)).map(|share| (share.units(), share)));
        assert_eq!(units.map(|share| share.unwrap().0), [1, 0, 0]);
    }

    #[tokio::test]
    async fn client_leaves_permits_beside_exempt_connections() {
        let client = Client::of(IpAddr::from([192, 0, 2, 1]));
        let permits = ConnectionPermits::new(100, false);
        let mut exempt = Vec::new();
        for _ in 0..60 {
            exempt.push(permits.take(false).await.unwrap());
        }
        let mut held = Vec::new();
        while let Some(share) = permits.share(client) {
            held.push((share, permits.take(false).await.unwrap()));
        }
        assert_eq!((held.len(), permits.shared.available_permits()), (20, 20));
        while permits.shared.available_permits() > 0 {
            exempt.push(permits.take(false).await.unwrap());
        }
        assert!(permits.share(client).is_none(), "connections that end are for others");
        assert!(permits.share(Client::of(IpAddr::from([192, 0, 2, 2]))).is_some());
        exempt.truncate(20);
        assert!(permits.share(client).is_some());
    }

    #[tokio::test]
    async fn fewer_permits_are_there_once_connections_have_ended() {
        let permits = ConnectionPermits::new(16, false);
        let mut taken = Vec::new();
        while permits.shared.available_permits() > 0 {
            taken.push(permits.take(false).await.unwrap());
        }
        permits.resize(4);
        taken.truncate(2);
        while permits.shared.available_permits() != 2 {
            tokio::task::yield_now().await;
        }
        permits.resize(10);
        assert_eq!(permits.shared.available_permits(), 8, "two of ten are in use");
    }

    #[tokio::test]
    async fn api_listener_keeps_its_part_of_a_changed_number() {
        let permits = ConnectionPermits::new(16, true);
        let available = || (permits.shared.available_permits(), permits.api.available_permits());
        assert_eq!(available(), (14, 2));
        permits.resize(100);
        assert_eq!(available(), (88, 12));
        permits.resize(8);
        while available() != (7, 1) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn api_listener_has_permits_when_others_have_none() {
        let permits = ConnectionPermits::new(16, true);
        let mut taken = Vec::new();
        while permits.shared.available_permits() > 0 {
            taken.push(permits.take(false).await.unwrap());
        }
        assert!(futures::poll!(std::pin::pin!(permits.take(false))).is_pending());
        taken.push(permits.take(true).await.unwrap());
        taken.push(permits.take(true).await.unwrap());
        assert_eq!(taken.len(), 16);
        assert!(futures::poll!(std::pin::pin!(permits.take(true))).is_pending());
    }
}
