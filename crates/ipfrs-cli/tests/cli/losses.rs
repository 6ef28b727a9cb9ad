//! Lost packs and a lost root of the mutable files: both are reported until the operator accepts the loss.

use std::fs;
use std::io::Read;

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
