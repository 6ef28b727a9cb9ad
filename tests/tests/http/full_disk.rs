//! A disk that becomes full: space reservations of uploads, and health checks.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{Disk, Reserve};
use ipfrs_store::testing::{AlteredStore, Difference};
use reqwest::{Method, Response};
use serde_json::Value;
use tokio::sync::watch;

use crate::batch_get::problem;
use crate::content;
use crate::harness::{TestGateway, header};
use crate::multipart::Form;

const MIB: u64 = 1024 * 1024;
const ROUTE: &str = "/v1/stream/upload";

/// A store that keeps blocks in memory and reports the free space in `free`, or an error for `None`.
type SmallDisk = AlteredStore<FreeSpace>;

#[derive(Debug, Clone)]
struct FreeSpace {
    device: u64,
    free: watch::Sender<Option<u64>>,
}

impl FreeSpace {
    fn set_free(&self, free: Option<u64>) {
        self.free.send_replace(free);
    }
}

#[async_trait]
impl Difference for FreeSpace {
    async fn state_of_disk(&self) -> Result<Option<Disk>> {
        let free = *self.free.borrow();
        let free_bytes = free.ok_or_else(|| Error::new(ErrorKind::Internal, "the disk fails to be read"))?;
        Ok(Some(Disk { dir: "/small".into(), device: self.device, free_bytes, reserve: Reserve::default() }))
    }
}

async fn start(free: u64) -> (TestGateway, SmallDisk) {
    let repo = tempfile::tempdir().unwrap();
    let device = fs::metadata(repo.path()).unwrap().dev();
    let disk = SmallDisk::with(FreeSpace { device, free: watch::Sender::new(Some(free)) });
    (TestGateway::over(repo, disk.clone(), |_| {}).await, disk)
}

async fn create(gateway: &TestGateway, length: u64) -> Response {
    let request = gateway.request(Method::POST, ROUTE).header("tus-resumable", "1.0.0");
    request.header("upload-length", length).send().await.unwrap()
}

async fn created(gateway: &TestGateway, length: u64) -> String {
    let response = create(gateway, length).await;
    assert_eq!(response.status(), 201, "{length} bytes");
    header(&response, "location").to_owned()
}

async fn refused(gateway: &TestGateway, length: u64) {
    let before = spooled(gateway);
    let why = problem(create(gateway, length).await, 507, "no_space").await;
    assert!(why["detail"].as_str().unwrap().contains("cancel other uploads"), "it names the remedy: {why}");
    assert_eq!(spooled(gateway), before, "nothing is changed");
}

fn spooled(gateway: &TestGateway) -> usize {
    fs::read_dir(gateway.repo().path().join("uploads")).into_iter().flatten().count()
}

async fn patch(gateway: &TestGateway, upload: &str, offset: u64, body: Bytes) {
    let request = gateway.request(Method::PATCH, upload).header("tus-resumable", "1.0.0");
    let request = request.header("content-type", "application/offset+octet-stream").header("upload-offset", offset);
    assert_eq!(request.body(body).send().await.unwrap().status(), 204);
}

async fn end(gateway: &TestGateway, upload: &str) {
    let request = gateway.request(Method::DELETE, upload).header("tus-resumable", "1.0.0");
    assert_eq!(request.send().await.unwrap().status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_reserve_their_length_twice_until_they_end() {
    let (gateway, disk) = start(100 * MIB).await;
    refused(&gateway, 50 * MIB + 1).await;
    let first = created(&gateway, 30 * MIB).await;
    refused(&gateway, 20 * MIB + 1).await;
    let second = created(&gateway, 20 * MIB).await;
    refused(&gateway, 1).await;
    end(&gateway, &first).await;
    refused(&gateway, 30 * MIB + 1).await;
    let third = created(&gateway, 30 * MIB).await;
    // Bytes that have arrived are on disk and are no longer reserved.
    patch(&gateway, &third, 0, content::bytes(MIB as usize)).await;
    created(&gateway, MIB / 2).await;
    refused(&gateway, 1).await;
    // A restart counts them again.
    let gateway = TestGateway::over(gateway.stop().await, disk.clone(), |_| {}).await;
    refused(&gateway, 1).await;
    end(&gateway, &second).await;
    refused(&gateway, 20 * MIB + 1).await;
    // A finished upload reserves nothing.
    let whole = created(&gateway, 2 * MIB).await;
    patch(&gateway, &whole, 0, content::bytes(2 * MIB as usize)).await;
    created(&gateway, 20 * MIB).await;
    refused(&gateway, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_begun_together_are_not_promised_the_same_bytes() {
    let (gateway, _disk) = start(100 * MIB).await;
    let all = futures::future::join_all((0..20).map(|_| create(&gateway, 10 * MIB))).await;
    assert_eq!(all.iter().filter(|response| response.status() == 201).count(), 5);
    assert_eq!(all.iter().filter(|response| response.status() == 507).count(), 15);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_larger_than_the_disk_is_507_before_it_is_read() {
    let (gateway, _disk) = start(10 * MIB).await;
    created(&gateway, 3 * MIB).await;
    let post = |bytes: u64| gateway.request(Method::POST, ROUTE).body(content::bytes(bytes as usize)).send();
    problem(post(4 * MIB + 1).await.unwrap(), 507, "no_space").await;
    assert_eq!(gateway.blocks().await, 0);
    assert_eq!(post(4 * MIB).await.unwrap().status(), 200);
    assert_eq!(post(4 * MIB).await.unwrap().status(), 200, "it was returned at the end");
}

async fn readiness(gateway: &TestGateway, status: u16) -> Value {
    // The result of the last disk check is cached for a short time.
    loop {
        let response = gateway.get("/health/ready").await;
        if response.status() == status {
            return response.json().await.unwrap();
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_fails_while_the_disk_takes_no_writes() {
    let (gateway, disk) = start(100 * MIB).await;
    readiness(&gateway, 200).await;
    for (free, why) in [(Some(MIB), "free disk space"), (None, "fails to be read")] {
        disk.set_free(free);
        let told = readiness(&gateway, 503).await;
        assert!(told["reason"].as_str().unwrap().contains(why), "{told}");
        disk.set_free(Some(100 * MIB));
        readiness(&gateway, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_an_add_leave_the_reserve_on_the_disk() {
    let (gateway, disk) = start(MIB).await;
    let names: Vec<_> = (0..12_000).map(|number| format!("{number:0>240}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let form = files.iter().fold(Form::new(), |form, (name, content)| form.file(name, content));
    let response = gateway.post_form("add?only-hash=true&wrap-with-directory=true", form).await;
    let text = String::from_utf8_lossy(&response.bytes().await.unwrap_or_default()).into_owned();
    assert!(!text.contains("\"Name\":\"\""), "it was not added");
    disk.set_free(Some(100 * MIB));
    gateway.add_tree("only-hash=true&wrap-with-directory=true", &files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_upload_yields_its_reservation_to_a_new_one() {
    let (gateway, disk) = start(24 * MIB).await;
    let idle = created(&gateway, 10 * MIB).await;
    refused(&gateway, 5 * MIB).await;
    let repo = gateway.stop().await;
    let part = format!("{}.part", idle.rsplit('/').next().unwrap());
    let part = fs::File::options().write(true).open(repo.path().join("uploads").join(part)).unwrap();
    part.set_modified(SystemTime::now() - Duration::from_secs(11 * 60)).unwrap();
    let gateway = TestGateway::over(repo, disk, |_| {}).await;
    created(&gateway, 5 * MIB).await;
    // The reservation of the new upload holds, and the idle upload is still there.
    refused(&gateway, 10 * MIB).await;
    let head = gateway.request(Method::HEAD, &idle).header("tus-resumable", "1.0.0").send().await.unwrap();
    assert_eq!(head.status(), 200);
}
