//! Rules that follow from the definitions of all commands: paths, arguments and bodies.

use serde_json::json;

use crate::harness::{TestGateway, header, ndjson, rpc_failure};
use crate::multipart::Form;

const HELLO: &str = "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN";

/// Returns status and text of a command.
async fn said(gateway: &TestGateway, command: &str) -> (u16, String) {
    let response = gateway.rpc(command).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn argument_may_follow_the_command_in_the_path() {
    let gateway = TestGateway::start().await;
    gateway.add("", "hello\n").await;
    assert_eq!(said(&gateway, &format!("cat/{HELLO}?offset=1")).await, (200, "ello\n".to_owned()));
    let two = said(&gateway, &format!("cat/{HELLO}?arg={HELLO}")).await;
    assert_eq!(two, (200, "hello\nhello\n".to_owned()), "the path comes first");
    assert_eq!(gateway.rpc_json(&format!("block/stat/{HELLO}")).await["Size"], 14);
    assert_eq!(gateway.rpc_json(&format!("pin/ls/{HELLO}")).await["Keys"][HELLO]["Type"], "recursive");
    assert_eq!(said(&gateway, "version/").await.0, 200);
    assert_eq!(said(&gateway, &format!("cat/{HELLO}/")).await.0, 404);
    for command in ["config/edit", "config/edit?arg=x", "commands/completion", "commands/completion/bash"] {
        assert_eq!(said(&gateway, command).await, (404, "404 page not found\n".to_owned()), "{command}");
    }
    assert_eq!(said(&gateway, &format!("cat/%2Fipfs%2F{HELLO}")).await.1, "hello\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_groups_and_with_empty_parts_respond_as_in_kubo() {
    let gateway = TestGateway::start().await;
    for group in ["pin", "files", "swarm/peering", "object/patch"] {
        let response = gateway.rpc(group).send().await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "x-chunked-output")), (200, "1"), "{group}");
        assert_eq!(response.text().await.unwrap(), "", "{group}");
    }
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for (path, location) in [
        ("//version?n=1", "/api/v0/version?n=1"),
        ("/version//", "/api/v0/version/"),
        ("//evil.example/x", "/api/v0/evil.example/x"),
    ] {
        let response = client.post(gateway.url(&format!("/api/v0{path}"))).send().await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "location")), (307, location), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_arguments_are_named_as_in_kubo() {
    let gateway = TestGateway::start().await;
    for (command, text) in [
        ("add", "file argument 'path' is required\n"),
        ("dag/put", "file argument 'object data' is required\n"),
        ("files/cp?arg=/a", "argument \"dest\" is required\n"),
        ("files/write?arg=/a", "file argument 'data' is required\n"),
        ("key/rename?arg=a", "argument \"newName\" is required\n"),
        ("object/patch/add-link?arg=a&arg=b", "argument \"ref\" is required\n"),
        ("pin/update?arg=a", "argument \"to-path\" is required\n"),
        ("ping", "argument \"peer ID\" is required\n"),
        ("files/stat?arg=/a&arg=/b", "2 arguments given, at most 1 expected\n"),
    ] {
        assert_eq!(said(&gateway, command).await, (400, text.to_owned()), "{command}");
    }
    for (path, why) in [
        ("bad", "path does not have enough components"),
        ("ipfs/bafkqaaa", "path does not have enough components"),
        ("/ipfs/", "path does not have enough components"),
        ("/x/bafkqaaa", "unknown namespace: \"x\""),
        ("", "path does not have enough components"),
    ] {
        for command in ["cat", "ls", "get", "dag/get", "pin/add", "refs", "resolve"] {
            let message = rpc_failure(gateway.rpc(&format!("{command}?arg={path}")).send().await.unwrap()).await;
            assert_eq!(message, format!("invalid path {path:?}: {why}"), "{command}");
        }
    }
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn relative_parts_of_paths_are_removed() {
    let gateway = TestGateway::start().await;
    let directory = gateway.add_tree("", &[("d/sub/x", "xx"), ("d/f", "file")]).await;
    for path in ["./f", "sub/../f", "sub/x/../../f"] {
        assert_eq!(said(&gateway, &format!("cat?arg={directory}/{path}")).await.1, "file", "{path}");
    }
    // As in Kubo, files may be named with paths that lead out of the import, and with the name of another.
    let form = Form::new().file("../../a", "1").file("a", "2");
    let added = ndjson(gateway.post_form("add", form).await).await;
    let names: Vec<_> = added.iter().map(|line| line["Name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_nodes_are_changed_and_compared() {
    let gateway = TestGateway::start().await;
    let leaf = gateway.add("", "hello\n").await;
    let other = gateway.add("", "2").await;
    gateway.rpc("files/mkdir?arg=/d").send().await.unwrap();
    let empty = gateway.rpc_json("files/stat?arg=/d").await["Hash"].as_str().unwrap().to_owned();
    let patch = |command: String| {
        let gateway = &gateway;
        async move { gateway.rpc_json(&command).await["Hash"].as_str().unwrap().to_owned() }
    };
    // The CIDs are those of Kubo 0.42.
    let nested = patch(format!("object/patch/add-link?arg={empty}&arg=a/b&arg={leaf}&create=true")).await;
    assert_eq!(said(&gateway, &format!("cat?arg={nested}/a/b")).await.1, "hello\n");
    let changed = patch(format!("object/patch/add-link?arg={nested}&arg=a/b&arg={other}")).await;
    let diff = gateway.rpc_json(&format!("object/diff?arg={nested}&arg={changed}")).await;
    let link = |cid: &str| json!({ "/": cid });
    let expected = json!({ "Type": 2, "Path": "a/b", "Before": link(&leaf), "After": link(&other) });
    assert_eq!(diff["Changes"], json!([expected]));
    let removed = patch(format!("object/patch/rm-link?arg={nested}&arg=a/b")).await;
    let diff = gateway.rpc_json(&format!("object/diff?arg={removed}&arg={nested}")).await;
    assert_eq!(diff["Changes"], json!([{ "Type": 0, "Path": "a/b", "Before": null, "After": link(&leaf) }]));
    // Nodes with the same links may differ.
    let zeros = vec![0; 300_000];
    let (plain, dated) = (gateway.add("", zeros.clone()).await, gateway.add("mtime=5", zeros).await);
    let diff = gateway.rpc_json(&format!("object/diff?arg={plain}&arg={dated}")).await;
    assert_eq!(diff["Changes"], json!([{ "Type": 2, "Path": "", "Before": link(&plain), "After": link(&dated) }]));
    for (command, why) in [
        (format!("object/patch/rm-link?arg={nested}&arg=none"), "no link by that name"),
        (format!("object/patch/add-link?arg={empty}&arg=a/b&arg={leaf}"), "no link by that name"),
        (format!("object/patch/add-link?arg={empty}&arg=&arg={leaf}"), "cannot create link with no name"),
        (format!("object/patch/add-link?arg={leaf}&arg=x&arg={other}"), "cannot add named links to a UnixFS File node"),
    ] {
        let message = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
        assert!(message.starts_with(why), "{command}: {message}");
    }
    // As in Kubo, the DAG of the new node may not be larger than a block.
    let large = gateway.add("", crate::content::bytes(3_000_000)).await;
    let command = format!("object/patch/add-link?arg={empty}&arg=large&arg={large}");
    let blocks = gateway.blocks().await;
    let message = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
    assert!(message.contains("produced block is over 2MiB") && message.contains("--allow-big-block"), "{message}");
    assert_eq!(gateway.blocks().await, blocks, "nothing was stored");
    patch(format!("{command}&allow-big-block=true")).await;
    // A file whose links have no sizes is a file nevertheless.
    let odd = patch(format!("object/patch/add-link?arg={leaf}&arg=x&arg={other}&allow-non-unixfs=true")).await;
    let message =
        rpc_failure(gateway.rpc(&format!("object/patch/rm-link?arg={odd}&arg=x")).send().await.unwrap()).await;
    assert!(message.starts_with("cannot remove links from a UnixFS File node"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_without_names_are_compared_as_in_kubo() {
    let gateway = TestGateway::start().await;
    let options = "cid-version=1&chunker=size-3";
    let mut chunks = Vec::new();
    for chunk in ["aaa", "bbb", "ccc"] {
        chunks.push(gateway.add(options, chunk).await);
    }
    let [a, b, c] = &chunks[..] else { panic!("three chunks") };
    gateway.rpc("files/mkdir?arg=/d").send().await.unwrap();
    let empty = gateway.rpc_json("files/stat?arg=/d").await["Hash"].as_str().unwrap().to_owned();
    for (before, after, expected) in [
        ("aaabbb", "aaaccc", vec![(b, a)]),
        ("aaabbb", "aaabbbccc", vec![(b, a)]),
        ("aaabbbccc", "bbbccc", vec![(a, b), (c, b)]),
    ] {
        let (before, after) = (gateway.add(options, before).await, gateway.add(options, after).await);
        let mut directories = Vec::new();
        for file in [&before, &after] {
            let command = format!("object/patch/add-link?arg={empty}&arg=f&arg={file}");
            directories.push(gateway.rpc_json(&command).await["Hash"].as_str().unwrap().to_owned());
        }
        for (path, left, right) in [("", &before, &after), ("f", &directories[0], &directories[1])] {
            let changes = expected.iter().map(|(before, after)| {
                json!({ "Type": 2, "Path": path, "Before": { "/": before }, "After": { "/": after } })
            });
            let diff = gateway.rpc_json(&format!("object/diff?arg={left}&arg={right}")).await;
            assert_eq!(diff["Changes"], json!(changes.collect::<Vec<_>>()), "{before} {after}");
        }
    }
    // Kubo finds no difference.
    let (before, after) = (gateway.add(options, "aaaaaa").await, gateway.add(options, "aaabbb").await);
    let diff = gateway.rpc_json(&format!("object/diff?arg={before}&arg={after}")).await;
    let changed = json!({ "Type": 2, "Path": "", "Before": { "/": before }, "After": { "/": after } });
    assert_eq!(diff["Changes"], json!([changed]));
}

#[tokio::test(flavor = "multi_thread")]
async fn running_and_ended_commands_are_listed_and_cleared() {
    let gateway = TestGateway::start().await;
    gateway.add("pin=false", "x").await;
    let commands = gateway.rpc_json("diag/cmds").await;
    let of = |name: &str| commands.as_array().unwrap().iter().find(|entry| entry["Command"] == name).cloned();
    let add = of("add").unwrap();
    assert_eq!((&add["Active"], &add["Options"]["pin"]), (&json!(false), &json!("false")));
    assert_eq!(of("diag/cmds").unwrap()["Active"], json!(true));
    gateway.rpc("diag/cmds/clear").send().await.unwrap();
    let left = gateway.rpc_json("diag/cmds").await;
    assert!(left.as_array().unwrap().iter().all(|entry| entry["Command"] != "add"), "{left}");
    assert_eq!(gateway.rpc_json("diag/healthy").await, json!("ok"));
    assert!(gateway.rpc_json("diag/sys").await["diskinfo"]["total_space"].as_u64().unwrap() > 0);
}
