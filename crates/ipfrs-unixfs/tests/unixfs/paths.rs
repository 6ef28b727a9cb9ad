//! Path resolution and directory listing.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, ErrorKind, codec, limits, parse_cid};
use ipfrs_unixfs::dag_pb::{self, PbLink};
use ipfrs_unixfs::{
    Attributes, Entry, EntryKind, ImportOptions, Importer, LinkName, Node, Overrides, ShardLink, entries,
    leads_nowhere, resolve,
};

use crate::harness::{Memory, import};
use crate::links::cbor_link;

fn segments(path: &str) -> Vec<LinkName> {
    path.split('/').filter(|segment| !segment.is_empty()).map(LinkName::from).collect()
}

fn store_block(store: &Memory, codec: u64, data: Bytes) -> Cid {
    let block = Block::hash(1, codec, HashFunction::Sha2_256, data).unwrap();
    let cid = *block.cid();
    store.insert(block);
    cid
}

/// Imports `/docs/{0..count}.txt`. `docs` is sharded with a small fan-out, so its shards are several levels deep.
async fn sharded_tree(count: usize) -> (Arc<Memory>, Entry, Entry) {
    let store = Arc::new(Memory::default());
    let overrides = Overrides { max_directory_links: Some(10), hamt_fanout: Some(8), ..Overrides::default() };
    let options = ImportOptions::new(None, overrides).unwrap();
    let mut importer = Importer::new(options, Arc::clone(&store) as _);
    let mut files = Vec::new();
    for i in 0..count {
        files.push((format!("{i}.txt").into(), import(&mut importer, &Bytes::from(i.to_string()), 1).await));
    }
    let docs = importer.directory(files, Attributes::default()).await.unwrap();
    let root = importer.directory(vec![("docs".into(), docs.clone())], Attributes::default()).await.unwrap();
    importer.flush().await.unwrap();
    (store, root, docs)
}

#[tokio::test]
async fn paths_lead_through_basic_and_sharded_directories() {
    let (store, root, docs) = sharded_tree(1000).await;
    for i in 0..1000 {
        let found = resolve(store.as_ref(), &root.cid, &segments(&format!("docs/{i}.txt"))).await.unwrap();
        let Some(Node::File(file)) = &found.node else { panic!("not a file") };
        assert_eq!(file.inline, i.to_string().as_bytes());
        assert_eq!(found.roots, [root.cid, docs.cid, found.cid]);
    }
    let found = resolve(store.as_ref(), &root.cid, &[]).await.unwrap();
    assert_eq!((found.cid, found.roots), (root.cid, vec![root.cid]));
}

#[tokio::test]
async fn resolve_names_missing_segment() {
    let (store, root, docs) = sharded_tree(100).await;
    let file = resolve(store.as_ref(), &docs.cid, &segments("7.txt")).await.unwrap().cid;
    for (path, message) in [
        ("nothing", format!("no link named \"nothing\" under {}", root.cid)),
        ("docs/100.txt", format!("no link named \"100.txt\" under {}", docs.cid)),
        ("docs/7.txt/below", format!("no link named \"below\" under {file}")),
    ] {
        let error = resolve(store.as_ref(), &root.cid, &segments(path)).await.unwrap_err();
        assert!(leads_nowhere(&error));
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotFound, message));
    }
    store.remove(&docs.cid);
    let error = resolve(store.as_ref(), &root.cid, &segments("docs/7.txt")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains(&docs.cid.to_string()), "{error}");
    assert!(!leads_nowhere(&error), "the path may exist");
}

#[tokio::test]
async fn paths_longer_than_the_limit_are_refused() {
    let (store, root, _) = sharded_tree(1).await;
    let path = vec![LinkName::from("docs"); limits::MAX_PATH_SEGMENTS + 1];
    let error = resolve(store.as_ref(), &root.cid, &path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn blocks_without_paths_may_only_end_a_path() {
    let store = Arc::new(Memory::default());
    let mut importer = Importer::new(ImportOptions::default(), Arc::clone(&store) as _);
    let torn_shard = dag_pb::encode(&[], &[8, 5]);
    for (codec, bytes, kind) in [
        (codec::LIBP2P_KEY, Bytes::from_static(b"{}"), ErrorKind::Unsupported),
        (codec::JSON, Bytes::from_static(b"{}"), ErrorKind::NotFound),
        (codec::DAG_PB, torn_shard, ErrorKind::InvalidContent),
    ] {
        let other = store_block(&store, codec, bytes.clone());
        let link = Entry { cid: other, tsize: 1, size: 0, kind: EntryKind::File };
        let root = importer.directory(vec![("data".into(), link)], Attributes::default()).await.unwrap();
        importer.flush().await.unwrap();
        let found = resolve(store.as_ref(), &root.cid, &segments("data")).await.unwrap();
        assert_eq!((found.cid, found.data, found.node), (other, bytes, None));
        let error = resolve(store.as_ref(), &root.cid, &segments("data/field")).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

/// Returns `{"a": [0, {"b": link}], "n": {"m": 1}}` in dag-cbor and in dag-json.
fn documents(link: &Cid) -> [(u64, Vec<u8>); 2] {
    let head = [0xa2, 0x61, b'a', 0x82, 0, 0xa1, 0x61, b'b'];
    let cbor = [&head[..], &cbor_link(link), &[0x61, b'n', 0xa1, 0x61, b'm', 1]].concat();
    let json = format!(r#"{{"a": [0, {{"b": {{"/": "{link}"}}}}], "n": {{"m": 1}}}}"#);
    [(codec::DAG_CBOR, cbor), (codec::DAG_JSON, json.into_bytes())]
}

#[tokio::test]
async fn paths_lead_through_dag_cbor_and_dag_json_to_unixfs_and_back() {
    let (store, tree, docs) = sharded_tree(100).await;
    for (codec, document) in documents(&tree.cid) {
        let inner = store_block(&store, codec, document.into());
        for (codec, document) in documents(&inner) {
            let outer = store_block(&store, codec, document.into());
            let plain = PbLink { cid: outer, name: "down".into(), tsize: 0 };
            let top = store_block(&store, codec::DAG_PB, dag_pb::encode(&[plain], b"not UnixFS"));
            let found = resolve(store.as_ref(), &top, &segments("down/a/1/b/a/1/b/docs/7.txt")).await.unwrap();
            assert!(matches!(&found.node, Some(Node::File(file)) if file.inline == b"7"[..]));
            assert_eq!(found.roots, [top, outer, inner, tree.cid, docs.cid, found.cid]);
            assert_eq!(found.remainder, Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_path_that_ends_within_a_block_leaves_a_remainder() {
    let (store, tree, _) = sharded_tree(1).await;
    for (codec, document) in documents(&tree.cid) {
        let cid = store_block(&store, codec, document.clone().into());
        for (path, remainder) in [("", ""), ("a", "a"), ("a/1", "a/1"), ("n/m", "n/m"), ("a/0", "a/0")] {
            let found = resolve(store.as_ref(), &cid, &segments(path)).await.unwrap();
            assert_eq!((found.cid, found.data.as_ref(), found.node), (cid, &document[..], None));
            assert_eq!((found.roots, found.remainder.join("/")), (vec![cid], remainder.to_owned()));
        }
        let outer = documents(&cid).map(|(codec, document)| store_block(&store, codec, document.into()));
        let found = resolve(store.as_ref(), &outer[0], &segments("a/1/b/n/m")).await.unwrap();
        assert_eq!(
            (found.cid, found.roots, found.remainder),
            (cid, vec![outer[0], cid], vec!["n".to_owned(), "m".to_owned()])
        );
    }
}

#[tokio::test]
async fn a_key_or_index_that_a_block_does_not_have_is_named() {
    let (store, tree, _) = sharded_tree(1).await;
    for (codec, document) in documents(&tree.cid) {
        let cid = store_block(&store, codec, document.into());
        for (path, segment, under) in [
            ("b", "b", cid),
            ("a/2", "2", cid),
            ("a/x", "x", cid),
            ("a/-1", "-1", cid),
            ("a/0/b", "b", cid),
            ("n/m/x", "x", cid),
            ("a/1/b/nothing", "nothing", tree.cid),
        ] {
            let error = resolve(store.as_ref(), &cid, &segments(path)).await.unwrap_err();
            let message = format!("no link named {segment:?} under {under}");
            assert_eq!((error.kind(), error.to_string()), (ErrorKind::NotFound, message));
        }
    }
    let link = cbor_link(&tree.cid);
    let only_a_link = store_block(&store, codec::DAG_CBOR, link.into());
    assert_eq!(resolve(store.as_ref(), &only_a_link, &[]).await.unwrap().cid, only_a_link);
    let error = resolve(store.as_ref(), &only_a_link, &segments("docs")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn shards_deeper_than_any_name_leads_are_refused() {
    let store = Arc::new(Memory::default());
    // All eight positions of a shard lead to the next shard, with no end that a reader could detect.
    let bottomless = [8, 5, 0x12, 1, 0xff, 0x28, 0x22, 0x30, 8];
    let mut cid = store_block(&store, codec::RAW, Bytes::new());
    for _ in 0..30 {
        let link = |position| PbLink { cid, name: format!("{position}").into(), tsize: 0 };
        let links: Vec<_> = (0..8).map(link).collect();
        cid = store_block(&store, codec::DAG_PB, dag_pb::encode(&links, &bottomless));
    }
    let node = resolve(store.as_ref(), &cid, &[]).await.unwrap().node.unwrap();
    let listed = entries(Arc::clone(&store) as _, node).try_collect::<Vec<_>>().await;
    assert!(listed.unwrap_err().to_string().contains("deeper than the 64 bits"));
    let error = resolve(store.as_ref(), &cid, &segments("any")).await.unwrap_err();
    assert!(error.to_string().contains("deeper than the bits of a name hash"), "{error}");
}

#[tokio::test]
async fn identity_blocks_need_no_source() {
    let cid: Cid = parse_cid("bafkqaaa").unwrap();
    let found = resolve(&Memory::default(), &cid, &[]).await.unwrap();
    assert!(matches!(found.node, Some(Node::File(file)) if file.size == 0));
}

#[tokio::test]
async fn listings_have_every_entry_once_without_its_prefix() {
    let (store, root, docs) = sharded_tree(1000).await;
    for (cid, expected) in [
        (root.cid, BTreeSet::from(["docs".into()])),
        (docs.cid, (0..1000).map(|i| format!("{i}.txt").into()).collect()),
    ] {
        let node = resolve(store.as_ref(), &cid, &[]).await.unwrap().node.unwrap();
        let listed: Vec<_> = entries(Arc::clone(&store) as _, node).try_collect().await.unwrap();
        assert_eq!(listed.len(), expected.len());
        assert_eq!(listed.into_iter().map(|entry| entry.name).collect::<BTreeSet<_>>(), expected);
    }
}

#[tokio::test]
async fn listings_end_with_an_error_where_a_shard_is_missing() {
    let (store, _, docs) = sharded_tree(1000).await;
    let node = resolve(store.as_ref(), &docs.cid, &[]).await.unwrap().node.unwrap();
    let Node::HamtShard(shard) = &node else { panic!("not sharded") };
    let Some(ShardLink::Shard(missing)) = shard.slots().last().cloned() else { panic!("not deep") };
    store.remove(&missing);
    let listed = entries(Arc::clone(&store) as _, node).try_collect::<Vec<_>>().await;
    assert!(listed.unwrap_err().to_string().contains(&missing.to_string()));
}

#[tokio::test]
async fn files_have_no_entries() {
    let (store, _, docs) = sharded_tree(1).await;
    let file = resolve(store.as_ref(), &docs.cid, &segments("0.txt")).await.unwrap().node.unwrap();
    let listed = entries(Arc::clone(&store) as _, file).try_collect::<Vec<_>>().await;
    assert_eq!(listed.unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// File names that may occur on a disk; one of them is plain text.
const NAMES: [&[u8]; 6] = [b"\xff.txt", b"caf\xe9", b"caf\xc3\xa9", b"\xfe\xff\x01", b"a\nb", b"plain.txt"];

#[tokio::test]
async fn non_utf8_names_resolve_in_directories() {
    for max_directory_links in [None, Some(1)] {
        let store = Arc::new(Memory::default());
        let overrides = Overrides { max_directory_links, hamt_fanout: Some(8), ..Overrides::default() };
        let mut importer = Importer::new(ImportOptions::new(None, overrides).unwrap(), Arc::clone(&store) as _);
        let mut files = Vec::new();
        for name in NAMES {
            files.push((LinkName::from(name), import(&mut importer, &Bytes::copy_from_slice(name), 1).await));
        }
        let inner = importer.directory(files, Attributes::default()).await.unwrap();
        let root = vec![(LinkName::from(NAMES[0]), inner)];
        let root = importer.directory(root, Attributes::default()).await.unwrap();
        importer.flush().await.unwrap();
        for name in NAMES {
            let path = [NAMES[0].into(), name.into()];
            let found = resolve(store.as_ref(), &root.cid, &path).await.unwrap();
            assert!(matches!(found.node, Some(Node::File(file)) if file.inline == name), "{path:?}");
        }
        let path = [NAMES[0].into(), LinkName::from(b"\xfe.txt")];
        let error = resolve(store.as_ref(), &root.cid, &path).await.unwrap_err();
        assert!(leads_nowhere(&error) && error.message().contains(r#"no link named "\xfe.txt""#), "{error}");
        let inner = resolve(store.as_ref(), &root.cid, &path[..1]).await.unwrap().node.unwrap();
        assert_eq!(matches!(inner, Node::HamtShard(_)), max_directory_links.is_some());
        let listed: Vec<_> = entries(Arc::clone(&store) as _, inner).try_collect().await.unwrap();
        let listed: BTreeSet<_> = listed.into_iter().map(|entry| entry.name).collect();
        assert_eq!(listed, NAMES.map(LinkName::from).into());
    }
}

#[tokio::test]
async fn non_utf8_keys_are_not_found_in_cbor_and_json() {
    let (store, tree, _) = sharded_tree(1).await;
    for (codec, document) in documents(&tree.cid) {
        let cid = store_block(&store, codec, document.into());
        for path in [vec![&b"\xff"[..]], vec![b"n", b"\xff", b"m"], vec![b"a", b"\xff"]] {
            let path: Vec<_> = path.into_iter().map(LinkName::from).collect();
            let error = resolve(store.as_ref(), &cid, &path).await.unwrap_err();
            assert!(leads_nowhere(&error) && error.message().contains(r#"no link named "\xff""#), "{error}");
        }
        // The link before the invalid segment is followed.
        let path = [b"a".as_slice(), b"1", b"b", b"\xff"].map(LinkName::from);
        let error = resolve(store.as_ref(), &cid, &path).await.unwrap_err();
        assert!(leads_nowhere(&error) && error.message().contains(&tree.cid.to_string()), "{error}");
    }
}
