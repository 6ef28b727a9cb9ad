//! `add --nocopy` and `filestore`, with a daemon that is killed, and backups.

use std::fs;

use serde_json::Value;

use crate::harness::{Place, noise};

#[test]
fn files_that_are_not_copied_survive_a_kill_and_a_backup() {
    let place = Place::new();
    place.write("repo/config.toml", b"[store]\nfilestore_root = \"../data\"\n");
    let tree = place.tree("data/tree");
    place.write("elsewhere", b"elsewhere");
    let copied = place.ok(&["add", "-r", "-Q", "--raw-leaves", "-n", "data/tree"]);
    let daemon = place.start(&[]);
    // A relative path.
    assert_eq!(place.ok(&["add", "-r", "-Q", "--nocopy", "data/tree"]), copied);
    daemon.kill();
    let daemon = place.start(&[]);
    let listed = place.ok(&["filestore", "ls", "--file-order"]);
    let names: Vec<_> = listed.lines().map(|line| line.split_whitespace().nth(2).unwrap()).collect();
    assert!(names.is_sorted() && names.iter().all(|name| name.starts_with("tree/")), "{listed}");
    let packs: u64 =
        fs::read_dir(place.repo().join("packs")).unwrap().map(|pack| pack.unwrap().metadata().unwrap().len()).sum();
    assert!(packs < 10_000, "{packs}");
    assert!(place.run(&["cat", &format!("{copied}/sizes/1000000")]).stdout == noise(1_000_000));
    let failure = place.fails(&["add", "-Q", "--nocopy", "elsewhere"]);
    assert!(failure.contains("outside ipfs root"), "{failure}");
    let failure = place.run_with_input(&["add", "-Q", "--nocopy"], b"x").stderr;
    assert!(failure.contains("missing file path"), "{failure}");
    assert_eq!(place.ok(&["filestore", "dups"]), "");
    place.ok(&["add", "-r", "-Q", "--raw-leaves", "--fscache", "data/tree"]);
    assert_eq!(place.ok(&["filestore", "dups"]), "");

    place.ok(&["repo", "backup", "backup", "--verify"]);
    let restored: Value =
        serde_json::from_str(&place.ok(&["--repo", "new", "repo", "restore", "backup", "--verify", "--json"])).unwrap();
    assert_eq!(restored["verified_blocks"], place.ok(&["refs", "local"]).lines().count(), "{restored}");
    assert_eq!(place.ok(&["--repo", "new", "filestore", "ls", "--file-order"]), listed);

    fs::write(tree.join("sizes/262145"), noise(262_146)).unwrap();
    let verified = place.run(&["filestore", "verify"]);
    assert_eq!(verified.code, Some(1));
    assert!(verified.stderr.contains("2 blocks cannot be read"), "{}", verified.stderr);
    assert_eq!(verified.text().lines().filter(|line| line.starts_with("changed ")).count(), 2, "{}", verified.text());
    // A check of the whole repo finds the same.
    let failure = place.run(&["repo", "verify"]);
    assert_eq!(failure.code, Some(1), "{}", failure.text());
    let removed = place.ok(&["filestore", "verify", "--remove-bad-blocks", "--file-order"]);
    assert_eq!(removed.lines().filter(|line| line.ends_with(" remove")).count(), 2, "{removed}");
    let line = place.ok(&["filestore", "verify", "--json"]).lines().next().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["Status"], 0);
    let remaining = listed.lines().count() - 2;
    daemon.kill();

    // Without the setting, the blocks are missing, and nothing removes the references.
    // A warning precedes the error.
    let failure = |arguments: &[&str]| {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.stderr);
        ran.stderr
    };
    place.write("repo/config.toml", b"");
    assert!(failure(&["filestore", "ls"]).contains("set store.filestore_root"));
    assert_eq!(place.run(&["repo", "gc"]).code, Some(0));
    place.write("repo/config.toml", b"[store]\nfilestore_root = \"absent\"\n");
    assert!(failure(&["filestore", "ls"]).contains("store.filestore_root"));
    place.write("repo/config.toml", b"[store]\nfilestore_root = \"../data\"\n");
    assert_eq!(place.ok(&["filestore", "ls"]).lines().count(), remaining);
}
