//! `cid`, `refs`, `dag put|get|resolve`, `swarm` and `stats`.

use serde_json::{Value, json};

use crate::harness::Place;

const FILE: &str = "bafkreicysg23kiwv34eg2d7qweipxwosdo2py4ldv42nbauguluen5v6am";

#[test]
fn nodes_are_stored_printed_and_followed() {
    let place = Place::new();
    let node = json!({"a": {"/": FILE}, "b": {"c": 1}});
    // As in Kubo, `refs` fails for a link to a missing block.
    place.write("file", b"hello\n");
    assert_eq!(place.ok(&["block", "put", "file"]), FILE);
    place.write("node", node.to_string().as_bytes());
    let cid = place.ok(&["dag", "put", "node"]);
    let printed: Value = serde_json::from_str(&place.ok(&["dag", "get", &cid])).unwrap();
    assert_eq!(printed, node);
    assert_eq!(place.ok(&["dag", "resolve", &format!("{cid}/b/c")]), format!("{cid}/b/c"));
    assert_eq!(place.ok(&["refs", &cid]), FILE);
    let reference: Value = serde_json::from_str(&place.ok(&["--json", "refs", "-e", &cid])).unwrap();
    assert_eq!(reference["Ref"], format!("{cid} -> {FILE}"));
    assert_eq!(place.ok(&["refs", "local"]).lines().count(), 2);
    assert!(place.fails(&["dag", "get", "nonsense"]).contains("nonsense"));
    assert!(place.ok(&["stats", "repo"]).starts_with("2 blocks"));
    assert!(place.ok(&["--json", "stats", "bw"]).contains("TotalIn"));
}

#[test]
fn content_ids_are_converted_and_inspected() {
    let place = Place::new();
    let old = "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn";
    let new = "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354";
    assert_eq!(place.ok(&["cid", "base32", old]), new);
    assert_eq!(place.ok(&["cid", "format", "-v", "0", new]), old);
    assert!(place.ok(&["cid", "inspect", old]).contains("dag-pb"));
    assert!(place.ok(&["cid", "codecs"]).contains("dag-cbor"));
    assert!(place.fails(&["cid", "base32", "x"]).contains('x'));
}

#[test]
fn commands_without_peers_name_the_setting() {
    let place = Place::new();
    place.write("file", b"hello\n");
    place.ok(&["block", "put", "file"]);
    for command in [&["swarm", "peers"][..], &["ping", "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X"]] {
        let message = place.fails(command);
        assert!(message.contains("set retrieval.bitswap.enabled"), "{command:?}: {message}");
    }
}
