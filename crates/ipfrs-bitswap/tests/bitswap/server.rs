//! The server, as raw peers see it.

use std::collections::HashSet;

use ipfrs_bitswap::BitswapConfig;
use ipfrs_core::Cid;

use crate::harness::{Transport, block, blocks, config, fetch_all, node, until};
use crate::raw_peer::{CURRENT, Message, RawPeer};

#[tokio::test(flavor = "multi_thread")]
async fn presence_wants_return_have_or_a_small_block() {
    let server = node(config(Transport::Tcp)).await;
    let (small, large, missing) = (block(1, 1024), block(2, 1025), block(3, 10));
    server.blocks.insert(&small);
    server.blocks.insert(&large);
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    let cids = [&small, &large, &missing].map(|block| *block.cid());
    peer.send(server.bitswap.peer_id(), &Message::wants(&cids, 1)).await;
    let response = peer.receive().await;
    assert_eq!(response.payload, Message::block(&small).payload);
    let presences: Vec<(Vec<u8>, i32)> = response.presences.into_iter().map(|p| (p.cid, p.kind)).collect();
    assert_eq!(presences, [(large.cid().to_bytes(), 0), (missing.cid().to_bytes(), 1)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_block_is_sent_when_it_is_stored() {
    let server = node(config(Transport::Tcp)).await;
    let late = block(1, 5000);
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    peer.send(server.bitswap.peer_id(), &Message::wants(&[*late.cid()], 0)).await;
    assert_eq!(peer.receive().await.presences[0].kind, 1);
    assert_eq!(server.bitswap.wantlist(Some(peer.id)), [*late.cid()]);
    server.blocks.insert(&late);
    server.bitswap.notify(&[*late.cid()]);
    assert_eq!(peer.receive().await.payload, Message::block(&late).payload);
    until(|| server.bitswap.wantlist(Some(peer.id)).is_empty()).await;
    assert_eq!(server.metric("wants", "server"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_dont_have_is_sent_unless_requested() {
    let server = node(config(Transport::Tcp)).await;
    let (present, missing) = (block(1, 100), block(2, 100));
    server.blocks.insert(&present);
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    let mut wants = Message::wants(&[*missing.cid(), *present.cid()], 0);
    wants.wantlist.as_mut().unwrap().entries.iter_mut().for_each(|entry| entry.send_dont_have = false);
    peer.send(server.bitswap.peer_id(), &wants).await;
    let response = peer.receive().await;
    assert_eq!((response.payload.len(), response.presences.len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_want_is_not_served_when_stored() {
    let server = node(config(Transport::Tcp)).await;
    let blocks = blocks(2, 100);
    let cids: Vec<Cid> = blocks.iter().map(|block| *block.cid()).collect();
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    peer.send(server.bitswap.peer_id(), &Message::wants(&cids, 0)).await;
    assert_eq!(peer.receive().await.presences.len(), 2);
    let mut cancel = Message::wants(&cids[..1], 0);
    cancel.wantlist.as_mut().unwrap().entries[0].cancel = true;
    peer.send(server.bitswap.peer_id(), &cancel).await;
    until(|| server.bitswap.wantlist(Some(peer.id)) == cids[1..]).await;
    blocks.iter().for_each(|block| server.blocks.insert(block));
    server.bitswap.notify(&cids);
    assert_eq!(peer.receive().await.payload, Message::block(&blocks[1]).payload);
    // A full wantlist replaces the rest.
    let full =
        Message { wantlist: Some(crate::raw_peer::Wantlist { entries: Vec::new(), full: true }), ..Default::default() };
    peer.send(server.bitswap.peer_id(), &Message::wants(&[*block(9, 9).cid()], 0)).await;
    peer.receive().await;
    peer.send(server.bitswap.peer_id(), &full).await;
    until(|| server.bitswap.wantlist(Some(peer.id)).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wantlist_flood_is_bounded_and_others_are_served() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let blocks = blocks(100, 30_000);
    blocks.iter().for_each(|block| server.blocks.insert(block));
    let mut flooder = RawPeer::start(CURRENT).await;
    flooder.connect(&server).await;
    let missing: Vec<Cid> = (0..20_000).map(|number| *block(1_000_000 + number, 8).cid()).collect();
    for part in missing.chunks(5000) {
        flooder.send(server.bitswap.peer_id(), &Message::wants(part, 0)).await;
    }
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    fetch_all(&session, &blocks).await;
    until(|| server.metric("messages_total", "received") >= 5.0).await;
    until(|| server.metric("ignored_wants_total", "") > 0.0).await;
    assert!(server.bitswap.wantlist(Some(flooder.id)).len() <= 1024);
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_that_reads_nothing_does_not_stop_others() {
    let small = BitswapConfig { max_memory_bytes: 16 << 20, ..config(Transport::Tcp) };
    let (server, client) = (node(small).await, node(config(Transport::Tcp)).await);
    let blocks = blocks(200, 256 * 1024);
    blocks.iter().for_each(|block| server.blocks.insert(block));
    let cids: Vec<Cid> = blocks.iter().map(|block| *block.cid()).collect();
    let mut stalled = Vec::new();
    for _ in 0..4 {
        let mut peer = RawPeer::start_with(CURRENT, false).await;
        peer.connect(&server).await;
        peer.send(server.bitswap.peer_id(), &Message::wants(&cids, 0)).await;
        stalled.push(peer);
    }
    until(|| stalled.iter().all(|peer| server.bitswap.wantlist(Some(peer.id)).len() < 200)).await;
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    fetch_all(&session, &blocks).await;
    // A stalled peer holds its own memory and the windows of its streams.
    for peer in &stalled {
        let waiting = server.bitswap.wantlist(Some(peer.id)).len();
        assert!(waiting > 150, "{waiting}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspended_lookups_of_stalled_peers_hold_no_reads() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let blocks = blocks(64, 256 * 1024);
    blocks.iter().for_each(|block| server.blocks.insert(block));
    let cids: Vec<Cid> = blocks.iter().map(|block| *block.cid()).collect();
    let mut stalled = Vec::new();
    // Three reads of each would take all of the 64 that the node does at the same time.
    for _ in 0..40 {
        let mut peer = RawPeer::start_with(CURRENT, false).await;
        peer.connect(&server).await;
        peer.send(server.bitswap.peer_id(), &Message::wants(&cids, 0)).await;
        stalled.push(peer);
    }
    let waiting = |peer: &RawPeer| server.bitswap.wantlist(Some(peer.id)).len();
    until(|| stalled.iter().all(|peer| waiting(peer) < 64)).await;
    let all_waiting = || stalled.iter().map(waiting).sum::<usize>();
    // All of them have come to a stop when nothing is read for them while another peer is served.
    let mut before = 0;
    while std::mem::replace(&mut before, all_waiting()) != before {
        let session = client.bitswap.session(None);
        session.add_providers(vec![server.provider()]);
        let served = tokio::time::timeout(std::time::Duration::from_secs(60), fetch_all(&session, &blocks));
        served.await.expect("the stalled peers hold all reads");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_limit_wait() {
    use futures::AsyncWriteExt;
    let server = node(config(Transport::Tcp)).await;
    let stored = block(1, 100);
    server.blocks.insert(&stored);
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    let mut streams = Vec::new();
    for _ in 0..200 {
        let mut stream = peer.open(server.bitswap.peer_id()).await;
        // The length of a message that does not arrive.
        stream.write_all(&[5]).await.unwrap();
        stream.flush().await.unwrap();
        streams.push(stream);
    }
    until(|| server.metric("delayed_streams_total", "") >= 136.0).await;
    peer.send(server.bitswap.peer_id(), &Message::wants(&[*stored.cid()], 0)).await;
    until(|| server.metric("delayed_streams_total", "") >= 137.0).await;
    drop(streams);
    assert_eq!(peer.receive().await.payload, Message::block(&stored).payload);
}

async fn old_version_exchanges_blocks(protocol: &'static str) {
    let node = node(config(Transport::Tcp)).await;
    let (ours, theirs, missing) = (block(1, 5000), block(2, 5000), block(3, 1));
    node.blocks.insert(&ours);
    let mut peer = RawPeer::start(protocol).await;
    peer.connect(&node).await;
    let is_oldest = protocol == "/ipfs/bitswap/1.0.0";
    peer.send(node.bitswap.peer_id(), &Message::wants(&[*missing.cid(), *ours.cid()], 0)).await;
    let response = peer.receive().await;
    let data = if is_oldest { response.blocks[0].clone() } else { response.payload[0].data.clone() };
    assert_eq!((data, response.presences.len()), (ours.data().to_vec(), 0));

    let session = node.bitswap.session(None);
    session.add_providers(vec![peer.provider()]);
    let serve = async {
        let message = peer.receive().await;
        let entry = &message.entries()[0];
        assert_eq!((entry.kind, entry.send_dont_have), (0, false));
        let mut response = Message::block(&theirs);
        if is_oldest {
            response = Message { blocks: vec![theirs.data().to_vec()], ..Message::default() };
        }
        peer.send(node.bitswap.peer_id(), &response).await;
    };
    let (fetched, ()) = futures::future::join(session.get(theirs.cid()), serve).await;
    assert_eq!(fetched.unwrap(), theirs);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_1_exchanges_blocks() {
    old_version_exchanges_blocks("/ipfs/bitswap/1.1.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_0_exchanges_blocks() {
    old_version_exchanges_blocks("/ipfs/bitswap/1.0.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_that_does_not_serve_has_no_blocks() {
    let private = BitswapConfig { serve: false, ..config(Transport::Tcp) };
    let (server, client) = (node(private).await, node(config(Transport::Tcp)).await);
    let block = block(1, 1);
    server.blocks.insert(&block);
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    assert_eq!(session.get(block.cid()).await.unwrap_err().missing_block(), Some(*block.cid()));
}

#[tokio::test(flavor = "multi_thread")]
async fn stat_and_ledger_count_both_directions() {
    let (one, two) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let (first, second) = (blocks(3, 1000), blocks(9, 2000));
    first.iter().for_each(|block| one.blocks.insert(block));
    second.iter().for_each(|block| two.blocks.insert(block));
    let session = two.bitswap.session(None);
    session.add_providers(vec![one.provider()]);
    fetch_all(&session, &first).await;
    let session = one.bitswap.session(None);
    session.add_providers(vec![two.provider()]);
    fetch_all(&session, &second).await;
    let stat = one.bitswap.stat();
    assert_eq!((stat.blocks_received, stat.data_received, stat.blocks_sent), (9, 18_000, 3));
    assert_eq!(stat.peers, [two.bitswap.peer_id()]);
    let ledger = one.bitswap.ledger(two.bitswap.peer_id());
    assert_eq!((ledger.sent, ledger.recv), (3000, 18_000));
    assert!(ledger.exchanged >= 4);
    assert_eq!(one.bitswap.ledger(one.bitswap.peer_id()).exchanged, 0);
    let names: HashSet<String> = one.registry.gather().iter().map(|family| family.name().to_owned()).collect();
    assert!(names.iter().all(|name| name.starts_with("ipfrs_bitswap_")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wants_beyond_the_limit_are_served_when_others_have_been() {
    let small = BitswapConfig { max_wants_per_peer: 16, ..config(Transport::Tcp) };
    let server = node(small).await;
    let blocks = blocks(200, 5_000);
    blocks.iter().for_each(|block| server.blocks.insert(block));
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    let cids: Vec<Cid> = blocks.iter().map(|block| *block.cid()).collect();
    peer.send(server.bitswap.peer_id(), &Message::wants(&cids, 0)).await;
    let mut received = 0;
    while received < blocks.len() {
        let next = tokio::time::timeout(std::time::Duration::from_secs(60), peer.receive());
        received += next.await.expect("the other wants were ignored").payload.len();
    }
    assert!(server.metric("ignored_wants_total", "") < 1.0);
}
