//! A daemon that may open few files.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Daemon, Place, in_shell};

/// Number of files that the daemon may open. It needs some 30 by itself.
const OPEN_FILES: usize = 80;
const CONNECTIONS: usize = 200;

#[test]
fn clients_that_hold_all_connections_stop_no_other_request() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    let id = place.ok(&["add", "-Q", "hello"]);
    let command = place.command(&["gateway", "start", "--port", "0", "--workers", "2"]);
    let mut daemon = Daemon::start(in_shell(&format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\""), &command));
    let get = format!("GET /ipfs/{id} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut kept = daemon.send(&get);
    assert_eq!(read_response(&mut kept), "hello\n");
    let mut held: Vec<_> = (0..CONNECTIONS).map(|_| daemon.send("GET / HTTP/1.1\r\n")).collect();
    daemon.wait_for_log("cannot accept");
    // A connection from before reads and writes.
    kept.write_all(get.as_bytes()).unwrap();
    assert_eq!(read_response(&mut kept), "hello\n");
    let form = "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nnew\r\n--x--\r\n";
    let length = form.len();
    let put = format!(
        "POST /api/v0/block/put HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n\
         Content-Length: {length}\r\n\r\n{form}"
    );
    kept.write_all(put.as_bytes()).unwrap();
    assert!(read_response(&mut kept).contains("\"Size\":3"));
    // A connection that waits is served once others have gone.
    let mut waiting = held.pop().unwrap();
    drop(held);
    waiting.write_all(format!("Host: x\r\n\r\n{get}").as_bytes()).unwrap();
    read_response(&mut waiting);
    assert_eq!(read_response(&mut waiting), "hello\n");
    daemon.kill();
}

/// Reads a response and returns its body. A daemon that is silent for a minute has failed.
fn read_response(connection: &mut TcpStream) -> String {
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let chunked = head.contains("transfer-encoding: chunked");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    connection.read_exact(&mut body).unwrap();
    while chunked && !body.ends_with(b"0\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        body.push(byte[0]);
    }
    String::from_utf8(body).unwrap()
}
