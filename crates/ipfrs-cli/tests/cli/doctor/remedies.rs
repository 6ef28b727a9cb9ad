//! Findings of `doctor` about the configuration, the clock, the content and daemons, with the commands that mend them.

use std::fs;
use std::net::TcpListener;

use serde_json::Value;

use super::{doctor, finding, findings};
#[cfg(target_os = "linux")]
use crate::clock::{Clock, EARLIEST};
use crate::harness::{Place, noise};

/// Port on which the gRPC services listen by default.
const DEFAULT_GRPC_PORT: u16 = 50_051;

/// Asserts that a check has this status, a message with `message`, and a remedy that ends with `fix`.
fn assert_found(found: &[Value], check: &str, status: &str, message: &str, fix: &str) {
    let finding = finding(found, check);
    assert_eq!(finding["status"], status, "{finding}");
    assert!(finding["message"].as_str().unwrap().contains(message), "{finding}");
    assert!(finding["fix"].as_str().unwrap().ends_with(fix), "{finding}");
}

#[cfg(target_os = "linux")]
#[test]
fn doctor_finds_a_clock_before_2026() {
    let place = Place::new();
    let clock = Clock::new(&place);
    let run = |days| {
        clock.jump(days);
        let mut command = doctor(&place);
        clock.set_in(&mut command);
        findings(command)
    };
    let (code, found) = run(-EARLIEST);
    assert_eq!(code, Some(1), "{found:?}");
    assert_found(&found, "clock", "error", "before 2026", "sudo timedatectl set-ntp true");
    assert_eq!(finding(&run(0).1, "clock")["status"], "ok");
}

#[test]
fn doctor_shows_where_wrong_settings_are_changed() {
    let place = Place::new();
    let with = |name: &str, value: &str| {
        let mut command = doctor(&place);
        command.env(name, value);
        findings(command).1
    };
    let found = with("IPFRS_GATEWAY_MAX_RANGES", "many");
    assert_found(&found, "configuration", "error", "IPFRS_GATEWAY_MAX_RANGES", "env | grep '^IPFRS_'");
    let found = with("IPFRS_NO_SUCH_THING_AT_ALL", "1");
    assert_found(&found, "configuration", "warning", "no settings have names", "unset IPFRS_NO_SUCH_THING_AT_ALL");
    let file = place.write("repo/config.toml", b"[server]\nprot = 1\n");
    let (_, found) = findings(doctor(&place));
    let fix = format!("{} && ipfrs-cli --repo {} config check", file.display(), place.repo().display());
    assert_found(&found, "configuration", "error", "did you mean port?", &fix);
    // The remedy for a store that is read-only although there is none.
    fs::remove_dir_all(place.repo()).unwrap();
    let found = with("IPFRS_STORE_READ_ONLY", "true");
    assert_found(&found, "repo", "error", "does not exist", "config set store.read_only false");
}

#[test]
fn doctor_finds_listeners_that_are_too_open_or_impossible() {
    let place = Place::new();
    let mut command = doctor(&place);
    // An address for documentation, which no machine has (RFC 5737).
    command.env("IPFRS_SERVER_HOST", "192.0.2.1").env("IPFRS_SERVER_PORT", "20001");
    command.env("IPFRS_SERVER_ALLOW_UNAUTHENTICATED", "true");
    // Without a configured port, the daemon does without this listener.
    let _occupied = TcpListener::bind(("127.0.0.1", DEFAULT_GRPC_PORT));
    command.env_remove("IPFRS_GRPC_PORT");
    let (code, found) = findings(command);
    assert_eq!(code, Some(1), "{found:?}");
    assert_found(&found, "access", "warning", "everyone who reaches 192.0.2.1", "config set auth.enabled true");
    assert_found(&found, "port", "error", "cannot listen on 192.0.2.1:20001", "config set server.host 127.0.0.1");
    let fix = format!("ss -ltnp 'sport = :{DEFAULT_GRPC_PORT}'");
    assert_found(&found, "gRPC port", "warning", "another process uses", &fix);
}

#[test]
fn doctor_finds_damage_with_and_without_a_daemon() {
    let place = Place::new();
    place.write("file", &noise(300_000));
    place.ok(&["add", "file"]);
    let version = place.repo().join("version");
    let kept = fs::read(&version).unwrap();
    fs::write(&version, "2\n").unwrap();
    let (_, found) = findings(doctor(&place));
    assert_found(&found, "content", "error", "cannot be opened", "see \"Repair\" in docs/OPERATIONS.md");
    fs::write(&version, kept).unwrap();
    let pins = place.repo().join("pins.redb");
    fs::rename(&pins, place.path("pins")).unwrap();
    let (_, found) = findings(doctor(&place));
    assert_found(&found, "content", "error", "the pins are lost", "repo gc --force`");
    fs::rename(place.path("pins"), &pins).unwrap();
    fs::remove_file(place.repo().join("packs/00000001.car")).unwrap();
    let (_, found) = findings(doctor(&place));
    assert_found(&found, "content", "error", "blocks are lost", "repo verify");
    let _daemon = place.start(&[]);
    let (code, found) = findings(doctor(&place));
    assert_eq!(code, Some(1), "{found:?}");
    assert_found(&found, "daemon", "error", "blocks are lost", "repo verify");
}

#[test]
fn doctor_finds_that_no_daemon_responds_at_a_url() {
    let place = Place::new();
    // The listener is closed again.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = doctor(&place);
    command.args(["--api", &format!("http://{closed}")]);
    let (code, found) = findings(command);
    assert_eq!(code, Some(1), "{found:?}");
    let fix = format!("curl -v http://{closed}/health/ready");
    assert_found(&found, "daemon", "error", "does not respond", &fix);
}
