//! `key`, `name` and `resolve`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::harness::Place;

/// A key exported by Kubo 0.44, and its ID.
const PEM: &[u8] = include_bytes!("../../../ipfrs-ipns/tests/keys/secp256k1.pem");
const ID: &str = "kzwfwjn5ji4pupup89dwih7g6d74oe9ndy4gfdqb43g23gkxzhpuc3to7v3gyjs";

fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn keys_and_names_work_with_and_without_daemon() {
    for with_daemon in [false, true] {
        let place = Place::new();
        let daemon = with_daemon.then(|| place.start(&[]));
        place.write("file", b"makes a repo");
        place.ok(&["add", "file"]);
        let own = place.ok(&["key", "list", "-l"]);
        let (own, name) = own.split_once(' ').unwrap();
        assert_eq!(name, "self");
        let made = place.ok(&["key", "gen", "mine"]);
        assert!(made.starts_with("k51"), "{made}");
        let rsa =
            object(&place.ok(&["--json", "key", "gen", "-t", "rsa", "-s", "2048", "--ipns-base", "b58mh", "rsa"]));
        assert!(rsa["Name"] == "rsa" && rsa["Id"].as_str().unwrap().starts_with("Qm"), "{rsa}");
        assert_eq!(place.ok(&["key", "ls"]), "self\nmine\nrsa");
        assert_eq!(place.ok(&["key", "rename", "mine", "yours"]), format!("Key {made} renamed to yours"));
        assert!(place.fails(&["key", "rename", "yours", "rsa"]).contains("already exists"));
        let forced = place.ok(&["key", "rename", "-f", "yours", "rsa"]);
        assert_eq!(forced, format!("Key {made} renamed to rsa with overwriting"));
        place.write("file", b"content");
        let cid = place.ok(&["add", "-Q", "--cid-version=1", "file"]);
        let published =
            place.ok(&["name", "publish", "--key=rsa", "--lifetime=1h", "--ttl=1m", "--allow-offline", &cid]);
        assert_eq!(published, format!("Published to {made}: /ipfs/{cid}"));
        assert_eq!(place.ok(&["name", "publish", "-Q", &format!("/ipns/{made}")]), own);
        assert_eq!(place.ok(&["name", "resolve", "--nocache"]), format!("/ipfs/{cid}"));
        assert_eq!(place.ok(&["name", "resolve", "-r=false", own]), format!("/ipns/{made}"));
        assert_eq!(
            object(&place.ok(&["--json", "resolve", &format!("/ipns/{own}")])),
            json!({"Path": format!("/ipfs/{cid}")})
        );
        let record = place.run(&["name", "get", &made]).stdout;
        let shown = place.run_with_input(&["name", "inspect", "--verify", &made], &record);
        for line in [
            format!("Value:          /ipfs/{cid}"),
            "Sequence:       0".into(),
            "TTL:            60s".into(),
            "Valid:          true".into(),
        ] {
            assert!(shown.text().lines().any(|shown| shown == line), "{line}: {}", shown.text());
        }
        let wrong = place.run_with_input(&["name", "inspect", "--dump=false", "--verify", own], &record);
        assert!(wrong.code == Some(1) && wrong.text().contains("Valid:          false"), "{}", wrong.stderr);
        assert_eq!(place.run_with_input(&["name", "put", &made], &record).text(), made);
        assert!(
            place
                .fails(&["name", "publish", "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"])
                .contains("bafkreigh2")
        );
        assert_eq!(place.ok(&["key", "rm", "rsa"]), "rsa");
        assert!(place.fails(&["name", "publish", "--key=rsa", &cid]).contains("no key by the given name"));
        drop(daemon);
    }
}

#[test]
fn exported_key_file_is_readable_by_owner_only() {
    let place = Place::new();
    let pem = place.write("kubo.pem", PEM);
    let _daemon = place.start(&[]);
    let import = ["key", "import", "-f", "pem-pkcs8-cleartext", "theirs", pem.to_str().unwrap()];
    assert_eq!(place.ok(&import), ID);
    assert!(place.fails(&["key", "import", "other", pem.to_str().unwrap()]).contains("pem-pkcs8-cleartext"));
    assert_eq!(place.ok(&["key", "export", "theirs"]), "saved theirs.key");
    assert_eq!(fs::metadata(place.path("theirs.key")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(place.fails(&["key", "export", "theirs"]).contains("theirs.key already exists"));
    let output = object(&place.ok(&["--json", "key", "export", "-f", "pem-pkcs8-cleartext", "theirs"]));
    assert_eq!(output, json!({"path": "theirs.pem"}));
    assert_eq!(fs::read(place.path("theirs.pem")).unwrap(), PEM);
    assert_eq!(place.run(&["key", "export", "-f", "pem-pkcs8-cleartext", "-o", "-", "theirs"]).stdout, PEM);
    assert_eq!(place.ok(&["key", "import", "again", "theirs.key"]), ID);
    for (arguments, says) in [
        (&["key", "export", "none"][..], "no key named none"),
        (&["key", "export", "self"], "cannot export key with name 'self'"),
        (&["--api", "http://127.0.0.1:1", "key", "export", "theirs"], "cannot be exported over the API"),
    ] {
        let message = place.fails(arguments);
        assert!(message.contains(says), "{message}");
    }
    assert_eq!(place.run(&["key", "export", "-f", "jwk", "theirs"]).code, Some(2));
}
