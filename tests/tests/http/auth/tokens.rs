//! JSON Web Tokens, and the limit on failed attempts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures::SinkExt;
use futures::channel::mpsc;
use ipfrs_interface::Config;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Guarded;
use crate::harness::header;
use crate::source_server::SourceServer;

pub(super) const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

pub(super) fn key_set(kid: &str, secret: &[u8]) -> String {
    json!({ "keys": [{ "kty": "oct", "alg": "HS256", "kid": kid, "k": URL_SAFE_NO_PAD.encode(secret) }] }).to_string()
}

/// Returns a token with any header.
fn signed_with(header: Value, claims: &str) -> String {
    let message = format!("{}.{claims}", URL_SAFE_NO_PAD.encode(header.to_string()));
    let key = EncodingKey::from_secret(SECRET);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256).unwrap();
    format!("{message}.{signature}")
}

pub(super) fn token(kid: &str, algorithm: Algorithm, claims: &Value) -> String {
    let header = Header { kid: Some(kid.to_owned()), ..Header::new(algorithm) };
    encode(&header, claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

pub(super) fn claims(change: impl FnOnce(&mut Value)) -> Value {
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": ["ipfrs"], "sub": "alice", "exp": 4_000_000_000_u64, "scope": "read openid",
    });
    change(&mut claims);
    claims
}

/// Starts a gateway that takes tokens signed with `keys`, a file or a URL.
async fn with_keys(keys: String, max_failures: u32) -> Guarded {
    Guarded::start_with(|config| {
        trust(config, keys);
        config.auth.max_failures_per_minute = max_failures;
    })
    .await
}

/// Makes the daemon take tokens with [`claims`] that are signed with `keys`.
pub(super) fn trust(config: &mut Config, keys: String) {
    config.auth.jwt_keys = keys;
    config.auth.jwt_issuer = "https://issuer.example".to_owned();
    config.auth.jwt_audience = "ipfrs".to_owned();
}

#[tokio::test]
async fn tokens_are_verified_with_the_keys_of_their_issuer() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("jwks.json");
    std::fs::write(&file, key_set("one", SECRET)).unwrap();
    let guarded = with_keys(file.to_str().unwrap().to_owned(), 1_000).await;
    let status = async |token: &str| guarded.get("/metrics", token).await.status().as_u16();
    let good = token("one", Algorithm::HS256, &claims(|_| {}));
    assert_eq!(status(&good).await, 200);
    let caller: Value = guarded.get("/v1/auth/session", &good).await.json().await.unwrap();
    assert_eq!((&caller["principal"], &caller["scopes"]), (&json!("jwt:alice"), &json!(["read"])));
    for (name, expected, wrong) in [
        ("expired", 401, claims(|claims| claims["exp"] = json!(1_000_000_000))),
        ("not yet valid", 401, claims(|claims| claims["nbf"] = json!(3_900_000_000_u64))),
        ("no expiry", 401, claims(|claims| drop(claims.as_object_mut().unwrap().remove("exp")))),
        ("list of issuers", 401, claims(|claims| claims["iss"] = json!(["https://issuer.example"]))),
        ("other issuer", 401, claims(|claims| claims["iss"] = json!("https://other.example"))),
        ("no issuer", 401, claims(|claims| drop(claims.as_object_mut().unwrap().remove("iss")))),
        ("other audience", 401, claims(|claims| claims["aud"] = json!("other"))),
        ("no audience", 401, claims(|claims| drop(claims.as_object_mut().unwrap().remove("aud")))),
        ("other scopes", 403, claims(|claims| claims["scope"] = json!("openid write"))),
        ("no scopes", 403, claims(|claims| drop(claims.as_object_mut().unwrap().remove("scope")))),
        ("a broken restriction", 401, claims(|claims| claims["roots"] = json!(["x"]))),
        ("a restriction to roots", 403, claims(|claims| claims["roots"] = json!(["bafkqaaa"]))),
        ("a list of scopes", 200, claims(|claims| claims["scope"] = json!(["admin"]))),
    ] {
        assert_eq!(status(&token("one", Algorithm::HS256, &wrong)).await, expected, "{name}");
    }
    let parts: Vec<_> = good.split('.').collect();
    let unsigned = URL_SAFE_NO_PAD.encode(json!({ "alg": "none", "typ": "JWT", "kid": "one" }).to_string());
    for wrong in [
        format!("{unsigned}.{}.", parts[1]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}.{}", parts[0], parts[1], "AAAA"),
        token("one", Algorithm::HS384, &claims(|_| {})),
        token("two", Algorithm::HS256, &claims(|_| {})),
        "a".repeat(9_000),
        signed_with(json!({ "alg": "HS256", "kid": "one", "crit": ["b64"], "b64": false }), parts[1]),
    ] {
        assert_eq!(status(&wrong).await, 401, "{wrong}");
    }
}

#[tokio::test]
async fn a_new_key_is_read_when_a_token_names_it() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("jwks.json");
    std::fs::write(&file, key_set("old", b"another secret of sufficient length")).unwrap();
    let guarded = with_keys(file.to_str().unwrap().to_owned(), 1_000).await;
    std::fs::write(&file, key_set("new", SECRET)).unwrap();
    let new = token("new", Algorithm::HS256, &claims(|_| {}));
    assert_eq!(guarded.get("/metrics", &new).await.status(), 200);
}

#[tokio::test]
async fn a_withdrawn_key_ends_what_its_tokens_have_begun() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("jwks.json");
    std::fs::write(&file, key_set("one", SECRET)).unwrap();
    let mut guarded = with_keys(file.to_str().unwrap().to_owned(), 1_000).await;
    let scopes = claims(|claims| claims["scope"] = json!("write"));
    let (upload, mut sender) = upload(&guarded, &token("one", Algorithm::HS256, &scopes)).await;
    // Other keys come and go.
    let both = json!({ "keys": [
        serde_json::from_str::<Value>(&key_set("one", SECRET)).unwrap()["keys"][0],
        serde_json::from_str::<Value>(&key_set("two", &[7; 32])).unwrap()["keys"][0],
    ] });
    std::fs::write(&file, both.to_string()).unwrap();
    let two = token("two", Algorithm::HS256, &claims(|_| {}));
    assert_eq!(guarded.get("/metrics", &two).await.status(), 401, "it is signed with another key, which is read now");
    sender.send(Ok("more".into())).await.unwrap();
    std::fs::write(&file, key_set("three", &[8; 32])).unwrap();
    guarded.gateway.gateway.reload(&Config::default()).await.unwrap();
    let refused = upload.await.unwrap();
    assert_eq!(refused.status(), 401, "{}", refused.text().await.unwrap());
    drop(sender);
}

#[tokio::test]
async fn a_revoked_key_ends_its_uploads() {
    let guarded = Guarded::start().await;
    let key = guarded.key(&["write"]).await;
    let (upload, sender) = upload(&guarded, &key).await;
    guarded.revoke(&key).await;
    let refused = upload.await.unwrap();
    assert_eq!(refused.status(), 401, "{}", refused.text().await.unwrap());
    drop(sender);
}

/// Begins an upload. Returns its response, and the sender of its body. The daemon has received more than sockets hold.
async fn upload(
    guarded: &Guarded,
    token: &str,
) -> (JoinHandle<reqwest::Response>, mpsc::Sender<Result<Bytes, std::io::Error>>) {
    let (mut sender, receiver) = mpsc::channel(0);
    let request = guarded.gateway.rpc("add").bearer_auth(token).header("content-type", "application/octet-stream");
    let request = request.body(reqwest::Body::wrap_stream(receiver));
    let upload = tokio::spawn(async move { request.send().await.unwrap() });
    for _ in 0..32 {
        sender.send(Ok(Bytes::from(vec![0; 1 << 20]))).await.unwrap();
    }
    (upload, sender)
}

#[tokio::test]
async fn a_key_set_without_keys_revokes_all_tokens() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("jwks.json");
    std::fs::write(&file, key_set("one", SECRET)).unwrap();
    let guarded = with_keys(file.to_str().unwrap().to_owned(), 1_000).await;
    let status = async |kid: &str| {
        let token = token(kid, Algorithm::HS256, &claims(|_| {}));
        guarded.get("/metrics", &token).await.status().as_u16()
    };
    assert_eq!(status("one").await, 200);
    std::fs::write(&file, r#"{"keys":[]}"#).unwrap();
    // A token with an unknown key makes the daemon read the set again.
    assert_eq!((status("two").await, status("one").await), (401, 401));
}

/// The first key pair of RFC 8032, 7.1.
const SEED: [u8; 32] = [
    0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49, 0xc5,
    0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
];
const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

/// Returns a key set with the public key.
fn public_key_set(kid: &str) -> String {
    json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": kid, "x": PUBLIC }] }).to_string()
}

/// Returns a token that is signed with the private key.
fn signed(kid: &str) -> String {
    let header = Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::EdDSA) };
    // PKCS#8 of RFC 8410.
    let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    let key = EncodingKey::from_ed_der(&[&head[..], &SEED].concat());
    encode(&header, &claims(|_| {}), &key).unwrap()
}

/// Serves key sets: the first one at once, and others once `go` is true.
async fn issuer(first: (u16, String), others: String, go: watch::Receiver<bool>) -> SourceServer {
    let asked = Arc::new(AtomicBool::new(false));
    SourceServer::start(Arc::new(move |_, mut connection| {
        let is_first = !asked.swap(true, Ordering::Relaxed);
        let (status, body) = if is_first { first.clone() } else { (200, others.clone()) };
        let mut go = go.clone();
        Box::pin(async move {
            if !is_first {
                go.wait_for(|go| *go).await.unwrap();
            }
            let response = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            connection.write_all(response.as_bytes()).await.unwrap();
        })
    }))
    .await
}

#[tokio::test]
async fn valid_tokens_wait_for_the_keys_that_are_being_read() {
    let (go, gate) = watch::channel(false);
    let server = issuer((200, public_key_set("old")), public_key_set("new"), gate).await;
    let guarded = with_keys(server.url(), 1).await;
    let (new, old) = (signed("new"), signed("old"));
    let statuses = async |token: &str| guarded.get("/metrics", token).await.status().as_u16();
    let go = async {
        server.until_requests(2).await;
        // A known key needs no reading.
        assert_eq!(statuses(&old).await, 200);
        go.send(true).unwrap();
    };
    let (first, second, third, ()) = tokio::join!(statuses(&new), statuses(&new), statuses(&new), go);
    assert_eq!([first, second, third], [200, 200, 200]);
    assert_eq!(server.requests().len(), 2);
}

/// Otherwise, each forged token of a client that leaves would begin another reading.
#[tokio::test]
async fn keys_are_read_although_the_client_leaves() {
    let (go, gate) = watch::channel(false);
    let server = issuer((200, public_key_set("old")), public_key_set("new"), gate).await;
    let guarded = with_keys(server.url(), 1_000).await;
    let forged = token("unknown", Algorithm::HS256, &claims(|_| {}));
    let client = reqwest::Client::builder().http2_prior_knowledge().build().unwrap();
    tokio::select! {
        _ = client.get(guarded.gateway.url("/metrics")).bearer_auth(&forged).send() => panic!("the keys cannot be there"),
        () = server.until_requests(2) => {}
    }
    go.send(true).unwrap();
    assert_eq!(guarded.get("/metrics", &signed("new")).await.status(), 200);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn keys_that_are_not_available_are_no_failed_attempts() {
    let (_go, gate) = watch::channel(true);
    let server = issuer((500, String::new()), "not a key set".to_owned(), gate).await;
    let guarded = with_keys(server.url(), 1).await;
    let good = token("one", Algorithm::HS256, &claims(|_| {}));
    for _ in 0..3 {
        assert_eq!(guarded.get("/metrics", &good).await.status(), 503);
    }
}

#[tokio::test]
async fn failed_attempts_are_limited_and_a_valid_key_still_works() {
    let guarded = Guarded::start_with(|config| config.auth.max_failures_per_minute = 3).await;
    let reader = guarded.key(&["read"]).await;
    let wrong = format!("{reader}x");
    for _ in 0..3 {
        assert_eq!(guarded.get("/metrics", &wrong).await.status(), 401);
    }
    let refused = guarded.get("/metrics", &wrong).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers().get_all("retry-after").iter().count(), 1);
    let seconds: u64 = header(&refused, "retry-after").parse().unwrap();
    // A failure is forgotten in 20 s.
    assert!((2..=21).contains(&seconds), "{seconds}");
    let malformed = guarded.gateway.request(reqwest::Method::GET, "/metrics").header("authorization", "x");
    assert_eq!(malformed.send().await.unwrap().status(), 401);
    // Neither other credentials nor missing ones help, and those who have a key do not suffer.
    assert_eq!(guarded.get("/metrics", "a.b.c").await.status(), 429);
    assert_eq!(guarded.get("/metrics", "").await.status(), 401);
    assert_eq!(guarded.get("/metrics", &reader).await.status(), 200);
    let metrics = guarded.get("/metrics", &reader).await.text().await.unwrap();
    for line in [
        "ipfrs_auth_attempts_total{method=\"key\",result=\"unknown\"} 3",
        "ipfrs_auth_attempts_total{method=\"key\",result=\"limited\"} 1",
        "ipfrs_auth_attempts_total{method=\"jwt\",result=\"limited\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
}
