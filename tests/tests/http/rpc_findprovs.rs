//! `routing/findprovs`: providers of a CID.

use serde_json::json;

use crate::harness::{TestGateway, ndjson};
use crate::peers::{listening, peer_address};
use crate::source_server::{SourceServer, always};

#[tokio::test(flavor = "multi_thread")]
async fn connected_peers_that_have_the_block_are_providers() {
    let (with_content, other) = (listening(|_| {}).await, listening(|_| {}).await);
    let large = with_content.add("", vec![7; 100_000]).await;
    let small = with_content.add("", "small").await;
    let gateway = listening(|_| {}).await;
    for peer in [&with_content, &other] {
        let address = peer_address(peer).await;
        gateway.rpc_json(&format!("swarm/connect?arg={address}")).await;
        let id = address.rsplit('/').next().unwrap();
        // A peer is asked once it has said that it can respond.
        let identity = async || gateway.rpc_json(&format!("id?arg={id}")).await["Protocols"].clone();
        while identity().await.as_array().is_none_or(Vec::is_empty) {
            tokio::task::yield_now().await;
        }
    }
    let address = peer_address(&with_content).await;
    let (address, id) = address.rsplit_once("/p2p/").unwrap();
    let line = json!({"Extra": "", "ID": "", "Responses": [{"ID": id, "Addrs": [address]}], "Type": 4});
    let absent = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
    for (query, expected) in [
        (large.clone(), vec![&line]),
        (format!("{large}&num-providers=1"), vec![&line]),
        (small, vec![&line]),
        (absent.to_owned(), vec![]),
        (format!("{large}&offline=true"), vec![]),
    ] {
        let found = gateway.rpc(&format!("routing/findprovs?arg={query}")).send().await.unwrap();
        assert_eq!(ndjson(found).await.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    // Asking leaves no wants, and stores nothing.
    while gateway.rpc_json("bitswap/wantlist").await["Keys"] != json!([]) {
        tokio::task::yield_now().await;
    }
    assert_eq!(gateway.rpc_json("repo/stat").await["NumObjects"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_are_this_node_and_those_of_routers() {
    let peer = "12D3KooWPjceQrSwdWXPyLLeABRXmuqt69Rg3sBYbU1Nft9HyQ6X";
    let server = "12D3KooWC9F7JcWzj3SY7mwaxTGiS7ufPDrBmjPLBEthso9MxmKc";
    let (at_peer, at_server) = ("/ip4/192.0.2.1/tcp/4001", "/dns/a.example/tcp/443/https");
    let record = |id: &str, address: &str, protocol: &str| json!({"Schema": "peer", "ID": id, "Addrs": [address], "Protocols": [format!("transport-{protocol}")]});
    let records = [
        record("no ID", at_peer, "bitswap"),
        record(peer, at_peer, "bitswap"),
        record(peer, at_peer, "bitswap"),
        record(server, at_server, "ipfs-gateway-http"),
    ];
    let body = json!({ "Providers": records }).to_string();
    let router = SourceServer::start(always("200 OK", "content-type: application/json\r\n", body)).await;
    let gateway = listening(|config| config.retrieval.routers = vec![router.url()]).await;
    let cid = gateway.add("", "provided").await;
    let own = peer_address(&gateway).await;
    let (at_own, own) = own.rsplit_once("/p2p/").unwrap();
    let absent = "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku";
    let (own, peer, server) = ((own, at_own), (peer, at_peer), (server, at_server));
    for (query, expected) in [
        (cid.clone(), vec![own, peer, server]),
        (format!("{cid}&num-providers=2"), vec![own, peer]),
        (absent.to_owned(), vec![peer, server]),
        (format!("{absent}&num-providers=1"), vec![peer]),
        (format!("{absent}&num-providers=2"), vec![peer, server]),
        (format!("{absent}&offline=true"), vec![]),
    ] {
        let found = gateway.rpc(&format!("routing/findprovs?arg={query}")).send().await.unwrap();
        let line =
            |(id, address)| json!({"Extra": "", "ID": "", "Responses": [{"ID": id, "Addrs": [address]}], "Type": 4});
        assert_eq!(ndjson(found).await, expected.into_iter().map(line).collect::<Vec<_>>(), "{query}");
    }
    // Without Bitswap, this node is no provider.
    let without_peers = TestGateway::start_with(|config| config.retrieval.routers = vec![router.url()]).await;
    let cid = without_peers.add("", "provided").await;
    let found = ndjson(without_peers.rpc(&format!("routing/findprovs?arg={cid}")).send().await.unwrap()).await;
    let ids: Vec<_> = found.iter().map(|line| line["Responses"][0]["ID"].as_str().unwrap()).collect();
    assert_eq!(ids, [peer.0, server.0]);
    let target = format!("GET /routing/v1/providers/{cid}?");
    assert!(router.requests().iter().any(|head| head.starts_with(&target)), "{:?}", router.requests());
}
