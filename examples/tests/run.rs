//! Runs the examples as their readers would.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Returns a command for an example, which cargo builds beside this test. It runs in the root of the workspace.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile: PathBuf = test.ancestors().nth(2).unwrap().into();
    let mut command = Command::new(profile.join("examples").join(name));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    command
}

fn output_of(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A running example, which is stopped when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts an example, and returns the first line that it prints.
fn start(mut command: Command) -> (Running, String) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Running(child), line.trim().to_owned())
}

#[test]
fn embedded_store_adds_reads_and_collects() {
    let repo = tempfile::tempdir().unwrap();
    let mut command = example("embedded_store");
    command.arg("examples").arg(repo.path());
    let output = output_of(command);
    assert!(output.contains("mount_in_axum.rs") && output.contains("The store without a server: adds a"), "{output}");
    assert!(output.contains("gc removed 0 blocks"), "{output}");
}

#[test]
fn own_engine_serves_a_node() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = example("own_engine");
    command.arg(dir.path());
    let output = output_of(command);
    assert!(output.contains(": A storage engine of your own"), "{output}");
    assert!(dir.path().join("blocks").read_dir().unwrap().count() > 0);
}

#[test]
fn mounted_gateway_serves_content_and_no_rpc() {
    let repo = tempfile::tempdir().unwrap();
    let mut command = example("mount_in_axum");
    command.arg(repo.path());
    let (_running, url) = start(command);
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let get = |request: String| {
        let mut connection = TcpStream::connect(host).unwrap();
        connection.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).unwrap();
        response
    };
    let response = get(format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
    assert!(response.starts_with("HTTP/1.1 200") && response.contains("The gateway in an axum server"), "{response}");
    let response =
        get(format!("POST /api/v0/version HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    assert!(response.starts_with("HTTP/1.1 404"), "{response}");
}

#[test]
fn embedded_gateway_listens() {
    let repo = tempfile::tempdir().unwrap();
    let mut command = example("embedded_gateway");
    command.arg(repo.path());
    let (_running, url) = start(command);
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).is_ok(), "{url}");
}
