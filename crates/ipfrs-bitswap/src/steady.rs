//! Peers to which the node stays connected.

use std::sync::Arc;
use std::time::Duration;

use libp2p::{Multiaddr, PeerId};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::network::{DialError, Network, Origin};
use crate::peer::Peer;
use crate::peers::Peers;

/// Time until the first attempt to connect again, which doubles with every failure, and the shortest time between two
/// attempts that requests cause.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// Longest time between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Duration of a connection after which the time starts from the beginning. A peer that accepts and closes at once is
/// not dialed all the time.
const STABLE: Duration = Duration::from_secs(60);

/// A peer to which the node stays connected.
pub(crate) struct SteadyPeer {
    pub addresses: Vec<Multiaddr>,
    pub attempts: Arc<Attempts>,
    /// Connects again whenever the connection is lost.
    task: JoinHandle<()>,
}

impl SteadyPeer {
    /// Stays connected to a peer until the value is dropped or the node is shut down.
    pub(crate) fn start(network: Network, id: PeerId, addresses: Vec<Multiaddr>) -> Self {
        let attempts = Arc::new(Attempts::default());
        let (dialed, noted) = (addresses.clone(), Arc::clone(&attempts));
        let task = tokio::spawn(async move {
            let connect = || network.connect(id, &dialed, Origin::Operator);
            tokio::select! {
                () = network.context.stop.cancelled() => {}
                () = stay_connected(id, &network.context.peers, &noted, connect) => {}
            }
            noted.close();
        });
        Self { addresses, attempts, task }
    }
}

impl Drop for SteadyPeer {
    fn drop(&mut self) {
        self.task.abort();
        self.attempts.close();
    }
}

/// Attempts to connect to a steady peer.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    /// Notified when a request needs the peer before the next attempt is due.
    needed: Notify,
    last: watch::Sender<LastAttempt>,
}

#[derive(Debug, Clone, Default)]
struct LastAttempt {
    began: Option<Instant>,
    has_ended: bool,
    /// Whether no attempt follows.
    is_last: bool,
    /// Reason of its failure. While another attempt is running, it is that of the one before.
    failure: Option<String>,
}

impl Attempts {
    /// Returns the reason why the last attempt failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.last.borrow().failure.clone()
    }

    /// Waits for the end of an attempt that began after `since`, which begins as soon as one may follow the last one.
    /// Returns at once if there are no more attempts.
    pub(crate) async fn tried_since(&self, since: Instant) {
        let mut last = self.last.subscribe();
        loop {
            {
                let last = last.borrow_and_update();
                let is_recent = last.began.is_some_and(|began| began >= since);
                match last.has_ended {
                    _ if last.is_last => return,
                    true if is_recent => return,
                    true => self.needed.notify_one(),
                    false => {}
                }
            }
            if last.changed().await.is_err() {
                return;
            }
        }
    }

    fn begin(&self) -> Instant {
        let now = Instant::now();
        self.last.send_modify(|last| (last.began, last.has_ended) = (Some(now), false));
        now
    }

    fn close(&self) {
        self.last.send_modify(|last| last.is_last = true);
    }

    /// Protects the connection, unless the node no longer stays connected to the peer: the task may run for a
    /// moment after its end, when the caller that ended it has removed the protection.
    fn succeed(&self, connected: &Peer) {
        self.last.send_modify(|last| {
            if !last.is_last {
                connected.protect();
            }
            (last.has_ended, last.failure) = (true, None);
        });
    }

    fn fail(&self, failure: String) {
        self.last.send_modify(|last| (last.has_ended, last.failure) = (true, Some(failure)));
    }
}

/// Connects to a peer, and again whenever the connection is lost. A connection that the peer or a session has opened
/// is as good as one that is opened here.
async fn stay_connected<F: Future<Output = Result<Arc<Peer>, DialError>>>(
    peer: PeerId,
    peers: &Peers,
    attempts: &Attempts,
    connect: impl Fn() -> F,
) {
    let (mut backoff, mut is_due) = (FIRST_BACKOFF, true);
    loop {
        let began = attempts.begin();
        match connect().await {
            Ok(connected) => {
                tracing::info!(%peer, "connected to a peer to which this node stays connected");
                attempts.succeed(&connected);
                let since = Instant::now();
                connected.closed.cancelled().await;
                if since.elapsed() >= STABLE {
                    backoff = FIRST_BACKOFF;
                }
            }
            Err(error) => {
                let seconds = backoff.as_secs();
                // Clients must not fill the log.
                if is_due {
                    tracing::warn!(%peer, "no connection: {error}: next attempt in {seconds} s");
                } else {
                    tracing::debug!(%peer, "no connection for a request: {error}");
                }
                attempts.fail(error.to_string());
            }
        }
        let needed = async {
            attempts.needed.notified().await;
            sleep_until(began + FIRST_BACKOFF).await;
        };
        is_due = tokio::select! {
            () = sleep(backoff) => true,
            () = needed => false,
            () = peers.until_connected(&peer) => false,
        };
        if is_due {
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::SystemTime;

    use futures::future::{Either, select};
    use libp2p::swarm::ConnectionId;
    use tokio::sync::mpsc;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::BitswapConfig;
    use crate::peer::{Connection, Direction};

    /// A peer that cannot be dialed for five minutes, and later only if `is_up` is set.
    struct Absent {
        id: PeerId,
        peers: Peers,
        attempts: Attempts,
        is_up: Cell<bool>,
        dials: Cell<usize>,
    }

    impl Absent {
        fn new() -> Self {
            let (id, peers, attempts) = (PeerId::random(), Peers::default(), Attempts::default());
            Self { id, peers, attempts, is_up: Cell::new(false), dials: Cell::new(0) }
        }

        fn connect(&self) -> Arc<Peer> {
            let connection = Connection {
                id: ConnectionId::new_unchecked(1),
                opener: mpsc::channel(1).0,
                address: "/ip4/192.0.2.1/tcp/1".parse().unwrap(),
                direction: Direction::Inbound,
                since: SystemTime::now(),
                closed: CancellationToken::new(),
            };
            self.peers.attach(self.id, connection, &BitswapConfig::default()).0
        }

        fn dial(&self) -> Result<Arc<Peer>, DialError> {
            if let Some(connected) = self.peers.get(&self.id) {
                return Ok(connected);
            }
            self.dials.set(self.dials.get() + 1);
            match self.is_up.get() {
                true => Ok(self.connect()),
                false => Err(DialError::Failed("refused".to_owned())),
            }
        }

        /// Runs the attempts while `during` runs, after five minutes.
        async fn run(&self, during: impl Future<Output = ()>) {
            let staying = stay_connected(self.id, &self.peers, &self.attempts, || std::future::ready(self.dial()));
            let later = async {
                sleep(Duration::from_secs(300)).await;
                during.await;
            };
            let (staying, later) = (std::pin::pin!(staying), std::pin::pin!(later));
            assert!(matches!(select(staying, later).await, Either::Right(_)));
        }

        fn is_protected(&self) -> bool {
            self.peers.get(&self.id).is_some_and(|peer| peer.is_protected())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_connects_itself_is_steady_at_once() {
        let absent = Absent::new();
        let during = async {
            assert_eq!(absent.attempts.failure().as_deref(), Some("refused"));
            let dials = absent.dials.get();
            absent.connect();
            // The clock advances when no task can continue.
            sleep(Duration::from_millis(1)).await;
            assert!(absent.is_protected() && absent.attempts.failure().is_none());
            assert_eq!(absent.dials.get(), dials);
        };
        absent.run(during).await;
    }

    #[tokio::test(start_paused = true)]
    async fn attempt_that_succeeds_after_its_end_protects_nothing() {
        let absent = Absent::new();
        absent.is_up.set(true);
        absent.attempts.close();
        absent.run(async { assert!(absent.peers.get(&absent.id).is_some() && !absent.is_protected()) }).await;
    }

    #[tokio::test(start_paused = true)]
    async fn request_dials_a_steady_peer_before_the_next_attempt() {
        let absent = Absent::new();
        let during = async {
            absent.is_up.set(true);
            let begun = Instant::now();
            absent.attempts.tried_since(begun).await;
            assert!(absent.is_protected());
            assert!(begun.elapsed() <= FIRST_BACKOFF);
        };
        absent.run(during).await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_dial_an_absent_peer_once_in_a_second() {
        let absent = Absent::new();
        let during = async {
            let (begun, before) = (Instant::now(), absent.dials.get());
            let mut requests = 0;
            while begun.elapsed() < Duration::from_secs(10) {
                let together = [(); 5].map(|()| absent.attempts.tried_since(Instant::now()));
                futures::future::join_all(together).await;
                requests += 5;
                sleep(Duration::from_millis(10)).await;
            }
            let dials = absent.dials.get() - before;
            assert!(requests >= 25 && (5..=12).contains(&dials), "{dials} dials for {requests} requests");
        };
        absent.run(during).await;
    }
}
