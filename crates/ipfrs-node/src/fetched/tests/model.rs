//! The ledger beside a simple model, over restarts.

use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::{Tested, hash};
use crate::fetched::ledger::weight;
use crate::fetched::table::Queue;

const CAPACITY: u64 = 3_000;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// A block is read, and fetched if it is not in the store.
    Read(u64),
    /// A user puts or pins a block.
    Claim(u64),
    /// Garbage collection removes a block.
    Remove(u64),
    /// Eviction shrinks the fetched blocks to this part of the capacity, in tenths.
    Evict(u64),
    Restart,
    Rewrite,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    queue: Queue,
    frequency: u8,
    is_unread: bool,
}

/// Queues that keep entries of blocks which have left them, until they are popped.
#[derive(Debug, Default)]
struct Model {
    blocks: HashMap<u64, Block>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    /// Last recorded queue of each block. The end of a ghost is not recorded.
    recorded: HashMap<u64, Queue>,
}

fn size(number: u64) -> u32 {
    (number % 7 * 40) as u32
}

impl Model {
    fn bytes(&self, queue: Queue) -> u64 {
        self.blocks.iter().filter(|(_, block)| block.queue == queue).map(|(number, _)| weight(size(*number))).sum()
    }

    fn is(&self, number: u64, queue: Queue) -> bool {
        self.blocks.get(&number).is_some_and(|block| block.queue == queue)
    }

    fn set(&mut self, number: u64, queue: Queue) {
        self.blocks.insert(number, Block { queue, frequency: 0, is_unread: true });
        self.recorded.insert(number, queue);
        match queue {
            Queue::Small => self.small.push_back(number),
            Queue::Main => self.main.push_back(number),
            Queue::Ghost => self.ghosts.push_back(number),
        }
    }

    fn read(&mut self, number: u64) -> bool {
        let is_missing = !self.is(number, Queue::Small) && !self.is(number, Queue::Main);
        if is_missing {
            let queue = if self.is(number, Queue::Ghost) { Queue::Main } else { Queue::Small };
            self.set(number, queue);
        }
        let block = self.blocks.get_mut(&number).unwrap();
        if block.is_unread {
            block.is_unread = false;
        } else {
            block.frequency = (block.frequency + 1).min(3);
        }
        is_missing
    }

    fn remove(&mut self, number: u64) {
        if self.blocks.contains_key(&number) && !self.is(number, Queue::Ghost) {
            self.end(number);
        }
    }

    fn end(&mut self, number: u64) {
        self.blocks.remove(&number);
        self.recorded.remove(&number);
    }

    /// Reads are not recorded. A ghost that ended at an older record of its block exists again.
    fn restart(&mut self) {
        for number in &self.ghosts {
            if self.recorded.get(number) == Some(&Queue::Ghost) {
                self.blocks.insert(*number, Block { queue: Queue::Ghost, frequency: 0, is_unread: false });
            }
        }
        for block in self.blocks.values_mut() {
            *block = Block { frequency: 0, is_unread: false, ..*block };
        }
    }

    fn evict(&mut self, target: u64) -> Vec<u64> {
        let mut victims = Vec::new();
        loop {
            let (small, main) = (self.bytes(Queue::Small), self.bytes(Queue::Main));
            if small + main <= target {
                break;
            }
            if small > 0 && (small >= CAPACITY / 10 || main == 0) {
                let number = self.small.pop_front().unwrap();
                match self.blocks.get(&number) {
                    Some(Block { queue: Queue::Small, frequency: 2.., .. }) => {
                        self.set(number, Queue::Main);
                        self.blocks.get_mut(&number).unwrap().is_unread = false;
                    }
                    Some(Block { queue: Queue::Small, .. }) => {
                        self.set(number, Queue::Ghost);
                        victims.push(number);
                    }
                    _ => {}
                }
            } else {
                let number = self.main.pop_front().unwrap();
                match self.blocks.get_mut(&number) {
                    Some(Block { queue: Queue::Main, frequency: 0, .. }) => {
                        self.end(number);
                        victims.push(number);
                    }
                    Some(Block { queue: Queue::Main, frequency, .. }) => {
                        *frequency -= 1;
                        self.main.push_back(number);
                    }
                    _ => {}
                }
            }
        }
        while self.bytes(Queue::Ghost) > CAPACITY - CAPACITY / 10 {
            let number = self.ghosts.pop_front().unwrap();
            if self.is(number, Queue::Ghost) {
                self.blocks.remove(&number);
            }
        }
        victims
    }

    fn rewrite(&mut self) {
        let blocks = &self.blocks;
        let is = |number: &u64, queue| blocks.get(number).is_some_and(|block| block.queue == queue);
        self.small.retain(|number| is(number, Queue::Small));
        self.main.retain(|number| is(number, Queue::Main));
        self.ghosts.retain(|number| is(number, Queue::Ghost));
    }
}

impl Tested {
    fn check(&self, model: &Model) -> Result<(), TestCaseError> {
        for number in 0..40 {
            let entry = self.ledger.table.get(self.ledger.key(&hash(number)));
            let block = entry.map(|entry| {
                assert!(!entry.is_selected && entry.size == size(number));
                Block { queue: entry.queue, frequency: entry.frequency, is_unread: entry.is_unread }
            });
            let expected = model.blocks.get(&number).copied();
            let without_reads = |block: Block| match block.queue {
                Queue::Ghost => Block { frequency: 0, is_unread: false, ..block },
                _ => block,
            };
            prop_assert_eq!(block.map(without_reads), expected.map(without_reads), "block {}", number);
        }
        let state = self.ledger.state.lock();
        for (total, queue) in [(state.small, Queue::Small), (state.main, Queue::Main), (state.ghost, Queue::Ghost)] {
            prop_assert_eq!(total.bytes, model.bytes(queue), "{:?}", queue);
        }
        Ok(())
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let block = || 0..40_u64;
    let step = prop_oneof![
        20 => block().prop_map(Step::Read),
        2 => block().prop_map(Step::Claim),
        2 => block().prop_map(Step::Remove),
        3 => (0..10_u64).prop_map(Step::Evict),
        1 => Just(Step::Restart),
        1 => Just(Step::Rewrite),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn ledger_evicts_what_the_model_evicts(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("fetched");
        let (mut tested, mut model) = (Tested::open(&log), Model::default());
        for step in steps {
            match step {
                Step::Read(number) => {
                    if model.read(number) {
                        tested.fetch(number, size(number));
                    }
                    tested.ledger.touch(&hash(number));
                }
                Step::Claim(number) => {
                    model.remove(number);
                    tested.claim(number);
                }
                Step::Remove(number) => {
                    model.remove(number);
                    tested.ledger.removed([hash(number)].iter());
                }
                Step::Evict(tenths) => {
                    let target = CAPACITY / 10 * tenths;
                    let expected: Vec<_> = model.evict(target).into_iter().map(hash).collect();
                    prop_assert_eq!(tested.evict(CAPACITY, target, 1_000), expected);
                }
                Step::Restart => {
                    tested.ledger.write(true).unwrap();
                    tested = Tested::open(&log);
                    model.restart();
                }
                Step::Rewrite => {
                    tested.ledger.write(true).unwrap();
                    tested.rewrite();
                    model.rewrite();
                }
            }
            tested.check(&model)?;
        }
    }
}
