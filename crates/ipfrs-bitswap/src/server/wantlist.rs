//! The wants of one peer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use ipfrs_core::Cid;

use crate::wire::WantKind;

/// A want of the peer.
#[derive(Debug)]
struct Want {
    kind: WantKind,
    send_dont_have: bool,
    priority: i32,
    /// Number of the last request for the block. Requests are numbered in the order of their arrival.
    request: u64,
    state: WantState,
    /// Whether the block was stored while the response was being prepared.
    is_stored: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantState {
    /// A response is due.
    Queued,
    /// The response is being prepared.
    Active,
    /// The block is missing. A response is due when it is stored.
    Waiting,
}

/// A request to respond to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Task {
    pub cid: Cid,
    pub kind: WantKind,
    pub send_dont_have: bool,
    request: u64,
}

/// The wants of one peer, up to a maximum. Wants of higher priority are served first, and equal ones in the order of
/// their arrival.
#[derive(Debug)]
pub(crate) struct Wantlist {
    max: usize,
    wants: HashMap<Cid, Want>,
    queue: BTreeMap<(Reverse<i32>, u64), Cid>,
    requests: u64,
    active: usize,
}

impl Wantlist {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, wants: HashMap::new(), queue: BTreeMap::new(), requests: 0, active: 0 }
    }

    /// Returns the number of wants.
    pub(crate) fn len(&self) -> usize {
        self.wants.len()
    }

    /// Returns whether a response is due or being prepared.
    pub(crate) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.active > 0
    }

    /// Returns the wanted content IDs.
    pub(crate) fn cids(&self) -> Vec<Cid> {
        self.wants.keys().copied().collect()
    }

    /// Adds a want, or repeats one. If the list is full, the want takes the place of one for a missing block, or else
    /// of one with a lower priority. Returns the content ID whose want did not fit, if any.
    pub(crate) fn add(&mut self, cid: Cid, kind: WantKind, priority: i32, send_dont_have: bool) -> Option<Cid> {
        let mut removed = None;
        if let Some(old) = self.wants.get(&cid) {
            let kind = kind.max(old.kind);
            self.remove(&cid);
            self.insert(cid, kind, priority, send_dont_have);
            return None;
        }
        if self.wants.len() >= self.max {
            let Some(victim) = self.victim(priority) else { return Some(cid) };
            self.remove(&victim);
            removed = Some(victim);
        }
        self.insert(cid, kind, priority, send_dont_have);
        removed
    }

    /// Whether a want for a block does not fit until responses have been sent.
    pub(crate) fn is_full_for(&self, cid: &Cid) -> bool {
        let has_waiting = self.wants.len() > self.queue.len() + self.active;
        self.wants.len() >= self.max && !has_waiting && !self.wants.contains_key(cid)
    }

    fn insert(&mut self, cid: Cid, kind: WantKind, priority: i32, send_dont_have: bool) {
        self.requests += 1;
        let request = self.requests;
        self.queue.insert((Reverse(priority), request), cid);
        self.wants
            .insert(cid, Want { kind, send_dont_have, priority, request, state: WantState::Queued, is_stored: false });
    }

    fn victim(&self, priority: i32) -> Option<Cid> {
        // Peers that respect the limit never get here.
        if self.wants.len() > self.queue.len() + self.active {
            let waiting = self.wants.iter().find(|(_, want)| want.state == WantState::Waiting);
            return waiting.map(|(cid, _)| *cid);
        }
        let ((Reverse(lowest), _), cid) = self.queue.last_key_value()?;
        (*lowest < priority).then_some(*cid)
    }

    /// Removes a want. Returns whether there was one.
    pub(crate) fn remove(&mut self, cid: &Cid) -> bool {
        let Some(want) = self.wants.remove(cid) else { return false };
        match want.state {
            WantState::Queued => drop(self.queue.remove(&(Reverse(want.priority), want.request))),
            WantState::Active => self.active -= 1,
            WantState::Waiting => {}
        }
        true
    }

    /// Removes all wants and returns their content IDs.
    pub(crate) fn clear(&mut self) -> Vec<Cid> {
        self.queue.clear();
        self.active = 0;
        self.wants.drain().map(|(cid, _)| cid).collect()
    }

    /// Takes up to `max` requests to respond to.
    pub(crate) fn pop(&mut self, max: usize) -> Vec<Task> {
        let mut tasks = Vec::new();
        while tasks.len() < max {
            let Some((_, cid)) = self.queue.pop_first() else { break };
            let Some(want) = self.wants.get_mut(&cid) else { continue };
            want.state = WantState::Active;
            want.is_stored = false;
            self.active += 1;
            tasks.push(Task { cid, kind: want.kind, send_dont_have: want.send_dont_have, request: want.request });
        }
        tasks
    }

    /// Returns whether the peer still waits for the response to `task`.
    pub(crate) fn is_active(&self, task: &Task) -> bool {
        self.wants.get(&task.cid).is_some_and(|want| want.request == task.request)
    }

    /// Keeps the want of a request for a missing block until the block is stored. If it has been stored since the
    /// lookup began, a response is due at once.
    pub(crate) fn wait(&mut self, task: &Task) {
        let Some(want) = self.wants.get_mut(&task.cid) else { return };
        if want.request != task.request || want.state != WantState::Active {
            return;
        }
        want.state = WantState::Waiting;
        self.active -= 1;
        if want.is_stored {
            self.wake(&task.cid);
        }
    }

    /// Records that a block was stored. Returns whether a response is due now: not for a want whose response is being
    /// prepared, which [`Self::wait`] queues again.
    pub(crate) fn wake(&mut self, cid: &Cid) -> bool {
        let Some(want) = self.wants.get_mut(cid) else { return false };
        if want.state != WantState::Waiting {
            want.is_stored = true;
            return false;
        }
        want.state = WantState::Queued;
        // The peer already has the `DONT_HAVE`.
        want.send_dont_have = false;
        self.queue.insert((Reverse(want.priority), want.request), *cid);
        true
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::codec;
    use ipfrs_core::hash::sha2_256;

    use super::*;

    fn cid(number: u32) -> Cid {
        Cid::new_v1(codec::RAW, sha2_256(&number.to_be_bytes()))
    }

    fn popped(list: &mut Wantlist) -> Vec<Cid> {
        list.pop(99).iter().map(|task| task.cid).collect()
    }

    #[test]
    fn higher_priority_is_served_first() {
        let mut list = Wantlist::new(10);
        for (number, priority) in [(1, 5), (2, 7), (3, 7), (4, -1)] {
            assert_eq!(list.add(cid(number), WantKind::Block, priority, true), None);
        }
        assert_eq!(popped(&mut list), [2, 3, 1, 4].map(cid));
    }

    #[test]
    fn want_beyond_the_limit_replaces_waiting_then_lower_priority() {
        let mut list = Wantlist::new(2);
        list.add(cid(1), WantKind::Block, 5, true);
        let task = list.pop(1)[0];
        list.wait(&task);
        list.add(cid(2), WantKind::Block, 5, true);
        assert_eq!(list.add(cid(3), WantKind::Block, 1, true), Some(cid(1)), "its block is missing");
        assert_eq!(list.add(cid(4), WantKind::Block, 1, true), Some(cid(4)), "its priority is not higher");
        assert_eq!(list.add(cid(5), WantKind::Block, 2, true), Some(cid(3)));
        assert_eq!((list.len(), popped(&mut list)), (2, vec![cid(2), cid(5)]));
    }

    #[test]
    fn repeated_want_is_answered_again() {
        let mut list = Wantlist::new(2);
        list.add(cid(1), WantKind::Have, 1, true);
        let first = list.pop(9)[0];
        list.add(cid(1), WantKind::Block, 1, true);
        assert!(!list.is_active(&first));
        let second = list.pop(9)[0];
        assert_eq!(second.kind, WantKind::Block);
        list.remove(&second.cid);
        assert_eq!((list.len(), list.is_busy()), (0, false));
    }

    #[test]
    fn cancelled_want_is_not_served() {
        let mut list = Wantlist::new(2);
        list.add(cid(1), WantKind::Block, 1, true);
        list.add(cid(2), WantKind::Block, 1, true);
        assert!(list.remove(&cid(1)));
        assert!(!list.remove(&cid(1)));
        let task = list.pop(9)[0];
        assert_eq!(task.cid, cid(2));
        list.remove(&cid(2));
        assert!(!list.is_active(&task));
        assert!(!list.is_busy());
    }

    #[test]
    fn stored_block_wakes_a_waiting_want() {
        let mut list = Wantlist::new(2);
        list.add(cid(1), WantKind::Block, 1, true);
        assert!(!list.wake(&cid(1)), "it is not waiting");
        let task = list.pop(9)[0];
        list.wait(&task);
        assert!(!list.is_busy());
        assert!(list.wake(&cid(1)));
        assert_eq!(list.pop(9)[0], Task { send_dont_have: false, ..task });
    }

    #[test]
    fn block_stored_during_the_lookup_is_looked_up_again() {
        let mut list = Wantlist::new(2);
        list.add(cid(1), WantKind::Block, 1, true);
        let task = list.pop(9)[0];
        assert!(!list.wake(&cid(1)), "the response is being prepared");
        list.wait(&task);
        assert_eq!(list.pop(9)[0], Task { send_dont_have: false, ..task });
        list.wait(&task);
        assert!(!list.is_busy());
    }
}
