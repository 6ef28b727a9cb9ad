//! Daemons that are killed and lose the index of their store, which they build again from the packs.

use std::fs;
use std::io::Read;

use crate::harness::{Daemon, Place, content_of, noise};

fn get(daemon: &Daemon, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut response = String::new();
    daemon.send(&request).read_to_string(&mut response).unwrap();
    response
}

#[test]
fn daemon_serves_everything_after_a_kill_and_the_loss_of_its_index() {
    let place = Place::new();
    place.tree("tree");
    place.write("file", &noise(5_000_000));
    place.write("removed", &noise(3_000_001));
    let mut daemon = place.start(&[]);
    let tree = place.ok(&["add", "-rQ", "tree"]);
    let removed = place.ok(&["add", "-Q", "--pin=false", "removed"]);
    place.ok(&["repo", "gc"]);
    place.ok(&["files", "write", "-e", "/mutable", "file"]);
    let blocks = |daemon: &Daemon| {
        let health = get(daemon, "/health");
        assert!(health.starts_with("HTTP/1.1 200") && health.contains(r#""status":"ok""#), "{health}");
        assert!(!health.contains("problems"), "{health}");
        let rest = health.split_once(r#""blocks":"#).unwrap().1;
        rest.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    let mut before = blocks(&daemon);
    for round in 0..3 {
        daemon.kill();
        let index = place.repo().join("index");
        match round {
            // Its files are there, but damaged.
            2 => fs::read_dir(&index).unwrap().for_each(|entry| fs::write(entry.unwrap().path(), "damaged").unwrap()),
            _ => fs::remove_dir_all(&index).unwrap(),
        }
        daemon = place.start(&[]);
        assert_eq!(blocks(&daemon), before);
        assert!(get(&daemon, "/health/ready").contains(r#""status":"ready"}"#));
        let saved = format!("saved-{round}");
        place.ok(&["get", &tree, "-o", &saved]);
        assert_eq!(content_of(&place.path(&saved)), content_of(&place.path("tree")));
        assert!(place.run(&["files", "read", "/mutable"]).stdout == noise(5_000_000));
        assert!(place.ok(&["pin", "ls", "--type=recursive"]).contains(&tree));
        assert_eq!(place.run(&["cat", &removed]).code, Some(1));
        place.ok(&["repo", "verify"]);
        // New blocks are stored behind the old ones.
        place.write("new", &noise(400_000 + round));
        let new = place.ok(&["add", "-Q", "new"]);
        assert!(place.run(&["cat", &new]).stdout == noise(400_000 + round));
        before = blocks(&daemon);
    }
    daemon.kill();
    assert!(place.run(&["doctor"]).text().contains("ok       content:"));
}
