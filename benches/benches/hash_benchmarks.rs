//! Hash functions on one core: `cargo bench --bench hash_benchmarks [-- GROUP]`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use ipfrs_benches::{must, random};
use ipfrs_core::hash::HashFunction;

const KIB: usize = 1_024;
/// Message lengths.
const SIZES: [(&str, usize); 4] = [("1KiB", KIB), ("4KiB", 4 * KIB), ("256KiB", 256 * KIB), ("1MiB", 1_024 * KIB)];
/// Numbers of messages that are hashed together.
const COUNTS: [usize; 3] = [16, 8, 4];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    sha2_256(&mut criterion);
    one_by_one(&mut criterion, "blake3", HashFunction::Blake3);
    criterion.final_summary();
}

/// Hashes messages one by one, and several at once.
fn sha2_256(criterion: &mut Criterion) {
    const GROUP: &str = "sha2-256";
    one_by_one(criterion, GROUP, HashFunction::Sha2_256);
    let mut group = criterion.benchmark_group(GROUP);
    for (name, bytes) in SIZES {
        for count in COUNTS {
            let messages: Vec<_> = (0..count).map(|seed| random(seed as u64, bytes)).collect();
            let messages: Vec<_> = messages.iter().map(Vec::as_slice).collect();
            group.throughput(Throughput::Bytes((count * bytes) as u64));
            group.bench_function(BenchmarkId::new(format!("{count}_at_once"), name), |bencher| {
                bencher.iter(|| must(HashFunction::Sha2_256.digests(black_box(&messages))));
            });
        }
    }
    group.finish();
}

fn one_by_one(criterion: &mut Criterion, name: &str, function: HashFunction) {
    let mut group = criterion.benchmark_group(name);
    for (size, bytes) in SIZES {
        let message = random(0, bytes);
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("one_by_one", size), |bencher| {
            bencher.iter(|| must(function.digest(black_box(&message))));
        });
    }
    group.finish();
}
