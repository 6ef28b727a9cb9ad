//! `pin`, `repo` and `block rm`.

use std::fs;

use serde_json::{Value, json};

use crate::harness::{Place, noise};

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn pins_can_be_added_listed_updated_and_removed() {
    let place = Place::new();
    place.write("d/a", &noise(300_000));
    place.write("d/b", b"b");
    let _daemon = place.start(&[]);
    let tree = place.ok(&["add", "-rQ", "--pin=false", "d"]);
    assert_eq!(place.ok(&["pin", "ls"]), "");
    assert_eq!(place.ok(&["pin", "add", "--name", "first", &tree]), format!("pinned {tree} recursively"));
    assert_eq!(place.ok(&["pin", "ls", "-t", "recursive"]), format!("{tree} recursive"));
    assert_eq!(place.ok(&["pin", "ls", "--names", "-t", "recursive"]), format!("{tree} recursive first"));
    assert_eq!(place.ok(&["pin", "ls", "--name", "other"]), "");
    let all = place.ok(&["pin", "ls", "-q"]);
    assert_eq!(all.lines().count(), 5, "the directory, two files and two leaves: {all}");
    let b = place.ok(&["add", "-Q", "--only-hash", "d/b"]);
    assert_eq!(place.ok(&["pin", "ls", &format!("{tree}/b")]), format!("{b} indirect through {tree}"));
    assert_eq!(place.ok(&["pin", "add", "-r=false", &b]), format!("pinned {b} directly"));
    assert_eq!(objects(&place.ok(&["--json", "pin", "ls", &b])), [json!({"Cid": b, "Type": "direct"})]);
    let file = place.ok(&["add", "-Q", "--pin-name", "named", "d/a"]);
    assert_eq!(place.ok(&["pin", "ls", "-t", "recursive", "--name", "named"]), format!("{file} recursive named"));
    assert!(place.fails(&["pin", "update", &tree, &file]).contains("already recursively pinned"));
    place.ok(&["pin", "rm", &file]);
    assert_eq!(place.ok(&["pin", "update", &tree, &file]), format!("updated {tree} to {file}"));
    assert!(place.fails(&["pin", "ls", &tree]).contains("is not pinned"));
    assert_eq!(place.ok(&["pin", "verify", "--verbose"]), format!("{file} ok"));
    assert_eq!(place.ok(&["pin", "rm", &file, &b]), format!("unpinned {file}\nunpinned {b}"));
    assert!(place.fails(&["pin", "rm", &file]).contains("not pinned or pinned indirectly"));
    let many = [&["pin", "rm"][..], &vec![file.as_str(); 2_000]].concat();
    assert!(place.fails(&many).contains("pass fewer of them at a time"));
    assert_eq!(place.run(&["pin", "ls", "--type", "wrong"]).code, Some(2));
}

#[test]
fn gc_removes_garbage_with_and_without_daemon() {
    let place = Place::new();
    place.write("kept", &noise(300_000));
    let kept = place.ok(&["add", "-Q", "kept"]);
    for (round, with_daemon) in [false, true].into_iter().enumerate() {
        let daemon = with_daemon.then(|| place.start(&[]));
        place.write("garbage", &noise(100_000 + round));
        let garbage = place.ok(&["add", "-Q", "--pin=false", "--cid-version=1", "garbage"]);
        let collected = place.ok(&["repo", "gc"]);
        let lines: Vec<_> = collected.lines().collect();
        assert_eq!(lines[0], format!("removed {garbage}"));
        assert!(lines[1].starts_with("blocks removed: 1 (97.66 KiB), kept: 3; "), "{collected}");
        let garbage = place.ok(&["add", "-Q", "--pin=false", "--cid-version=1", "garbage"]);
        let collected = objects(&place.ok(&["--json", "repo", "gc"]));
        assert_eq!(collected[0], json!({"Key": {"/": garbage}}));
        assert_eq!((&collected[1]["RemovedBlocks"], &collected[1]["KeptBlocks"]), (&json!(1), &json!(3)));
        let garbage = place.ok(&["add", "-Q", "--pin=false", "--cid-version=1", "garbage"]);
        assert_eq!(place.ok(&["repo", "gc", "--quiet"]), garbage);
        assert_eq!(place.ok(&["repo", "gc", "--quiet"]), "");
        assert_eq!(place.run(&["cat", &kept]).stdout, noise(300_000));
        drop(daemon);
    }
}

#[test]
fn commands_that_look_at_a_repo_do_not_create_one() {
    let place = Place::new();
    let cid = "bafkreifjjcie6lypi6ny7amxnfftagclbuxndqonfipmb64f2km2devei4";
    let of_content = [&["cat"][..], &["get"], &["ls"], &["refs"], &["resolve"], &["block", "stat"], &["dag", "stat"]];
    let of_content = of_content.map(|command| [command, &[cid]].concat());
    let others = [
        &["repo", "stat"][..],
        &["repo", "verify"],
        &["repo", "gc"],
        &["repo", "version"],
        &["pin", "ls"],
        &["pin", "verify"],
        &["files", "ls", "/"],
        &["files", "read", "/a"],
        &["swarm", "peers"],
        &["stats", "repo"],
        &["key", "list"],
        &["name", "resolve", "example.org"],
        &["auth", "key", "list"],
        &["filestore", "ls"],
        &["tensor", "ls", cid],
    ];
    for command in others.map(<[_]>::to_vec).into_iter().chain(of_content) {
        assert!(place.fails(&command).contains("there is no repo in"), "{command:?}");
        assert!(!place.repo().exists(), "{command:?}");
    }
}

#[test]
fn block_rm_removes_unpinned_blocks_only() {
    let place = Place::new();
    place.write("a", b"a");
    place.write("b", b"b");
    let pinned = place.ok(&["block", "put", "--pin", "a"]);
    let free = place.ok(&["block", "put", "b"]);
    let ran = place.run(&["block", "rm", &pinned, &free]);
    let text = ran.text();
    assert_eq!(text, format!("cannot remove {pinned}: pinned: recursive\nremoved {free}"));
    assert_eq!((ran.code, ran.stderr.contains("1 of 2 blocks")), (Some(1), true), "{}", ran.stderr);
    assert!(place.run(&["block", "rm", &free]).text().contains("could not find"));
    assert_eq!(place.ok(&["block", "rm", "--force", "--quiet", &free]), "");
}

#[test]
fn repo_stat_and_verify_report_state() {
    let place = Place::new();
    let marker = b"this text is in the pack as it is";
    place.write("file", &marker.repeat(100));
    let cid = place.ok(&["add", "-Q", "--raw-leaves", "file"]);
    let stat = place.ok(&["repo", "stat"]);
    let names: Vec<_> = stat.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(names, ["NumObjects", "RepoSize", "DeadBytes", "StorageMax", "RepoPath", "Version"]);
    let sizes = place.ok(&["repo", "stat", "--size-only", "--human"]);
    assert!(sizes.lines().count() == 2 && sizes.contains("iB"), "{sizes}");
    assert_eq!(objects(&place.ok(&["--json", "repo", "stat"]))[0]["NumObjects"], 1);
    assert_eq!(place.ok(&["repo", "version"]), "ipfrs repo version ipfrs-repo@1");
    assert_eq!(place.ok(&["repo", "version", "-q"]), "ipfrs-repo@1");
    assert_eq!(place.ok(&["repo", "verify"]), "verify complete, all blocks validated.");
    assert_eq!(place.ok(&["repo", "verify", "--quiet"]), "");
    let pack = place.repo().join("packs/00000001.car");
    let mut bytes = fs::read(&pack).unwrap();
    let at = bytes.windows(marker.len()).position(|window| window == marker).unwrap();
    bytes[at] ^= 1;
    fs::write(&pack, bytes).unwrap();
    let ran = place.run(&["repo", "verify", "--quiet"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.text().starts_with(&format!("block {cid} was corrupt")), "{}", ran.text());
    assert!(ran.stderr.contains("1 blocks corrupt: remove them"), "{}", ran.stderr);
    assert!(place.fails(&["repo", "verify", "--heal"]).contains("must be run in online mode"));
    assert!(place.fails(&["repo", "verify", "--heal", "--heal-timeout=1day"]).contains("invalid heal-timeout"));
    let repaired = place.ok(&["repo", "verify", "--drop"]);
    assert!(repaired.ends_with(", removed\nverify complete, 1 blocks corrupt, 1 removed"), "{repaired}");
    assert_eq!(place.ok(&["repo", "verify"]), "verify complete, all blocks validated.");
    assert!(place.fails(&["cat", &cid]).contains("not found"));
    assert_eq!(place.ok(&["add", "-Q", "--raw-leaves", "file"]), cid);
    assert_eq!(place.ok(&["cat", &cid]).len(), 100 * marker.len());
}
