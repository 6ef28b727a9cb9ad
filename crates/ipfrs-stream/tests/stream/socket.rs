//! Tests of the socket over loopback, byte for byte, with various kinds of clients.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::StreamExt;
use ipfrs_store::{BlockStore, BlockStoreExt, MemoryStore, PackOptions, PackStore};
use ipfrs_stream::{Bandwidth, DagReader, FlowControl, Socket, Span, StreamingConfig};
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::dag::{flat_file, pattern, raw, root};
use crate::store::{CountingStore, put};

/// Socket buffer size that is smaller than anything the tests send at once.
const SMALL_BUFFER: u32 = 8 * 1024;

/// Opens a connection and returns its server side and its client side, with small or default kernel buffers.
async fn connection(store: &dyn BlockStore, small_buffers: bool) -> (Socket, TcpStream, Bandwidth) {
    let (listening, client) = (TcpSocket::new_v4().unwrap(), TcpSocket::new_v4().unwrap());
    if small_buffers {
        listening.set_send_buffer_size(SMALL_BUFFER).unwrap();
        client.set_recv_buffer_size(SMALL_BUFFER).unwrap();
    }
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listening.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, client) = tokio::join!(listener.accept(), client.connect(address));
    let stream = accepted.unwrap().0;
    stream.set_nodelay(true).unwrap();
    let bandwidth = Bandwidth::default();
    (Socket::new(stream, store.mappings(), bandwidth.clone()), client.unwrap(), bandwidth)
}

/// Writes all of `parts` like a server: vectored, and continuing after partial writes.
async fn write_all(socket: &mut Socket, parts: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        let sent = poll_fn(|cx| Pin::new(&mut *socket).poll_write_vectored(cx, rest)).await?;
        assert!(sent > 0);
        IoSlice::advance_slices(&mut rest, sent);
    }
    Ok(())
}

/// Opens a store, which a test closes at its end: it would otherwise write to a directory that is being removed.
fn pack_store(dir: &tempfile::TempDir) -> PackStore {
    PackStore::open(dir.path(), PackOptions::default()).unwrap()
}

/// Returns blocks of sizes around the threshold, once as slices of a mapped pack and once in ordinary memory.
async fn mapped_and_heap(store: &PackStore) -> (Vec<Bytes>, Vec<Bytes>) {
    let sizes = [0, 1, 100, 16_384, 32_767, 32_768, 32_769, 65_536, 262_144, 1 << 20, 2 << 20];
    let blocks: Vec<_> = sizes.iter().map(|size| raw(pattern(*size as u64, *size))).collect();
    put(store, &blocks).await;
    let mappings = store.mappings().unwrap();
    let mut mapped = Vec::new();
    for block in &blocks {
        let bytes = store.require(block.cid()).await.unwrap();
        assert_eq!(mappings.locate(&bytes).is_some(), !bytes.is_empty());
        mapped.push(bytes);
    }
    (mapped, blocks.iter().map(|block| block.data().clone()).collect())
}

#[tokio::test]
async fn any_mix_of_mapped_and_ordinary_slices_arrives_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let store = pack_store(&dir);
    let (mapped, heap) = mapped_and_heap(&store).await;
    for (seed, small_buffers) in (0..12).zip([false, true].into_iter().cycle()) {
        let mut random = rand::rngs::SmallRng::seed_from_u64(seed);
        let mut parts: Vec<_> = mapped.iter().chain(&heap).cloned().collect();
        for _ in 0..8 {
            let whole = parts.choose(&mut random).unwrap();
            let (from, to) = (random.random_range(0..=whole.len()), random.random_range(0..=whole.len()));
            parts.push(whole.slice(from.min(to)..to.max(from)));
        }
        parts.shuffle(&mut random);

        let (mut socket, mut client, bandwidth) = connection(&store, small_buffers).await;
        let sending = async {
            write_all(&mut socket, &parts).await.unwrap();
            // Also without vectored writes, like `write_all` of an ordinary writer.
            for part in &parts {
                socket.write_all(part).await.unwrap();
            }
            socket.flush().await.unwrap();
            socket.shutdown().await.unwrap();
        };
        let mut received = Vec::new();
        let receiving = async { while client.read_buf(&mut received).await.unwrap() > 0 {} };
        tokio::join!(sending, receiving);
        let expected = parts.concat().repeat(2);
        assert!(received == expected, "seed {seed}: the bytes differ");
        assert_eq!(bandwidth.snapshot().total_out, expected.len() as u64);
    }
    store.close().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn socket_is_corked_only_while_large_response_continues() {
    use rustix::net::sockopt::tcp_cork;
    use std::os::fd::AsFd;

    let dir = tempfile::tempdir().unwrap();
    let store = pack_store(&dir);
    let block = raw(pattern(1, 600_000));
    put(&store, std::slice::from_ref(&block)).await;
    let leaf = store.require(block.cid()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (accepted, client) = tokio::join!(listener.accept(), TcpStream::connect(listener.local_addr().unwrap()));
    let (stream, client) = (accepted.unwrap().0, client.unwrap());
    // A duplicate of the same socket, for inspection.
    let kernel = stream.as_fd().try_clone_to_owned().unwrap();
    let is_corked = || tcp_cork(&kernel).unwrap();
    let mut socket = Socket::new(stream, store.mappings(), Bandwidth::default());
    let traffic = socket.traffic();
    let (mut reading, mut writing) = client.into_split();
    let received = tokio::spawn(async move {
        let mut received = Vec::new();
        reading.read_to_end(&mut received).await.unwrap();
        received
    });
    let mut sent = Vec::new();
    let small = leaf.slice(..1_000);
    for (parts, more_follows) in [
        // A single response without further data.
        (vec![small.clone(), leaf.clone()], false),
        (vec![small.clone()], true),
        // Slices that are copied.
        (vec![leaf.slice(..32_767), leaf.slice(..32_767)], true),
        // One write that nothing follows.
        (vec![small.clone(), leaf.clone(), leaf.clone()], false),
        // The first of many writes, one after a wait, and the last one.
        (vec![small.clone(), leaf.clone()], true),
        (vec![leaf.slice(..32_768)], true),
        (vec![leaf.clone()], false),
        (vec![small.clone(), leaf.clone()], true),
        (vec![], false),
    ] {
        traffic.set_more_follows(more_follows);
        write_all(&mut socket, &parts).await.unwrap();
        socket.flush().await.unwrap();
        let is_large = parts.iter().any(|part| part.len() >= 32_768);
        assert_eq!(is_corked(), more_follows && is_large, "{} parts, more: {more_follows}", parts.len());
        sent.extend(parts.concat());
    }
    // In HTTP/2, many responses share one socket.
    writing.write_all(b"PRI ").await.unwrap();
    socket.read_exact(&mut [0; 4]).await.unwrap();
    traffic.set_more_follows(true);
    write_all(&mut socket, &[leaf.clone(), leaf.clone()]).await.unwrap();
    assert!(!is_corked());
    drop(writing);
    socket.shutdown().await.unwrap();
    sent.extend([&*leaf, &*leaf].concat());
    assert!(received.await.unwrap() == sent, "the bytes differ");
    store.close().await.unwrap();
}

#[tokio::test]
async fn unread_bytes_are_read_again_in_order() {
    let (socket, mut client, _) = connection(&MemoryStore::default(), false).await;
    client.write_all(b"ghi").await.unwrap();
    client.shutdown().await.unwrap();
    let mut socket = socket.with_unread(Bytes::from_static(b"abcdef"));
    let mut first = [0; 3];
    socket.read_exact(&mut first).await.unwrap();
    // A second protocol has read these bytes and returns the last of them.
    let mut socket = socket.with_unread(Bytes::from_static(b"bc"));
    let mut rest = String::new();
    socket.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "bcdefghi");
}

#[tokio::test]
async fn more_slices_than_one_system_call_takes_arrive_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let store = pack_store(&dir);
    let (mapped, _) = mapped_and_heap(&store).await;
    let mut parts: Vec<_> = (0..3_000_u32).map(|n| Bytes::copy_from_slice(&n.to_be_bytes())).collect();
    parts.insert(2_500, mapped[8].clone());
    let (mut socket, mut client, _) = connection(&store, false).await;
    let mut received = vec![0; parts.iter().map(Bytes::len).sum()];
    tokio::try_join!(write_all(&mut socket, &parts), client.read_exact(&mut received)).unwrap();
    assert!(received == parts.concat());
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_in_small_steps_gets_everything() {
    let dir = tempfile::tempdir().unwrap();
    let store = pack_store(&dir);
    let (mapped, _) = mapped_and_heap(&store).await;
    let parts = [Bytes::from_static(b"head"), mapped[10].clone(), Bytes::from_static(b"between"), mapped[9].clone()];
    let expected = parts.concat();
    let (mut socket, mut client, _) = connection(&store, true).await;
    let sending = write_all(&mut socket, &parts);
    let receiving = async {
        let mut received = Vec::new();
        for step in [1, 7, 300, 1_000, 4_096].into_iter().cycle() {
            let mut buffer = vec![0; step];
            match client.read(&mut buffer).await.unwrap() {
                0 => panic!("the connection ended after {} bytes", received.len()),
                read => received.extend_from_slice(&buffer[..read]),
            }
            if received.len() == expected.len() {
                return received;
            }
        }
        received
    };
    let (sent, received) = tokio::join!(sending, receiving);
    sent.unwrap();
    assert!(received == expected);
    store.close().await.unwrap();
}

#[tokio::test]
async fn half_closed_client_gets_full_response() {
    let dir = tempfile::tempdir().unwrap();
    let store = pack_store(&dir);
    let (mapped, heap) = mapped_and_heap(&store).await;
    let (mut socket, mut client, bandwidth) = connection(&store, true).await;
    let parts = [heap[2].clone(), mapped[10].clone(), mapped[9].clone()];
    let serving = async {
        let mut request = Vec::new();
        socket.read_to_end(&mut request).await.unwrap();
        write_all(&mut socket, &parts).await.unwrap();
        socket.shutdown().await.unwrap();
        request
    };
    let asking = async {
        client.write_all(b"GET").await.unwrap();
        client.shutdown().await.unwrap();
        let mut response = Vec::new();
        client.read_to_end(&mut response).await.unwrap();
        response
    };
    let (request, response) = tokio::join!(serving, asking);
    assert_eq!(request, b"GET");
    assert!(response == parts.concat());
    let moved = bandwidth.snapshot();
    assert_eq!((moved.total_in, moved.total_out), (3, response.len() as u64));
    store.close().await.unwrap();
}

#[tokio::test]
async fn client_that_keeps_sending_gets_full_response() {
    for beginning in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"GET / HTTP/1.1\r\n\r\n"] {
        sends_to_the_end(beginning).await;
    }
}

async fn sends_to_the_end(beginning: &'static [u8]) {
    let (mut socket, mut client, _) = connection(&MemoryStore::default(), true).await;
    let answer = Bytes::from(pattern(1, 200_000));
    let sent = answer.clone();
    let serving = async move {
        socket.read_exact(&mut vec![0; beginning.len()]).await.unwrap();
        write_all(&mut socket, &[sent]).await.unwrap();
        socket.shutdown().await.unwrap();
    };
    let asking = async move {
        client.write_all(beginning).await.unwrap();
        let (mut response, mut buffer) = (Vec::new(), [0; 1_000]);
        loop {
            match client.read(&mut buffer).await.unwrap() {
                0 => return response,
                read => response.extend_from_slice(&buffer[..read]),
            }
            // HTTP/2 clients send window updates, and HTTP/1.1 clients pipeline requests, before they have their
            // responses.
            client.write_all(b"taken").await.unwrap();
        }
    };
    let ((), response) = tokio::join!(serving, asking);
    assert!(response == answer);
}

#[tokio::test]
async fn http2_short_writes_are_combined_until_next_poll() {
    let (mut socket, mut client, bandwidth) = connection(&MemoryStore::default(), false).await;
    client.write_all(b"PRI * HTTP/2.0").await.unwrap();
    socket.read_exact(&mut [0; 14]).await.unwrap();
    let (parts, large) =
        ([Bytes::from_static(b"head"), Bytes::from(pattern(1, 1_024))], Bytes::from(pattern(2, 5_000)));
    for _ in 0..3 {
        write_all(&mut socket, &parts).await.unwrap();
        socket.flush().await.unwrap();
    }
    assert_eq!(bandwidth.snapshot().total_out, 0);
    // The task that wrote them was woken to read, but has nothing to read.
    assert!(socket.read(&mut [0]).now_or_never().is_none());
    assert_eq!(bandwidth.snapshot().total_out, 3 * 1_028);
    // A long write is sent after the held bytes, and at once.
    write_all(&mut socket, &parts).await.unwrap();
    write_all(&mut socket, std::slice::from_ref(&large)).await.unwrap();
    assert_eq!(bandwidth.snapshot().total_out, 4 * 1_028 + 5_000);
    // More bytes than the socket holds, and the end of the connection.
    for _ in 0..100 {
        write_all(&mut socket, &parts).await.unwrap();
    }
    assert!(bandwidth.snapshot().total_out > 40 * 1_028);
    let expected = [parts.concat().repeat(4), large.to_vec(), parts.concat().repeat(100)].concat();
    let read = async {
        let mut received = vec![0; expected.len()];
        client.read_exact(&mut received).await.unwrap();
        drop(client);
        received
    };
    let (shut, received) = tokio::join!(socket.shutdown(), read);
    shut.unwrap();
    assert!(received == expected);
}

#[tokio::test]
async fn http2_short_writes_are_sent_at_once_without_holding() {
    let (socket, mut client, bandwidth) = connection(&MemoryStore::default(), false).await;
    let mut socket = socket.sending_at_once();
    client.write_all(b"PRI * HTTP/2.0").await.unwrap();
    socket.read_exact(&mut [0; 14]).await.unwrap();
    write_all(&mut socket, &[Bytes::from_static(b"head")]).await.unwrap();
    assert_eq!(bandwidth.snapshot().total_out, 4);
}

#[tokio::test]
async fn transfer_and_fetches_stop_when_client_disconnects() {
    const LEAF: usize = 256 * 1024;
    let dir = tempfile::tempdir().unwrap();
    let blocks = flat_file(128, LEAF);
    let file = root(blocks.last().unwrap());
    let store = Arc::new(CountingStore::new(pack_store(&dir)));
    put(&*store, &blocks).await;
    let flow_control = FlowControl::Conservative;
    let config = StreamingConfig { flow_control, ..StreamingConfig::default() };
    let (mut socket, mut client, bandwidth) = connection(&*store, true).await;

    let mut reader = DagReader::new(store.clone(), &file, Span::whole(file.size), &config);
    let serving = async {
        while let Some(piece) = reader.next().await {
            write_all(&mut socket, &[piece.unwrap()]).await?;
        }
        Ok::<(), io::Error>(())
    };
    let leaving = async {
        let mut some = vec![0; 3 * LEAF + 17];
        client.read_exact(&mut some).await.unwrap();
        drop(client);
        some
    };
    let (served, received) = tokio::join!(serving, leaving);
    let expected: Vec<_> = blocks[..4].iter().map(|block| &block.data()[..]).collect();
    assert!(received == expected.concat()[..received.len()]);
    let error = served.unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{error}");

    let sent = bandwidth.snapshot().total_out;
    assert!(sent >= received.len() as u64 && sent < file.size / 2, "{sent} bytes were sent");
    // The bytes that were sent, the current piece, and the window.
    let bound = sent + LEAF as u64 + flow_control.window_bytes();
    assert!(store.fetched_bytes() <= bound, "{} fetched, {sent} sent", store.fetched_bytes());
    drop(reader);
    assert_eq!(Arc::strong_count(&store.under_way), 1, "nothing is being fetched any more");
    store.inside.close().await.unwrap();
}

#[tokio::test]
async fn socket_fails_after_mapped_file_is_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let store = pack_store(&dir);
    let block = raw(pattern(1, 20_000));
    put(&store, std::slice::from_ref(&block)).await;
    let bytes = store.require(block.cid()).await.unwrap();
    let (mut before, mut client, _) = connection(&store, false).await;
    write_all(&mut before, std::slice::from_ref(&bytes)).await.unwrap();

    let pack = std::fs::OpenOptions::new().write(true).open(dir.path().join("packs/00000001.car")).unwrap();
    pack.set_len(4_096).unwrap();
    // For missing pages, `sendfile` reports an error. After this process has read them as zeros, the kernel would
    // send zeros.
    assert!(write_all(&mut before, std::slice::from_ref(&bytes)).await.is_err());
    assert_eq!(bytes[19_999], 0);
    let refused = write_all(&mut before, &[Bytes::from_static(b"anything")]).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    drop(before);
    let mut received = Vec::new();
    let end = client.read_to_end(&mut received).await;
    assert_eq!(end.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!([block.data().as_ref(), block.data()].concat().starts_with(&received));

    let (mut after, mut client, _) = connection(&store, false).await;
    write_all(&mut after, &[Bytes::from_static(b"anything")]).await.unwrap();
    after.shutdown().await.unwrap();
    received.clear();
    client.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"anything");
    let _lost_bytes = store.close().await;
}
