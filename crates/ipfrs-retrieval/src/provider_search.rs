//! The search for providers of content.

use std::net::IpAddr;
use std::sync::Arc;

use ipfrs_core::Cid;
use tokio::time::Instant;

use crate::attempt::Trace;
use crate::candidates::Candidates;
use crate::peers::PeerSession;
use crate::routing::{Provider, Router};
use crate::running_attempt::RunningAttempt;
use crate::shared::Shared;

impl Shared {
    /// Queries all routers for providers of `root` on behalf of `client`. Adds HTTP servers to `candidates`, and peers
    /// to `peers`.
    pub(crate) async fn search(
        self: &Arc<Self>,
        root: &Cid,
        candidates: &Candidates,
        peers: Option<&PeerSession>,
        client: Option<IpAddr>,
        trace: &Arc<Trace>,
    ) {
        let lookup = async |router: &Router| {
            let request = format!("providers of {root}");
            let mut running = RunningAttempt::begin_lookup(self, trace, &router.url, request);
            let found = |Provider { urls, peer, exchanges_blocks }: Provider| {
                let is_server = !urls.is_empty();
                urls.into_iter().for_each(|url| candidates.add(self.sources.provider(url)));
                let peer = peer.filter(|_| exchanges_blocks);
                let (Some(peers), Some((id, addresses))) = (peers, peer) else { return is_server };
                let is_peer = peers.add(&id, &addresses);
                candidates.note_peer();
                is_server || is_peer
            };
            let received = self.routers.providers(router, root, client, found).await;
            if let Ok(bytes) = &received {
                running.bytes.add(*bytes);
                running.first_byte = Some(Instant::now());
            }
            running.end(received.as_ref().map(|_| ()));
        };
        futures::future::join_all(self.routers.all().iter().map(lookup)).await;
    }
}
