//! SIGTERM while many transfers run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use futures::SinkExt;
use futures::channel::mpsc;
use ipfrs_proto::file::v1::add_file_request::Part;
use ipfrs_proto::file::v1::file_service_client::FileServiceClient;
use ipfrs_proto::file::v1::{AddFileRequest, FileMetadata, GetFileRequest};
use rustix::process::Signal;
use tonic::transport::Channel;

use crate::harness::{Daemon, Place, noise, rounds};

/// Number of downloads, and of uploads.
const TRANSFERS: usize = 10;

/// Size of a download. It exceeds the socket buffers of both sides.
const DOWNLOAD_BYTES: usize = 16 * 1024 * 1024;

fn upload_of(number: usize) -> Vec<u8> {
    noise(2_000_000 + number)
}

/// Reads the rest of a response, and returns its body.
fn rest(connection: &mut impl Read, mut response: Vec<u8>) -> Vec<u8> {
    connection.read_to_end(&mut response).unwrap();
    assert!(
        response.starts_with(b"HTTP/1.1 200 OK\r\n"),
        "{}",
        String::from_utf8_lossy(&response[..response.len().min(100)])
    );
    let head = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    response.split_off(head)
}

/// Ends a daemon that has begun transfers of all clients. Returns the content IDs of the uploads.
fn end_under_load(mut daemon: Daemon, id: &str, content: &[u8]) -> Vec<String> {
    let downloads: Vec<_> = (0..TRANSFERS)
        .map(|_| {
            let mut connection = daemon.send(&format!("GET /ipfs/{id} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
            let mut begun = vec![0; 64 * 1024];
            connection.read_exact(&mut begun).unwrap();
            (connection, begun)
        })
        .collect();
    let uploads: Vec<_> = (0..TRANSFERS)
        .map(|number| {
            let body = upload_of(number);
            let mut connection = daemon.begin_upload("/api/v0/add?quieter=true", body.len());
            connection.write_all(&body[..body.len() / 2]).unwrap();
            (connection, body)
        })
        .collect();
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("stopping");
    let added = thread::scope(|scope| {
        for (mut connection, begun) in downloads {
            connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            scope.spawn(move || assert!(rest(&mut connection, begun) == content, "the content differs"));
        }
        let uploads: Vec<_> = uploads
            .into_iter()
            .map(|(mut connection, body)| {
                connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                scope.spawn(move || {
                    connection.write_all(&body[body.len() / 2..]).unwrap();
                    String::from_utf8(rest(&mut connection, Vec::new())).unwrap()
                })
            })
            .collect();
        uploads.into_iter().map(|upload| upload.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(daemon.wait().0, Some(0));
    let hash = |added: &String| added.split("\"Hash\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    added.iter().map(hash).collect()
}

#[test]
fn transfers_that_run_at_sigterm_complete_under_load() {
    let place = Place::new();
    let content = noise(DOWNLOAD_BYTES);
    place.write("big", &content);
    let id = place.ok(&["add", "-Q", "big"]);
    for _ in 0..rounds() {
        let added = end_under_load(place.start(&[]), &id, &content);
        assert!(!place.repo().join("api").exists());
        // The next daemon has all acknowledged content.
        for (number, cid) in added.iter().enumerate() {
            assert!(place.run(&["cat", cid]).stdout == upload_of(number), "upload {number}");
        }
    }
}

/// Creates a resumable upload and sends half of its body, which is in progress then.
fn begin_part(daemon: &Daemon, body: &[u8]) -> TcpStream {
    let length = body.len();
    let create = format!(
        "POST /v1/stream/upload HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Length: {length}\r\n\
         Content-Length: 0\r\nConnection: close\r\n\r\n"
    );
    let mut created = String::new();
    daemon.send(&create).read_to_string(&mut created).unwrap();
    let location = created.lines().find_map(|line| line.strip_prefix("Location: "));
    let location = location.unwrap_or_else(|| panic!("{created}"));
    let mut connection = daemon.send(&format!(
        "PATCH {location} HTTP/1.1\r\nHost: localhost\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n\
         Content-Type: application/offset+octet-stream\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    ));
    let mut asked = [0; 25];
    connection.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    connection.write_all(&body[..length / 2]).unwrap();
    connection
}

/// Sends the other half of the body of a resumable upload. Returns the content ID of the file.
fn end_part(mut connection: TcpStream, body: &[u8]) -> String {
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    connection.write_all(&body[body.len() / 2..]).unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 204"), "{response}");
    let mut fields = response.lines().filter_map(|line| line.split_once(": "));
    let (_, cid) = fields.find(|(name, _)| name.eq_ignore_ascii_case("x-ipfs-cid")).unwrap();
    cid.to_owned()
}

fn chunk(bytes: &[u8]) -> AddFileRequest {
    AddFileRequest { part: Some(Part::Chunk(Bytes::copy_from_slice(bytes))) }
}

fn metrics(daemon: &Daemon) -> String {
    let mut text = String::new();
    daemon.send("GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").read_to_string(&mut text).unwrap();
    text
}

#[test]
fn calls_and_resumable_uploads_that_run_at_sigterm_complete() {
    let place = Place::new();
    let content = noise(DOWNLOAD_BYTES);
    place.write("big", &content);
    let id = place.ok(&["add", "-Q", "big"]);
    let mut daemon = place.start(&[]);
    let bodies = [upload_of(0), upload_of(1)];
    let part = begin_part(&daemon, &bodies[0]);
    // The calls continue on another thread while this one waits.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let added = runtime.block_on(async {
        let url = format!("http://{}", daemon.grpc.as_ref().unwrap());
        let mut client = FileServiceClient::new(Channel::from_shared(url).unwrap().connect_lazy());
        let request = GetFileRequest { path: format!("/ipfs/{id}"), ..GetFileRequest::default() };
        let mut download = client.get_file(request).await.unwrap().into_inner();
        let mut received = download.message().await.unwrap().unwrap().data.to_vec();
        let (mut sender, messages) = mpsc::channel(0);
        let upload = tokio::spawn(async move { client.add_file(messages).await });
        let (begin, end) = bodies[1].split_at(bodies[1].len() / 2);
        sender.send(AddFileRequest { part: Some(Part::Metadata(FileMetadata::default())) }).await.unwrap();
        sender.send(chunk(begin)).await.unwrap();
        while !metrics(&daemon).contains("ipfrs_grpc_requests_active 2\n") {}
        daemon.signal(Signal::TERM);
        daemon.wait_for_log("stopping");
        sender.send(chunk(end)).await.unwrap();
        drop(sender);
        while let Some(message) = download.message().await.unwrap() {
            received.extend_from_slice(&message.data);
        }
        assert!(received == content, "the content differs");
        upload.await.unwrap().unwrap().into_inner().cid
    });
    let resumed = end_part(part, &bodies[0]);
    drop(runtime);
    assert_eq!(daemon.wait().0, Some(0));
    // The next daemon serves what this one acknowledged.
    for (cid, body) in [resumed, added].iter().zip(&bodies) {
        assert!(place.run(&["cat", cid]).stdout == *body, "{cid}");
    }
}
