//! Round trips of imported content, with various sizes, pieces and options.

use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{ErrorKind, limits};
use ipfrs_unixfs::{
    Attributes, Child, Chunker, Entry, EntryKind, ImportOptions, Importer, Layout, LinkName, Mtime, Node, Overrides,
    Profile, ShardLink, decode, entry_hash,
};
use proptest::prelude::*;

use crate::harness::{Memory, import, import_file, import_file_with, random_bytes, read_file};

fn options(layout: Layout, raw_leaves: bool, chunker: Chunker, links: usize) -> ImportOptions {
    let overrides = Overrides {
        layout: Some(layout),
        raw_leaves: Some(raw_leaves),
        chunker: Some(chunker),
        max_file_links: Some(links),
        ..Overrides::default()
    };
    ImportOptions::new(None, overrides).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_around_every_boundary_read_back() {
    // A length of 200 bytes takes two bytes, so a short last chunk has shorter framing. Chunks of 40,000 bytes are
    // sliced when raw.
    for (chunk, links) in [(1, 2), (200, 3), (40_000, 2)] {
        let (node, root) = (chunk * links, chunk * links * links);
        let sizes =
            [0, 1, chunk - 1, chunk, chunk + 1, node - 1, node, node + 1, root - 1, root, root + 1, 3 * root + 1];
        for size in sizes {
            let content = random_bytes(size);
            for (layout, raw_leaves) in
                [(Layout::Balanced, false), (Layout::Balanced, true), (Layout::Trickle, false), (Layout::Trickle, true)]
            {
                let case =
                    format!("{size} bytes, chunks of {chunk}, {links} links, {layout:?}, raw leaves {raw_leaves}");
                let (store, entry) =
                    import_file(options(layout, raw_leaves, Chunker::Size(chunk), links), &content, 70_000).await;
                assert_eq!(read_file(&store, &entry.cid), content, "{case}");
                assert_eq!((entry.size, entry.kind), (size as u64, EntryKind::File), "{case}");
                // Except for tiny chunks, no chunk is repeated, so the declared size equals the stored size.
                if chunk > 1 {
                    assert_eq!(entry.tsize, store.total_bytes(), "{case}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_leaf_of_the_largest_chunk_is_a_block() {
    let content = random_bytes(limits::MAX_CHUNK_BYTES + 1);
    let (store, entry) =
        import_file(options(Layout::Balanced, false, Chunker::Size(limits::MAX_CHUNK_BYTES), 2), &content, 1 << 20)
            .await;
    assert_eq!(read_file(&store, &entry.cid), content);
}

#[tokio::test]
async fn content_defined_chunks_survive_prepended_bytes() {
    for chunker in ["rabin-16384-32768-65536", "buzhash"] {
        let chunker: Chunker = chunker.parse().unwrap();
        let options = options(Layout::Balanced, true, chunker, 174);
        let content = random_bytes(4 << 20);
        let changed = Bytes::from([&b"one more line\n"[..], &content].concat());
        let mut leaves = Vec::new();
        for content in [&content, &changed] {
            let (store, entry) = import_file(options.clone(), content, 70_000).await;
            let Node::File(root) = decode(&entry.cid, &store.get(&entry.cid).unwrap()).unwrap() else {
                panic!("no file")
            };
            leaves.push(root.children.iter_from(0).map(|leaf| leaf.cid).collect::<Vec<_>>());
        }
        let (before, after) = (&leaves[0], &leaves[1]);
        assert!(before.len() >= 10, "{chunker}: {} leaves", before.len());
        let same = before.iter().filter(|leaf| after.contains(leaf)).count();
        assert!(same + 3 >= before.len(), "{chunker}: {same} of {} leaves are the same", before.len());
    }
}

/// Returns the attributes of the root `cid`, and whether any linked block has attributes.
fn attributes_of(store: &Memory, cid: &ipfrs_core::Cid) -> (Attributes, bool) {
    let node = decode(cid, &store.get(cid).unwrap()).unwrap();
    let has_attributes = |child: Child| attributes_of(store, &child.cid) != (Attributes::default(), false);
    let is_below = match &node {
        Node::File(file) => file.children.iter_from(0).any(has_attributes),
        _ => false,
    };
    (node.attributes(), is_below)
}

#[tokio::test]
async fn attributes_are_kept_on_roots_and_nowhere_else() {
    let kept = Attributes { mode: Some(0o1750), mtime: Some(Mtime { seconds: -3, nanos: 9 }) };
    for layout in [Layout::Balanced, Layout::Trickle] {
        for size in [0, 1, 10, 11, 20, 21, 40, 41, 200] {
            let overrides = Overrides {
                attributes: true,
                layout: Some(layout),
                chunker: Some(Chunker::Size(10)),
                max_file_links: Some(2),
                ..Overrides::default()
            };
            let options = ImportOptions::new(Some(Profile::UnixfsV1_2025), overrides).unwrap();
            let content = random_bytes(size);
            let (store, entry) = import_file_with(options, kept, &content, 7).await;
            assert_eq!(read_file(&store, &entry.cid), content, "{layout:?}, {size} bytes");
            assert_eq!(attributes_of(&store, &entry.cid), (kept, false), "{layout:?}, {size} bytes");
            assert_eq!(entry.tsize, store.total_bytes(), "no other leaf is stored");
        }
    }
}

#[tokio::test]
async fn directories_and_symlinks_keep_their_attributes() {
    let kept = Attributes { mode: Some(0o755), mtime: Some(Mtime { seconds: 1_700_000_000, nanos: 0 }) };
    let store = Arc::new(Memory::default());
    let overrides = Overrides { attributes: true, max_directory_links: Some(2), ..Overrides::default() };
    let options = ImportOptions::new(None, overrides).unwrap();
    let mut importer = Importer::new(options, Arc::clone(&store) as _);
    let link = importer.symlink("a", kept).await.unwrap();
    let entries = |count| (0..count).map(|i| (format!("{i}").into(), link.clone())).collect::<Vec<_>>();
    let basic = importer.directory(entries(2), kept).await.unwrap();
    let sharded = importer.directory(entries(600), kept).await.unwrap();
    importer.flush().await.unwrap();
    assert_eq!(attributes_of(&store, &link.cid).0, Attributes { mode: None, ..kept });
    assert_eq!(attributes_of(&store, &basic.cid).0, kept);
    let Node::HamtShard(shard) = decode(&sharded.cid, &store.get(&sharded.cid).unwrap()).unwrap() else {
        panic!("not sharded")
    };
    assert_eq!(shard.attributes(), kept);
    let below = shard.slots().iter().find_map(|slot| match slot {
        ShardLink::Shard(cid) => Some(attributes_of(&store, cid).0),
        ShardLink::Entry(_) => None,
    });
    assert_eq!(below, Some(Attributes::default()), "only the root shard has them");
}

#[tokio::test]
async fn attributes_that_would_be_lost_are_refused() {
    let raw = Overrides { attributes: true, raw_leaves: Some(true), ..Overrides::default() };
    assert!(ImportOptions::new(None, raw).unwrap_err().to_string().contains("raw-leaves"));
    let mut importer = Importer::new(ImportOptions::default(), Arc::new(Memory::default()));
    let mode = Attributes { mode: Some(0o644), mtime: None };
    assert_eq!(importer.symlink("a", mode).await.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(importer.directory(Vec::new(), mode).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn directories_count_all_below_them_and_may_repeat_blocks() {
    let store = Arc::new(Memory::default());
    let mut importer = Importer::new(ImportOptions::default(), Arc::clone(&store) as _);
    let file = import(&mut importer, &random_bytes(100), 100).await;
    let link = importer.symlink("a", Attributes::default()).await.unwrap();
    let entries = vec![("b".into(), link.clone()), ("a".into(), file.clone()), ("c".into(), file.clone())];
    let root = importer.directory(entries, Attributes::default()).await.unwrap();
    importer.flush().await.unwrap();
    assert_eq!((root.kind, root.size), (EntryKind::Directory, 201));
    let block = store.get(&root.cid).unwrap();
    assert_eq!(root.tsize, block.len() as u64 + 2 * file.tsize + link.tsize);
    let Node::Directory { entries, .. } = decode(&root.cid, &block).unwrap() else { panic!("not a directory") };
    let names: Vec<_> = entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.tsize)).collect();
    assert_eq!(names, [("a", file.tsize), ("b", link.tsize), ("c", file.tsize)]);
    let target = decode(&link.cid, &store.get(&link.cid).unwrap()).unwrap();
    assert_eq!(target, Node::Symlink { target: Bytes::from_static(b"a"), attributes: Attributes::default() });
}

#[tokio::test]
async fn directories_refuse_names_that_no_path_can_have() {
    let mut importer = Importer::new(ImportOptions::default(), Arc::new(Memory::default()));
    let file = import(&mut importer, &Bytes::new(), 1).await;
    for names in [&[""][..], &["."], &[".."], &["a/b"], &["a\0"], &["twice", "x", "twice"]] {
        let entries = names.iter().map(|name| (LinkName::from(*name), file.clone())).collect();
        let error = importer.directory(entries, Attributes::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{names:?}: {error}");
    }
}

#[tokio::test]
async fn directory_accepts_any_batches_in_hash_order_only() {
    let mut importer = Importer::new(ImportOptions::default(), Arc::new(Memory::default()));
    let file = import(&mut importer, &Bytes::new(), 1).await;
    let mut entries: Vec<_> = (0..7_000).map(|i| (LinkName::from(format!("file {i}")), file.clone())).collect();
    let whole = importer.directory(entries.clone(), Attributes::default()).await.unwrap();
    entries.sort_by_key(|(name, _)| entry_hash(name));
    for batch in [1, 700, 7_000] {
        let mut directory = importer.begin_directory(Attributes::default()).unwrap();
        for entries in entries.chunks(batch) {
            directory = importer.extend_directory(directory, entries.to_vec()).await.unwrap();
        }
        assert_eq!(importer.finish_directory(directory).await.unwrap(), whole, "batches of {batch}");
    }
    entries.swap(10, 11);
    let directory = importer.begin_directory(Attributes::default()).unwrap();
    let error = importer.extend_directory(directory, entries).await.unwrap_err();
    assert!(error.to_string().contains("sort by hash"), "{error}");
}

#[test]
fn options_outside_the_limits_name_the_limit() {
    let unset = Overrides::default();
    for (overrides, named) in [
        (Overrides { cid_version: Some(2), ..unset }, "0 or 1"),
        (Overrides { inline_limit: Some(129), ..unset }, "128"),
        (Overrides { chunker: Some(Chunker::Size(0)), ..unset }, "2096896"),
        (Overrides { chunker: Some(Chunker::Size(limits::MAX_CHUNK_BYTES + 1)), ..unset }, "2096896"),
        (Overrides { max_file_links: Some(1), ..unset }, "2 to 16384"),
        (Overrides { hamt_fanout: Some(2048), ..unset }, "power of 2, between 8 and 1024 (got 2048)"),
        (Overrides { hamt_fanout: Some(24), ..unset }, "power of 2, between 8 and 1024 (got 24)"),
    ] {
        let error = ImportOptions::new(None, overrides).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn chunkers_and_profiles_read_from_their_names() {
    assert_eq!("size-1".parse::<Chunker>().unwrap(), Chunker::Size(1));
    let rabin = Chunker::Rabin { min: 87_381, avg: 262_144, max: 393_216 };
    for name in ["rabin", "rabin-262144", "rabin-87381-262144-393216"] {
        assert_eq!(name.parse::<Chunker>().unwrap(), rabin);
    }
    assert_eq!(rabin.to_string(), "rabin-87381-262144-393216");
    assert_eq!("buzhash".parse::<Chunker>().unwrap().to_string(), "buzhash");
    assert_eq!("default".parse::<Chunker>().unwrap().to_string(), "size-262144");
    for (text, kind, named) in [
        ("size-0", ErrorKind::InvalidInput, "2096896"),
        ("size-2096897", ErrorKind::InvalidInput, "2096896"),
        ("size-+5", ErrorKind::InvalidInput, "2096896"),
        ("size-", ErrorKind::InvalidInput, "2096896"),
        ("rabin-15-20-30", ErrorKind::InvalidInput, "16"),
        ("rabin-20-20-30", ErrorKind::InvalidInput, "must increase"),
        ("rabin-16-20-20", ErrorKind::InvalidInput, "must increase"),
        ("rabin-16-20-2096897", ErrorKind::InvalidInput, "2096896"),
        ("rabin-45", ErrorKind::InvalidInput, "16"),
        ("rabin-18446744073709551615", ErrorKind::InvalidInput, "2096896"),
        ("rabin-16-20", ErrorKind::Unsupported, "size-BYTES"),
        ("buzhash-5", ErrorKind::Unsupported, "size-BYTES"),
    ] {
        let error = text.parse::<Chunker>().unwrap_err();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(error.to_string().contains(named), "{error}");
    }
    assert_eq!(serde_json::from_str::<Chunker>("\"size-5\"").unwrap(), Chunker::Size(5));
    assert!(serde_json::from_str::<Chunker>("\"size-0\"").unwrap_err().to_string().contains("2096896"));
    for profile in Profile::ALL {
        assert_eq!(serde_json::to_value(profile).unwrap(), profile.name());
        assert_eq!(profile.name().parse::<Profile>().unwrap(), profile);
    }
    assert!("unixfs-v3".parse::<Profile>().unwrap_err().to_string().contains("unixfs-v1-2025"));
}

/// Imports `content`, split at `cuts`, in a runtime of its own.
fn import_cut(options: &ImportOptions, content: &Bytes, cuts: &[usize]) -> (Arc<Memory>, Entry) {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (content.len() + 1)).chain([0, content.len()]).collect();
    cuts.sort_unstable();
    let pieces: Vec<_> = cuts.windows(2).map(|cut| Ok(content.slice(cut[0]..cut[1]))).collect();
    let store = Arc::new(Memory::default());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let entry = runtime.block_on(async {
        let mut importer = Importer::new(options.clone(), Arc::clone(&store) as _);
        let entry = importer.file(futures::stream::iter(pieces), Attributes::default(), &mut |_| {}).await.unwrap();
        importer.flush().await.unwrap();
        entry
    });
    (store, entry)
}

/// Generates a chunker and its minimum chunk size.
fn chunkers() -> impl Strategy<Value = (Chunker, usize)> {
    let rabin = (16_usize..60_000, 1_usize..60_000, 1_usize..60_000);
    prop_oneof![
        (1_usize..300).prop_map(|size| (Chunker::Size(size), size)),
        (30_000_usize..70_000).prop_map(|size| (Chunker::Size(size), size)),
        rabin.prop_map(|(min, more, most)| (Chunker::Rabin { min, avg: min + more, max: min + more + most }, min)),
        Just((Chunker::Buzhash, 128 * 1024)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pieces_do_not_matter_and_content_reads_back(
        size in prop_oneof![0_usize..300, 0_usize..300_000],
        (chunker, least) in chunkers(),
        links in 2_usize..20,
        layout in prop::sample::select(vec![Layout::Balanced, Layout::Trickle]),
        raw_leaves: bool,
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        // Bounds the number of blocks, which take most of the time.
        let content = random_bytes(size.min(least * 2000));
        let options = options(layout, raw_leaves, chunker, links);
        let (store, entry) = import_cut(&options, &content, &cuts);
        prop_assert_eq!(read_file(&store, &entry.cid), content.clone());
        let (_, whole) = import_cut(&options, &content, &[]);
        prop_assert_eq!(entry, whole);
    }
}
