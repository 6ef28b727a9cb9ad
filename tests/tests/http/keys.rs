//! `key/gen`, `key/import`, `key/list`, `key/rename`, `key/rm`, `key/sign`, `key/verify`, and the key files.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ipfrs_node::{KeyFormat, export_key};
use serde_json::{Value, json};

use crate::harness::{TestGateway, rpc_failure};
use crate::multipart::Form;

/// Keys that Kubo 0.44 exported, with their IDs in Kubo.
const ED25519: &str = include_str!("../../../crates/ipfrs-ipns/tests/keys/ed25519.pem");
const ED25519_ID: &str = "k51qzi5uqu5dm0wsiwt328k2m7h2157b3kl5lkurq7xmg9flhqynqam2ymkxj4";
const RSA: &[u8] = include_bytes!("../../../crates/ipfrs-ipns/tests/keys/rsa.protobuf");
const RSA_ID: &str = "k2k4r8p4ggykdzhp5n3pq65gl6tf07kiel69y5m67yv8g99inck0natf";
const ECDSA: &str = include_str!("../../../crates/ipfrs-ipns/tests/keys/ecdsa.pem");

/// Returns the names of all keys.
async fn names(gateway: &TestGateway) -> Vec<String> {
    let keys = gateway.rpc_json("key/list").await["Keys"].take();
    keys.as_array().unwrap().iter().map(|key| key["Name"].as_str().unwrap().to_owned()).collect()
}

async fn import(gateway: &TestGateway, query: &str, key: impl Into<bytes::Bytes>) -> Result<Value, String> {
    let response = gateway.post_form(&format!("key/import?{query}"), Form::new().file("key", key.into())).await;
    if response.status() == 200 { Ok(response.json().await.unwrap()) } else { Err(rpc_failure(response).await) }
}

/// Returns the message of a failing command.
async fn failure(gateway: &TestGateway, command: &str) -> String {
    rpc_failure(gateway.rpc(command).send().await.unwrap()).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test(flavor = "multi_thread")]
async fn key_commands_work_and_survive_a_restart() {
    let gateway = TestGateway::start().await;
    let own = gateway.rpc_json("id").await["ID"].take();
    assert_eq!(gateway.rpc_json("key/list?ipns-base=b58mh").await, json!({"Keys": [{"Name": "self", "Id": own}]}));
    let made = gateway.rpc_json("key/gen?arg=b").await;
    assert!(made["Name"] == "b" && made["Id"].as_str().unwrap().starts_with("k51"), "{made}");
    let rsa = gateway.rpc_json("key/gen?arg=a&type=rsa&size=2048&ipns-base=b58mh").await;
    // As aioipfs sends it.
    gateway.rpc_json("key/gen?arg=aioipfs&type=ed25519&size=2048").await;
    gateway.rpc_json("key/rm?arg=aioipfs").await;
    assert!(rsa["Id"].as_str().unwrap().starts_with("Qm"), "{rsa}");
    let secp256k1 = gateway.rpc_json("key/gen?arg=c%20%C3%BC&type=secp256k1&ipns-base=base32").await;
    assert!(secp256k1["Id"].as_str().unwrap().starts_with("bafz"), "{secp256k1}");
    let repo = gateway.stop().await;
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(names(&gateway).await, ["self", "a", "b", "c ü"], "after a restart");
    let renamed = gateway.rpc_json("key/rename?arg=b&arg=d").await;
    assert_eq!(renamed, json!({"Was": "b", "Now": "d", "Id": made["Id"], "Overwrite": false}));
    let message = failure(&gateway, "key/rename?arg=d&arg=a").await;
    assert_eq!(message, "key by that name already exists, refusing to overwrite: a");
    let renamed = gateway.rpc_json("key/rename?arg=d&arg=a&force=true").await;
    assert_eq!((&renamed["Id"], &renamed["Overwrite"]), (&made["Id"], &json!(true)));
    assert_eq!(names(&gateway).await, ["self", "a", "c ü"]);
    let message = failure(&gateway, "key/rm?arg=a&arg=none").await;
    assert!(message.contains("no key named none") && names(&gateway).await.len() == 3, "all or none: {message}");
    let message = failure(&gateway, "key/rm?arg=a&arg=a").await;
    assert!(
        message == "no key named a was found" && names(&gateway).await.len() == 3,
        "as if removed twice: {message}"
    );
    assert_eq!(gateway.rpc_json("key/rm?arg=a").await, json!({"Keys": [{"Name": "a", "Id": made["Id"]}]}));
    assert_eq!(names(&gateway).await, ["self", "c ü"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_key_names_types_and_sizes_are_refused() {
    let gateway = TestGateway::start().await;
    gateway.rpc_json("key/gen?arg=taken").await;
    let long = "n".repeat(129);
    for (command, says) in [
        ("key/gen?arg=taken", "key with name 'taken' already exists"),
        ("key/gen?arg=self", "cannot create key with name 'self'"),
        ("key/gen?arg=", "key name must be at least one character"),
        ("key/gen?arg=..%2F..%2Fidentity.key", "slash"),
        ("key/gen?arg=a%00", "control character"),
        (&format!("key/gen?arg={long}"), "128 bytes"),
        ("key/gen?arg=x&type=dsa", "unrecognized key type: dsa"),
        ("key/gen?arg=x&type=ecdsa", "unrecognized key type: ecdsa"),
        ("key/gen?arg=x&type=rsa&size=1024", "rsa keys must be >= 2048 bits to be useful"),
        ("key/gen?arg=x&type=ed25519&size=512", "invalid key size 512: ed25519 keys are always 256 bits"),
        ("key/gen?arg=x&size=0&type=secp256k1", "invalid key size 0: secp256k1 keys are always 256 bits"),
        ("key/gen?arg=x&ipns-base=base3", "base3"),
        ("key/rename?arg=self&arg=x", "cannot rename key with name 'self'"),
        ("key/rename?arg=taken&arg=self&force=true", "cannot overwrite key with name 'self'"),
        ("key/rename?arg=none&arg=x", "no key named none was found"),
        ("key/rm?arg=self", "cannot remove key with name 'self'"),
        ("key/rename?arg=taken&arg=a%2Fb", "slash"),
        ("key/rm?arg=taken%2F", "no key named taken/"),
        (&format!("key/rm?arg={}", long.repeat(2)), "no key named n"),
    ] {
        let message = failure(&gateway, command).await;
        assert!(message.contains(says), "{command}: {message}");
    }
    assert_eq!(names(&gateway).await, ["self", "taken"]);
    for command in ["key/gen", "key/rename?arg=taken", "key/rm", "key/import?arg=x"] {
        assert_eq!(gateway.rpc(command).send().await.unwrap().status(), 400, "{command}");
    }
    // Keys cannot be exported over HTTP.
    assert_eq!(gateway.rpc("key/export?arg=taken").send().await.unwrap().status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubo_keys_round_trip_with_the_same_ids() {
    let gateway = TestGateway::start().await;
    let pem = import(&gateway, "arg=ed&format=pem-pkcs8-cleartext", ED25519).await.unwrap();
    assert_eq!(pem, json!({"Name": "ed", "Id": ED25519_ID}));
    let protobuf = import(&gateway, "arg=rsa&ipns-base=b58mh", RSA).await.unwrap();
    assert_eq!(protobuf["Id"], "QmdkSW3puHawXos7BUnVeg7wmUtF4fHQsJUavDKFQjRK8e");
    assert_eq!(gateway.rpc_json("key/ls").await["Keys"][2], json!({"Name": "rsa", "Id": RSA_ID}));
    let repo = gateway.repo().path();
    assert_eq!(export_key(repo, "ed", KeyFormat::Pem).unwrap().as_slice(), ED25519.as_bytes());
    assert_eq!(export_key(repo, "rsa", KeyFormat::Protobuf).unwrap().as_slice(), RSA);
    for name in ["self", "none", "../identity"] {
        assert!(export_key(repo, name, KeyFormat::Pem).is_err(), "{name}");
    }
    for (query, key, says) in [
        ("arg=ed", RSA, "already exists"),
        ("arg=x", ED25519.as_bytes(), "pem-pkcs8-cleartext"),
        ("arg=x&format=pem-pkcs8-cleartext", RSA, "PEM block not found"),
        ("arg=x&format=pem-pkcs8-cleartext", ECDSA.as_bytes(), "allow-any-key-type"),
        ("arg=x&format=jwk", RSA, "unrecognized key format: jwk"),
        ("arg=x", &RSA[..700], "private key"),
        ("arg=x", &[0; 65 * 1024], "65536 bytes"),
        ("arg=self", RSA, "cannot import key with name 'self'"),
    ] {
        let message = import(&gateway, query, bytes::Bytes::copy_from_slice(key)).await.unwrap_err();
        assert!(message.contains(says), "{query}: {message}");
    }
    import(&gateway, "arg=any&format=pem-pkcs8-cleartext&allow-any-key-type=true", ECDSA).await.unwrap();
    assert_eq!(names(&gateway).await, ["self", "any", "ed", "rsa"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn key_files_must_be_readable_by_the_owner_only() {
    let gateway = TestGateway::start().await;
    gateway.rpc_json("key/gen?arg=other").await;
    let repo = gateway.repo().path().to_owned();
    let directory = repo.join("keystore");
    // A file that a crash left behind, with different permissions.
    fs::write(directory.join("key_nnsxs.new"), "half a k").unwrap();
    gateway.rpc_json("key/gen?arg=key").await;
    assert_eq!((mode(&directory), mode(&repo.join("identity.key"))), (0o700, 0o600));
    // Named as in Kubo, so that users can copy a keystore: the name in base32.
    let file = directory.join("key_nnsxs");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 2, "no drafts stay behind");
    assert_eq!(mode(&file), 0o600);
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    // No right of the caller would change that.
    let message = failure(&gateway, "key/rename?arg=key&arg=new").await;
    assert!(message.contains("0640") && message.contains("chmod 600") && message.contains("key_nnsxs"), "{message}");
    assert_eq!(names(&gateway).await, ["self", "other"]);
    let problems =
        async || serde_json::from_slice::<Value>(&gateway.content("/health").await).unwrap()["problems"].take();
    let named = problems().await.to_string();
    assert!(named.contains("chmod 600") && named.contains("key_nnsxs"), "{named}");
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    assert_eq!(problems().await, Value::Null);
    // Found when it is used, after all keys were checked.
    fs::set_permissions(&file, Permissions::from_mode(0o404)).unwrap();
    let message = failure(&gateway, "name/publish?arg=bafkqaaa&key=key").await;
    assert!(message.contains("0404") && message.contains("key_nnsxs"), "{message}");
    assert!(problems().await.to_string().contains("key_nnsxs"));
    fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    assert_eq!(names(&gateway).await, ["self", "key", "other"]);
    // Names that Kubo accepts, but that no key can be given here, still work.
    fs::copy(&file, directory.join("key_mexwe")).unwrap();
    assert_eq!(names(&gateway).await, ["self", "a/b", "key", "other"]);
    gateway.rpc_json("key/rename?arg=a%2Fb&arg=ab").await;
    gateway.rpc_json("key/rm?arg=ab").await;
    // A damaged file does not hide the other keys.
    fs::write(directory.join("key_mfrgg"), "no key").unwrap();
    fs::set_permissions(directory.join("key_mfrgg"), Permissions::from_mode(0o600)).unwrap();
    fs::write(directory.join("README"), "not a key's file").unwrap();
    assert_eq!(names(&gateway).await, ["self", "key", "other"]);
    let message = failure(&gateway, "key/rm?arg=abc").await;
    assert!(message.contains("key_mfrgg"), "{message}");
    // Wrong permissions of the identity only cause a warning: a gateway that publishes nothing continues to serve.
    let own = gateway.rpc_json("id").await["ID"].take();
    let kept = gateway.stop().await;
    fs::set_permissions(repo.join("identity.key"), Permissions::from_mode(0o644)).unwrap();
    let gateway = TestGateway::start_on(kept, |_| {}).await;
    assert_eq!(gateway.rpc_json("id").await["ID"], own);
}

/// Returns the message of a refused command.
async fn failure_of(gateway: &TestGateway, command: &str) -> String {
    let response = gateway.rpc(command).send().await.unwrap();
    assert_eq!(response.status(), 403);
    let error: Value = response.json().await.unwrap();
    error["Message"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_repo_lists_keys_and_changes_none() {
    let gateway = TestGateway::start().await;
    gateway.rpc_json("key/gen?arg=key").await;
    let repo = gateway.stop().await;
    let gateway = TestGateway::start_on(repo, |config| config.store.read_only = true).await;
    for command in ["key/gen?arg=x", "key/rename?arg=key&arg=x", "key/rm?arg=key", "name/publish?arg=bafkqaaa"] {
        let message = failure_of(&gateway, command).await;
        assert!(message.contains("read-only"), "{command}: {message}");
    }
    assert_eq!(names(&gateway).await, ["self", "key"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_signed_and_verified_as_kubo_does() {
    let gateway = TestGateway::start().await;
    import(&gateway, "arg=ed&format=pem-pkcs8-cleartext", ED25519).await.unwrap();
    let message = || Form::new().file("data", "message");
    let signed = gateway.post_form("key/sign?key=ed", message()).await;
    assert_eq!(signed.headers()["x-chunked-output"], "1");
    let signed: Value = signed.json().await.unwrap();
    assert_eq!(signed["Key"], json!({"Name": "ed", "Id": ED25519_ID}));
    // Created by Kubo 0.44 with this key.
    assert_eq!(signed["Signature"], include_str!("keys/message.signature").trim());
    let signature = signed["Signature"].as_str().unwrap();
    // By name, by ID in any form, and by another node that has only the ID.
    let other = TestGateway::start().await;
    let peer_id = "12D3KooWRbP2LQv7fwR3AZ5QCSEQ8iGSiEra9TU9epkpNY7ZaCA3";
    for (gateway, key, name) in [
        (&gateway, "ed", "ed"),
        (&gateway, ED25519_ID, "ed"),
        (&gateway, peer_id, "ed"),
        (&other, ED25519_ID, ""),
        (&other, peer_id, ""),
    ] {
        let verify = format!("key/verify?key={key}&signature={signature}");
        let verified: Value = gateway.post_form(&verify, message()).await.json().await.unwrap();
        assert_eq!(verified, json!({"Key": {"Name": name, "Id": ED25519_ID}, "SignatureValid": true}), "{key}");
        let verified: Value =
            gateway.post_form(&verify, Form::new().file("data", "massage")).await.json().await.unwrap();
        assert_eq!(verified["SignatureValid"], false);
    }
    let verify = format!("key/verify?signature={signature}");
    let verified = gateway.post_form(&verify, message()).await;
    assert_eq!(verified.headers()["x-chunked-output"], "1");
    let verified: Value = verified.json().await.unwrap();
    assert_eq!((&verified["Key"]["Name"], &verified["SignatureValid"]), (&json!("self"), &json!(false)));
    for (query, says) in [
        ("key=none&signature=uAA", "'\"none\"' is not a known key, an IPNS Name, or a valid PeerID"),
        ("signature=!", "selected encoding not supported"),
        ("signature=", "cannot decode multibase for zero length string"),
        (RSA_QUERY, "public key"),
    ] {
        let message = rpc_failure(gateway.post_form(&format!("key/verify?{query}"), message()).await).await;
        assert!(message.contains(says), "{query}: {message}");
    }
}

/// Query for a key that is not in the keystore and whose ID does not contain the public key.
const RSA_QUERY: &str = "key=k2k4r8p4ggykdzhp5n3pq65gl6tf07kiel69y5m67yv8g99inck0natf&signature=uAA";
