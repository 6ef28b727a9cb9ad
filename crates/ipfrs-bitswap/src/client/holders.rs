//! Search for connected peers that have a block.

use std::collections::HashSet;
use std::sync::Arc;

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, identity_payload};
use libp2p::PeerId;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::event::{SessionEvent, SessionId};
use crate::bitswap::Bitswap;
use crate::peer::Peer;
use crate::wire::{Version, WantKind};

/// Maximum number of peers that are asked for one block.
const MAX_PEERS: usize = 64;

/// Peers that are asked whether they have a block. The wants end with this value.
struct PresenceQuery {
    id: SessionId,
    peers: Vec<Arc<Peer>>,
}

impl Drop for PresenceQuery {
    fn drop(&mut self) {
        for peer in &self.peers {
            peer.wants.lock().detach(self.id);
            peer.wants_changed.notify_one();
        }
    }
}

impl Bitswap {
    /// Asks connected peers whether they have a block, 64 of them at most. Returns those that have it, up to `most`.
    /// It waits until so many are known, all have responded, or `retrieval.bitswap.response_timeout_seconds` have
    /// passed. Peers that only know older versions of the protocol cannot respond, and are not asked. None is asked for
    /// a block that this node cannot verify.
    pub async fn holders(&self, cid: &Cid, most: usize) -> Vec<PeerId> {
        let hash = cid.hash();
        let is_verifiable = HashFunction::from_code(hash.code()).is_ok_and(|known| known.is_whole(hash.size().into()));
        if identity_payload(cid).is_some() || !is_verifiable {
            return Vec::new();
        }
        let context = &self.network().context;
        let current = Version::V1_2.protocol();
        let current: &str = current.as_ref();
        let can_respond = |peer: &Arc<Peer>| {
            let identity = peer.identity.lock();
            identity.protocols.iter().any(|protocol| protocol == current)
        };
        let (events, mut received) = mpsc::unbounded_channel();
        let mut query = PresenceQuery { id: SessionId::next(), peers: Vec::new() };
        for peer in context.peers.all().into_iter().filter(can_respond).take(MAX_PEERS) {
            let mut wants = peer.wants.lock();
            wants.attach(query.id, events.clone());
            wants.want(*cid, WantKind::Have, query.id);
            // A peer that closed before it was attached sends no event.
            if peer.closed.is_cancelled() {
                wants.disconnected();
            }
            drop(wants);
            peer.wants_changed.notify_one();
            query.peers.push(peer);
        }
        let mut waiting: HashSet<PeerId> = query.peers.iter().map(|peer| peer.id).collect();
        let deadline = Instant::now() + context.config.response_timeout();
        let mut holders = Vec::new();
        while holders.len() < most && !waiting.is_empty() {
            let Ok(Some(event)) = timeout_at(deadline, received.recv()).await else { break };
            let (peer, has_block) = match event {
                SessionEvent::Presence { peer, has_block, .. } => (peer, has_block),
                // Peers send small blocks at once.
                SessionEvent::Block { peer, .. } => (peer, true),
                SessionEvent::Disconnected { peer }
                | SessionEvent::Unsupported { peer }
                | SessionEvent::Invalid { peer, .. } => (peer, false),
                SessionEvent::Get { .. }
                | SessionEvent::Abandon { .. }
                | SessionEvent::Providers(_)
                | SessionEvent::Close => continue,
            };
            if waiting.remove(&peer) && has_block {
                holders.push(peer);
            }
        }
        holders
    }
}
