//! Packs that another program truncates or changes while the gateway runs. An incorrect response must be recognizable
//! as failed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, client};
use crate::tls::Issuer;
use crate::wire::{Answer, Wire};

/// Largest folio of the page cache. A cut inside of one also zeros what `sendfile` has put into the send buffers of
/// sockets, which the daemon cannot notice.
const FOLIO: u64 = 2 << 20;

fn pack(gateway: &TestGateway) -> (PathBuf, File) {
    let path = gateway.repo().path().join("packs/00000001.car");
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    (path, file)
}

/// Returns the body of the response to a GET of `url`, if the response is successful and complete.
async fn download(client: &Client, url: &str) -> Option<Bytes> {
    let answer = client.get(url).send().await.ok()?;
    let is_success = answer.status().is_success();
    let body = answer.bytes().await.ok()?;
    is_success.then_some(body)
}

/// Returns the blocks of a JSON batch, if the response is complete and contains all of them.
async fn batch(client: &Client, url: &str, cids: &[String]) -> Option<Vec<Vec<u8>>> {
    let answer = client.post(url).body(json!({"cids": cids}).to_string()).send().await.ok()?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
    let blocks = answer["blocks"].as_array().filter(|blocks| blocks.len() == cids.len())?;
    Some(blocks.iter().map(|block| STANDARD.decode(block["data"].as_str().unwrap()).unwrap()).collect())
}

/// Waits until the counter has reached `count`.
async fn until(counter: &AtomicUsize, count: usize) {
    while counter.load(Ordering::SeqCst) < count {
        tokio::task::yield_now().await;
    }
}

/// Results of the readers of one gateway.
#[derive(Default)]
struct Tally {
    right: AtomicUsize,
    broken: AtomicUsize,
    is_over: AtomicBool,
}

impl Tally {
    fn count<T: PartialEq>(&self, answer: Option<T>, expected: &T) {
        match answer {
            Some(answer) if answer == *expected => self.right.fetch_add(1, Ordering::SeqCst),
            Some(_) => panic!("an answer that looks right is wrong"),
            None => self.broken.fetch_add(1, Ordering::SeqCst),
        };
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_pack_never_yields_wrong_responses() {
    let gateway = TestGateway::start().await;
    let (small, large, tail) = (content::bytes(5_000), content::bytes(24 << 20), content::bytes(20_000));
    let small_cid = gateway.add("", small.clone()).await;
    let large_cid = gateway.add("", large.clone()).await;
    let blocks: Vec<_> = (0..40).map(|n| large.slice(n * 9_000..(n + 1) * 9_000).to_vec()).collect();
    let mut cids = Vec::new();
    for block in &blocks {
        cids.push(gateway.put_block("", block.clone()).await);
    }
    let tail_url = gateway.url(&format!("/ipfs/{}", gateway.add("", tail.clone()).await));
    let large_url = gateway.url(&format!("/ipfs/{large_cid}"));
    let batch_url = gateway.url("/v1/block/batch/get");

    let tally = Tally::default();
    let read = async |number: usize| {
        let client = match number % 3 {
            0 => client().http2_prior_knowledge().build().unwrap(),
            _ => client().build().unwrap(),
        };
        while !tally.is_over.load(Ordering::SeqCst) {
            match number % 2 {
                0 => tally.count(download(&client, &large_url).await, &large),
                _ => tally.count(batch(&client, &batch_url, &cids).await, &blocks),
            }
            tally.count(download(&client, &tail_url).await, &tail);
        }
    };
    let truncate = async {
        until(&tally.right, 12).await;
        let file = pack(&gateway).1;
        let folios = file.metadata().unwrap().len() / FOLIO;
        // In steps, from the end to the middle of the large file, while clients read everything.
        for left in (folios / 2..=folios).rev() {
            file.set_len(left * FOLIO).unwrap();
            tokio::task::yield_now().await;
        }
        until(&tally.broken, tally.broken.load(Ordering::SeqCst) + 12).await;
        tally.is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(join_all((0..6).map(read)), truncate);

    // The daemon serves the rest of the pack on new connections and does not write to it.
    let get = async |path: String| ask(&gateway, &(format!("GET {path} HTTP/1.1"), "")).await;
    assert_eq!(get("/health/live".to_owned()).await.status, 200);
    assert_same(&get(format!("/ipfs/{small_cid}")).await.body, &small, "what is left is read");
    let metrics = get("/metrics".to_owned()).await.text();
    let faults = metrics.lines().find_map(|line| line.strip_prefix("ipfrs_store_faults_total "));
    assert!(faults.unwrap().parse::<u64>().unwrap() > 0);
    let (_, file) = pack(&gateway);
    let length = file.metadata().unwrap().len();
    let put = ("POST /v1/block/batch/put HTTP/1.1".to_owned(), r#"{"blocks": [{"data": "bmV3"}]}"#);
    let refused = ask(&gateway, &put).await.text();
    // The error names the file; its directory appears only in the log.
    assert!(refused.contains("00000001.car") && !refused.contains("packs/"), "{refused}");
    assert_eq!(get("/health/ready".to_owned()).await.status, 503);
    assert_eq!(file.metadata().unwrap().len(), length);

    // After a restart, the daemon serves the rest of the pack and accepts new content.
    let gateway = TestGateway::start_on(gateway.end().await.0, |_| {}).await;
    assert_same(&gateway.content(&format!("/ipfs/{small_cid}")).await, &small, "what was left");
    assert_eq!(gateway.get(&format!("/ipfs/{large_cid}")).await.status(), 404);
    assert_eq!(gateway.add("", large.clone()).await, large_cid);
    assert_same(&gateway.content(&format!("/ipfs/{large_cid}")).await, &large, "what was added again");
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_pack_ends_encrypted_responses_and_nothing_else() {
    let gateway = TestGateway::start().await;
    let (large, small) = (content::bytes(64 << 20), content::bytes(5_000));
    let small_cid = gateway.add("", small.clone()).await;
    let large_cid = gateway.add("", large.clone()).await;
    let repo = gateway.end().await.0;
    let issuer = Issuer::new();
    let gateway = TestGateway::start_on(repo, |config| issuer.configure(config)).await;
    let encrypted = || client().http1_only().tls_danger_accept_invalid_certs(true).build().unwrap();
    let requests = encrypted();
    let url = |cid: &str| format!("https://{}/ipfs/{cid}", gateway.address());
    let mut responses = Vec::new();
    for _ in 0..4 {
        let mut response = requests.get(url(&large_cid)).send().await.unwrap();
        let first = response.chunk().await.unwrap().unwrap();
        responses.push((response, first.len()));
    }
    let file = pack(&gateway).1;
    file.set_len(file.metadata().unwrap().len() / 4).unwrap();
    for (mut response, mut received) in responses {
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    assert_eq!(chunk, large.slice(received..received + chunk.len()));
                    received += chunk.len();
                }
                Ok(None) => panic!("a response is complete"),
                Err(_) => break,
            }
        }
    }
    // No thread waits for the lost part, and new connections get what is left.
    let left = encrypted().get(url(&small_cid)).send().await.unwrap().bytes().await.unwrap();
    assert_eq!(left, small);
}

/// Returns the response to a request line with header lines and a body.
async fn ask(gateway: &TestGateway, (head, body): &(String, &str)) -> Answer {
    let mut wire = Wire::connect(gateway).await;
    let length = body.len();
    let end = format!("Host: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    wire.send(format!("{head}\r\n{end}")).await;
    wire.answer().await
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_on_read_never_serves_changed_bytes() {
    let gateway = TestGateway::start_with(|config| config.store.verify_on_read = true).await;
    let (small, large) = (content::bytes(9_000), content::bytes(1 << 20));
    let (small_cid, large_cid) = (gateway.add("", small.clone()).await, gateway.add("", large.clone()).await);
    let raw: Vec<u8> = large[700_000..740_000].iter().rev().copied().collect();
    let raw_cid = gateway.put_block("", raw.clone()).await;
    let batch = json!({"cids": [raw_cid]}).to_string();
    let requests = [
        (format!("GET /ipfs/{small_cid} HTTP/1.1"), ""),
        (format!("GET /ipfs/{small_cid}?format=raw HTTP/1.1"), ""),
        (format!("GET /ipfs/{large_cid} HTTP/1.1"), ""),
        (format!("GET /ipfs/{large_cid} HTTP/1.1\r\nRange: bytes=600000-800000"), ""),
        (format!("POST /api/v0/cat?arg={large_cid} HTTP/1.1"), ""),
        (format!("POST /api/v0/block/get?arg={raw_cid} HTTP/1.1"), ""),
        ("POST /v1/block/batch/get HTTP/1.1".to_owned(), &batch),
        ("POST /v1/block/batch/get HTTP/1.1\r\nAccept: application/vnd.ipld.car".to_owned(), &batch),
    ];
    let mut right = Vec::new();
    for request in &requests {
        // Twice, to fill the caches, which must not serve the content after the change.
        for _ in 0..2 {
            let answer = ask(&gateway, request).await;
            assert!(answer.status < 300 && answer.is_complete, "{request:?}: {}", answer.status);
            right.push(answer.body);
        }
    }

    let (path, file) = pack(&gateway);
    let whole = std::fs::read(path).unwrap();
    let place = |part: &[u8]| whole.windows(part.len()).position(|window| window == part).unwrap() as u64;
    let places = [place(&small[4_000..4_100]), place(&large[700_000..700_100]), place(&raw)];
    let flip = || {
        for place in places {
            let mut byte = [0];
            file.read_exact_at(&mut byte, place).unwrap();
            file.write_all_at(&[!byte[0]], place).unwrap();
        }
    };
    flip();
    for request in &requests {
        let answer = ask(&gateway, request).await;
        let says_so =
            answer.status >= 400 || !answer.is_complete || answer.text().contains("does not match its content ID");
        assert!(says_so, "{request:?}: {} bytes look right", answer.body.len());
    }
    // Unchanged blocks are served as before, and the others after the change is reverted.
    let range = (format!("GET /ipfs/{large_cid} HTTP/1.1\r\nRange: bytes=0-99999"), "");
    assert_same(&ask(&gateway, &range).await.body, &large[..100_000], "a range that avoids the change");
    flip();
    for (request, right) in requests.iter().zip(right.chunks(2)) {
        assert_same(&ask(&gateway, request).await.body, &right[0], &request.0);
    }
}
