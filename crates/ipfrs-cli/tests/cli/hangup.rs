//! SIGHUP, which makes the daemon read its configuration again, and levels of the log.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Daemon, Place};

#[test]
fn hangup_reloads_levels_and_limits_and_nothing_that_is_wrong() {
    let place = Place::new();
    let write = |level: &str, limits: &str, more: &str| {
        let text = format!("[log]\nlevel = \"{level}\"\n[rate_limit]\n{limits}\n{more}");
        place.write("daemon.toml", text.as_bytes());
    };
    write("info", "", "");
    let mut daemon = place.start(&["--config", "daemon.toml"]);
    let statuses = |daemon: &Daemon| {
        let requests = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(40);
        let last = "GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answers = String::new();
        daemon.send(&(requests + last)).read_to_string(&mut answers).unwrap();
        (answers.matches("HTTP/1.1 404").count(), answers.matches("HTTP/1.1 429").count())
    };
    assert_eq!(statuses(&daemon), (41, 0));
    let server = "[server]\nheader_timeout_seconds = 7\nmax_connections = 77\n";
    write("info", "enabled = true\nrequests_per_second = 1\nburst_requests = 5", server);
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_log("need a restart");
    assert!(line.contains("\"server\""), "{line}");
    assert!(line.contains("server.header_timeout_seconds") && !line.contains("max_connections"), "{line}");
    daemon.wait_for_log("reloaded the configuration");
    let mut shown = String::new();
    daemon.send("GET /v1/config HTTP/1.0\r\nHost: localhost\r\n\r\n").read_to_string(&mut shown).unwrap();
    assert!(shown.contains("\"burst_requests\":5"), "{shown}");
    assert!(shown.contains("\"max_connections\":77"), "{shown}");
    assert!(!shown.contains("\"header_timeout_seconds\":7"), "needs a restart: {shown}");
    let (served, refused) = statuses(&daemon);
    assert!(served >= 4 && refused > 0, "{served} {refused}");
    // Limits that are the same leave clients what they have used.
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert!(statuses(&daemon).0 < 5);
    // A mistake changes nothing.
    for (level, limits) in [("no,such=level=x", ""), ("info", "requests_per_second = 0"), ("info", "nonsense = 1")] {
        write(level, limits, "");
        daemon.signal(Signal::HUP);
        daemon.wait_for_log("was not reloaded");
        assert!(statuses(&daemon).1 > 0);
    }
    write("info", "", "");
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(statuses(&daemon), (41, 0));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
}

#[test]
fn hangup_applies_level_denylists_keys_and_limits() {
    let place = Place::new();
    place.write("file", b"content");
    let cid = place.ok(&["add", "-Q", "file"]).trim().to_owned();
    let [admin, reader] =
        ["admin", "read"].map(|scope| place.ok(&["auth", "key", "create", "-s", scope]).trim().to_owned());
    place.write("repo/none.deny", b"name: none\n---\n");
    place.write("repo/all.deny", format!("name: all\n---\n/ipfs/{cid}\n").as_bytes());
    let write = |level: &str, lists: &str, requests: u32| {
        let text = format!(
            "[log]\nlevel = \"{level}\"\n[auth]\nenabled = true\n[gateway]\ndenylists = [{lists}]\n\
             max_concurrent_requests = {requests}\n"
        );
        place.write("repo/config.toml", text.as_bytes());
    };
    write("info", "\"none.deny\"", 100);
    let mut daemon = place.start(&[]);
    let response = |daemon: &Daemon, method: &str, path: &str, token: &str| {
        let head = format!("{method} {path} HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        let mut response = String::new();
        daemon.send(&head).read_to_string(&mut response).unwrap();
        response
    };
    let status = |daemon: &Daemon, path: &str, token: &str| response(daemon, "GET", path, token)[9..12].to_owned();
    let file = format!("/ipfs/{cid}");
    assert_eq!([status(&daemon, &file, &reader), status(&daemon, "/metrics", &reader)], ["200", "200"]);
    // The operator adds a list, revokes a key in the file and changes settings.
    write("debug", "\"none.deny\", \"all.deny\"", 1);
    let keys = place.repo().join("auth/keys.json");
    let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&keys).unwrap()).unwrap();
    let revoked = reader.split('_').nth(1).unwrap();
    stored["keys"].as_array_mut().unwrap().retain(|key| key["id"] != revoked);
    fs::write(&keys, stored.to_string()).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(status(&daemon, &file, &admin), "410");
    assert_eq!([status(&daemon, "/metrics", &reader), status(&daemon, "/metrics", &admin)], ["401", "200"]);
    let level = response(&daemon, "POST", "/api/v0/log/level", &admin);
    assert!(level.contains("\"debug\""), "{level}");
    // A request that does not end has the only permit.
    let begun = format!(
        "POST /api/v0/add HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {admin}\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\nx"
    );
    let listed = |daemon: &Daemon| response(daemon, "POST", "/api/v0/pin/ls", &admin);
    // Sent again where another request had the permit.
    let mut held = vec![daemon.send(&begun)];
    while !listed(&daemon).contains("gateway.max_concurrent_requests") {
        held.push(daemon.send(&begun));
    }
    // A list that is missing changes nothing.
    write("info", "\"missing.deny\"", 100);
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_log("was not reloaded");
    assert!(line.contains("missing.deny"), "{line}");
    assert!(listed(&daemon).contains("gateway.max_concurrent_requests"));
    write("info", "", 100);
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(status(&daemon, &file, &admin), "200");
    assert!(listed(&daemon).starts_with("HTTP/1.0 200") || listed(&daemon).starts_with("HTTP/1.1 200"));
}

#[test]
fn hangup_changes_nothing_while_the_file_of_the_repo_is_missing() {
    let place = Place::new();
    let file = place.repo().join("config.toml");
    fs::create_dir_all(place.repo()).unwrap();
    fs::write(&file, "[log]\nlevel = \"warn\"\n").unwrap();
    let mut daemon = place.start(&[]);
    fs::remove_file(&file).unwrap();
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for_log("was not reloaded");
    assert!(line.contains("config.toml is missing"), "{line}");
}

/// Sends `log/level` with a query, and returns the response.
fn levels(daemon: &Daemon, query: &str) -> String {
    let request = format!("POST /api/v0/log/level{query} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    let mut response = String::new();
    daemon.send(&request).read_to_string(&mut response).unwrap();
    response
}

#[test]
fn log_level_default_is_the_level_of_all_parts() {
    let place = Place::new();
    let daemon = place.start(&[]);
    levels(&daemon, "?arg=all&arg=warn");
    for (arguments, text) in [
        ("?arg=ipfrs_http&arg=debug", "Changed log level of 'ipfrs_http' to 'debug'"),
        ("?arg=ipfrs_http", "{\"Levels\":{\"ipfrs_http\":\"debug\"}}"),
        ("?arg=ipfrs_http&arg=default", "Changed log level of 'ipfrs_http' to 'warn'"),
        ("?arg=ipfrs_http&arg=", "{\"Levels\":{\"ipfrs_http\":\"warn\"}}"),
        ("?arg=", "{\"Levels\":{\"\":\"warn\"}}"),
        ("?arg=nope", "error: No such logger"),
        ("?arg=&arg=debug", "error: No such logger"),
        ("?arg=all&arg=loud", "unrecognized level: \\\"loud\\\""),
    ] {
        let response = levels(&daemon, arguments);
        assert!(response.contains(text), "{arguments}: {response}");
    }
}

#[test]
fn hangup_keeps_the_level_that_a_client_has_set() {
    let place = Place::new();
    let mut daemon = place.start(&[]);
    levels(&daemon, "?arg=all&arg=debug");
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    let response = levels(&daemon, "");
    assert!(response.contains("\"debug\""), "{response}");
}

#[test]
fn hangup_applies_a_new_level_of_the_log() {
    let place = Place::new();
    let write = |level: &str| place.write("daemon.toml", format!("[log]\nlevel = \"{level}\"\n").as_bytes());
    write("error");
    let mut daemon = place.start(&["--config", "daemon.toml"]);
    let response = levels(&daemon, "?arg=ipfrs_store");
    assert!(response.contains("\"error\""), "{response}");
    write("debug");
    daemon.signal(Signal::HUP);
    // The first line of the log, because its level is info.
    daemon.wait_for_log("reloaded the configuration");
    let response = levels(&daemon, "?arg=ipfrs_store");
    assert!(response.contains("\"debug\""), "{response}");
    write("error");
    daemon.signal(Signal::HUP);
    // No line of the log tells that this level applies.
    let watchdog = Instant::now() + Duration::from_secs(60);
    while !levels(&daemon, "?arg=ipfrs_store").contains("\"error\"") {
        assert!(Instant::now() < watchdog, "the level stays");
    }
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0));
    assert!(!log.contains("stopping"), "{log}");
}
