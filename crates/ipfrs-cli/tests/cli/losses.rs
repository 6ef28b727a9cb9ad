//! Lost packs, references, identities and roots of the mutable files: all are reported until the operator accepts the
//! loss. Damaged files are named.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::harness::{Place, noise};

fn get(place: &Place, path: &str) -> String {
    let daemon = place.start(&[]);
    let mut connection = daemon.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

/// Runs a command that must fail, and returns its log and its error.
fn fails(place: &Place, arguments: &[&str]) -> String {
    let ran = place.run(arguments);
    assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.stderr);
    ran.stderr
}

#[test]
fn lost_and_shorter_packs_are_reported_until_accepted() {
    for is_shorter in [false, true] {
        let place = Place::new();
        place.write("file", &noise(3_000_000));
        place.ok(&["add", "file"]);
        place.ok(&["repo", "verify"]);
        let pack = place.repo().join("packs/00000001.car");
        match is_shorter {
            true => fs::File::options().write(true).open(&pack).unwrap().set_len(1_500_000).unwrap(),
            false => fs::remove_file(&pack).unwrap(),
        }
        let report = place.run(&["doctor"]);
        assert!(report.text().contains("error    content: blocks are lost: pack 1 "), "{report:?}");
        let left = if is_shorter { 5 } else { 0 };
        for _ in 0..2 {
            let error = fails(&place, &["repo", "verify"]);
            assert!(error.contains(&format!("{} of 13 blocks are lost, {left} are left", 13 - left)), "{error}");
        }
        let health = get(&place, "/health");
        assert!(health.contains(r#""status":"ok""#) && health.contains("blocks are lost"), "{health}");
        let ready = get(&place, "/health/ready");
        assert!(ready.starts_with("HTTP/1.1 200") && ready.contains("degraded"), "{ready}");
        let metrics = get(&place, "/metrics");
        assert!(metrics.contains("\nipfrs_store_losses 2\n"), "{metrics}");
        fs::remove_file(place.repo().join("lost-blocks")).unwrap();
        place.ok(&["repo", "verify"]);
        assert!(place.run(&["doctor"]).text().contains("ok       content:"));
    }
}

#[test]
fn lost_root_of_mutable_files_stops_gc_until_accepted() {
    let place = Place::new();
    place.write("file", b"content");
    place.ok(&["add", "--pin=false", "file"]);
    place.ok(&["repo", "gc"]);
    place.ok(&["files", "write", "--create", "/a", "file"]);
    let (root, saved) = (place.repo().join("mutable-files.root"), place.path("saved"));
    fs::rename(&root, &saved).unwrap();
    assert!(fails(&place, &["repo", "gc"]).contains("mutable-files.root is missing"));
    assert!(place.run(&["doctor"]).text().contains("mutable-files.root is missing"));
    fs::rename(&saved, &root).unwrap();
    place.ok(&["repo", "gc"]);
    assert_eq!(place.ok(&["files", "read", "/a"]), "content");
    fs::rename(&root, &saved).unwrap();
    // Neither another root nor the restored one hides the loss.
    place.ok(&["files", "write", "--create", "/b", "file"]);
    assert!(fails(&place, &["repo", "gc"]).contains("there is another one"));
    fs::rename(&saved, &root).unwrap();
    assert!(fails(&place, &["repo", "gc"]).contains("there is another one"));
    assert!(place.run(&["doctor"]).text().contains("there is another one"));
    place.ok(&["repo", "gc", "--force"]);
    place.ok(&["repo", "gc"]);
    assert_eq!(place.ok(&["files", "read", "/a"]), "content");
}

#[test]
fn root_of_mutable_files_that_lost_its_end_is_refused() {
    let place = Place::new();
    place.write("file", b"content");
    for path in ["/a", "/b", "/c"] {
        place.ok(&["files", "write", "--create", path, "file"]);
        let root = place.repo().join("mutable-files.root");
        let whole = fs::read(&root).unwrap();
        let zeros = [&whole[..4096], &[0; 2 * 4096]].concat();
        for damaged in [&whole[..4096], &whole[..4100], &zeros] {
            fs::write(&root, damaged).unwrap();
            assert!(fails(&place, &["repo", "gc"]).contains("mutable-files.root is damaged"));
        }
        fs::write(&root, whole).unwrap();
        place.ok(&["repo", "gc"]);
        assert_eq!(place.ok(&["files", "read", path]), "content");
    }
}

#[test]
fn lost_references_to_files_are_reported_until_accepted() {
    for is_enabled in [true, false] {
        let place = Place::new();
        let enabled = b"[store]\nfilestore_root = \"../data\"\n";
        place.write("repo/config.toml", enabled);
        place.write("data/file", &noise(300_000));
        let id = place.ok(&["add", "-Q", "--nocopy", "data/file"]);
        let (references, saved) = (place.repo().join("filestore.redb"), place.path("saved"));
        fs::rename(&references, &saved).unwrap();
        place.write("repo/config.toml", if is_enabled { enabled } else { b"" });
        assert!(place.run(&["doctor"]).text().contains("filestore.redb was missing"));
        assert!(!references.exists(), "a check changes nothing");
        // The new file does not hide the loss.
        for _ in 0..2 {
            let health = get(&place, "/health");
            assert!(health.contains("blocks are lost: filestore.redb was missing"), "{health}");
        }
        let report = place.run(&["doctor"]);
        assert!(report.text().contains("error    content: blocks are lost: filestore.redb was missing"), "{report:?}");
        fs::remove_file(place.repo().join("lost-blocks")).unwrap();
        assert!(place.run(&["doctor"]).text().contains("ok       content:"));
        place.write("repo/config.toml", enabled);
        fs::rename(&saved, &references).unwrap();
        assert!(place.run(&["cat", &id]).stdout == noise(300_000));
    }
}

#[test]
fn lost_references_that_cannot_be_noted_are_an_error() {
    let place = Place::new();
    place.write("repo/config.toml", b"[store]\nfilestore_root = \"../data\"\n");
    place.write("data/file", &noise(300_000));
    place.ok(&["add", "-Q", "--nocopy", "data/file"]);
    let (references, losses) = (place.repo().join("filestore.redb"), place.repo().join("lost-blocks"));
    fs::remove_file(&references).unwrap();
    // No file can take the place of a directory.
    fs::create_dir(&losses).unwrap();
    for _ in 0..2 {
        let error = fails(&place, &["pin", "ls"]);
        assert!(error.contains("lost-blocks: Is a directory"), "{error}");
        assert!(!references.exists());
    }
    fs::remove_dir(&losses).unwrap();
    let health = get(&place, "/health");
    assert!(health.contains("blocks are lost: filestore.redb was missing"), "{health}");
}

#[test]
fn damaged_peer_id_does_not_stop_a_sound_key() {
    let place = Place::new();
    place.ok(&["key", "gen", "k"]);
    let identity = || place.ok(&["key", "list", "--json"]);
    let before = identity();
    let peer_id = place.repo().join("identity.peer-id");
    let noted = fs::read(&peer_id).unwrap();
    for damaged in [&b""[..], &[0; 53], &noted[..20]] {
        fs::write(&peer_id, damaged).unwrap();
        assert_eq!(identity(), before);
        assert_eq!(fs::read(&peer_id).unwrap(), noted);
    }
    // The umask alone decides who may read it.
    let readers = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o444;
    assert_eq!(readers(&peer_id), readers(&place.write("public", b"")));
    // Only root can read it then.
    fs::set_permissions(&peer_id, fs::Permissions::from_mode(0o0)).unwrap();
    assert_eq!(identity(), before);
}

#[test]
fn another_identity_is_refused_until_it_is_accepted() {
    let place = Place::new();
    place.ok(&["key", "gen", "k"]);
    let identity = || place.ok(&["key", "list", "--json"]);
    let before = identity();
    let (key, peer_id) = (place.repo().join("identity.key"), place.repo().join("identity.peer-id"));
    let kept = fs::read(&key).unwrap();
    // A repo of an earlier version.
    fs::remove_file(&peer_id).unwrap();
    assert_eq!(identity(), before);
    let mut changed = kept.clone();
    changed[30] ^= 1;
    for (damaged, what) in [(Some(changed), "identity.key has the key of 12D3"), (None, "identity.key is missing")] {
        match damaged {
            Some(key_bytes) => fs::write(&key, key_bytes).unwrap(),
            None => fs::remove_file(&key).unwrap(),
        }
        let id = fs::read_to_string(&peer_id).unwrap();
        for command in [&["gateway", "start", "--port", "0"][..], &["key", "list"]] {
            let error = place.fails(command);
            assert!(error.contains(what) && error.contains(id.trim()), "{error}");
            assert!(error.contains("restore identity.key from a backup"), "{error}");
        }
        assert!(place.run(&["doctor"]).text().contains(&format!("error    content: {what}")));
    }
    assert!(!key.exists());
    fs::write(&key, kept).unwrap();
    assert_eq!(identity(), before);
    fs::remove_file(&key).unwrap();
    fs::remove_file(&peer_id).unwrap();
    let new = identity();
    assert_ne!(new, before);
    assert_eq!(identity(), new);
}

#[test]
fn damaged_keys_and_pin_requests_are_named() {
    let place = Place::new();
    place.ok(&["key", "gen", "alpha"]);
    place.ok(&["key", "gen", "beta"]);
    let key = place.repo().join("keystore/key_mfwha2db");
    let kept = fs::read(&key).unwrap();
    fs::write(&key, &kept[..10]).unwrap();
    let request = place.write("repo/pin-requests/0123.json", b"{");
    let report = place.run(&["doctor"]);
    assert_eq!(report.code, Some(1), "{report:?}");
    for named in ["the key \"alpha\": key_mfwha2db in the keystore is not a key", "pin-requests/0123.json is no pin"] {
        assert!(report.text().contains(named), "{report:?}");
    }
    assert!(!report.text().contains("beta"), "{report:?}");
    let beta = place.repo().join("keystore/key_mjsxiyi");
    fs::set_permissions(&beta, fs::Permissions::from_mode(0o644)).unwrap();
    let report = place.run(&["doctor"]);
    assert!(report.text().contains("the key \"beta\": key_mjsxiyi in the repo is a secret"), "{report:?}");
    fs::set_permissions(&beta, fs::Permissions::from_mode(0o600)).unwrap();
    let daemon = place.start(&[]);
    let health = || {
        let mut connection = daemon.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        response
    };
    assert!(health().contains("key_mfwha2db in the keystore") && health().contains("pin-requests/0123.json"));
    // Both end without a restart.
    fs::write(&key, kept).unwrap();
    fs::remove_file(request).unwrap();
    assert!(!health().contains("problems"), "{}", health());
    // A key that is damaged later is found when it is read.
    fs::write(place.repo().join("keystore/key_mjsxiyi"), b"").unwrap();
    place.ok(&["key", "list"]);
    assert!(health().contains("the key \\\"beta\\\""), "{}", health());
}

#[test]
fn damaged_pins_are_an_error_without_a_panic() {
    let place = Place::new();
    place.write("file", b"content");
    place.ok(&["add", "file"]);
    let pins = place.repo().join("pins.redb");
    let kept = fs::read(&pins).unwrap();
    let mut caught = 0;
    for at in (1..10).flat_map(|page| [page * 4_096, page * 4_096 + 8]) {
        let mut damaged = kept.clone();
        damaged[at] ^= 1;
        fs::write(&pins, damaged).unwrap();
        let ran = place.run(&["pin", "ls"]);
        assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
        if ran.stderr.contains("it is inconsistent. Restore the file from a copy") {
            assert!(ran.stderr.contains("until you confirm the loss: "), "the cause is missing: {}", ran.stderr);
            caught += 1;
        }
    }
    assert!(caught > 0, "nothing panics any more");
}
