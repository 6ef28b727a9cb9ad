//! Interrupted streams, on either side.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;

use crate::harness::{Place, noise};

/// Starts a server that sends `answer` in response to every request until the test ends.
fn server(answer: impl Into<String>) -> String {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = BufReader::new(connection.unwrap());
            let mut line = String::new();
            while connection.read_line(&mut line).unwrap() > 2 {
                line.clear();
            }
            connection.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn truncated_response_is_error() {
    let place = Place::new();
    let cases = [
        (
            "HTTP/1.1 200 OK\r\nX-Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n",
            "ended early after 4 bytes (expected 9)",
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Stream-Error\r\n\r\n4\r\nhalf\r\n0\r\n\
             X-Stream-Error: a block is missing\r\n\r\n",
            "a block is missing",
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "ended early after 4 bytes"),
        ("HTTP/1.1 500 No\r\nContent-Length: 30\r\n\r\n{\"Message\":\"no such\",\"Code\":0}", "Error: no such"),
    ];
    for (answer, expected) in cases {
        let url = server(answer);
        let message = place.fails(&["cat", "x", "--api", &url]);
        assert!(message.contains(expected), "{message}");
        let message = place.fails(&["get", "x", "--api", &url]);
        assert!(message.contains(expected), "{message}");
        assert!(!place.path("x").exists());
    }
}

#[test]
fn error_line_after_others_fails_command() {
    let place = Place::new();
    place.write("file", b"content");
    let added = "{\"Name\":\"file\",\"Hash\":\"QmX\",\"Size\":\"15\"}\n";
    let error = "{\"Message\":\"the disk is full\",\"Code\":0,\"Type\":\"error\"}\n";
    let length = added.len() + error.len();
    // Kubo terminates the body normally after the error line.
    let url = server(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{added}{error}"));
    for command in [&["add", "file"][..], &["repo", "gc"], &["dag", "stat", "QmX"], &["ls", "QmX"]] {
        let url = match command[0] {
            "add" => url.clone(),
            _ => server(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{error}", error.len())),
        };
        let message = place.fails(&[command, &["--api", &url]].concat());
        assert_eq!(message.trim_end(), "Error: the disk is full", "{command:?}");
    }
}

#[test]
fn closed_standard_output_is_not_an_error() {
    let place = Place::new();
    place.write("big", &noise(8 * 1024 * 1024));
    let id = place.ok(&["add", "-Q", "big"]);
    let mut child = place.command(&["cat", &id]).stdout(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(ended.stderr).unwrap(), "");
    assert!(ended.status.success());
}
