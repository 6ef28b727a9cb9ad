//! Blocks between nodes.

use std::net::IpAddr;
use std::pin::pin;
use std::slice;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _, poll};
use ipfrs_bitswap::{BitswapConfig, Outcome};
use ipfrs_core::ErrorKind;
use tokio::time::timeout;

use crate::harness::{Attempts, Transport, block, blocks, config, fetch_all, node, node_with_reads, until};

async fn blocks_of_all_sizes_arrive(transport: Transport) {
    let (server, client) = (node(config(transport)).await, node(config(transport)).await);
    let sizes = [0, 1, 1023, 1024, 1025, 16_384, 16_385, 262_144, 1 << 20, 2 << 20];
    let mut blocks: Vec<_> = sizes.iter().zip(0..).map(|(size, number)| block(number, *size)).collect();
    blocks.extend((100..400).map(|number| block(number, 65_536)));
    blocks.iter().for_each(|block| server.blocks.insert(block));
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    fetch_all(&session, &blocks).await;
    let bytes: usize = blocks.iter().map(|block| block.data().len()).sum();
    assert_eq!(client.bitswap.stat().data_received, bytes as u64);
    assert_eq!(client.bitswap.stat().dup_blks_received, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_all_sizes_arrive_over_tcp() {
    blocks_of_all_sizes_arrive(Transport::Tcp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_all_sizes_arrive_over_quic() {
    blocks_of_all_sizes_arrive(Transport::Quic).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_peers_share_the_load() {
    let client = node(config(Transport::Tcp)).await;
    let blocks = blocks(600, 20_000);
    let mut servers = Vec::new();
    let session = client.bitswap.session(None);
    for _ in 0..3 {
        let server = node(config(Transport::Tcp)).await;
        blocks.iter().for_each(|block| server.blocks.insert(block));
        client.bitswap.connect(&server.address()).await.unwrap();
        session.add_providers(vec![server.provider()]);
        servers.push(server);
    }
    fetch_all(&session, &blocks).await;
    for server in &servers {
        assert!(server.bitswap.stat().blocks_sent >= 50, "{}", server.bitswap.stat().blocks_sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_block_is_fetched_from_the_peer_that_has_it() {
    let client = node(config(Transport::Tcp)).await;
    let (without, with) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let blocks = blocks(10, 5000);
    blocks.iter().for_each(|block| with.blocks.insert(block));
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![without.provider(), with.provider()]);
    fetch_all(&session, &blocks).await;
    assert!(attempts.outcomes(with.bitswap.peer_id()).contains(&Outcome::Received));
    assert!(!attempts.outcomes(without.bitswap.peer_id()).contains(&Outcome::Received));
}

#[tokio::test(flavor = "multi_thread")]
async fn block_that_no_peer_has_is_not_found() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![server.provider()]);
    let missing = block(1, 10);
    let error = session.get(missing.cid()).await.unwrap_err();
    assert_eq!((error.kind(), error.missing_block()), (ErrorKind::NotFound, Some(*missing.cid())));
    assert_eq!(attempts.outcomes(server.bitswap.peer_id()), [Outcome::Connected, Outcome::DontHave]);
}

#[tokio::test(flavor = "multi_thread")]
async fn patient_caller_receives_a_block_that_is_stored_later() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let session = client.bitswap.session(None);
    let late = block(1, 5000);
    let mut patient = pin!(session.receive_when_available(late.cid(), None));
    assert!(poll!(&mut patient).is_pending());
    assert_eq!(session.get(late.cid()).await.unwrap_err().kind(), ErrorKind::Unavailable, "others do not wait");
    let connected = client.bitswap.next_connection();
    session.add_providers(vec![server.provider()]);
    connected.await;
    assert_eq!(session.get(late.cid()).await.unwrap_err().missing_block(), Some(*late.cid()));
    assert!(poll!(&mut patient).is_pending());
    assert_eq!(client.bitswap.wantlist(None), [*late.cid()]);
    assert_eq!(server.bitswap.wantlist(Some(client.bitswap.peer_id())), [*late.cid()], "the peer remembers it");
    server.blocks.insert(&late);
    server.bitswap.notify(&[*late.cid()]);
    assert_eq!(patient.await.unwrap().block, late);
    assert!(client.bitswap.wantlist(None).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn want_of_a_patient_caller_ends_with_the_caller() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    let missing = blocks(20, 10);
    let mut patient: Vec<_> =
        missing.iter().map(|block| Box::pin(session.receive_when_available(block.cid(), None))).collect();
    for caller in &mut patient {
        assert!(poll!(caller).is_pending());
    }
    let wanted = || server.bitswap.wantlist(Some(client.bitswap.peer_id())).len();
    until(|| wanted() == missing.len()).await;
    drop(patient);
    until(|| wanted() == 0 && client.bitswap.wantlist(None).is_empty()).await;
    // A peer that lacks what patient callers want is not dropped for it.
    server.blocks.insert(&missing[0]);
    assert_eq!(session.get(missing[0].cid()).await.unwrap(), missing[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_that_connects_again_is_asked_for_patient_callers() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    let late = block(1, 5000);
    let mut patient = pin!(session.receive_when_available(late.cid(), None));
    assert!(poll!(&mut patient).is_pending());
    assert_eq!(session.get(late.cid()).await.unwrap_err().missing_block(), Some(*late.cid()));
    // Without a notification, the peer does not serve the want that it has.
    server.blocks.insert(&late);
    assert!(client.bitswap.disconnect(server.bitswap.peer_id()).await);
    let received = timeout(Duration::from_secs(60), patient).await.expect("the peer is asked within a minute");
    assert_eq!(received.unwrap().block, late);
}

#[tokio::test(flavor = "multi_thread")]
async fn patient_callers_fail_once_waits_have_ended() {
    let client = node(config(Transport::Tcp)).await;
    let session = client.bitswap.session(None);
    let missing = block(1, 10);
    let mut patient = pin!(session.receive_when_available(missing.cid(), None));
    assert!(poll!(&mut patient).is_pending());
    client.bitswap.end_waits();
    assert_eq!(patient.await.unwrap_err().kind(), ErrorKind::Unavailable);
    let later = session.receive_when_available(missing.cid(), None).await;
    assert_eq!(later.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn patient_callers_have_a_limit_and_leave_half_of_it_to_other_clients() {
    let client = node(config(Transport::Tcp)).await;
    let session = client.bitswap.session(None);
    let missing = block(1, 10);
    let receive = |number| session.receive_when_available(missing.cid(), Some(IpAddr::from([127, 0, 0, number])));
    let mut patient: Vec<_> = (0..256).map(|_| Box::pin(receive(1))).collect();
    for caller in &mut patient {
        assert!(poll!(caller).is_pending());
    }
    assert_eq!(receive(1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let mut of_another = pin!(receive(2));
    patient.truncate(254);
    let mut next = pin!(receive(1));
    // The session handles calls in their order.
    assert!(poll!(&mut of_another).is_pending());
    assert!(poll!(&mut next).is_pending());
    assert_eq!(session.get(missing.cid()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(poll!(&mut of_another).is_pending());
    assert!(poll!(&mut next).is_pending());
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_is_dropped_after_16_dont_haves_in_a_row() {
    let (server, client) = (node(config(Transport::Tcp)).await, node(config(Transport::Tcp)).await);
    let attempts = Attempts::default();
    let session = client.bitswap.session(attempts.trace());
    session.add_providers(vec![server.provider()]);
    for missing in blocks(16, 10) {
        session.get(missing.cid()).await.unwrap_err();
    }
    let outcomes = attempts.outcomes(server.bitswap.peer_id());
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Outcome::DontHave).count(), 16);
    assert_eq!(outcomes.last(), Some(&Outcome::Dropped));
    let error = session.get(block(99, 10).cid()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_gets_of_one_block_fetch_it_once() {
    let (server, client) = (node_with_reads(config(Transport::Tcp), 0).await, node(config(Transport::Tcp)).await);
    let wanted = block(1, 100_000);
    server.blocks.insert(&wanted);
    let (one, two) = (client.bitswap.session(None), client.bitswap.session(None));
    one.add_providers(vec![server.provider()]);
    let copies = vec![wanted.clone(); 50];
    let allow = async {
        // A set of futures polls up to 32 of them before it yields.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        server.blocks.allow_reads(100);
    };
    futures::future::join(fetch_all(&one, &copies), allow).await;
    until(|| server.bitswap.stat().blocks_sent > 0).await;
    assert_eq!(server.bitswap.stat().blocks_sent, 1);
    // A block that two sessions want of a peer may be requested again after it has arrived.
    two.add_providers(vec![server.provider()]);
    futures::future::join(fetch_all(&one, slice::from_ref(&wanted)), fetch_all(&two, slice::from_ref(&wanted))).await;
    assert!(server.bitswap.stat().blocks_sent <= 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_without_peers_is_unavailable() {
    let client = node(config(Transport::Tcp)).await;
    let error = client.bitswap.session(None).get(block(1, 1).cid()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_cid_needs_no_peer() {
    let client = node(config(Transport::Tcp)).await;
    let hash = ipfrs_core::hash::HashFunction::Identity.digest(b"inline").unwrap();
    let cid = ipfrs_core::Cid::new_v1(ipfrs_core::codec::RAW, hash);
    assert_eq!(client.bitswap.session(None).get(&cid).await.unwrap().data().as_ref(), b"inline");
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_wait_until_received_blocks_are_dropped() {
    const MEMORY: usize = 16 << 20;
    const BLOCK: usize = 2_000_000;
    let small = BitswapConfig { max_memory_bytes: MEMORY, ..config(Transport::Tcp) };
    let (server, client) = (node(config(Transport::Tcp)).await, node(small).await);
    let blocks = blocks(12, BLOCK);
    blocks.iter().for_each(|block| server.blocks.insert(block));
    let session = client.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    let mut arriving: FuturesUnordered<_> = blocks.iter().map(|block| session.receive(block.cid())).collect();
    let mut held = Vec::new();
    while held.len() < MEMORY / BLOCK {
        held.push(arriving.next().await.unwrap().unwrap());
    }
    // The server could send the rest in the time in which another client receives everything.
    let other = node(config(Transport::Tcp)).await;
    let session = other.bitswap.session(None);
    session.add_providers(vec![server.provider()]);
    fetch_all(&session, &blocks).await;
    assert!(arriving.next().now_or_never().is_none(), "a block arrived without memory for it");
    while let Some(received) = {
        held.pop();
        arriving.next().await
    } {
        held.push(received.unwrap());
        assert!(held.len() <= MEMORY / BLOCK);
    }
    assert_eq!(client.bitswap.stat().data_received, (12 * BLOCK) as u64);
}
