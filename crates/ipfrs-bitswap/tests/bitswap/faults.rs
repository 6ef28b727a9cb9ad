//! Peers that disconnect, lie, stay silent or send garbage.

use futures::{AsyncReadExt, AsyncWriteExt};
use ipfrs_bitswap::{BitswapConfig, Outcome};
use ipfrs_core::{Cid, ErrorKind, Multihash, codec};

use crate::harness::{Attempts, Transport, block, blocks, config, fetch_all, node, node_with_reads, until};
use crate::raw_peer::{CURRENT, Message, RawPeer};

#[tokio::test(flavor = "multi_thread")]
async fn disconnect_in_mid_transfer_falls_over() {
    let client = node(config(Transport::Tcp)).await;
    // A peer has 8 reads at a time, which may complete out of order: of 20 blocks, up to 7 wait for an earlier one.
    let leaving = node_with_reads(config(Transport::Tcp), 20).await;
    let blocks = blocks(200, 50_000);
    blocks.iter().for_each(|block| leaving.blocks.insert(block));
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![leaving.provider()]);
    let transfer = fetch_all(&session, &blocks);
    let disconnect = async {
        until(|| leaving.bitswap.stat().blocks_sent >= 13).await;
        let staying = node(config(Transport::Tcp)).await;
        blocks.iter().for_each(|block| staying.blocks.insert(block));
        session.add_providers(vec![staying.provider()]);
        leaving.bitswap.shutdown().await;
        staying
    };
    let ((), staying) = futures::future::join(transfer, disconnect).await;
    assert!(attempts.outcomes(leaving.bitswap.peer_id()).contains(&Outcome::Disconnected));
    assert!(staying.bitswap.stat().blocks_sent >= 180);
}

#[tokio::test(flavor = "multi_thread")]
async fn lying_peer_is_excluded_and_another_one_asked() {
    // An honest peer may send a few blocks that an earlier connection requested.
    const TOLERATED: u8 = 8;
    let (client, honest) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let mut liar = RawPeer::start(CURRENT).await;
    let wanted = block(1, 50_000);
    honest.blocks.insert(&wanted);
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![liar.provider()]);
    let get = session.get(wanted.cid());
    let lie = async {
        liar.receive().await;
        session.add_providers(vec![honest.provider()]);
        for number in 1..=TOLERATED + 1 {
            let mut wrong = wanted.data().to_vec();
            wrong[40_000] ^= number;
            liar.send(client.bitswap.peer_id(), &Message::raw_block(wrong)).await;
        }
    };
    let (fetched, ()) = futures::future::join(get, lie).await;
    assert_eq!(fetched.unwrap(), wanted);
    assert_eq!(attempts.outcomes(liar.id), [Outcome::Connected, Outcome::Invalid]);
    assert_eq!(client.metric("unrequested_blocks_total", ""), f64::from(TOLERATED + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn block_of_an_earlier_connection_does_not_exclude_a_peer() {
    let client = node(config(Transport::Tcp)).await;
    let mut peer = RawPeer::start(CURRENT).await;
    let (former, wanted) = (block(1, 10), block(2, 10));
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![peer.provider()]);
    let serve = async {
        assert!(peer.receive().await.wantlist.unwrap().full, "the peer forgets earlier wants");
        peer.send(client.bitswap.peer_id(), &Message::block(&former)).await;
        until(|| client.metric("unrequested_blocks_total", "") >= 1.0).await;
        peer.send(client.bitswap.peer_id(), &Message::block(&wanted)).await;
    };
    let (fetched, ()) = futures::future::join(session.get(wanted.cid()), serve).await;
    assert_eq!(fetched.unwrap(), wanted);
    assert_eq!(attempts.outcomes(peer.id), [Outcome::Connected, Outcome::Received]);
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_digest_is_unsupported() {
    let client = node(config(Transport::Tcp)).await;
    let cid = Cid::new_v1(codec::RAW, Multihash::wrap(0x12, &[1; 20]).unwrap());
    let error = client.bitswap.session(None).get(&cid).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn stall_does_not_lose_the_only_peer() {
    let short = BitswapConfig { response_timeout_seconds: 1, ..config(Transport::Tcp) };
    let client = node(short).await;
    let mut peer = RawPeer::start(CURRENT).await;
    let wanted = blocks(10, 1000);
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![peer.provider()]);
    let stall = async {
        // The wants are sent again after the timeout of all of them.
        let mut entries = 0;
        while entries < 2 * wanted.len() {
            let message = peer.receive().await;
            assert!(message.entries().iter().all(|entry| !entry.cancel));
            entries += message.entries().len();
        }
        for block in &wanted {
            peer.send(client.bitswap.peer_id(), &Message::block(block)).await;
        }
    };
    futures::future::join(fetch_all(&session, &wanted), stall).await;
    let timeouts = attempts.outcomes(peer.id).iter().filter(|outcome| **outcome == Outcome::TimedOut).count();
    // More of them if this test is slower than the limit.
    assert!(timeouts >= wanted.len(), "{timeouts}");
}

#[tokio::test(flavor = "multi_thread")]
async fn block_after_the_timeout_is_accepted() {
    let short = BitswapConfig { response_timeout_seconds: 1, ..config(Transport::Tcp) };
    let client = node(short).await;
    let (mut late, mut silent) = (RawPeer::start(CURRENT).await, RawPeer::start(CURRENT).await);
    let wanted = block(1, 1000);
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![late.provider()]);
    let serve = async {
        late.receive().await;
        session.add_providers(vec![silent.provider()]);
        while !attempts.outcomes(late.id).contains(&Outcome::TimedOut) {
            silent.receive().await;
            until(|| attempts.outcomes(late.id).contains(&Outcome::TimedOut)).await;
        }
        late.send(client.bitswap.peer_id(), &Message::block(&wanted)).await;
    };
    let (fetched, ()) = futures::future::join(session.get(wanted.cid()), serve).await;
    assert_eq!(fetched.unwrap(), wanted);
    assert!(attempts.outcomes(late.id).contains(&Outcome::Received));
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_with_unrequested_blocks_is_disconnected() {
    let client = node(config(Transport::Tcp)).await;
    let mut spammer = RawPeer::start(CURRENT).await;
    spammer.connect(&client).await;
    let payload = blocks(65, 10).iter().flat_map(|block| Message::block(block).payload).collect();
    spammer.send(client.bitswap.peer_id(), &Message { payload, ..Message::default() }).await;
    until(|| client.bitswap.peers().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_peer_times_out_and_another_one_is_asked() {
    let short = BitswapConfig { response_timeout_seconds: 1, ..config(Transport::Tcp) };
    let (client, honest) = (node(short).await, node(config(Transport::Tcp)).await);
    let mut silent = RawPeer::start(CURRENT).await;
    let wanted = block(1, 50_000);
    honest.blocks.insert(&wanted);
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![silent.provider()]);
    let get = session.get(wanted.cid());
    let later = async {
        assert!(!silent.receive().await.entries()[0].cancel);
        session.add_providers(vec![honest.provider()]);
        assert!(silent.receive().await.entries()[0].cancel);
    };
    let (fetched, ()) = futures::future::join(get, later).await;
    assert_eq!(fetched.unwrap(), wanted);
    assert!(attempts.outcomes(silent.id).contains(&Outcome::TimedOut));
    let error = {
        let session = client.bitswap.session(None);
        session.add_providers(vec![silent.provider()]);
        session.get(block(2, 10).cid()).await.unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::Timeout);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_get_sends_a_cancel() {
    let client = node(config(Transport::Tcp)).await;
    let mut peer = RawPeer::start(CURRENT).await;
    let session = client.bitswap.session(None);
    session.add_providers(vec![peer.provider()]);
    let (first, second) = (block(1, 10), block(2, 10));
    {
        let get = session.get(first.cid());
        tokio::pin!(get);
        tokio::select! {
            _ = &mut get => panic!("nobody has the block"),
            message = peer.receive() => assert_eq!(message.entries()[0].cid, first.cid().to_bytes()),
        }
        assert_eq!(client.bitswap.wantlist(None), [*first.cid()]);
    }
    let cancel = peer.receive().await;
    assert_eq!((cancel.entries()[0].cancel, cancel.entries()[0].cid.clone()), (true, first.cid().to_bytes()));
    // A session that ends cancels the rest.
    let get = tokio::spawn(async move { session.get(second.cid()).await });
    assert_eq!(peer.receive().await.entries()[0].cid, block(2, 10).cid().to_bytes());
    get.abort();
    assert!(peer.receive().await.entries()[0].cancel);
    until(|| client.bitswap.wantlist(None).is_empty()).await;
    assert_eq!(client.metric("wants", "client"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_wants_are_cancelled_when_the_block_arrives() {
    let (client, honest) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let mut refusing = RawPeer::start(CURRENT).await;
    let wanted = block(1, 10);
    honest.blocks.insert(&wanted);
    let session = client.bitswap.session(None);
    session.add_providers(vec![refusing.provider()]);
    let get = session.get(wanted.cid());
    let refuse = async {
        let cid = refusing.receive().await.entries()[0].cid.clone();
        session.add_providers(vec![honest.provider()]);
        let presences = vec![crate::raw_peer::Presence { cid, kind: 1 }];
        refusing.send(client.bitswap.peer_id(), &Message { presences, ..Message::default() }).await;
        assert!(refusing.receive().await.entries()[0].cancel);
    };
    futures::future::join(get, refuse).await.0.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_messages_close_their_stream_only() {
    let server = node(config(Transport::Tcp)).await;
    let wanted = block(1, 100);
    server.blocks.insert(&wanted);
    let mut peer = RawPeer::start(CURRENT).await;
    peer.connect(&server).await;
    let too_long = unsigned_varint::encode::usize(5 << 20, &mut unsigned_varint::encode::usize_buffer()).to_vec();
    let cases: [(&str, &[u8]); 4] = [
        ("too_long", &too_long),
        ("too_long", &[0xff; 10]),
        ("protobuf", &[2, 0x0a, 9]),
        ("cid", &[7, 0x0a, 5, 0x0a, 3, 0x0a, 1, 7]),
    ];
    for (fault, bytes) in cases {
        let before = server.metric("malformed_messages_total", fault);
        let mut stream = peer.open(server.bitswap.peer_id()).await;
        stream.write_all(bytes).await.unwrap();
        stream.flush().await.unwrap();
        assert!(!matches!(stream.read(&mut [0]).await, Ok(1..)), "{fault}");
        assert_eq!(server.metric("malformed_messages_total", fault), before + 1.0, "{fault}");
    }
    peer.send(server.bitswap.peer_id(), &Message::wants(&[*wanted.cid()], 0)).await;
    assert_eq!(peer.receive().await.payload, Message::block(&wanted).payload);
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_without_bitswap_is_unsupported() {
    let client = node(config(Transport::Tcp)).await;
    let other = RawPeer::start("/other/1.0.0").await;
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![other.provider()]);
    assert_eq!(session.get(block(1, 1).cid()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(attempts.outcomes(other.id), [Outcome::Connected, Outcome::Unsupported]);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_ends_pending_gets() {
    let client = node(config(Transport::Tcp)).await;
    let mut silent = RawPeer::start(CURRENT).await;
    let session = client.bitswap.session(None);
    session.add_providers(vec![silent.provider()]);
    let shutdown = async {
        silent.receive().await;
        client.bitswap.shutdown().await;
    };
    let wanted = block(1, 1);
    let (error, ()) = futures::future::join(session.get(wanted.cid()), shutdown).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(client.bitswap.peers().is_empty());
    silent.stop();
}
