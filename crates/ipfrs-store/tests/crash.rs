//! A process that writes is killed again and again: whatever it said was stored is there afterwards.

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use futures::TryStreamExt;
use ipfrs_core::{Cid, hash, parse_cid};
use ipfrs_store::{BlockStore, PackOptions, PackStore, PutMode};
use rand::Rng;
use rustix::fs::FlockOperation;

use crate::fixture::{child_dir, listed, open_small, random_blocks, small_packs, spawn_child};

const ROUNDS: usize = 25;

/// Four writers that put random blocks, delete some, and say so once that is acknowledged, until the process is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes() {
    let Some(dir) = child_dir() else { return };
    // Small packs are left after some milliseconds; in large ones, the index ends in the middle.
    let pack_bytes = if rand::rng().random() { 512 * 1024 } else { 1024 * 1024 * 1024 };
    let store = PackStore::open(&dir, PackOptions { pack_bytes, ..small_packs() }).unwrap();
    let say = |lines: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(lines.as_bytes()).and_then(|()| out.flush()).unwrap();
    };
    say("\nopen\n".to_owned());
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                loop {
                    let blocks = random_blocks(30, 8_000);
                    let mode = if writer % 2 == 0 { PutMode::Atomic } else { PutMode::BestEffort };
                    let outcomes = store.put_many(blocks.clone(), mode).await;
                    assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
                    say(blocks.iter().map(|block| format!("put {}\n", block.cid())).collect());
                    if writer == 3 {
                        let gone: Vec<_> = blocks[..5].iter().map(|block| *block.cid()).collect();
                        // Said before: from now on, both are right.
                        say(gone.iter().map(|cid| format!("deleting {cid}\n")).collect());
                        store.delete_many(&gone).await.unwrap();
                        say(gone.iter().map(|cid| format!("deleted {cid}\n")).collect());
                    }
                }
            })
        })
        .collect();
    // None ends but by a failure.
    futures::future::select_all(writers).await.0.unwrap();
}

/// What the children said, over all rounds.
#[derive(Default)]
struct Said {
    put: HashSet<Cid>,
    deleted: HashSet<Cid>,
    /// Put since the last crash.
    this_round: Vec<Cid>,
}

impl Said {
    fn line(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("put", cid)) => {
                let cid = parse_cid(cid).unwrap();
                self.put.insert(cid);
                self.this_round.push(cid);
            }
            Some(("deleting", cid)) => drop(self.put.remove(&parse_cid(cid).unwrap())),
            Some(("deleted", cid)) => drop(self.deleted.insert(parse_cid(cid).unwrap())),
            _ => {}
        }
    }

    /// Reads what a child says, and kills it at some time after it has opened the store.
    fn listen_and_kill(&mut self, dir: &std::path::Path) {
        let mut child = spawn_child("crash::child_that_writes", dir);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let opened = output.by_ref().lines().any(|line| line.unwrap() == "open");
        assert!(opened, "the child did not open the store");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..250_000)));
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9), "the child ended before it was killed");
        });
        self.this_round.clear();
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        killer.join().unwrap();
        // The last line may be cut off; one that is whole counts.
        said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).for_each(|line| self.line(line));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_acknowledged_before_a_sigkill_is_there_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut said = Said::default();
    let mut packs = 0;
    for round in 0..ROUNDS {
        said.listen_and_kill(dir.path());
        let store = open_small(dir.path());
        assert_kept(&store, &said, round).await;
        assert_eq!(listed(&store).await.len() as u64, store.stats().await.unwrap().blocks);
        // Closed in some rounds, and left to the next crash as it is in others.
        match round % 2 {
            0 => store.close().await.unwrap(),
            _ => close_by_dropping(store, dir.path()),
        }
        packs = std::fs::read_dir(dir.path().join("packs")).unwrap().count();
    }
    assert!(said.put.len() > 500, "only {} puts were acknowledged", said.put.len());
    assert!(!said.deleted.is_empty());
    assert!(packs > 3, "only {packs} packs were written");
}

/// Asserts that what was acknowledged in any round is there, and verifies what was new in this one; in the last, all.
async fn assert_kept(store: &PackStore, said: &Said, round: usize) {
    let put: Vec<_> = said.put.iter().copied().collect();
    let sizes = store.has_many(&put).await.unwrap();
    let lost = put.iter().zip(sizes).find(|(_, size)| size.is_none());
    assert!(lost.is_none(), "round {round}: {lost:?} was acknowledged and is not there");
    let deleted: Vec<_> = said.deleted.iter().copied().collect();
    let sizes = store.has_many(&deleted).await.unwrap();
    let left = deleted.iter().zip(sizes).find(|(_, size)| size.is_some());
    assert!(left.is_none(), "round {round}: {left:?} was deleted and is there");

    let kept_of_this_round = || said.this_round.iter().copied().filter(|cid| said.put.contains(cid)).collect();
    let to_verify = if round + 1 == ROUNDS { put } else { kept_of_this_round() };
    let mut found = store.get_many(to_verify);
    while let Some((cid, data)) = found.try_next().await.unwrap() {
        hash::verify(&cid, &data.unwrap()).unwrap();
    }
}

/// Drops the last handle and waits until the store is free.
fn close_by_dropping(store: PackStore, dir: &std::path::Path) {
    drop(store);
    let lock = std::fs::File::open(dir.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    // Not by closing: a child of another test that is being spawned may have a copy of the descriptor.
    rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap();
}
