//! Permits for requests: shares of clients, and cached responses that need none.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use ipfrs_proto::block::v1::GetBlockRequest;
use reqwest::{Client, Method, Response};
use tokio::time::timeout;
use tonic::Code;

use crate::car::raw_cid;
use crate::content;
use crate::grpc::{ABSENT, block_client};
use crate::harness::{TestGateway, client, header};
use crate::wire::Wire;
use crate::withholding::Withholding;

/// Watchdog timeout, longer than any operation of the tests.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Returns a client with the address 127.0.0.`number`.
fn at(number: u8) -> Client {
    client().local_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, number))).build().unwrap()
}

/// Returns an HTTP/2 client with the address 127.0.0.`number` whose streams receive heads of responses but no bodies.
fn stalling(number: u8) -> Client {
    let client = client().local_address(IpAddr::V4(Ipv4Addr::new(127, 0, 0, number)));
    client.http2_prior_knowledge().http2_initial_stream_window_size(0).build().unwrap()
}

/// Sends `times` requests for a path on a connection, with `named` as the client in the forwarding header of a proxy.
/// Returns the responses with status 200, and those with 429.
async fn ask(connection: &Client, gateway: &TestGateway, path: &str, times: usize, named: &str) -> [Vec<Response>; 2] {
    let requests = (0..times).map(|_| connection.get(gateway.url(path)).header("x-forwarded-for", named).send());
    let responses: Vec<_> = futures::stream::iter(requests).buffer_unordered(64).collect().await;
    let (held, refused) = responses.into_iter().map(Result::unwrap).partition(|response| response.status() == 200);
    let refused: Vec<Response> = refused;
    assert!(refused.iter().all(|response| response.status() == 429));
    [held, refused]
}

#[tokio::test(flavor = "multi_thread")]
async fn client_with_many_stalled_streams_leaves_half_of_the_permits() {
    let gateway = TestGateway::start().await;
    let path = format!("/ipfs/{}", gateway.add("", content::bytes(100_000)).await);
    gateway.until_idle().await;
    let (mut held, mut refused, mut connections) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..42 {
        let connection = stalling(1);
        let [some, others] = ask(&connection, &gateway, &path, 100, "").await;
        held.extend(some);
        refused.extend(others);
        connections.push(connection);
    }
    assert_eq!((held.len(), refused.len()), (2_048, 42 * 100 - 2_048));
    let refusal = refused.pop().unwrap();
    assert_eq!(header(&refusal, "retry-after"), "1");
    assert_eq!(at(2).get(gateway.url(&path)).send().await.unwrap().bytes().await.unwrap(), content::bytes(100_000));
    let struck = gateway.metric("ipfrs_refusals_total{limit=\"max_requests_per_client\"}").await;
    assert_eq!(struck, 42 * 100 - 2_048);
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"max_concurrent_requests\"}").await, 0);
    drop((held, refused, refusal, connections));
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_behind_trusted_proxy_have_separate_shares() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.max_concurrent_requests = 16;
        config.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
    })
    .await;
    let path = format!("/ipfs/{}", gateway.add("", content::bytes(100_000)).await);
    gateway.until_idle().await;
    let (proxy, other) = (stalling(1), stalling(2));
    let [first, refused] = ask(&proxy, &gateway, &path, 30, "192.0.2.1").await;
    assert_eq!((first.len(), refused.len()), (8, 22));
    // The proxy appends its entry to those that the client sent.
    assert_eq!(ask(&proxy, &gateway, &path, 1, "192.0.2.7, 192.0.2.1").await[0].len(), 0);
    let second = ask(&proxy, &gateway, &path, 30, "192.0.2.2").await;
    assert_eq!(second[0].len(), 4);
    // Other clients are not trusted to name clients.
    let spoofed =
        [ask(&other, &gateway, &path, 10, "192.0.2.3").await, ask(&other, &gateway, &path, 10, "192.0.2.4").await];
    assert_eq!(spoofed[0][0].len() + spoofed[1][0].len(), 2);
    drop((first, second, refused, spoofed, proxy, other));
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn per_client_limit_error_names_the_limit() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_requests_per_client = 3).await;
    let path = format!("/ipfs/{}", gateway.add("", content::bytes(100_000)).await);
    gateway.until_idle().await;
    let connection = stalling(1);
    let [held, mut refused] = ask(&connection, &gateway, &path, 5, "").await;
    assert_eq!((held.len(), refused.len()), (3, 2));
    drop(refused.pop());
    let text = gateway.get(&path).await.text().await.unwrap();
    assert!(text.contains("gateway.max_requests_per_client = 3"), "{text}");
    assert_eq!(at(2).get(gateway.url(&path)).send().await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_http_permits_do_not_affect_grpc() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_concurrent_requests = 1).await;
    let path = format!("/ipfs/{}", gateway.add("", content::bytes(100_000)).await);
    gateway.until_idle().await;
    let connection = stalling(1);
    let held = ask(&connection, &gateway, &path, 1, "").await;
    assert_eq!(held[0].len(), 1);
    let call = block_client(&gateway).get_block(GetBlockRequest { cid: ABSENT.to_owned() }).await;
    assert_eq!(call.unwrap_err().code(), Code::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_cached_file_is_served_without_a_permit() {
    let gateway = TestGateway::start_with(|config| config.gateway.max_concurrent_requests = 1).await;
    let text = "text that can be compressed ".repeat(100);
    let root = gateway.add_tree("", &[("d/a.txt", &text)]).await;
    // A client can have a whole response before the request ends, which has the only permit.
    gateway.until_idle().await;
    let (large, small) = (gateway.add("", content::bytes(100_000)).await, format!("/ipfs/{root}/a.txt"));
    gateway.until_idle().await;
    // Cached when it is requested again.
    for _ in 0..2 {
        assert_eq!(gateway.content(&small).await, text);
        gateway.until_idle().await;
    }
    let connection = stalling(2);
    let held = ask(&connection, &gateway, &format!("/ipfs/{large}"), 1, "").await;
    assert_eq!(held[0].len(), 1);
    // Compressing the body would require a permit.
    let coded = at(1).get(gateway.url(&small)).header("accept-encoding", "br").send().await.unwrap();
    assert_eq!((coded.status().as_u16(), header(&coded, "content-encoding")), (200, ""));
    assert_eq!(coded.text().await.unwrap(), text);
    // After a second, the body is no longer assumed to be in memory, and is checked.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(2_500) {
        assert_eq!(gateway.content(&small).await, text);
    }
    assert_eq!(gateway.get(&format!("/ipfs/{large}")).await.status(), 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_responses_of_others_yield_to_a_client_over_its_share() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.max_concurrent_requests = 64;
        // Stalled responses hold their permits unless they are reclaimed.
        config.server.write_timeout_seconds = 3_600;
    })
    .await;
    let path = format!("/ipfs/{}", gateway.add("", content::bytes(100_000)).await);
    gateway.until_idle().await;
    let mut held = Vec::new();
    for (number, share) in [(10, 32), (11, 16), (12, 8)] {
        let connection = stalling(number);
        let [some, _] = ask(&connection, &gateway, &path, 60, "").await;
        assert_eq!(some.len(), share);
        held.push((connection, some));
    }
    // Eight permits are free. A client may hold four of them until the other holders have stalled for long enough.
    let gets_eight = async {
        loop {
            let connection = stalling(2);
            let [some, refused] = ask(&connection, &gateway, &path, 8, "").await;
            if refused.is_empty() {
                break some.len();
            }
        }
    };
    assert_eq!(timeout(WATCHDOG, gets_eight).await.unwrap(), 8);
    drop(held);
    gateway.until_idle().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_with_stalled_imports_leaves_half_of_the_permits() {
    for route in ["/api/v0/add?", "/api/v0/dag/import?", "/api/v0/files/write?create=true&arg=/", "/v1/stream/upload?"]
    {
        let gateway = TestGateway::start_with(|config| config.concurrency.max_concurrent_tasks = 4).await;
        let stalled = (0..4).map(|number| {
            let first = futures::stream::iter([Ok::<_, std::io::Error>("x")]);
            let body = reqwest::Body::wrap_stream(first.chain(futures::stream::pending()));
            let path = if route.contains("files") { number.to_string() } else { String::new() };
            tokio::spawn(at(1).post(gateway.url(&format!("{route}{path}"))).body(body).send())
        });
        let stalled: Vec<_> = stalled.collect();
        timeout(WATCHDOG, gateway.until_metric("ipfrs_http_requests_active", |requests| requests >= 4)).await.unwrap();
        let added = at(2).post(gateway.url("/api/v0/add")).body("hello").timeout(Duration::from_secs(20));
        assert_eq!(added.send().await.unwrap().status(), 200, "{route}");
        stalled.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_with_unfinished_uploads_leaves_half_of_them() {
    let gateway = TestGateway::start_with(|config| config.upload.max_unfinished = 4).await;
    let create = async |gateway: &TestGateway, client| {
        let request = at(client).post(gateway.url("/v1/stream/upload"));
        let created = request.header("tus-resumable", "1.0.0").header("upload-length", "5").send().await.unwrap();
        created.status().as_u16()
    };
    let mut statuses = Vec::new();
    for client in [1, 1, 1, 2, 2] {
        statuses.push(create(&gateway, client).await);
    }
    assert_eq!(statuses, [201, 201, 429, 201, 429]);
    let gateway = TestGateway::start_on(gateway.stop().await, |config| config.upload.max_unfinished = 4).await;
    let mut statuses = Vec::new();
    for client in [1, 2, 3] {
        statuses.push(create(&gateway, client).await);
    }
    assert_eq!(statuses, [429, 429, 201], "clients have what they had before the restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_leaves_before_its_response_releases_its_request() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    for is_reset in [true, false] {
        let stream = std::net::TcpStream::connect(gateway.address()).unwrap();
        (&stream).write_all(b"GET /v1/progress/none?wait=60 HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let active = gateway.until_metric("ipfrs_http_requests_active", |requests| requests >= 1);
        timeout(WATCHDOG, active).await.unwrap();
        if is_reset {
            socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
        gateway.until_idle().await;
    }
    // `100 Continue` is not the beginning of the response.
    let cid = gateway.put_block("", "withheld").await;
    store.withhold(&cid);
    let query = format!(r#"{{"query":"{{ block(cid: \"{cid}\") {{ data }} }}"}}"#);
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!(
        "POST /graphql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
         Content-Length: {}\r\n\r\n",
        query.len()
    ))
    .await;
    assert_eq!(wire.take(25).await, b"HTTP/1.1 100 Continue\r\n\r\n");
    wire.send(query).await;
    store.waiting(1).await;
    wire.finish().await;
    assert_eq!(String::from_utf8(wire.rest().await).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_leaves_during_its_response_releases_its_request() {
    let store = Withholding::new();
    let gateway =
        TestGateway::start_over(store.clone(), |config| config.gateway.retrieval_timeout_seconds = 3_600).await;
    let content = content::bytes(500_000);
    let path = format!("/ipfs/{}", gateway.add("raw-leaves=true", content.clone()).await);
    store.withhold(&raw_cid(&content[262_144..]));
    let download = async || {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        (wire.take(200_000).await, wire)
    };
    let (_, downloading) = download().await;
    downloading.reset();
    gateway.until_idle().await;
    // A client that closes its sending side still gets the rest of a download, but no more events.
    let (mut received, mut downloading) = download().await;
    downloading.finish().await;
    let created = gateway.request(Method::POST, "/v1/stream/upload?operation_id=paused");
    let created = created.header("tus-resumable", "1.0.0").header("upload-length", "9").send().await.unwrap();
    assert_eq!(created.status(), 201);
    let query = r#"{"query":"subscription { blockAdded { seq } }"}"#;
    let ended = [
        "GET /v1/progress/paused HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(),
        format!(
            "POST /graphql HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{query}",
            query.len()
        ),
    ]
    .map(async |request| {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(request).await;
        wire.finish().await;
        String::from_utf8(wire.rest().await).unwrap()
    });
    for events in join_all(ended).await {
        assert!(events.contains("text/event-stream") && !events.contains(": still here"), "{events}");
        // Events of GraphQL begin with the comment that they send as a heartbeat.
        assert!(events.matches("\n:\n").count() <= 1, "{events}");
    }
    store.release();
    received.extend(downloading.rest().await);
    content::assert_same(&received[received.len() - content.len()..], &content, "after half of it was closed");
}
