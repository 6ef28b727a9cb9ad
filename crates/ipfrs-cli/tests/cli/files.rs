//! `files`, with and without a daemon.

use serde_json::{Value, json};

use crate::harness::Place;

#[test]
fn files_are_written_listed_and_removed() {
    let place = Place::new();
    place.write("content", b"hello world");
    place.ok(&["files", "mkdir", "-p", "/a/b"]);
    place.ok(&["files", "write", "-e", "/a/b/hello", "content"]);
    let daemon = place.start(&[]);
    assert_eq!(place.run(&["files", "read", "/a/b/hello"]).stdout, b"hello world");
    assert_eq!(place.run_with_input(&["files", "write", "-o", "6", "/a/b/hello"], b"there").code, Some(0));
    assert_eq!(place.run(&["files", "read", "-o", "6", "-n", "3", "/a/b/hello"]).stdout, b"the");
    place.ok(&["files", "cp", "/a", "/copy"]);
    place.ok(&["files", "mv", "/copy/b/hello", "/moved"]);
    drop(daemon);
    assert_eq!(place.ok(&["files", "ls"]), "a\ncopy\nmoved");
    let entry: Value = serde_json::from_str(&place.ok(&["--json", "files", "ls", "/a/b"])).unwrap();
    let stat: Value = serde_json::from_str(&place.ok(&["--json", "files", "stat", "/a/b/hello"])).unwrap();
    assert_eq!(entry, json!({"Name": "hello", "Type": 0, "Size": 11, "Hash": stat["Hash"]}));
    assert!(place.fails(&["files", "rm", "/a"]).contains("can't remove some files"));
    let refused: Value = serde_json::from_slice(&place.run(&["--json", "files", "rm", "/a"]).stdout).unwrap();
    assert!(refused["Error"].as_str().unwrap().starts_with("/a: path is a directory"), "{refused}");
    place.ok(&["files", "rm", "-r", "/a", "/copy", "/moved"]);
    assert_eq!(place.ok(&["files", "flush"]), "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn");
    assert!(place.fails(&["files", "chmod", "x", "/"]).contains("invalid syntax"));
}

#[test]
fn changes_without_a_flush_survive_the_end_of_a_daemon() {
    let place = Place::new();
    place.write("content", b"hello\n");
    let write = |path: &str| place.ok(&["files", "write", "-e", "--flush=false", path, "content"]);
    let daemon = place.start(&[]);
    write("/with");
    place.ok(&["gateway", "stop"]);
    assert_eq!(daemon.exit_code(), Some(0));
    // A command without a daemon ends at once.
    write("/without");
    assert_eq!(place.ok(&["files", "ls"]), "with\nwithout");
}
