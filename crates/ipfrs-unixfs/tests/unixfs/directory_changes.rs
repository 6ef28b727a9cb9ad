//! Changes of directories, compared with imports of the result.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Block, Cid, Error, ErrorKind, Result};
use ipfrs_unixfs::{
    Attributes, BlockSource, CidFormat, DirectoryEdit, DirectorySize, Entry, EntryKind, ImportOptions, Importer,
    LinkName, NewLink, Overrides, Sharding, Staging,
};

use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::harness::Memory;

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

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
async fn directory_refuses_names_that_are_no_segments() {
    let staging = Staging::new(Arc::new(Memory::default()));
    let mut directory = DirectoryEdit::empty(CidFormat::V0, Sharding::default());
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(directory.insert(&staging, &name.into(), link("x")).await.is_err(), "{name:?}");
    }
}
