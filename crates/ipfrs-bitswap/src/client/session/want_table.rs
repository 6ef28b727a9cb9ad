//! The blocks that a session wants.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use ipfrs_core::{Cid, Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::peer_table::PeerSet;
use crate::client::received::Received;

/// Number of entries of the queue that may be skipped before they are removed.
const MAX_SKIPPED_ENTRIES: usize = 1024;
/// Number of times that a block is requested again from peers that did not respond in time, if no other peer is left.
const MAX_RETRIES: u8 = 2;

/// A caller that waits for a block.
pub(super) struct Waiter {
    pub id: u64,
    /// Whether it waits until a peer has the block.
    pub is_patient: bool,
    pub reply: oneshot::Sender<Result<Received>>,
}

/// A wanted block.
#[derive(Default)]
pub(super) struct Want {
    waiters: Vec<Waiter>,
    /// The peer from which the block is requested, and since when.
    pub asked: Option<(usize, Instant)>,
    /// Peers that were asked whether they have the block and have not responded.
    pub probed: PeerSet,
    pub probed_at: Option<Instant>,
    /// Peers that said that they have the block.
    pub holders: PeerSet,
    /// Peers from which the block cannot be fetched.
    pub refused: PeerSet,
    /// Peers among `refused` that did not respond in time. They may send the block later, and are asked again if no
    /// other peer is left.
    pub timed_out: PeerSet,
    /// Number of times that they were asked again.
    pub retries: u8,
    /// Whether one of the refusals was a timeout or a lost connection.
    pub has_failed: bool,
}

/// The blocks that a session wants. Those in the queue are not requested from any peer at the moment.
#[derive(Default)]
pub(super) struct WantTable {
    wants: HashMap<Cid, Want>,
    queue: VecDeque<Cid>,
    /// Wants of patient callers that no known peer can fulfil. They are not in the queue.
    suspended: HashSet<Cid>,
}

impl WantTable {
    /// Returns the number of wanted blocks.
    pub(super) fn len(&self) -> usize {
        self.wants.len()
    }

    pub(super) fn get_mut(&mut self, cid: &Cid) -> Option<&mut Want> {
        self.wants.get_mut(cid)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&Cid, &mut Want)> {
        self.wants.iter_mut()
    }

    /// Adds a caller that waits for a block.
    pub(super) fn add(&mut self, cid: Cid, waiter: Waiter) {
        self.resume(&cid);
        let want = self.wants.entry(cid).or_insert_with(|| {
            self.queue.push_back(cid);
            Want::default()
        });
        want.waiters.push(waiter);
    }

    /// Removes a want from those that are looked at, until it is resumed.
    pub(super) fn suspend(&mut self, cid: Cid) {
        self.suspended.insert(cid);
    }

    /// Puts a suspended want into the queue.
    pub(super) fn resume(&mut self, cid: &Cid) {
        if self.suspended.remove(cid) {
            self.queue.push_back(*cid);
        }
    }

    /// Puts all suspended wants into the queue for a peer that has connected. It is asked even if it refused them on an
    /// earlier connection, because it remembers no want of that.
    pub(super) fn resume_all(&mut self, connected: usize) {
        for cid in self.suspended.drain() {
            if let Some(want) = self.wants.get_mut(&cid) {
                want.clear_peer(connected);
            }
            self.queue.push_back(cid);
        }
    }

    /// Removes a caller. Returns the want if it was the last caller.
    pub(super) fn abandon(&mut self, cid: &Cid, waiter: u64) -> Option<Want> {
        let want = self.wants.get_mut(cid)?;
        want.waiters.retain(|other| other.id != waiter);
        if !want.waiters.is_empty() {
            return None;
        }
        let want = self.remove(cid);
        self.compact_queue();
        want
    }

    /// Removes entries of the queue that are skipped, once they are the larger part.
    fn compact_queue(&mut self) {
        if self.queue.len() <= 2 * self.wants.len() + MAX_SKIPPED_ENTRIES {
            return;
        }
        let mut kept = HashSet::new();
        let wants = &self.wants;
        let is_queued = |cid: &Cid| wants.get(cid).is_some_and(|want| want.asked.is_none());
        self.queue.retain(|cid| is_queued(cid) && kept.insert(*cid));
    }

    pub(super) fn remove(&mut self, cid: &Cid) -> Option<Want> {
        self.suspended.remove(cid);
        self.wants.remove(cid)
    }

    /// Puts a want at the front of the queue: it waits for longer than the others.
    pub(super) fn requeue(&mut self, cid: Cid) {
        self.queue.push_front(cid);
    }

    /// Takes the first want of the queue that is still wanted.
    pub(super) fn pop(&mut self) -> Option<Cid> {
        while let Some(cid) = self.queue.pop_front() {
            if self.wants.get(&cid).is_some_and(|want| want.asked.is_none()) {
                return Some(cid);
            }
        }
        None
    }

    /// Returns whether a want waits for a peer.
    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }
}

impl Want {
    /// Returns whether a caller waits until a peer has the block.
    pub(super) fn is_patient(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.is_patient)
    }

    /// Sends a failure to the callers that are not patient.
    pub(super) fn fail_impatient(&mut self, cid: &Cid, failure: &Failure) {
        let waiters = std::mem::take(&mut self.waiters).into_iter();
        let (patient, others): (Vec<_>, Vec<_>) = waiters.partition(|waiter| waiter.is_patient);
        self.waiters = patient;
        for waiter in others {
            waiter.reply.send(Err(failure.error(cid))).ok();
        }
    }

    /// Lets peers that did not respond in time be asked again. Returns whether there are any and the limit allows it.
    pub(super) fn retry(&mut self, usable: PeerSet) -> bool {
        let again = self.timed_out.intersection(usable);
        if self.retries >= MAX_RETRIES || again == PeerSet::default() {
            return false;
        }
        self.retries += 1;
        self.refused = self.refused.difference(again);
        true
    }

    /// Removes a peer from all sets.
    pub(super) fn clear_peer(&mut self, peer: usize) {
        for set in [&mut self.probed, &mut self.holders, &mut self.refused, &mut self.timed_out] {
            set.remove(peer);
        }
    }

    /// Sends the result to all callers.
    pub(super) fn reply(self, cid: &Cid, result: Result<&Received, &Failure>) {
        for waiter in self.waiters {
            let result = match result {
                Ok(received) => Ok(received.clone()),
                Err(failure) => Err(failure.error(cid)),
            };
            waiter.reply.send(result).ok();
        }
    }
}

/// The reason why a block cannot be fetched.
pub(super) struct Failure {
    pub peers: usize,
    pub has_connected: bool,
    pub has_failed: bool,
}

impl Failure {
    fn error(&self, cid: &Cid) -> Error {
        let peers = match self.peers {
            0 => return Error::new(ErrorKind::Unavailable, format!("no Bitswap peer is known that may have {cid}")),
            1 => "the peer".to_owned(),
            count => format!("any of {count} peers"),
        };
        if !self.has_connected {
            let message = format!("{cid} cannot be fetched: no connection to {peers} could be established or kept");
            Error::new(ErrorKind::Unavailable, message)
        } else if self.has_failed {
            Error::new(ErrorKind::Timeout, format!("{cid} could not be fetched in time from {peers}"))
        } else {
            Error::no_block(cid, format!("{cid} is not stored on {peers}"))
        }
    }
}
