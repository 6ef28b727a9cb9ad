//! JSON Web Tokens whose keys the daemon reads over HTTPS, or again on SIGHUP.

use std::io::Read;
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::certificates::{issue, new_issuer, settings};
use crate::harness::{Daemon, Place};

const ISSUER: &str = "https://issuer.example";

pub(crate) fn key_set(pair: &Ed25519KeyPair) -> String {
    let public = URL_SAFE_NO_PAD.encode(pair.public_key());
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": "one", "x": public }] }).to_string()
}

fn token(pair: &Ed25519KeyPair) -> String {
    token_until(pair, 4_000_000_000, "read")
}

/// Returns a token that expires at a time, in seconds since 1970, and has the scopes in `scope`.
pub(crate) fn token_until(pair: &Ed25519KeyPair, expires: u64, scope: &str) -> String {
    let encode = |part: Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let claims = json!({ "iss": ISSUER, "aud": "ipfrs", "sub": "alice", "exp": expires, "scope": scope });
    let message = format!("{}.{}", encode(json!({ "alg": "EdDSA", "kid": "one" })), encode(claims));
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes())))
}

/// Writes the configuration of a daemon that takes tokens which are signed with `keys`, a URL or a file.
pub(crate) fn configure(place: &Place, keys: &str) {
    let settings = format!(
        "[auth]\nenabled = true\njwt_keys = {keys:?}\njwt_issuer = {ISSUER:?}\njwt_audience = \"ipfrs\"\n\
         max_failures_per_minute = 60000\n"
    );
    place.write("auth.toml", settings.as_bytes());
}

/// Starts a daemon that takes tokens which are signed with the keys at `url`. It trusts the certificates in `roots`.
fn start(place: &Place, url: &str, roots: &Path) -> Daemon {
    configure(place, url);
    let mut command = place.command(&["gateway", "start", "--port", "0", "--workers", "2", "--config", "auth.toml"]);
    command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", roots).env("NO_PROXY", "*");
    Daemon::start(command)
}

fn status(daemon: &Daemon, token: &str) -> String {
    let request = format!("GET /metrics HTTP/1.0\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    let mut response = String::new();
    daemon.send(&request).read_to_string(&mut response).unwrap();
    response[9..12].to_owned()
}

#[test]
fn keys_are_read_over_https_from_a_trusted_server_only() {
    let (of_issuer, place) = (Place::new(), Place::new());
    let (authority, stranger) = (new_issuer(), new_issuer());
    issue(&of_issuer, &authority);
    let [roots, others] = [("roots.pem", &authority), ("others.pem", &stranger)]
        .map(|(name, issuer)| place.write(name, issuer.pem().as_bytes()));
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    of_issuer.write("keys.json", key_set(&pair).as_bytes());
    let keys = of_issuer.ok(&["add", "-Q", "keys.json"]);
    of_issuer.write("daemon.toml", settings(&of_issuer).as_bytes());
    let server = of_issuer.start(&["--config", "daemon.toml"]);
    let port = server.url().rsplit_once(':').unwrap().1;
    let url = format!("https://localhost:{port}/ipfs/{keys}");
    let good = token(&pair);
    let forged = token(&Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap());
    let daemon = start(&place, &url, &roots);
    assert_eq!([status(&daemon, &good), status(&daemon, &forged)], ["200", "401"]);
    drop(daemon);
    // A server that is not the issuer would make its own tokens valid.
    let mut daemon = start(&place, &url, &others);
    let line = daemon.wait_for_log("no token can be verified");
    assert!(line.contains(&url) && line.contains("certificate"), "{line}");
    assert_eq!(status(&daemon, &good), "503");
}

#[test]
fn hangup_replaces_keys_of_tokens_unless_they_cannot_be_read() {
    let place = Place::new();
    let [old, new] = [7, 8].map(|seed| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap());
    let tokens = [token(&old), token(&new)];
    let write = |keys: &str| place.write("keys.json", keys.as_bytes());
    configure(&place, write(&key_set(&old)).to_str().unwrap());
    let mut daemon = place.start(&["--config", "auth.toml"]);
    let statuses = |daemon: &Daemon| tokens.each_ref().map(|token| status(daemon, token));
    assert_eq!(statuses(&daemon), ["200", "401"]);
    // Both keys have the same name, so no token makes the daemon read the file again.
    write(&key_set(&new));
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(statuses(&daemon), ["401", "200"]);
    for broken in ["{", ""] {
        write(broken);
        daemon.signal(Signal::HUP);
        let line = daemon.wait_for_log("was not reloaded");
        assert!(line.contains("auth.jwt_keys"), "{line}");
        assert_eq!(statuses(&daemon), ["401", "200"], "{broken}");
    }
    write(&key_set(&old));
    daemon.signal(Signal::HUP);
    daemon.wait_for_log("reloaded the configuration");
    assert_eq!(statuses(&daemon), ["200", "401"]);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
}
