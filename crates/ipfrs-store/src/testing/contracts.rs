//! One function for each contract of [`BlockStore`]. It panics if the engine does not satisfy the contract.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::hash::{self, HashFunction};
use ipfrs_core::limits::{MAX_BIG_BLOCK_BYTES, MAX_BLOCK_BYTES};
use ipfrs_core::{Block, Cid, ErrorKind, Multihash, codec, new_cid};

use super::blocks::{assert_holds, assert_lacks, block, cids, listed, numbered, put_all, random_block, sorted};
use crate::{BlockStore, BlockStoreExt, CompactOptions, Footprint, PutMode, RESERVED_CODEC, Stored};

type Store = Arc<dyn BlockStore>;

pub async fn blocks_of_every_size_come_back(store: Store) {
    let sizes =
        [0, 1, 127, 128, 4_095, 4_096, 4_097, 262_144, MAX_BLOCK_BYTES - 1, MAX_BLOCK_BYTES, MAX_BIG_BLOCK_BYTES];
    let blocks: Vec<_> = sizes.into_iter().map(random_block).collect();
    for block in &blocks {
        assert_eq!(store.put(block.clone()).await.unwrap(), Stored::New);
        assert_eq!(store.get(block.cid()).await.unwrap().as_ref(), Some(block.data()));
        assert_eq!(store.size(block.cid()).await.unwrap(), Some(block.data().len() as u64));
    }
    assert_holds(&*store, &blocks).await;
}

pub async fn an_absent_block_is_none_and_seen_as_soon_as_it_is_put(store: Store) {
    for _ in 0..20 {
        let block = random_block(100);
        assert_eq!(store.get(block.cid()).await.unwrap(), None);
        assert_eq!(store.size(block.cid()).await.unwrap(), None);
        assert_eq!(store.require(block.cid()).await.unwrap_err().kind(), ErrorKind::NotFound);
        store.put(block.clone()).await.unwrap();
        assert_eq!(store.require(block.cid()).await.unwrap(), block.data());
    }
}

pub async fn a_block_is_found_under_every_codec_and_version_and_listed_as_first_put(store: Store) {
    let data = Bytes::from_static(b"the same bytes");
    let hash = hash::sha2_256(&data);
    let names: Vec<Cid> = [(0, codec::DAG_PB), (1, codec::DAG_PB), (1, codec::RAW), (1, 0x1234_5678)]
        .into_iter()
        .map(|(version, codec)| new_cid(version, codec, hash).unwrap())
        .collect();
    for first in &names {
        assert_eq!(store.put(Block::new(*first, data.clone()).unwrap()).await.unwrap(), Stored::New);
        for name in &names {
            assert_eq!(store.get(name).await.unwrap().as_ref(), Some(&data));
            assert_eq!(store.put(Block::new(*name, data.clone()).unwrap()).await.unwrap(), Stored::Present);
        }
        assert_eq!(listed(&*store).await, vec![first.to_bytes()]);
        assert_eq!(store.delete_many(&[names[1]]).await.unwrap(), [true]);
        assert_eq!(store.get(first).await.unwrap(), None);
    }
}

pub async fn identity_blocks_are_always_there_and_never_stored(store: Store) {
    let inline = Block::hash(1, codec::RAW, HashFunction::Identity, Bytes::from_static(b"inline")).unwrap();
    let other = block("stored");
    assert_eq!(store.get(inline.cid()).await.unwrap().as_ref(), Some(inline.data()));
    let outcomes = store.put_many(vec![inline.clone(), other.clone(), inline.clone()], PutMode::Atomic).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes, [Stored::Present, Stored::New, Stored::Present]);
    assert_eq!(store.delete_many(&[*inline.cid(), *other.cid()]).await.unwrap(), [false, true]);
    assert_holds(&*store, &[inline]).await;
    assert!(listed(&*store).await.is_empty());
    assert_eq!(store.stats().await.unwrap().blocks, 0);
}

pub async fn get_many_keeps_the_order_and_marks_what_is_missing(store: Store) {
    let blocks = numbered(0..700);
    put_all(&*store, &blocks[..350]).await;
    // Alternates present and absent blocks, from both ends, some of them twice.
    let asked: Vec<_> = (0..350).flat_map(|n| [n, 699 - n, n]).collect();
    let names = asked.iter().map(|n| *blocks[*n].cid()).collect();
    let found: Vec<_> = store.get_many(names).try_collect().await.unwrap();
    assert_eq!(found.len(), asked.len());
    for (n, (cid, data)) in asked.into_iter().zip(found) {
        assert_eq!(cid, *blocks[n].cid());
        assert_eq!(data.as_ref(), (n < 350).then(|| blocks[n].data()));
    }
    assert_eq!(store.get_many(Vec::new()).count().await, 0);
}

pub async fn batches_give_the_same_and_what_stands_before_the_data_is_of_its_block(store: Store) {
    let blocks = numbered(0..700);
    put_all(&*store, &blocks[..350]).await;
    let inline = Block::hash(1, codec::RAW, HashFunction::Identity, Bytes::from_static(b"inline")).unwrap();
    // Adjacent blocks first, then scattered ones, absent ones, and blocks stored under another codec.
    let scattered = (0..350).flat_map(|n| [n * 37 % 350, 699 - n]);
    let mut names: Vec<Cid> = (0..350).chain(scattered).map(|n| *blocks[n].cid()).collect();
    names.extend([*inline.cid(), Cid::new_v1(codec::DAG_CBOR, *blocks[7].cid().hash())]);
    let one_by_one: Vec<_> = store.get_many(names.clone()).try_collect().await.unwrap();

    let batches: Vec<_> = store.get_batches(names.clone().into()).collect().await;
    let (mut asked, mut answers) = (names.iter(), Vec::new());
    for batch in batches {
        assert!(!batch.is_empty());
        for (index, cid) in asked.by_ref().take(batch.len()).enumerate() {
            let Some(section) = batch.section(index).unwrap() else { continue };
            let whole = batch.slice(section.span, section.range.clone());
            assert_eq!(whole, [section.prefix, section.data].concat());
            assert!(section.prefix.is_empty() || section.prefix.ends_with(&cid.hash().to_bytes()));
        }
        assert!(batch.section(batch.len()).unwrap().is_none());
        answers.extend(batch.into_answers().map(Result::unwrap));
    }
    assert!(asked.next().is_none());
    assert_eq!(one_by_one, names.into_iter().zip(answers).collect::<Vec<_>>());
    assert_eq!(store.get_batches(Arc::new([])).count().await, 0);
}

pub async fn a_block_is_new_once(store: Store) {
    let (a, b) = (random_block(5_000), random_block(5_000));
    let outcomes = put_all(&*store, &[a.clone(), b.clone(), a.clone()]).await;
    assert_eq!(outcomes, [Stored::New, Stored::New, Stored::Present]);
    let before = store.stats().await.unwrap();
    for mode in [PutMode::Atomic, PutMode::BestEffort, PutMode::Reserved] {
        let outcomes = store.put_many(vec![b.clone(), a.clone()], mode).await;
        assert!(outcomes.into_iter().all(|outcome| outcome.unwrap() == Stored::Present));
    }
    let after = store.stats().await.unwrap();
    assert_eq!(
        (before.blocks, before.payload_bytes, before.disk_bytes),
        (after.blocks, after.payload_bytes, after.disk_bytes)
    );
}

pub async fn an_atomic_put_with_a_refused_block_stores_nothing_and_removes_nothing(store: Store) {
    let kept = block("kept");
    store.put(kept.clone()).await.unwrap();
    let fresh = numbered(0..10);
    let mut batch = fresh.clone();
    batch.insert(3, kept.clone());
    batch.insert(5, reserved());
    for mode in [PutMode::Atomic, PutMode::Reserved] {
        let outcomes = store.put_many(batch.clone(), mode).await;
        assert_eq!(outcomes.len(), 12);
        for outcome in &outcomes {
            assert_eq!(outcome.as_ref().unwrap_err().kind(), ErrorKind::Unsupported);
        }
        assert!(outcomes[0].as_ref().unwrap_err().message().contains("block 5"));
        assert_lacks(&*store, &fresh).await;
        assert_holds(&*store, std::slice::from_ref(&kept)).await;
    }
}

pub async fn a_best_effort_put_stores_what_can_be_stored(store: Store) {
    let fresh = numbered(0..10);
    let mut batch = fresh.clone();
    batch.insert(5, reserved());
    let outcomes = store.put_many(batch, PutMode::BestEffort).await;
    for (place, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Ok(stored) => assert_eq!((stored, place == 5), (Stored::New, false)),
            Err(error) => assert_eq!((error.kind(), place), (ErrorKind::Unsupported, 5)),
        }
    }
    assert_holds(&*store, &fresh).await;
}

/// Returns a block with the codec of deletions.
fn reserved() -> Block {
    Block::hash(1, RESERVED_CODEC, HashFunction::Sha2_256, Bytes::from_static(b"forged")).unwrap()
}

pub async fn what_no_engine_keeps_is_refused(store: Store) {
    let unknown_hash = Cid::new_v1(codec::RAW, Multihash::wrap(0x30_0002, &[7; 32]).unwrap());
    let large = vec![0; MAX_BIG_BLOCK_BYTES + 1];
    let large_cid = Cid::new_v1(codec::RAW, hash::sha2_256(&large));
    for (block, kind) in [
        (reserved(), ErrorKind::Unsupported),
        (Block::trusted(unknown_hash, Bytes::new()), ErrorKind::Unsupported),
        (Block::trusted(large_cid, large.into()), ErrorKind::TooLarge),
    ] {
        let cid = *block.cid();
        assert_eq!(store.put(block).await.unwrap_err().kind(), kind);
        assert_eq!(store.get(&cid).await.unwrap(), None);
    }
    assert!(store.put_many(Vec::new(), PutMode::Atomic).await.is_empty());
}

pub async fn a_batch_larger_than_every_internal_bound_is_stored(store: Store) {
    let blocks: Vec<_> = (0..35).map(|_| random_block(MAX_BLOCK_BYTES)).collect();
    let (atomic, best_effort) = blocks.split_at(34);
    assert_eq!(put_all(&*store, atomic).await, vec![Stored::New; 34]);
    let outcomes = store.put_many([atomic, best_effort].concat(), PutMode::BestEffort).await;
    let new = outcomes.into_iter().filter(|outcome| *outcome.as_ref().unwrap() == Stored::New).count();
    assert_eq!(new, best_effort.len());
    for block in &blocks {
        assert!(store.require(block.cid()).await.unwrap() == block.data());
    }
}

pub async fn deleted_blocks_are_gone_and_can_be_put_again(store: Store) {
    let blocks = numbered(0..300);
    put_all(&*store, &blocks).await;
    assert_holds(&*store, &blocks).await;
    let (gone, kept) = blocks.split_at(100);
    let twice = [*gone[0].cid(), *gone[0].cid(), *block("never there").cid()];
    let (epoch, footprint) = (store.epoch(), Footprint::of([kept[0].cid(), gone[0].cid()]));
    let epoch_of = store.epoch_of(&footprint);
    assert_eq!(store.delete_many(&twice).await.unwrap(), [true, false, false]);
    assert_ne!(store.epoch(), epoch);
    assert_ne!(store.epoch_of(&footprint), epoch_of);
    assert_eq!(store.delete_many(&cids(&gone[1..])).await.unwrap(), vec![true; 99]);
    assert_lacks(&*store, gone).await;
    assert_eq!(store.has_many(&cids(gone)).await.unwrap(), vec![None; 100]);
    assert_eq!(listed(&*store).await, sorted(cids(kept)));

    assert_eq!(put_all(&*store, gone).await, vec![Stored::New; 100]);
    assert_holds(&*store, &blocks).await;
    assert!(store.delete_many(&[]).await.unwrap().is_empty());
}

pub async fn blocks_that_are_spared_stay(store: Store) {
    let blocks = numbered(0..10);
    put_all(&*store, &blocks).await;
    let asked = Arc::new(Mutex::new(HashSet::new()));
    let spared = {
        let (kept, asked) = (*blocks[3].cid().hash(), Arc::clone(&asked));
        move |hash: &Multihash| {
            asked.lock().unwrap().insert(*hash);
            *hash == kept
        }
    };
    let names = [cids(&blocks[2..5]), vec![*block("never there").cid(), *blocks[2].cid()]].concat();
    let epoch = store.epoch();
    let gone = store.delete_unless(&names, Arc::new(spared.clone())).await.unwrap();
    assert_eq!(gone, [true, false, true, false, false]);
    assert_ne!(store.epoch(), epoch);
    assert_eq!(*asked.lock().unwrap(), blocks[2..5].iter().map(|block| *block.cid().hash()).collect());
    assert_lacks(&*store, &[blocks[2].clone(), blocks[4].clone()]).await;
    assert_holds(&*store, &[&blocks[..2], &blocks[3..4], &blocks[5..]].concat()).await;

    assert_eq!(store.delete_unless(&cids(&blocks[3..4]), Arc::new(spared)).await.unwrap(), [false]);
    assert_holds(&*store, &blocks[3..4]).await;
    assert_eq!(store.delete_many(&cids(&blocks[3..4])).await.unwrap(), [true]);
}

/// Users mark blocks as wanted and put them, while a collector deletes all blocks that are not marked.
pub async fn a_deletion_that_asks_at_the_last_moment_loses_no_block_that_is_wanted(store: Store) {
    let wanted = Arc::new(Mutex::new(HashSet::new()));
    let blocks = numbered(0..600);
    put_all(&*store, &blocks[..300]).await;
    let collector = {
        let (store, wanted, names) = (Arc::clone(&store), Arc::clone(&wanted), cids(&blocks));
        tokio::spawn(async move {
            while wanted.lock().unwrap().len() < names.len() {
                let wanted = Arc::clone(&wanted);
                store.delete_unless(&names, Arc::new(move |hash| wanted.lock().unwrap().contains(hash))).await.unwrap();
            }
        })
    };
    for part in blocks.chunks(7) {
        wanted.lock().unwrap().extend(part.iter().map(|block| *block.cid().hash()));
        put_all(&*store, part).await;
        assert_holds(&*store, part).await;
    }
    collector.await.unwrap();
    assert_holds(&*store, &blocks).await;
}

pub async fn bytes_in_use_outlive_their_deletion(store: Store) {
    let block = random_block(100_000);
    store.put(block.clone()).await.unwrap();
    let held = store.require(block.cid()).await.unwrap().slice(10..90_000);
    store.delete_many(&[*block.cid()]).await.unwrap();
    put_all(&*store, &numbered(0..1_000)).await;
    assert_eq!(held, block.data()[10..90_000]);
}

pub async fn compaction_changes_nothing_that_can_be_read(store: Store) {
    let blocks: Vec<_> = (0..60).map(|n| random_block(n * 300)).collect();
    put_all(&*store, &blocks).await;
    let held = store.require(blocks[59].cid()).await.unwrap();
    let (gone, kept) = blocks.split_at(40);
    store.delete_many(&cids(gone)).await.unwrap();
    put_all(&*store, &gone[..10]).await;
    let kept = [kept, &gone[..10]].concat();
    for min_dead_share in [1.0, 0.25, 0.0, 0.0] {
        let compacted = store.compact(CompactOptions::from_share(min_dead_share)).await.unwrap();
        assert_eq!(compacted.damaged, []);
        assert_holds(&*store, &kept).await;
        assert_lacks(&*store, &gone[10..]).await;
        assert_eq!(listed(&*store).await, sorted(cids(&kept)));
        assert_eq!(store.stats().await.unwrap().blocks, 30);
    }
    assert_eq!(store.stats().await.unwrap().dead_bytes, 0);
    assert_eq!(held, blocks[59].data());
    assert_eq!(put_all(&*store, &blocks[..11]).await, [vec![Stored::Present; 10], vec![Stored::New]].concat());
    let refused = store.compact(CompactOptions::from_share(f64::NAN)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

pub async fn iterate_lists_what_stays_while_blocks_come_and_go(store: Store) {
    let (stays, goes, comes) = (numbered(0..2_500), numbered(2_500..3_500), numbered(3_500..4_500));
    put_all(&*store, &stays).await;
    put_all(&*store, &goes).await;
    let mut stream = store.iterate();
    let mut seen = vec![stream.try_next().await.unwrap().unwrap()];
    store.delete_many(&cids(&goes)).await.unwrap();
    put_all(&*store, &comes).await;
    while let Some(cid) = stream.try_next().await.unwrap() {
        seen.push(cid);
    }
    let seen = sorted(seen);
    let mut once = seen.clone();
    once.dedup();
    assert_eq!(seen, once, "a block was listed twice");
    let stays = sorted(cids(&stays));
    assert!(stays.iter().all(|cid| seen.binary_search(cid).is_ok()));
    assert_eq!(listed(&*store).await.len(), 3_500);
}

pub async fn many_small_blocks_in_one_call(store: Store) {
    let blocks = numbered(0..20_000);
    assert_eq!(put_all(&*store, &blocks).await, vec![Stored::New; blocks.len()]);
    assert_holds(&*store, &blocks).await;
    assert_eq!(listed(&*store).await, sorted(cids(&blocks)));
    assert_eq!(store.delete_many(&cids(&blocks)).await.unwrap(), vec![true; blocks.len()]);
    assert!(listed(&*store).await.is_empty());
}

pub async fn stats_count_blocks_and_payload(store: Store) {
    let totals = || async {
        let stats = store.stats().await.unwrap();
        (stats.blocks, stats.payload_bytes)
    };
    assert_eq!(totals().await, (0, 0));
    let blocks: Vec<_> = [10, 0, 5_000, 100_000].into_iter().map(random_block).collect();
    put_all(&*store, &blocks).await;
    put_all(&*store, &blocks).await;
    assert_eq!(totals().await, (4, 105_010));
    store.delete_many(&cids(&blocks[2..])).await.unwrap();
    assert_eq!(totals().await, (2, 10));
    store.flush().await.unwrap();
    assert_eq!(totals().await, (2, 10));
}

pub async fn writers_and_readers_at_the_same_time(store: Store) {
    // Adjacent writers put overlapping blocks. Each writer reads its own blocks immediately, with different methods.
    let writers = (0..8_u32).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for round in 0..20_u32 {
                let start = writer * 500 + round * 30;
                let blocks = numbered(start..start + 60);
                put_all(&*store, &blocks).await;
                assert_holds(&*store, &blocks).await;
                let block = random_block(20_000);
                store.put(block.clone()).await.unwrap();
                assert_eq!(store.require(block.cid()).await.unwrap(), block.data());
                assert_eq!(store.delete_many(&[*block.cid()]).await.unwrap(), [true]);
                assert_eq!(store.get(block.cid()).await.unwrap(), None);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let all = numbered(0..7 * 500 + 19 * 30 + 60);
    assert_holds(&*store, &all).await;
    assert_eq!(store.stats().await.unwrap().blocks, all.len() as u64);
}

pub async fn dropped_futures_and_streams_leave_the_store_usable(store: Store) {
    let blocks = numbered(0..1_000);
    for part in blocks.chunks(50) {
        // Polled once, then dropped: the put may or may not have taken effect.
        let put = store.put_many(part.to_vec(), PutMode::Atomic);
        let _ = tokio::time::timeout(Duration::ZERO, put).await;
    }
    put_all(&*store, &blocks).await;
    store.delete_many(&cids(&blocks[..500])).await.unwrap();
    for millis in 0..5 {
        let compaction = store.compact(CompactOptions::from_share(0.0));
        let _ = tokio::time::timeout(Duration::from_millis(millis), compaction).await;
    }
    put_all(&*store, &blocks).await;
    for taken in [1, 127, 128, 129, 500] {
        let some: Vec<_> = store.get_many(cids(&blocks)).take(taken).try_collect().await.unwrap();
        assert_eq!(some.len(), taken);
        assert_eq!(store.iterate().take(taken).count().await, taken);
    }
    assert_holds(&*store, &blocks).await;
    assert_eq!(store.stats().await.unwrap().blocks, 1_000);
}

pub async fn iterate_after_continues_behind_a_block(store: Store) {
    put_all(&*store, &numbered(0..40)).await;
    let all: Vec<_> = store.iterate().try_collect().await.unwrap();
    let rest = async |after: &Cid| match store.iterate_after(after).try_collect::<Vec<_>>().await {
        Ok(rest) => Some(rest),
        // An engine without an order.
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Unsupported);
            None
        }
    };
    for (index, cid) in all.iter().enumerate() {
        assert!(rest(cid).await.is_none_or(|rest| rest == all[index + 1..]));
    }
    // The block may have been removed since.
    store.delete_many(&all[..1]).await.unwrap();
    assert!(rest(&all[0]).await.is_none_or(|rest| rest == all[1..]));
}
