//! Commands of subsystems that this daemon lacks, `commands` and `version/deps`.

use serde_json::{Value, json};

use crate::harness::{TestGateway, header, ndjson, rpc_failure};
use crate::multipart::Form;

const PEER: &str = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq";

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_absent_subsystems_fail_with_the_texts_of_kubo() {
    let gateway = TestGateway::start().await;
    let dht = "removed, use 'ipfs routing' instead";
    let object = "removed, use 'ipfs dag' or 'ipfs files' instead";
    let pubsub = "experimental pubsub feature not enabled, run daemon with --enable-pubsub-experiment to use";
    let p2p = "libp2p stream mounting not enabled";
    let filestore = "filestore is not enabled, see https://git.io/vNItf";
    let topic = "URL arg must be multibase encoded: selected encoding not supported";
    for (command, text) in [
        ("dht/findprovs?arg=x", dht),
        ("dht/put", dht),
        ("dht/query?arg=x", "routing service is not a DHT"),
        ("object/get?arg=x", object),
        ("object/new", object),
        ("pubsub/ls", pubsub),
        ("pubsub/peers", pubsub),
        ("pubsub/sub?arg=uYQ", pubsub),
        ("pubsub/sub?arg=x", topic),
        ("pubsub/peers?arg=x", topic),
        ("p2p/ls", p2p),
        ("p2p/stream/close?arg=1", p2p),
        ("p2p/listen?arg=/x/a&arg=/ip4/127.0.0.1/tcp/1", p2p),
        ("filestore/verify", filestore),
        ("swarm/resources", "missing ResourceMgr: make sure the daemon is running with Swarm.ResourceMgr.Enabled"),
    ] {
        let message = rpc_failure(gateway.rpc(command).send().await.unwrap()).await;
        match text == topic {
            true => assert!(message.starts_with(text), "{command}: {message}"),
            false => assert_eq!(message, text, "{command}"),
        }
    }
    let published = gateway.post_form("pubsub/pub?arg=uYQ", Form::new().file("f", "x")).await;
    assert!(rpc_failure(published).await.starts_with(pubsub));
    for (command, text) in [
        ("dht/query", "argument \"peerID\" is required\n"),
        ("p2p/listen?arg=/x/a", "argument \"target-address\" is required\n"),
        ("pubsub/pub?arg=uYQ", "file argument 'data' is required\n"),
        ("refs", "argument \"ipfs-path\" is required\n"),
        ("config", "argument \"key\" is required\n"),
    ] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (400, text), "{command}");
    }
    for (command, text) in [
        ("bootstrap/add", "no bootstrap peers to add"),
        ("bootstrap/add?arg=x", "failed to parse multiaddr \"x\": must begin with /"),
        ("bootstrap/add?arg=/ip4/127.0.0.1/tcp/4001", "invalid bootstrap address: /ip4/127.0.0.1/tcp/4001"),
        (&format!("bootstrap/add?arg=/p2p/{PEER}"), "bootstrap address without a transport: /p2p/12D3"),
        ("bootstrap/add/default", "cannot add default bootstrap peers: AutoConf is disabled (AutoConf.Enabled=false)"),
        ("bootstrap/rm?arg=/ip4/127.0.0.1/tcp/4001", "invalid p2p multiaddr"),
    ] {
        let message = rpc_failure(gateway.rpc(command).send().await.unwrap()).await;
        assert!(message.starts_with(text), "{command}: {message}");
    }
    for (command, count) in [("provide/clear", "0\n"), ("provide/clear?quiet=true", ""), ("provide/clear?q", "")] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!(header(&response, "x-chunked-output"), "1", "{command}");
        assert_eq!(response.text().await.unwrap(), count, "{command}");
    }
    let removed = gateway.rpc_json(&format!("bootstrap/rm?arg=/ip4/127.0.0.1/tcp/4001/p2p/{PEER}")).await;
    assert_eq!(removed, json!({ "Peers": [] }));
    assert_eq!(gateway.rpc_json("bootstrap").await, json!({ "Peers": [] }));
    assert_eq!(gateway.rpc_json("bootstrap/list").await, json!({ "Peers": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_a_tree_with_options() {
    let gateway = TestGateway::start().await;
    let tree = gateway.rpc_json("commands?flags=true").await;
    assert_eq!(tree["Name"], "ipfs");
    let below = |tree: &Value, name: &str| {
        let found = tree["Subcommands"].as_array().unwrap().iter().find(|command| command["Name"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {tree}")).clone()
    };
    let refs = below(&tree, "refs");
    assert!(refs["Options"].as_array().unwrap().contains(&json!({ "Names": ["unique", "u"] })), "{refs}");
    assert_eq!(below(&refs, "local"), json!({ "Name": "local", "Subcommands": [], "Options": [] }));
    below(&below(&below(&tree, "swarm"), "peering"), "add");
    // Every listed command exists.
    let mut open = vec![(String::new(), tree)];
    while let Some((path, tree)) = open.pop() {
        for command in tree["Subcommands"].as_array().unwrap() {
            open.push((format!("{path}/{}", command["Name"].as_str().unwrap()), command.clone()));
        }
        if tree["Subcommands"].as_array().unwrap().is_empty() && path != "/shutdown" {
            let status = gateway.rpc(&format!("{}?timeout=x", &path[1..])).send().await.unwrap().status();
            assert_eq!(status, 400, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dependencies_are_listed_with_their_digests() {
    let gateway = TestGateway::start().await;
    let lines = ndjson(gateway.rpc("version/deps").send().await.unwrap()).await;
    assert_eq!((&lines[0]["Path"], &lines[0]["Sum"]), (&json!("ipfrs"), &json!("")));
    let tokio = lines.iter().find(|line| line["Path"] == "tokio").unwrap();
    assert!(tokio["Sum"].as_str().unwrap().starts_with("sha256:"), "{tokio}");
    assert_eq!(tokio["ReplacedBy"], "");
}
