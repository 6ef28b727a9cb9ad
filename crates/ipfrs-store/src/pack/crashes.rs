//! Crashes at every point in the life of a store whose index creates, merges and removes runs. Afterwards, exactly
//! the acknowledged content must be present, and the index must be usable without a rebuild.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use futures::TryStreamExt;
use ipfrs_core::hash::{self, HashFunction};
use ipfrs_core::{Block, Cid, codec, cores};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tempfile::TempDir;

use super::crash_recorder::{Expected, Files, Recorder, restore};
use super::index::{INDEX, Index, Totals};
use super::losses::OR_UNFINISHED;
use super::recovery::{self, contradiction, find_packs};
use super::{PackOptions, PackStore};
use crate::store::{BlockStore, CompactOptions, PutMode};

/// Number of random power failures, unless the variable `IPFRS_POWER_FAILURES` sets another.
const POWER_FAILURES: usize = 1_000;

pub(super) fn options() -> PackOptions {
    PackOptions { pack_bytes: 64 * 1024, ..PackOptions::default() }
}

/// Returns a temporary directory in memory, if the system has one, so that syncs cost nothing. The tests simulate
/// lost writes.
pub(super) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Returns block `number`, of up to two kilobytes.
pub(super) fn block(number: u32) -> Block {
    let data: Bytes = number.to_le_bytes().repeat(1 + number as usize * 37 % 500).into();
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, data).unwrap()
}

/// A store with a recorder, and the blocks that it must hold.
struct Watched {
    store: PackStore,
    recorder: Arc<Recorder>,
    there: BTreeSet<Cid>,
}

impl Watched {
    /// Creates a store and starts recording once it exists.
    fn open(dir: &Path) -> Self {
        drop(recovery::open(dir, options()).unwrap());
        let recorder = Recorder::start(dir);
        Self { store: PackStore::open(dir, options()).unwrap(), recorder, there: BTreeSet::new() }
    }

    async fn put(&mut self, numbers: std::ops::Range<u32>) {
        let blocks: Vec<_> = numbers.map(block).collect();
        let cids: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        self.recorder.expect(&self.there, cids.iter().copied());
        assert!(self.store.put_many(blocks, PutMode::Atomic).await.iter().all(Result::is_ok));
        self.there.extend(cids);
        self.acknowledged();
    }

    async fn delete(&mut self, numbers: impl Iterator<Item = u32>) {
        let cids: Vec<_> = numbers.map(|number| *block(number).cid()).collect();
        self.recorder.expect(&self.there, cids.iter().filter(|cid| self.there.contains(cid)).copied());
        self.store.delete_many(&cids).await.unwrap();
        self.there.retain(|cid| !cids.contains(cid));
        self.acknowledged();
    }

    /// Commits the index, and commits again after the merge that follows.
    async fn flush(&self) {
        for _ in 0..2 {
            self.store.flush().await.unwrap();
            while self.store.shared.with_index(|index| Ok(index.is_merging() && !index.has_merged())).unwrap() {
                thread::yield_now();
            }
        }
        self.recorder.record(None);
    }

    fn acknowledged(&self) {
        self.recorder.expect(&self.there, []);
        self.recorder.record(None);
    }
}

/// Content of a store: all of its blocks, their totals, the live bytes of each pack, and whether it has gaps.
type Content = (BTreeSet<Cid>, Totals, BTreeMap<u32, u64>, bool);

/// Content of stores whose index was lost, keyed by their remaining files.
type Rebuilt = Mutex<HashMap<Files, Content>>;

/// Asserts that a store recovered from these files has the expected content, and the same content without its index.
async fn assert_recovers(files: &Files, expected: &Expected, rebuilt: &Rebuilt) {
    let dir = directory();
    restore(dir.path(), files);
    let index = Index::open(&dir.path().join(INDEX), true).unwrap().unwrap();
    let packs = find_packs(&dir.path().join("packs"), true).unwrap();
    let lengths = packs.into_iter().map(|(number, pack)| (number, pack.len)).collect();
    assert_eq!(contradiction(&index.packs(), &lengths), None);
    drop(index);
    let found = content(dir.path(), expected, true).await;
    let mut others = files.clone();
    others.retain(|path, _| !path.starts_with(INDEX));
    let cached = rebuilt.lock().get(&others).cloned();
    let without = match cached {
        Some(cached) => cached,
        None => {
            let dir = directory();
            restore(dir.path(), &others);
            let content = content(dir.path(), expected, false).await;
            rebuilt.lock().insert(others, content.clone());
            content
        }
    };
    // Without an index, blocks behind sectors that were not written may have been acknowledged, and are kept.
    let mut kept = without.0.difference(&found.0);
    assert!(found.0.is_subset(&without.0) && kept.all(|cid| expected.open.contains(cid)));
    if !without.3 {
        assert_eq!(found, without, "with the index, and without it");
    }
}

async fn content(dir: &Path, expected: &Expected, has_index: bool) -> Content {
    let store = PackStore::open(dir, options()).unwrap();
    // Without an index, unfinished writes may be damaged blocks.
    let losses = store.losses().unwrap();
    assert!(losses.iter().all(|loss| !has_index && loss.ends_with(OR_UNFINISHED)), "{losses:?}");
    let listed: BTreeSet<Cid> = store.iterate().try_collect().await.unwrap();
    assert!(expected.there.is_subset(&listed), "lost: {:?}", expected.there.difference(&listed));
    let mut invented = listed.difference(&expected.there).filter(|cid| !expected.open.contains(cid));
    assert_eq!(invented.next(), None);
    let mut found = store.get_many(listed.iter().copied().collect());
    while let Some((cid, data)) = found.try_next().await.unwrap() {
        hash::verify(&cid, &data.unwrap()).unwrap();
    }
    let (totals, packs) = store.shared.with_index(|index| Ok((index.totals(), index.packs()))).unwrap();
    assert_eq!(totals.blocks, listed.len() as u64);
    let alive = packs.into_iter().map(|(number, cached)| (number, cached.live_bytes)).filter(|(_, alive)| *alive > 0);
    let has_gaps = losses.iter().any(|loss| loss.contains("other bytes between"));
    let content = (listed, totals, alive.collect(), has_gaps);
    store.close().await.unwrap();
    content
}

/// Checks all states in which a crash may leave a store, on several threads.
fn assert_all_recover(crashes: &[(Files, Arc<Expected>)]) {
    let (next, rebuilt) = (AtomicUsize::new(0), Rebuilt::default());
    thread::scope(|scope| {
        for _ in 0..cores().min(8) {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                while let Some((files, expected)) = crashes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let lengths: Vec<_> = files.iter().map(|(path, bytes)| (path, bytes.len())).collect();
                    let recovers = || runtime.block_on(assert_recovers(files, expected, &rebuilt));
                    let recovers = std::panic::AssertUnwindSafe(recovers);
                    if let Err(panic) = std::panic::catch_unwind(recovers) {
                        eprintln!("of {lengths:?}");
                        std::panic::resume_unwind(panic);
                    }
                }
            });
        }
    });
}

/// Records a store that puts and deletes blocks, creates and merges runs, and compacts its packs.
async fn recorded_life(dir: &Path) -> Arc<Recorder> {
    let mut watched = Watched::open(dir);
    for round in 0..10 {
        watched.put(round * 10..round * 10 + 8 + round % 3).await;
        watched.delete((round * 6..round * 6 + 20).step_by(5)).await;
        watched.flush().await;
        if round % 5 == 4 {
            watched.store.compact(CompactOptions::from_share(0.0)).await.unwrap();
            watched.flush().await;
        }
    }
    // Some deleted blocks are put again, at other locations.
    watched.put(10..30).await;
    watched.delete(0..20).await;
    watched.store.close().await.unwrap();
    watched.recorder
}

#[test]
fn crash_at_any_point_loses_nothing_and_keeps_index_usable() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dir = directory();
    let crashes = runtime.block_on(recorded_life(dir.path())).end();
    let holds = |count: usize, is_one: fn(&str) -> bool| {
        let is_one = |(files, _): &&(Files, _)| {
            files.keys().filter(|path| is_one(path.file_name().unwrap().to_str().unwrap())).count() >= count
        };
        crashes.iter().filter(is_one).count()
    };
    assert!(holds(4, |name| name.ends_with(".run")) > 20, "runs, those that were merged among them");
    assert!(holds(1, |name| name == "manifest.new") > 20);
    assert!(holds(2, |name| name.ends_with(".car")) > 20);
    assert!(holds(1, |name| name == "00000001.car") < crashes.len() / 2, "it was compacted");
    assert_all_recover(&crashes);
}

#[test]
fn random_power_failures_lose_nothing() {
    let failures = std::env::var("IPFRS_POWER_FAILURES").map_or(POWER_FAILURES, |count| count.parse().unwrap());
    let seed = std::env::var("IPFRS_SEED").map_or(1, |seed| seed.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dir = directory();
    let recorder = runtime.block_on(recorded_life(dir.path()));
    let crashes = recorder.end_by_power_failures(failures, &mut StdRng::seed_from_u64(seed));
    let different: BTreeSet<_> = crashes.iter().map(|(files, _)| files).collect();
    assert!(different.len() > failures.min(1_000) / 5, "{} of {failures} are different", different.len());
    assert_all_recover(&crashes);
}

/// Returns the crash states of a store that recovers from a crash that left `files`.
async fn crashes_of_a_recovery(files: &Files, expected: &Expected) -> Vec<(Files, Arc<Expected>)> {
    let dir = directory();
    restore(dir.path(), files);
    let recorder = Recorder::start(dir.path());
    recorder.expect(&expected.there, expected.open.iter().copied());
    PackStore::open(dir.path(), options()).unwrap().close().await.unwrap();
    recorder.end()
}

#[test]
fn crash_during_recovery_loses_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let dir = directory();
    let crashes = runtime.block_on(async {
        let mut watched = Watched::open(dir.path());
        for round in 0..6 {
            watched.put(round * 50..round * 50 + 50).await;
            watched.delete((round * 50..round * 50 + 50).step_by(4)).await;
            if round == 2 {
                watched.flush().await;
            }
        }
        let expected = Expected { there: watched.there.clone(), open: BTreeSet::new() };
        let behind = watched.recorder.now();
        watched.store.close().await.unwrap();
        watched.recorder.end();
        let mut lost = behind.clone();
        lost.retain(|path, _| !path.starts_with(INDEX));
        let mut crashes = crashes_of_a_recovery(&behind, &expected).await;
        crashes.extend(crashes_of_a_recovery(&lost, &expected).await);
        crashes
    });
    let runs = |files: &Files| files.keys().filter(|path| path.extension().is_some_and(|end| end == "run")).count();
    assert!(crashes.iter().filter(|(files, _)| runs(files) > 1).count() > 20, "it commits on the way");
    assert_all_recover(&crashes);
}
