//! `get` into archives, unpacked with the system's tools.

use std::fs;
use std::process::Command;

use crate::harness::{Place, content_of, noise};

/// Runs a tool in `place` and returns its standard output.
fn tool(place: &Place, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(arguments[0]).args(&arguments[1..]).current_dir(place.path("")).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{arguments:?}: {stderr}");
    output.stdout
}

#[test]
fn get_archive_unpacks_to_same_tree() {
    let place = Place::new();
    place.tree("tree");
    let root = place.ok(&["add", "-rQ", "tree"]);
    assert_eq!(place.ok(&["get", "-a", &root]), format!("saved {root}.tar"));
    tool(&place, &["tar", "-xf", &format!("{root}.tar")]);
    assert_eq!(content_of(&place.path(&root)), content_of(&place.path("tree")));

    let daemon = place.start(&[]);
    fs::create_dir(place.path("out")).unwrap();
    assert_eq!(place.ok(&["get", "-C", "-l", "9", &root, "-o", "out"]), format!("saved out/{root}.tar.gz"));
    assert_eq!(place.ok(&["get", "-aC", &root, "-o", "named.tar.gz"]), "saved named.tar.gz");
    tool(&place, &["tar", "-xzf", &format!("out/{root}.tar.gz"), "-C", "out"]);
    assert_eq!(content_of(&place.path("out").join(&root)), content_of(&place.path("tree")));
    drop(daemon);
}

#[test]
fn get_compresses_file_alone_or_in_archive() {
    let place = Place::new();
    let content = noise(600_000);
    place.write("file", &content);
    let root = place.ok(&["add", "-Qw", "file"]);
    let path = format!("{root}/file");
    fs::remove_file(place.path("file")).unwrap();
    assert_eq!(place.ok(&["get", "-C", &path]), "saved file.gz");
    assert!(tool(&place, &["gzip", "-dc", "file.gz"]) == content);
    assert_eq!(place.ok(&["--json", "get", "-C", "-a", &path]), r#"{"path":"file.tar.gz"}"#);
    tool(&place, &["tar", "-xzf", "file.tar.gz"]);
    assert!(fs::read(place.path("file")).unwrap() == content);
    assert_eq!(place.run(&["get", "-C", "-l", "10", &path]).code, Some(2));
    let absent = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    assert!(place.fails(&["get", "-a", absent]).contains("could not find"));
    assert!(!place.path(&format!("{absent}.tar")).exists());
}
