//! What an index costs that is large.

use std::fs;
use std::time::{Duration, Instant};

use super::tests::{open, settle};
use super::*;
use crate::pack::changes::Change;

/// What `/proc/self/status` says, in KiB.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim_end_matches("kB").trim().parse().unwrap()
}

/// `cargo test --release -p ipfrs-store --lib figures -- --ignored --nocapture`
#[test]
#[ignore = "prints figures of indexes of up to ten million blocks, and takes half a minute"]
fn figures_of_large_indexes() {
    let key = |number: u64| ipfrs_core::hash::sha2_256(&number.to_le_bytes()).to_bytes().into_boxed_slice();
    let to = |number: u64| Location {
        pack: 1 + (number / 1_000_000) as u32,
        offset: (number % 1_000_000 * 1_062) as u32,
        len: 1_024,
        prefix: 38,
        codec: 0x55,
    };
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path());
    let (mut count, mut looked_up, mut applied, mut committed) = (0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let (mut longest, mut uncommitted) = (Duration::ZERO, 0);
    for size in [100_000, 1_000_000, 10_000_000_u64] {
        while count < size {
            let end = (count + 4_096).min(size);
            let keys: Vec<Key> = (count..end).map(key).collect();
            let blocks = keys.iter().zip(count..end);
            let blocks =
                blocks.map(|(key, number)| (key.clone(), Change { from: None, to: Some(to(number)) })).collect();
            let start = Instant::now();
            assert!(index.locate(&keys).unwrap().iter().all(Option::is_none));
            looked_up += start.elapsed();
            let start = Instant::now();
            index.apply(&Changes { blocks, tombstone_bytes: 0 }, Position { pack: 1, offset: 18 });
            applied += start.elapsed();
            count = end;
            uncommitted += 4_096;
            if uncommitted == 65_536 {
                uncommitted = 0;
                let start = Instant::now();
                index.commit().unwrap();
                committed += start.elapsed();
                longest = longest.max(start.elapsed());
            }
        }
        let runs = index.state.read().runs.len();
        let anonymous = memory("RssAnon");
        settle(&index);
        let per_block = |time: Duration| time.as_nanos() as f64 / size as f64;
        println!(
            "{size}: a block costs {:.0} ns to look up first, {:.0} to apply, {:.0} to commit (at once: {longest:?}); {runs} \
             runs, then {}; {:.1} bytes each; {anonymous} KiB",
            per_block(looked_up),
            per_block(applied),
            per_block(committed),
            index.state.read().runs.len(),
            index.file_bytes() as f64 / size as f64
        );
        let start = Instant::now();
        drop(index);
        index = open(dir.path());
        println!("  opened in {:?}", start.elapsed());
        for (what, offset) in [("present", 0), ("absent", size)] {
            for batch in [1, 128] {
                let names = (0..204_800).map(|n| offset + n * 7_919 % size);
                let keys: Vec<Key> = names.map(key).collect();
                let mut rounds = Vec::new();
                for _ in 0..3 {
                    let start = Instant::now();
                    for keys in keys.chunks(batch) {
                        let found = index.locate(keys).unwrap();
                        assert!(found.iter().all(|found| found.is_some() == (offset == 0)));
                    }
                    rounds.push(start.elapsed().as_nanos() as usize / keys.len());
                }
                println!("  {what}, {batch} at once: {rounds:?} ns each");
            }
        }
    }
}
