//! `dag/get` and `dag/put`: nodes in the IPLD codecs.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use bytes::Bytes;
use ipfrs_core::parse_cid;
use serde_json::{Value, json};

use crate::car::raw_cid;
use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

async fn put(gateway: &TestGateway, options: &str, data: impl AsRef<[u8]>) -> String {
    let lines = ndjson(gateway.post_form(&format!("dag/put?{options}"), Form::new().file("node", data)).await).await;
    assert_eq!(lines.len(), 1);
    lines[0]["Cid"]["/"].as_str().unwrap().to_owned()
}

async fn refused(gateway: &TestGateway, options: &str, data: impl AsRef<[u8]>) -> String {
    rpc_failure(gateway.post_form(&format!("dag/put?{options}"), Form::new().file("node", data)).await).await
}

async fn get(gateway: &TestGateway, query: &str) -> Bytes {
    gateway.rpc_bytes(&format!("dag/get?arg={query}")).await
}

/// Returns the links of a block, as `ls` lists them.
async fn listed(gateway: &TestGateway, cid: &str) -> Vec<String> {
    let listing = gateway.rpc_json(&format!("ls?arg={cid}")).await;
    let links = listing["Objects"][0]["Links"].as_array().unwrap();
    links.iter().map(|link| link["Hash"].as_str().unwrap().to_owned()).collect()
}

async fn block(gateway: &TestGateway, cid: &str) -> Bytes {
    gateway.rpc_bytes(&format!("block/get?arg={cid}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn dag_json_converts_to_canonical_dag_cbor() {
    let gateway = TestGateway::start().await;
    let leaf = raw_cid(b"leaf");
    let text = format!(
        r#"{{"bytes":{{"/":{{"bytes":"AQID"}}}},"b":[1,-1,1.5,null,true,"ü"],"link":{{"/":"{leaf}"}},"aa":18446744073709551615}}"#
    );
    let cid = put(&gateway, "", &text).await;
    // Keys sorted by length, then bytewise; every head in its shortest form
    // (https://ipld.io/specs/codecs/dag-cbor/spec/).
    let link = [&[0xd8, 0x2a, 0x58, 37, 0][..], &parse_cid(&leaf).unwrap().to_bytes()].concat();
    let expected = [
        &b"\xa4\x61b\x86\x01\x20\xfb\x3f\xf8\0\0\0\0\0\0\xf6\xf5\x62\xc3\xbc\x62aa\x1b\xff\xff\xff\xff\xff\xff\xff\xff"
            [..],
        b"\x64link",
        &link,
        b"\x65bytes\x43\x01\x02\x03",
    ]
    .concat();
    assert_eq!(block(&gateway, &cid).await, expected);
    assert!(cid.starts_with("bafyrei"), "{cid}");
    // Converted back: keys sorted bytewise, no spaces.
    let back = format!(
        r#"{{"aa":18446744073709551615,"b":[1,-1,1.5,null,true,"ü"],"bytes":{{"/":{{"bytes":"AQID"}}}},"link":{{"/":"{leaf}"}}}}"#
    );
    assert_eq!(get(&gateway, &cid).await, back);
    assert_eq!(get(&gateway, &format!("{cid}&output-codec=dag-cbor")).await, expected);
    assert_eq!(get(&gateway, &format!("/ipfs/{cid}/b/2")).await, "1.5");
    assert_eq!(get(&gateway, &format!("{cid}/bytes&output-codec=raw")).await, &b"\x01\x02\x03"[..]);
    assert_eq!(put(&gateway, "input-codec=dag-cbor", &expected).await, cid);
    let as_json = put(&gateway, "store-codec=dag-json&hash=blake3", &text).await;
    assert_eq!(block(&gateway, &as_json).await, back);
    assert!(as_json.starts_with("baguq"), "{as_json}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_directories_are_shown_as_their_nodes() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/a", "hello"), ("d/b", "")]).await;
    let hello = raw_cid(b"hello");
    let shown: Value = serde_json::from_slice(&get(&gateway, &root).await).unwrap();
    let links = json!([
        {"Hash": {"/": hello}, "Name": "a", "Tsize": 5},
        {"Hash": {"/": raw_cid(b"")}, "Name": "b", "Tsize": 0},
    ]);
    assert_eq!(shown, json!({"Data": {"/": {"bytes": "CAE"}}, "Links": links}));
    assert_eq!(put(&gateway, "store-codec=dag-pb", shown.to_string()).await, root);
    assert_eq!(put(&gateway, "store-codec=dag-pb&input-codec=dag-pb", block(&gateway, &root).await).await, root);
    assert_eq!(get(&gateway, &format!("{root}/a")).await, r#"{"/":{"bytes":"aGVsbG8"}}"#);
    assert_eq!(get(&gateway, &format!("{root}/a&output-codec=raw")).await, "hello");
    // The empty node, links in another order, and links without names.
    let empty = put(&gateway, "store-codec=dag-pb", r#"{"Links":[]}"#).await;
    assert!(block(&gateway, &empty).await.is_empty());
    assert_eq!(get(&gateway, &empty).await, r#"{"Links":[]}"#);
    let swapped = json!({"Data": shown["Data"], "Links": [links[1], links[0]]});
    assert_eq!(put(&gateway, "store-codec=dag-pb", swapped.to_string()).await, root);
    let bare = put(&gateway, "store-codec=dag-pb", json!({"Links": [{"Hash": links[0]["Hash"]}]}).to_string()).await;
    let hash = parse_cid(&hello).unwrap().to_bytes();
    assert_eq!(block(&gateway, &bare).await, [&[0x12, 38, 0x0a, 36][..], &hash].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_nodes_are_answered_in_order_and_pinned_when_asked() {
    let gateway = TestGateway::start().await;
    let form = Form::new().file("a", "1").file("b", "2");
    let lines = ndjson(gateway.post_form("dag/put?pin=true", form).await).await;
    for (line, expected) in lines.iter().zip(["1", "2"]) {
        let cid = line["Cid"]["/"].as_str().unwrap();
        assert_eq!(get(&gateway, cid).await, expected);
        assert_eq!(gateway.rpc_json(&format!("pin/ls?arg={cid}")).await["Keys"][cid]["Type"], "recursive");
    }
    let raw = ndjson(gateway.rpc("dag/put").body(r#"{"a":[]}"#).send().await.unwrap()).await;
    assert_eq!(get(&gateway, raw[0]["Cid"]["/"].as_str().unwrap()).await, r#"{"a":[]}"#);
    let dangling = format!(r#"{{"/":"{}"}}"#, raw_cid(b"absent"));
    assert!(refused(&gateway, "pin=true", dangling).await.contains(&raw_cid(b"absent")));
}

/// The content IDs are Kubo's.
#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_stored_and_read_as_by_kubo() {
    let gateway = TestGateway::start().await;
    for (options, data, stored) in [
        ("", "-0.0", &b"\xfb\x80\0\0\0\0\0\0\0"[..]),
        ("", "-0", b"\0"),
        ("input-codec=dag-cbor", "\u{80}", b"\x80"),
        ("store-codec=dag-json", "0.000001", b"0.000001"),
        ("store-codec=dag-json", "1e21", b"1e+21"),
        // The nearest number, not a neighbour of it.
        ("store-codec=dag-json", "-1401520.2149174279", b"-1401520.2149174279"),
        ("", "-2.3250307746388343e-17", b"\xfb\xbc\x7a\xce\x47\x95\x93\xd8\x3c"),
        ("input-codec=json&store-codec=json", "-1401520.2149174279", b"-1401520.2149174279"),
        ("input-codec=json&store-codec=json", "1", b"1"),
        ("input-codec=json&store-codec=json", "[1]", b"[\n\t1\n]\n"),
    ] {
        let bytes: Vec<u8> = data.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect();
        let cid = put(&gateway, options, bytes).await;
        assert_eq!(block(&gateway, &cid).await, stored, "{options} {data}");
    }
    let zero = put(&gateway, "", r#"{"a":-0.0}"#).await;
    assert_eq!(get(&gateway, &zero).await, r#"{"a":-0.0}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn dag_put_refuses_unrepresentable_values() {
    let gateway = TestGateway::start().await;
    let cid = put(&gateway, "", r#"{"a":1}"#).await;
    for (options, data, named) in [
        ("", "{", "not dag-json"),
        ("", r#"{"a":1} x"#, "not dag-json"),
        ("", r#"{"a\\":["1",18446744073709551616]}"#, "18446744073709551616 has more than 64 bits"),
        ("", "-9223372036854775809", "-9223372036854775809 has more than 64 bits"),
        ("input-codec=json&store-codec=json", "18446744073709551616", "not json: the integer 18446744073709551616 has"),
        ("input-codec=json&store-codec=cbor", "[-9223372036854775809]", "-9223372036854775809 has more than 64 bits"),
        ("input-codec=dag-cbor", "\u{9f}", "not dag-cbor"),
        ("", r#"{"k":{"/":{"bytes":"AQI","x":1}}}"#, "reserves for links and bytes"),
        ("store-codec=raw", r#"{"a":1}"#, "raw can represent only bytes"),
        ("store-codec=dag-pb", r#"{"a":1}"#, "a node has no \"a\""),
        ("store-codec=dag-pb", r#"{"Links":[{}]}"#, "a link must have a Hash"),
        ("store-codec=libp2p-key", "1", "libp2p-key"),
        ("store-codec=nonsense", "1", "nonsense"),
        ("hash=nonsense", "1", "nonsense"),
    ] {
        let message = refused(&gateway, options, data).await;
        assert!(message.contains(named), "{options} {data}: {message}");
    }
    let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    assert!(refused(&gateway, "", deep).await.contains("not dag-json"));
    for (cbor, named) in [
        ([vec![0x81; 100_000], vec![0]].concat(), "more than 127 levels deep"),
        ([vec![0x81; 128], vec![0]].concat(), "more than 127 levels deep"),
        (vec![0x82, 0], "not dag-cbor: it ends in the middle of an item"),
        (vec![0, 0], "not dag-cbor: 1 bytes follow its end"),
        (vec![0xa2, 0x61, b'a', 0, 0x61, b'a', 0], "not dag-cbor: the key \"a\" occurs twice in one map"),
        (vec![0x18, 1], "not dag-cbor: an integer or a length has more bytes than it needs"),
        (vec![0xf9, 0x7c, 0], "not dag-cbor: a floating-point number is NaN or infinite"),
        (vec![0xa1, 0x61, 0xff, 0], "not dag-cbor: a text is not UTF-8"),
    ] {
        let message = refused(&gateway, "input-codec=dag-cbor", cbor).await;
        assert!(message.contains(named), "{message}");
    }
    // dag-json reserves maps with the key `/`: of these, the first is a text, the second a number, the third in a list.
    for cbor in [&b"\xa1\x61/\x61x"[..], b"\xa1\x61/\x01", b"\x81\xa2\x61/\x61x\x61b\x01"] {
        let message = refused(&gateway, "input-codec=dag-cbor&store-codec=dag-json", cbor).await;
        assert!(message.contains("which dag-json reserves"), "{message}");
        let block = gateway.put_block("cid-codec=dag-cbor", cbor.to_vec()).await;
        let shown = rpc_failure(gateway.rpc(&format!("dag/get?arg={block}")).send().await.unwrap()).await;
        assert!(shown.contains("which dag-json reserves"), "{shown}");
        assert_eq!(get(&gateway, &format!("{block}&output-codec=dag-cbor")).await, cbor);
    }
    put(&gateway, "input-codec=dag-cbor&store-codec=dag-json", [vec![0x81; 127], vec![0]].concat()).await;
    // As in Kubo, unsorted keys and short floats are accepted and written in canonical form.
    let unordered = [&b"\xa2\x61b\xf9\x3c\x00"[..], b"\x61a\xf7"].concat();
    let ordered = put(&gateway, "", r#"{"a":null,"b":1.0}"#).await;
    assert_eq!(put(&gateway, "input-codec=dag-cbor", unordered.clone()).await, ordered);
    let stored = gateway.put_block("cid-codec=dag-cbor", unordered).await;
    assert_eq!(get(&gateway, &stored).await, r#"{"a":null,"b":1.0}"#);
    let refused_block = gateway.put_block("cid-codec=dag-cbor", vec![0x18, 1]).await;
    for command in ["dag/get", "dag/export", "dag/stat", "pin/add", "ls"] {
        let response = gateway.rpc(&format!("{command}?arg={refused_block}")).send().await.unwrap();
        let answer = response.text().await.unwrap();
        assert!(
            answer.contains("more bytes than it needs") && answer.contains("invalid_content"),
            "{command}: {answer}"
        );
    }
    let large = format!("\"{}\"", "x".repeat(2 * 1024 * 1024));
    assert!(refused(&gateway, "", large).await.contains("2097152"));
    for (query, named) in [
        (format!("{cid}&output-codec=raw"), "raw can represent only bytes"),
        (format!("{cid}/b"), "\"b\""),
        (raw_cid(b"absent"), "not found"),
        ("bad&output-codec=nope".into(), "unknown multicodec: \"nope\""),
    ] {
        let message = rpc_failure(gateway.rpc(&format!("dag/get?arg={query}")).send().await.unwrap()).await;
        assert!(message.contains(named), "{query}: {message}");
    }
    assert_eq!(gateway.blocks().await, 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn git_objects_have_the_digests_of_git_and_their_links_are_followed() {
    let gateway = TestGateway::start().await;
    let as_git = "input-codec=git-raw&store-codec=git-raw&hash=sha1";
    let with_head = |kind: &str, body: &[u8]| [format!("{kind} {}\0", body.len()).as_bytes(), body].concat();
    let digest_of = |cid: &str| parse_cid(cid).unwrap().hash().digest().to_vec();
    let hex = |digest: &[u8]| digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let blob = put(&gateway, as_git, with_head("blob", b"what is up, doc?")).await;
    assert_eq!(hex(&digest_of(&blob)), "bd9dbf5aae1a3862dd1526723246b20206e5fc37");
    let tree = put(&gateway, as_git, with_head("tree", &[b"100644 doc\0", &digest_of(&blob)[..]].concat())).await;
    let headers = format!("tree {}\nauthor A <a@example.com> 1 +0000\n\nsubject\n", hex(&digest_of(&tree)));
    let commit = put(&gateway, &format!("{as_git}&pin=true"), with_head("commit", headers.as_bytes())).await;
    assert_eq!(get(&gateway, &format!("{commit}/author/name")).await, r#""A""#);
    let entry = format!(r#"{{"hash":{{"/":"{blob}"}},"mode":"100644"}}"#);
    assert_eq!(get(&gateway, &format!("{commit}/tree/doc")).await, entry);
    let content = get(&gateway, &format!("{commit}/tree/doc/hash&output-codec=git-raw")).await;
    assert_eq!(content, with_head("blob", b"what is up, doc?"));
    for (object, links) in [(&blob, vec![]), (&tree, vec![blob.clone()]), (&commit, vec![tree.clone()])] {
        assert_eq!(listed(&gateway, object).await, links, "{object}, as in Kubo");
    }
    // The result of dag/get can be stored again.
    let shown = get(&gateway, &commit).await;
    assert_eq!(put(&gateway, "store-codec=git-raw&hash=sha1", &shown).await, commit);
    let shown = get(&gateway, &tree).await;
    assert_eq!(put(&gateway, "store-codec=git-raw&hash=sha1", &shown).await, tree);
    gateway.rpc_bytes("repo/gc").await;
    for cid in [&blob, &tree, &commit] {
        block(&gateway, cid).await;
    }
    let message = refused(&gateway, as_git, b"blob 2\0").await;
    assert!(message.contains("its head says 2 bytes, and 0 follow"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signed_objects_show_texts_and_link_to_their_payload() {
    let gateway = TestGateway::start().await;
    let payload = put(&gateway, "", r#"{"signed":true}"#).await;
    let encoded = BASE64URL.encode(parse_cid(&payload).unwrap().to_bytes());
    let flat = format!(r#"{{"payload":"{encoded}","protected":"e30","signature":"c2ln"}}"#);
    let cid = put(&gateway, "store-codec=dag-jose&pin=true", &flat).await;
    let shown = format!(
        r#"{{"link":{{"/":"{payload}"}},"payload":"{encoded}","signatures":[{{"protected":"e30","signature":"c2ln"}}]}}"#
    );
    assert_eq!(get(&gateway, &cid).await, shown);
    assert_eq!(get(&gateway, &format!("{cid}/link/signed")).await, "true");
    assert_eq!(get(&gateway, &format!("{cid}/signatures/0/signature")).await, r#""c2ln""#);
    assert_eq!(put(&gateway, "store-codec=dag-jose", &shown).await, cid);
    assert_eq!(listed(&gateway, &cid).await, [payload.as_str()]);
    for codec in ["json", "cbor"] {
        let plain = put(&gateway, &format!("input-codec=json&store-codec={codec}"), r#"{"a":1}"#).await;
        assert!(listed(&gateway, &plain).await.is_empty(), "{codec} has no links, as in Kubo");
    }
    gateway.rpc_bytes("repo/gc").await;
    block(&gateway, &payload).await;
    let message = refused(&gateway, "store-codec=dag-jose", r#"{"payload":"e30"}"#).await;
    assert!(message.contains("payload is not a valid CID"), "{message}");
}
