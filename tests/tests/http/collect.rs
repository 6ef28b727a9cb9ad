//! `repo/gc`, `repo/verify`, `repo/stat`, `repo/version`, `block/rm`.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use futures::SinkExt;
use futures::channel::mpsc;
use http::Method;
use http::header::{ACCEPT_ENCODING, RANGE};
use ipfrs_node::{Dtype, safetensors_head};
use serde_json::json;

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, hash_of, ndjson, rpc_failure};
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

/// Runs garbage collection and returns the removed CIDs.
async fn collect(gateway: &TestGateway) -> Vec<String> {
    let lines = ndjson(gateway.rpc("repo/gc").send().await.unwrap()).await;
    lines.iter().map(|line| line["Key"]["/"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_removes_unpinned_blocks() {
    let gateway = TestGateway::start().await;
    let (kept, shared) = (content::bytes(1_000_000), content::bytes(600_000));
    let file = gateway.add("", kept.clone()).await;
    let tree = gateway.add_tree("", &[("d/a", "a"), ("d/e/b", "b")]).await;
    let direct = gateway.put_block("", "direct").await;
    gateway.rpc_json(&format!("pin/add?arg={direct}&recursive=false")).await;
    let needed = gateway.blocks().await;
    // The garbage shares its first leaves with the pinned file.
    let garbage = gateway.add("pin=false", shared).await;
    let block = gateway.put_block("", "a block").await;
    let before = gateway.blocks().await;
    let removed = collect(&gateway).await;
    assert_eq!(removed.len() as u64, before - needed);
    assert_eq!(gateway.blocks().await, needed);
    for gone in [&garbage, &block] {
        assert!(removed.contains(&as_raw(gone)), "{removed:?}");
        assert_eq!(gateway.get(&format!("/ipfs/{gone}")).await.status(), 404);
    }
    assert_same(&gateway.content(&format!("/ipfs/{file}")).await, &kept, "a pinned file");
    assert_eq!(gateway.content(&format!("/ipfs/{tree}/e/b")).await, "b");
    assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={direct}")).await, "direct");
    assert_eq!(collect(&gateway).await, Vec::<String>::new(), "nothing is left to collect");
    gateway.rpc_json(&format!("pin/rm?arg={file}&arg={tree}&arg={direct}")).await;
    let answer = gateway.rpc_bytes("repo/gc?silent=true").await;
    assert_eq!((answer.as_ref(), gateway.blocks().await), (&b""[..], 0));
    let metrics = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    assert!(metrics.contains("ipfrs_gc_runs_total{outcome=\"done\"} 3"), "{metrics}");
    assert!(metrics.contains(&format!("ipfrs_gc_removed_blocks_total {before}")), "{metrics}");
    assert!(metrics.contains("ipfrs_pins 0"), "{metrics}");
    for cache in ["answer", "path"] {
        let swept = format!("ipfrs_cache_size_bytes{{cache=\"{cache}\"}} 0\n");
        assert!(metrics.contains(&swept), "{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_requires_force_after_lost_pins() {
    let gateway = TestGateway::start().await;
    let block = gateway.put_block("", "a block").await;
    let repo = gateway.stop().await;
    std::fs::remove_file(repo.path().join("pins.redb")).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    let message = rpc_failure(gateway.rpc("repo/gc").send().await.unwrap()).await;
    assert!(message.contains("pins.redb") && message.contains("force"), "{message}");
    assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={block}")).await, "a block");
    assert!(gateway.rpc_json("repo/gc?force=true").await["Key"]["/"] == block.as_str());
}

/// Stops the gateway, changes a stored byte, and starts it again.
async fn damage(gateway: TestGateway, stored: &[u8]) -> TestGateway {
    let repo = gateway.stop().await;
    let pack = repo.path().join("packs/00000001.car");
    let mut bytes = std::fs::read(&pack).unwrap();
    let at = bytes.windows(stored.len()).position(|window| window == stored).unwrap();
    bytes[at] ^= 1;
    std::fs::write(&pack, bytes).unwrap();
    TestGateway::start_on(repo, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_with_incomplete_pin_removes_nothing() {
    let gateway = TestGateway::start().await;
    let tree = gateway.add_tree("", &[("d/e/a", "a"), ("d/b", "b")]).await;
    let links = gateway.rpc_json(&format!("ls?arg={tree}")).await;
    let inner = links["Objects"][0]["Links"][1]["Hash"].as_str().unwrap().to_owned();
    gateway.put_block("", "garbage").await;
    let before = gateway.blocks().await;
    let node = gateway.rpc_bytes(&format!("block/get?arg={inner}")).await;
    let gateway = damage(gateway, &node).await;
    let message = rpc_failure(gateway.rpc("repo/gc").send().await.unwrap()).await;
    for part in [&tree, &inner, "nothing was removed"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(gateway.blocks().await, before);
    let answer = exchange(&gateway, "POST /api/v0/pin/verify HTTP/1.1\r\nContent-Length: 0").await;
    let verified: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!((&verified["Cid"], &verified["BadNodes"][0]["Cid"]), (&json!(tree), &json!(inner)), "{verified}");
    gateway.rpc_json(&format!("pin/rm?arg={tree}")).await;
    // Without the pin, everything is garbage. The last line reports that the damaged pack is kept.
    let answer = exchange(&gateway, "POST /api/v0/repo/gc HTTP/1.1\r\nContent-Length: 0").await;
    assert_eq!(answer.text().matches("\"Key\":{").count() as u64, before, "{}", answer.text());
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_keeps_blocks_of_a_running_upload_and_no_others() {
    let gateway = TestGateway::start().await;
    let content = content::bytes(24 * 1024 * 1024);
    let (mut sender, pieces) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let request = gateway.rpc("add?raw-leaves=true").header("content-type", "application/octet-stream");
    let upload = tokio::spawn(request.body(reqwest::Body::wrap_stream(pieces)).send());
    let first = content.slice(..20 * 1024 * 1024);
    for piece in 0..first.len() / 65_536 {
        sender.send(Ok(first.slice(piece * 65_536..(piece + 1) * 65_536))).await.unwrap();
    }
    // The import passes its blocks to the store in batches.
    while gateway.blocks().await == 0 {
        tokio::task::yield_now().await;
    }
    let garbage = gateway.put_block("", "garbage of others").await;
    assert_eq!(collect(&gateway).await, [as_raw(&garbage)]);
    let block = gateway.put_block("", "a block of others").await;
    gateway.rpc_bytes(&format!("block/rm?arg={block}")).await;
    assert_eq!(gateway.rpc(&format!("block/stat?arg={block}&offline=true")).send().await.unwrap().status(), 500);
    sender.send(Ok(content.slice(20 * 1024 * 1024..))).await.unwrap();
    drop(sender);
    let file = hash_of(ndjson(upload.await.unwrap().unwrap()).await.last().unwrap());
    collect(&gateway).await;
    assert_same(&gateway.content(&format!("/ipfs/{file}")).await, &content, "the upload is whole");
}

/// Returns the bytes that are allocated for removed files of the repo that this process has open.
fn held_bytes(gateway: &TestGateway) -> u64 {
    let repo = gateway.repo().path();
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().map(|fd| fd.unwrap().path());
    let is_removed = |fd: &std::path::PathBuf| {
        let target = std::fs::read_link(fd).unwrap_or_default();
        target.starts_with(repo) && target.to_string_lossy().ends_with("(deleted)")
    };
    // Another test may close its file at the same time.
    fds.filter(is_removed).filter_map(|fd| Some(std::fs::metadata(fd).ok()?.blocks() * 512)).sum()
}

/// Returns the bytes that are allocated for packs of the repo, including packs that are removed and still open.
fn allocated_bytes(gateway: &TestGateway) -> u64 {
    let packs = std::fs::read_dir(gateway.repo().path().join("packs")).unwrap();
    packs.map(|pack| pack.unwrap().metadata().unwrap().blocks() * 512).sum::<u64>() + held_bytes(gateway)
}

/// Collects garbage and returns `FreedBytes`.
async fn freed_bytes(gateway: &TestGateway) -> u64 {
    let lines = ndjson(gateway.rpc("repo/gc?progress=true").send().await.unwrap()).await;
    lines.last().unwrap()["FreedBytes"].as_u64().unwrap()
}

/// Fills the caches of the gateway: paths, nodes, responses (plain and compressed) and tensors.
async fn fill_caches(gateway: &TestGateway, tree: &str) {
    let tensors = safetensors_head([("a", Dtype::U8, &[4][..])], &BTreeMap::new()).unwrap();
    let tensors = gateway.add("pin=false", [tensors.as_slice(), b"abcd"].concat()).await;
    for _ in 0..3 {
        gateway.rpc_json(&format!("ls?arg={tree}")).await;
        for path in [format!("{tree}/small.txt"), format!("{tree}/large"), format!("{tree}/"), tree.to_owned()] {
            for coding in ["identity", "gzip"] {
                let request = gateway.request(Method::GET, &format!("/ipfs/{path}")).header(ACCEPT_ENCODING, coding);
                request.send().await.unwrap().bytes().await.unwrap();
            }
        }
        let part = gateway.request(Method::GET, &format!("/ipfs/{tree}/large")).header(RANGE, "bytes=100-200000");
        part.send().await.unwrap().bytes().await.unwrap();
        assert_eq!(gateway.get(&format!("/v1/tensor/{tensors}/info")).await.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cache_holds_a_pack_that_gc_removed() {
    let gateway = TestGateway::start().await;
    let line = |number| format!("line {number} of a large text\n");
    let (small, large) = ("text ".repeat(400), (0..500_000).map(line).collect::<String>());
    for round in 0..2 {
        let (mine, files) = (format!("{small}{round}"), [("d/small.txt", &*small), ("d/large", &*large)]);
        let tree = gateway.add_tree("pin=false", &files).await;
        let kept = gateway.add("", mine.clone()).await;
        fill_caches(&gateway, &tree).await;
        gateway.content(&format!("/ipfs/{kept}")).await;
        // Responses hold the packs that they read until their requests end.
        gateway.until_idle().await;

        let before = allocated_bytes(&gateway);
        let freed = freed_bytes(&gateway).await;
        assert_eq!(held_bytes(&gateway), 0);
        // The tombstones of the deleted blocks are written first.
        assert!(freed.abs_diff(before - allocated_bytes(&gateway)) <= 16_384, "{freed} of {before}");
        assert!(freed > 13_000_000, "{freed}");
        assert_eq!(gateway.content(&format!("/ipfs/{kept}")).await, mine, "a block that was moved");
        assert_eq!(gateway.get(&format!("/ipfs/{tree}/small.txt")).await.status(), 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutable_files_hold_no_pack_that_gc_removed() {
    let gateway = TestGateway::start().await;
    gateway.add("pin=false", content::bytes(1_000_000)).await;
    let write = async |gateway: &TestGateway, text: &str| {
        let command = "files/write?arg=/d/f&create=true&parents=true&truncate=true";
        let response = gateway.post_form(command, Form::new().file("f", text)).await;
        assert_eq!(response.status(), 200);
    };
    write(&gateway, "before").await;
    // The next daemon reads the directories from the pack that becomes garbage.
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    write(&gateway, "after").await;
    gateway.until_idle().await;
    let freed = freed_bytes(&gateway).await;
    assert_eq!(held_bytes(&gateway), 0);
    assert!(freed > 900_000, "{freed}");
    assert_eq!(gateway.rpc_bytes("files/read?arg=/d/f").await, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_counts_a_pack_as_freed_when_no_client_reads_it() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("pin=false", content::bytes(64 << 20)).await;
    let mut reader = Wire::connect(&gateway).await;
    reader.send(&format!("GET /ipfs/{file} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    reader.take(1_000).await;
    let before = allocated_bytes(&gateway);
    let freed = freed_bytes(&gateway).await;
    assert!(held_bytes(&gateway) >= 64 << 20, "the client reads it");
    assert!(freed <= before.saturating_sub(allocated_bytes(&gateway)) + 16_384, "{freed} of {before}");

    drop(reader);
    while held_bytes(&gateway) > 0 {
        tokio::task::yield_now().await;
    }
}

/// Returns the content ID under which gc names a block, as Kubo does.
fn as_raw(cid: &str) -> String {
    let cid: ipfrs_core::Cid = cid.parse().unwrap();
    ipfrs_core::new_cid(1, ipfrs_core::codec::RAW, *cid.hash()).unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_progress_ends_with_a_summary() {
    let gateway = TestGateway::start().await;
    gateway.add("", "kept").await;
    let garbage = gateway.add("pin=false", "garbage").await;
    let lines = ndjson(gateway.rpc("repo/gc?progress=true").send().await.unwrap()).await;
    let phases: Vec<_> = lines.iter().filter_map(|line| line["Phase"].as_str()).collect();
    assert_eq!(phases, ["mark", "sweep", "compact"]);
    assert!(lines.contains(&json!({"Key": {"/": as_raw(&garbage)}})), "{lines:?}");
    let summary = lines.last().unwrap();
    assert_eq!((&summary["KeptBlocks"], &summary["RemovedBlocks"]), (&json!(1), &json!(1)), "{summary}");
}

#[tokio::test(flavor = "multi_thread")]
async fn block_rm_refuses_pinned_blocks() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("raw-leaves=true", content::bytes(600_000)).await;
    let links = gateway.rpc_json(&format!("ls?arg={file}")).await;
    let leaf = links["Objects"][0]["Links"][0]["Hash"].as_str().unwrap().to_owned();
    let free = gateway.put_block("", "free").await;
    let absent = "bafkreifzjut3te2nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    let rm = async |query: String| ndjson(gateway.rpc(&format!("block/rm?{query}")).send().await.unwrap()).await;
    let lines = rm(format!("arg={file}&arg={leaf}&arg={free}&arg={absent}")).await;
    assert_eq!(lines[0], json!({"Hash": file, "Error": "pinned: recursive", "Kind": "conflict"}));
    assert_eq!(lines[1], json!({"Hash": leaf, "Error": format!("pinned via {file}"), "Kind": "conflict"}));
    assert_eq!(lines[2], json!({"Hash": free}));
    assert_eq!(lines[3]["Error"], format!("ipld: could not find {absent}"));
    assert_eq!(lines[3]["Kind"], "not_found");
    assert_eq!(rm(format!("arg={absent}&force=true")).await, [json!({"Hash": absent})]);
    assert_eq!(rm(format!("arg={absent}&force=true&quiet=true")).await, Vec::<serde_json::Value>::new());
    assert_eq!(gateway.get(&format!("/ipfs/{free}")).await.status(), 404);
    assert_eq!(gateway.content(&format!("/ipfs/{file}")).await.len(), 600_000);
    let message = rpc_failure(gateway.rpc(&format!("block/rm?arg={file}/name")).send().await.unwrap()).await;
    assert!(message.contains("no link named"), "{message}");
    // A path names the block that it leads to.
    let tree = gateway.add_tree("pin=false", &[("d/x", "in a tree")]).await;
    let in_tree = gateway.rpc_json(&format!("resolve?arg=/ipfs/{tree}/x")).await["Path"].clone();
    let lines = rm(format!("arg=/ipld/{tree}/Links/0/Hash")).await;
    assert_eq!(json!(format!("/ipfs/{}", lines[0]["Hash"].as_str().unwrap())), in_tree);
}

#[tokio::test(flavor = "multi_thread")]
async fn repo_verify_names_every_corrupt_block() {
    let gateway = TestGateway::start().await;
    let marker = b"this text is in the pack as it is";
    let (bad, good) = (gateway.put_block("", &marker[..]).await, gateway.put_block("", "good").await);
    let lines = ndjson(gateway.rpc("repo/verify").send().await.unwrap()).await;
    let last = lines.last().unwrap();
    assert_eq!(last, &json!({"Msg": "verify complete, all blocks validated.", "Progress": 0}));
    assert!(lines.contains(&json!({"Msg": "", "Progress": 2})), "{lines:?}");
    let gateway = damage(gateway, marker).await;
    let answer = exchange(&gateway, "POST /api/v0/repo/verify HTTP/1.1\r\nContent-Length: 0\r\nTE: trailers").await;
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.contains(&format!("block {bad} was corrupt")) && !text.contains(&good), "{text}");
    assert!(text.contains("1 blocks corrupt: ") && text.contains("\"Progress\":2"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repo_stat_and_version_report_the_repo() {
    let gateway = TestGateway::start().await;
    gateway.add_form("", Form::new().file("f", content::bytes(300_000))).await;
    let (stat, size) = (gateway.rpc_json("repo/stat").await, gateway.rpc_json("repo/stat?size-only=true").await);
    assert!(stat["NumObjects"].as_u64() == Some(3) && stat["RepoSize"].as_u64().unwrap() > 300_000, "{stat}");
    assert_eq!((&size["NumObjects"], &size["RepoPath"], &size["Version"]), (&json!(0), &json!(""), &json!("")));
    assert_eq!(size["RepoSize"], stat["RepoSize"]);
    assert_eq!(gateway.rpc_json("repo/version").await, json!({"Version": "1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_ends_although_its_response_is_not_read() {
    const BLOCKS: u64 = 120_000;
    let gateway = TestGateway::start_with(|config| {
        // No limit ends the first run.
        config.gateway.upload_idle_seconds = 3_600;
        config.server.write_timeout_seconds = 3_600;
        config.batch.max_batch_size = 100_000;
    })
    .await;
    for half in 0..2 {
        let blocks: Vec<_> = (0..BLOCKS / 2).map(|n| json!({"data": format!("{half}{n:07}")})).collect();
        let answer = gateway.request(Method::POST, "/v1/block/batch/put").json(&json!({"blocks": blocks}));
        assert_eq!(answer.send().await.unwrap().status(), 200);
    }
    // Nine megabytes of lines exceed the socket buffers.
    let mut unread = Wire::connect(&gateway).await;
    unread.send("POST /api/v0/repo/gc HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    assert_eq!(unread.head().await.status, 200);
    assert_eq!(gateway.rpc("repo/gc").send().await.unwrap().status(), 500, "a garbage collection is in progress");
    let others = async { while !gateway.rpc("repo/gc?silent=true").send().await.unwrap().status().is_success() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), others).await.unwrap();
    assert_eq!(gateway.blocks().await, 0);
    // All lines have waited.
    let lines = unread.rest().await;
    let keys = lines.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"Key\":")).count() as u64;
    assert_eq!(keys, BLOCKS);
    assert!(lines.ends_with(b"0\r\n\r\n"), "the response is complete");
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_ends_although_its_response_is_not_read() {
    const BLOCKS: usize = 30_000;
    let gateway = TestGateway::start_with(|config| config.batch.max_batch_size = BLOCKS).await;
    // Each block begins with the text `damage`.
    let blocks: Vec<_> = (0..BLOCKS).map(|n| json!({"data": format!("ZGFtYWdl{n:08}")})).collect();
    let answer = gateway.request(Method::POST, "/v1/block/batch/put").json(&json!({"blocks": blocks}));
    assert_eq!(answer.send().await.unwrap().status(), 200);
    let repo = gateway.stop().await;
    let pack = repo.path().join("packs/00000001.car");
    let mut bytes = std::fs::read(&pack).unwrap();
    let starts = bytes.windows(6).enumerate().filter(|(_, window)| *window == b"damage").map(|(at, _)| at);
    let starts: Vec<usize> = starts.collect();
    assert_eq!(starts.len(), BLOCKS);
    starts.into_iter().for_each(|at| bytes[at] ^= 1);
    std::fs::write(&pack, bytes).unwrap();
    let gateway = TestGateway::start_on(repo, |config| {
        // No limit ends the first verification.
        config.gateway.upload_idle_seconds = 3_600;
        config.server.write_timeout_seconds = 3_600;
    })
    .await;
    // Eight megabytes of lines exceed the socket buffers.
    let mut unread = Wire::connect(&gateway).await;
    let head = "POST /api/v0/repo/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nTE: trailers\r\n";
    unread.send(&format!("{head}Connection: close\r\n\r\n")).await;
    assert_eq!(unread.head().await.status, 200);
    let others = async { while !gateway.rpc("repo/verify").send().await.unwrap().status().is_success() {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), others).await.unwrap();
    // All lines have waited.
    let lines = unread.rest().await;
    let is_block = |line: &&[u8]| line.starts_with(b"{\"Msg\":\"block ");
    assert_eq!(lines.split(|byte| *byte == b'\n').filter(is_block).count(), BLOCKS);
    let end = String::from_utf8_lossy(&lines[lines.len() - 1_000..]);
    assert!(end.contains("30000 blocks corrupt"), "{end}");
}
