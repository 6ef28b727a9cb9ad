//! The pack store on a disk: `cargo bench --bench store_benchmarks [-- GROUP]`.

use std::path::Path;
use std::time::{Duration, Instant};

use criterion::{BatchSize, BenchmarkId, Criterion, SamplingMode, Throughput};
use futures::StreamExt;
use ipfrs_benches::{must, random};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use ipfrs_store::{BlockStore, BlockStoreExt, PackOptions, PackStore, PutMode};
use tempfile::TempDir;
use tokio::runtime::Runtime;

const BLOCK_BYTES: usize = 1_024;
/// Number of blocks in the store for reads, and in the larger store that is opened.
const FEW: u64 = 10_000;
const MANY: u64 = 100_000;
/// Number of blocks in one atomic put.
const PUT_TOGETHER: u64 = 10_000;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let runtime = must(Runtime::new());
    put(&mut criterion, &runtime);
    read(&mut criterion, &runtime);
    open(&mut criterion, &runtime);
    criterion.final_summary();
}

/// Creates raw blocks from `seeds`.
fn blocks(seeds: impl Iterator<Item = u64>) -> Vec<Block> {
    let data = seeds.map(|seed| random(seed, BLOCK_BYTES).into()).collect();
    must(Block::hash_all(1, codec::RAW, HashFunction::Sha2_256, data))
}

/// Creates a directory on the disk of the build directory, because the system's directory for temporary files may be
/// in memory.
fn scratch() -> TempDir {
    must(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")))
}

fn store(directory: &Path) -> PackStore {
    must(PackStore::open(directory, PackOptions::default()))
}

/// Puts all blocks atomically and waits until they are durable.
async fn put_all(store: &PackStore, blocks: Vec<Block>) {
    for stored in store.put_many(blocks, PutMode::Atomic).await {
        must(stored);
    }
}

/// Puts `count` blocks into the store and returns their content IDs.
fn fill(runtime: &Runtime, store: &PackStore, count: u64) -> Vec<Cid> {
    let mut cids = Vec::new();
    let seeds: Vec<_> = (0..count).collect();
    for seeds in seeds.chunks(PUT_TOGETHER as usize) {
        let blocks = blocks(seeds.iter().copied());
        cids.extend(blocks.iter().map(|block| *block.cid()));
        runtime.block_on(put_all(store, blocks));
    }
    cids
}

/// Measures puts of new blocks until they are durable.
fn put(criterion: &mut Criterion, runtime: &Runtime) {
    let directory = scratch();
    let store = store(directory.path());
    let mut seeds = 0..;
    let mut group = criterion.benchmark_group("put");
    group.sampling_mode(SamplingMode::Flat);
    for count in [1, 100, 1_000] {
        group.throughput(Throughput::Elements(count));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.to_async(runtime).iter_batched(
                || blocks(seeds.by_ref().take(count as usize)),
                |blocks| put_all(&store, blocks),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
    must(runtime.block_on(store.close()));
}

/// Measures reads of blocks in the page cache, and existence checks.
fn read(criterion: &mut Criterion, runtime: &Runtime) {
    let directory = scratch();
    let store = store(directory.path());
    let cids = fill(runtime, &store, FEW);
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(1));
    let mut places = cids.iter().cycle();
    let mut next = || places.next().copied().unwrap_or_default();
    group.bench_function("get/hot", |bencher| {
        let get = async |cid| must(store.require(&cid).await);
        bencher.to_async(runtime).iter_batched(&mut next, get, BatchSize::SmallInput);
    });
    group.bench_function("has/1", |bencher| {
        let size = async |cid| must(store.size(&cid).await);
        bencher.to_async(runtime).iter_batched(&mut next, size, BatchSize::SmallInput);
    });
    for count in [100, 1_000] {
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(BenchmarkId::new("has", count), |bencher| {
            bencher.to_async(runtime).iter(|| async { must(store.has_many(&cids[..count]).await) });
        });
        group.bench_function(BenchmarkId::new("get_many", count), |bencher| {
            bencher.to_async(runtime).iter(|| async {
                let mut found = store.get_many(cids[..count].to_vec());
                while let Some(block) = found.next().await {
                    assert!(must(block).1.is_some(), "a block is missing");
                }
            });
        });
    }
    group.finish();
    must(runtime.block_on(store.close()));
}

/// Measures opening a store that was closed cleanly.
fn open(criterion: &mut Criterion, runtime: &Runtime) {
    let mut group = criterion.benchmark_group("open");
    group.sampling_mode(SamplingMode::Flat);
    for count in [FEW, MANY] {
        let directory = scratch();
        let filled = store(directory.path());
        fill(runtime, &filled, count);
        must(runtime.block_on(filled.close()));
        drop(filled);
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    let start = Instant::now();
                    let opened = store(directory.path());
                    total += start.elapsed();
                    must(runtime.block_on(opened.close()));
                }
                total
            });
        });
    }
    group.finish();
}
