//! Sessions: each fetches the blocks of one DAG from the peers that it knows.

mod actor;
mod peer_table;
mod want_table;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result, identity_payload};
use libp2p::{Multiaddr, PeerId};
use tokio::sync::{mpsc, oneshot};

use super::event::{SessionEvent, SessionSender};
use super::received::{MessageMemory, Received};
use crate::bitswap::Bitswap;
use crate::outcome::Trace;

/// Fetches the blocks of one DAG. Clones share the session; it ends with the last clone.
///
/// A session asks only the peers that it was given. It requests a block from one peer at a time, and asks a few others
/// whether they have it. When a peer does not have a block, does not respond in time or disconnects, the session
/// requests the block from another one.
#[derive(Clone)]
pub struct Session(Arc<Handle>);

struct Handle {
    /// The node, which the session keeps running.
    node: Bitswap,
    events: SessionSender,
    next_waiter: AtomicU64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.events.send(SessionEvent::Close).ok();
    }
}

impl Bitswap {
    /// Starts a session that fetches the blocks of one DAG. It has no peers until they are
    /// [added](Session::add_providers). `trace` receives every request to a peer with its outcome.
    #[must_use]
    pub fn session(&self, trace: Option<Trace>) -> Session {
        let (events, received) = mpsc::unbounded_channel();
        tokio::spawn(actor::run(self.network().clone(), trace, events.clone(), received));
        Session(Arc::new(Handle { node: self.clone(), events, next_waiter: AtomicU64::new(0) }))
    }
}

impl Session {
    /// Adds peers that may have the blocks, with their addresses, most promising first. The session connects to those
    /// that are not connected. Addresses that the filter of [`Bitswap::start`](crate::Bitswap::start) refuses are not
    /// dialed. A session uses at most 64 peers; further ones are ignored.
    pub fn add_providers(&self, providers: Vec<(PeerId, Vec<Multiaddr>)>) {
        self.0.events.send(SessionEvent::Providers(providers)).ok();
    }

    /// Fetches a block and verifies it. Concurrent calls share messages. Dropping the future cancels the request.
    ///
    /// # Errors
    /// - [`ErrorKind::NotFound`] if no peer has the block. [`Error::missing_block`] returns its content ID.
    /// - [`ErrorKind::Timeout`] if a peer did not respond in time and no other one has the block.
    /// - [`ErrorKind::Unavailable`] if the session has no connected peer and is not connecting to any.
    /// - [`ErrorKind::Unsupported`] for an unknown hash function and a truncated digest.
    pub async fn get(&self, cid: &Cid) -> Result<Block> {
        self.receive(cid).await.map(|received| received.block)
    }

    /// Does the same as [`Self::get`]. The memory of the block is not available to other messages until it is dropped,
    /// so that peers do not send blocks faster than the caller can store them.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn receive(&self, cid: &Cid) -> Result<Received> {
        self.request(cid, false).await
    }

    /// Does the same as [`Self::receive`], but waits until a peer has the block, if none of the known ones has it. The
    /// peers remember the want, and those that are added later are asked, too. At most 512 callers wait, those of one
    /// `client` at most as many as are free for others.
    ///
    /// # Errors
    /// - [`ErrorKind::Unavailable`] if the node is shut down, and after [`Bitswap::end_waits`].
    /// - [`ErrorKind::Unsupported`] for an unknown hash function and a truncated digest.
    /// - As [`Self::get`] if there are too many callers.
    pub async fn receive_when_available(&self, cid: &Cid, client: Option<IpAddr>) -> Result<Received> {
        let context = &self.0.node.network().context;
        let Ok(_place) = context.patient.take(client, 1) else { return self.request(cid, false).await };
        tokio::select! {
            received = self.request(cid, true) => received,
            () = context.waits_ended.cancelled() => {
                Err(Error::new(ErrorKind::Unavailable, "the node stops, and waits for no peer"))
            }
        }
    }

    async fn request(&self, cid: &Cid, is_patient: bool) -> Result<Received> {
        if let Some(data) = identity_payload(cid) {
            let block = Block::trusted(*cid, Bytes::copy_from_slice(data));
            return Ok(Received { block, memory: MessageMemory::default() });
        }
        let function = HashFunction::from_code(cid.hash().code())?;
        // Peers send the hash function of a block and not its digest, which is computed in full.
        if !function.is_whole(cid.hash().size().into()) {
            return Err(Error::unsupported(format!("Bitswap cannot fetch {cid}: its digest is truncated")));
        }
        let waiter = self.0.next_waiter.fetch_add(1, Ordering::Relaxed);
        let (reply, received) = oneshot::channel();
        let mut guard = Waiter { session: self, cid: *cid, waiter, is_waiting: true };
        self.0.events.send(SessionEvent::Get { cid: *cid, waiter, is_patient, reply }).ok();
        let result = received.await;
        guard.is_waiting = false;
        result.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the Bitswap node is shut down")))
    }
}

/// Tells the session when a caller no longer waits.
struct Waiter<'a> {
    session: &'a Session,
    cid: Cid,
    waiter: u64,
    is_waiting: bool,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.is_waiting {
            self.session.0.events.send(SessionEvent::Abandon { cid: self.cid, waiter: self.waiter }).ok();
        }
    }
}
