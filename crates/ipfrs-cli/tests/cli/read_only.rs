//! A read-only repo.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::harness::{Place, noise};

/// Returns every file and directory below `path`, with its content and its status change time (ctime).
fn snapshot(path: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::metadata(&path).unwrap();
        if metadata.is_dir() {
            found.extend(snapshot(&path));
        }
        let content = if metadata.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
        found.insert(path, (content, metadata.ctime(), metadata.ctime_nsec()));
    }
    found
}

#[test]
fn read_only_commands_and_gateway_leave_repo_unchanged() {
    let place = Place::new();
    let large = noise(700_000);
    place.write("tree/large", &large);
    place.write("tree/small", b"small\n");
    let tree = place.ok(&["add", "-r", "-Q", "tree"]);
    let before = snapshot(&place.repo());

    let daemon = place.start(&["--read-only"]);
    let url = daemon.url().to_owned();
    let remote = ["--api", &url];
    // Query the daemon, or open the repo in the command itself while the daemon is running.
    let ask = |arguments: &[&str], local: bool| {
        let arguments = if local { arguments.to_vec() } else { [arguments, &remote].concat() };
        place.command(&arguments).env("IPFRS_STORE_READ_ONLY", "true").output().unwrap()
    };
    for local in [true, false] {
        assert!(ask(&["cat", &format!("{tree}/large")], local).stdout == large);
        let listed = String::from_utf8(ask(&["ls", &tree], local).stdout).unwrap();
        assert!(listed.contains("large") && listed.contains("small"), "{listed}");
        let saved = format!("saved-{local}");
        assert!(ask(&["get", &tree, "-o", &saved], local).status.success());
        assert_eq!(fs::read(place.path(&saved).join("small")).unwrap(), b"small\n");
        assert!(!ask(&["block", "get", &tree], local).stdout.is_empty());
        assert!(ask(&["block", "stat", &tree], local).status.success());
        let only_hash = ask(&["add", "-r", "-Q", "--only-hash", "tree"], local);
        assert_eq!(String::from_utf8(only_hash.stdout).unwrap().trim(), tree);
        for whole in [&["repo", "stat"][..], &["repo", "verify"], &["pin", "ls", &tree]] {
            assert!(ask(whole, local).status.success(), "{whole:?}");
        }
        let writes: [&[&str]; 5] = [
            &["add", "-Q", "tree/small"],
            &["block", "put", "tree/small"],
            &["block", "rm", &tree],
            &["pin", "rm", &tree],
            &["repo", "gc"],
        ];
        for refused in writes {
            let refused = ask(refused, local);
            let message = String::from_utf8(refused.stderr).unwrap();
            assert!(!refused.status.success() && message.contains("read-only"), "{message}");
        }
    }
    assert!(place.ok(&["gateway", "status", "--api", &url]).contains("(ready)"));
    assert!(place.fails(&["add", "tree/small"]).contains("is in use by another process"));
    place.ok(&["gateway", "stop", "--api", &url]);
    assert_eq!(daemon.wait().0, Some(0));
    assert!(snapshot(&place.repo()) == before);
}

#[test]
fn read_only_repo_gets_no_identity_key() {
    let place = Place::new();
    place.write("file", b"content");
    let id = place.ok(&["add", "-Q", "file"]);
    fs::remove_file(place.repo().join("identity.key")).unwrap();
    let before = snapshot(&place.repo());
    let read = |arguments: &[&str]| place.command(arguments).env("IPFRS_STORE_READ_ONLY", "true").output().unwrap();
    assert_eq!(read(&["cat", &id]).stdout, b"content");
    assert!(snapshot(&place.repo()) == before);
    let none = read(&["cat", &id, "--repo", "none"]);
    let message = String::from_utf8(none.stderr).unwrap();
    assert!(message.contains("there is no repo in none"), "{message}");
    assert!(!place.path("none").exists());
}

#[test]
fn read_only_tree_is_readable_with_another_format_of_content_ids() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    place.ok(&["files", "write", "--create", "/hello", "hello"]);
    let root = || place.ok(&["--json", "files", "stat", "/"]);
    let before = root();
    place.write("repo/config.toml", b"[import]\ncid_version = 1\n[store]\nread_only = true\n");
    assert_eq!(place.ok(&["files", "ls", "/"]), "hello");
    assert_eq!(root(), before);
    // A repo that can be written has the root in the new format.
    place.write("repo/config.toml", b"[import]\ncid_version = 1\n");
    assert!(root().contains("bafy"), "{}", root());
    assert_eq!(place.ok(&["files", "read", "/hello"]), "hello");
}
