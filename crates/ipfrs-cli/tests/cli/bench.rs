//! `bench` against a daemon, and `bench http` against misbehaving servers. No test depends on timing.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Place, Ran, noise};

/// Starts a server that passes each connection to `serve` until the test ends.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(connection));
        }
    });
    url
}

/// Reads request heads and calls `answer` with each one until it returns false.
fn requests(connection: TcpStream, mut answer: impl FnMut(&str, &mut TcpStream) -> bool) {
    let mut writer = connection.try_clone().unwrap();
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while reader.read_line(&mut head).is_ok_and(|length| length > 0) {
        if head.ends_with("\r\n\r\n") {
            if !answer(&head, &mut writer) {
                return;
            }
            head.clear();
        }
    }
}

/// Runs the command, which must succeed, and returns its report after checking the invariants.
fn report(place: &Place, arguments: &[&str]) -> Value {
    let ran = place.run(&[&["--json", "bench", "http"], arguments].concat());
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    parsed(&ran)
}

fn parsed(ran: &Ran) -> Value {
    let report: Value = serde_json::from_str(ran.text()).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let sum = |of: &Value| of.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum::<u64>();
    let rows = report["histogram"].as_array().unwrap();
    let up_to = |row: &Value| row["up_to_seconds"].as_f64().unwrap();
    assert!(rows.is_sorted_by(|a, b| up_to(a) < up_to(b)), "each row once: {report}");
    let rows = rows.iter().map(|row| row["count"].as_u64().unwrap());
    let answered = report["requests"]["answered"].as_u64().unwrap();
    assert_eq!(sum(&report["statuses"]), answered, "{report}");
    assert_eq!(rows.sum::<u64>(), answered, "{report}");
    assert_eq!(sum(&report["errors"]), report["requests"]["failed"], "{report}");
    assert_eq!(report["latency_seconds"].is_null(), answered == 0, "{report}");
    report
}

#[test]
fn bench_sends_requested_count_and_counts_all() {
    let place = Place::new();
    place.write("small", b"0123456789");
    place.write("large", &noise(300_000));
    let small = place.ok(&["add", "-Q", "small"]);
    let large = place.ok(&["add", "-Q", "large"]);
    let nothing = place.fails(&["bench", "http", "--cid", &small]);
    assert!(nothing.contains("no gateway is running on"), "{nothing}");
    let daemon = place.start(&[]);
    let nothing = place.fails(&["bench", "http"]);
    assert!(nothing.contains("--cid"), "{nothing}");

    // With the daemon of the repo, and two files in rotation.
    let both = report(&place, &["--cid", &small, "--cid", &large, "--requests", "100", "--connections", "7"]);
    assert_eq!(both["url"], daemon.url());
    assert_eq!(both["requests"]["answered"], 100);
    assert_eq!(both["requests"]["succeeded"], 100);
    assert_eq!(both["body_bytes"], 50 * (10 + 300_000));
    assert_eq!(both["length_checked"], 100);
    assert_eq!(both["reopened"], 0);

    let url = format!("{}/ipfs/{small}", daemon.url());
    let one = report(&place, &[&url, "-n", "33", "--http2", "--streams", "5", "--connections", "2"]);
    assert_eq!((&one["requests"]["answered"], &one["body_bytes"]), (&33.into(), &330.into()));

    // With a rate and a warm-up.
    let paced = ["-n", "40", "--rate", "2000", "--warmup", "10ms", "--connections", "3"];
    let paced = report(&place, &[&[&*url][..], &paced].concat());
    assert_eq!((&paced["requests"]["answered"], &paced["requests"]["unsent"]), (&40.into(), &0.into()));

    let path = format!("/ipfs/{small}?format=raw");
    let raw = ["-n", "3", "--connections", "1", "--path", &path, "-H", "Range: bytes=0-3"];
    assert_eq!(report(&place, &[&[daemon.url()][..], &raw].concat())["requests"]["answered"], 3);
}

#[test]
fn bench_ranges_have_requested_size_at_any_position() {
    let place = Place::new();
    place.write("file", &noise(100_000));
    let file = place.ok(&["add", "-Q", "file"]);
    let _daemon = place.start(&[]);
    // Sequential ranges run from the beginning to the end, where the last one is shorter, and then start again.
    let cases: [(&[&str], u64); 4] = [
        (&["--range", "1kB"], 10 * 1000),
        (&["--range", "30000", "--ranges", "sequential"], 2 * 100_000 + 60_000),
        (&["--range", "1KiB", "--ranges", "random"], 10 * 1024),
        (&["--ranges", "random"], 10 * 65_536),
    ];
    for (arguments, bytes) in cases {
        let ranges = report(&place, &[&["--cid", &file, "-n", "10", "-c", "2"], arguments].concat());
        assert_eq!(ranges["statuses"]["206"], 10, "{arguments:?}");
        assert_eq!(ranges["body_bytes"], bytes, "{arguments:?}");
    }
    let missing = place.fails(&["bench", "http", "--path", "/ipfs/none", "-n", "1", "--ranges", "random"]);
    assert!(missing.contains("a request for the length of /ipfs/none"), "{missing}");
}

#[test]
fn bench_failures_are_classified_and_exit_with_error() {
    let place = Place::new();
    let answering = |answer: &'static str, goes_on: bool| {
        server(move |connection| {
            requests(connection, |_, writer| writer.write_all(answer.as_bytes()).is_ok() && goes_on);
        })
    };
    let cases = [
        (answering("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", true), "answered", "404"),
        (answering("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", false), "failed", "cut_off"),
        (answering("", false), "failed", "closed"),
        (answering("SSH-2.0-OpenSSH\r\n\r\n", false), "failed", "protocol"),
    ];
    for (url, outcome, kind) in cases {
        let ran = place.run(&["--json", "bench", "http", &url, "-n", "20", "-c", "3"]);
        assert_eq!(ran.code, Some(1), "{kind}: {}", ran.stderr);
        assert!(ran.stderr.contains("no request succeeded"), "{}", ran.stderr);
        let report = parsed(&ran);
        assert_eq!(report["requests"][outcome], 20, "{report}");
        let counts = if outcome == "answered" { &report["statuses"] } else { &report["errors"] };
        assert_eq!(counts[kind], 20, "{report}");
    }
    // A server that closes a connection with unread data resets it.
    let resetting = server(|mut connection| drop(connection.read(&mut [0])));
    let report = parsed(&place.run(&["--json", "bench", "http", &resetting, "-n", "20", "-c", "3"]));
    assert_eq!(report["requests"]["failed"], 20, "{report}");
    assert!(report["errors"]["reset"].as_u64().is_some_and(|count| count > 0), "{report}");
    // A server that never responds causes timeouts.
    let silent = server(|connection| requests(connection, |_, _| true));
    let report = parsed(&place.run(&["--json", "bench", "http", &silent, "-n", "2", "-c", "2", "--timeout", "10ms"]));
    assert_eq!(report["errors"]["timeout"], 2, "{report}");
    let nobody = place.fails(&["bench", "http", "http://127.0.0.1:1"]);
    assert!(nobody.contains("cannot connect to http://127.0.0.1:1"), "{nobody}");
}

#[test]
fn bench_reopens_connection_closed_between_requests() {
    let place = Place::new();
    let (connections, heads) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counted = (Arc::clone(&connections), Arc::clone(&heads));
    let url = server(move |connection| {
        counted.0.fetch_add(1, Ordering::Relaxed);
        requests(connection, |head, writer| {
            counted.1.fetch_add(1, Ordering::Relaxed);
            assert!(head.starts_with("GET /a?b HTTP/1.1\r\n") && head.contains("\r\nx-test: 1\r\n"), "{head}");
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
            writer.write_all(answer.as_bytes()).unwrap();
            false
        });
    });
    let report = report(&place, &[&format!("{url}/a?b"), "-n", "12", "-c", "1", "-H", "X-Test: 1"]);
    assert_eq!(report["requests"]["succeeded"], 12, "{report}");
    assert_eq!(report["requests"]["failed"], 0, "{report}");
    assert_eq!(report["reopened"], 11, "{report}");
    assert_eq!(heads.load(Ordering::Relaxed), 12);
    // The additional connection only checked that the server is reachable.
    assert_eq!(connections.load(Ordering::Relaxed), 1 + 12);
}

#[test]
fn bench_interrupted_prints_partial_report() {
    let place = Place::new();
    let (sign, received) = std::sync::mpsc::channel();
    // The server responds to the first request of each connection only.
    let url = server(move |connection| {
        let mut answered = false;
        requests(connection, |_, writer| {
            if answered {
                sign.send(()).unwrap();
            } else {
                writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
            }
            answered = true;
            true
        });
    });
    for json in [&[][..], &["--json"]] {
        let bench = ["bench", "http", &url, "-c", "2", "--duration", "1h"];
        let child = place.command(&[&bench, json].concat()).spawn().unwrap();
        received.recv().unwrap();
        received.recv().unwrap();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(130), "{}", ran.stderr);
        if json.is_empty() {
            let text = ran.text();
            assert!(text.contains("Requests    2 completed, 2 in progress at the end\n"), "{text}");
            assert!(text.contains("Statuses    200: 2\n") && text.contains("p99.9") && text.contains('█'), "{text}");
        } else {
            let report = parsed(&ran);
            assert_eq!((&report["interrupted"], &report["requests"]["unfinished"]), (&true.into(), &2.into()));
        }
    }
}

#[test]
fn bench_reports_due_requests_of_stalled_server_as_unsent() {
    let place = Place::new();
    // There is one connection, whose first request never gets a response. The others, due every millisecond, cannot
    // be sent.
    let url = server(|connection| requests(connection, |_, _| true));
    let arguments = ["--json", "bench", "http", &url, "-c", "1", "--rate", "1000", "-n", "50", "-d", "100ms"];
    let ran = place.run(&arguments);
    assert_eq!(ran.code, Some(1));
    let report = parsed(&ran);
    assert_eq!(report["requests"]["unfinished"], 1, "{report}");
    assert_eq!(report["requests"]["unsent"], 49, "{report}");
}

#[test]
fn bench_rejects_invalid_arguments_before_sending() {
    let place = Place::new();
    for (arguments, message) in [
        (&["https://example.com"][..], "uses TLS"),
        (&["localhost:8080"], "must have the form http://HOST:PORT"),
        (&["http://u:p@127.0.0.1:1"], "must have the form http://HOST:PORT"),
        (&["http://127.0.0.1:1", "--http2", "--streams", "1000", "-c", "1000"], "over the limit of 100000"),
    ] {
        let failure = place.fails(&[&["bench", "http"], arguments].concat());
        assert!(failure.contains(message), "{failure}");
    }
    for arguments in [
        ["--connections", "10001"],
        ["--duration", "10 parsecs"],
        ["--rate", "0"],
        ["--range", "0"],
        ["--path", "relative"],
        ["--cid", "/ipns/name"],
        ["--header", "none"],
        ["--streams", "2"],
    ] {
        let ran = place.run(&[&["bench", "http", "http://127.0.0.1:1"][..], &arguments].concat());
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}", ran.stderr);
    }
    // With too many connections for the system's limit, the error gives the limit.
    let program = env!("CARGO_BIN_EXE_ipfrs-cli");
    let limited = format!("ulimit -n 256 && exec {program} bench http http://127.0.0.1:1 --connections 500");
    let ran = std::process::Command::new("sh").args(["-c", &limited]).env("IPFRS_PATH", place.repo()).output().unwrap();
    let message = String::from_utf8(ran.stderr).unwrap();
    assert!(message.contains("500 connections need 564 open files, but this process may have only 256"), "{message}");
    assert!(!fs::exists(place.repo()).unwrap());
}

#[test]
fn interrupted_bench_ingest_removes_files_of_ended_objects() {
    let place = Place::new();
    let _daemon = place.start(&[]);
    let bench = ["bench", "ingest", "--stores", "filesystem", "--sizes", "1MiB", "--duration", "1h"];
    let mut child = place.command(&bench).spawn().unwrap();
    let files = || fs::read_dir(place.repo().join("ingest")).map_or(0, Iterator::count);
    // One object has ended, and the next has begun.
    while files() < 2 {
        assert_eq!(child.try_wait().unwrap(), None);
        thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(files() <= 1);
}
