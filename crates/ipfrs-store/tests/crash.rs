//! A process that writes, deletes and compacts is killed repeatedly. Everything it acknowledged must be present
//! afterwards, with the index and without it.

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::TryStreamExt;
use ipfrs_core::{Cid, hash, parse_cid};
use ipfrs_store::{BlockStore, CompactOptions, PackOptions, PackStore, PutMode};
use rand::Rng;
use rand::seq::SliceRandom;
use rustix::fs::FlockOperation;

use crate::fixture::{child_dir, listed, open_small, random_blocks, small_packs, spawn_child};

/// Number of kills, unless the variable `IPFRS_KILL_ROUNDS` sets another.
const ROUNDS: usize = 50;

/// Maximum number of blocks kept from one round to the next.
const KEPT_BLOCKS: usize = 300;

fn say(lines: String) {
    let mut out = std::io::stdout().lock();
    out.write_all(lines.as_bytes()).and_then(|()| out.flush()).unwrap();
}

fn lines(word: &str, cids: &[Cid]) -> String {
    cids.iter().map(|cid| format!("{word} {cid}\n")).collect()
}

/// Puts random blocks, deletes some of them, and prints each operation once it is acknowledged.
async fn write_for_ever(store: PackStore, mode: PutMode) {
    loop {
        let blocks = random_blocks(20, 2_000);
        let outcomes = store.put_many(blocks.clone(), mode).await;
        assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()));
        let mut cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        say(lines("put", &cids));
        let gone = cids.split_off(rand::rng().random_range(0..15));
        // Printed before the deletion: from now on, the block may be present or absent.
        say(lines("deleting", &gone));
        store.delete_many(&gone).await.unwrap();
        say(lines("deleted", &gone));
    }
}

async fn compact_for_ever(store: PackStore) {
    loop {
        let min_dead_share = [0.0, 0.1, 0.5][rand::rng().random_range(0..3)];
        let compacted = store.compact(CompactOptions::from_share(min_dead_share)).await.unwrap();
        assert_eq!(compacted.damaged, []);
    }
}

/// Runs three writers and one compactor until the process is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_writes_and_compacts() {
    let Some(dir) = child_dir() else { return };
    // Small packs are full after some milliseconds. In large packs, the index covers only a part.
    let pack_bytes = [64 * 1024, 512 * 1024, 1024 * 1024 * 1024][rand::rng().random_range(0..3)];
    let store = PackStore::open(&dir, PackOptions { pack_bytes, ..small_packs() }).unwrap();
    say("\nopen\n".to_owned());
    let modes = [PutMode::Atomic, PutMode::BestEffort, PutMode::Atomic];
    let mut tasks: Vec<_> = modes.into_iter().map(|mode| tokio::spawn(write_for_ever(store.clone(), mode))).collect();
    tasks.push(tokio::spawn(compact_for_ever(store)));
    // A task ends only with a failure.
    futures::future::select_all(tasks).await.0.unwrap();
}

/// Operations printed by the children, over all rounds.
#[derive(Default)]
struct Said {
    put: HashSet<Cid>,
    deleted: HashSet<Cid>,
    /// Number of blocks put over all rounds.
    puts: usize,
}

impl Said {
    fn line(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("put", cid)) => {
                let cid = parse_cid(cid).unwrap();
                self.put.insert(cid);
                self.puts += 1;
            }
            Some(("deleting", cid)) => drop(self.put.remove(&parse_cid(cid).unwrap())),
            Some(("deleted", cid)) => drop(self.deleted.insert(parse_cid(cid).unwrap())),
            _ => {}
        }
    }

    /// Reads the output of a child, and kills it at a random time after it has opened the store.
    fn listen_and_kill(&mut self, dir: &Path) {
        let mut child = spawn_child("crash::child_that_writes_and_compacts", dir);
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let opened = output.by_ref().lines().any(|line| line.unwrap() == "open");
        assert!(opened, "the child did not open the store");
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(rand::rng().random_range(0..60_000)));
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9), "the child ended before it was killed");
        });
        let mut said = String::new();
        output.read_to_string(&mut said).unwrap();
        killer.join().unwrap();
        // The last line may be incomplete; only complete lines count.
        said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).for_each(|line| self.line(line));
    }

    /// Keeps the store small: deletes the blocks that were not acknowledged, and some others.
    async fn thin_out(&mut self, store: &PackStore) {
        let mut put: Vec<_> = self.put.iter().copied().collect();
        put.shuffle(&mut rand::rng());
        let kept: HashSet<_> = put.into_iter().take(KEPT_BLOCKS).collect();
        let all: Vec<Cid> = store.iterate().try_collect().await.unwrap();
        let gone: Vec<_> = all.into_iter().filter(|cid| !kept.contains(cid)).collect();
        store.delete_many(&gone).await.unwrap();
        self.put = kept;
        self.deleted.extend(gone);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_operations_survive_sigkill() {
    let dir = tempfile::tempdir().unwrap();
    let mut said = Said::default();
    let mut removed = 0;
    let rounds = std::env::var("IPFRS_KILL_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    // On a busy machine, fewer operations happen before each kill.
    for round in 0..12 * rounds {
        if round >= rounds && said.puts > 4_000 && said.deleted.len() > 2_000 && removed > 100 {
            break;
        }
        let before = packs(dir.path());
        said.listen_and_kill(dir.path());
        removed += before.difference(&packs(dir.path())).count();
        let mut store = open_small(dir.path());
        let found = assert_kept(&store, &said, round).await;
        // The content must be the same when the index is rebuilt from the packs.
        store.close().await.unwrap();
        std::fs::remove_dir_all(dir.path().join("index")).unwrap();
        store = open_small(dir.path());
        assert_eq!(assert_kept(&store, &said, round).await, found, "round {round}");
        said.thin_out(&store).await;
        if round % 5 == 0 {
            store.compact(CompactOptions::default()).await.unwrap();
        }
        // Alternates between closing the store and dropping its last handle.
        match round % 2 {
            0 => store.close().await.unwrap(),
            _ => close_by_dropping(store, dir.path()),
        }
    }
    assert!(said.puts > 4_000, "only {} puts were acknowledged", said.puts);
    assert!(said.deleted.len() > 2_000, "only {} deletions were acknowledged", said.deleted.len());
    assert!(removed > 100, "only {removed} packs were removed");
    let lengths = packs(dir.path()).into_iter().map(|path| std::fs::metadata(path).unwrap().len());
    let bytes: u64 = lengths.sum();
    assert!(bytes < 10 * 1024 * 1024, "{bytes} bytes are left on the disk");
}

/// Returns the packs of the store; none before the first round.
fn packs(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(dir.join("packs")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// Asserts that all operations acknowledged in any round are in effect, and reads the blocks that were put. Returns
/// the listing of the store.
async fn assert_kept(store: &PackStore, said: &Said, round: usize) -> Vec<Vec<u8>> {
    let put: Vec<_> = said.put.iter().copied().collect();
    let mut found = store.get_many(put);
    while let Some((cid, data)) = found.try_next().await.unwrap() {
        let data = data.unwrap_or_else(|| panic!("round {round}: {cid} was acknowledged and is not there"));
        hash::verify(&cid, &data).unwrap();
    }
    let all = listed(store).await;
    for cid in &all {
        let cid = Cid::read_bytes(cid.as_slice()).unwrap();
        assert!(!said.deleted.contains(&cid), "round {round}: {cid} was deleted and is there");
    }
    assert_eq!(all.len() as u64, store.stats().await.unwrap().blocks);
    all
}

/// Drops the last handle and waits until the store is unlocked.
fn close_by_dropping(store: PackStore, dir: &Path) {
    drop(store);
    let lock = std::fs::File::open(dir.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    // Unlocks explicitly, because a child of another test that is being spawned may have a copy of the descriptor.
    rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap();
}
