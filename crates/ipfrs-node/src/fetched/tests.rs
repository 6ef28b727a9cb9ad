//! Tests of the ledger without a store.

mod crash;
mod model;
mod simulation;
mod waits;

use std::path::Path;

use ipfrs_core::Multihash;
use ipfrs_core::hash::sha2_256;

use super::ledger::Ledger;
use super::queues::{Fate, Victim};
use super::record::Heads;
use super::table::Queue;

fn hash(number: u64) -> Multihash {
    sha2_256(&number.to_le_bytes())
}

/// A ledger and the heads of its queues.
struct Tested {
    ledger: Ledger,
    heads: Heads,
}

impl Tested {
    fn open(dir: &Path) -> Self {
        let (ledger, heads) = Ledger::open(dir, true).unwrap();
        Self { ledger, heads }
    }

    fn in_memory() -> Self {
        Self { ledger: Ledger::in_memory(), heads: Heads::default() }
    }

    /// Records that a block which was not in the store was fetched.
    fn fetch(&self, number: u64, size: u32) {
        let known = [self.ledger.known(&hash(number))];
        self.ledger.begin_puts(&known);
        self.ledger.end_puts(&known, &[Some(size)]);
        self.ledger.write(false).unwrap();
    }

    /// Makes a block content of a user, durably.
    fn claim(&self, number: u64) {
        let (_, must_write) = self.ledger.claim([hash(number)].iter());
        if must_write {
            self.ledger.write(true).unwrap();
        }
    }

    fn queue_of(&self, number: u64) -> Option<Queue> {
        self.ledger.table.get(self.ledger.key(&hash(number))).map(|entry| entry.queue)
    }

    /// Whether a block may be evicted.
    fn is_evictable(&self, number: u64) -> bool {
        matches!(self.queue_of(number), Some(Queue::Small | Queue::Main))
    }

    /// Evicts blocks until `target` bytes are left. Returns them in order.
    fn evict(&mut self, capacity: u64, target: u64, most: usize) -> Vec<Multihash> {
        let victims = self.ledger.select(&mut self.heads, capacity, target, most).unwrap();
        self.settle(capacity, &victims, Fate::Deleted);
        victims.iter().map(|victim| victim.hash).collect()
    }

    /// Rewrites the log whether it is stale or not.
    fn rewrite(&mut self) {
        self.ledger.rewrite(&mut self.heads).unwrap();
    }

    fn settle(&mut self, capacity: u64, victims: &[Victim], fate: Fate) {
        let fates: Vec<_> = victims.iter().map(|victim| (*victim, fate)).collect();
        self.ledger.settle(&mut self.heads, capacity, &fates).unwrap();
    }
}

#[test]
fn selected_block_that_a_user_puts_is_kept() {
    let mut tested = Tested::in_memory();
    (0..10).for_each(|number| tested.fetch(number, 100));
    let victims = tested.ledger.select(&mut tested.heads, 1_000, 0, 10).unwrap();
    assert_eq!(victims.len(), 10);
    assert!(tested.ledger.is_selected(&hash(3)));
    tested.claim(3);
    assert!(!tested.ledger.is_selected(&hash(3)), "the engine spares it");
    tested.settle(1_000, &victims, Fate::Kept);
    assert!(!tested.is_evictable(3) && tested.is_evictable(4));
    assert_eq!(tested.ledger.total().blocks, 9);
}

#[test]
fn block_that_a_user_puts_during_its_fetch_is_permanent() {
    let tested = Tested::in_memory();
    let known = [tested.ledger.known(&hash(1))];
    tested.ledger.begin_puts(&known);
    assert_eq!(tested.ledger.claim([hash(1)].iter()).0, 1);
    tested.ledger.end_puts(&known, &[Some(100)]);
    assert!(!tested.is_evictable(1));
    // The next fetch is one of another time, after the block was removed.
    tested.fetch(1, 100);
    assert!(tested.is_evictable(1));
}

#[test]
fn block_that_is_kept_and_one_that_is_gone_are_counted_once() {
    let mut tested = Tested::in_memory();
    (0..4).for_each(|number| tested.fetch(number, 100));
    let victims = tested.ledger.select(&mut tested.heads, 1_000, 0, 10).unwrap();
    assert_eq!(tested.ledger.total().blocks, 0);
    let fates: Vec<_> = victims.into_iter().zip([Fate::Kept, Fate::Absent, Fate::Deleted, Fate::Kept]).collect();
    tested.ledger.settle(&mut tested.heads, 1_000, &fates).unwrap();
    assert_eq!(tested.ledger.total().blocks, 2);
    let queues: Vec<_> = (0..4).map(|number| tested.queue_of(number)).collect();
    assert_eq!(queues, [Some(Queue::Main), None, Some(Queue::Ghost), Some(Queue::Main)]);
    // A block that was kept is tried again.
    assert_eq!(tested.evict(1_000, 0, 10), [hash(0), hash(3)]);
}

#[test]
fn ghost_enters_the_main_queue_when_it_is_fetched_again() {
    let mut tested = Tested::in_memory();
    (0..10).for_each(|number| tested.fetch(number, 100));
    tested.evict(2_000, 0, 10);
    tested.fetch(9, 100);
    assert_eq!(tested.queue_of(9), Some(Queue::Main));
    // The ghosts have at most the size of the main queue.
    assert_eq!((0..9).filter(|number| tested.queue_of(*number) == Some(Queue::Ghost)).count(), 9);
    (10..30).for_each(|number| tested.fetch(number, 100));
    tested.evict(2_000, 0, 30);
    let ghosts = (0..30).filter(|number| tested.queue_of(*number) == Some(Queue::Ghost)).count();
    assert_eq!(ghosts, 10, "of 180 bytes, in 1,800");
}

#[test]
fn memory_per_block_is_small() {
    let tested = Tested::in_memory();
    let blocks = 100_000;
    let known: Vec<_> = (0..blocks).map(|number| tested.ledger.known(&hash(number))).collect();
    tested.ledger.begin_puts(&known);
    tested.ledger.end_puts(&known, &vec![Some(1_000); known.len()]);
    let bytes = tested.ledger.table.memory() as u64;
    assert!(bytes <= 22 * blocks, "{bytes} bytes for {blocks} blocks");
}
