//! Places that clients take turns to occupy. Like [`crate::fair_pool`], but clients wait for a place.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::fair_pool::Client;

/// Places, which clients of type `C` share. Clones are the same places.
///
/// A client occupies at most as many places as are free, and waits for its own places while others are served. Waiting
/// clients get free places in turn, so that one of them with a thousand requests delays another's first by one.
#[derive(Debug)]
pub struct Turns<C: Client>(Arc<Mutex<State<C>>>);

impl<C: Client> Clone for Turns<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct State<C> {
    capacity: usize,
    /// Number of places that a client may occupy even if fewer are free.
    minimum: usize,
    occupied: usize,
    /// Clients that occupy places or wait for one.
    clients: HashMap<C, Queue>,
    /// Clients that wait, in the order in which they are served.
    order: VecDeque<C>,
    next_ticket: u64,
}

#[derive(Debug, Default)]
struct Queue {
    occupied: usize,
    /// Requests that wait, by ticket.
    waiting: VecDeque<(u64, Waker)>,
    /// Requests that were given a place that they have not taken yet.
    called: Vec<u64>,
}

impl<C: Client> Turns<C> {
    /// Creates `capacity` places. A client may occupy `minimum` of them even if fewer are free.
    #[must_use]
    pub fn new(capacity: usize, minimum: usize) -> Self {
        let (clients, order) = (HashMap::new(), VecDeque::new());
        Self(Arc::new(Mutex::new(State { capacity, minimum, occupied: 0, clients, order, next_ticket: 0 })))
    }

    /// Waits until it is the client's turn. Dropping the future gives the turn up.
    pub fn take(&self, client: C) -> Waiting<C> {
        Waiting { turns: self.clone(), client, ticket: None }
    }
}

impl<C: Client> State<C> {
    /// Whether the client may occupy another place.
    fn may_take(&self, client: C) -> bool {
        let own = self.clients.get(&client).map_or(0, |queue| queue.occupied) + 1;
        self.capacity.checked_sub(self.occupied + 1).is_some_and(|free| own <= self.minimum.max(free))
    }

    /// Gives free places to waiting clients.
    fn serve(&mut self) {
        let mut passed_over = 0;
        while passed_over < self.order.len() {
            let Some(client) = self.order.pop_front() else { return };
            if !self.may_take(client) {
                self.order.push_back(client);
                passed_over += 1;
                continue;
            }
            passed_over = 0;
            let Some(queue) = self.clients.get_mut(&client) else { continue };
            let Some((ticket, waker)) = queue.waiting.pop_front() else { continue };
            queue.occupied += 1;
            queue.called.push(ticket);
            self.occupied += 1;
            if !queue.waiting.is_empty() {
                self.order.push_back(client);
            }
            waker.wake();
        }
    }

    fn leave(&mut self, client: C) {
        self.occupied -= 1;
        if let Some(queue) = self.clients.get_mut(&client) {
            queue.occupied -= 1;
        }
        self.forget_idle(client);
        self.serve();
    }

    fn forget_idle(&mut self, client: C) {
        if self.clients.get(&client).is_some_and(|queue| queue.occupied == 0 && queue.waiting.is_empty()) {
            self.clients.remove(&client);
        }
    }
}

/// A wait for a place.
#[derive(Debug)]
#[must_use = "futures do nothing unless they are awaited"]
pub struct Waiting<C: Client> {
    turns: Turns<C>,
    client: C,
    ticket: Option<u64>,
}

// Nothing in it is pinned.
impl<C: Client> Unpin for Waiting<C> {}

impl<C: Client> Future for Waiting<C> {
    type Output = Turn<C>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn<C>> {
        let this = &mut *self;
        let turn = || Turn { turns: this.turns.clone(), client: this.client };
        let mut state = this.turns.0.lock();
        let Some(ticket) = this.ticket else {
            let is_waiting = state.clients.get(&this.client).is_some_and(|queue| !queue.waiting.is_empty());
            if !is_waiting && state.may_take(this.client) {
                state.occupied += 1;
                state.clients.entry(this.client).or_default().occupied += 1;
                return Poll::Ready(turn());
            }
            let ticket = state.next_ticket;
            state.next_ticket += 1;
            if !is_waiting {
                state.order.push_back(this.client);
            }
            state.clients.entry(this.client).or_default().waiting.push_back((ticket, cx.waker().clone()));
            this.ticket = Some(ticket);
            return Poll::Pending;
        };
        let Some(queue) = state.clients.get_mut(&this.client) else { return Poll::Pending };
        if let Some(at) = queue.called.iter().position(|called| *called == ticket) {
            queue.called.swap_remove(at);
            this.ticket = None;
            return Poll::Ready(turn());
        }
        if let Some((_, waker)) = queue.waiting.iter_mut().find(|(waiting, _)| *waiting == ticket) {
            waker.clone_from(cx.waker());
        }
        Poll::Pending
    }
}

impl<C: Client> Drop for Waiting<C> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.turns.0.lock();
        let Some(queue) = state.clients.get_mut(&self.client) else { return };
        if let Some(at) = queue.called.iter().position(|called| *called == ticket) {
            queue.called.swap_remove(at);
            return state.leave(self.client);
        }
        queue.waiting.retain(|(waiting, _)| *waiting != ticket);
        if queue.waiting.is_empty() {
            state.order.retain(|client| *client != self.client);
        }
        state.forget_idle(self.client);
    }
}

/// A place, occupied until this value is dropped.
#[derive(Debug)]
pub struct Turn<C: Client> {
    turns: Turns<C>,
    client: C,
}

impl<C: Client> Drop for Turn<C> {
    fn drop(&mut self) {
        self.turns.0.lock().leave(self.client);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use proptest::prelude::*;

    use super::*;

    fn poll<C: Client>(waiting: &mut Waiting<C>) -> Option<Turn<C>> {
        match pin!(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    fn is_unused<C: Client>(turns: &Turns<C>) -> bool {
        let state = turns.0.lock();
        state.occupied == 0 && state.clients.is_empty() && state.order.is_empty()
    }

    #[test]
    fn one_client_leaves_places_to_others() {
        let turns = Turns::new(4, 1);
        let mut held: Vec<_> = (0..2).map(|_| poll(&mut turns.take(1)).unwrap()).collect();
        let mut third = turns.take(1);
        assert!(poll(&mut third).is_none());
        held.push(poll(&mut turns.take(2)).unwrap());
        drop(held);
        drop(poll(&mut third).unwrap());
        assert!(is_unused(&turns));
    }

    #[test]
    fn waiting_clients_are_served_in_turn() {
        let turns = Turns::new(1, 1);
        let first = poll(&mut turns.take(1)).unwrap();
        let mut many: Vec<_> = (0..100).map(|_| turns.take(1)).collect();
        assert!(many.iter_mut().all(|waiting| poll(waiting).is_none()));
        let mut other = turns.take(2);
        assert!(poll(&mut other).is_none());
        drop(first);
        // The place goes to the client that waited first, then to the other.
        let second = poll(&mut many[0]).unwrap();
        assert!(poll(&mut other).is_none() && poll(&mut many[1]).is_none());
        drop(second);
        let turn = poll(&mut other).unwrap();
        drop((many, turn));
        assert!(is_unused(&turns));
    }

    proptest! {
        /// No place is lost or given out twice, whatever is dropped when.
        #[test]
        fn places_survive_any_order_of_takes_and_drops(
            capacity in 1_usize..5, steps in prop::collection::vec((0_u8..3, 0_u8..4, any::<prop::sample::Index>()), 0..200),
        ) {
            let turns = Turns::new(capacity, 1);
            let (mut waiting, mut held) = (Vec::new(), Vec::new());
            for (step, client, at) in steps {
                match step {
                    0 => waiting.push(turns.take(client)),
                    1 if !waiting.is_empty() => drop(waiting.swap_remove(at.index(waiting.len()))),
                    2 if !held.is_empty() => drop(held.swap_remove(at.index(held.len()))),
                    _ => {}
                }
                let mut still = Vec::new();
                for mut one in waiting.drain(..) {
                    match poll(&mut one) {
                        Some(turn) => held.push(turn),
                        None => still.push(one),
                    }
                }
                waiting = still;
                prop_assert!(held.len() <= capacity);
                prop_assert!(waiting.is_empty() || !held.is_empty(), "someone is served");
            }
            drop((waiting, held));
            prop_assert!(is_unused(&turns));
        }
    }
}
