//! Power failures while pins change. Afterwards, acknowledged changes are there, and others completely or not at all.

use std::collections::BTreeMap;
use std::fs;

use ipfrs_core::{codec, hash, new_cid};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

use super::*;
use crate::redb_file::recorded::{self, Step};

/// Number of power failures, unless the variable `IPFRS_POWER_FAILURES` sets another.
const POWER_FAILURES: usize = 300;

/// Number of different pins.
const NAMES: u32 = 200;

/// Bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// Names of the pins, by number.
type Model = BTreeMap<u32, String>;

fn cid(number: u32) -> Cid {
    new_cid(1, codec::DAG_PB, hash::sha2_256(&number.to_le_bytes())).unwrap()
}

/// Returns a temporary directory in memory, if the system has one, so that syncs cost nothing.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns the pins, after a check that there are no others.
async fn content(pins: &Pins) -> Model {
    let found = pins.get_many((0..NAMES).map(cid).collect()).await.unwrap();
    let names: Model = (0..).zip(found).filter_map(|(number, pin)| Some((number, pin?.name))).collect();
    assert_eq!(pins.count().await.unwrap(), names.len() as u64);
    names
}

/// Changes pins at random, and returns the pins after each change. The log of the file has the changes.
async fn changed(pins: &Pins, path: &Path, random: &mut StdRng) -> Vec<Model> {
    let mut models = vec![Model::new()];
    for round in 0..60 {
        let mut next = models[round].clone();
        let removed: Vec<u32> = next.keys().copied().choose_multiple(random, round % 7);
        let is_removal = round % 3 == 2 && !removed.is_empty();
        let mut new = Vec::new();
        if is_removal {
            next.retain(|number, _| !removed.contains(number));
        } else {
            for _ in 0..random.random_range(1..30) {
                let (number, name) = (random.random_range(0..NAMES), "n".repeat(random.random_range(1..200)));
                next.insert(number, name.clone());
                new.push(Pin { name, ..Pin::recursive(cid(number)) });
            }
        }
        models.push(next);
        recorded::note(path, || Step::Begun(round + 1));
        match is_removal {
            true => pins.remove_many(removed.into_iter().map(cid).collect(), true).await.unwrap(),
            false => pins.insert_many(new).await.unwrap(),
        }
        recorded::note(path, || Step::Acknowledged);
    }
    models
}

fn apply(file: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write { offset, data } => {
            let (start, end) = (*offset as usize, *offset as usize + data.len());
            file.resize(file.len().max(end), 0);
            file[start..end].copy_from_slice(data);
        }
        Step::SetLen(len) => file.resize(*len as usize, 0),
        Step::Sync | Step::Begun(_) | Step::Acknowledged => {}
    }
}

/// Returns what a power failure after the steps in `log` leaves of a file. Of what was not synced, any sectors may be
/// lost. What follows a change of the length survives only if that does.
fn after(base: &[u8], log: &[Step], random: &mut StdRng) -> Vec<u8> {
    let (synced, open) = log.split_at(log.iter().rposition(|step| matches!(step, Step::Sync)).map_or(0, |at| at + 1));
    let mut file = base.to_vec();
    synced.iter().for_each(|step| apply(&mut file, step));
    let lengths = open.iter().enumerate().filter(|(_, step)| matches!(step, Step::SetLen(_)));
    let ends: Vec<_> = lengths.map(|(at, _)| at).chain([open.len()]).collect();
    // Number of lost sectors in each eight.
    let lost = random.random_range(0..=8);
    for step in &open[..ends[random.random_range(0..ends.len())]] {
        let Step::Write { offset, data } = step else {
            apply(&mut file, step);
            continue;
        };
        let mut rest = data.as_slice();
        let mut start = *offset;
        while !rest.is_empty() {
            let (sector, behind) = rest.split_at(rest.len().min(SECTOR - start as usize % SECTOR));
            if random.random_range(0..8) >= lost {
                apply(&mut file, &Step::Write { offset: start, data: sector.to_vec() });
            }
            start += sector.len() as u64;
            rest = behind;
        }
    }
    file
}

#[tokio::test]
async fn random_power_failures_keep_acknowledged_pins() {
    let failures = std::env::var("IPFRS_POWER_FAILURES").map_or(POWER_FAILURES, |count| count.parse().unwrap());
    let seed = std::env::var("IPFRS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let dir = directory();
    let path = dir.path().join(FILE);
    Pins::open(dir.path(), false).unwrap().close().await.unwrap();
    let base = fs::read(&path).unwrap();
    recorded::start(&path);
    let pins = Pins::open(dir.path(), false).unwrap();
    let models = changed(&pins, &path, &mut random).await;
    pins.close().await.unwrap();
    let log = recorded::end(&path);
    for failure in 0..failures {
        let position = random.random_range(0..=log.len());
        let (mut acknowledged, mut open) = (0, None);
        for step in &log[..position] {
            match step {
                Step::Begun(number) => open = Some(*number),
                Step::Acknowledged => acknowledged = open.take().unwrap(),
                Step::Write { .. } | Step::SetLen(_) | Step::Sync => {}
            }
        }
        let left = directory();
        fs::write(left.path().join(FILE), after(&base, &log[..position], &mut random)).unwrap();
        let pins = Pins::open(left.path(), false).unwrap_or_else(|e| panic!("{failure}, after step {position}: {e}"));
        let found = content(&pins).await;
        let is_right = found == models[acknowledged] || open.is_some_and(|number| found == models[number]);
        assert!(is_right, "failure {failure}, after step {position} of {}, seed {seed}", log.len());
        pins.close().await.unwrap();
    }
}
