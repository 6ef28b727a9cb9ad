//! Tests that trees built in memory and on disk are equal.

use std::sync::Arc;

use async_trait::async_trait;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, codec};
use ipfrs_unixfs::{BlockSink, ImportOptions, Overrides};

use super::*;

struct Nowhere;

#[async_trait]
impl BlockSink for Nowhere {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        Ok(())
    }
}

enum Part {
    File(String),
    Directory(&'static str, Attributes),
}

fn split(path: &str) -> Vec<&[u8]> {
    path.as_bytes().split(|byte| *byte == b'/').collect()
}

fn names(built: &[Added]) -> Vec<&str> {
    built.iter().map(|added| added.name.to_str().unwrap()).collect()
}

fn file(path: impl Into<String>) -> Part {
    Part::File(path.into())
}

fn mode(mode: u32) -> Attributes {
    Attributes { mode: Some(mode), mtime: Some(Mtime { seconds: -1, nanos: 5 }) }
}

fn entry(path: &str) -> Entry {
    let block = Block::hash(1, codec::RAW, HashFunction::Identity, path.to_owned().into()).unwrap();
    Entry { cid: *block.cid(), tsize: 3, size: path.len() as u64, kind: EntryKind::File }
}

/// Returns the directories of an import in build order, with at most `max_bytes` of entries in memory.
async fn build(parts: &[Part], max_bytes: usize, wrap: bool) -> Result<Vec<Added>> {
    let dir = tempfile::tempdir().unwrap();
    build_in(Tree::with_memory(dir.path().to_owned(), max_bytes), parts, max_bytes, wrap).await
}

async fn build_in(mut tree: Tree, parts: &[Part], max_bytes: usize, wrap: bool) -> Result<Vec<Added>> {
    for part in parts {
        match part {
            Part::File(path) => tree.place(&split(path), &entry(path)).await?,
            Part::Directory(path, attributes) => {
                tree.directory(&split(path), *attributes).await?;
            }
        }
    }
    assert_eq!(tree.table()?.is_on_disk(), max_bytes != usize::MAX);
    let overrides = Overrides { attributes: true, ..Overrides::default() };
    let mut importer = Importer::new(ImportOptions::new(None, overrides).unwrap(), Arc::new(Nowhere));
    let mut built = Vec::new();
    while let Some(added) = tree.build_next(&mut importer, |own| own, wrap).await? {
        built.push(added);
    }
    Ok(built)
}

#[tokio::test]
async fn directory_is_equal_in_memory_and_on_disk() {
    let parts: Vec<_> = (0..100_000).map(|i| file(format!("large/{i}"))).collect();
    let whole = build(&parts, usize::MAX, true).await.unwrap();
    assert_eq!(names(&whole), ["large", ""]);
    assert_eq!(build(&parts, 128 * 1024, true).await.unwrap(), whole);
}

#[tokio::test]
async fn directories_follow_children_with_last_attributes() {
    let nested = (0..1_000).map(|i| file(format!("a/{}/{}/{i}", i % 30, i % 7)));
    let parts: Vec<_> = [Part::Directory("a/29", mode(0o700)), Part::Directory("empty", mode(0o755))]
        .into_iter()
        .chain(nested)
        .chain([Part::Directory("a/29", mode(0o711)), file("ab/x"), file("file")])
        .collect();
    let whole = build(&parts, usize::MAX, false).await.unwrap();
    for max_bytes in [0, 10_000] {
        assert_eq!(build(&parts, max_bytes, false).await.unwrap(), whole);
    }
    let at = |name: &str| whole.iter().position(|added| added.name == name).unwrap();
    assert!(at("a/29/1") < at("a/29") && at("a/29") < at("a"));
    assert_eq!(whole.len(), 30 * 7 + 30 + 3, "no entry at the top is a directory without being one");
    let earlier: Vec<_> =
        parts.into_iter().filter(|part| !matches!(part, Part::Directory(_, m) if *m == mode(0o700))).collect();
    assert_eq!(build(&earlier, usize::MAX, false).await.unwrap(), whole, "the last attributes count");
}

#[test]
fn directory_keys_round_trip_and_sort_inner_first() {
    for names in [[&b"\xff"[..], b"\xfe\xff"], [b"\xfe\x01", b"\xfe"], [b"a", b"\xff\xff"]] {
        let (inner, outer) = (directory_key(&names), directory_key(&names[..1]));
        assert_eq!(names_of(&inner).unwrap(), names);
        assert_eq!(name_of(&entry_key(inner.clone(), names[1])).unwrap(), names[1]);
        assert!(inner < outer, "{names:?}");
    }
    for damaged in [&b"\xfe\xff"[..], b"\xfe\x03\xff", b"a"] {
        assert!(names_of(damaged).is_err());
    }
}

#[tokio::test]
async fn empty_directories_are_skipped_in_memory_and_on_disk() {
    let at = |path| Part::Directory(path, mode(0o700));
    let parts = [at("top"), at("d"), at("d/e"), at("d/e/f"), at("d/g"), at("h"), file("h/i/x"), at("h/j")];
    for max_bytes in [usize::MAX, 0] {
        for (wrap, expected) in [(false, &["d/e", "d", "h/i", "h", "top"][..]), (true, &["d/e", "d", "h/i", "h", ""])] {
            let dir = tempfile::tempdir().unwrap();
            let mut tree = Tree::with_memory(dir.path().to_owned(), max_bytes);
            tree.skip_empty();
            let built = build_in(tree, &parts, max_bytes, wrap).await.unwrap();
            assert_eq!(names(&built), expected, "{max_bytes} {wrap}");
        }
    }
}

#[tokio::test]
async fn duplicate_names_are_detected_in_memory_and_on_disk() {
    for (parts, message) in [
        ([file("d/a"), file("d/a")], "\"d/a\" is in the import twice"),
        ([file("a"), file("a")], "\"a\" is in the import twice"),
        ([file("d/a"), file("d/a/b")], "\"d/a\" is a file and a directory"),
        ([file("d/a/b"), file("d/a")], "\"d/a\" is a file and a directory"),
        ([file("a"), file("a/b")], "\"a\" is a file and a directory"),
        ([file("d/a"), Part::Directory("d/a", mode(0))], "\"d/a\" is a file and a directory"),
    ] {
        for max_bytes in [usize::MAX, 0] {
            let error = build(&parts, max_bytes, false).await.unwrap_err();
            assert!(error.to_string().contains(message), "{error} (expected {message})");
        }
    }
}

#[tokio::test]
async fn single_file_has_a_directory_only_if_wrapped() {
    assert_eq!(build(&[file("a")], usize::MAX, false).await.unwrap(), []);
    let wrapped = build(&[file("a")], usize::MAX, true).await.unwrap();
    assert_eq!(names(&wrapped), [""]);
}
