//! SIGTERM while many transfers run.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

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
        // What was acknowledged is there for the next daemon.
        for (number, cid) in added.iter().enumerate() {
            assert!(place.run(&["cat", cid]).stdout == upload_of(number), "upload {number}");
        }
    }
}
