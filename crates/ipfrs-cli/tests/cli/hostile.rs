//! Malicious directories that try to write outside the target.

use std::fs;

use ipfrs_core::parse_cid;

use crate::harness::{Place, content_of};

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    assert!(length < 128);
    [&[number << 3 | 2, length], bytes].concat()
}

/// Encodes a dag-pb directory with these names and targets, which no importer would create.
fn directory(links: &[(&str, &str)]) -> Vec<u8> {
    let mut node = Vec::new();
    for (name, cid) in links {
        let link = [field(1, &parse_cid(cid).unwrap().to_bytes()), field(2, name.as_bytes()), vec![0x18, 1]].concat();
        node.extend(field(2, &link));
    }
    // UnixFS: Type = Directory (1).
    node.extend(field(1, &[0x08, 1]));
    node
}

/// Encodes a dag-pb symlink. UnixFS: Type = Symlink (4), Data = target.
fn symlink(target: &str) -> Vec<u8> {
    field(1, &[&[0x08, 4][..], &field(2, target.as_bytes())].concat())
}

fn put(place: &Place, codec: &str, data: &[u8]) -> String {
    let ran = place.run_with_input(&["block", "put", "--cid-codec", codec], data);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.text().to_owned()
}

#[test]
fn get_rejects_escaping_names_before_writing() {
    let place = Place::new();
    let evil = put(&place, "raw", b"evil");
    let absolute = place.path("absolute");
    fs::create_dir(place.path("in")).unwrap();
    for name in ["../evil", "..", ".", "", "a/b", "nul\0", absolute.to_str().unwrap()] {
        let root = put(&place, "dag-pb", &directory(&[("good", &evil), (name, &evil)]));
        let before = content_of(&place.path("in"));
        let message = place.fails(&["get", &root, "-o", "in/target"]);
        assert!(message.contains("refusing to save an entry called"), "{name:?}: {message}");
        assert_eq!(content_of(&place.path("in")), before, "{name:?}");
        assert!(!absolute.exists() && !place.path("evil").exists(), "{name:?}");
        // The same name within a subdirectory.
        let outer = put(&place, "dag-pb", &directory(&[("inner", &root)]));
        place.fails(&["get", &outer, "-o", "in/target"]);
        assert_eq!(content_of(&place.path("in")), before, "{name:?}");
        assert!(!absolute.exists() && !place.path("evil").exists(), "{name:?}");
    }
}

#[test]
fn get_never_follows_symlink() {
    let place = Place::new();
    let evil = put(&place, "raw", b"evil");
    fs::create_dir(place.path("outside")).unwrap();
    let link = put(&place, "dag-pb", &symlink(place.path("outside").to_str().unwrap()));
    let file_link = put(&place, "dag-pb", &symlink(place.path("outside/evil").to_str().unwrap()));
    let inner = put(&place, "dag-pb", &directory(&[("evil", &evil)]));
    for (first, second) in [(&link, &inner), (&inner, &link), (&file_link, &evil), (&evil, &file_link)] {
        let root = put(&place, "dag-pb", &directory(&[("x", first), ("x", second)]));
        let message = place.fails(&["get", &root, "-o", "target"]);
        assert!(message.contains("refusing to save a directory that has two entries called \"x\""), "{message}");
        assert!(!place.path("target").exists());
        assert_eq!(content_of(&place.path("outside")).len(), 1);
    }
    // A symlink as the root is saved as a symlink.
    place.ok(&["get", &link, "-o", "link"]);
    assert_eq!(fs::read_link(place.path("link")).unwrap(), place.path("outside"));
}

#[test]
fn names_are_escaped_for_terminal() {
    let place = Place::new();
    let evil = put(&place, "raw", b"evil");
    let root = put(&place, "dag-pb", &directory(&[("\u{1b}[2Jgone\n", &evil)]));
    let listed = place.ok(&["ls", &root]);
    assert!(listed.ends_with("\\u{1b}[2Jgone\\n"), "{listed:?}");
}

#[test]
fn get_with_missing_block_saves_nothing() {
    let place = Place::new();
    let here = put(&place, "raw", b"here");
    let absent = "bafkreie7q3iidccmpvszul7kudcvvuavuo7u6gzlbobczuk5nqk3b4akba";
    let root = put(&place, "dag-pb", &directory(&[("here", &here), ("absent", absent)]));
    let message = place.fails(&["get", &root, "-o", "target"]);
    assert!(message.contains(absent), "{message}");
    assert!(!place.path("target").exists());
}
