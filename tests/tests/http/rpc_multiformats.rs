//! `cid/*` and `multibase/*`. The expected values are those of Kubo.

use serde_json::{Value, json};

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

const V0: &str = "QmVSDZw6vuVgTmmbNEeTS2CNsxQ8cXFdp7hDuRPQFgxsm7";
const V1: &str = "bafybeidjn3o426lxl3o3jbc5yauwuxwd6dkm3jk2hg7m43ipvhg2ljsmry";
const RAW: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";
const PEER: &str = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq";

async fn line(gateway: &TestGateway, command: &str) -> Value {
    let lines = ndjson(gateway.rpc(command).send().await.unwrap()).await;
    assert_eq!(lines.len(), 1, "{command}");
    lines[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_ids_are_converted_and_formatted() {
    let gateway = TestGateway::start().await;
    let all = "f=%25b|%25B|%25v|%25V|%25c|%25C|%25h|%25H|%25L|%25m|%25M|%25d|%25D|%25s|%25S|%25P|%25%25";
    let of_v0 = "base58btc|z|cidv0|0|dag-pb|112|sha2-256|18|32|zQmVSDZw6vuVgTmmbNEeTS2CNsxQ8cXFdp7hDuRPQFgxsm7|\
                 QmVSDZw6vuVgTmmbNEeTS2CNsxQ8cXFdp7hDuRPQFgxsm7|z86ZrpxwPigz9Awx4cFiYYD9xtekvbzFRcutZhErNmBh7|\
                 86ZrpxwPigz9Awx4cFiYYD9xtekvbzFRcutZhErNmBh7|QmVSDZw6vuVgTmmbNEeTS2CNsxQ8cXFdp7hDuRPQFgxsm7|\
                 QmVSDZw6vuVgTmmbNEeTS2CNsxQ8cXFdp7hDuRPQFgxsm7|cidv0-dag-pb-sha2-256-32|%";
    let of_raw = "base32|b|cidv1|1|raw|85|sha2-256|18|32|bciqmpuaureeaqwgfaadfqnwgld4epjwkm7cimrqzeev6j6babzf3vtq|\
                  ciqmpuaureeaqwgfaadfqnwgld4epjwkm7cimrqzeev6j6babzf3vtq|by7ibjciibbmmkaagla3mmwhyi6tmuz6eqzdbsijl4t4cadslxlha|\
                  y7ibjciibbmmkaagla3mmwhyi6tmuz6eqzdbsijl4t4cadslxlha|bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy|\
                  afkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy|cidv1-raw-sha2-256-32|%";
    for (query, formatted, error) in [
        (format!("base32?arg={V0}"), V1, ""),
        (format!("base32?arg={V0}&cid-base=base36"), V1, ""),
        ("base32?arg=x".to_owned(), "", "invalid cid: cid too short"),
        (format!("base32?arg={PEER}"), "", "invalid cid: selected encoding not supported"),
        (format!("format?arg={V0}"), V0, ""),
        (format!("format?arg={V0}&v=1"), "zdj7WcXTwNAnNyHLV5X6yc5JQ2wWAbaL4fmgS6kaDn558Xmw3", ""),
        (format!("format?arg={V0}&b=b"), V1, ""),
        (format!("format?arg={V1}&v=0"), V0, ""),
        (format!("format?arg={RAW}&v=0"), "", "can't convert non-dag-pb nodes to cidv0"),
        (format!("format?arg={RAW}&b=base36"), "k2cwuedmosc65hhh0bee97q5jx3fe55tiyqzep8vgds83agps9dof3da", ""),
        (
            format!("format?arg={RAW}&b=base256emoji"),
            "🚀🪐👀💻😅😨👎💾🗣🌔🌔💥💸🚀🌒💥🤦⬇💥🥵🤩🎈😷😝💎💝💓🤣👏🙄🎤🥵😅🌏😃🤓😟",
            "",
        ),
        (format!("format?arg={V0}&mc=raw"), "zb2rhdjr3zKAkkhQxd9MLQk7vaqeE7dL1aNitVJD6Gz1xw3xq", ""),
        (format!("format?arg={V0}&mc=0x55"), "zb2rhdjr3zKAkkhQxd9MLQk7vaqeE7dL1aNitVJD6Gz1xw3xq", ""),
        (format!("format?arg={V0}&mc=0"), V0, ""),
        (format!("format?arg={V0}&mc=identity&v=1"), "zdj7WcXTwNAnNyHLV5X6yc5JQ2wWAbaL4fmgS6kaDn558Xmw3", ""),
        (format!("format?arg={V0}&{all}"), of_v0, ""),
        (format!("format?arg={RAW}&{all}"), of_raw, ""),
    ] {
        let found = line(&gateway, &format!("cid/{query}")).await;
        assert_eq!((&found["Formatted"], &found["ErrorMsg"]), (&json!(formatted), &json!(error)), "{query}");
    }
    let several = ndjson(gateway.rpc(&format!("cid/base32?arg=x&arg={V0}")).send().await.unwrap()).await;
    assert_eq!((&several[0]["CidStr"], &several[1]["Formatted"]), (&json!("x"), &json!(V1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_formats_fail_with_the_texts_of_kubo() {
    let gateway = TestGateway::start().await;
    for (options, text) in [
        ("v=0&mc=raw", "cannot convert to CIDv0 with any codec other than dag-pb"),
        ("v=0&b=base32", "cannot convert to CIDv0 with any multibase other than the implicit base58btc"),
        ("v=3", "invalid cid version: \"3\""),
        ("b=nope", "unsupported multibase encoding: nope"),
        ("mc=nope", "unknown multicodec: \"nope\""),
        ("f=x", "invalid format string: \"x\""),
        ("f=%25", "premature end of format string"),
        ("f=%25q", "unrecognized specifier in format string: %q"),
    ] {
        let response = gateway.rpc(&format!("cid/format?arg={V0}&{options}")).send().await.unwrap();
        assert_eq!(rpc_failure(response).await, text, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_ids_are_taken_apart() {
    let gateway = TestGateway::start().await;
    let digest = "696eddcd79775eddb4845dc0296a5ec3f0d4cda55a39bece6d0fa9cda5a64c8e";
    let expected = json!({
        "cid": V0, "version": 0, "multibase": { "prefix": "z", "name": "base58btc" },
        "multicodec": { "code": 112, "name": "dag-pb" },
        "multihash": { "code": 18, "name": "sha2-256", "length": 32, "digest": digest },
        "cidV0": V0, "cidV1": V1,
    });
    assert_eq!(gateway.rpc_json(&format!("cid/inspect?arg={V0}")).await, expected);
    let name = "k51qzi5uqu5dhjpoi8yyqwtsdnfrqzyq4zk7fdcy4ft2zn6pdeh9zswkpdlhky";
    let key = gateway.rpc_json(&format!("cid/inspect?arg={name}")).await;
    assert_eq!((&key["multicodec"]["name"], &key["cidV1"]), (&json!("libp2p-key"), &json!(name)));
    assert_eq!((&key["multihash"]["name"], &key["multihash"]["length"]), (&json!("identity"), &json!(36)));
    assert!(key.get("cidV0").is_none() && key.get("errorMsg").is_none(), "{key}");
    let peer = gateway.rpc_json(&format!("cid/inspect?arg={PEER}")).await;
    let text = "invalid CID: invalid cid: selected encoding not supported\nNote: the value is a PeerID; inspect its CID \
                representation instead:\n  k51qzi5uqu5dgy8qsq67hbz73jqkw87l3fgf4a91qb0d9b5173tir7n4vxk1oe";
    assert_eq!(peer["errorMsg"], text);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_codes_are_listed() {
    let gateway = TestGateway::start().await;
    let bases = gateway.rpc_json("cid/bases").await;
    assert_eq!(gateway.rpc_json("multibase/list").await, bases);
    let has = |list: &Value, code: u64, name: &str| {
        let entry = json!({ "Code": code, "Name": name });
        assert!(list.as_array().unwrap().contains(&entry), "{entry}");
    };
    assert_eq!(bases.as_array().unwrap().len(), 21);
    has(&bases, 128_640, "base256emoji");
    has(&bases, 0, "identity");
    let codecs = gateway.rpc_json("cid/codecs").await;
    assert_eq!(codecs.as_array().unwrap().len(), 44);
    has(&codecs, 133, "dag-jose");
    let supported = gateway.rpc_json("cid/codecs?s=true").await;
    assert_eq!(supported.as_array().unwrap().len(), 9);
    has(&supported, 297, "dag-json");
    has(&gateway.rpc_json("cid/hashes").await, 45_600, "blake2b-256");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_encoded_decoded_and_transcoded() {
    let gateway = TestGateway::start().await;
    let convert = async |command: &str, data: &str| {
        let response = gateway.post_form(&format!("multibase/{command}"), Form::new().file("file", data)).await;
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    };
    for (command, data, expected) in [
        ("encode", "hello", "uaGVsbG8"),
        ("encode?b=base16", "hello", "f68656c6c6f"),
        ("encode?b=f", "hello", "f68656c6c6f"),
        ("encode?b=base256emoji", "hello", "🚀😴✋🍀🍀😓"),
        ("encode", "", "u"),
        ("decode", "f68656c6c6f", "hello"),
        ("decode", "uaGVs\nbG8", "hello"),
        ("transcode?b=base58btc", "uaGVsbG8", "zCn8eVZg"),
        ("transcode", "f68656c6c6f", "uaGVsbG8"),
    ] {
        assert_eq!(convert(command, data).await, (200, expected.to_owned()), "{command} {data}");
    }
    for (command, data, text) in [
        ("encode?b=nope", "x", "unsupported multibase encoding: nope"),
        ("encode?b=", "x", "empty multibase encoding"),
        ("decode", "nope", "failed to decode multibase: selected encoding not supported"),
        ("decode", "", "failed to decode multibase: cannot decode multibase for zero length string"),
        ("decode", "f68656c6c6f0", "failed to decode multibase: "),
        ("transcode", "z0", "failed to decode multibase: "),
    ] {
        let (status, body) = convert(command, data).await;
        assert!(status == 500 && body.contains(text), "{command} {data}: {body}");
    }
    let slow = "z".repeat(100_000);
    assert!(convert("decode", &slow).await.1.contains("limit"), "base58 takes quadratic time");
    let none = gateway.rpc("multibase/encode").send().await.unwrap();
    assert_eq!(
        (none.status().as_u16(), none.text().await.unwrap().as_str()),
        (400, "file argument 'file' is required\n")
    );
}
