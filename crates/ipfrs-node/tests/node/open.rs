//! Opening of nodes, and operations of one line.

use std::sync::Arc;

use futures::TryStreamExt;
use ipfrs_node::{
    AddOptions, AddPathOptions, Block, ContentPath, ErrorKind, GcEvent, GcOptions, HashFunction, MemoryStore, Node,
    Registry, StoreConfig, WalkOptions, codec,
};
use ipfrs_store::{PackOptions, PackStore};

#[tokio::test]
async fn registry_takes_one_node_and_labels_tell_two_apart() {
    let repos = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let registry = Registry::new();
    let node = Node::builder(repos.0.path()).registry(&registry).open().await.unwrap();
    let refused = Node::builder(repos.1.path()).registry(&registry).open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    assert!(refused.message().contains("Registry::new_custom"), "{refused}");
    let labels = [("node".to_owned(), "second".to_owned())].into();
    let labelled = Registry::new_custom(None, Some(labels)).unwrap();
    let second = Node::builder(repos.1.path()).registry(&labelled).open().await.unwrap();
    // Both can be exported together.
    let (first_names, second_names) = (registry.gather(), labelled.gather());
    assert_eq!(first_names.len(), second_names.len());
    let labels = second_names[0].get_metric()[0].get_label();
    assert!(labels.iter().any(|label| (label.name(), label.value()) == ("node", "second")), "{labels:?}");
    node.close().await.unwrap();
    second.close().await.unwrap();
}

#[tokio::test]
async fn failed_open_leaves_the_registry_as_it_was() {
    let repo = tempfile::tempdir().unwrap();
    let holder = Node::open_default(repo.path()).await.unwrap();
    let registry = Registry::new();
    for _ in 0..2 {
        let refused = Node::builder(repo.path()).registry(&registry).open().await.unwrap_err();
        assert!(!refused.message().contains("registry"), "{refused}");
        assert!(registry.gather().is_empty());
    }
    holder.close().await.unwrap();
    let node = Node::builder(repo.path()).registry(&registry).open().await.unwrap();
    assert!(!registry.gather().is_empty());
    node.close().await.unwrap();
}

#[tokio::test]
async fn keys_that_a_crash_left_half_written_are_removed() {
    let repo = tempfile::tempdir().unwrap();
    let keystore = repo.path().join("keystore");
    std::fs::create_dir(&keystore).unwrap();
    let [draft, key] = ["key_me.new", "key_me"].map(|name| keystore.join(name));
    for path in [&draft, &key] {
        std::fs::write(path, "secret").unwrap();
    }
    Node::open_default(repo.path()).await.unwrap().close().await.unwrap();
    assert!(!draft.exists() && key.exists());
}

#[tokio::test]
async fn settings_without_effect_on_an_engine_are_errors() {
    let repo = tempfile::tempdir().unwrap();
    let store = StoreConfig { read_only: true, ..StoreConfig::default() };
    let builder = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default())).store(store);
    assert_eq!(builder.open().await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn pins_in_memory_are_only_for_own_engines_and_protect_old_blocks() {
    let repo = tempfile::tempdir().unwrap();
    let refused = Node::builder(repo.path()).pins_in_memory().open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    assert!(!repo.path().join("pins.redb").exists());

    let engine = Arc::new(MemoryStore::default());
    let open = || Node::builder(repo.path()).engine(engine.clone()).pins_in_memory().open();
    let node = open().await.unwrap();
    let file = repo.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    let added = node.add_path(&file, AddOptions::default()).await.unwrap();
    assert_eq!(node.gc(GcOptions::default()).await.unwrap().removed, 0);
    node.close().await.unwrap();

    // The pins are lost, but not the blocks.
    let node = open().await.unwrap();
    assert_eq!(node.gc(GcOptions::default()).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(node.read_range(added.cid, ..).await.unwrap(), "kept");
    assert_eq!(node.gc(GcOptions { force: true, progress: None }).await.unwrap().removed, 1);
    node.close().await.unwrap();
    assert!(!repo.path().join("pins.redb").exists());
}

#[tokio::test]
async fn repo_with_an_engine_is_open_once() {
    let repo = tempfile::tempdir().unwrap();
    let open = |keeps_pins_in_memory| {
        let builder = Node::builder(repo.path()).engine(Arc::new(MemoryStore::default()));
        let builder = if keeps_pins_in_memory { builder.pins_in_memory() } else { builder };
        builder.open()
    };
    for keeps_pins_in_memory in [false, true] {
        let node = open(keeps_pins_in_memory).await.unwrap();
        for other in [false, true] {
            let refused = open(other).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        }
        node.close().await.unwrap();
    }

    // The engine may be a store that has locked the same directory.
    let pack = PackStore::open(repo.path(), PackOptions::default()).unwrap();
    let node = Node::builder(repo.path()).engine(Arc::new(pack.clone())).open().await.unwrap();
    node.close().await.unwrap();
    pack.close().await.unwrap();
}

#[tokio::test]
async fn engine_that_is_open_read_only_does_not_lock_the_repo() {
    let (repo, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |read_only| PackStore::open(repo.path(), PackOptions { read_only, ..PackOptions::default() }).unwrap();
    open(false).close().await.unwrap();
    let reader = open(true);
    let refused = Node::builder(repo.path()).engine(Arc::new(reader.clone())).open().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
    assert!(refused.message().contains("if that store is the engine, open it for writing"), "{refused}");
    // As the message says: another directory, and a node that reads.
    Node::builder(other.path()).engine(Arc::new(reader.clone())).open().await.unwrap().close().await.unwrap();
    reader.close().await.unwrap();
    let store = StoreConfig { read_only: true, ..StoreConfig::default() };
    Node::open_default(repo.path()).await.unwrap().close().await.unwrap();
    let reader = open(true);
    Node::builder(repo.path()).store(store).open().await.unwrap().close().await.unwrap();
    reader.close().await.unwrap();
    Node::open_default(repo.path()).await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn tree_is_added_listed_read_and_collected_in_one_line_each() {
    let (repo, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let site = tree.path().join("site");
    std::fs::create_dir_all(site.join("inner")).unwrap();
    let content: Vec<u8> = (0..600_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    std::fs::write(site.join("large.bin"), &content).unwrap();
    std::fs::write(site.join("inner/small"), "small").unwrap();
    std::fs::write(site.join(".hidden"), "hidden").unwrap();
    std::os::unix::fs::symlink("large.bin", site.join("link")).unwrap();
    let node = Node::open_default(repo.path()).await.unwrap();

    let mut imported = 0;
    let progress = Box::new(|bytes| imported += bytes);
    let options = AddPathOptions { progress: Some(progress), ..AddPathOptions::default() };
    let root = node.add_path(&site, options).await.unwrap();
    assert_eq!(imported, 600_005);

    let entries: Vec<_> = node.read_dir(root.cid).await.unwrap().try_collect().await.unwrap();
    let names: Vec<_> = entries.iter().map(|entry| (entry.name.to_string(), entry.size)).collect();
    assert_eq!(names, [("inner".to_owned(), 0), ("large.bin".to_owned(), 600_000), ("link".to_owned(), 9)]);
    assert!(entries[0].dag_size > 5 && entries[1].dag_size > 600_000 && root.size > 600_005, "{entries:?}");

    let path: ContentPath = format!("/ipfs/{}/large.bin", root.cid).parse().unwrap();
    for range in [0..10, 262_140..262_150, 599_990..600_100, 700_000..800_000, 5..5, 0..600_000] {
        let (start, end) = (range.start.min(600_000), range.end.min(600_000));
        let expected = &content[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()];
        assert_eq!(node.read_range(path.clone(), range).await.unwrap(), expected);
    }
    assert_eq!(node.read_range(ContentPath::from(root.cid).join("inner").join("small"), 1..=2).await.unwrap(), "ma");
    for refused in [node.read_range(root.cid, ..).await.unwrap_err(), node.read_dir(path).await.err().unwrap()] {
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    }
    let missing = node.add_path(tree.path().join("missing"), AddOptions::default()).await.unwrap_err();
    assert!(missing.message().contains("missing"), "{missing}");

    let walk = WalkOptions { hidden: true, ..WalkOptions::default() };
    let unpinned = AddOptions { unpinned: true, ..AddOptions::default() };
    node.add_path(&site, AddPathOptions { add: unpinned, walk, progress: None }).await.unwrap();
    let mut events = Vec::new();
    let progress = Some(Box::new(|event| events.push(event)) as Box<_>);
    // The hidden file and the directory that contains it.
    assert_eq!(node.gc(GcOptions { progress, ..GcOptions::default() }).await.unwrap().removed, 2);
    assert!(events.contains(&GcEvent::Compacting), "{events:?}");
    node.close().await.unwrap();
}

#[tokio::test]
async fn blocks_are_hashed_with_types_of_this_crate() {
    let repo = tempfile::tempdir().unwrap();
    let file = repo.path().join("file");
    std::fs::write(&file, "hello").unwrap();
    let node = Node::open_default(repo.path().join("repo")).await.unwrap();
    let options = AddOptions { hash: Some(HashFunction::Blake3), raw_leaves: Some(true), ..AddOptions::default() };
    let added = node.add_path(&file, AddOptions { cid_version: Some(1), ..options }).await.unwrap();
    let block = Block::hash(1, codec::RAW, HashFunction::Blake3, "hello".into()).unwrap();
    assert_eq!(added.cid, *block.cid());
    node.close().await.unwrap();
}
