//! Puts, deletions and compactions whose steps run in random order and in random groups, with index failures and
//! crashes between them.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use futures::TryStreamExt;
use ipfrs_core::{Block, Cid, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tokio::task::{JoinHandle, yield_now};

use super::faults::{block, countdown};
use super::{Job, Writer};
use crate::pack::index::fault::Fault;
use crate::pack::queue::Queue;
use crate::pack::record::CAR_HEADER;
use crate::pack::{PackOptions, recovery};
use crate::{BlockStore, CompactOptions, Compacted, PackStore, PutMode, Spared, Stored};

/// Environment variable with the number of random histories to run.
const HISTORIES: &str = "IPFRS_STORE_TEST_HISTORIES";

/// Number of different blocks.
const NAMES: usize = 40;

fn options() -> PackOptions {
    PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() }
}

/// Returns a block of up to 12 kB. A few dozen of them fill several packs.
fn named(name: usize) -> Block {
    block(&format!("{name} ").repeat(1 + name * 100))
}

fn cids(names: &[usize]) -> Vec<Cid> {
    names.iter().map(|name| *named(*name).cid()).collect()
}

/// A call to the store, for the blocks with these names.
enum Asked {
    Put(Vec<usize>, JoinHandle<Vec<Result<Stored>>>),
    /// Excludes the blocks that are [spared](is_spared).
    Delete(Vec<usize>, usize, JoinHandle<Result<Vec<bool>>>),
}

impl Asked {
    fn is_answered(&self) -> bool {
        match self {
            Self::Put(_, task) => task.is_finished(),
            Self::Delete(_, _, task) => task.is_finished(),
        }
    }
}

/// Whether a deletion spares the block: it spares each name that is a multiple of `every`.
fn is_spared(name: usize, every: usize) -> bool {
    name.is_multiple_of(every)
}

/// A store whose writer is driven step by step, and its expected content.
struct Run {
    dir: TempDir,
    writer: Writer,
    store: PackStore,
    compaction: Option<JoinHandle<Result<Compacted>>>,
    asked: Vec<Asked>,
    content: BTreeSet<usize>,
    /// Number of the newest pack, and the length of it that was certainly on the disk at the last check.
    synced: (u32, u32),
    /// Whether a crash of the machine has damaged a pack.
    is_torn: bool,
}

impl Run {
    fn open(dir: TempDir, content: BTreeSet<usize>) -> Self {
        let recovered = recovery::open(dir.path(), options()).unwrap();
        let shared = Arc::clone(&recovered.shared);
        let (queue, jobs) = Queue::new();
        let writer = Writer::new(recovered, jobs);
        let store = PackStore { shared, queue: Arc::new(queue) };
        Self { dir, writer, store, compaction: None, asked: Vec::new(), content, synced: (0, 0), is_torn: false }
    }

    /// Lets all other tasks run for a while.
    async fn rest(&self) {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    async fn ask(&mut self, random: &mut StdRng) {
        let names: Vec<_> = (0..random.random_range(1..6)).map(|_| random.random_range(0..NAMES)).collect();
        let store = self.store.clone();
        if random.random_bool(0.5) {
            let blocks = names.iter().copied().map(named).collect();
            let put = tokio::spawn(async move { store.put_many(blocks, PutMode::Atomic).await });
            self.asked.push(Asked::Put(names, put));
        } else {
            let (cids, every) = (cids(&names), random.random_range(2..9));
            let spared = self::cids(&(0..NAMES).filter(|name| is_spared(*name, every)).collect::<Vec<_>>());
            let spared: Spared = Arc::new(move |hash| spared.iter().any(|cid| cid.hash() == hash));
            let delete = tokio::spawn(async move { store.delete_unless(&cids, spared).await });
            self.asked.push(Asked::Delete(names, every, delete));
        }
        // Before the next call, so that the order of the calls is known.
        self.rest().await;
    }

    /// Executes the writer's next job. Returns `false` if there is none.
    async fn step(&mut self) -> bool {
        if self.writer.held.is_none() {
            let Ok(job) = self.writer.jobs.try_recv() else { return false };
            self.writer.held = Some(job);
        }
        assert!(!matches!(self.writer.held, Some(Job::Stop(_))));
        assert!(self.writer.step().is_continue());
        if let Some(pack) = &self.writer.active {
            if !self.writer.unsynced {
                self.synced = (pack.number(), pack.end());
            } else if pack.number() != self.synced.0 {
                self.synced = (pack.number(), CAR_HEADER.len() as u32);
            }
        }
        self.rest().await;
        true
    }

    /// Completes all calls and checks their results.
    async fn settle(&mut self) {
        while self.asked.iter().any(|asked| !asked.is_answered()) {
            self.step().await;
            std::thread::yield_now();
        }
        for asked in std::mem::take(&mut self.asked) {
            match asked {
                Asked::Put(names, put) => {
                    let outcomes: Result<Vec<_>> = put.await.unwrap().into_iter().collect();
                    let Ok(outcomes) = outcomes else { continue };
                    for (name, outcome) in names.into_iter().zip(outcomes) {
                        assert_eq!(outcome == Stored::New, self.content.insert(name), "put of {name}");
                    }
                }
                Asked::Delete(names, every, delete) => {
                    let Ok(gone) = delete.await.unwrap() else { continue };
                    for (name, gone) in names.into_iter().zip(gone) {
                        let goes = !is_spared(name, every) && self.content.remove(&name);
                        assert_eq!(gone, goes, "deletion of {name}");
                    }
                }
            }
        }
    }

    /// Returns a copy of the directory as a crash of the process or the machine would leave it now.
    fn crash(&mut self, random: &mut StdRng) -> TempDir {
        let copy = copy(self.dir.path());
        let (number, synced) = self.synced;
        if let Some(pack) = self.writer.active.as_ref().filter(|pack| pack.number() == number)
            && (synced < pack.end() && random.random_bool(0.7))
        {
            let path = copy.path().join("packs").join(pack.path().file_name().unwrap());
            let file = File::options().write(true).open(path).unwrap();
            let from = random.random_range(synced..pack.end());
            let lost = vec![0; random.random_range(1..=pack.end() - from) as usize];
            file.write_all_at(&lost, u64::from(from)).unwrap();
            self.is_torn = true;
            if random.random_bool(0.5) {
                file.set_len(u64::from(random.random_range(synced..=pack.end()))).unwrap();
            }
        }
        copy
    }

    /// Asserts that a process that opens the store after a crash now finds the expected content.
    async fn assert_survives(&mut self, random: &mut StdRng) {
        let was_torn = self.is_torn;
        let copy = self.crash(random);
        if random.random_bool(0.5) {
            std::fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        for _ in 0..2 {
            let store = PackStore::open(copy.path(), options()).unwrap();
            assert_content(&store, &self.content).await;
            if random.random_bool(0.5) {
                let compacted = store.compact(CompactOptions::from_share(0.0)).await.unwrap();
                assert_content(&store, &self.content).await;
                if !self.is_torn {
                    assert_eq!((compacted.damaged, store.stats().await.unwrap().dead_bytes), (vec![], 0));
                }
            }
            store.close().await.unwrap();
            std::fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        self.is_torn = was_torn;
    }

    /// Continues after a crash.
    fn restart(mut self, random: &mut StdRng) -> Self {
        if let Some(compaction) = &self.compaction {
            compaction.abort();
        }
        let copy = self.crash(random);
        self.writer.shared.close();
        Self { is_torn: self.is_torn, ..Self::open(copy, self.content) }
    }
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for directory in ["packs", "index"] {
        std::fs::create_dir(to.path().join(directory)).unwrap();
    }
    for directory in ["", "packs", "index"] {
        for entry in std::fs::read_dir(from.join(directory)).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_file() {
                std::fs::copy(entry.path(), to.path().join(directory).join(entry.file_name())).unwrap();
            }
        }
    }
    to
}

async fn assert_content(store: &PackStore, content: &BTreeSet<usize>) {
    let listed: BTreeSet<_> = store.iterate().try_collect().await.unwrap();
    let names: Vec<_> = content.iter().copied().collect();
    assert_eq!(listed, cids(&names).into_iter().collect());
    let found: Vec<_> = store.get_many(cids(&names)).try_collect().await.unwrap();
    for (name, (_, data)) in names.into_iter().zip(found) {
        assert_eq!(data.as_ref(), Some(named(name).data()));
    }
}

/// Runs `steps` random steps.
async fn run(seed: u64, steps: usize) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut run = Run::open(tempfile::tempdir().unwrap(), BTreeSet::new());
    for _ in 0..steps {
        match random.random_range(0..100) {
            0..40 => run.ask(&mut random).await,
            40..80 => drop(run.step().await),
            80..90 => {
                run.compaction.take_if(|compaction| compaction.is_finished());
                if run.compaction.is_none() {
                    let (store, min_dead_share) = (run.store.clone(), random.random_range(0..2) as f64 / 4.0);
                    let options = CompactOptions::from_share(min_dead_share);
                    run.compaction = Some(tokio::spawn(async move { store.compact(options).await }));
                    run.rest().await;
                }
            }
            90..92 => {
                if let Some(compaction) = run.compaction.take() {
                    compaction.abort();
                    run.rest().await;
                }
            }
            92..96 => countdown(&run.writer.shared).set(random.random_range(0..4), Fault::Error),
            96..99 => {
                run.settle().await;
                assert_content(&run.store, &run.content).await;
                run.assert_survives(&mut random).await;
            }
            _ => {
                run.settle().await;
                run = run.restart(&mut random);
            }
        }
    }
    run.settle().await;
    run.assert_survives(&mut random).await;
    run.writer.shared.close();
}

#[tokio::test]
async fn random_interleavings_match_returned_outcomes() {
    let histories = std::env::var(HISTORIES).map_or(6, |histories| histories.parse().unwrap());
    for seed in 0..histories {
        run(seed, 250).await;
    }
}
