//! The gateway alone, through a real socket: `cargo bench --bench http_benchmarks [-- GROUP]`.
//!
//! Client and gateway share this process and its cores, so the figures only compare one version with the next. The
//! target `peers` compares the gateway with other servers.

use std::cell::LazyCell;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use criterion::{BatchSize, BenchmarkId, Criterion, SamplingMode, Throughput};
use ipfrs_benches::{
    Batch, Client, Gateway, Multipart, Offsets, Profile, config, get, get_range, get_with, must, random, text,
};
use serde_json::json;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// Sizes of ranges and uploads.
const SIZES: [(&str, usize); 4] = [("1KB", KIB), ("64KB", 64 * KIB), ("1MB", MIB), ("10MB", 10 * MIB)];
/// Size of the file that ranges are read from, in bytes.
const LARGE_BYTES: usize = 64 * MIB;
/// Block size of the imported files, in bytes.
const LEAF_BYTES: usize = 256 * KIB;
/// Number of different range requests.
const RANGES: usize = 64;

fn main() {
    // Ten is the minimum sample size of criterion.
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    simple_get(&mut criterion);
    range_requests(&mut criterion);
    batch_operations(&mut criterion);
    upload(&mut criterion);
    concurrent(&mut criterion);
    compression(&mut criterion);
    criterion.final_summary();
}

/// Starts a gateway on the disk of the build directory, because the system's directory for temporary files may be in
/// memory.
fn gateway() -> Gateway {
    must(Gateway::start(Path::new(env!("CARGO_TARGET_TMPDIR"))))
}

/// Returns a gateway with one file of `bytes` bytes and the path of the file, after comparing its content.
fn serving(bytes: usize) -> Result<(Gateway, String)> {
    let gateway = gateway();
    let mut client = Client::connect(gateway.address())?;
    let content = random(0, bytes);
    let mut form = Multipart::default();
    form.file(&content);
    let path = format!("/ipfs/{}", form.send(&mut client, Profile::DagPb)?.concat());
    client.send(&get(&path))?;
    client.compare(200, content.as_slice())?;
    Ok((gateway, path))
}

fn simple_get(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("simple_get");
    group.throughput(Throughput::Elements(1));
    group.bench_function("1KB", |bencher| {
        let (gateway, path) = must(serving(KIB));
        let mut client = must(Client::connect(gateway.address()));
        let request = get(&path);
        bencher.iter(|| must(client.exchange(&request, 200, KIB as u64)));
    });
    group.finish();
}

fn range_requests(criterion: &mut Criterion) {
    // Created on first use, so that a run of other groups does not wait for it.
    let served = LazyCell::new(|| must(serving(LARGE_BYTES)));
    let mut group = criterion.benchmark_group("range_requests");
    for (name, bytes) in SIZES {
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(name, |bencher| {
            let (gateway, path) = &*served;
            let mut client = must(Client::connect(gateway.address()));
            let offsets = Offsets::new(LARGE_BYTES as u64, bytes as u64).take(RANGES);
            let requests: Vec<_> = offsets.map(|start| get_range(path, start, bytes as u64)).collect();
            let mut requests = requests.iter().cycle();
            bencher.iter(|| requests.next().map(|request| must(client.exchange(request, 206, bytes as u64))));
        });
    }
    group.finish();
}

type Fetch = fn(&Batch, &mut Client) -> Result<()>;

fn batch_operations(criterion: &mut Criterion) {
    const WAYS: [(&str, Fetch); 3] =
        [("single_gets", Batch::fetch_one_by_one), ("batch_json", Batch::fetch_json), ("batch_car", Batch::fetch_car)];
    let gateway = LazyCell::new(gateway);
    let mut group = criterion.benchmark_group("batch_operations");
    for count in [1, 10, 100, 1_000] {
        let batch = LazyCell::new(|| {
            must(Client::connect(gateway.address()).and_then(|mut c| Batch::prepare(&mut c, count, KIB)))
        });
        group.throughput(Throughput::Elements(count as u64));
        for (name, fetch) in WAYS {
            group.bench_function(BenchmarkId::new(name, count), |bencher| {
                let mut client = must(Client::connect(gateway.address()));
                let batch = &*batch;
                bencher.iter(|| must(fetch(batch, &mut client)));
            });
        }
    }
    group.finish();
}

fn upload(criterion: &mut Criterion) {
    let gateway = LazyCell::new(gateway);
    let mut count = 0_u64;
    let mut group = criterion.benchmark_group("upload");
    // Flat sampling uses the same number of uploads in each sample. Linear sampling would take several times as long.
    group.sampling_mode(SamplingMode::Flat);
    for (name, bytes) in SIZES {
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(name, |bencher| {
            let mut client = must(Client::connect(gateway.address()));
            let mut content = random(bytes as u64, bytes);
            let form = || {
                // No block may be in the store already.
                count += 1;
                content.chunks_mut(LEAF_BYTES).for_each(|leaf| leaf[..8].copy_from_slice(&count.to_le_bytes()));
                let mut form = Multipart::default();
                form.file(&content);
                form
            };
            bencher.iter_batched(form, |form| must(form.send(&mut client, Profile::DagPb)), BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Sends one request on each of many connections, all from a single thread, and then reads all responses.
fn concurrent(criterion: &mut Criterion) {
    let served = LazyCell::new(|| must(serving(KIB)));
    let mut group = criterion.benchmark_group("concurrent");
    for connections in [1, 10, 100, 1_000] {
        group.throughput(Throughput::Elements(connections));
        group.bench_function(BenchmarkId::from_parameter(connections), |bencher| {
            let (gateway, path) = &*served;
            let request = get(path);
            let clients = (0..connections).map(|_| Client::connect(gateway.address()));
            let mut clients = must(clients.collect::<Result<Vec<_>>>());
            bencher.iter(|| {
                clients.iter_mut().for_each(|client| must(client.send(&request)));
                clients.iter_mut().for_each(|client| assert_eq!(must(client.discard(200)), KIB as u64));
            });
        });
    }
    group.finish();
}

/// Requests texts in each content coding at each level, and without a coding. `first` measures texts that were never
/// requested before, `again` texts that were. Prints the compression ratios.
fn compression(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("compression");
    // Flat sampling: each response in `first` requires an upload beforehand.
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Bytes(MIB as u64));
    for level in ["fastest", "balanced", "best"] {
        let gateway = LazyCell::new(|| must(compressing(level)));
        let mut seed = 0;
        for coding in ["identity", "gzip", "br", "zstd"] {
            let name = format!("{coding}/{level}");
            group.bench_function(format!("{name}/first"), |bencher| {
                let mut client = must(Client::connect(gateway.address()));
                let mut uploads = must(Client::connect(gateway.address()));
                let upload = || {
                    seed += 1;
                    must(text_request(&mut uploads, seed, coding))
                };
                bencher.iter_batched(upload, |request| must(fetch(&mut client, &request)), BatchSize::PerIteration);
            });
            group.bench_function(format!("{name}/again"), |bencher| {
                let mut client = must(Client::connect(gateway.address()));
                let request = must(text_request(&mut client, 0, coding));
                let bytes = must(fetch(&mut client, &request));
                must(check_coding(bytes, coding));
                eprintln!("compression/{name}: {:.2} times smaller", MIB as f64 / bytes as f64);
                bencher.iter(|| assert_eq!(must(fetch(&mut client, &request)), bytes));
            });
        }
    }
    group.finish();
}

fn compressing(level: &str) -> Result<Gateway> {
    let mut config = config(None);
    config.compression.level = serde_json::from_value(json!(level)).context("there is no such level")?;
    Gateway::start_with(Path::new(env!("CARGO_TARGET_TMPDIR")), &config)
}

/// Adds a text and returns the request for it in a content coding.
fn text_request(client: &mut Client, seed: u64, coding: &str) -> Result<Vec<u8>> {
    let mut form = Multipart::default();
    form.file(&text(seed, MIB));
    let cid = form.send(client, Profile::DagPb)?.concat();
    Ok(get_with(&format!("/ipfs/{cid}?filename=text.txt"), &format!("Accept-Encoding: {coding}\r\n")))
}

/// Returns the length of the response body.
fn fetch(client: &mut Client, request: &[u8]) -> Result<u64> {
    client.send(request)?;
    client.discard(200)
}

fn check_coding(bytes: u64, coding: &str) -> Result<()> {
    let is_whole = bytes == MIB as u64;
    ensure!(is_whole == (coding == "identity"), "{coding}: received {bytes} bytes for {MIB}");
    Ok(())
}
