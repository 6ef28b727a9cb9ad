//! Blocks are exchanged with peers by Bitswap, and nodes of a fleet find each other.

use bytes::Bytes;
use http::Method;
use ipfrs_proto::block::v1::GetBlockRequest;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::content::bytes;
use crate::harness::{TestGateway, ndjson, rpc_failure, rpc_refusal};
use crate::source_server::{SourceServer, always};
use crate::websocket::Client;
use crate::wire::exchange;

/// Starts a gateway to which peers can connect.
pub(crate) async fn listening(change: impl FnOnce(&mut ipfrs_interface::Config)) -> TestGateway {
    TestGateway::start_with(|config| {
        config.retrieval.bitswap.enabled = true;
        config.retrieval.bitswap.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        change(config);
    })
    .await
}

/// Starts a gateway that connects to peers, but to which none can connect.
pub(crate) async fn calling(change: impl FnOnce(&mut ipfrs_interface::Config)) -> TestGateway {
    TestGateway::start_with(|config| {
        config.retrieval.bitswap.enabled = true;
        config.retrieval.bitswap.listen = Vec::new();
        change(config);
    })
    .await
}

/// Returns the address of a gateway for peers, with its ID.
pub(crate) async fn peer_address(gateway: &TestGateway) -> String {
    gateway.rpc_json("id").await["Addresses"][0].as_str().unwrap().to_owned()
}

pub(crate) async fn connect(from: &TestGateway, to: &TestGateway) {
    let address = peer_address(to).await;
    let id = address.rsplit('/').next().unwrap();
    let connected = from.rpc_json(&format!("swarm/connect?arg={address}")).await;
    assert_eq!(connected["Strings"], json!([format!("connect {id} success")]));
}

async fn connected_to(origin: &TestGateway) -> TestGateway {
    let gateway = calling(|_| {}).await;
    connect(&gateway, origin).await;
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_are_added_to_and_removed_from_the_steady_ones() {
    let (origin, gateway) = (listening(|_| {}).await, calling(|_| {}).await);
    let address = peer_address(&origin).await;
    let (without_id, id) = address.rsplit_once("/p2p/").unwrap();
    let success = [json!({ "ID": id, "Status": "success" })];
    let send = async |command: String| ndjson(gateway.rpc(&command).send().await.unwrap()).await;
    assert_eq!(send(format!("swarm/peering/add?arg={address}")).await, success);
    let listed = gateway.rpc_json("swarm/peering/ls").await;
    assert_eq!(listed, json!({ "Peers": [{ "ID": id, "Addrs": [without_id] }] }));
    // Each side learns of the connection by itself, and of the addresses of the other one after that.
    gateway.assert_metric("ipfrs_bitswap_peers", 1).await;
    while gateway.rpc_json("swarm/addrs").await["Addrs"][id].as_array().is_none_or(Vec::is_empty) {
        tokio::task::yield_now().await;
    }
    let found = send(format!("routing/findpeer?arg={id}")).await;
    assert_eq!((&found[0]["Type"], &found[0]["Responses"][0]["ID"]), (&json!(2), &json!(id)));
    let addresses = found[0]["Responses"][0]["Addrs"].as_array().unwrap().iter();
    let text: String = addresses.map(|address| format!("{}\n", address.as_str().unwrap())).collect();
    assert_eq!(gateway.rpc_bytes(&format!("routing/findpeer?arg={id}&encoding=text")).await, text);
    let pings = send(format!("ping?arg={id}&count=2")).await;
    let [first, pongs @ .., last] = &*pings else { panic!("{pings:?}") };
    assert_eq!(first["Text"], format!("PING {id}."));
    assert!(pongs.len() == 2 && pongs.iter().all(|pong| pong["Time"].as_u64().unwrap() > 0), "{pings:?}");
    assert!(last["Text"].as_str().unwrap().starts_with("Average latency: "), "{pings:?}");
    // The stream of another ping ends that of this one, which opens a new one.
    let mut waiting = gateway.rpc(&format!("ping?arg={id}&count=2")).send().await.unwrap();
    let mut text = String::new();
    while !text.contains("\"Text\":\"\"}\n") {
        text += std::str::from_utf8(&waiting.chunk().await.unwrap().unwrap()).unwrap();
    }
    send(format!("ping?arg={id}&count=1")).await;
    text += &waiting.text().await.unwrap();
    assert_eq!((text.lines().count(), text.matches("\"Success\":true").count()), (4, 4), "{text}");
    let refused = rpc_failure(gateway.rpc(&format!("ping?arg={id}&count=0")).send().await.unwrap()).await;
    assert_eq!(refused, "ping count must be greater than 0, was 0");
    let refused = rpc_failure(gateway.rpc("routing/findprovs?arg=x&num-providers=0").send().await.unwrap()).await;
    assert_eq!(refused, "number of providers must be greater than 0");
    assert_eq!(send(format!("swarm/peering/rm?arg={id}")).await, success);
    assert_eq!(gateway.rpc_json("swarm/peering/ls").await, json!({ "Peers": [] }));
    // As in Kubo, a peer that is not in the list is removed too.
    assert_eq!(send(format!("swarm/peering/rm?arg={id}")).await, success);
    assert_eq!(gateway.rpc_json("swarm/filters").await, json!({ "Strings": null }));
    let raw = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    let refused = rpc_failure(gateway.rpc(&format!("swarm/peering/rm?arg={raw}")).send().await.unwrap()).await;
    assert_eq!(refused, "can't convert CID of type \"raw\" to a peer ID", "as in Kubo");
    for wrong in ["swarm/peering/add?arg=x", "swarm/peering/add?arg=/ip4/127.0.0.1/tcp/1", "swarm/peering/rm?arg=x"] {
        rpc_failure(gateway.rpc(wrong).send().await.unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_front_end_retrieves_from_peers() {
    let origin = listening(|_| {}).await;
    let content = bytes(10 * 256 * 1024);
    let cid = origin.add("", content.clone()).await;
    let tree = origin.add_tree("wrap-with-directory=true", &[("a/b.txt", "hello"), ("c.txt", "world")]).await;
    let path = format!("/ipfs/{cid}");

    let gateway = connected_to(&origin).await;
    assert!(gateway.content(&path).await == content);
    assert!(gateway.rpc_bytes(&format!("cat?arg={cid}")).await == content);
    assert_eq!(gateway.metric("ipfrs_retrieval_blocks_total{source=\"peer\"}").await, 11, "each block is sent once");

    let gateway = connected_to(&origin).await;
    let range = gateway.request(Method::GET, &path).header("range", "bytes=1000000-1000009").send().await.unwrap();
    assert!(range.bytes().await.unwrap() == content.slice(1_000_000..1_000_010));
    assert!(gateway.metric("ipfrs_retrieval_blocks_total{source=\"peer\"}").await <= 4, "only what the range needs");

    let gateway = connected_to(&origin).await;
    let archive = gateway.content(&format!("/ipfs/{tree}?format=tar")).await;
    assert!(archive == origin.content(&format!("/ipfs/{tree}?format=tar")).await);
    let gateway = connected_to(&origin).await;
    let lines = ndjson(gateway.rpc(&format!("pin/add?arg={cid}&progress=true")).send().await.unwrap()).await;
    assert_eq!(lines.last().unwrap()["Pins"], json!([cid]));
    let gateway = connected_to(&origin).await;
    let batch = gateway.v1_json("block/batch/get", &json!({"cids": [cid, tree]})).await;
    assert_eq!(batch["blocks"].as_array().unwrap().len(), 2, "{batch}");

    let gateway = connected_to(&origin).await;
    let query = json!({"query": format!("{{ block(cid: \"{cid}\") {{ size }} }}")});
    let response = gateway.request(Method::POST, "/graphql").json(&query).send().await.unwrap();
    let answer: Value = response.json().await.unwrap();
    assert!(answer["data"]["block"]["size"].as_u64().unwrap() > 0, "{answer}");
    let gateway = connected_to(&origin).await;
    let mut blocks = BlockServiceClient::new(gateway.channel());
    let block = blocks.get_block(GetBlockRequest { cid: cid.clone() }).await.unwrap().into_inner();
    assert!(block.block.unwrap().data.len() > 100);
}

/// A safetensors file of two tensors of 1 MiB each.
fn safetensors() -> Bytes {
    let tensor = |from: usize| json!({"dtype": "U8", "shape": [1024, 1024], "data_offsets": [from, from + (1 << 20)]});
    let header = json!({"first": tensor(0), "second": tensor(1 << 20)}).to_string();
    let length = (header.len() as u64).to_le_bytes();
    [&length[..], header.as_bytes(), &bytes(2 << 20)].concat().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn slice_of_a_remote_tensor_fetches_only_the_blocks_it_needs() {
    let origin = listening(|_| {}).await;
    let content = safetensors();
    let cid = origin.add("raw-leaves=true", content.clone()).await;
    let gateway = connected_to(&origin).await;
    let rows = gateway.content(&format!("/v1/tensor/{cid}?name=second&slice=10:12")).await;
    let start = content.len() - (1 << 20) + 10 * 1024;
    assert!(rows == content.slice(start..start + 2 * 1024));
    let fetched = gateway.metric("ipfrs_retrieval_blocks_total{source=\"peer\"}").await;
    assert!((2..=4).contains(&fetched), "{fetched} of 10 blocks");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_about_peers_report_real_state() {
    let origin = listening(|_| {}).await;
    let cid = origin.add("", "exchanged").await;
    let gateway = connected_to(&origin).await;
    let (address, id) = (peer_address(&origin).await, origin.rpc_json("id").await["ID"].as_str().unwrap().to_owned());
    let bare = address.split("/p2p/").next().unwrap();
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, "exchanged");

    let peers = gateway.rpc_json("swarm/peers?verbose=true").await["Peers"].clone();
    assert_eq!((&peers[0]["Addr"], &peers[0]["Peer"], &peers[0]["Direction"]), (&json!(bare), &json!(id), &json!(2)));
    let plain = gateway.rpc_json("swarm/peers").await["Peers"][0].clone();
    assert_eq!((plain.get("Direction"), plain["Identify"]["ID"].as_str()), (None, Some("")));
    let seen = origin.rpc_json("swarm/peers?direction=true").await["Peers"][0].clone();
    assert_eq!((seen["Direction"].as_u64(), &seen["Peer"]), (Some(1), &gateway.rpc_json("id").await["ID"]));
    let of_peer = gateway.rpc_json(&format!("id?arg={id}")).await;
    assert_eq!((&of_peer["ID"], &of_peer["PublicKey"]), (&json!(id), &origin.rpc_json("id").await["PublicKey"]));
    // The peer says the same of itself, once it has done so.
    let agent = async || gateway.rpc_json(&format!("id?arg={id}")).await["AgentVersion"].clone();
    while agent().await == "" {
        tokio::task::yield_now().await;
    }
    assert_eq!(agent().await, origin.rpc_json("id").await["AgentVersion"]);
    assert!(gateway.rpc_json("swarm/addrs").await["Addrs"][&id].is_array());
    assert_eq!(origin.rpc_json("swarm/addrs/local?id=true").await["Strings"], json!([address]));
    assert_eq!(origin.rpc_json("swarm/addrs/listen").await["Strings"], json!([bare]));

    let stat = gateway.rpc_json("bitswap/stat").await;
    assert_eq!((&stat["BlocksReceived"], &stat["DataReceived"], &stat["Peers"]), (&json!(1), &json!(17), &json!([id])));
    let ledger = gateway.rpc_json(&format!("bitswap/ledger?arg={id}")).await;
    assert_eq!((&ledger["Peer"], &ledger["Recv"], &ledger["Sent"]), (&json!(id), &json!(17), &json!(0)));
    assert_eq!(gateway.rpc_json("bitswap/wantlist").await["Keys"], json!([]));

    let elsewhere = gateway.rpc_json(&format!("swarm/disconnect?arg=/ip4/127.0.0.1/tcp/1/p2p/{id}")).await;
    assert_eq!(elsewhere["Strings"], json!([format!("disconnect {id} failure: conn not found")]));
    let ended = gateway.rpc_json(&format!("swarm/disconnect?arg={address}")).await;
    assert_eq!(ended["Strings"], json!([format!("disconnect {id} success")]));
    let again = gateway.rpc_json(&format!("swarm/disconnect?arg={address}")).await;
    assert_eq!(again["Strings"], json!([format!("disconnect {id} failure: conn not found")]));
    let by_id = gateway.rpc_json(&format!("swarm/disconnect?arg=/p2p/{id}")).await;
    assert_eq!(by_id["Strings"], json!([format!("disconnect {id} failure: not connected")]));
    assert_eq!(gateway.rpc_json("swarm/peers").await, json!({ "Peers": null }));
    let failure = format!("connect {id} failure: failed to dial: ");
    for (command, part) in [
        (format!("id?arg={id}"), "is not connected"),
        ("swarm/connect?arg=/ip4/127.0.0.1/tcp/1".to_owned(), "found no ipfs peers at /ip4/127.0.0.1/tcp/1"),
        (format!("swarm/connect?arg={address}&arg=/ip4/127.0.0.1/tcp/1"), "found no ipfs peers at"),
        (format!("swarm/connect?arg=/ip4/127.0.0.1/tcp/1/p2p/{id}"), "no connection to"),
        (format!("swarm/connect?arg=/ip4/127.0.0.1/tcp/1/p2p/{id}"), failure.as_str()),
        (format!("swarm/connect?arg=nonsense/p2p/{id}"), "failed to parse multiaddr \"nonsense/p2p/"),
        (format!("swarm/disconnect?arg={id}"), "must begin with /"),
        (format!("swarm/disconnect?arg=/p2p/{id}&arg={id}"), "must begin with /"),
        ("swarm/disconnect?arg=/ip4/127.0.0.1/tcp/1".to_owned(), "found no ipfs peers at /ip4/127.0.0.1/tcp/1"),
        ("bitswap/ledger?arg=x".to_owned(), "failed to parse peer ID: "),
        (format!("swarm/disconnect?arg={address}&arg=x"), "failed to parse multiaddr \"x\": must begin with /"),
        ("ping?arg=x".to_owned(), "failed to parse peer address 'x': failed to parse peer ID: "),
    ] {
        let message = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
        assert!(message.contains(part), "{command}: {message}");
    }
    assert_eq!(gateway.rpc_json("swarm/peers").await, json!({ "Peers": null }), "a malformed address refuses all");
}

#[tokio::test(flavor = "multi_thread")]
async fn findpeer_of_an_unknown_peer_ends_as_in_kubo() {
    let gateway = calling(|_| {}).await;
    let command = "routing/findpeer?arg=12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq";
    let head = format!("POST /api/v0/{command} HTTP/1.1\r\nContent-Length: 0\r\nTE: trailers");
    let answer = exchange(&gateway, head).await;
    assert_eq!((answer.status, answer.is_complete), (200, true));
    assert_eq!(answer.trailer("x-stream-error"), "routing: not found");
    // One line: Kubo's Go client expects that the type is a number in each of them.
    let event: Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(event, json!({"Extra": "routing: not found", "ID": "", "Responses": null, "Type": 3}));
    // A client that ignores trailers would not learn of the failure.
    assert_eq!(rpc_failure(gateway.rpc(command).send().await.unwrap()).await, "routing: not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_of_peers_is_the_key_of_the_repo() {
    let gateway = listening(|_| {}).await;
    let id = gateway.rpc_json("id").await["ID"].clone();
    let other = TestGateway::start_on(gateway.stop().await, |config| {
        config.retrieval.bitswap.enabled = true;
        config.retrieval.bitswap.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
    })
    .await;
    assert_eq!(other.rpc_json("id").await["ID"], id);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_bitswap_commands_fail_as_in_kubo_offline() {
    let gateway = TestGateway::start().await;
    assert_eq!(gateway.rpc_json("id").await["Addresses"], json!([]));
    let action = "this action must be run in online mode, try running 'ipfs daemon' first";
    let command = "this command must be run in online mode. Try running 'ipfs daemon' first";
    let peer = "12D3KooWBtg3aaRMjxwedh83aGiUkwSxDwUZkzuJcfaqUmo7R3pq";
    let address = format!("/ip4/127.0.0.1/tcp/1/p2p/{peer}");
    let id = "'ipfs id' cannot query information on remote peers without a running daemon; if you only want to convert \
              --peerid-base, pass --offline option";
    let connect = format!("connect {peer} failure: {action}");
    let malformed = "failed to parse multiaddr \"x\": must begin with /";
    // The texts are those of Kubo 0.44.
    for (called, text) in [
        ("swarm/peers", action),
        ("swarm/addrs", action),
        ("swarm/addrs/local", action),
        ("swarm/addrs/listen", action),
        ("swarm/addrs/autonat", command),
        ("swarm/filters", command),
        ("swarm/filters/add?arg=x", command),
        ("swarm/filters/rm?arg=x", command),
        ("swarm/peering/ls", command),
        (&format!("swarm/peering/add?arg={address}"), command),
        ("swarm/peering/rm?arg=x", command),
        (&format!("swarm/connect?arg={address}"), connect.as_str()),
        ("bitswap/wantlist", command),
        ("bitswap/wantlist?peer=x", command),
        ("bitswap/ledger?arg=x", command),
        ("bitswap/reprovide", command),
        ("routing/findpeer?arg=x", command),
        ("routing/findprovs?arg=bafkqaaa", command),
        ("routing/provide?arg=x", command),
        ("routing/reprovide", command),
        ("provide/once?arg=bafkqaaa", command),
        ("provide/stat?lan=true", command),
        ("stats/provide", command),
        ("stats/reprovide?all=true", command),
        ("stats/dht", command),
        ("version/check", command),
        ("mount", command),
        (&format!("ping?arg={peer}"), command),
        (&format!("id?arg={peer}"), id),
    ] {
        let message = rpc_failure(gateway.rpc(called).send().await.unwrap()).await;
        assert_eq!(message, text, "{called}");
    }
    for called in ["swarm/connect?arg=x", "swarm/disconnect?arg=x", "swarm/peering/add?arg=x"] {
        let message = rpc_failure(gateway.rpc(called).send().await.unwrap()).await;
        assert!(message.starts_with(malformed), "{called}: {message}");
    }
    let closed = gateway.rpc_json(&format!("swarm/disconnect?arg={address}")).await;
    assert_eq!(closed, json!({ "Strings": [format!("disconnect {peer} failure: {action}")] }));
    for called in ["bitswap/stat", "stats/bitswap"] {
        let message = rpc_refusal(gateway.rpc(called).send().await.unwrap()).await;
        assert_eq!(message, format!("unable to run offline: {command}"), "{called}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_do_not_receive_blocked_content() {
    let list = tempfile::NamedTempFile::with_suffix(".deny").unwrap();
    let (blocked, allowed) = ("bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e", "allowed");
    std::fs::write(list.path(), format!("/ipfs/{blocked}\n")).unwrap();
    let repo = {
        let gateway = TestGateway::start().await;
        assert_eq!(
            gateway.add("raw-leaves=true&cid-version=1", "hello world").await,
            "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"
        );
        gateway.stop().await
    };
    let origin = TestGateway::start_on(repo, |config| {
        config.retrieval.bitswap.enabled = true;
        config.retrieval.bitswap.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        config.gateway.denylists = vec![list.path().to_owned()];
    })
    .await;
    let gateway = connected_to(&origin).await;
    let allowed_cid = origin.add("", allowed).await;
    assert_eq!(gateway.content(&format!("/ipfs/{allowed_cid}")).await, allowed);
    let response = gateway.get(&format!("/ipfs/{blocked}")).await;
    assert_eq!(response.status(), 504);
    let report = response.text().await.unwrap();
    assert!(report.contains("it does not have the block"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_deliver_what_servers_do_not() {
    let origin = listening(|_| {}).await;
    let content = bytes(3 * 256 * 1024);
    let cid = origin.add("", content.clone()).await;
    let empty = SourceServer::start(always("404 Not Found", "", "")).await;
    let gateway = calling(|config| config.retrieval.gateways = vec![empty.url()]).await;
    connect(&gateway, &origin).await;
    assert!(gateway.content(&format!("/ipfs/{cid}")).await == content);
    assert!(!empty.requests().is_empty(), "servers come first");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_peer_without_a_connection_is_a_failed_source() {
    let origin = listening(|_| {}).await;
    let (cid, address) = (origin.add("", "only there").await, peer_address(&origin).await);
    origin.stop().await;
    let gateway = calling(|config| config.retrieval.bitswap.peers = vec![address.parse().unwrap()]).await;
    let response = gateway.get(&format!("/ipfs/{cid}")).await;
    assert_eq!(response.status(), 502);
    let (report, id) = (response.text().await.unwrap(), address.rsplit('/').next().unwrap());
    assert!(report.contains("1 failed") && report.contains(id), "{report}");
    let failed = "ipfrs_retrieval_attempts_total{outcome=\"failed\",source=\"peer\"}";
    assert_eq!(gateway.metric(failed).await, 0, "there was no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_peer_that_is_back_is_asked_before_its_next_connection_is_due() {
    let origin = listening(|_| {}).await;
    let (cid, address) = (origin.add("", "only there").await, peer_address(&origin).await);
    let parts: Vec<_> = address.split('/').collect();
    let ["", "ip4", "127.0.0.1", "tcp", port, "p2p", id] = parts[..] else { panic!("{address}") };
    let port: u16 = port.parse().unwrap();
    // The peer is absent while this ends each connection.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let peer = format!("/ip4/127.0.0.1/tcp/{}/p2p/{id}", listener.local_addr().unwrap().port());
    let is_back = watch::Sender::new(false);
    let seen = is_back.subscribe();
    let forwarding = tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            if *seen.borrow() {
                let mut to = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
            }
        }
    });
    let gateway = calling(|config| config.retrieval.bitswap.peers = vec![peer.parse().unwrap()]).await;
    let path = format!("/ipfs/{cid}");
    assert_eq!(gateway.get(&path).await.status(), 502);
    is_back.send_replace(true);
    let mut statuses = Vec::new();
    // A request waits for the connection for two seconds only.
    while statuses.last() != Some(&200) && statuses.len() < 3 {
        statuses.push(gateway.get(&path).await.status().as_u16());
    }
    assert_eq!(statuses.last(), Some(&200), "{statuses:?}");
    forwarding.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_a_fleet_find_each_other() {
    let origin = listening(|_| {}).await;
    let content = bytes(3 * 256 * 1024);
    let cid = origin.add("", content.clone()).await;
    let id = origin.rpc_json("id").await["ID"].clone();
    let found = |query: &str| format!("/routing/v1/providers/{cid}{query}");
    let json_of = async |path: String| -> Value { serde_json::from_slice(&origin.content(&path).await).unwrap() };
    let record = json_of(found("")).await["Providers"][0].clone();
    assert_eq!((&record["Schema"], &record["ID"]), (&json!("peer"), &id));
    assert_eq!(record["Protocols"], json!(["transport-ipfs-gateway-http", "transport-bitswap"]));
    let http = format!("/ip4/127.0.0.1/tcp/{}/http", origin.port());
    assert!(record["Addrs"].as_array().unwrap().contains(&json!(http)), "{record}");
    for (query, count) in [
        ("?filter-protocols=unknown,transport-bitswap", 1),
        ("?filter-protocols=transport-graphsync-filecoinv1", 0),
        ("?filter-addrs=http", 1),
        ("?filter-addrs=webtransport", 0),
        ("?filter-addrs=!tcp", 0),
    ] {
        assert_eq!(json_of(found(query)).await["Providers"].as_array().unwrap().len(), count, "{query}");
    }
    let repeated = origin.get(&found("?filter-addrs=http&filter-addrs=tcp")).await;
    assert_eq!(repeated.status(), 400);
    assert_eq!(repeated.text().await.unwrap(), "filter-addrs is in the query twice: send it once\n");
    let of_peer = json_of(format!("/routing/v1/peers/{}", id.as_str().unwrap())).await;
    assert_eq!(of_peer["Peers"][0]["ID"], id);

    // By HTTP alone.
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.routers = vec![origin.url("")];
        config.retrieval.allow_private_addresses = true;
    })
    .await;
    assert!(gateway.content(&format!("/ipfs/{cid}")).await == content);
    // By Bitswap alone, and only if private addresses are allowed.
    let record =
        json!({"Schema": "peer", "ID": id, "Addrs": [peer_address(&origin).await], "Protocols": ["transport-bitswap"]});
    let body = json!({"Providers": [record]}).to_string();
    let router = SourceServer::start(always("200 OK", "content-type: application/json\r\n", body)).await;
    let with_router = |allow: bool| {
        let url = router.url();
        calling(move |config| {
            config.retrieval.routers = vec![url];
            config.retrieval.allow_private_addresses = allow;
        })
    };
    assert!(with_router(true).await.content(&format!("/ipfs/{cid}")).await == content);
    let refused = with_router(false).await.get(&format!("/ipfs/{cid}")).await;
    assert_eq!(refused.status(), 502);
    let report = refused.text().await.unwrap();
    assert!(report.contains("none of its addresses can be dialed"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_may_name_sources_if_the_operator_allows_it() {
    let origin = listening(|_| {}).await;
    let cid = origin.add("", "named by a client").await;
    let http = format!("/ip4/127.0.0.1/tcp/{}/http", origin.port());
    let peer = peer_address(&origin).await;
    for (hint, by_peer) in [
        (format!("gateway={}", origin.url("")), false),
        (format!("provider={http}"), false),
        (format!("provider=nonsense&provider={peer}"), true),
    ] {
        let hinted = |takes_hints: bool, allows_private: bool| {
            let path = format!("/ipfs/{cid}?{hint}");
            let start = calling(move |config| {
                config.retrieval.provider_hints = takes_hints;
                config.retrieval.allow_private_addresses = allows_private;
            });
            async move {
                let gateway = start.await;
                let response = gateway.get(&path).await;
                let status = response.status().as_u16();
                (status, gateway.metric("ipfrs_retrieval_blocks_total{source=\"peer\"}").await)
            }
        };
        assert_eq!(hinted(true, true).await, (200, u64::from(by_peer)), "{hint}");
        assert_eq!(hinted(false, true).await, (504, 0), "{hint}");
        assert_eq!(hinted(true, false).await, (502, 0), "{hint}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn end_of_a_retrieval_is_an_event() {
    let origin = listening(|_| {}).await;
    let cid = origin.add("", "watched").await;
    let gateway = connected_to(&origin).await;
    let mut client = Client::open(gateway.address(), "/ws", &[]).await.unwrap();
    client.send(json!({"type": "subscribe", "topic": "retrieval", "filter": {"cid": cid}}).to_string()).await;
    assert_eq!(client.receive().await["type"], "subscribed");
    gateway.content(&format!("/ipfs/{cid}")).await;
    let data = client.receive().await["data"].clone();
    assert_eq!((&data["cid"], &data["blocks"], &data["failures"]), (&json!(cid), &json!(1), &json!(0)), "{data}");
}
