//! `repo backup` and `repo restore`: what a restored repo has, what later runs copy, and what kills leave behind.

use std::collections::BTreeSet;
use std::fs::{self, DirEntry, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, in_shell, noise};

/// A limit on the store with which a pack has 2 MiB.
const SMALL_PACKS: (&str, &str) = ("IPFRS_STORE_MAX_BYTES", "134217728");

/// Size of a file that fills some packs.
const LARGE: usize = 9_000_000;

fn command(place: &Place, arguments: &[&str]) -> Command {
    let mut command = place.command(arguments);
    command.env(SMALL_PACKS.0, SMALL_PACKS.1);
    command
}

/// Runs a command that must succeed, and returns its output.
fn ok(place: &Place, arguments: &[&str]) -> String {
    let output = command(place, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn json(place: &Place, arguments: &[&str]) -> Value {
    serde_json::from_str(&ok(place, arguments)).unwrap()
}

/// Starts a daemon with small packs.
fn start(place: &Place) -> crate::harness::Daemon {
    let mut daemon = command(place, &["gateway", "start", "--port", "0", "--workers", "2"]);
    daemon.env("IPFRS_UPLOAD_EXPIRES_AFTER_SECONDS", "3600");
    crate::harness::Daemon::start(daemon)
}

fn add(place: &Place, name: &str, size: usize) -> String {
    place.write(name, &noise(size));
    ok(place, &["add", "-Q", name])
}

/// Returns all blocks, pins, mutable files, keys and names of a repo.
fn state(place: &Place, repo: &str) -> Vec<BTreeSet<String>> {
    let lists: [&[&str]; 5] = [
        &["refs", "local"],
        &["pin", "ls", "--names"],
        &["files", "stat", "/"],
        &["files", "ls", "/"],
        &["key", "list", "-l"],
    ];
    let lines = |list: &&[&str]| ok(place, &[&["--repo", repo], *list].concat()).lines().map(str::to_owned).collect();
    lists.iter().map(lines).collect()
}

fn pack_bytes(repo: &Path) -> u64 {
    fs::read_dir(repo.join("packs")).unwrap().map(|pack| pack.unwrap().metadata().unwrap().len()).sum()
}

fn snapshots(place: &Place) -> usize {
    fs::read_dir(place.repo().join("snapshots")).map_or(0, Iterator::count)
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Runs a command that the system kills when one of its files exceeds `kib`.
fn killed_at(place: &Place, kib: u64, arguments: &[&str]) {
    let limit = format!("ulimit -c 0; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2);
    let output = in_shell(&limit, &command(place, arguments)).output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::XFSZ.as_raw()), "{kib} KiB: {output:?}");
}

/// Waits until `reached`, and returns false if the process ends before.
fn wait_until(child: &mut Child, reached: impl Fn() -> bool) -> bool {
    while !reached() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn backup_of_running_daemon_restores_all_its_state() {
    let place = Place::new();
    place.write("repo/config.toml", b"[upload]\nexpires_after_seconds = 7200\n");
    place.write("repo/ingest/object", &noise(3_000_000));
    place.write("repo/auth/keys.json", b"[]");
    fs::set_permissions(place.path("repo/auth/keys.json"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(place.path("backup")).unwrap();
    let daemon = start(&place);
    let large = add(&place, "large", LARGE);
    ok(&place, &["pin", "add", "--name", "the name", &large]);
    let gone = add(&place, "gone", 2_000_000);
    ok(&place, &["pin", "rm", &gone]);
    ok(&place, &["files", "mkdir", "-p", "/a/b"]);
    ok(&place, &["files", "cp", &format!("/ipfs/{large}"), "/a/b/large"]);
    let name = ok(&place, &["key", "gen", "k"]);
    ok(&place, &["name", "publish", "--key", "k", &large]);
    ok(&place, &["repo", "gc"]);
    let first = json(&place, &["repo", "backup", "backup", "--json", "--verify"]);
    assert_eq!((&first["has_keys"], &first["verified"]), (&true.into(), &true.into()), "{first}");
    assert_eq!(first["copied_pack_bytes"], pack_bytes(&place.repo()), "{first}");
    assert_eq!(snapshots(&place), 0, "the snapshot is removed");
    let before = state(&place, "repo");
    // Later changes do not belong to the backup.
    add(&place, "later", 1_000_000);
    ok(&place, &["pin", "rm", &large]);
    ok(&place, &["files", "rm", "-r", "/a"]);
    let checked = json(&place, &["repo", "restore", "backup", "--check", "--json"]);
    assert_eq!(checked["bytes"], first["total_bytes"], "{checked}");
    assert!(!place.path("new").exists());
    let restored = json(&place, &["--repo", "new", "repo", "restore", "backup", "--verify", "--json"]);
    assert_eq!(restored["verified_blocks"], before[0].len(), "{restored}");
    assert_eq!(state(&place, "new"), before);
    assert_eq!(ok(&place, &["--repo", "new", "name", "resolve", &name]), format!("/ipfs/{large}"));
    assert_eq!(fs::read(place.path("new/ingest/object")).unwrap(), noise(3_000_000));
    let shown = ok(&place, &["--repo", "new", "config", "show"]);
    assert!(shown.contains("expires_after_seconds = 7200"), "{shown}");
    let secrets = ["identity.key", "auth/keys.json"].map(|file| place.path("new").join(file));
    let keys = fs::read_dir(place.path("new/keystore")).unwrap().map(|key| key.unwrap().path());
    for secret in keys.chain(secrets) {
        assert_eq!(mode(&secret), 0o600, "{}", secret.display());
    }
    assert_eq!(mode(&place.path("new/keystore")), 0o700);
    // A daemon serves the restored repo beside the original.
    let mut second = place.command(&["--repo", "new", "gateway", "start", "--port", "0"]);
    second.env_remove("IPFRS_PATH");
    let second = crate::harness::Daemon::start(second);
    assert_eq!(command(&place, &["--repo", "new", "cat", &large]).output().unwrap().stdout, noise(LARGE));
    second.kill();
    daemon.kill();
}

#[test]
fn later_backup_copies_only_what_is_new() {
    let place = Place::new();
    // A repo without a block.
    ok(&place, &["key", "gen", "k"]);
    let empty = json(&place, &["repo", "backup", "backup", "--json"]);
    assert_eq!(empty["packs"], 0, "{empty}");
    ok(&place, &["--repo", "empty", "repo", "restore", "backup", "--verify"]);
    assert_eq!(ok(&place, &["--repo", "empty", "key", "list", "-l"]), ok(&place, &["key", "list", "-l"]));
    ok(&place, &["files", "mkdir", "/directory"]);
    add(&place, "first", LARGE);
    place.write("repo/ingest/object", &noise(2_500_000));
    let backup = || json(&place, &["repo", "backup", "backup", "--json"]);
    let first = backup();
    let size = pack_bytes(&place.repo());
    assert_eq!(first["copied_pack_bytes"], size, "{first}");
    let unchanged = backup();
    assert_eq!((&unchanged["copied_packs"], &unchanged["copied_pack_bytes"]), (&0.into(), &0.into()), "{unchanged}");
    assert!(unchanged["copied_file_bytes"].as_u64().unwrap() < 2_500_000, "the object is not copied: {unchanged}");
    // One pack grows, and perhaps others begin.
    let second = add(&place, "second", 400_000);
    let grown = backup();
    assert_eq!(grown["copied_pack_bytes"], pack_bytes(&place.repo()) - size, "{grown}");
    // A removed pack is removed from the backup, and the survivors are copied to a new pack.
    let all: BTreeSet<_> = ok(&place, &["pin", "ls", "--type=recursive", "-q"]).lines().map(str::to_owned).collect();
    for root in all.iter().filter(|root| **root != second) {
        ok(&place, &["pin", "rm", root]);
    }
    ok(&place, &["repo", "gc"]);
    backup();
    let packs = |directory: PathBuf| -> BTreeSet<_> {
        fs::read_dir(directory).unwrap().map(|pack| pack.unwrap().file_name()).collect()
    };
    assert_eq!(packs(place.path("backup/packs")), packs(place.path("repo/packs")));
    ok(&place, &["--repo", "new", "repo", "restore", "backup", "--verify"]);
    assert_eq!(state(&place, "new"), state(&place, "repo"));
    // The restored repo continues with the same backup, although its files are others.
    let continued = json(&place, &["--repo", "new", "repo", "backup", "backup", "--json"]);
    assert!(continued["copied_pack_bytes"].as_u64().unwrap() < 100, "the empty pack of the restore: {continued}");
    // A state of the repo that went another way: what both have differs behind the same lengths.
    ok(&place, &["--repo", "new", "add", "-Q", "first"]);
    ok(&place, &["--repo", "new", "repo", "backup", "backup"]);
    place.write("other", &noise(LARGE + 1));
    ok(&place, &["add", "-Q", "other"]);
    ok(&place, &["repo", "backup", "backup", "--verify"]);
    ok(&place, &["--repo", "third", "repo", "restore", "backup", "--verify"]);
    assert_eq!(state(&place, "third"), state(&place, "repo"));
}

#[test]
fn killed_backup_leaves_the_previous_one() {
    let place = Place::new();
    let daemon = start(&place);
    ok(&place, &["files", "mkdir", "/directory"]);
    add(&place, "small", 1_500_000);
    add(&place, "first", LARGE);
    // While nothing is backed up yet: in the pins, in the first pack, in the second.
    for kib in [64, 1_100, 3_000] {
        killed_at(&place, kib, &["repo", "backup", "backup"]);
        let error = place.fails(&["--repo", "new", "repo", "restore", "backup"]);
        assert!(error.contains("was never finished"), "{error}");
        assert!(!place.path("new").exists() && !place.path("new.restoring").exists());
    }
    let first = json(&place, &["repo", "backup", "backup", "--json"]);
    assert!(first["copied_pack_bytes"].as_u64().unwrap() < pack_bytes(&place.repo()), "a killed run counts: {first}");
    let (before, created) = (state(&place, "repo"), json(&place, &["repo", "restore", "backup", "--check", "--json"]));
    add(&place, "second", LARGE - 1);
    for kib in [64, 1_100, 3_000] {
        killed_at(&place, kib, &["repo", "backup", "backup"]);
        let checked = json(&place, &["repo", "restore", "backup", "--check", "--json"]);
        assert_eq!(checked["created"], created["created"]);
    }
    // At other moments: when a pack is there, when a pack is recorded, when the manifest has changed.
    let manifest = fs::read(place.path("backup/manifest.json")).unwrap();
    let packs = fs::read_dir(place.path("backup/packs")).unwrap().count();
    let moments: [&dyn Fn() -> bool; 3] = [
        &|| fs::read_dir(place.path("backup/packs")).is_ok_and(|found| found.count() > packs + 1),
        &|| place.path("backup/unfinished.json").exists(),
        &|| fs::read(place.path("backup/manifest.json")).is_ok_and(|now| now != manifest),
    ];
    for moment in moments {
        let mut child = command(&place, &["repo", "backup", "backup"]).spawn().unwrap();
        wait_until(&mut child, moment);
        child.kill().unwrap();
        child.wait().unwrap();
        let is_new = fs::read(place.path("backup/manifest.json")).unwrap() != manifest;
        ok(&place, &["--repo", "new", "repo", "restore", "backup", "--verify"]);
        let expected = if is_new { state(&place, "repo") } else { before.clone() };
        assert_eq!(state(&place, "new"), expected);
        fs::remove_dir_all(place.path("new")).unwrap();
    }
    ok(&place, &["repo", "backup", "backup", "--verify"]);
    assert!(!place.path("backup/unfinished.json").exists());
    let left: Vec<_> = fs::read_dir(place.path("backup")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
    daemon.kill();
}

#[test]
fn killed_restore_leaves_no_repo() {
    let place = Place::new();
    add(&place, "file", LARGE);
    ok(&place, &["repo", "backup", "backup"]);
    fs::create_dir(place.path("new")).unwrap();
    fs::set_permissions(place.path("new"), Permissions::from_mode(0o750)).unwrap();
    let restore = ["--repo", "new", "repo", "restore", "backup"];
    for kib in [300, 1_100, 3_000] {
        killed_at(&place, kib, &restore);
        assert_eq!(fs::read_dir(place.path("new")).unwrap().count(), 0, "a daemon would start from this");
    }
    let built = place.path("new.restoring/repo/packs");
    for packs in 1..4 {
        let mut child = command(&place, &restore).spawn().unwrap();
        wait_until(&mut child, || fs::read_dir(&built).is_ok_and(|found| found.count() >= packs));
        child.kill().unwrap();
        child.wait().unwrap();
        if fs::read_dir(place.path("new")).unwrap().next().is_some() {
            // It was complete before the signal.
            assert_eq!(state(&place, "new"), state(&place, "repo"));
            fs::remove_dir_all(place.path("new")).unwrap();
            fs::create_dir(place.path("new")).unwrap();
            fs::set_permissions(place.path("new"), Permissions::from_mode(0o750)).unwrap();
        }
    }
    ok(&place, &restore);
    assert_eq!(state(&place, "new"), state(&place, "repo"));
    assert_eq!(mode(&place.path("new")), 0o750);
    assert!(!place.path("new.restoring").exists());
}

#[test]
fn gc_during_backup_takes_nothing_from_it() {
    let place = Place::new();
    let mut daemon = start(&place);
    ok(&place, &["files", "mkdir", "/directory"]);
    add(&place, "kept", 1_000_000);
    let removed = add(&place, "removed", LARGE);
    let before = state(&place, "repo");
    let mut child = command(&place, &["repo", "backup", "backup"]).spawn().unwrap();
    let first = place.path("backup/packs/00000001.car");
    let is_stopped = wait_until(&mut child, || first.exists());
    assert!(is_stopped, "the backup ended before it had a pack");
    kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
    ok(&place, &["pin", "rm", &removed]);
    ok(&place, &["repo", "gc"]);
    add(&place, "meanwhile", 500_000);
    let packs = fs::read_dir(place.path("repo/packs")).unwrap().count();
    assert!(packs < 3, "gc removes packs while they are copied: {packs}");
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    ok(&place, &["--repo", "new", "repo", "restore", "backup", "--verify"]);
    assert_eq!(state(&place, "new"), before);
    // The snapshot of a killed backup is removed by gc and by the next start.
    for ends in ["gc", "start"] {
        add(&place, ends, LARGE + ends.len());
        let mut child = command(&place, &["repo", "backup", &format!("of-{ends}")]).spawn().unwrap();
        let is_in_use = |snapshot: io::Result<DirEntry>| {
            snapshot.and_then(|snapshot| fs::metadata(snapshot.path().join("in-use"))).is_ok_and(|file| file.len() > 0)
        };
        let is_in_use = || fs::read_dir(place.path("repo/snapshots")).is_ok_and(|mut all| all.any(is_in_use));
        assert!(wait_until(&mut child, is_in_use), "the backup ended before it was seen to use its snapshot");
        child.kill().unwrap();
        child.wait().unwrap();
        if ends == "gc" {
            ok(&place, &["repo", "gc"]);
        } else {
            daemon.kill();
            daemon = start(&place);
        }
        assert_eq!(snapshots(&place), 0, "{ends}");
    }
    daemon.kill();
}

#[test]
fn wrong_places_and_damaged_backups_are_refused() {
    let place = Place::new();
    add(&place, "file", 3_000_000);
    place.write("full/file", b"content");
    place.write("elsewhere/config.toml", b"");
    let refused = |arguments: &[&str], reason: &str| {
        let error = place.fails(arguments);
        assert!(error.contains(reason), "{arguments:?}: {error}");
    };
    refused(&["repo", "backup", "repo/packs/backup"], "is inside the repo");
    refused(&["repo", "backup", "missing/backup"], "mount the disk");
    refused(&["repo", "backup", "full"], "is not empty and holds no backup");
    refused(&["--repo", "elsewhere", "repo", "backup", "backup"], "there is no repo in elsewhere");
    refused(&["--repo", "new", "repo", "restore", "full"], "holds no backup");
    assert!(!place.path("new").exists() && !place.path("backup").exists());
    ok(&place, &["repo", "backup", "backup", "--without-keys"]);
    ok(&place, &["--repo", "keyless", "repo", "restore", "backup"]);
    assert!(!place.path("keyless/identity.key").exists());
    // A new one is no loss.
    ok(&place, &["--repo", "keyless", "key", "list"]);
    refused(&["repo", "restore", "backup"], "is not empty");
    ok(&place, &["--repo", "other", "add", "-Q", "file"]);
    refused(&["--repo", "other", "repo", "backup", "backup"], "holds the backup of another repo");
    let manifest = fs::read_to_string(place.path("backup/manifest.json")).unwrap();
    for (from, to, reason) in [
        ("\"format\": 1", "\"format\": 2", "has format 2"),
        ("\"00000001.car\"", "\"00000009.car\"", "checksum does not match"),
        ("\"format\": 1", "\"format\": 1,", "is damaged"),
    ] {
        assert!(manifest.contains(from));
        place.write("backup/manifest.json", manifest.replacen(from, to, 1).as_bytes());
        refused(&["--repo", "new", "repo", "restore", "backup"], reason);
        refused(&["repo", "backup", "backup"], reason);
    }
    place.write("backup/manifest.json", manifest.as_bytes());
    let pack = place.path("backup/packs/00000001.car");
    let mut bytes = fs::read(&pack).unwrap();
    bytes[1_000] ^= 1;
    fs::write(&pack, &bytes).unwrap();
    refused(&["repo", "restore", "backup", "--check"], "00000001.car is damaged");
    refused(&["--repo", "new", "repo", "restore", "backup"], "00000001.car is damaged");
    fs::write(&pack, &bytes[..500_000]).unwrap();
    refused(&["repo", "restore", "backup", "--check"], "bytes early");
    assert!(!place.path("new").exists() && !place.path("new.restoring").exists());
    // The next run replaces a copy that is too short.
    ok(&place, &["repo", "backup", "backup", "--verify"]);
    ok(&place, &["--repo", "new", "repo", "restore", "backup", "--verify"]);
    assert_eq!(state(&place, "new"), state(&place, "repo"));
}

#[test]
fn block_that_was_damaged_when_backed_up_is_a_loss_of_the_restored_repo() {
    let place = Place::new();
    add(&place, "file", 700_000);
    let pack = place.repo().join("packs/00000001.car");
    let mut bytes = fs::read(&pack).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&pack, bytes).unwrap();
    ok(&place, &["repo", "backup", "backup"]);
    let fails = |arguments: &[&str]| {
        let ran = place.run(arguments);
        assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.stderr);
        ran.stderr
    };
    let error = fails(&["--repo", "new", "repo", "restore", "backup", "--verify"]);
    assert!(error.contains("restore it without --verify"), "{error}");
    ok(&place, &["--repo", "new", "repo", "restore", "backup"]);
    for _ in 0..2 {
        let error = fails(&["--repo", "new", "repo", "verify"]);
        assert!(error.contains("pack 1 is damaged: 1 of its sections"), "{error}");
    }
}

#[test]
fn store_in_another_directory_is_restored() {
    let place = Place::new();
    let elsewhere = place.path("elsewhere");
    for (number, path) in ["blocks", elsewhere.to_str().unwrap()].into_iter().enumerate() {
        let [repo, backup, new] = ["repo", "backup", "new"].map(|name| format!("{name}{number}"));
        place.write(&format!("{repo}/config.toml"), format!("[store]\npath = {path:?}\n").as_bytes());
        place.write("file", &noise(700_000));
        let root = ok(&place, &["--repo", &repo, "add", "-Q", "file"]);
        ok(&place, &["--repo", &repo, "files", "mkdir", "/directory"]);
        ok(&place, &["--repo", &repo, "repo", "backup", &backup]);
        ok(&place, &["--repo", &new, "repo", "restore", &backup, "--verify"]);
        assert_eq!(ok(&place, &["--repo", &new, "pin", "ls", "--type=recursive", "-q"]), root);
        assert_eq!(state(&place, &new), state(&place, &repo));
        // A configuration that names the old store would begin an empty one, or open that of the original.
        let is_relative = number == 0;
        assert_eq!(place.path(&new).join("config.toml").exists(), is_relative);
        assert_eq!(place.path(&new).join("config.toml.restored").exists(), !is_relative);
    }
    let error = place.fails(&["--repo", "repo1", "repo", "backup", "elsewhere/packs/backup"]);
    assert!(error.contains("is inside the store"), "{error}");
}

#[test]
fn backup_has_a_configuration_elsewhere_and_is_not_opened_as_a_repo() {
    let place = Place::new();
    place.write("elsewhere.toml", b"[upload]\nexpires_after_seconds = 7200\n");
    let config = ["--config", "elsewhere.toml"];
    let cid = add(&place, "file", 1_000);
    let without = ok(&place, &["repo", "backup", "backup"]);
    assert!(without.contains("name it with --config"), "{without}");
    let with = ok(&place, &[&config[..], &["repo", "backup", "backup"]].concat());
    assert!(!with.contains("--config"), "{with}");

    let before = fs::read_dir(place.path("backup")).unwrap().count();
    for command in [&["repo", "verify"][..], &["pin", "verify"], &["cat", &cid], &["add", "file"]] {
        let refused = place.fails(&[&["--repo", "backup"], command].concat());
        assert!(refused.contains("is a backup and no repo"), "{refused}");
    }
    assert_eq!(fs::read_dir(place.path("backup")).unwrap().count(), before);

    ok(&place, &["--repo", "restored", "repo", "restore", "backup"]);
    assert_eq!(fs::read(place.path("restored/config.toml")).unwrap(), fs::read(place.path("elsewhere.toml")).unwrap());
}
