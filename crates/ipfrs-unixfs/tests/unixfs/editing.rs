//! Changes of files and directories, compared with imports of the result and with a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result};
use ipfrs_unixfs::{
    Attributes, BlockSink, BlockSource, Chunker, CidFormat, DirectoryEdit, DirectorySize, Entry, EntryKind, FileEdit,
    ImportOptions, Importer, Layout, LinkName, Mtime, NewLink, Overrides, Sharding, Staging,
};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::harness::{Memory, import_file, random_bytes, read_file};

const NOW: Mtime = Mtime { seconds: 1_700_000_000, nanos: 0 };

fn v1() -> CidFormat {
    CidFormat::new(1, None).unwrap()
}

/// Stores an empty file and returns its content ID.
fn empty_file(store: &Memory, format: CidFormat) -> Cid {
    let block = FileEdit::empty(format).unwrap();
    let cid = *block.cid();
    store.insert(block);
    cid
}

async fn open(store: &Arc<Memory>, cid: &Cid) -> FileEdit {
    open_with(store, cid, Chunker::default()).await
}

async fn open_with<S: BlockSource + BlockSink + 'static>(store: &Arc<S>, cid: &Cid, chunker: Chunker) -> FileEdit {
    FileEdit::open(Arc::clone(store) as _, Arc::clone(store) as _, cid, None, chunker, NOW).await.unwrap()
}

/// Ends a change and returns the root and the number of new blocks.
async fn finish(store: &Memory, edit: FileEdit) -> (NewLink, usize) {
    let (link, blocks) = edit.finish().await.unwrap();
    let count = blocks.len();
    blocks.into_iter().for_each(|block| store.insert(block));
    (link, count)
}

async fn write(store: &Arc<Memory>, cid: &Cid, offset: u64, content: Bytes) -> (NewLink, usize) {
    let mut edit = open(store, cid).await;
    edit.seek(offset).await.unwrap();
    edit.write(content).await.unwrap();
    finish(store, edit).await
}

#[tokio::test]
async fn content_written_at_once_has_the_cid_of_a_trickle_import() {
    let content = random_bytes(5 * 1024 * 1024 + 12_345);
    for (format, raw_leaves) in [(CidFormat::V0, false), (v1(), true)] {
        for len in [1, 262_144, 262_145, 2 * 1024 * 1024, content.len()] {
            let store = Arc::new(Memory::default());
            let content = content.slice(..len);
            let overrides = Overrides {
                layout: Some(Layout::Trickle),
                cid_version: Some(format.version()),
                raw_leaves: Some(raw_leaves),
                ..Overrides::default()
            };
            let options = ImportOptions::new(None, overrides).unwrap();
            let (_, imported) = import_file(options, &content, 100_000).await;
            let (written, _) = write(&store, &empty_file(&store, format), 0, content.clone()).await;
            assert_eq!(read_file(&store, &written.cid), content);
            // A file of one raw leaf is that leaf.
            if !raw_leaves || len > 262_144 {
                assert_eq!((written.cid, written.tsize), (imported.cid, imported.tsize), "{len} bytes");
            }
        }
    }
}

#[tokio::test]
async fn content_written_in_pieces_is_split_every_2_mib() {
    const PART: usize = 2 * 1024 * 1024;
    let content = random_bytes(4 * PART + PART / 2 + 12_345);
    let chunkers = [Chunker::default(), Chunker::Size(10_000), Chunker::Buzhash];
    let settings = chunkers.into_iter().flat_map(|chunker| [(CidFormat::V0, chunker), (v1(), chunker)]);
    for (format, chunker) in settings {
        let mut files = Vec::new();
        for lens in [[PART, PART], [content.len(), 1], [1 << 20, 1 << 20], [100_000, 7], [70_000, 5_000_000]] {
            let store = Arc::new(Memory::default());
            let mut edit = open_with(&store, &empty_file(&store, format), chunker).await;
            let (mut written, mut lens) = (0, lens.into_iter().cycle());
            while written < content.len() {
                if files.is_empty() {
                    // Ends the part.
                    edit.seek(written as u64).await.unwrap();
                }
                let end = content.len().min(written + lens.next().unwrap());
                edit.write(content.slice(written..end)).await.unwrap();
                written = end;
                assert_eq!(edit.size(), written as u64);
            }
            let (file, _) = finish(&store, edit).await;
            assert_eq!(read_file(&store, &file.cid), content);
            files.push(file);
        }
        assert!(files.iter().all(|file| *file == files[0]), "{chunker}: {files:?}");
    }
}

/// A store in which each put takes some time.
#[derive(Default)]
struct Slow(Memory);

#[async_trait]
impl BlockSink for Slow {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.0.put(blocks).await
    }
}

#[async_trait]
impl BlockSource for Slow {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.0.block(cid).await
    }
}

#[tokio::test(start_paused = true)]
async fn leaf_that_is_being_stored_can_be_overwritten() {
    let store = Arc::new(Slow::default());
    let mut content = random_bytes(12 * 1024 * 1024).to_vec();
    let mut cid = empty_file(&store.0, v1());
    // The second write ends its parts in the middle of leaves.
    for (offset, written) in [(0, Bytes::from(content.clone())), (1_000, random_bytes(11 * 1024 * 1024 + 1))] {
        let mut edit = open_with(&store, &cid, Chunker::default()).await;
        edit.seek(offset).await.unwrap();
        edit.write(written.clone()).await.unwrap();
        cid = finish(&store.0, edit).await.0.cid;
        content[offset as usize..][..written.len()].copy_from_slice(&written);
        assert_eq!(read_file(&store.0, &cid), content);
    }
}

#[tokio::test]
async fn write_creates_only_the_leaf_and_the_nodes_above_it() {
    let store = Arc::new(Memory::default());
    let content = random_bytes(10 * 262_144);
    let (file, _) = write(&store, &empty_file(&store, CidFormat::V0), 0, content.clone()).await;
    let (changed, blocks) = write(&store, &file.cid, 3 * 262_144 + 5, "changed".into()).await;
    assert_eq!(blocks, 2, "a leaf and the root");
    let mut expected = content.to_vec();
    expected[3 * 262_144 + 5..][..7].copy_from_slice(b"changed");
    assert_eq!(read_file(&store, &changed.cid), expected);
    let (_, blocks) = write(&store, &file.cid, content.len() as u64, "appended".into()).await;
    assert_eq!(blocks, 2, "a leaf and the root");
}

#[tokio::test]
async fn hole_over_the_limit_is_refused() {
    let store = Arc::new(Memory::default());
    let mut edit = open(&store, &empty_file(&store, CidFormat::V0)).await;
    edit.seek(600 * 4_096).await.unwrap();
    assert_eq!(edit.size(), 600 * 4_096);
    assert!(edit.seek(u64::MAX).await.is_err());
    let (file, blocks) = finish(&store, edit).await;
    assert!(blocks < 10, "equal leaves are one block: {blocks}");
    assert_eq!(read_file(&store, &file.cid), vec![0; 600 * 4_096]);
}

/// A step of the model test.
#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize),
    Truncate(u64),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let offset = || prop_oneof![0..3_000_u64, 0..900_000_u64, Just(262_144_u64)];
    let len = prop_oneof![0..2_000_usize, 200_000..700_000_usize];
    let step = prop_oneof![
        4 => (offset(), len).prop_map(|(offset, len)| Step::Write(offset, len)),
        2 => offset().prop_map(Step::Truncate),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn file_has_the_content_of_a_model(steps in steps(), version in 0..=1_i64, inline in any::<bool>()) {
        Runtime::new().unwrap().block_on(async {
            let noise = random_bytes(700_000);
            let format = CidFormat::new(version, None).unwrap();
            let (store, mut cid, mut model) = if inline {
                // The content of an imported file may be in its root.
                let (store, entry) = import_file(ImportOptions::default(), &noise.slice(..500), 500).await;
                (store, entry.cid, noise[..500].to_vec())
            } else {
                let store = Arc::new(Memory::default());
                let cid = empty_file(&store, format);
                (store, cid, Vec::new())
            };
            let mut edit = open(&store, &cid).await;
            for step in steps {
                match step {
                    Step::Write(offset, len) => {
                        edit.seek(offset).await.unwrap();
                        edit.write(noise.slice(..len)).await.unwrap();
                        let end = offset as usize + len;
                        model.resize(model.len().max(end), 0);
                        model[offset as usize..end].copy_from_slice(&noise[..len]);
                    }
                    Step::Truncate(size) => {
                        edit.truncate(size).await.unwrap();
                        model.resize(size as usize, 0);
                    }
                    Step::Reopen => {
                        cid = finish(&store, edit).await.0.cid;
                        edit = open(&store, &cid).await;
                    }
                }
            }
            cid = finish(&store, edit).await.0.cid;
            assert_eq!(read_file(&store, &cid), model);
        });
    }

    #[test]
    fn directory_has_the_cid_of_an_import(names in prop::collection::btree_set("[a-d]{1,3}", 0..40), removed in 0..40_usize) {
        Runtime::new().unwrap().block_on(async {
            let staging = Staging::new(Arc::new(Memory::default()));
            let mut directory = DirectoryEdit::empty(CidFormat::V0, Sharding::default());
            let mut entries = BTreeMap::new();
            // Added in another order than that of the names.
            for name in names.iter().rev() {
                entries.insert(name.clone(), link(name));
                directory.insert(&staging, &name.as_str().into(), link(name)).await.unwrap();
            }
            for name in names.iter().take(removed) {
                entries.remove(name);
                assert!(directory.remove(&staging, &name.as_str().into()).await.unwrap());
                assert!(!directory.remove(&staging, &name.as_str().into()).await.unwrap());
            }
            let mut staging = staging;
            assert_eq!(directory.commit(&mut staging).unwrap(), imported(&entries).await);
        });
    }
}

proptest! {
    #[test]
    fn directory_that_grows_has_the_cid_of_an_import_with_the_same_sharding(
        names in prop::collection::btree_set("[a-d]{1,30}", 0..60),
        max_directory_links in prop::option::of(1..60_usize),
        sharding_threshold_bytes in prop::option::of(1..3_000_usize),
        directory_size in prop::option::of(prop::sample::select(
            vec![DirectorySize::Links, DirectorySize::Block, DirectorySize::Disabled]
        )),
        hamt_fanout in prop::option::of(prop::sample::select(vec![8, 64, 1024])),
    ) {
        Runtime::new().unwrap().block_on(async {
            let overrides = Overrides {
                max_directory_links, sharding_threshold_bytes, directory_size, hamt_fanout, ..Overrides::default()
            };
            let options = ImportOptions::new(None, overrides).unwrap();
            let mut staging = Staging::new(Arc::new(Memory::default()));
            let mut directory = DirectoryEdit::empty(options.cid_format(), options.sharding());
            let mut entries = BTreeMap::new();
            for name in names.iter().rev() {
                entries.insert(name.clone(), link(name));
                directory.insert(&staging, &name.as_str().into(), link(name)).await.unwrap();
            }
            let whole = directory.commit(&mut staging).unwrap();
            assert_eq!(whole, imported_with(options, &entries).await);
        });
    }
}

/// Returns a link to a raw block with the name as content.
fn link(name: &str) -> NewLink {
    let block = Block::hash(1, 0x55, Default::default(), Bytes::copy_from_slice(name.as_bytes())).unwrap();
    NewLink { cid: *block.cid(), tsize: name.len() as u64 }
}

async fn imported(entries: &BTreeMap<String, NewLink>) -> NewLink {
    imported_with(ImportOptions::default(), entries).await
}

async fn imported_with(options: ImportOptions, entries: &BTreeMap<String, NewLink>) -> NewLink {
    let mut importer = Importer::new(options, Arc::new(Memory::default()));
    let entries = entries.iter().map(|(name, link)| {
        let entry = Entry { cid: link.cid, tsize: link.tsize, size: link.tsize, kind: EntryKind::File };
        (LinkName::from(name.as_str()), entry)
    });
    let entry = importer.directory(entries.collect(), Attributes::default()).await.unwrap();
    NewLink { cid: entry.cid, tsize: entry.tsize }
}

#[tokio::test]
async fn directory_is_sharded_and_restored_at_the_threshold() {
    let mut staging = Staging::new(Arc::new(Memory::default()));
    let mut directory = DirectoryEdit::empty(CidFormat::V0, Sharding::default());
    let mut entries = BTreeMap::new();
    // Each entry has 80 bytes of name and content ID, so 3,276 of them fit below 256 KiB.
    let name = |n: usize| format!("{n:044}");
    for n in 0..3_276 {
        directory.insert(&staging, &name(n).into(), link(&name(n))).await.unwrap();
        entries.insert(name(n), link(&name(n)));
    }
    assert!(!directory.is_sharded());
    assert_eq!(directory.commit(&mut staging).unwrap(), imported(&entries).await);
    for n in 3_276..3_400 {
        directory.insert(&staging, &name(n).into(), link(&name(n))).await.unwrap();
        entries.insert(name(n), link(&name(n)));
        assert!(directory.is_sharded(), "{n}");
    }
    let sharded = directory.commit(&mut staging).unwrap();
    assert_eq!(sharded, imported(&entries).await);
    // Loaded again, it is the same.
    let mut directory = DirectoryEdit::load(&staging, &sharded.cid, Sharding::default()).await.unwrap();
    assert_eq!(directory.find(&staging, &name(17).into()).await.unwrap(), Some(link(&name(17))));
    assert_eq!(directory.find(&staging, &"none".into()).await.unwrap(), None);
    for n in 0..200 {
        assert!(directory.remove(&staging, &name(n).into()).await.unwrap());
        entries.remove(&name(n));
        assert_eq!(directory.commit(&mut staging).unwrap(), imported(&entries).await, "without {n}");
    }
    assert!(!directory.is_sharded());
}

/// A source that counts its loads.
#[derive(Default)]
struct CountedLoads {
    store: Memory,
    loads: AtomicUsize,
}

#[async_trait]
impl BlockSource for CountedLoads {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.store.block(cid).await
    }
}

/// Makes a directory of `count` entries, loads it again, and replaces and then removes all of them. Returns the number
/// of shards, and those that were loaded for either.
async fn loads_of_changes(count: usize) -> (usize, [usize; 2]) {
    let overrides = Overrides { sharding_threshold_bytes: Some(10_000), ..Overrides::default() };
    let options = ImportOptions::new(None, overrides).unwrap();
    let sharding = options.sharding();
    let name = |n: usize| format!("{n:010}");
    let mut staging = Staging::new(Arc::new(Memory::default()));
    let mut directory = DirectoryEdit::empty(CidFormat::V0, sharding);
    for n in 0..count {
        directory.insert(&staging, &name(n).into(), link("old")).await.unwrap();
    }
    let root = directory.commit(&mut staging).unwrap();
    let source = Arc::new(CountedLoads::default());
    let stored = |staging: &mut Staging| {
        let blocks = staging.take();
        let shards = blocks.len();
        blocks.into_iter().for_each(|block| source.store.insert(block));
        shards
    };
    let shards = stored(&mut staging);
    let mut staging = Staging::new(Arc::clone(&source) as _);
    let mut directory = DirectoryEdit::load(&staging, &root.cid, sharding).await.unwrap();
    let mut entries = BTreeMap::new();
    for n in 0..count {
        directory.insert(&staging, &name(n).into(), link("new")).await.unwrap();
        entries.insert(name(n), link("new"));
    }
    assert_eq!(directory.commit(&mut staging).unwrap(), imported_with(options, &entries).await);
    assert_eq!(stored(&mut staging), shards);
    let replacing = source.loads.swap(0, Ordering::Relaxed);
    for n in 0..count {
        assert!(directory.remove(&staging, &name(n).into()).await.unwrap());
    }
    assert!(!directory.is_sharded());
    (shards, [replacing, source.loads.load(Ordering::Relaxed)])
}

#[tokio::test]
async fn changes_of_all_entries_load_each_shard_a_few_times() {
    for count in [1_000, 10_000, 100_000] {
        let (shards, [replacing, removing]) = loads_of_changes(count).await;
        eprintln!("MEASURED {count}: {shards} {replacing} {removing}");
        assert!(shards > 100, "{shards}");
        assert!(replacing <= 2 * shards && removing <= 5 * shards, "{replacing} and {removing} of {shards}");
    }
}

/// A source that fails after some loads.
struct FailingLoads {
    store: Arc<Memory>,
    left: AtomicUsize,
    failure: fn(&Cid) -> Error,
}

#[async_trait]
impl BlockSource for FailingLoads {
    async fn block(&self, cid: &Cid) -> Result<Bytes> {
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => self.store.block(cid).await,
            Err(_) => Err((self.failure)(cid)),
        }
    }
}

#[tokio::test]
async fn change_ignores_lost_shards_that_it_need_not_load() {
    let overrides = Overrides { sharding_threshold_bytes: Some(10_000), ..Overrides::default() };
    let sharding = ImportOptions::new(None, overrides).unwrap().sharding();
    let name = |n: usize| format!("{n:010}");
    let store = Arc::new(Memory::default());
    let mut staging = Staging::new(Arc::clone(&store) as _);
    let mut directory = DirectoryEdit::empty(CidFormat::V0, sharding);
    for n in 0..1_000 {
        directory.insert(&staging, &name(n).into(), link("x")).await.unwrap();
    }
    let root = directory.commit(&mut staging).unwrap().cid;
    staging.take().into_iter().for_each(|block| store.insert(block));
    let failures: [fn(&Cid) -> Error; 6] = [
        |_| Error::internal("the disk failed"),
        |cid| Error::no_block(cid, "missing"),
        |_| Error::corrupt("damaged"),
        |_| Error::invalid_content("no shard"),
        |_| Error::new(ErrorKind::Gone, "blocked"),
        |_| Error::new(ErrorKind::LegalReasons, "blocked"),
    ];
    let mut needed = Vec::new();
    for failure in failures {
        for loads in 0.. {
            let source = FailingLoads { store: Arc::clone(&store), left: AtomicUsize::new(loads), failure };
            let staging = Staging::new(Arc::new(source));
            let change = async {
                let mut directory = DirectoryEdit::load(&staging, &root, sharding).await?;
                directory.remove(&staging, &name(0).into()).await
            };
            match change.await {
                Ok(existed) => {
                    assert!(existed);
                    needed.push(loads);
                    break;
                }
                Err(error) => assert_eq!(error.kind(), failure(&root).kind(), "{loads}: {error}"),
            }
        }
    }
    // Twice as many entries are counted as boxo would load, if they can be read.
    assert!(needed[1] > 10 && needed[1] < needed[0], "{needed:?}");
    assert_eq!(needed[1..], [needed[1]; 5]);
}

#[tokio::test]
async fn number_of_entries_shards_and_restores_a_directory() {
    let overrides = Overrides {
        max_directory_links: Some(5),
        directory_size: Some(DirectorySize::Disabled),
        ..Overrides::default()
    };
    let options = ImportOptions::new(None, overrides).unwrap();
    let mut directory = DirectoryEdit::empty(options.cid_format(), options.sharding());
    let mut staging = Staging::new(Arc::new(Memory::default()));
    let name = |n: usize| LinkName::from(n.to_string().as_str());
    for n in 0..8 {
        directory.insert(&staging, &name(n), link("x")).await.unwrap();
        assert_eq!(directory.is_sharded(), n >= 5, "{n}");
    }
    let whole = directory.commit(&mut staging).unwrap();
    let mut directory = DirectoryEdit::load(&staging, &whole.cid, options.sharding()).await.unwrap();
    // A replaced entry does not change their number.
    directory.insert(&staging, &name(7), link("y")).await.unwrap();
    for n in (0..8).rev() {
        assert!(directory.remove(&staging, &name(n)).await.unwrap());
        assert_eq!(directory.is_sharded(), n > 5, "{n}");
    }
    assert!(!directory.remove(&staging, &name(0)).await.unwrap());
}

#[tokio::test]
async fn directory_that_does_not_fit_into_a_block_is_sharded_whatever_the_settings_say() {
    for (directory_size, max_directory_links) in
        [(DirectorySize::Disabled, 0), (DirectorySize::Disabled, 1_000_000), (DirectorySize::Links, 0)]
    {
        let overrides = Overrides {
            directory_size: Some(directory_size),
            max_directory_links: Some(max_directory_links),
            sharding_threshold_bytes: Some(usize::MAX),
            ..Overrides::default()
        };
        let options = ImportOptions::new(None, overrides).unwrap();
        let mut staging = Staging::new(Arc::new(Memory::default()));
        let mut directory = DirectoryEdit::empty(CidFormat::V0, options.sharding());
        let name = |n: usize| format!("{n}{}", "x".repeat(4_000));
        let mut entries = BTreeMap::new();
        for n in 0..600 {
            directory.insert(&staging, &name(n).as_str().into(), link("x")).await.unwrap();
            entries.insert(name(n), link("x"));
            // An entry has some 4,050 bytes.
            assert_eq!(directory.is_sharded(), n >= 517, "{n}");
        }
        assert_eq!(directory.commit(&mut staging).unwrap(), imported_with(options.clone(), &entries).await);
        // Loaded again, it stays sharded until it fits into a block.
        let root = directory.commit(&mut staging).unwrap();
        let mut directory = DirectoryEdit::load(&staging, &root.cid, options.sharding()).await.unwrap();
        for n in 0..3 {
            directory.insert(&staging, &name(n).as_str().into(), link("y")).await.unwrap();
            directory.commit(&mut staging).unwrap();
            assert!(directory.is_sharded());
        }
        for n in 0..600 {
            directory.remove(&staging, &name(n).as_str().into()).await.unwrap();
        }
        directory.commit(&mut staging).unwrap();
        assert_eq!(directory.is_sharded(), max_directory_links == 0 && directory_size == DirectorySize::Disabled);
    }
}

#[tokio::test]
async fn new_content_is_split_by_the_chunker() {
    let content = random_bytes(300_000);
    for chunker in ["size-1000", "rabin-1024-4096-16384", "buzhash"] {
        let chunker: Chunker = chunker.parse().unwrap();
        let store = Arc::new(Memory::default());
        let empty = empty_file(&store, v1());
        let edit = FileEdit::open(Arc::clone(&store) as _, Arc::clone(&store) as _, &empty, None, chunker, NOW).await;
        let mut edit = edit.unwrap();
        edit.write(content.clone()).await.unwrap();
        let (file, _) = finish(&store, edit).await;
        let overrides = Overrides {
            cid_version: Some(1),
            chunker: Some(chunker),
            layout: Some(Layout::Trickle),
            ..Overrides::default()
        };
        let options = ImportOptions::new(None, overrides).unwrap();
        let (_, imported) = import_file(options, &content, 100_000).await;
        assert_eq!(file.cid, imported.cid, "{chunker}");
    }
}

#[tokio::test]
async fn directory_refuses_names_that_are_no_segments() {
    let staging = Staging::new(Arc::new(Memory::default()));
    let mut directory = DirectoryEdit::empty(CidFormat::V0, Sharding::default());
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(directory.insert(&staging, &name.into(), link("x")).await.is_err(), "{name:?}");
    }
}
