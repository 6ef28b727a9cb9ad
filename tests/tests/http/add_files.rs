//! `add` of single files: reading returns the same bytes, and the content IDs are equal to Kubo's.

use std::collections::BTreeMap;
use std::convert::Infallible;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use ipfrs_node::Layout;
use reqwest::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::content::{self, FileVector, assert_same, keystream, vectors};
use crate::harness::{TestGateway, hash_of, ndjson, rpc_failure};
use crate::multipart::Form;
use crate::progress::Events;
use crate::wire::Wire;

const HELLO: &str = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD";

#[tokio::test(flavor = "multi_thread")]
async fn file_posted_by_curl_round_trips() {
    let gateway = TestGateway::start().await;
    let disposition =
        "Content-Disposition: form-data; name=\"file\"; filename=\"hello.txt\"\r\nContent-Type: text/plain";
    let response = gateway.post_form("add", Form::new().part(disposition, b"hello world")).await;
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["x-chunked-output"], "1");
    let lines = ndjson(response).await;
    assert_eq!(lines, [json!({"Name": "hello.txt", "Hash": HELLO, "Size": "19"})]);
    assert_eq!(gateway.content(&format!("/ipfs/{HELLO}")).await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_settings_are_those_of_an_add_without_options() {
    let gateway = TestGateway::start_with(|config| {
        config.import.cid_version = Some(1);
        config.import.chunker = Some("size-1000".parse().unwrap());
        config.import.hash = Some(ipfrs_core::hash::HashFunction::from_name("blake3").unwrap());
        config.import.max_file_links = Some(2);
        config.import.layout = Some(Layout::Trickle);
    })
    .await;
    let content = content::bytes(10_000);
    let plain = TestGateway::start().await;
    let same = "cid-version=1&chunker=size-1000&hash=blake3&max-file-links=2&trickle=true";
    let cid = gateway.add("", content.clone()).await;
    assert_eq!(cid, plain.add(same, content.clone()).await);
    // Options take precedence, and a profile replaces all of them.
    let other = gateway.add("chunker=size-2000&hash=sha2-256", content.clone()).await;
    assert_eq!(
        other,
        plain.add("cid-version=1&chunker=size-2000&max-file-links=2&trickle=true", content.clone()).await
    );
    let profile = "profile=unixfs-v1-2025";
    assert_eq!(gateway.add(profile, content.clone()).await, plain.add(profile, content.clone()).await);
    let flat = gateway.add("trickle=false", content.clone()).await;
    assert_eq!(flat, plain.add(same.trim_end_matches("&trickle=true"), content.clone()).await);
    let kept = gateway.add("mtime=1", content.clone()).await;
    assert_eq!(kept, plain.add(&format!("{same}&mtime=1"), content).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_sent_is_stored_although_it_sends_no_more() {
    let gateway = TestGateway::start().await;
    let stored = async |cid: &str| {
        let until_stored =
            async { while gateway.rpc(&format!("block/stat?arg={cid}")).send().await.unwrap().status() != 200 {} };
        // Less than the time after which the upload is aborted.
        tokio::time::timeout(std::time::Duration::from_secs(50), until_stored)
            .await
            .expect("stored without more bytes");
    };
    let hash_only = |name: &'static str| gateway.add("only-hash=true&raw-leaves=true", name);
    let (file, leaf) = (hash_only("a file").await, hash_only("a leaf").await);
    let part = "--XX\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\na file\r\n--XX\r\n";
    let form = "Content-Type: multipart/form-data; boundary=XX\r\nContent-Length: 10000\r\n";
    let add = "POST /api/v0/add?raw-leaves=true HTTP/1.1\r\nHost: x\r\n";
    let mut adding = Wire::connect(&gateway).await;
    adding.send(&format!("{add}{form}\r\n{part}")).await;
    stored(&file).await;
    let origin = TestGateway::start().await;
    assert_eq!(origin.add("raw-leaves=true", "a leaf").await, leaf);
    let car = origin.get(&format!("/ipfs/{leaf}?format=car")).await.bytes().await.unwrap();
    let mut importing = Wire::connect(&gateway).await;
    let import = "POST /api/v0/dag/import HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n";
    importing.send([import.as_bytes(), &car].concat()).await;
    stored(&leaf).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn import_with_unread_response_is_aborted_eventually() {
    let gateway = TestGateway::start_with(|config| config.gateway.upload_idle_seconds = 1).await;
    let mut wire = Wire::connect(&gateway).await;
    let head = "POST /api/v0/add?only-hash=true HTTP/1.1\r\nHost: x\r\nX-Operation-Id: unread\r\n\
                Content-Type: multipart/form-data; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n";
    wire.send(head).await;
    let events = Events::of(&gateway, "/v1/progress/unread").await;
    let sending = tokio::spawn(async move {
        // Each file has one byte of content and a response line of four kilobytes.
        for number in 0_u64.. {
            let part = format!("--b\r\nContent-Disposition: form-data; filename=\"{number:0>4000}\"\r\n\r\nx\r\n");
            wire.send(format!("{:x}\r\n{part}\r\n", part.len())).await;
        }
    });
    let last = events.rest().await.pop().unwrap();
    sending.abort();
    let files = last.data["bytes"].as_u64().unwrap();
    assert_eq!((last.name.as_str(), &last.data["code"]), ("error", &json!("timeout")));
    assert!((4_000..25_000).contains(&files), "{files} files of four kilobytes of lines each");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_of_plain_body_is_one_file_named_by_cid() {
    let gateway = TestGateway::start().await;
    for content_type in [Some("application/octet-stream"), Some("text/plain"), None] {
        let mut request = gateway.rpc("add").body("hello world");
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let lines = ndjson(request.send().await.unwrap()).await;
        assert_eq!(lines, [json!({"Name": HELLO, "Hash": HELLO, "Size": "19"})], "{content_type:?}");
    }
}

/// Returns the vectors with at most `most` bytes of content, grouped by content.
fn by_content(most: usize) -> BTreeMap<(usize, String), Vec<FileVector>> {
    let mut by_content: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for vector in vectors().files.into_iter().filter(|vector| vector.size <= most) {
        by_content.entry((vector.size, vector.seed.clone())).or_default().push(vector);
    }
    by_content
}

#[tokio::test(flavor = "multi_thread")]
async fn content_ids_are_those_of_kubo_for_every_flag() {
    let gateway = TestGateway::start().await;
    let contents = by_content(3_000_000);
    assert_eq!(contents.len(), 21, "the vectors are there");
    for ((size, seed), vectors) in contents {
        let content = keystream(&seed, size);
        for FileVector { profile, flags, cid, .. } in vectors {
            let options = format!("{}&only-hash=true", content::options(&profile, &flags));
            assert_eq!(gateway.add(&options, content.clone()).await, cid, "{size} bytes, {profile} {flags:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_boundary_sizes_round_trip_in_both_profiles() {
    let gateway = TestGateway::start().await;
    for ((size, seed), vectors) in by_content(3_000_000) {
        let content = keystream(&seed, size);
        for FileVector { profile, cid, .. } in vectors.into_iter().filter(|vector| vector.flags.is_empty()) {
            let added = gateway.add(&format!("profile={profile}"), content.clone()).await;
            assert_eq!(added, cid, "{size} bytes, {profile}");
            assert_same(&gateway.content(&format!("/ipfs/{cid}")).await, &content, &format!("{size}, {profile}"));
            assert_same(&gateway.rpc_bytes(&format!("cat?arg={cid}")).await, &content, "cat");
        }
    }
}

/// 174 chunks of 256 KiB and one byte: a tree of two levels in the default profile.
#[tokio::test(flavor = "multi_thread")]
async fn multi_level_file_round_trips_in_both_profiles() {
    let gateway = TestGateway::start().await;
    let contents = by_content(usize::MAX);
    let ((size, seed), vectors) = contents.range((45_613_057, String::new())..).next().unwrap();
    let content = keystream(seed, *size);
    for FileVector { profile, cid, .. } in vectors.iter().filter(|vector| vector.flags.is_empty()) {
        let form = Form::new().file("big.bin", &content);
        let lines = gateway.add_form(&format!("profile={profile}"), form).await;
        assert_eq!(hash_of(&lines[0]), *cid, "{profile}");
        assert_same(&gateway.content(&format!("/ipfs/{cid}")).await, &content, profile);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn add_uses_the_configured_profile_by_default() {
    let gateway = TestGateway::start_with(|config| config.import.profile = "unixfs-v1-2025".parse().unwrap()).await;
    let cid = gateway.add("", keystream("chunk-v1-seed", 1_048_577)).await;
    assert_eq!(cid, "bafybeigmix7t42i6jacydtquhet7srwvgpizfg7gjbq7627d35mjomtu64");
}

#[tokio::test(flavor = "multi_thread")]
async fn cid_version_1_implies_raw_leaves_unless_they_are_refused() {
    let gateway = TestGateway::start().await;
    for (options, cid) in [
        ("cid-version=1", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("raw-leaves=true", "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e"),
        ("cid-version=1&raw-leaves=false", "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5wa"),
        ("cid-version=0", HELLO),
        ("cid-base=base32", "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5wa"),
    ] {
        assert_eq!(gateway.add(options, "hello world").await, cid, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_hash_stores_nothing() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("only-hash=true", content::bytes(600_000)).await;
    assert_eq!(gateway.blocks().await, 0);
    assert_eq!(gateway.get(&format!("/ipfs/{cid}")).await.status(), 404);
    gateway.add("only-hash=false", content::bytes(600_000)).await;
    assert_eq!(gateway.blocks().await, 4, "three leaves and their root");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trickle_file_comes_back_whole_and_in_part() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(100_000);
    let options = "trickle=true&chunker=size-1000&max-file-links=3&raw-leaves=false";
    let cid = gateway.add(options, content.clone()).await;
    assert_same(&gateway.content(&format!("/ipfs/{cid}")).await, &content, "whole");
    let part = gateway.rpc_bytes(&format!("cat?arg={cid}&offset=54321&length=12345")).await;
    assert_same(&part, &content[54_321..66_666], "in part");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_inlines_small_blocks_when_requested() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("inline=true", "hello world").await;
    assert_eq!(cid, "bafyaaeykceeaeeqlnbswy3dpeb3w64tmmqmaw");
    assert_eq!(gateway.blocks().await, 0);
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, "hello world");
    let root =
        gateway.add("inline=true&inline-limit=128&chunker=size-100&raw-leaves=true", content::bytes(1_000)).await;
    assert_eq!(gateway.blocks().await, 1, "the root of ten leaves");
    assert_eq!(gateway.content(&format!("/ipfs/{root}")).await, content::bytes(1_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_add_stores_without_output() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("silent=true", Form::new().file("hello", "hello world")).await;
    assert_eq!(lines, Vec::<Value>::new());
    assert_eq!(gateway.content(&format!("/ipfs/{HELLO}")).await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn add_ignores_unknown_and_no_op_options() {
    let gateway = TestGateway::start().await;
    let options = "stream-channels=true&no-such-option=7&pin=false&quieter=true&trickle=false&inline=false&timeout=30s";
    assert_eq!(gateway.add(options, "hello world").await, HELLO);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsupported_add_options_are_refused_by_name() {
    let gateway = TestGateway::start().await;
    for (option, text) in [
        ("nocopy=true", "either the filestore or the urlstore must be enabled to use nocopy"),
        ("nocopy=true&raw-leaves=false", "nocopy option requires '--raw-leaves' to be enabled as well"),
        ("hash=sha0", "unrecognized hash function: \"sha0\""),
        ("hash=md5", "potentially insecure hash functions not allowed"),
        ("hash=blake2b-8", "potentially insecure hash functions not allowed"),
        ("cid-version=-2", "unknown CID version: -2"),
        ("raw-leaves=true&mtime=5", "raw-leaves can't be used with UnixFS metadata like mode or modification time"),
        ("mtime=5&mtime-nsecs=1000000000", "mtime nanoseconds must be in range [1, 999999999]"),
    ] {
        let response = gateway.post_form(&format!("add?{option}"), Form::new().file("a", "a")).await;
        let message = rpc_failure(response).await;
        assert!(message.starts_with(text), "{option}: {message}");
    }
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_add_option_values_are_refused() {
    let gateway = TestGateway::start().await;
    for option in [
        "raw-leaves=perhaps",
        "cid-version=x",
        "cid-version=2",
        "chunker=size-0",
        "chunker=size-9999999999",
        "inline=true&inline-limit=129",
    ] {
        let response = gateway.rpc(&format!("add?{option}")).body("a").send().await.unwrap();
        assert!(matches!(response.status().as_u16(), 400 | 500), "{option}: {}", response.status());
        assert!(!response.text().await.unwrap().contains("Hash"), "{option}");
    }
    assert_eq!(gateway.blocks().await, 0);
}

/// The client sends until it has received the first progress line, so that the test does not depend on timing.
#[tokio::test(flavor = "multi_thread")]
async fn add_reports_progress_during_upload() {
    let gateway = TestGateway::start().await;
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let sending = tokio::spawn(async move {
        let (piece, mut sent) = (content::bytes(4_096), 0);
        while stopped.try_recv().is_err() {
            sender.send(piece.clone()).await.unwrap();
            sent += piece.len() as u64;
        }
        sent
    });
    let pieces = futures::stream::unfold(receiver, |mut receiver| async {
        Some((Ok::<_, Infallible>(receiver.recv().await?), receiver))
    });
    let response = gateway.rpc("add?progress=true").body(Body::wrap_stream(pieces)).send().await.unwrap();
    let mut body = response.bytes_stream();
    let first = body.next().await.unwrap().unwrap();
    stop.send(()).unwrap();
    let sent = sending.await.unwrap();
    let rest: Vec<Bytes> = body.try_collect().await.unwrap();
    let text = String::from_utf8([first, rest.concat().into()].concat()).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().filter_map(|line| line["Bytes"].as_u64()).collect();
    assert_eq!(told.last(), Some(&sent), "the last line of progress is the whole file");
    let cid = hash_of(lines.last().unwrap());
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await.len() as u64, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn add_reports_progress_of_a_small_file_at_its_end() {
    let gateway = TestGateway::start().await;
    let lines = gateway.add_form("progress=true", Form::new().file("a", "hello world")).await;
    assert_eq!(lines, [json!({"Name": "a", "Bytes": 11}), json!({"Name": "a", "Hash": HELLO, "Size": "19"})]);
}
