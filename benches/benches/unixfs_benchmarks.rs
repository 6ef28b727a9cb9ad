//! Files and directories on blocks in memory: `cargo bench --bench unixfs_benchmarks [-- GROUP]`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use criterion::{Criterion, SamplingMode, Throughput};
use futures::{StreamExt, stream};
use ipfrs_benches::{must, random};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, Result, codec};
use ipfrs_store::{BlockStoreExt, MemoryStore};
use ipfrs_stream::{BlockStoreSource, DagReader, Span, StoreSink, StreamingConfig};
use ipfrs_unixfs::{
    Attributes, BlockSink, Chunker, Entry, EntryKind, ImportOptions, Importer, LinkName, Node, Overrides, Profile,
    decode, entries, resolve,
};
use tokio::runtime::Runtime;

const MIB: usize = 1_024 * 1_024;
const FILE_BYTES: usize = 64 * MIB;
/// Size of the pieces of a body that arrives from a socket.
const PIECE_BYTES: usize = 256 * 1_024;
/// Number of directories above the file with the deep path.
const DEPTH: usize = 32;
const ENTRIES: usize = 10_000;

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let runtime = must(Runtime::new());
    import(&mut criterion, &runtime);
    read(&mut criterion, &runtime);
    paths(&mut criterion, &runtime);
    hamt(&mut criterion, &runtime);
    criterion.final_summary();
}

/// A sink that accepts every block and keeps none.
struct Nowhere;

#[async_trait]
impl BlockSink for Nowhere {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        Ok(())
    }
}

fn options(profile: Profile, chunker: Option<Chunker>) -> ImportOptions {
    must(ImportOptions::new(Some(profile), Overrides { chunker, ..Overrides::default() }))
}

async fn import_file(options: ImportOptions, content: &Bytes, sink: Arc<dyn BlockSink>) -> Entry {
    let pieces = (0..content.len()).step_by(PIECE_BYTES);
    let pieces = pieces.map(|start| Ok(content.slice(start..content.len().min(start + PIECE_BYTES))));
    let mut importer = Importer::new(options, sink);
    let file = must(importer.file(stream::iter(pieces), Attributes::default(), &mut |_| ()).await);
    must(importer.flush().await);
    file
}

/// Measures chunking and hashing a file whose blocks are discarded.
fn import(criterion: &mut Criterion, runtime: &Runtime) {
    let rabin = Chunker::Rabin { min: 87_381, avg: 262_144, max: 393_216 };
    let content: Bytes = random(0, FILE_BYTES).into();
    let mut group = criterion.benchmark_group("import");
    group.sampling_mode(SamplingMode::Flat).throughput(Throughput::Bytes(FILE_BYTES as u64));
    for (name, profile, chunker) in [
        ("dag_pb_256KiB", Profile::UnixfsV0_2015, None),
        ("raw_1MiB", Profile::UnixfsV1_2025, None),
        ("rabin", Profile::UnixfsV1_2025, Some(rabin)),
        ("buzhash", Profile::UnixfsV1_2025, Some(Chunker::Buzhash)),
    ] {
        let options = options(profile, chunker);
        group.bench_function(name, |bencher| {
            bencher.to_async(runtime).iter(|| import_file(options.clone(), &content, Arc::new(Nowhere)));
        });
    }
    group.finish();
}

/// Measures reading all pieces of a file.
fn read(criterion: &mut Criterion, runtime: &Runtime) {
    let content: Bytes = random(0, FILE_BYTES).into();
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Bytes(FILE_BYTES as u64));
    for (name, profile) in [("dag_pb_256KiB", Profile::UnixfsV0_2015), ("raw_1MiB", Profile::UnixfsV1_2025)] {
        let store = Arc::new(MemoryStore::default());
        let sink = Arc::new(StoreSink(store.clone()));
        let root = runtime.block_on(import_file(options(profile, None), &content, sink)).cid;
        let Node::File(file) = must(decode(&root, &must(runtime.block_on(store.require(&root))))) else {
            panic!("a file was imported with a different CID");
        };
        group.bench_function(name, |bencher| {
            bencher.to_async(runtime).iter(|| async {
                let span = Span::whole(file.size);
                let mut reader = DagReader::new(store.clone(), &file, span, &StreamingConfig::default());
                let mut bytes_read = 0;
                while let Some(piece) = reader.next().await {
                    bytes_read += must(piece).len();
                }
                assert_eq!(bytes_read, FILE_BYTES);
            });
        });
    }
    group.finish();
}

/// Measures resolving the path of a file below many directories.
fn paths(criterion: &mut Criterion, runtime: &Runtime) {
    let store = Arc::new(MemoryStore::default());
    let root: Cid = runtime.block_on(async {
        let mut importer = Importer::new(ImportOptions::default(), Arc::new(StoreSink(store.clone())));
        let content = stream::iter([Ok(Bytes::from_static(b"deep"))]);
        let mut entry = must(importer.file(content, Attributes::default(), &mut |_| ()).await);
        for _ in 0..DEPTH {
            entry = must(importer.directory(vec![("below".into(), entry)], Attributes::default()).await);
        }
        must(importer.flush().await);
        entry.cid
    });
    let (source, segments) = (BlockStoreSource(store), vec![LinkName::from("below"); DEPTH]);
    criterion.bench_function(&format!("resolve/{DEPTH}_directories"), |bencher| {
        bencher.to_async(runtime).iter(|| async { must(resolve(&source, &root, &segments).await) });
    });
}

/// Measures a directory with many shards: creation, listing, and lookup of one name.
fn hamt(criterion: &mut Criterion, runtime: &Runtime) {
    let store = Arc::new(MemoryStore::default());
    let source = Arc::new(BlockStoreSource(store.clone()));
    let options = must(ImportOptions::new(
        Some(Profile::UnixfsV1_2025),
        Overrides { max_directory_links: Some(1_000), ..Overrides::default() },
    ));
    let file = must(Block::hash(1, codec::RAW, HashFunction::Sha2_256, random(0, 8).into()));
    let leaf = Entry { cid: *file.cid(), tsize: 8, size: 8, kind: EntryKind::File };
    must(runtime.block_on(store.put(file)));
    let names: Vec<_> =
        (0..ENTRIES).map(|index| (LinkName::from(format!("file-{index:05}.txt")), leaf.clone())).collect();
    let make = async |sink: Arc<dyn BlockSink>| {
        let mut importer = Importer::new(options.clone(), sink);
        let directory = must(importer.directory(names.clone(), Attributes::default()).await);
        must(importer.flush().await);
        directory.cid
    };
    let root = runtime.block_on(make(Arc::new(StoreSink(store.clone()))));
    let node = Arc::new(must(decode(&root, &must(runtime.block_on(store.require(&root))))));
    assert!(matches!(*node, Node::HamtShard(_)), "the directory is in one block");

    let mut group = criterion.benchmark_group("hamt");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    group.bench_function("make", |bencher| bencher.to_async(runtime).iter(|| make(Arc::new(Nowhere))));
    group.bench_function("list", |bencher| {
        bencher.to_async(runtime).iter(|| async {
            assert_eq!(entries(source.clone(), node.clone()).count().await, ENTRIES);
        });
    });
    group.throughput(Throughput::Elements(1));
    let name = [LinkName::from("file-04711.txt")];
    group.bench_function("find", |bencher| {
        bencher.to_async(runtime).iter(|| async { must(resolve(source.as_ref(), &root, &name).await) });
    });
    group.finish();
}
