//! A daemon that may open few files: connections leave some for everything else.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::{Daemon, Place, in_shell, rounds};

/// Number of files that the daemon may open. It needs some 30 by itself, and connections leave 64.
const OPEN_FILES: usize = 88;
const CONNECTIONS: usize = 200;

#[test]
fn clients_that_hold_all_connections_stop_no_other_request() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    let id = place.ok(&["add", "-Q", "hello"]);
    let command = place.command(&["gateway", "start", "--port", "0", "--workers", "2"]);
    let daemon = Daemon::start(in_shell(&format!("ulimit -n {OPEN_FILES}; exec \"$0\" \"$@\""), &command));
    let get = format!("GET /ipfs/{id} HTTP/1.1\r\nHost: x\r\n\r\n");
    for round in 0..rounds() {
        let mut kept = daemon.send(&get);
        assert_eq!(read_response(&mut kept), "hello\n");
        let mut held: Vec<_> = (0..CONNECTIONS).map(|_| daemon.send("GET / HTTP/1.1\r\n")).collect();
        // The API listener has connections of its own.
        assert!(call(&mut daemon.connect_to_api(), &format!("files/mkdir?arg=/a{round}"), "").is_empty());
        // A connection from before reads and writes, with files that are opened for it.
        kept.write_all(get.as_bytes()).unwrap();
        assert_eq!(read_response(&mut kept), "hello\n");
        let form = "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nnew\r\n--x--\r\n";
        assert!(call(&mut kept, "block/put", form).contains("\"Size\":3"));
        assert!(call(&mut kept, &format!("key/gen?arg=k{round}"), "").contains(&format!("\"Name\":\"k{round}\"")));
        // A connection that waits is served once others have gone.
        let mut waiting = held.pop().unwrap();
        drop(held);
        waiting.write_all(format!("Host: x\r\n\r\n{get}").as_bytes()).unwrap();
        read_response(&mut waiting);
        assert_eq!(read_response(&mut waiting), "hello\n");
    }
    daemon.kill();
}

/// Creates a resumable upload and begins to continue it. Returns the connection, and the head of the response, which is
/// 100 once the upload is being received.
fn begin_upload(daemon: &Daemon) -> (TcpStream, String) {
    let request = "POST /v1/stream/upload HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\nUpload-Length: 10\r\n\
                   Content-Length: 0\r\n\r\n";
    let mut connection = daemon.send(request);
    let created = read_head(&mut connection);
    assert!(created.starts_with("http/1.1 201"), "{created}");
    let location = created.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    let request = format!(
        "PATCH {location} HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nExpect: 100-continue\r\n\
         Content-Type: application/offset+octet-stream\r\nContent-Length: 10\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).unwrap();
    let head = read_head(&mut connection);
    (connection, head)
}

#[test]
fn uploads_of_one_client_leave_files_for_others() {
    // The daemon receives 32 uploads at the same time.
    const OF_ONE_CLIENT: usize = 16;
    let place = Place::new();
    let command = place.command(&["gateway", "start", "--port", "0", "--workers", "2"]);
    let daemon = Daemon::start(in_shell("ulimit -n 300; exec \"$0\" \"$@\"", &command));
    let mut held = Vec::new();
    let refused = loop {
        let (connection, head) = begin_upload(&daemon);
        if !head.starts_with("http/1.1 100") {
            break head;
        }
        held.push(connection);
        assert!(held.len() <= OF_ONE_CLIENT);
    };
    assert!(held.len() == OF_ONE_CLIENT && refused.starts_with("http/1.1 429"), "{}: {refused}", held.len());
    let empty = "POST /v1/stream/upload HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\nUpload-Length: 0\r\n\
                 Content-Length: 0\r\n\r\n";
    let created = read_head(&mut daemon.send(empty));
    assert!(created.starts_with("http/1.1 201"), "an upload without content needs no permit: {created}");
    drop(held);
    while !begin_upload(&daemon).1.starts_with("http/1.1 100") {}
    daemon.kill();
}

/// Calls a command of the RPC with a form, and returns the body of the response.
fn call(connection: &mut TcpStream, command: &str, form: &str) -> String {
    let length = form.len();
    let request = format!(
        "POST /api/v0/{command} HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n\
         Content-Length: {length}\r\n\r\n{form}"
    );
    connection.write_all(request.as_bytes()).unwrap();
    read_response(connection)
}

/// Reads the head of a response, in lower case. A daemon that is silent for a minute has failed.
fn read_head(connection: &mut TcpStream) -> String {
    connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_ascii_lowercase()
}

/// Reads a response and returns its body.
fn read_response(connection: &mut TcpStream) -> String {
    let head = read_head(connection);
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
