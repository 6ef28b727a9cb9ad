//! Connections, addresses and configuration.

use std::sync::Arc;

use ipfrs_bitswap::{Bitswap, BitswapConfig, Direction, Outcome, PeerId, PrivateNetworkKey};
use ipfrs_core::ErrorKind;
use prometheus::Registry;

use crate::harness::{Attempts, Node, Transport, block, blocks, config, fetch_all, key, node, until};
use crate::raw_peer::{CURRENT, RawPeer};

async fn connect(from: &Node, to: &Node) -> ipfrs_core::Result<()> {
    from.bitswap.connect(&to.address()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_info_has_agent_protocols_and_latency() {
    let (one, two) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    connect(&one, &two).await.unwrap();
    until(|| one.bitswap.peers()[0].latency.is_some() && !one.bitswap.peers()[0].agent_version.is_empty()).await;
    let info = one.bitswap.peers().remove(0);
    assert_eq!((info.id, info.direction), (two.bitswap.peer_id(), Direction::Outbound));
    assert!(info.agent_version.starts_with("ipfrs/"));
    assert!(info.protocols.iter().any(|protocol| protocol == "/ipfs/bitswap/1.2.0"));
    assert_eq!(one.bitswap.known_addrs()[&info.id], two.bitswap.listen_addrs());
    until(|| two.bitswap.peers().len() == 1).await;
    assert_eq!(two.bitswap.peers()[0].direction, Direction::Inbound);
    assert!(one.bitswap.disconnect(info.id).await);
    until(|| one.bitswap.peers().is_empty() && two.bitswap.peers().is_empty()).await;
    assert!(!one.bitswap.disconnect(info.id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_connection_to_an_address_is_closed() {
    let node = node(config(Transport::Tcp)).await;
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&node).await;
    peer.dial(&node).await;
    let at = |address: &str| address.parse::<ipfrs_bitswap::Multiaddr>().unwrap().with_p2p(peer.id).unwrap();
    assert!(!node.bitswap.disconnect_address(&at("/ip4/127.0.0.1/tcp/1")).await.unwrap());
    assert_eq!(node.bitswap.peers()[0].direction, Direction::Outbound);
    let dialed = at(&peer.address.to_string());
    assert!(node.bitswap.disconnect_address(&dialed).await.unwrap());
    assert!(!node.bitswap.disconnect_address(&dialed).await.unwrap());
    until(|| node.bitswap.peers().iter().any(|peer| peer.direction == Direction::Inbound)).await;
    let without = format!("/p2p/{}", peer.id).parse().unwrap();
    assert_eq!(node.bitswap.disconnect_address(&without).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_applies_to_providers_and_not_to_the_operator() {
    let server = node(config(Transport::Tcp)).await;
    let filter = Arc::new(|ip: &std::net::IpAddr| !ip.is_loopback());
    let blocks = Arc::clone(&server.blocks) as Arc<dyn ipfrs_bitswap::BlockProvider>;
    let registry = Registry::new();
    let client = Bitswap::start(config(Transport::Tcp), &key(), blocks, filter, &registry).await.unwrap();
    let attempts = Attempts::default();
    let session = client.session(attempts.trace());
    let (id, mut addresses) = server.provider();
    let port = addresses[0].iter().nth(1).unwrap();
    addresses.push("/dns4/localhost".parse::<ipfrs_bitswap::Multiaddr>().unwrap().with(port));
    session.add_providers(vec![(id, addresses)]);
    let wanted = block(1, 1);
    server.blocks.insert(&wanted);
    assert_eq!(session.get(wanted.cid()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(attempts.outcomes(id), [Outcome::NoAddress]);
    client.connect(&server.address()).await.unwrap();
    let session = client.session(None);
    session.add_providers(vec![(id, Vec::new())]);
    fetch_all(&session, &[wanted]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconnected_peers_have_the_reason_of_the_last_failure() {
    let server = node(config(Transport::Tcp)).await;
    let (address, id) = (server.address(), server.bitswap.peer_id());
    server.bitswap.shutdown().await;
    let client = node(BitswapConfig { peers: vec![address], ..config(Transport::Tcp) }).await;
    assert_eq!(client.bitswap.unconnected_peers()[0].0, id);
    until(|| client.bitswap.unconnected_peers()[0].1.is_some()).await;
    client.bitswap.remove_steady(id);
    assert_eq!(client.bitswap.unconnected_peers(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_peer_is_connected_again_after_a_disconnect() {
    let server = node(config(Transport::Tcp)).await;
    let peers = vec![server.address()];
    let client = node(BitswapConfig { peers, ..config(Transport::Tcp) }).await;
    for _ in 0..2 {
        until(|| client.bitswap.chosen_peers() == [server.bitswap.peer_id()]).await;
        client.bitswap.disconnect(server.bitswap.peer_id()).await;
        until(|| client.bitswap.chosen_peers().is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_beyond_the_limit_are_refused() {
    let limited = node(BitswapConfig { max_peers: 1, ..config(Transport::Tcp) }).await;
    let (first, second) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    connect(&first, &limited).await.unwrap();
    until(|| limited.bitswap.peers().len() == 1).await;
    // The dialer learns of the refusal after the handshake.
    connect(&second, &limited).await.ok();
    until(|| limited.metric("refused_connections_total", "") >= 1.0 && second.bitswap.peers().is_empty()).await;
    assert_eq!(limited.bitswap.peers()[0].id, first.bitswap.peer_id());
    let attempts = Attempts::default();
    let session = limited.bitswap.session(attempts.trace());
    session.add_providers(vec![second.provider()]);
    session.get(block(1, 1).cid()).await.unwrap_err();
    assert_eq!(attempts.outcomes(second.bitswap.peer_id()), [Outcome::NotConnected]);
    connect(&limited, &second).await.expect("the limit does not concern the operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn inbound_peers_leave_a_quarter_for_dials() {
    let limited = node(BitswapConfig { max_peers: 4, ..config(Transport::Tcp) }).await;
    let mut inbound = Vec::new();
    for count in 1..=3 {
        let peer = node(config(Transport::Tcp)).await;
        connect(&peer, &limited).await.unwrap();
        until(|| limited.bitswap.peers().len() == count).await;
        inbound.push(peer);
    }
    let refused = node(config(Transport::Tcp)).await;
    connect(&refused, &limited).await.ok();
    until(|| limited.metric("refused_connections_total", "") >= 1.0).await;
    let (provider, wanted) = (node(config(Transport::Tcp)).await, block(1, 1));
    provider.blocks.insert(&wanted);
    let session = limited.bitswap.session(None);
    session.add_providers(vec![provider.provider()]);
    fetch_all(&session, &[wanted]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_inbound_peer_is_evicted_for_another_one() {
    // An inbound peer is unused after one second.
    let limited = BitswapConfig { max_peers: 1, idle_timeout_seconds: 8, ..config(Transport::Tcp) };
    let limited = node(limited).await;
    let (idle, other) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    connect(&idle, &limited).await.unwrap();
    until(|| limited.bitswap.peers().len() == 1).await;
    while limited.bitswap.stat().peers != [other.bitswap.peer_id()] {
        // Refused until then.
        connect(&other, &limited).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_dial_each_other_stay_connected() {
    let (one, two) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let (from_one, from_two) = futures::future::join(connect(&one, &two), connect(&two, &one)).await;
    from_one.unwrap();
    from_two.unwrap();
    let wanted = blocks(10, 1000);
    wanted.iter().for_each(|block| two.blocks.insert(block));
    let session = one.bitswap.session(None);
    session.add_providers(vec![two.provider()]);
    fetch_all(&session, &wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_keeps_the_node_running() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let wanted = block(1, 1000);
    server.blocks.insert(&wanted);
    let session = client.bitswap.session(None);
    drop(client);
    session.add_providers(vec![server.provider()]);
    fetch_all(&session, &[wanted]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_connection_is_closed() {
    let short = || BitswapConfig { idle_timeout_seconds: 1, ..config(Transport::Tcp) };
    let (one, two) = (node(short()).await, node(short()).await);
    connect(&one, &two).await.unwrap();
    until(|| one.bitswap.peers().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_network_needs_the_same_key() {
    let private = |byte| BitswapConfig {
        private_network_key: Some(PrivateNetworkKey::from([byte; 32])),
        ..config(Transport::Tcp)
    };
    let other = BitswapConfig { dial_timeout_seconds: 2, ..private(2) };
    let (one, two, other) = (node(private(1)).await, node(private(1)).await, node(other).await);
    let public = node(BitswapConfig { dial_timeout_seconds: 2, ..config(Transport::Tcp) }).await;
    connect(&one, &two).await.unwrap();
    connect(&other, &two).await.unwrap_err();
    connect(&public, &two).await.unwrap_err();
    let wanted = block(1, 300_000);
    two.blocks.insert(&wanted);
    let session = one.bitswap.session(None);
    session.add_providers(vec![two.provider()]);
    fetch_all(&session, &[wanted]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn busy_port_fails_the_start() {
    let first = node(config(Transport::Tcp)).await;
    let listen = first.bitswap.listen_addrs();
    let blocks = Arc::clone(&first.blocks) as Arc<dyn ipfrs_bitswap::BlockProvider>;
    let config = BitswapConfig { listen, ..BitswapConfig::default() };
    let error = Bitswap::start(config, &key(), blocks, Arc::new(|_| true), &Registry::new()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("/ip4/127.0.0.1/tcp/"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_another_machine_fails_the_start_with_the_cause() {
    let blocks = Arc::clone(&node(config(Transport::Tcp)).await.blocks) as Arc<dyn ipfrs_bitswap::BlockProvider>;
    // An address for documentation (RFC 5737), which no machine has.
    let text = "listen = ['/ip4/192.0.2.1/tcp/0']";
    let config: BitswapConfig = toml::from_str(text).unwrap();
    let error = Bitswap::start(config, &key(), blocks, Arc::new(|_| true), &Registry::new()).await.unwrap_err();
    assert!(error.message().contains("cannot listen on /ip4/192.0.2.1/tcp/0: "), "{error}");
    assert!(error.message().contains("assign requested address"), "{error}");
}

#[test]
fn configuration_names_key_value_and_range() {
    let valid: BitswapConfig = toml::from_str("enabled = true\nlisten = ['/ip6/::1/tcp/0']").unwrap();
    valid.validate().unwrap();
    let id = PeerId::random();
    let key = "00".repeat(32);
    let cases = [
        ("max_peers = 0".to_owned(), "retrieval.bitswap.max_peers is 0: it must be from 1 to 10000"),
        ("response_timeout_seconds = 601".to_owned(), "response_timeout_seconds is 601"),
        ("listen = ['/ip4/127.0.0.1/tcp/1/ws']".to_owned(), "/ip4/127.0.0.1/tcp/1/ws is not an address"),
        ("peers = ['/ip4/127.0.0.1/tcp/1']".to_owned(), "does not end in /p2p/"),
        (format!("peers = ['/p2p/{id}']"), "has no address before /p2p/"),
        (
            format!("private_network_key = '{key}'\nlisten = ['/ip4/127.0.0.1/udp/1/quic-v1']"),
            "quic-v1 is not an address",
        ),
    ];
    for (text, expected) in cases {
        let config: BitswapConfig = toml::from_str(&text).unwrap();
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(expected), "{error}");
    }
    toml::from_str::<BitswapConfig>("unknown = 1").unwrap_err();
    let error = toml::from_str::<BitswapConfig>("private_network_key = '12'").unwrap_err().to_string();
    assert!(error.contains("64 hexadecimal digits"), "{error}");
    let config: BitswapConfig = toml::from_str(&format!("private_network_key = '{key}'")).unwrap();
    assert!(!format!("{config:?}").contains(&key));
}
