//! The log after crashes at every byte.

use std::fs;
use std::path::{Path, PathBuf};

use ipfrs_core::ErrorKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::{Tested, hash};
use crate::fetched::ledger::Ledger;

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in segments(from) {
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Change of a block's owner: the length of the log before it began and once it was acknowledged.
struct Change {
    block: u64,
    is_fetched: bool,
    began: u64,
    ended: u64,
}

#[test]
fn no_prefix_of_the_log_makes_content_of_users_evictable() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("fetched");
    let mut tested = Tested::open(&log);
    let mut random = StdRng::seed_from_u64(1);
    let mut changes = Vec::new();
    for step in 0..150 {
        let (block, began) = (random.random_range(0..20), tested.ledger.log.bytes());
        // A user's content is in the store until gc removes it, so only a block that left the ledger otherwise, or
        // that gc removed, is fetched again. Here gc removes each of them at once.
        let is_fetched = !tested.is_evictable(block);
        if is_fetched {
            tested.fetch(block, 100)
        } else {
            tested.claim(block)
        }
        changes.push(Change { block, is_fetched, began, ended: tested.ledger.log.bytes() });
        if step % 10 == 9 {
            let began = tested.ledger.log.bytes();
            for victim in tested.evict(1_500, 800, 100) {
                let block = (0..20).find(|number| hash(*number) == victim).unwrap();
                // An evicted block is not in the store. A user may put it at any time, which the next test covers.
                changes.push(Change { block, is_fetched: false, began, ended: tested.ledger.log.bytes() });
            }
        }
    }
    let [segment] = &segments(&log)[..] else { panic!("the log has one segment") };
    let content = fs::read(segment).unwrap();
    let crashed = dir.path().join("crashed");
    fs::create_dir(&crashed).unwrap();
    for len in 0..=content.len() {
        fs::write(crashed.join(segment.file_name().unwrap()), &content[..len]).unwrap();
        let tested = Tested::open(&crashed);
        for block in 0..20 {
            let of_block = || changes.iter().filter(|change| change.block == block && change.began < len as u64);
            let last = of_block().next_back();
            if let Some(last) = last.filter(|last| !last.is_fetched && last.ended <= len as u64) {
                assert!(!tested.is_evictable(block), "after {len} bytes, block {}", last.block);
            }
            // A block that was recorded stays evictable, so that crashes do not fill the store.
            if let Some(last) = last.filter(|last| last.is_fetched && last.ended <= len as u64) {
                assert!(tested.is_evictable(block), "after {len} bytes, block {}", last.block);
            }
        }
        if len % 101 == 0 {
            // The ledger can be used, and the cut end does not hide what is appended.
            tested.fetch(99, 1);
            drop(tested);
            assert!(Tested::open(&crashed).is_evictable(99));
            fs::remove_dir_all(&crashed).unwrap();
            fs::create_dir(&crashed).unwrap();
        }
    }
}

#[test]
fn put_of_a_block_that_was_just_evicted_or_removed_is_durable() {
    for by_eviction in [false, true] {
        for is_read in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("fetched");
            let mut tested = Tested::open(&log);
            tested.fetch(1, 100);
            (0..3 * u8::from(is_read)).for_each(|_| tested.ledger.touch(&hash(1)));
            tested.ledger.write(true).unwrap();
            if by_eviction {
                let victims = loop {
                    let victims = tested.ledger.select(&mut tested.heads, 1_000, 0, 10).unwrap();
                    if !victims.is_empty() {
                        break victims;
                    }
                };
                // The block was deleted from the store, but this is not recorded yet.
                assert_eq!(victims.len(), 1);
            } else {
                assert!(!tested.ledger.removed([hash(1)].iter()), "few removals are written later");
            }
            // A user puts it. The engine writes it, as the store does not have it.
            tested.claim(1);
            let crashed = dir.path().join("crashed");
            copy(&log, &crashed);
            assert!(!Tested::open(&crashed).is_evictable(1), "by eviction: {by_eviction}, read: {is_read}");
        }
    }
}

#[test]
fn rewriting_keeps_the_order_and_survives_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("fetched");
    let mut tested = Tested::open(&log);
    for number in 0..1_000 {
        tested.fetch(number, 100);
        tested.claim(number.wrapping_sub(3));
        if number == 500 {
            tested.evict(1_000, 200, 10);
        }
    }
    let before = dir.path().join("before");
    tested.ledger.write(true).unwrap();
    copy(&log, &before);
    let bytes = tested.ledger.log.bytes();
    tested.rewrite();
    assert!(tested.ledger.log.bytes() < bytes / 50, "{} of {bytes} bytes", tested.ledger.log.bytes());
    // A crash before the old segments were removed, and one with an unfinished segment.
    let crashed = dir.path().join("crashed");
    copy(&log, &crashed);
    let number = |path: &PathBuf| path.file_name().unwrap().to_owned();
    let rewritten = segments(&log).first().map(number).unwrap();
    for path in segments(&before).iter().filter(|path| number(path) < rewritten) {
        fs::copy(path, crashed.join(number(path))).unwrap();
    }
    fs::write(crashed.join("unfinished"), "part").unwrap();
    let mut orders = Vec::new();
    for dir in [&log, &before, &crashed] {
        let mut tested = Tested::open(dir);
        assert_eq!(tested.ledger.total().blocks, 3);
        orders.push(tested.evict(1_000, 0, 1_000));
    }
    assert_eq!(orders[0], [hash(997), hash(998), hash(999)]);
    assert!(orders.iter().all(|order| *order == orders[0]));
    assert!(!crashed.join("unfinished").exists());
}

#[test]
fn log_is_trimmed_while_blocks_pass_through() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("fetched");
    let mut tested = Tested::open(&log);
    let capacity = 1_000 * 180;
    let mut longest = 0;
    for number in 0..400_000 {
        let known = [tested.ledger.known(&hash(number))];
        tested.ledger.begin_puts(&known);
        tested.ledger.end_puts(&known, &[Some(100)]);
        if tested.ledger.total().bytes > capacity {
            tested.evict(capacity, capacity / 2, 1_000);
            tested.ledger.rewrite_if_stale(&mut tested.heads).unwrap();
            longest = longest.max(tested.ledger.log.bytes());
        }
    }
    assert!(longest < 16 << 20, "{longest} bytes for a thousand blocks");
    let total = tested.ledger.total();
    tested.ledger.write(true).unwrap();
    assert_eq!(Tested::open(&log).ledger.total(), total);
}

#[test]
fn damage_before_the_end_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("fetched");
    let tested = Tested::open(&log);
    (0..10).for_each(|number| tested.fetch(number, 100));
    // A second segment, so that the first is complete.
    let mut heads = tested.heads;
    tested.ledger.write(true).unwrap();
    tested.ledger.log.rewrite(&mut heads, |_, _| true).unwrap();
    (10..20).for_each(|number| tested.fetch(number, 100));
    let paths = segments(&log);
    assert_eq!(paths.len(), 2);
    let content = fs::read(&paths[0]).unwrap();
    for index in 0..content.len() {
        let mut wrong = content.clone();
        wrong[index] ^= 1;
        fs::write(&paths[0], wrong).unwrap();
        let error = Ledger::open(&log, true).map(drop).unwrap_err();
        // The number of the format is part of the header.
        let expected = if (8..12).contains(&index) { ErrorKind::Unsupported } else { ErrorKind::Corrupt };
        assert_eq!(error.kind(), expected, "byte {index}: {error}");
    }
    fs::write(&paths[0], &content).unwrap();
    assert_eq!(Tested::open(&log).ledger.total().blocks, 20);
    fs::remove_file(&paths[0]).unwrap();
    // The beginning may have been trimmed.
    assert_eq!(Tested::open(&log).ledger.total().blocks, 10);
}
