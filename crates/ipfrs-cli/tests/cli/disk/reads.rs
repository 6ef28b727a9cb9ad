//! Reads that fail with `EIO` below a running daemon: a request that needs them fails and says so, others are served,
//! and everything is there again once the disk works.

use std::fmt::Write;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use reqwest::{Client, Method, Response};
use rustix::process::Signal;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use super::load::{connect, continued};
use super::mounted::Disk;
use super::{call, runtime, start};
use crate::harness::{Daemon, Place};

/// Timeout far longer than any operation, so that a hanging test fails.
const LONG: Duration = Duration::from_secs(60);

/// Returns text of lines that differ, of at least `bytes` bytes.
fn text(name: &str, bytes: usize) -> String {
    let mut text = String::new();
    let mut line = 0;
    while text.len() < bytes {
        writeln!(text, "{name} {line}").unwrap();
        line += 1;
    }
    text
}

fn client() -> Client {
    Client::builder().no_proxy().build().unwrap()
}

/// Adds content and returns its content ID.
async fn add(daemon: &Daemon, options: &str, content: &str) -> String {
    let added = call(daemon, &format!("add?quieter=true&cid-version=1{options}"), Some(content)).await.unwrap();
    let added: Value = serde_json::from_str(added.lines().last().unwrap()).unwrap();
    added["Hash"].as_str().unwrap().to_owned()
}

/// Returns the status and the body of the response to a GET.
async fn get(daemon: &Daemon, path: &str) -> (u16, String) {
    let response = client().get(format!("{}{path}", daemon.url())).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// Returns the result of verifying all blocks. The response ends early if some cannot be read.
async fn verify(daemon: &Daemon) -> String {
    let mut response = client().post(format!("{}/api/v0/repo/verify", daemon.url())).send().await.unwrap();
    let mut text = String::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    text
}

/// Stops a daemon and starts another one, which has no block in memory.
fn restart(daemon: Daemon, place: &Place, repo: &Path) -> Daemon {
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
    start(place, repo)
}

#[test]
fn pack_that_cannot_be_read_fails_requests_for_its_blocks_only() {
    let Some(disk) = Disk::mount() else { return };
    let (place, runtime) = (Place::new(), runtime());
    let repo = disk.path().join("repo");
    let mut command = place.command(&["gateway", "start", "--port", "0", "--workers", "1"]);
    // A store of 64 MiB has packs of 1 MiB.
    command.env("IPFRS_PATH", &repo).env("IPFRS_LOG_LEVEL", "off").env("IPFRS_STORE_MAX_BYTES", "67108864");
    let daemon = Daemon::start(command);
    runtime.block_on(async {
        let (first, last) = (text("first", 5_000), text("last", 5_000));
        let first_cid = add(&daemon, "", &first).await;
        add(&daemon, "", &text("between", 3 << 20)).await;
        let last_cid = add(&daemon, "", &last).await;
        let [first_path, last_path] = [&first_cid, &last_cid].map(|cid| format!("/ipfs/{cid}"));
        disk.fail_reads("packs/00000001.car");
        for _ in 0..2 {
            let (status, error) = get(&daemon, &first_path).await;
            assert_eq!(status, 500, "{error}");
            assert!(error.contains(&first_cid), "it names the block: {error}");
            assert_eq!(get(&daemon, &last_path).await, (200, last.clone()));
            assert_eq!(get(&daemon, "/health/live").await.0, 200);
            let verified = verify(&daemon).await;
            assert!(verified.contains(&format!("block {first_cid} was unreadable")), "{verified}");
            assert!(!verified.contains("was corrupt") && !verified.contains(&last_cid), "{verified}");
        }
        // A block that cannot be read may be intact, so it is not removed.
        let _ = call(&daemon, "repo/verify?drop=true", None).await;
        disk.set_failing(None);
        assert_eq!(get(&daemon, &first_path).await, (200, first));
        let verified = verify(&daemon).await;
        assert!(!verified.contains(&first_cid), "{verified}");
        let new = text("new", 5_000);
        let cid = add(&daemon, "", &new).await;
        assert_eq!(get(&daemon, &format!("/ipfs/{cid}")).await, (200, new));
    });
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.wait().0, Some(0));
}

#[test]
fn index_and_pins_that_cannot_be_read_are_used_again_afterwards() {
    let Some(disk) = Disk::mount() else { return };
    let (place, runtime) = (Place::new(), runtime());
    let repo = disk.path().join("repo");
    let mut daemon = start(&place, &repo);
    // These blocks fill a run of the index, and these pins many pages of the database.
    let content = text("line", 3 << 20);
    let (cid, leaves) = runtime.block_on(async {
        let cid = add(&daemon, "&pin=false&chunker=size-1024", &content).await;
        let listed = call(&daemon, &format!("refs?arg={cid}&recursive=true&unique=true"), None).await.unwrap();
        let reference = |line: &str| serde_json::from_str::<Value>(line).unwrap()["Ref"].as_str().unwrap().to_owned();
        let leaves: Vec<_> = listed.lines().map(reference).collect();
        for leaves in leaves[1..].chunks(200) {
            call(&daemon, &format!("pin/add?arg={}", leaves.join("&arg=")), None).await.unwrap();
        }
        (cid, leaves)
    });
    daemon = restart(daemon, &place, &repo);
    runtime.block_on(async {
        disk.fail_reads("repo/index/");
        for _ in 0..2 {
            let error = call(&daemon, &format!("block/stat?arg={cid}&offline=true"), None).await.unwrap_err();
            assert!(error.contains("the index is damaged"), "{error}");
            assert_eq!(get(&daemon, "/health/live").await.0, 200);
            assert_eq!(get(&daemon, "/health/ready").await.0, 503);
        }
        let verified = verify(&daemon).await;
        assert!(verified.contains("the index is damaged"), "{verified}");
        disk.set_failing(None);
        // Between two attempts to read the run again, there is a pause.
        let watchdog = Instant::now() + LONG;
        while let Err(error) = call(&daemon, &format!("block/stat?arg={cid}&offline=true"), None).await {
            assert!(Instant::now() < watchdog, "{error}");
        }
        assert_eq!(get(&daemon, "/health/ready").await.0, 200);
        assert_eq!(get(&daemon, &format!("/ipfs/{cid}")).await, (200, content));
        let verified = verify(&daemon).await;
        assert!(!verified.contains("damaged") && !verified.contains("corrupt"), "{verified}");
    });
    daemon = restart(daemon, &place, &repo);
    runtime.block_on(async {
        disk.fail_reads("pins.redb");
        // The pages that are needed may be in memory.
        let added = call(&daemon, &format!("pin/add?arg={}", leaves[0]), None).await;
        assert!(added.as_ref().err().is_none_or(|error| error.contains("pins.redb")), "{added:?}");
        let _ = call(&daemon, &format!("pin/ls?arg={}", leaves[1]), None).await;
        let _ = call(&daemon, "repo/gc", None).await;
        assert_eq!(get(&daemon, "/health/live").await.0, 200);
        disk.set_failing(None);
        call(&daemon, &format!("pin/add?arg={}", leaves[0]), None).await.unwrap();
        call(&daemon, "repo/gc", None).await.unwrap();
        let pins: Value = serde_json::from_str(&call(&daemon, "pin/ls?type=recursive", None).await.unwrap()).unwrap();
        assert!(leaves.iter().all(|leaf| pins["Keys"].get(leaf).is_some()), "all pins are there");
        for leaf in [&leaves[1], leaves.last().unwrap()] {
            call(&daemon, &format!("block/stat?arg={leaf}&offline=true"), None).await.unwrap();
        }
    });
}

/// Sends a request for an upload, with the part of its content from `offset` on.
async fn upload(daemon: &Daemon, method: Method, path: &str, headers: &[(&str, &str)], content: &str) -> Response {
    let request = client().request(method, format!("{}{path}", daemon.url())).header("tus-resumable", "1.0.0");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(content.to_owned()).send().await.unwrap()
}

#[test]
fn upload_that_cannot_be_read_is_imported_afterwards() {
    let Some(disk) = Disk::mount() else { return };
    let (place, runtime) = (Place::new(), runtime());
    let daemon = start(&place, &disk.path().join("repo"));
    runtime.block_on(async {
        let content = text("upload", 100_000);
        let (begin, end) = content.split_at(50_000);
        let length = content.len().to_string();
        let created = upload(&daemon, Method::POST, "/v1/stream/upload", &[("upload-length", &length)], "").await;
        let path = created.headers()["location"].to_str().unwrap().to_owned();
        let patch = async |offset: usize, content: &str| {
            let (offset, body_type) = (offset.to_string(), "application/offset+octet-stream");
            let headers = [("upload-offset", offset.as_str()), ("content-type", body_type)];
            upload(&daemon, Method::PATCH, &path, &headers, content).await
        };
        assert_eq!(patch(0, begin).await.status(), 204);
        disk.fail_reads("uploads");
        let failed = patch(begin.len(), end).await;
        assert_eq!(failed.status(), 500);
        assert!(failed.text().await.unwrap().contains("cannot read"));
        assert_eq!(get(&daemon, "/health/live").await.0, 200);
        disk.set_failing(None);
        let done = patch(content.len(), "").await;
        assert_eq!(done.status(), 204);
        let cid = done.headers()["x-ipfs-cid"].to_str().unwrap().to_owned();
        assert_eq!(get(&daemon, &format!("/ipfs/{cid}")).await, (200, content));
    });
}

/// Starts a daemon that must not become ready, and returns its error.
fn start_fails(place: &Place, repo: &Path) -> String {
    let mut command = place.command(&["gateway", "start", "--port", "0", "--workers", "1"]);
    let mut child = command.env("IPFRS_PATH", repo).spawn().unwrap();
    let is_ready = BufReader::new(child.stdout.take().unwrap()).lines().any(|line| line.unwrap() == "Ready");
    if is_ready {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(!is_ready, "the daemon is ready");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn root_and_journals_that_cannot_be_read_are_kept() {
    let Some(disk) = Disk::mount() else { return };
    let (place, runtime) = (Place::new(), runtime());
    let repo = disk.path().join("repo");
    let mut daemon = start(&place, &repo);
    runtime.block_on(async {
        call(&daemon, "files/write?arg=/file&create=true", Some("content")).await.unwrap();
        let mut socket = connect(daemon.url(), "name=object").await.unwrap();
        socket.next().await.unwrap().unwrap();
        socket.send(Message::binary("acknowledged")).await.unwrap();
        let ack = socket.next().await.unwrap().unwrap();
        assert!(ack.to_text().unwrap().contains(r#""ack""#), "{ack}");
        // Before the client ends the object, which would remove the journal.
        daemon.kill();
    });
    disk.fail_reads("mutable-files.root");
    let error = start_fails(&place, &repo);
    assert!(error.contains("cannot read") && error.contains("mutable-files.root"), "{error}");
    disk.set_failing(None);
    disk.fail_reads("ingest-journals");
    daemon = start(&place, &repo);
    runtime.block_on(async {
        assert_eq!(call(&daemon, "files/read?arg=/file", None).await.unwrap(), "content");
        let error = continued(daemon.url(), "object").await.unwrap_err();
        assert!(error.contains("cannot read"), "{error}");
        assert!(repo.join("ingest-journals/object").exists());
        disk.set_failing(None);
        continued(daemon.url(), "object").await.unwrap();
        assert_eq!(call(&daemon, "files/read?arg=/ingest/object", None).await.unwrap(), "acknowledged");
    });
}
