//! Hit ratios beside those of a simulation of S3-FIFO.

use std::collections::{HashMap, HashSet, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Tested;
use crate::fetched::ledger::weight;

/// S3-FIFO as in the paper, for blocks of one size.
pub(super) struct Simulation {
    capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    is_ghost: HashSet<u64>,
    frequency: HashMap<u64, u8>,
}

impl Simulation {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashSet::new(),
            frequency: HashMap::new(),
        }
    }

    /// Reads a block. Returns whether it was a hit.
    pub(super) fn read(&mut self, block: u64) -> bool {
        if let Some(frequency) = self.frequency.get_mut(&block) {
            *frequency = (*frequency + 1).min(3);
            return true;
        }
        while self.small.len() + self.main.len() >= self.capacity {
            if self.small.len() >= self.capacity / 10 { self.evict_small() } else { self.evict_main() }
        }
        if self.is_ghost.remove(&block) {
            self.main.push_back(block)
        } else {
            self.small.push_back(block)
        }
        self.frequency.insert(block, 0);
        false
    }

    fn evict_small(&mut self) {
        while let Some(block) = self.small.pop_front() {
            if self.frequency[&block] > 1 {
                self.main.push_back(block);
                self.frequency.insert(block, 0);
                if self.main.len() >= self.capacity - self.capacity / 10 {
                    self.evict_main();
                }
                continue;
            }
            self.frequency.remove(&block);
            self.ghosts.push_back(block);
            self.is_ghost.insert(block);
            if self.ghosts.len() > self.capacity - self.capacity / 10 {
                let oldest = self.ghosts.pop_front();
                self.is_ghost.remove(&oldest.unwrap());
            }
            return;
        }
    }

    fn evict_main(&mut self) {
        while let Some(block) = self.main.pop_front() {
            let frequency = self.frequency.get_mut(&block).unwrap();
            if *frequency == 0 {
                self.frequency.remove(&block);
                return;
            }
            *frequency -= 1;
            self.main.push_back(block);
        }
    }
}

/// Draws ranks with a Zipf distribution.
pub(super) struct Zipf(Vec<f64>);

impl Zipf {
    pub(super) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=count)
            .map(|rank| {
                sum += (rank as f64).powf(-exponent);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|part| *part /= sum);
        Self(sums)
    }

    pub(super) fn draw(&self, random: &mut StdRng) -> u64 {
        let point = random.random::<f64>();
        self.0.partition_point(|sum| *sum < point) as u64
    }
}

#[test]
fn hit_ratio_is_that_of_the_simulation() {
    const SIZE: u32 = 10_000;
    // With `cargo xtask test --long`, at the size of the requirement.
    let files = if std::env::var_os("IPFRS_STRESS_SECONDS").is_some() { 100_000 } else { 10_000 };
    let zipf = Zipf::new(files, 0.9);
    for share in [20, 10, 3] {
        let capacity = files / share;
        let bytes = capacity as u64 * weight(SIZE);
        let (mut tested, mut simulation) = (Tested::in_memory(), Simulation::new(capacity));
        let mut random = StdRng::seed_from_u64(7);
        let (mut hits, mut expected) = (0_i64, 0_i64);
        let requests = 20 * files as i64;
        for request in 0..requests {
            let file = zipf.draw(&mut random);
            let is_hit = tested.is_evictable(file);
            if !is_hit {
                tested.fetch(file, SIZE);
            }
            tested.ledger.touch(&super::hash(file));
            if tested.ledger.total().bytes > bytes {
                while tested.ledger.total().bytes > bytes - bytes / 64 {
                    tested.evict(bytes, bytes - bytes / 64, 1_000);
                }
                tested.ledger.rewrite_if_stale(&mut tested.heads).unwrap();
            }
            let was_hit = simulation.read(file);
            // The caches fill first.
            if request > requests / 4 {
                hits += i64::from(is_hit);
                expected += i64::from(was_hit);
            }
        }
        let difference = (hits - expected) as f64 / (requests * 3 / 4) as f64;
        println!("a {share}th of {files} files: {hits} hits, {expected} expected, difference {difference:.4}");
        assert!(difference.abs() < 0.01, "a {share}th of {files} files: {hits} hits instead of {expected}");
    }
}
