//! Credentials, certificates, rates, dates and records of names while the clock jumps.

use std::io::Read;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::Ed25519KeyPair;
use ipfrs_core::timestamp;
use rustls::version::TLS13;

use super::{Clock, DAY};
use crate::certificates;
use crate::harness::{Daemon, Place};
use crate::jwt;

/// Timeout far longer than any operation, so that a hanging test fails.
const LONG: Duration = Duration::from_secs(60);

/// Returns the time of the system without jumps, in seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

/// Returns the response to a GET, with the credentials `token` if it is not empty.
fn get(daemon: &Daemon, path: &str, token: &str) -> String {
    let credentials = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let mut connection =
        daemon.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{credentials}Connection: close\r\n\r\n"));
    connection.set_read_timeout(Some(LONG)).unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn jumps_of_the_clock_expire_credentials_and_make_them_valid_again() {
    const VALID_DAYS: i64 = 10;
    let place = Place::new();
    let clock = Clock::new(&place);
    let create = |more: &[&str]| place.ok(&[&["auth", "key", "create", "-s", "admin"], more].concat());
    let (admin, expiring) = (create(&[]), create(&["--expires-in", "10d"]));
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let keys = place.write("keys.json", jwt::key_set(&pair).as_bytes());
    jwt::configure(&place, keys.to_str().unwrap());
    let token = jwt::token_until(&pair, (now() + VALID_DAYS * DAY) as u64, "read write");
    let daemon = clock.start_with(&place, &["--config", "auth.toml"]);
    let statuses = || [&admin, &expiring, &token].map(|token| get(&daemon, "/metrics", token)[9..12].to_owned());
    for days in [0, VALID_DAYS - 1, VALID_DAYS + 1, 0, 60_000, -16_000, VALID_DAYS + 1, 0] {
        clock.jump(days);
        let status = if days < VALID_DAYS { "200" } else { "401" };
        assert_eq!(statuses(), ["200", status, status], "{days}");
    }
    // A request that began before the expiry ends, although its client sends nothing.
    let mut upload = daemon.send(&format!(
        "POST /api/v0/add HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/octet-stream\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
    ));
    upload.set_read_timeout(Some(LONG)).unwrap();
    let mut asked = [0; 25];
    upload.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    clock.jump(VALID_DAYS + 1);
    let mut refused = [0; 12];
    upload.read_exact(&mut refused).unwrap();
    assert_eq!(&refused, b"HTTP/1.1 401");
}

#[test]
fn jumps_of_the_clock_neither_refill_nor_block_rates() {
    const BURST: usize = 300;
    let place = Place::new();
    let clock = Clock::new(&place);
    let settings = format!("[rate_limit]\nenabled = true\nrequests_per_second = 1\nburst_requests = {BURST}\n");
    place.write("daemon.toml", settings.as_bytes());
    let daemon = clock.start_with(&place, &["--config", "daemon.toml"]);
    // Sends as many requests as the burst has, and some more. Returns how many were served, and the longest wait.
    let exhaust = || {
        let requests = "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(40);
        let last = "GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut responses = String::new();
        for _ in 0..10 {
            daemon.send(&(requests.clone() + last)).read_to_string(&mut responses).unwrap();
        }
        let waits = responses.lines().filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("retry-after").then(|| value.trim().parse::<usize>().unwrap())
        });
        (responses.matches("HTTP/1.1 404").count(), waits.max())
    };
    assert!(exhaust().0 >= BURST);
    for days in [400, -16_000, 60_000, 0] {
        clock.jump(days);
        let (served, wait) = exhaust();
        // A full bucket would serve all of the burst, and an empty one a request each second.
        assert!(served < BURST / 2, "{days}: {served} were served");
        assert!(wait.is_some_and(|wait| wait <= BURST), "{days}: {wait:?}");
    }
}

#[test]
fn jumps_of_the_clock_break_no_handshake_and_expire_client_certificates() {
    /// Year in which the certificates expire.
    const YEAR: i32 = 2100;
    let place = Place::new();
    let clock = Clock::new(&place);
    let issuer = certificates::new_issuer();
    certificates::issue_until(&place, &issuer, YEAR);
    place.write("ca.pem", issuer.pem().as_bytes());
    place.write("daemon.toml", certificates::settings_for_clients(&place, "ca.pem").as_bytes());
    let daemon = clock.start_with(&place, &["--config", "daemon.toml"]);
    // These resume their sessions.
    let (anonymous, certified) =
        (certificates::client(&issuer, &TLS13), certificates::certified_client(&issuer, &issuer, YEAR));
    for (days, is_valid) in [(0, true), (400, true), (60_000, false), (-16_000, true), (60_000, false), (0, true)] {
        clock.jump(days);
        // Clients judge the certificate of the daemon, by their own clocks.
        for client in [&anonymous, &certificates::client(&issuer, &TLS13)] {
            assert_eq!(certificates::status(&daemon, client).unwrap(), "401", "{days}");
        }
        for client in [&certified, &certificates::certified_client(&issuer, &issuer, YEAR)] {
            let is_served = certificates::status(&daemon, client).is_ok_and(|status| status == "200");
            assert_eq!(is_served, is_valid, "{days}");
        }
    }
}

/// Returns the date of a response.
fn date(response: &str) -> &str {
    let mut fields = response.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(name, _)| name.eq_ignore_ascii_case("date")).unwrap().1
}

#[test]
fn jumps_of_the_clock_change_dates_and_lose_no_name() {
    let place = Place::new();
    let clock = Clock::new(&place);
    place.write("file", b"content");
    let daemon = clock.start(&place);
    let cid = place.ok(&["add", "-Q", "file"]);
    let name = place.ok(&["key", "gen", "mine"]);
    place.ok(&["name", "publish", "-Q", "--lifetime", "240h", "--key", "mine", &cid]);
    for (days, is_valid) in [(5, true), (60_000, false), (-16_000, true), (400, false), (0, true)] {
        clock.jump(days);
        let year = format!(" {} ", &timestamp::format(now() + days * DAY, 0).unwrap()[..4]);
        // Dates are rendered once in a second, for responses from the cache too.
        let watchdog = Instant::now() + LONG;
        for path in ["/health", &format!("/ipfs/{cid}")] {
            while !date(&get(&daemon, path, "")).contains(&year) {
                assert!(Instant::now() < watchdog, "{path} has another date than {year}");
            }
        }
        // The daemon may have published an expired record again.
        let resolved = place.run(&["name", "resolve", &name]);
        assert!(!is_valid || resolved.code == Some(0), "{days}: {resolved:?}");
        assert!(resolved.code != Some(0) || resolved.text() == format!("/ipfs/{cid}"), "{days}: {resolved:?}");
        let content = get(&daemon, &format!("/ipns/{name}"), "");
        assert!(!is_valid || content.ends_with("\r\n\r\ncontent"), "{days}: {content}");
    }
}
