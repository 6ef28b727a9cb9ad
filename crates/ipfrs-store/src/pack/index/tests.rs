//! Compares the index with a map, through commits, merges, restarts and faults.

mod damage;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::fault::Fault;
use super::place::KEEP_FREE_BYTES;
use super::totals::Totals;
use super::*;
use crate::pack::changes::Change;
use crate::pack::record::KeyMap;

/// Returns the key of a name. The keys have different hash functions and lengths, and many share their first bytes.
fn key(name: u16) -> Key {
    let [high, low] = name.to_be_bytes();
    let (prefix, digest): (&[u8], Vec<u8>) = match name % 7 {
        // sha2-256: uniformly distributed digests, and digests in a single bucket.
        0 | 1 => (&[0x12, 0x20], ipfrs_core::hash::sha2_256(&[high, low]).digest().to_vec()),
        2 => (&[0x12, 0x20], [&[7; 30][..], &[high, low]].concat()),
        // sha2-512, blake2b-256, a two-byte digest, and an empty digest.
        3 => (&[0x13, 0x40], [&[high, low][..], &[9; 62]].concat()),
        4 => (&[0xa0, 0xe4, 0x02, 0x20], [&[low, high][..], &[0xff; 30]].concat()),
        5 => (&[0x13, 0x02], vec![high, low]),
        _ => (&[0x13, 0x00], Vec::new()),
    };
    [prefix, &digest].concat().into()
}

fn open(dir: &Path) -> Index {
    Index::open(dir, false).unwrap().unwrap()
}

fn is_unusable(dir: &Path) -> bool {
    Index::open(dir, false).unwrap().is_err()
}

/// Commits until no merge is due.
fn settle(index: &Index) {
    index.commit().unwrap();
    while index.is_merging() {
        std::thread::yield_now();
        index.commit().unwrap();
    }
}

/// Applies new locations to the index and to the model, in the order of the list.
fn change(index: &Index, model: &mut BTreeMap<Key, Location>, changes: &[(u16, Option<Location>)]) {
    let mut blocks = KeyMap::default();
    for (name, to) in changes {
        blocks.insert(key(*name), Change { from: model.get(&key(*name)).copied(), to: *to });
    }
    for (key, change) in &blocks {
        match change.to {
            Some(to) => drop(model.insert(key.clone(), to)),
            None => drop(model.remove(key)),
        }
    }
    let applied = index.apply(&Changes { blocks, ..Changes::default() }, Position { pack: 9, offset: 20 });
    let payload_bytes = model.values().map(|location| u64::from(location.len)).sum();
    assert_eq!(applied.totals, Totals { blocks: model.len() as u64, payload_bytes });
}

/// Asserts that all lookups and listings of the index agree with the model.
fn assert_same(index: &Index, model: &BTreeMap<Key, Location>, limit: usize) {
    let keys: Vec<_> = (0..400).map(key).collect();
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).copied()).collect();
    assert_eq!(index.locate(&keys).unwrap(), expected);
    // Files that were just written are in memory.
    let resident: Vec<_> = keys.iter().map(|key| index.locate_resident(key).unwrap()).collect();
    assert_eq!(resident, expected.into_iter().map(Some).collect::<Vec<_>>());
    let mut listed = Vec::new();
    loop {
        let page = index.page(listed.last().map(|(key, _): &(Key, _)| &**key), limit).unwrap();
        assert!(page.len() <= limit);
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, model.clone().into_iter().collect::<Vec<_>>());
    for (number, pack_use) in index.packs() {
        let alive = model.values().filter(|location| location.pack == number).map(|location| location.section_bytes());
        assert_eq!(pack_use.live_bytes, alive.sum(), "pack {number}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Change(Vec<(u16, Option<Location>)>),
    Commit,
    Settle,
    /// A commit in which the sync with this number fails.
    FailingCommit(i64),
    Reopen,
    /// A crash, after which one file is damaged. The numbers select the file, the position and the kind of damage.
    Damage([usize; 3]),
    Replay(Vec<(u16, Option<Location>)>),
}

fn location() -> impl Strategy<Value = Location> {
    let small = || prop_oneof![3 => 0..300_u32, 1 => any::<u32>()];
    (1..5_u32, small(), small(), 36..44_u16, prop_oneof![Just(0x55_u16), Just(0x70), any::<u16>()])
        .prop_map(|(pack, offset, len, prefix, codec)| Location { pack, offset, len, prefix, codec })
}

fn step() -> impl Strategy<Value = Step> {
    let to = || prop_oneof![3 => location().prop_map(Some), 1 => Just(None)];
    let some = move || prop::collection::vec((0..400_u16, to()), 0..40);
    prop_oneof![
        6 => some().prop_map(Step::Change),
        4 => Just(Step::Commit),
        1 => Just(Step::Settle),
        1 => (0..4_i64).prop_map(Step::FailingCommit),
        1 => Just(Step::Reopen),
        1 => any::<[usize; 3]>().prop_map(Step::Damage),
        1 => some().prop_map(Step::Replay),
    ]
}

/// Damages a file of the index in `dir` according to `numbers`, and rebuilds the index from `model`.
fn rebuilt(dir: &Path, [which, place, how]: [usize; 3], model: &BTreeMap<Key, Location>) -> Index {
    let files: Vec<_> = files(dir).into_iter().collect();
    if let Some((path, whole)) = files.get(which % files.len().max(1)) {
        let place = place % whole.len();
        let mut damaged = whole.clone();
        match how % 3 {
            0 => fs::remove_file(path).unwrap(),
            1 => fs::write(path, &whole[..place]).unwrap(),
            _ => {
                damaged[place] ^= 1 << (how / 3 % 8);
                fs::write(path, damaged).unwrap();
            }
        }
        // An index without a manifest is a new one.
        let is_lost = how % 3 == 0 && path.extension().is_none();
        assert_eq!(is_unusable(dir), !is_lost, "{numbers:?}", numbers = (path, place, how));
    }
    let index = Index::begin(dir, false).unwrap();
    let blocks = model.iter().map(|(key, to)| (key.clone(), Change { from: None, to: Some(*to) })).collect();
    index.replay(Changes { blocks, ..Changes::default() }, Position { pack: 9, offset: 20 }).unwrap();
    index.commit().unwrap();
    index
}

fn run(steps: Vec<Step>, limit: usize) {
    let dir = tempfile::tempdir().unwrap();
    let mut index = open(dir.path());
    let mut model = BTreeMap::new();
    // State after a crash.
    let mut committed = model.clone();
    for step in steps {
        match step {
            Step::Change(changes) => change(&index, &mut model, &changes),
            Step::Commit | Step::Settle => {
                if matches!(step, Step::Commit) {
                    index.commit().unwrap()
                } else {
                    settle(&index)
                }
                committed = model.clone();
            }
            Step::FailingCommit(sync) => {
                // Waits for the merge, so that the failing sync is one of the commit.
                while index.is_merging() && !index.has_merged() {
                    std::thread::yield_now();
                }
                index.fault().set(sync, Fault::Error);
                let _ = index.commit();
                index.fault().set(-1, Fault::Error);
                // The last sync follows the replacement of the manifest, so both states would be valid after its
                // failure. A second commit settles that.
                index.commit().unwrap();
                committed = model.clone();
            }
            Step::Reopen => {
                drop(index);
                index = open(dir.path());
                model = committed.clone();
            }
            Step::Damage(numbers) => {
                drop(index);
                model = committed.clone();
                index = rebuilt(dir.path(), numbers, &model);
            }
            Step::Replay(changes) => {
                let blocks = changes.iter().map(|(name, to)| (key(*name), Change { from: None, to: *to })).collect();
                index.replay(Changes { blocks, ..Changes::default() }, Position { pack: 9, offset: 20 }).unwrap();
                for (name, to) in changes {
                    match to {
                        Some(to) => drop(model.insert(key(name), to)),
                        None => drop(model.remove(&key(name))),
                    }
                }
                index.commit().unwrap();
                committed = model.clone();
            }
        }
        assert_same(&index, &model, limit);
    }
    settle(&index);
    let entries: Vec<_> = index.state.read().runs.iter().map(|run| run.layout().entries()).collect();
    assert_eq!(merge::due(&entries), None);
    drop(index);
    // No unneeded file is left.
    assert!(fs::read_dir(dir.path()).unwrap().count() <= 1 + entries.len());
    let reader = Index::open(dir.path(), true).unwrap().unwrap();
    let before = files(dir.path());
    change(&reader, &mut model, &(0..100).map(|name| (name, None)).collect::<Vec<_>>());
    settle(&reader);
    assert_same(&reader, &model, limit);
    drop(reader);
    assert_eq!(files(dir.path()), before);
}

/// Returns the files of an index and their content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_behaves_like_a_map(steps in prop::collection::vec(step(), 1..40), limit in 1..60_usize) {
        run(steps, limit);
    }
}

fn at(offset: u32) -> Location {
    Location { pack: 1, offset, len: 1_024, prefix: 38, codec: 0x55 }
}

/// Returns a committed index of several runs and some entries in the manifest.
fn several_runs() -> (TempDir, Index, BTreeMap<Key, Location>) {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    let mut model = BTreeMap::new();
    for (from, to) in [(0, 200), (200, 300), (300, 340), (340, 345)] {
        change(&index, &mut model, &(from..to).map(|name| (name, Some(at(u32::from(name))))).collect::<Vec<_>>());
        settle(&index);
    }
    assert_eq!(index.state.read().runs.len(), 3);
    assert!(index.state.read().memory.len() > 0);
    (dir, index, model)
}

#[test]
fn merge_restores_implied_digest_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    let mut model = BTreeMap::new();
    for round in 0..4_u16 {
        // Some blocks are new, some moved, and some deleted.
        let to = |name: u16| (!name.is_multiple_of(5)).then(|| at(u32::from(round)));
        let changes: Vec<_> = (round * 1_500..round * 1_500 + 2_500).map(|name| (name, to(name))).collect();
        change(&index, &mut model, &changes);
        index.commit().unwrap();
        assert_same(&index, &model, 700);
    }
    settle(&index);
    let leaves_out = |run: &Arc<Run>| run.layout().families.iter().any(|family| family.implied_bytes() > 0);
    assert!(index.state.read().runs.iter().any(leaves_out));
    assert_same(&index, &model, 700);
    drop(index);
    assert_same(&open(dir.path()), &model, 700);
}

#[test]
fn cancelled_merge_leaves_no_file() {
    for _ in 0..20 {
        let (dir, index, mut model) = several_runs();
        let more: Vec<_> = (345..400).map(|name| (name, Some(at(0)))).collect();
        change(&index, &mut model, &more);
        index.commit().unwrap();
        assert!(index.is_merging());
        let runs = index.state.read().runs.len();
        drop(index);
        assert_eq!(files(dir.path()).len(), runs + 1);
        assert_same(&open(dir.path()), &model, 100);
    }
}

#[test]
fn merge_waits_for_free_disk_space() {
    let (_dir, index, mut model) = several_runs();
    let entries = || index.state.read().runs.iter().map(|run| run.layout().entries()).collect::<Vec<_>>();
    let bytes = |from: usize| index.state.read().runs[from..].iter().map(|run| run.file_bytes()).sum::<u64>();
    index.fault().set_free_bytes(Some(KEEP_FREE_BYTES));
    let more: Vec<_> = (345..400).map(|name| (name, Some(at(0)))).collect();
    change(&index, &mut model, &more);
    settle(&index);
    let four = entries();
    assert_eq!((four.len(), merge::due(&four)), (4, Some(0..4)), "{four:?}");
    assert_same(&index, &model, 100);
    // Free space: one byte too little to merge the newest two, just enough for those, and enough for all.
    for (free, runs) in [(bytes(2) - 1, 4), (bytes(2), 3), (bytes(0), 1)] {
        index.fault().set_free_bytes(Some(KEEP_FREE_BYTES + free));
        settle(&index);
        assert_eq!(entries().len(), runs, "{free} bytes: {:?}", entries());
        assert_same(&index, &model, 100);
    }
}

#[test]
fn failed_commit_leaves_index_usable_or_behind() {
    for sync in 0..4 {
        let (dir, index, mut model) = several_runs();
        let before = model.clone();
        let more: Vec<_> = (345..360).map(|name| (name, Some(at(0)))).chain([(7, None)]).collect();
        change(&index, &mut model, &more);
        index.fault().set(sync, Fault::Error);
        let failed = index.commit().is_err();
        // The syncs of a commit: a run, the manifest, the directory.
        assert_eq!(failed, sync < 3, "sync {sync}");
        assert_same(&index, &model, 100);
        drop(index);
        let index = open(dir.path());
        let is_behind = index.locate(&[key(7)]).unwrap()[0].is_some();
        assert!(!is_behind || failed);
        assert_same(&index, if is_behind { &before } else { &model }, 100);
    }
}

#[test]
fn interrupted_replay_leaves_index_as_it_was() {
    let (dir, index, model) = several_runs();
    for from in (400..6_000).step_by(100) {
        let blocks = (from..from + 100).map(|name| (key(name), Change { from: None, to: Some(at(0)) })).collect();
        index.replay(Changes { blocks, ..Changes::default() }, Position { pack: 9, offset: 20 }).unwrap();
        while index.is_merging() && !index.has_merged() {
            std::thread::yield_now();
        }
    }
    assert!(index.state.read().totals.blocks > 4_000);
    // The manifest, the runs that it names, those of the replay, and those of the merge that has ended.
    let runs = index.state.read().runs.len();
    assert!(files(dir.path()).len() <= 1 + 3 + runs + 1, "{} files, {runs} runs", files(dir.path()).len());
    drop(index);
    assert_same(&open(dir.path()), &model, 100);
}

#[test]
fn unfinished_index_keeps_its_notes_until_it_is_complete() {
    let (dir, index, model) = several_runs();
    index.commit_unfinished(b"unneeded".to_vec()).unwrap();
    assert_eq!(index.unfinished(), None, "nothing was written since the last commit");
    let blocks = model.iter().map(|(key, to)| (key.clone(), Change { from: None, to: Some(*to) })).collect();
    index.replay(Changes { blocks, ..Changes::default() }, Position { pack: 9, offset: 20 }).unwrap();
    index.commit_unfinished(b"notes".to_vec()).unwrap();
    drop(index);
    let index = open(dir.path());
    assert_eq!(index.unfinished().as_deref(), Some(&b"notes"[..]));
    assert_same(&index, &model, 100);
    index.finish();
    index.commit().unwrap();
    drop(index);
    assert_eq!(open(dir.path()).unfinished(), None);
}

#[test]
fn merge_of_oldest_run_drops_deletions() {
    let (_dir, index, mut model) = several_runs();
    change(&index, &mut model, &(0..400).map(|name| (name, None)).collect::<Vec<_>>());
    settle(&index);
    assert_same(&index, &model, 10);
    assert_eq!((index.state.read().runs.len(), index.state.read().memory.len()), (0, 0));
    assert!(index.file_bytes() < 200, "{} bytes", index.file_bytes());
}

#[test]
fn an_entry_of_a_common_block_takes_at_most_42_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let index = open(dir.path());
    let block = |number: u32| {
        let digest = ipfrs_core::hash::sha2_256(&number.to_le_bytes()).to_bytes().into_boxed_slice();
        let to = Location { pack: 1 + number / 50_000, offset: number % 50_000 * 1_062, ..at(0) };
        (digest, Change { from: None, to: Some(to) })
    };
    let blocks: KeyMap<_> = (0..100_000).map(block).collect();
    index.apply(&Changes { blocks, ..Changes::default() }, Position { pack: 3, offset: 18 });
    index.commit().unwrap();
    let bytes = index.file_bytes();
    assert!(bytes <= 42 * 100_000, "{bytes}");
    let found = index.locate(&(0..200_000).map(|number| block(number).0).collect::<Vec<_>>()).unwrap();
    assert!((0..100_000).zip(&found).all(|(number, found)| *found == block(number).1.to));
    assert!(found[100_000..].iter().all(Option::is_none));
}

#[test]
fn runs_stay_few_and_entries_are_not_written_often() {
    let (mut runs, mut written, mut most) = (Vec::new(), 0, 0);
    for _ in 0..10_000 {
        runs.push(1_000_usize);
        while let Some(places) = merge::due(&runs) {
            let merged = runs.splice(places, []).sum();
            written += merged;
            runs.push(merged);
        }
        most = most.max(runs.len());
    }
    let all: usize = runs.iter().sum();
    assert_eq!(all, 10_000_000);
    assert!(most <= 14, "{most} runs");
    assert!(written <= 8 * all, "every entry was written {} times", written / all);
    // Merges that would become too large are not started.
    assert_eq!(merge::due(&[60 << 20, 40 << 20, 30 << 20]), None);
    assert_eq!(merge::due(&[60 << 20, 20 << 20, 30 << 20]), Some(1..3));
}

#[test]
fn readers_are_unaffected_by_commits_and_merges() {
    let (_dir, index, mut model) = several_runs();
    let (stays, ended) = (model.clone(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let keys: Vec<_> = stays.keys().cloned().collect();
                let expected: Vec<_> = stays.values().map(|location| Some(*location)).collect();
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(index.locate(&keys).unwrap(), expected);
                    let page = index.page(None, 10_000).unwrap();
                    let listed: BTreeMap<_, _> = page.into_iter().filter(|(key, _)| stays.contains_key(key)).collect();
                    assert!(listed == stays);
                }
            });
        }
        for round in 0..60_u16 {
            // Excludes the key that all names of its kind share, which is among those that stay.
            let names = (400..900).filter(|name| name % 7 != 6);
            let changes: Vec<_> =
                names.map(|name| (name, (name % 3 == round % 3).then(|| at(u32::from(round))))).collect();
            change(&index, &mut model, &changes);
            index.commit().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
}
