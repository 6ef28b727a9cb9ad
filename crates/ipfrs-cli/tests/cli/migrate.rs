//! `migrate`: from a repo of Kubo that the test writes, from another daemon, and the export.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::Place;

/// CID of the raw block "hello\n", and the key of its file in flatfs.
const HELLO: &str = "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";
const HELLO_KEY: &str = "CIQFRENVWURNLXYINUH7BMIQ7PM5EG5U7RYWHLZU2CBINIXII33L4AY";

/// SHA-256 of the block.
const HELLO_HASH: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

/// CID of a directory of mutable files in which `hello` is the block "hello\n", the key of its file in flatfs, and its
/// SHA-256.
const ROOT: &str = "QmURaw21oj9QerXsXH4BS5JCCCFgXT9zhW9PBn83xj5ix1";
const ROOT_KEY: &str = "CIQFU2OBE3YCXTC4ZQBQVJ4XIH3ZFVQB2AUDXY226NFMMFTSR4CGRWQ";
const ROOT_HASH: &str = "5a69c126f02bcc5ccc030aa79741f792d601d0283be35af34ac616728f0468da";

/// Key of a name and key of a node that Kubo has made, and their IDs.
const SITE_KEY: &str = "08011240e686d6957a270ea5df123d5425139d34d2780d12b883e3bb70ff9b9d406d1f78d13b73b25f5b924496515e4105f1\
                        6ee1425f9b6c0c36adfc6d80416133250b5f";
const SITE_ID: &str = "k51qzi5uqu5dlebplnasaz2gydgdun37u8qdcm8uqmd6dpyvv3xr6tf8e5ht9b";
const NODE_KEY: &str = "CAESQNlTb9QuVzyPl3nxuAkybTELQFs4W0DJFe2K3Sk8KJ3GfA8kmu4e5fnKVgPP2VOsRz2QPaeNhj9r4sA0qC8onGI=";
const NODE_ID: &str = "k51qzi5uqu5dj9wi1ew3int2d99oipg6fkxdk5cwhnmqy2o7mzn388nutvus0y";

/// Decodes hexadecimal digits.
fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..][..2], 16).unwrap()).collect()
}

/// Returns a CRC-32C as LevelDB masks it.
fn checksum(bytes: &[u8]) -> u32 {
    let mut value = u32::MAX;
    for byte in bytes {
        value ^= u32::from(*byte);
        for _ in 0..8 {
            value = if value & 1 == 1 { value >> 1 ^ 0x82f6_3b78 } else { value >> 1 };
        }
    }
    (!value).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns a log with one record.
fn log(record: &[u8]) -> Vec<u8> {
    let sum = checksum(&[&[1], record].concat());
    [&sum.to_le_bytes()[..], &(record.len() as u16).to_le_bytes(), &[1], record].concat()
}

/// Writes a database whose entries are in its log.
fn write_database(path: &Path, entries: &[(&str, Vec<u8>)]) {
    fs::create_dir(path).unwrap();
    fs::write(path.join("CURRENT"), "MANIFEST-000001\n").unwrap();
    let comparator = b"leveldb.BytewiseComparator";
    let manifest = [&[1, comparator.len() as u8], &comparator[..], &[2, 2, 3, 3, 4, 0]].concat();
    fs::write(path.join("MANIFEST-000001"), log(&manifest)).unwrap();
    let mut batch = [&1_u64.to_le_bytes()[..], &(entries.len() as u32).to_le_bytes()].concat();
    for (key, value) in entries {
        batch.extend([&[1, key.len() as u8], key.as_bytes(), &[value.len() as u8], value].concat());
    }
    fs::write(path.join("000002.log"), log(&batch)).unwrap();
}

/// Returns a pin as boxo stores it.
fn pin(cid: &[u8], mode: u8, name: &str) -> Vec<u8> {
    let cid = [&b"\x63cid\x58"[..], &[cid.len() as u8], cid].concat();
    let name = [&b"\x64name"[..], &[0x60 + name.len() as u8], name.as_bytes()].concat();
    [&[0xa3][..], &cid, b"\x64mode", &[mode], &name].concat()
}

/// Writes a repo of Kubo with a block, its pin and a damaged block.
fn write_kubo(path: &Path, hello: &[u8]) {
    let config = json!({
        "Addresses": {"API": "/ip4/127.0.0.1/tcp/5001", "Gateway": "/ip4/127.0.0.1/tcp/8080"},
        "Datastore": {"StorageMax": "10GB", "Spec": {"type": "mount", "mounts": [
            {"mountpoint": "/blocks", "path": "blocks", "type": "flatfs"},
            {"mountpoint": "/", "path": "datastore", "type": "levelds"},
        ]}},
        "Swarm": {"ConnMgr": {"HighWater": 50}},
        "Import": {"CidVersion": 1, "UnixFSChunker": "size-1048576", "UnixFSRawLeaves": null, "BatchMaxNodes": 8,
            "UnixFSDAGLayout": "trickle", "UnixFSHAMTDirectorySizeThreshold": "100k"},
        "Internal": {"MFSNoFlushLimit": -1},
        "Pinning": {"RemoteServices": {"svc": {"API": {"Endpoint": "https://example.com", "Key": "hunter2"}}}},
        "API": {"Authorizations": {"a": {"AuthSecret": "bearer:hunter2", "AllowedPaths": ["/api/v0/id"]}}},
    });
    fs::create_dir_all(path).unwrap();
    fs::write(path.join("config"), config.to_string()).unwrap();
    fs::create_dir_all(path.join("blocks")).unwrap();
    fs::write(path.join("blocks/SHARDING"), "/repo/flatfs/shard/v1/next-to-last/2\n").unwrap();
    write_block(path, HELLO_KEY, hello);
}

/// Writes a block into flatfs.
fn write_block(path: &Path, key: &str, block: &[u8]) {
    let shard = path.join("blocks").join(&key[key.len() - 3..key.len() - 1]);
    fs::create_dir_all(&shard).unwrap();
    fs::write(shard.join(format!("{key}.data")), block).unwrap();
}

#[test]
fn repo_of_kubo_is_moved_and_damaged_blocks_are_reported() {
    let place = Place::new();
    let kubo = place.path("kubo");
    let cid = [&[1, 0x55, 0x12, 0x20], bytes(HELLO_HASH).as_slice()].concat();
    write_kubo(&kubo, b"hello\n");
    write_database(&kubo.join("datastore"), &[("/pins/pin/a", pin(&cid, 0, "greeting"))]);
    let from = kubo.to_str().unwrap();
    let report: Value = serde_json::from_str(&place.ok(&["--json", "migrate", "kubo", "--from", from])).unwrap();
    assert_eq!((&report["blocks"], &report["pins"]), (&json!(1), &json!(1)), "{report}");
    assert!(!report.to_string().contains("hunter2"), "{report}");
    let left = report["without_equivalent"].as_array().unwrap();
    for text in ["Swarm.ConnMgr.HighWater = 50", "Import.BatchMaxNodes = 8"] {
        assert!(left.contains(&json!(text)), "{left:?}");
    }
    assert_eq!(left.len(), 3, "{left:?}");
    let settings = report["configuration"].as_array().unwrap();
    for text in [
        "cid_version = 1",
        "chunker = \"size-1048576\"",
        "layout = \"trickle\"",
        "sharding_threshold_bytes = 100000",
        "max_unflushed = 0",
        "max_bytes = 10000000000",
        "enabled = true",
        "hosts = { localhost = { subdomains = true } }",
        "rpc = { a = { paths = [\"/api/v0/id\"], secret = \"AuthSecret of a\" } }",
    ] {
        assert!(settings.contains(&json!(text)), "{settings:?}");
    }
    assert_eq!(place.ok(&["pin", "ls", "--names"]), format!("{HELLO} recursive greeting"));
    // Run again, it moves nothing.
    let report: Value = serde_json::from_str(&place.ok(&["--json", "migrate", "kubo", "--from", from])).unwrap();
    assert_eq!((&report["blocks"], &report["known_blocks"]), (&json!(0), &json!(1)));
    // The settings without credentials can be written.
    let command = ["migrate", "kubo", "--write-config", "--from", from];
    let failed = place.run(&command);
    assert!(failed.text().contains("api.port is set by environment variable IPFRS_API_PORT"), "{}", failed.text());
    assert!(place.command(&command).env_remove("IPFRS_API_PORT").output().unwrap().status.success());
    assert_eq!(place.ok(&["config", "get", "import.layout"]), "trickle");
    assert_eq!(place.ok(&["config", "get", "auth.enabled"]), "false");
    // Restrictions of access are moved, too.
    let key = "0f".repeat(32);
    fs::write(kubo.join("swarm.key"), format!("/key/swarm/psk/1.0.0/\n/base16/\n{key}\n")).unwrap();
    fs::create_dir(kubo.join("denylists")).unwrap();
    fs::write(kubo.join("denylists/a.deny"), "/ipfs/bafkqaaa\n").unwrap();
    let config = fs::read_to_string(kubo.join("config")).unwrap();
    fs::write(kubo.join("config"), config.replacen('{', r#"{"Bitswap": {"ServerEnabled": false},"#, 1)).unwrap();
    let private = Place::new();
    let mut command = private.command(&["--json", "migrate", "kubo", "--write-config", "--from", from]);
    let report = command.env_remove("IPFRS_API_PORT").output().unwrap();
    assert!(report.status.success() && !String::from_utf8_lossy(&report.stdout).contains(&key), "{report:?}");
    let written = fs::read_to_string(private.repo().join("config.toml")).unwrap();
    for text in [&key, "a.deny", "serve = false"] {
        assert!(written.contains(text), "{written}");
    }
    fs::write(kubo.join("swarm.key"), "/key/swarm/psk/1.0.0/\n/base16/\n0f\n").unwrap();
    let unusable = Place::new();
    let mut command = unusable.command(&["migrate", "kubo", "--write-config", "--from", from]);
    assert!(!command.env_remove("IPFRS_API_PORT").status().unwrap().success());
    let written = fs::read_to_string(unusable.repo().join("config.toml")).unwrap();
    assert!(!written.contains("bitswap"), "without its key, the network would be open: {written}");
    fs::remove_file(kubo.join("swarm.key")).unwrap();
    let other = Place::new();
    write_kubo(&kubo, b"other\n");
    assert!(other.fails(&["migrate", "kubo", "--from", from]).contains("not moved"));
    fs::write(kubo.join("blocks/SHARDING"), "/repo/flatfs/shard/v1/middle/2").unwrap();
    assert!(other.fails(&["migrate", "kubo", "--from", from]).contains("next-to-last"));
    assert!(
        other.fails(&["migrate", "kubo", "--from", other.path("none").to_str().unwrap()]).contains("no repo of Kubo")
    );
    let without = Place::new();
    assert!(without.fails(&["migrate", "kubo", "--from", "nowhere"]).contains("no repo of Kubo"));
    assert!(!without.repo().join("packs").exists(), "a failed command creates no repo");
}

#[test]
fn keys_and_mutable_files_of_kubo_are_moved() {
    let place = Place::new();
    let kubo = place.path("kubo");
    write_kubo(&kubo, b"hello\n");
    let link = [&b"\x0a\x24\x01\x55\x12\x20"[..], &bytes(HELLO_HASH), b"\x12\x05hello\x18\x06"].concat();
    let directory = [&[0x12, link.len() as u8], link.as_slice(), b"\x0a\x02\x08\x01"].concat();
    write_block(&kubo, ROOT_KEY, &directory);
    let root = [&[0x12, 0x20], bytes(ROOT_HASH).as_slice()].concat();
    write_database(&kubo.join("datastore"), &[("/local/filesroot", root)]);
    fs::create_dir(kubo.join("keystore")).unwrap();
    // The name of the key is `site`.
    fs::write(kubo.join("keystore/key_onuxizi"), bytes(SITE_KEY)).unwrap();
    let config = fs::read_to_string(kubo.join("config")).unwrap();
    let identity = format!(r#"{{"Identity": {{"PrivKey": "{NODE_KEY}"}},"#);
    fs::write(kubo.join("config"), config.replacen('{', &identity, 1)).unwrap();
    let from = kubo.to_str().unwrap();
    // Run again, it finds what it has moved.
    for blocks in [2, 0] {
        let report = place.ok(&["--json", "migrate", "kubo", "--from", from]);
        assert!(!report.contains(NODE_KEY), "{report}");
        let report: Value = serde_json::from_str(&report).unwrap();
        let moved = ["blocks", "files", "keys"].map(|what| report[what].clone());
        assert_eq!(moved, [json!(blocks), json!(1), json!(2)], "{report}");
    }
    assert!(place.ok(&["--json", "files", "stat", "/"]).contains(ROOT));
    assert_eq!(place.run(&["files", "read", "/hello"]).stdout, b"hello\n");
    let keys = place.ok(&["--json", "key", "list"]);
    for (name, id) in [("site", SITE_ID), ("kubo-self", NODE_ID)] {
        assert!(keys.contains(&format!(r#"{{"Name":"{name}","Id":"{id}"}}"#)), "{keys}");
    }
}

#[test]
fn content_moves_from_a_daemon_and_is_exported() {
    let (source, target) = (Place::new(), Place::new());
    source.write("file", b"content");
    let cid = source.ok(&["add", "-Q", "--pin-name", "a name", "--to-files", "/copy", "file"]);
    let daemon = source.start(&[]);
    let report = target.ok(&["--json", "migrate", "kubo", "--from", daemon.url()]);
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["pins"], &report["files"]), (&json!(1), &json!(1)), "{report}");
    drop(daemon);
    assert_eq!(target.run(&["files", "read", "/copy"]).stdout, b"content");
    assert!(target.ok(&["pin", "ls", "--names", "--type", "recursive"]).contains("a name"));
    // Two versions of a directory share a file of 1 MiB.
    let large: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    for version in ["1", "2"] {
        target.write("d/large", &large);
        target.write("d/version", version.as_bytes());
        target.ok(&["add", "-r", "-Q", "d"]);
    }
    let exported = target.path("export");
    target.ok(&["migrate", "export", exported.to_str().unwrap()]);
    let list = fs::read_to_string(exported.join("pins.ndjson")).unwrap();
    assert!(list.contains(&cid) && list.contains("a name"), "{list}");
    let bytes = fs::metadata(exported.join("pins-00001.car")).unwrap().len();
    assert!((1 << 20..3 << 19).contains(&bytes), "the shared file is written once: {bytes}");
    let third = Place::new();
    third.ok(&["dag", "import", exported.join("pins-00001.car").to_str().unwrap()]);
    third.ok(&["dag", "import", "--pin-roots=false", exported.join("files.car").to_str().unwrap()]);
    assert_eq!(third.run(&["cat", &cid]).stdout, b"content");
    assert!(target.fails(&["migrate", "export", exported.to_str().unwrap()]).contains("must not exist"));
    // Names that are not UTF-8 keep their bytes.
    for (name, content) in [(&b"/caf\xe9"[..], "one"), (b"/caf\xe8", "two")] {
        let mut write = third.command(&["files", "write", "--create"]);
        write.arg(OsStr::from_bytes(name)).arg(third.write("content", content.as_bytes()));
        assert!(write.status().unwrap().success());
    }
    let exported = third.path("export");
    third.ok(&["migrate", "export", exported.to_str().unwrap()]);
    let list = fs::read_to_string(exported.join("files.ndjson")).unwrap();
    assert!(list.contains(r#""NameBytes":"Y2Fm6Q==""#) && list.contains(r#""NameBytes":"Y2Fm6A==""#), "{list}");
}
