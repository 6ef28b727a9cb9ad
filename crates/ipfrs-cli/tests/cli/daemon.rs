//! Lifecycle of the daemon: start, status, stop, signals that end it, and the state after a kill.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Daemon, Place, in_shell, noise};

#[test]
fn daemon_prints_addresses_and_stops_on_request() {
    let place = Place::new();
    assert!(place.fails(&["gateway", "status"]).contains("start one with `ipfrs-cli gateway start`"));
    assert!(place.fails(&["gateway", "status", "--ready"]).contains("start one with `ipfrs-cli gateway start`"));
    place.write("hello", b"hello\n");
    let id = place.ok(&["add", "-Q", "hello"]);
    let daemon = place.start(&[]);
    assert_eq!(
        fs::read_to_string(place.repo().join("api")).unwrap(),
        format!("/ip4/127.0.0.1/tcp/{}", daemon.url().rsplit(':').next().unwrap())
    );
    let status = place.ok(&["gateway", "status"]);
    assert!(status.contains(&format!("Gateway: {} (ready)", daemon.url())), "{status}");
    assert!(status.contains("Blocks: 1"), "{status}");
    assert_eq!(place.ok(&["gateway", "status", "--ready"]), status);
    assert!(place.ok(&["gateway", "status", "--json"]).contains(r#""ready":true"#));
    let with_password = daemon.url().replace("http://", "http://user:secret@");
    assert_eq!(place.ok(&["gateway", "status", "--api", &with_password]), status);
    assert_eq!(place.ok(&["cat", &id]), "hello");
    assert_eq!(place.ok(&["gateway", "stop"]), format!("stopped {}", daemon.url()));
    // The repo is released before `stop` returns.
    assert_eq!(place.ok(&["cat", &id]), "hello");
    assert_eq!(daemon.wait().0, Some(0));
    assert!(!place.repo().join("api").exists());
}

#[test]
fn stop_waits_for_a_gateway_that_is_stopping_already() {
    let place = Place::new();
    let mut command = place.command(&["gateway", "start", "--port", "0"]);
    command.env("IPFRS_SERVER_SHUTDOWN_GRACE_SECONDS", "5");
    let mut daemon = Daemon::start(command);
    let _held = daemon.begin_upload("/api/v0/add", 1000);
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("stopping");
    let refused = place.fails(&["gateway", "status"]);
    assert!(refused.contains(&format!("process {} (ipfrs gateway)", daemon.id())), "{refused}");
    assert!(place.ok(&["gateway", "stop"]).contains("stopped"));
    assert_eq!(daemon.wait().0, Some(0));
    assert!(place.fails(&["gateway", "stop"]).contains("no gateway is running"));
}

#[test]
fn transfer_running_at_sigterm_completes() {
    let place = Place::new();
    let content = noise(32 * 1024 * 1024);
    place.write("big", &content);
    let id = place.ok(&["add", "-Q", "big"]);
    let mut daemon = place.start(&[]);
    // The content exceeds the socket buffers of both sides, so the transfer is still running.
    let mut connection = daemon.send(&format!("GET /ipfs/{id} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    let mut response = vec![0; 64 * 1024];
    connection.read_exact(&mut response).unwrap();
    daemon.signal(Signal::TERM);
    daemon.wait_for_log("stopping");
    connection.read_to_end(&mut response).unwrap();
    let head = response.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(response.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert_eq!(response.len() - head, content.len());
    assert!(response[head..] == content, "the content differs");
    assert_eq!(daemon.wait().0, Some(0));
    assert!(!place.repo().join("api").exists());
}

#[test]
fn second_signal_stops_daemon_at_once() {
    let place = Place::new();
    let mut daemon = place.start(&[]);
    let _held = daemon.begin_upload("/api/v0/add", 1000);
    daemon.signal(Signal::INT);
    daemon.wait_for_log("stopping");
    daemon.signal(Signal::INT);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(1));
    assert!(log.contains("stopped by a second signal"), "{log}");
}

#[test]
fn acknowledged_content_survives_kill() {
    let place = Place::new();
    let content = noise(3_000_000);
    place.write("file", &content);
    let daemon = place.start(&[]);
    let id = place.ok(&["add", "-Q", "file"]);
    daemon.kill();
    // The dead daemon's URL file still exists. The command detects this and opens the repo itself.
    assert!(place.repo().join("api").exists());
    assert_eq!(place.run(&["cat", &id]).stdout, content);
    assert!(!place.repo().join("api").exists());
    let again = place.start(&[]);
    assert_eq!(place.run(&["cat", &id]).stdout, content);
    again.kill();
    let once_more = place.start(&[]);
    assert_eq!(place.run(&["cat", &id]).stdout, content);
    drop(once_more);
}

#[test]
fn a_port_in_use_is_named() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let message = place.fails(&["gateway", "start", "--port", &port]);
    assert!(message.contains(&format!("port {port} on 127.0.0.1 is in use")), "{message}");
    assert!(message.contains("--port"), "{message}");
    assert!(!place.repo().join("api").exists());
    // The repo was released.
    drop(place.start(&[]));
}

#[test]
fn grpc_listens_on_own_port_shown_by_status() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let message = place.fails(&["gateway", "start", "--port", "0", "--grpc-port", &port]);
    assert!(message.contains(&format!("port {port} on 127.0.0.1 is in use")), "{message}");
    assert!(message.contains("--grpc-port"), "{message}");
    let _daemon = place.start(&[]);
    let status: serde_json::Value = serde_json::from_str(&place.ok(&["gateway", "status", "--json"])).unwrap();
    let address = status["grpc"][0].as_str().unwrap();
    assert!(address.starts_with("127.0.0.1:") && address != "127.0.0.1:50051", "{address}");
    assert!(place.ok(&["gateway", "status"]).contains(&format!("gRPC: {address}\n")));
}

#[test]
fn second_process_on_repo_gets_name_of_holder() {
    let place = Place::new();
    let daemon = place.start(&[]);
    let message = place.fails(&["gateway", "start", "--port", "0"]);
    assert!(message.contains("ipfrs gateway") && message.contains(&daemon.id().to_string()), "{message}");
    // The failed daemon did not change the URL file of the running one.
    assert!(place.ok(&["gateway", "status"]).contains(daemon.url()));
}

#[test]
fn repo_has_one_daemon_wherever_its_blocks_are() {
    for stores in [["path = \"b1\"", "path = \"b2\""], ["engine = \"memory\"", "path = \"b\""]] {
        let place = Place::new();
        for (file, store) in [("first.toml", stores[0]), ("second.toml", stores[1])] {
            place.write(file, format!("[store]\n{store}\n").as_bytes());
        }
        let daemon = place.start(&["--config", "first.toml"]);
        let message = place.fails(&["gateway", "start", "--port", "0", "--config", "second.toml"]);
        let holder = format!("in use by process {} (ipfrs gateway)", daemon.id());
        assert!(message.contains(&format!("the repo in {}", place.repo().display())), "{message}");
        assert!(message.contains(&holder), "{message}");
        place.ok(&["gateway", "stop"]);
        assert_eq!(daemon.wait().0, Some(0));
        // The repo is released.
        drop(place.start(&["--config", "second.toml"]));
    }
}

#[test]
fn daemon_runs_although_its_addresses_cannot_be_printed() {
    let full = OwnedFd::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let (_, closed) = std::io::pipe().unwrap();
    for output in [full, closed.into()] {
        let place = Place::new();
        let mut command = place.command(&["gateway", "start", "--port", "0", "--workers", "2"]);
        let mut child = command.stdout(output).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = log.find(|line| line.as_ref().unwrap().contains("the addresses cannot be printed"));
        assert!(said.is_some(), "the daemon ended");
        assert!(place.ok(&["gateway", "status"]).contains("(ready)"));
        place.ok(&["gateway", "stop"]);
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn start_refuses_flags_without_effect_and_ports_of_two_listeners() {
    let place = Place::new();
    let start = |arguments: &[&str]| place.fails(&[&["gateway", "start", "--port", "0"], arguments].concat());
    for (flag, key) in [("--grpc-port", "grpc.enabled"), ("--api-port", "api.enabled")] {
        place.write("off.toml", format!("[{}]\nenabled = false\n", key.split('.').next().unwrap()).as_bytes());
        let message = start(&[flag, "0", "--config", "off.toml"]);
        assert!(message.contains(&format!("{flag} has no effect with {key} = false")), "{message}");
    }
    assert!(start(&["--api", "http://127.0.0.1:9"]).contains("omit --api"));
    let message = place.fails(&["gateway", "start", "--port", "18923", "--grpc-port", "18923"]);
    assert!(message.contains("grpc.port = 18923: [server] listens there too"), "{message}");
    assert!(!place.repo().exists());
}

#[test]
fn daemon_refuses_public_address_unless_allowed() {
    let place = Place::new();
    for host in ["0.0.0.0", "::"] {
        let message = place.fails(&["gateway", "start", "--port", "0", "--host", host]);
        assert!(message.contains(&format!("refusing to listen on {host}")), "{message}");
        assert!(message.contains("allow_unauthenticated = true"), "{message}");
    }
    place.write("open.toml", b"[server]\nallow_unauthenticated = true\nhost = \"0.0.0.0\"\n");
    let daemon = place.start(&["--config", "open.toml"]);
    assert!(daemon.url().starts_with("http://0.0.0.0:"));
    assert!(place.ok(&["gateway", "status"]).starts_with("Gateway: http://127.0.0.1:"));
}

#[test]
fn host_name_binds_all_its_addresses() {
    let place = Place::new();
    let daemon = place.start(&["--host", "localhost"]);
    let ports: Vec<_> = daemon.urls.iter().map(|url| url.rsplit(':').next().unwrap()).collect();
    assert!(ports.iter().all(|port| *port == ports[0] && *port != "0"), "{:?}", daemon.urls);
    let has_ipv6 = TcpListener::bind(("::1", 0)).is_ok();
    assert_eq!(daemon.urls.len(), 1 + usize::from(has_ipv6), "{:?}", daemon.urls);
    for url in &daemon.urls {
        assert!(place.ok(&["gateway", "status", "--api", url]).contains("(ready)"));
    }
}

#[test]
fn failed_requests_are_logged_with_rate_limit() {
    let place = Place::new();
    // No DNS resolver listens on this address.
    place.write("dns.toml", b"[dns]\nresolvers = \"127.0.0.1:1\"\ntimeout_seconds = 1\n[log]\nformat = \"json\"\n");
    let mut daemon = place.start(&["--config", "dns.toml"]);
    let request = |id: usize, end: &str| {
        format!("GET /x HTTP/1.1\r\nHost: unknown.example.net\r\nX-Request-Id: id-{id}\r\n{end}\r\n")
    };
    let requests: String = (0..30).map(|id| request(id, "")).collect();
    let mut connection = daemon.send(&(requests + &request(30, "Connection: close\r\n")));
    let mut answers = String::new();
    connection.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("cannot determine whether").count(), 31, "{answers}");
    let line = daemon.wait_for_log("left_out");
    for part in ["\"request_id\":\"id-0\"", "\"endpoint\":\"unmatched\"", "unknown.example.net", "\"left_out\":0"] {
        assert!(line.contains(part), "{line}");
    }
    daemon.signal(Signal::TERM);
    let (_, log) = daemon.wait();
    assert_eq!(log.matches("left_out").count(), 19, "{log}");
}

/// Returns a daemon to which sockets are passed as a service manager does: the shell makes standard input descriptor 3.
fn activated(place: &Place, socket: &TcpListener, variables: &str) -> Command {
    let command = place.command(&["gateway", "start"]);
    let mut shell = in_shell(&format!("exec 3<&0 </dev/null; {variables} exec \"$0\" \"$@\""), &command);
    let socket = OwnedFd::from(socket.try_clone().unwrap());
    shell.env("IPFRS_SERVER_PORT", "0").stdin(socket);
    shell
}

#[test]
fn passed_socket_is_used_in_place_of_the_configured_address() {
    let place = Place::new();
    place.write("hello", b"hello\n");
    let id = place.ok(&["add", "-Q", "hello"]);
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    // A connection that was made before the daemon starts is served.
    let mut early = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
    early.write_all(format!("GET /ipfs/{id} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    for variables in ["", "LISTEN_FDNAMES=server", "LISTEN_FDNAMES=ipfrs.socket"] {
        let daemon = Daemon::start(activated(&place, &socket, &format!("LISTEN_PID=$$ LISTEN_FDS=1 {variables}")));
        assert_eq!(daemon.urls, [url.as_str()], "{variables}");
        assert_eq!(place.ok(&["cat", &id]), "hello");
        if variables.is_empty() {
            let mut response = String::new();
            early.read_to_string(&mut response).unwrap();
            assert!(response.ends_with("\r\n\r\nhello\n"), "{response}");
        }
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.exit_code(), Some(0));
    }
    let named = "LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=api";
    let daemon = Daemon::start(activated(&place, &socket, named));
    assert_ne!(daemon.urls, [url.as_str()]);
    assert!(place.ok(&["gateway", "status"]).contains(&url), "the API listens on the socket");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code(), Some(0));
    // Sockets of another process are ignored, and wrong ones are refused.
    for others in ["LISTEN_PID=1 LISTEN_FDS=1", "LISTEN_FDS=1"] {
        let daemon = Daemon::start(activated(&place, &socket, others));
        assert_ne!(daemon.urls, [url.as_str()], "{others}");
        daemon.signal(Signal::TERM);
        assert_eq!(daemon.exit_code(), Some(0));
    }
    for (variables, reason) in [
        ("LISTEN_FDS=1 LISTEN_FDNAMES=http", "none of server, grpc, api, public"),
        ("LISTEN_FDS=1 LISTEN_FDNAMES=public", "[public], which is not enabled"),
        ("LISTEN_FDS=2 LISTEN_FDNAMES=server:api", "socket 1"),
        ("LISTEN_FDS=x", "at most 64"),
    ] {
        let output = activated(&place, &socket, &format!("LISTEN_PID=$$ {variables}")).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(reason), "{variables}: {error}");
    }
    let exposed = TcpListener::bind("0.0.0.0:0").unwrap();
    let output = activated(&place, &exposed, "LISTEN_PID=$$ LISTEN_FDS=1").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("refusing to listen on 0.0.0.0"), "{error}");
}
