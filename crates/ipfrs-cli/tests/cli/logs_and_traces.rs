//! The log of a daemon, its access log, and the traces that it exports.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::Signal;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::transport::server::TcpIncoming;

use crate::harness::{Daemon, Place};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn get(path: &str, lines: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n")
}

/// Sends requests of which the last closes the connection, and returns the responses.
fn exchange(daemon: &Daemon, requests: &str) -> String {
    let mut connection = daemon.send(requests);
    let mut responses = String::new();
    connection.read_to_string(&mut responses).unwrap();
    responses
}

#[test]
fn access_log_has_a_line_for_each_request() {
    let place = Place::new();
    place.write("small", b"small");
    let small = place.ok(&["add", "-Q", "small"]);
    let path = format!("/ipfs/{}", small.trim());
    for format in ["json", "text"] {
        let mut command = place.command(&["gateway", "start", "--port", "0"]);
        command.env("IPFRS_LOG_ACCESS", "true").env("IPFRS_LOG_FORMAT", format);
        let mut daemon = Daemon::start(command);
        // The fast path serves some of these requests.
        let requests: String = (0..9).map(|id| get(&path, &format!("X-Request-Id: small-{id}\r\n"))).collect();
        let traced = format!("traceparent: 00-{TRACE}-{CALLER}-00\r\nX-Request-Id: last\r\nConnection: close\r\n");
        exchange(&daemon, &(requests + &get("/health/live", &traced)));
        exchange(&daemon, "GET / HTTP/1.1\r\nX-Request-Id: refused\r\n\r\n");
        let field = |name: &str, value: &str| match format {
            "json" if value.parse::<u64>().is_ok() || value == "true" => format!("\"{name}\":{value}"),
            "json" => format!("\"{name}\":\"{value}\""),
            _ => format!("{name}={value}"),
        };
        for id in 0..9 {
            let line = daemon.wait_for_log(&field("request_id", &format!("small-{id}")));
            let fields = [
                ("path", &*path),
                ("route", "/ipfs/{*path}"),
                ("status", "200"),
                ("host", "a"),
                ("client", "127.0.0.1"),
                ("sent_bytes", "5"),
                ("complete", "true"),
            ];
            for (name, value) in fields {
                assert!(line.contains(&field(name, value)), "{name}: {line}");
            }
            assert!(line.contains("first_byte_seconds") && line.contains("duration_seconds"), "{line}");
            assert!(!line.contains("trace_id"), "{line}");
        }
        let line = daemon.wait_for_log(&field("request_id", "last"));
        for (name, value) in [("route", "/health/live"), ("method", "GET"), ("status", "200"), ("trace_id", TRACE)] {
            assert!(line.contains(&field(name, value)), "{name}: {line}");
        }
        let line = daemon.wait_for_log(&field("request_id", "refused"));
        assert!(line.contains(&field("route", "unmatched")) && line.contains(&field("status", "400")), "{line}");
    }
}

#[test]
fn requests_are_logged_only_if_configured() {
    let place = Place::new();
    let daemon = place.start(&[]);
    exchange(&daemon, &get("/health/live", "Connection: close\r\n"));
    daemon.signal(Signal::TERM);
    let (_, log) = daemon.wait();
    assert!(log.contains("stopped") && !log.contains("/health/live"), "{log}");
}

#[test]
fn log_that_nobody_reads_delays_no_request_and_no_shutdown() {
    let place = Place::new();
    let mut command = place.command(&["gateway", "start", "--port", "0", "--workers", "1"]);
    command.env("IPFRS_LOG_ACCESS", "true");
    let daemon = Daemon::start(command);
    // More lines than wait to be written, and than fit into the pipe.
    const REQUESTS: usize = 20_000;
    let mut connection = daemon.send("");
    let mut reader = connection.try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        let request = get("/health/live", "");
        let many = request.repeat(100);
        for _ in 0..REQUESTS / 100 {
            connection.write_all(many.as_bytes()).unwrap();
        }
        connection.write_all(get("/health/live", "Connection: close\r\n").as_bytes()).unwrap();
    });
    let mut responses = Vec::new();
    reader.read_to_end(&mut responses).unwrap();
    sending.join().unwrap();
    assert_eq!(memchr_count(&responses, b"HTTP/1.1 200 OK"), REQUESTS + 1);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code(), Some(0));
}

fn memchr_count(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part).count()
}

/// A collector of traces, which passes each span on.
struct Collector(Sender<Span>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        for resource in request.into_inner().resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            let is_ours = |value: &Value| *value == Value::StringValue("ipfrs".to_owned());
            let mut values = attributes.iter().filter_map(|attribute| attribute.value.as_ref()?.value.as_ref());
            assert!(values.any(is_ours), "{attributes:?}");
            for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
                self.0.send(span).unwrap();
            }
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

/// Starts a collector. Returns its URL and the spans that it receives.
fn collector(runtime: &Runtime) -> (String, Receiver<Span>) {
    let (sender, spans) = channel();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = TraceServiceServer::new(Collector(sender));
    let serving =
        tonic::transport::Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener));
    runtime.spawn(serving);
    (url, spans)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, name: &str) -> Option<Value> {
    span.attributes.iter().find(|attribute| attribute.key == name)?.value.as_ref()?.value.clone()
}

#[test]
fn traced_requests_export_spans_of_their_work() {
    let runtime = Runtime::new().unwrap();
    let (url, spans) = collector(&runtime);
    let place = Place::new();
    let start = |one_in: &str| {
        let mut command = place.command(&["gateway", "start", "--port", "0"]);
        command.env("IPFRS_LOG_OTLP_ENDPOINT", &url).env("IPFRS_LOG_TRACE_ONE_IN", one_in);
        Daemon::start(command)
    };
    let caller = |flags: &str| format!("traceparent: 00-{TRACE}-{CALLER}-{flags}\r\n");
    let close = "Connection: close\r\n";

    let daemon = start("0");
    let body = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\ntraced\r\n--b--\r\n";
    let head = format!(
        "POST /api/v0/add?cid-version=1 HTTP/1.1\r\nHost: a\r\n{}{close}Content-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {}\r\n\r\n",
        caller("01"),
        body.len()
    );
    let added = exchange(&daemon, &(head + body));
    let cid = added.split("\"Hash\":\"").nth(1).unwrap_or_else(|| panic!("{added}")).split('"').next().unwrap();
    let path = format!("/ipfs/{cid}");
    let responses = exchange(
        &daemon,
        &[
            // Neither a caller that decided against it, nor one that has not decided, nor an invalid header.
            get(&path, &caller("00")),
            get(&path, ""),
            get(&path, "traceparent: 00-0-0-01\r\n"),
            get("/ipfs/bafkqaaa/missing", &(caller("01") + close)),
        ]
        .concat(),
    );
    assert_eq!(responses.matches("Traceresponse").count(), 1, "{responses}");
    let position = format!("Traceresponse: 00-{TRACE}-");
    assert!(responses.contains(&position), "{responses}");
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0), "{log}");

    let exported: Vec<_> = spans.try_iter().collect();
    assert!(exported.iter().all(|span| hex(&span.trace_id) == TRACE), "{exported:#?}");
    let roots: Vec<_> = exported.iter().filter(|span| hex(&span.parent_span_id) == CALLER).collect();
    let names: Vec<_> = roots.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["POST /api/v0/add", "GET /ipfs/{*path}"]);
    assert_eq!(attribute(roots[0], "http.response.status_code"), Some(Value::IntValue(200)));
    let below = |root: &Span, name: &str| {
        exported.iter().filter(|span| span.parent_span_id == root.span_id && span.name == name).count()
    };
    assert!(below(roots[0], "write") >= 1, "{exported:#?}");
    assert_eq!(below(roots[1], "resolve"), 1, "{exported:#?}");
    assert!(exported.iter().all(|span| span.end_time_unix_nano >= span.start_time_unix_nano));

    // Without a decision of the caller, chance decides: here for every request, on the fast path as well.
    let daemon = start("1");
    let requests = get(&path, "").repeat(5) + &get(&path, close);
    exchange(&daemon, &requests);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.exit_code(), Some(0));
    let exported: Vec<_> = spans.try_iter().collect();
    let requests = exported.iter().filter(|span| span.parent_span_id.is_empty()).count();
    assert_eq!(requests, 6, "{exported:#?}");
    assert!(exported.iter().any(|span| span.name == "read"), "{exported:#?}");
}

#[test]
fn absent_collector_harms_nothing() {
    let place = Place::new();
    let mut command = place.command(&["gateway", "start", "--port", "0"]);
    // No collector listens on this address.
    command.env("IPFRS_LOG_OTLP_ENDPOINT", "http://127.0.0.1:1").env("IPFRS_LOG_TRACE_ONE_IN", "1");
    let daemon = Daemon::start(command);
    let responses = exchange(&daemon, &(get("/health/live", "").repeat(100) + &get("/", "Connection: close\r\n")));
    assert_eq!(responses.matches("HTTP/1.1 200 OK").count(), 101, "{responses}");
    daemon.signal(Signal::TERM);
    let (code, log) = daemon.wait();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("traces cannot be exported to log.otlp_endpoint").count(), 1, "{log}");
    let mut command = place.command(&["gateway", "start", "--port", "0"]);
    command.env("IPFRS_LOG_OTLP_ENDPOINT", "127.0.0.1:4317");
    let refused = command.output().unwrap();
    let message = String::from_utf8(refused.stderr).unwrap();
    assert!(message.contains("log.otlp_endpoint") && message.contains("http://127.0.0.1:4317"), "{message}");
}
