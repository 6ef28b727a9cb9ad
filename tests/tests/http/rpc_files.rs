//! `cat` and `ls`.

use bytes::Bytes;
use ipfrs_core::Cid;
use serde_json::{Value, json};

use crate::content::{self, assert_same};
use crate::crafted;
use crate::harness::{TestGateway, hash_of, header, ndjson, rpc_failure};
use crate::multipart::Form;

#[tokio::test(flavor = "multi_thread")]
async fn cat_sends_a_stream_with_its_length() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", content::bytes(600_000)).await;
    let response = gateway.rpc(&format!("cat?arg={cid}")).send().await.unwrap();
    assert_eq!(header(&response, "x-stream-output"), "1");
    assert_eq!(header(&response, "x-content-length"), "600000");
    assert_eq!(header(&response, "trailer"), "X-Stream-Error");
    assert_same(&response.bytes().await.unwrap(), &content::bytes(600_000), "cat");
}

#[tokio::test(flavor = "multi_thread")]
async fn cat_honours_offset_and_length() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(600_000);
    let cid = gateway.add("", content.clone()).await;
    for (offset, length, expected) in [
        (Some(0), Some(0), 0..0),
        (Some(0), None, 0..600_000),
        (None, Some(5), 0..5),
        (Some(262_140), Some(10), 262_140..262_150),
        (Some(599_999), None, 599_999..600_000),
        (Some(599_999), Some(1_000), 599_999..600_000),
        (Some(600_000), None, 600_000..600_000),
        (Some(9_999_999), Some(5), 0..0),
        (Some(i64::MAX as u64), Some(i64::MAX as u64), 0..0),
    ] {
        let mut command = format!("cat?arg={cid}");
        command.extend(offset.map(|offset| format!("&offset={offset}")));
        command.extend(length.map(|length| format!("&length={length}")));
        let response = gateway.rpc(&command).send().await.unwrap();
        assert_eq!(response.status(), 200, "{command}");
        assert_eq!(header(&response, "x-content-length"), expected.len().to_string(), "{command}");
        assert_same(&response.bytes().await.unwrap(), &content[expected], &command);
    }
    // As in Kubo, what is behind the end is not looked up.
    let both =
        format!("cat?offline=true&arg={cid}&arg={}", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e");
    assert_same(&gateway.rpc_bytes(&format!("{both}&length=600000")).await, &content, "the first file");
    assert_eq!(gateway.rpc(&format!("{both}&length=600001")).send().await.unwrap().status(), 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn cat_concatenates_files_and_applies_offset_to_all() {
    let gateway = TestGateway::start().await;
    let (a, b, c) = (gateway.add("", "0123").await, gateway.add("", "").await, gateway.add("", "456789").await);
    for (options, expected) in
        [("", "0123456789"), ("&offset=3&length=3", "345"), ("&offset=4", "456789"), ("&offset=99", "")]
    {
        let joined = gateway.rpc_bytes(&format!("cat?arg={a}&arg={b}&arg={c}{options}")).await;
        assert_eq!(joined, expected, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cat_of_a_directory_suggests_alternatives() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/x", "x")]).await;
    let message = rpc_failure(gateway.rpc(&format!("cat?arg={root}")).send().await.unwrap()).await;
    assert!(message.contains("directory"), "{message}");
}

/// Adds a directory with an entry of each kind, and returns its content ID and the content IDs by name.
async fn zoo(gateway: &TestGateway) -> (String, Value) {
    let big = content::bytes(300_000);
    let form = Form::new().file("d/big", &big).directory("d/dir").symlink("d/link", "big").file("d/small", "hello");
    let lines = gateway.add_form("", form).await;
    let ids = lines.iter().map(|line| (line["Name"].as_str().unwrap().to_owned(), line["Hash"].clone())).collect();
    (hash_of(lines.last().unwrap()), Value::Object(ids))
}

#[tokio::test(flavor = "multi_thread")]
async fn cat_of_a_symlink_is_its_target() {
    let gateway = TestGateway::start().await;
    let (root, _) = zoo(&gateway).await;
    let response = gateway.rpc(&format!("cat?arg={root}/link")).send().await.unwrap();
    assert_eq!(header(&response, "x-content-length"), "3");
    assert_eq!(response.text().await.unwrap(), "big");
    assert_eq!(gateway.rpc_bytes(&format!("cat?arg={root}/link&offset=1&length=1")).await, "i");
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_returns_type_size_and_target_of_each_entry() {
    let gateway = TestGateway::start().await;
    let (root, ids) = zoo(&gateway).await;
    let link = |name: &str, size: u64, kind: u8, target: &str| {
        json!({
            "Name": name, "Hash": ids[format!("d/{name}")], "Size": size, "Type": kind, "Target": target,
            "Mode": 0, "ModTime": "0001-01-01T00:00:00Z",
        })
    };
    // As in Kubo, a symlink has the size of its target's name.
    let links =
        [link("big", 300_000, 2, ""), link("dir", 0, 1, ""), link("link", 3, 4, "big"), link("small", 5, 2, "")];
    assert_eq!(gateway.rpc_json(&format!("ls?arg={root}")).await, json!({"Objects": [{"Hash": root, "Links": links}]}));
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_of_several_paths_keeps_the_requested_names() {
    let gateway = TestGateway::start().await;
    let (root, ids) = zoo(&gateway).await;
    let answer = gateway.rpc_json(&format!("ls?arg=/ipfs/{root}/dir&arg={root}")).await;
    let objects = answer["Objects"].as_array().unwrap();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0], json!({"Hash": format!("/ipfs/{root}/dir"), "Links": []}));
    assert_eq!(objects[1]["Links"].as_array().unwrap().len(), 4);
    assert_eq!(objects[1]["Links"][1]["Hash"], ids["d/dir"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_streams_one_entry_a_line() {
    let gateway = TestGateway::start().await;
    let (root, _) = zoo(&gateway).await;
    let response = gateway.rpc(&format!("ls?arg={root}&stream=true")).send().await.unwrap();
    assert_eq!(header(&response, "x-chunked-output"), "1");
    let lines = ndjson(response).await;
    let whole = gateway.rpc_json(&format!("ls?arg={root}")).await;
    let streamed: Vec<_> = lines.iter().map(|line| line["Objects"][0]["Links"][0].clone()).collect();
    assert!(lines.iter().all(|line| line["Objects"][0]["Hash"] == *root));
    assert_eq!(Value::from(streamed), whole["Objects"][0]["Links"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_bounds_the_entries_of_all_paths_together() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.put_block("cid-codec=raw", Vec::new()).await;
    let cid: Cid = leaf.parse().unwrap();
    let directory = crafted::node((0..20_000).map(|i| (format!("{i}"), cid)), &[8, 1]);
    let root = gateway.put_block("cid-codec=dag-pb", directory).await;
    let of = |paths: usize| format!("ls?{}", vec![format!("arg={root}"); paths].join("&"));
    let listed = gateway.rpc_json(&of(3)).await;
    assert_eq!(listed["Objects"][2]["Links"].as_array().unwrap().len(), 20_000);
    let message = rpc_failure(gateway.rpc(&of(4)).send().await.unwrap()).await;
    assert!(message.contains("65536 entries") && message.contains("stream=true"), "{message}");
    let lines = ndjson(gateway.rpc(&(of(4) + "&stream=true")).send().await.unwrap()).await;
    assert_eq!(lines.len(), 80_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_without_types_and_sizes_reads_only_the_directory() {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let (root, ids) = zoo(&whole).await;
    let block = whole.rpc_bytes(&format!("block/get?arg={root}")).await;
    gateway.put_block("format=v0", block).await;
    let answer = gateway.rpc_json(&format!("ls?arg={root}&resolve-type=false&size=false")).await;
    let links = answer["Objects"][0]["Links"].as_array().unwrap();
    assert_eq!(links.len(), 4);
    assert_eq!((&links[0]["Hash"], &links[0]["Type"], &links[0]["Size"]), (&json!(ids["d/big"]), &json!(0), &json!(0)));
    // As in Kubo, a missing target is an error.
    for options in ["", "resolve-type=false", "size=false"] {
        let message = rpc_failure(gateway.rpc(&format!("ls?arg={root}&{options}")).send().await.unwrap()).await;
        assert!(message.contains("ipld: could not find "), "{options}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ls_returns_sizes_of_raw_leaves_and_shards() {
    let gateway = TestGateway::start().await;
    let names: Vec<_> = (0..300).map(|i| format!("d/{i:03}")).collect();
    let form = names.iter().fold(Form::new(), |form, name| form.file(name, name));
    let options = "cid-version=1&max-directory-links=100";
    let root = hash_of(gateway.add_form(options, form).await.last().unwrap());
    let answer = gateway.rpc_json(&format!("ls?arg={root}")).await;
    // Sorted by name, not by hash as in the shards.
    let links: Vec<Value> = answer["Objects"][0]["Links"].as_array().unwrap().clone();
    assert_eq!(links.len(), 300);
    for (i, link) in links.iter().enumerate() {
        assert_eq!((&link["Name"], &link["Size"], &link["Type"]), (&json!(format!("{i:03}")), &json!(5), &json!(2)));
    }
    // No other block needs to be read for them.
    let unresolved = gateway.rpc_json(&format!("ls?arg={root}&resolve-type=false&size=false")).await;
    assert_eq!(unresolved, answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn added_content_survives_a_restart() {
    let gateway = TestGateway::start().await;
    let content: Bytes = content::bytes(600_000);
    let cid = gateway.add("", content.clone()).await;
    let again = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    assert_same(&again.rpc_bytes(&format!("cat?arg={cid}")).await, &content, "after the restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_stat_describes_the_target_of_a_path() {
    let gateway = TestGateway::start().await;
    let (root, ids) = zoo(&gateway).await;
    let stat = async |path: &str| gateway.rpc_json(&format!("files/stat?arg=/ipfs/{root}{path}")).await;
    let sizes = gateway.rpc_json(&format!("dag/get?arg={root}")).await;
    assert_eq!(
        stat("/big").await,
        json!({
            "Hash": ids["d/big"], "Size": 300_000, "CumulativeSize": sizes["Links"][0]["Tsize"], "Blocks": 2,
            "Type": "file"
        })
    );
    let directory = stat("").await;
    assert_eq!((&directory["Type"], &directory["Blocks"]), (&json!("directory"), &json!(4)), "{directory}");
    let link = stat("/link").await;
    assert_eq!((&link["Type"], &link["Size"]), (&json!("symlink"), &json!("big".len())));
    assert_eq!(stat("/link").await["Mode"], "1000000777", "the mode of Go");
    let kept = gateway.add("mode=0640&mtime=1700000000&mtime-nsecs=5", "kept").await;
    let kept = gateway.rpc_json(&format!("files/stat?arg=/ipfs/{kept}")).await;
    assert_eq!(
        (&kept["Mode"], &kept["Mtime"], &kept["MtimeNsecs"]),
        (&json!("0640"), &json!(1_700_000_000), &json!(5))
    );
    let by_uri = gateway.rpc_json(&format!("files/stat?arg=ipfs:{root}/link")).await;
    assert_eq!(by_uri["Hash"], stat("/link").await["Hash"]);
    let node = gateway.put_block("cid-codec=dag-cbor", "\u{60}").await;
    for (path, why) in [
        ("/none", "file does not exist"),
        (root.as_str(), "paths must start with a leading slash"),
        (&format!("/ipfs/{node}"), "not UnixFS"),
    ] {
        let message = rpc_failure(gateway.rpc(&format!("files/stat?arg={path}")).send().await.unwrap()).await;
        assert!(message.contains(why), "{path}: {message}");
    }
}
