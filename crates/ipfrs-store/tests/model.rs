//! Compares random histories on packs with a map.

use std::collections::BTreeMap;

use ipfrs_core::Block;
use ipfrs_store::{BlockStore, CompactOptions, PackStore, PutMode, Stored};
use proptest::prelude::*;

use crate::fixture::{block, cids, listed, small_packs};

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, PutMode),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    Flush,
    Compact(f64),
    Reopen,
    LoseIndex,
}

fn step() -> impl Strategy<Value = Step> {
    let some = || prop::collection::vec(any::<u8>(), 0..12);
    let mode = prop_oneof![Just(PutMode::Atomic), Just(PutMode::BestEffort)];
    prop_oneof![
        6 => (some(), mode).prop_map(|(names, mode)| Step::Put(names, mode)),
        3 => some().prop_map(Step::Delete),
        4 => some().prop_map(Step::Get),
        1 => Just(Step::Flush),
        2 => prop_oneof![Just(0.0), 0.0..1.0].prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        1 => Just(Step::LoseIndex),
    ]
}

/// Returns the block of a name. The 256 blocks have 0 to about 25 kB, so that a few fill a pack of 64 KiB.
fn named(name: u8) -> Block {
    block(vec![name; usize::from(name) * 100])
}

fn all(names: &[u8]) -> Vec<Block> {
    names.iter().map(|name| named(*name)).collect()
}

async fn run(steps: Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let options = small_packs();
    let mut store = PackStore::open(dir.path(), options.clone()).unwrap();
    let mut model = BTreeMap::new();
    for step in steps {
        match step {
            Step::Put(names, mode) => {
                let outcomes = store.put_many(all(&names), mode).await;
                for (name, outcome) in names.into_iter().zip(outcomes) {
                    let new = model.insert(name, named(name)).is_none();
                    assert_eq!(outcome.unwrap() == Stored::New, new);
                }
            }
            Step::Delete(names) => {
                let gone = store.delete_many(&cids(&all(&names))).await.unwrap();
                for (name, gone) in names.into_iter().zip(gone) {
                    assert_eq!(model.remove(&name).is_some(), gone);
                }
            }
            Step::Get(names) => {
                for name in names {
                    let found = store.get(named(name).cid()).await.unwrap();
                    assert_eq!(found.as_ref(), model.get(&name).map(Block::data));
                }
            }
            Step::Flush => store.flush().await.unwrap(),
            Step::Compact(min_dead_share) => {
                let compacted = store.compact(CompactOptions::from_share(min_dead_share)).await.unwrap();
                assert_eq!(compacted.damaged, []);
                if min_dead_share == 0.0 {
                    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
                }
            }
            Step::Reopen | Step::LoseIndex => {
                store.close().await.unwrap();
                if matches!(step, Step::LoseIndex) {
                    std::fs::remove_dir_all(dir.path().join("index")).unwrap();
                }
                store = PackStore::open(dir.path(), options.clone()).unwrap();
            }
        }
        let stats = store.stats().await.unwrap();
        let payload: usize = model.values().map(|block| block.data().len()).sum();
        assert_eq!((stats.blocks, stats.payload_bytes), (model.len() as u64, payload as u64));
    }
    let mut expected: Vec<_> = model.values().map(|block| block.cid().to_bytes()).collect();
    expected.sort();
    assert_eq!(listed(&store).await, expected);
    store.close().await.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packs_behave_like_a_map(steps in prop::collection::vec(step(), 1..40)) {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap().block_on(run(steps));
    }
}
