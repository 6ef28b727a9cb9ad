//! `pin/add`, `pin/ls`, `pin/rm`, `pin/update`, `pin/verify`, and the pins of `add`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::content;
use crate::harness::{TestGateway, hash_of, ndjson, rpc_failure};
use crate::missing_blocks::without_some_leaves;
use crate::multipart::Form;

/// Returns the pins: CID to type and name.
async fn pins(gateway: &TestGateway, query: &str) -> BTreeMap<String, (String, String)> {
    let answer = gateway.rpc_json(&format!("pin/ls?{query}")).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let keys = answer["Keys"].as_object().unwrap();
    keys.iter().map(|(cid, pin)| (cid.clone(), (text(&pin["Type"]), text(&pin["Name"])))).collect()
}

async fn pinned(gateway: &TestGateway, kind: &str) -> Vec<String> {
    pins(gateway, &format!("type={kind}")).await.into_keys().collect()
}

/// Returns the message of a failing command.
async fn failure(gateway: &TestGateway, command: &str) -> String {
    rpc_failure(gateway.rpc(command).send().await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn add_pins_the_root_unless_disabled() {
    let gateway = TestGateway::start().await;
    gateway.add("pin=false", "unpinned").await;
    gateway.add("only-hash=true", "not stored").await;
    assert_eq!(pinned(&gateway, "all").await, Vec::<String>::new());
    let file = gateway.add("pin-name=a%20name", "a file").await;
    assert_eq!(pins(&gateway, "names=true").await[&file], ("recursive".into(), "a name".into()));
    gateway.rpc_json(&format!("pin/rm?arg={file}")).await;
    let tree = Form::new().file("one", "1").file("d/two", "2").file("d/e/three", "3").symlink("link", "one");
    let mut roots: Vec<_> = gateway
        .add_form("", tree)
        .await
        .iter()
        .filter(|line| {
            let name = line["Name"].as_str().unwrap();
            !name.contains('/')
        })
        .map(hash_of)
        .collect();
    roots.sort();
    assert_eq!((pinned(&gateway, "recursive").await, roots.len()), (roots, 3));
    let wrapped = gateway.add_tree("wrap-with-directory=true", &[("x", "x"), ("y/z", "z")]).await;
    let (all, after) = (pinned(&gateway, "recursive").await, gateway.rpc_json("pin/ls?type=recursive").await);
    assert!(all.contains(&wrapped) && all.len() == 4, "only the directory that wraps them: {after}");
    let form = Form::new().file("a", "a");
    let message = rpc_failure(gateway.post_form("add?pin=false&pin-name=x", form).await).await;
    assert!(message.contains("pin-name") && message.contains("pin=false"), "{message}");
    let (longest, long) = ("n".repeat(255), "n".repeat(256));
    let form = Form::new().file("a", "a");
    let message = rpc_failure(gateway.post_form(&format!("add?pin-name={long}"), form).await).await;
    assert_eq!(message, "pin name is 256 bytes (max 255 bytes)");
    let named = async |name: &str| gateway.rpc(&format!("pin/add?arg={wrapped}&name={name}")).send().await.unwrap();
    assert_eq!(rpc_failure(named(&long).await).await, "pin name is 256 bytes (max 255 bytes)");
    assert_eq!(gateway.rpc_json("pin/ls?type=recursive").await, after, "nothing is pinned or renamed");
    assert_eq!(named(&longest).await.status(), 200);
    let repo = gateway.stop().await;
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(pinned(&gateway, "recursive").await, all, "after a restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_of_incomplete_dag_fails_and_names_the_block() {
    for options in ["pin=false", "pin=false&raw-leaves=true&cid-version=0"] {
        let (gateway, cid) = without_some_leaves(options, &[0, 1, 3]).await;
        let root = gateway.rpc_json(&format!("ls?arg={cid}&resolve-type=false&size=false")).await;
        let missing = root["Objects"][0]["Links"][2]["Hash"].as_str().unwrap();
        let other = gateway.add("pin=false", "other").await;
        let words = format!("block was not found locally (offline): ipld: could not find {missing}");
        let message = failure(&gateway, &format!("pin/add?arg={other}&arg={cid}")).await;
        assert_eq!(message, format!("pin: {words}"));
        assert_eq!(pinned(&gateway, "all").await, Vec::<String>::new(), "{options}");
        let directly = gateway.rpc_json(&format!("pin/add?arg={cid}&recursive=false")).await;
        assert_eq!(directly, json!({"Pins": [cid]}), "one block needs no other");
        let message = failure(&gateway, &format!("pin/add?arg={missing}&recursive=false")).await;
        assert_eq!(message, format!("pin: {words}"));
        assert_eq!(pinned(&gateway, "direct").await, [cid.as_str()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_ls_lists_direct_recursive_and_indirect_pins() {
    let gateway = TestGateway::start().await;
    let tree = gateway.add_tree("pin-name=tree", &[("d/a", "aaa"), ("d/b", "bbb")]).await;
    let links = gateway.rpc_json(&format!("ls?arg={tree}")).await;
    let [a, b] = [0, 1].map(|i| links["Objects"][0]["Links"][i]["Hash"].as_str().unwrap().to_owned());
    let direct = gateway.add("pin=false", "direct").await;
    gateway.rpc_json(&format!("pin/add?arg={direct}&recursive=false&name=one")).await;
    gateway.rpc_json(&format!("pin/add?arg=/ipfs/{tree}/b&recursive=false")).await;
    let kinds = pins(&gateway, "").await.into_iter().map(|(cid, (kind, name))| (cid, kind, name));
    let mut expected: Vec<_> = [(&tree, "recursive"), (&direct, "direct"), (&b, "direct"), (&a, "indirect")]
        .map(|(cid, kind)| (cid.clone(), kind.to_owned(), String::new()))
        .into();
    expected.sort();
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    assert_eq!(pinned(&gateway, "indirect").await, [a.as_str()], "one that is pinned itself is not indirect");
    let named = pins(&gateway, "name=re").await;
    assert_eq!(named.into_iter().collect::<Vec<_>>(), [(tree.clone(), ("recursive".into(), "tree".into()))]);
    let lines = ndjson(gateway.rpc("pin/ls?type=direct&stream=true&names=true").send().await.unwrap()).await;
    assert_eq!(lines.len(), 2);
    assert!(lines.contains(&json!({"Cid": direct, "Name": "one", "Type": "direct"})), "{lines:?}");
    let through = gateway.rpc_json(&format!("pin/ls?arg=/ipfs/{tree}/a")).await;
    assert_eq!(through["Keys"][&a]["Type"], format!("indirect through {tree}"));
    let through = gateway.rpc_json(&format!("pin/ls?arg={b}&type=indirect")).await;
    assert_eq!(through["Keys"][&b]["Type"], format!("indirect through {tree}"), "content may have a direct pin too");
    gateway.rpc_json(&format!("pin/add?arg={a}")).await;
    for (query, path) in [
        (format!("arg={direct}&type=recursive"), &direct),
        (format!("arg={a}&type=direct"), &a),
        (format!("arg={a}&type=indirect"), &a),
    ] {
        let message = failure(&gateway, &format!("pin/ls?{query}")).await;
        assert_eq!(message, format!("path '{path}' is not pinned"), "as the argument was given");
    }
    let message = failure(&gateway, "pin/ls?type=wrong").await;
    assert!(message.contains("must be one of"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_are_removed_renamed_and_replaced_as_kubo_does() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("pin=false", content::bytes(300_000)).await;
    let message = failure(&gateway, &format!("pin/rm?arg={file}")).await;
    assert!(message.contains("not pinned or pinned indirectly"), "{message}");
    for (command, expected) in [
        (format!("pin/add?arg={file}&recursive=false"), ("direct", "")),
        (format!("pin/add?arg={file}&name=n"), ("recursive", "n")),
        (format!("pin/add?arg={file}&name=m"), ("recursive", "m")),
    ] {
        assert_eq!(gateway.rpc_json(&command).await, json!({"Pins": [file]}));
        let now = pins(&gateway, "names=true").await;
        assert_eq!((now[&file].0.as_str(), now[&file].1.as_str()), expected, "{command}");
    }
    let message = failure(&gateway, &format!("pin/add?arg={file}&recursive=false")).await;
    assert!(message.contains("already pinned recursively"), "{message}");
    let message = failure(&gateway, &format!("pin/rm?arg={file}&recursive=false")).await;
    assert!(message.contains("is pinned recursively"), "{message}");
    let next = gateway.add("pin=false", content::bytes(400_000)).await;
    let updated = gateway.rpc_json(&format!("pin/update?arg={file}&arg={next}&unpin=false")).await;
    assert_eq!(updated, json!({"Pins": [file, next]}));
    assert_eq!(pins(&gateway, "type=recursive&names=true").await[&next], ("recursive".into(), "m".into()));
    // The name of another pin is not lost.
    gateway.rpc_json(&format!("pin/add?arg={next}&name=other")).await;
    let message = failure(&gateway, &format!("pin/update?arg={file}&arg={next}")).await;
    assert_eq!(message, "'to' cid was already recursively pinned");
    assert_eq!(pins(&gateway, "type=recursive&names=true").await[&next], ("recursive".into(), "other".into()));
    gateway.rpc_json(&format!("pin/update?arg={next}&arg={next}")).await;
    gateway.rpc_json(&format!("pin/rm?arg={file}")).await;
    assert_eq!(pinned(&gateway, "recursive").await, [next.as_str()]);
    let message = failure(&gateway, &format!("pin/update?arg={file}&arg={next}")).await;
    assert!(message.starts_with("'from' cid was not recursively pinned already"), "{message}");
    let removed = gateway.rpc_json(&format!("pin/rm?arg={next}")).await;
    assert_eq!(removed, json!({"Pins": [next]}));
    assert_eq!(gateway.rpc_json("pin/ls").await, json!({"Keys": {}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn block_put_with_pin_pins_recursively() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.put_block("pin=true", "leaf").await;
    assert_eq!(pinned(&gateway, "recursive").await, [leaf.as_str()]);
    // {"l": link to a block that does not exist}
    let mut node = vec![0xa1, 0x61, b'l', 0xd8, 0x2a, 0x58, 0x25, 0x00, 0x01, 0x55, 0x12, 0x20];
    node.extend([7; 32]);
    let refused = gateway.post_form("block/put?cid-codec=dag-cbor&pin=true", Form::new().file("b", &node)).await;
    let message = rpc_failure(refused).await;
    assert!(message.starts_with("pin: block was not found locally (offline): ipld: could not find "), "{message}");
    // Links of an unknown codec could not be kept.
    let message =
        rpc_failure(gateway.post_form("block/put?cid-codec=0x90&pin=true", Form::new().file("b", "x")).await).await;
    assert!(message.contains("no decoder registered for multicodec code 144 (0x90)"), "{message}");
    assert_eq!(pinned(&gateway, "recursive").await, [leaf.as_str()]);
    let block = gateway.put_block("cid-codec=0x90", "x").await;
    gateway.rpc_json(&format!("pin/add?arg={block}&recursive=false")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_lines_come_before_the_pins() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("pin=false", content::bytes(3_000_000)).await;
    let lines = ndjson(gateway.rpc(&format!("pin/add?arg={file}&progress=true")).send().await.unwrap()).await;
    let (last, progress) = lines.split_last().unwrap();
    assert_eq!(last, &json!({"Pins": [file]}));
    assert!(progress.iter().all(|line| line["Progress"].is_u64()), "{lines:?}");
    // The leaves and the root.
    assert_eq!(progress.last().unwrap()["Progress"], 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_of_paths_are_looked_up_and_walked_no_further_than_needed() {
    let gateway = TestGateway::start().await;
    let mut roots = Vec::new();
    for tree in 0..3 {
        let file = |form: Form, file| form.file(format!("d/{}/{file}", file % 10), format!("{tree}: {file}"));
        let form = (0..100).fold(Form::new(), file);
        roots.push(hash_of(gateway.add_form("raw-leaves=true", form).await.last().unwrap()));
    }
    // Pins are visited in this order.
    roots.sort();
    let mut leaves = Vec::new();
    for path in ["3/3", "4/54"] {
        let resolved = gateway.rpc_json(&format!("dag/resolve?arg={}/{path}", roots[0])).await;
        leaves.push(resolved["Cid"]["/"].as_str().unwrap().to_owned());
    }
    let read = async |query: String| {
        let before = gateway.metric("ipfrs_blocks_retrieved_total").await;
        let text = gateway.rpc(&format!("pin/ls?{query}")).send().await.unwrap().text().await.unwrap();
        (gateway.metric("ipfrs_blocks_retrieved_total").await - before, text)
    };
    for query in ["", "&type=direct", "&type=recursive"] {
        let (blocks, text) = read(format!("arg={}{query}", roots[2])).await;
        assert_eq!((blocks, text.contains("\"Type\":\"recursive\"")), (0, query != "&type=direct"), "{text}");
    }
    for kind in ["direct", "recursive"] {
        let (blocks, text) = read(format!("arg={}&type={kind}", leaves[0])).await;
        assert_eq!((blocks, text.contains("is not pinned")), (0, true), "{text}");
    }
    let (blocks, text) = read(format!("arg={}&arg={}&arg={}", leaves[0], leaves[1], roots[1])).await;
    assert!(blocks <= 11, "{blocks} directories of 33");
    assert_eq!(text.matches(&format!("indirect through {}", roots[0])).count(), 2, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_verify_names_missing_blocks() {
    let gateway = TestGateway::start().await;
    let whole = gateway.add("", content::bytes(100)).await;
    let broken = gateway.add("raw-leaves=true", content::bytes(600_000)).await;
    assert_eq!(gateway.rpc_bytes("pin/verify").await, "", "whole pins are not told");
    let links = gateway.rpc_json(&format!("ls?arg={broken}")).await;
    let leaf = links["Objects"][0]["Links"][1]["Hash"].as_str().unwrap().to_owned();
    // A block of a recursively pinned DAG can be removed only after the pin is removed.
    gateway.rpc_json(&format!("pin/rm?arg={broken}")).await;
    gateway.rpc_json(&format!("block/rm?arg={leaf}")).await;
    let message = failure(&gateway, &format!("pin/add?arg={broken}")).await;
    assert!(message.contains(&leaf), "{message}");
    let lines = ndjson(gateway.rpc("pin/verify?verbose=true").send().await.unwrap()).await;
    assert_eq!(lines, [json!({"Cid": whole, "Ok": true})]);
    let message = failure(&gateway, "pin/verify?verbose=true&quiet=true").await;
    assert!(message.contains("can not be used at the same time"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn update_reads_what_differs_and_keeps_everything() {
    let gateway = TestGateway::start().await;
    let tree = async |changed: &str, pin: bool| {
        let form = (0..1_000).fold(Form::new(), |form, file| {
            let content = if file == 517 { changed.to_owned() } else { format!("file {file}") };
            form.file(format!("d/{}/{}/{file}", file % 10, file / 100), content)
        });
        hash_of(gateway.add_form(&format!("pin={pin}"), form).await.last().unwrap())
    };
    let (old, new) = (tree("old", true).await, tree("new", false).await);
    let before = gateway.metric("ipfrs_blocks_retrieved_total").await;
    gateway.rpc_json(&format!("pin/update?arg={old}&arg={new}")).await;
    let read = gateway.metric("ipfrs_blocks_retrieved_total").await - before;
    assert!(read <= 12, "{read} of 1,111 blocks");
    gateway.rpc_bytes("repo/gc").await;
    let refs = ndjson(gateway.rpc(&format!("refs?arg={new}&recursive=true&unique=true")).send().await.unwrap()).await;
    assert_eq!(refs.len(), 1_110);
    assert_eq!(gateway.rpc_bytes(&format!("cat?arg={new}/7/5/517")).await, "new");
    // A pin of a part that is missing is refused as before.
    gateway.rpc_json(&format!("pin/rm?arg={new}")).await;
    let (old, new) = (tree("old", true).await, tree("new", false).await);
    let changed =
        gateway.rpc_json(&format!("dag/resolve?arg={new}/7/5/517")).await["Cid"]["/"].as_str().unwrap().to_owned();
    gateway.rpc_bytes(&format!("block/rm?arg={changed}")).await;
    let message = failure(&gateway, &format!("pin/update?arg={old}&arg={new}")).await;
    assert!(message.contains(&changed), "{message}");
    assert_eq!(pinned(&gateway, "recursive").await, [old.as_str()]);
}
