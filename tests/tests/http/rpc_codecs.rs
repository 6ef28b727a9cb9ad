//! Codecs of `dag/put`: each as the input of each.

use serde_json::json;

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;

const CODECS: [&str; 8] = ["json", "cbor", "dag-json", "dag-cbor", "raw", "dag-pb", "dag-jose", "git-raw"];

/// A value: its name, its encodings, and the codecs that can represent it, with the content ID that Kubo 0.44 prints.
type Value = (&'static str, &'static [(&'static str, &'static [u8])], &'static [(&'static str, &'static str)]);

const VALUES: [Value; 9] = [
    ("a map without links and bytes", &[
        ("json", b"{\"a\":1,\"b\":[true,null,\"x\"]}"),
        ("cbor", b"\xa2aa\x01ab\x83\xf5\xf6ax"),
        ("dag-json", b"{\"a\":1,\"b\":[true,null,\"x\"]}"),
        ("dag-cbor", b"\xa2aa\x01ab\x83\xf5\xf6ax"),
    ], &[
        ("json", "bagaaieraxt2gznyckjrru2wrmltq7o2aplzuhtnyhvx7qlqmxppffiowspna"),
        ("cbor", "bafireiaxdgrm6w2mllqi7k5gtdcjrqgt2ezxarbx5berfp2lpve6xua7bm"),
        ("dag-json", "baguqeera5sum7my2w5cthyplf5ghjuwvlx7dy6nmobdypzkl5bsh5j3xp2yq"),
        ("dag-cbor", "bafyreiaxdgrm6w2mllqi7k5gtdcjrqgt2ezxarbx5berfp2lpve6xua7bm"),
    ]),
    ("bytes", &[
        ("cbor", b"C\x01\x02\x03"),
        ("dag-cbor", b"C\x01\x02\x03"),
        ("dag-json", b"{\"/\":{\"bytes\":\"AQID\"}}"),
        ("raw", b"\x01\x02\x03"),
    ], &[
        ("cbor", "bafireibmouk2xbsme67iij6p4mwuxkeq4hlvejmewscud6fnyoh7ea2uqm"),
        ("dag-json", "baguqeerazegsaxts6udfbnrlurxaqfs3tal73grqrcobyz6ojsg7frxnqlga"),
        ("dag-cbor", "bafyreibmouk2xbsme67iij6p4mwuxkeq4hlvejmewscud6fnyoh7ea2uqm"),
        ("raw", "bafkreiadsbmmn4waznesyuz3bjgrj33xzqhxrk6mz3ksq7meugrachh3qe"),
    ]),
    ("a link and bytes", &[
        ("dag-json", b"{\"l\":{\"/\":\"bafkqaaa\"},\"y\":{\"/\":{\"bytes\":\"AQI\"}}}"),
        ("dag-cbor", b"\xa2al\xd8*E\x00\x01U\x00\x00ayB\x01\x02"),
    ], &[
        ("dag-json", "baguqeeranq2jrcggqa36ffilwsqgm3au2tbb7dmkpqflhffoewjhctlwbbeq"),
        ("dag-cbor", "bafyreidwynec5bokijnm4ug2ojnq6fk4skpnmzq4qf4h3xckbo3styrzvy"),
    ]),
    ("a dag-pb node with a link", &[
        ("dag-pb", b"\x12\x0e\x0a\x04\x01U\x00\x00\x12\x04name\x18\x03\x0a\x02\x08\x01"),
        ("dag-json", b"{\"Data\":{\"/\":{\"bytes\":\"CAE\"}},\"Links\":[{\"Hash\":{\"/\":\"bafkqaaa\"},\"Name\":\"name\",\"Tsize\":3}]}"),
        ("dag-cbor", b"\xa2dDataB\x08\x01eLinks\x81\xa3dHash\xd8*E\x00\x01U\x00\x00dNamednameeTsize\x03"),
    ], &[
        ("dag-json", "baguqeeras4cj5lfbjwxgfzc6skmoqqjd2sg7y4bpzxnmrgrnu7bnzllz5z4q"),
        ("dag-cbor", "bafyreiefnyyxfpaqb75eui3vykp4vmvrple5ptalcg5wyau7o2re2e4osu"),
        ("dag-pb", "bafybeieabyacdo2ab6z5a6e6ye5yj7y5c7yv2pdprs2cv7eot5itnek2wy"),
    ]),
    ("a dag-pb node without links", &[
        ("dag-pb", b"\x0a\x02\x08\x01"),
    ], &[
        ("cbor", "bafireih2dgv3birehoi3m3z72cbf3j3g3kddqqjhg2agedmzbtfszsrsgm"),
        ("dag-json", "baguqeerazaelpihz6kuyiq7q4p4a4sghf4ratq56lrfkrzesdo22q7gstisa"),
        ("dag-cbor", "bafyreih2dgv3birehoi3m3z72cbf3j3g3kddqqjhg2agedmzbtfszsrsgm"),
        ("dag-pb", "bafybeiczsscdsbs7ffqz55asqdf3smv6klcw3gofszvwlyarci47bgf354"),
    ]),
    ("a signed object", &[
        ("dag-jose", b"\xa2gpayloadD\x01U\x00\x00jsignatures\x81\xa1isignatureCsig"),
        ("dag-json", b"{\"link\":{\"/\":\"bafkqaaa\"},\"payload\":\"AVUAAA\",\"signatures\":[{\"signature\":\"c2ln\"}]}"),
        ("dag-cbor", b"\xa3dlink\xd8*E\x00\x01U\x00\x00gpayloadfAVUAAAjsignatures\x81\xa1isignaturedc2ln"),
    ], &[
        ("dag-json", "baguqeera2eg66ehzaibhx6weyeigkiwqnn75mde66g6yuthkrrt4qixma5ca"),
        ("dag-cbor", "bafyreieqhv4yrxma4ttjj66lpom5smbh2qorblf4tshwrjhxa7a7ljrhy4"),
        ("dag-jose", "bagcqceranten6e4oc7wzk4j4nlskcu3rvydrmlza63efuxtd4xbz2rhjmvya"),
    ]),
    ("the fields of a signed object", &[
        ("cbor", b"\xa2gpayloadD\x01U\x00\x00jsignatures\x81\xa1isignatureCsig"),
    ], &[
        ("cbor", "bafireidmzdprhdqx5wkxcpdk4sqvg4noa4lc6ihwzbnf4y7fyoouj2lfoa"),
        ("dag-json", "baguqeeraecxx5xgpleyktlyk7isoxooioixi3xx4vxxpf7jrbqfjoqtkfepa"),
        ("dag-cbor", "bafyreidmzdprhdqx5wkxcpdk4sqvg4noa4lc6ihwzbnf4y7fyoouj2lfoa"),
    ]),
    ("a blob of git", &[
        ("git-raw", b"blob 5\x00hello"),
        ("raw", b"blob 5\x00hello"),
    ], &[
        ("cbor", "bafireieuyt6m5xfjj75abk4uk4mnexjzijxinl7a7s7non4hevsckax7m4"),
        ("dag-json", "baguqeerawku3h6eoebm4jdazq6en6rfituuhfwupjumnzusdpe6m4qu2rrvq"),
        ("dag-cbor", "bafyreieuyt6m5xfjj75abk4uk4mnexjzijxinl7a7s7non4hevsckax7m4"),
        ("raw", "bafkreiek5rheq5xykt3iruhl7shtowmphds722idztgikdfdmwirowxlma"),
        ("git-raw", "baf4beiek5rheq5xykt3iruhl7shtowmphds722idztgikdfdmwirowxlma"),
    ]),
    ("a tree of git", &[
        ("git-raw", b"tree 29\x00100644 f\x00aaaaaaaaaaaaaaaaaaaa"),
        ("dag-json", b"{\"f\":{\"hash\":{\"/\":\"baf4bcfdbmfqwcylbmfqwcylbmfqwcylbmfqwcyi\"},\"mode\":\"100644\"}}"),
        ("dag-cbor", b"\xa1af\xa2dhash\xd8*X\x19\x00\x01x\x11\x14aaaaaaaaaaaaaaaaaaaadmodef100644"),
    ], &[
        ("dag-json", "baguqeerav3zbieyx2znman7jqytkoyp4exrqxpdyxzmt7imxwqy7w6e5t72q"),
        ("dag-cbor", "bafyreifwekqj3lb4blefpkb7kwrgkqmtiga2lmuccq6kn3lb2qe55qcvwu"),
        ("git-raw", "baf4beie5zti3kpq5rxmjbyxuqvuoogpyamusmpnhqp6govxb5oe7ysajim"),
    ]),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_codec_converts_to_every_other_as_in_kubo() {
    let gateway = TestGateway::start().await;
    for (name, encodings, expected) in VALUES {
        for (input, data) in encodings {
            for store in CODECS {
                let command = format!("dag/put?input-codec={input}&store-codec={store}");
                let response = gateway.post_form(&command, Form::new().file("", data)).await;
                let context = format!("{name}: {input} to {store}");
                match expected.iter().find(|(codec, _)| *codec == store) {
                    Some((_, cid)) => assert_eq!(ndjson(response).await[0]["Cid"]["/"], *cid, "{context}"),
                    None => assert_ne!(rpc_failure(response).await, "", "{context}"),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_json_and_cbor_are_read_as_json() {
    let gateway = TestGateway::start().await;
    let json = r#"{"a":1,"b":[true,null,"x"]}"#;
    let mut cids = Vec::new();
    for store in ["json", "cbor", "dag-cbor"] {
        let command = format!("dag/put?input-codec=json&store-codec={store}");
        let line = ndjson(gateway.post_form(&command, Form::new().file("", json)).await).await;
        cids.push(line[0]["Cid"]["/"].as_str().unwrap().to_owned());
    }
    for cid in &cids {
        let pretty = gateway.rpc_bytes(&format!("dag/get?arg={cid}&output-codec=json")).await;
        assert_eq!(pretty, "{\n\t\"a\": 1,\n\t\"b\": [\n\t\ttrue,\n\t\tnull,\n\t\t\"x\"\n\t]\n}\n", "{cid}");
        let dag_json = gateway.rpc_json(&format!("dag/get?arg={cid}")).await;
        assert_eq!(dag_json, json!({"a": 1, "b": [true, null, "x"]}));
    }
    let link = Form::new().file("", r#"{"l":{"/":"bafkqaaa"}}"#);
    let message = rpc_failure(gateway.post_form("dag/put?store-codec=json", link).await).await;
    assert!(message.starts_with("cannot marshal IPLD links to this codec"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_dag_pb_is_cbor_with_links_first() {
    let gateway = TestGateway::start().await;
    let cid = gateway.put_block("cid-codec=dag-pb", "\n\u{2}\u{8}\u{1}").await;
    let shown = gateway.rpc_bytes(&format!("dag/get?arg={cid}&output-codec=cbor")).await;
    assert_eq!(shown, b"\xa2eLinks\x80dDataB\x08\x01"[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_and_cbor_keep_the_order_of_keys() {
    let gateway = TestGateway::start().await;
    let put = async |query: &str, data: &[u8]| {
        let line = ndjson(gateway.post_form(&format!("dag/put?{query}"), Form::new().file("", data)).await).await;
        line[0]["Cid"]["/"].as_str().unwrap().to_owned()
    };
    let json: &[u8] = br#"{"z":1,"a":{"b":[1,2,{"c":"d"}]}}"#;
    let cbor: &[u8] = b"\xa2az\x01aa\xa1ab\x83\x01\x02\xa1acad";
    for (codec, data) in [("json", json), ("dag-json", json), ("cbor", cbor), ("dag-cbor", cbor)] {
        // The content IDs that Kubo 0.44 prints.
        for (store, cid) in [
            ("cbor", "bafireihk7wzjjv4lxo4p4hg5fluyyi3qssl4ehz3hljlf7skmv3iasxmeu"),
            ("json", "bagaaierayxyce3uchgfwzddrdxmvgu3rskukg6wf6y7dtjvgb24ios3lxr4a"),
        ] {
            let query = format!("input-codec={codec}&store-codec={store}");
            assert_eq!(put(&query, data).await, cid, "{query}");
            let shown = gateway.rpc_bytes(&format!("dag/get?arg={cid}&output-codec=json")).await;
            assert!(shown.starts_with(b"{\n\t\"z\": 1,\n\t\"a\": {"), "{query}: {shown:?}");
        }
    }
    // dag-cbor has its own order.
    let sorted = put("input-codec=json&store-codec=dag-cbor", &br#"{"aa":2,"b":1}"#[..]).await;
    let shown = gateway.rpc_bytes(&format!("dag/get?arg={sorted}&output-codec=json")).await;
    assert_eq!(shown, "{\n\t\"b\": 1,\n\t\"aa\": 2\n}\n");
    let link = Form::new().file("", r#"{"l":{"/":"bafkqaaa"}}"#);
    let message = rpc_failure(gateway.post_form("dag/put?store-codec=cbor", link).await).await;
    assert_eq!(message, "cannot Marshal ipld links to CBOR");
}
