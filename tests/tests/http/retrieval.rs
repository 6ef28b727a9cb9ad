//! Content that the store lacks is fetched from trustless gateways, and nothing unverified is served.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, Cid, codec};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::content::bytes;
use crate::harness::{TestGateway, header, ndjson, rpc_failure};
use crate::source_server::{Handler, SourceServer, always, write_head};

pub(crate) const CAR: &str = "content-type: application/vnd.ipld.car\r\n";

/// Starts a gateway that retrieves from sources.
pub(crate) async fn retrieving(sources: &[String]) -> TestGateway {
    TestGateway::start_with(|config| config.retrieval.gateways = sources.to_vec()).await
}

pub(crate) async fn retrieving_from(origin: &TestGateway) -> TestGateway {
    retrieving(&[origin.url("")]).await
}

/// Returns a source that passes requests to `origin`, and tells which there were.
pub(crate) async fn relay(origin: &TestGateway) -> SourceServer {
    let upstream = origin.url("");
    SourceServer::start(Arc::new(move |target, mut connection| {
        let accept = if target.contains("dag-scope") { "application/vnd.ipld.car" } else { "application/vnd.ipld.raw" };
        let request = reqwest::Client::new().get(format!("{upstream}{target}")).header("accept", accept);
        Box::pin(async move {
            let response = request.send().await.unwrap();
            let (status, kind) = (response.status(), header(&response, "content-type").to_owned());
            let body = response.bytes().await.unwrap();
            write_head(&mut connection, status.as_str(), &format!("content-type: {kind}\r\n")).await;
            let _ = connection.write_all(&body).await;
        })
    }))
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn content_that_cannot_be_used_is_no_fault_of_its_source() {
    let origin = TestGateway::start().await;
    let source = relay(&origin).await;
    let gateway = retrieving(&[source.url()]).await;
    let large = origin.put_block("cid-codec=raw&allow-big-block=true", bytes(3 * 1024 * 1024)).await;
    for (number, path) in [format!("{large}?format=car"), format!("{large}?format=raw")].iter().enumerate() {
        let response = gateway.request(Method::GET, &format!("/ipfs/{path}")).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap_or_default());
        assert!(status == 502 && text.contains("unusable"), "{path}: {status} {text}");
        let good = origin.add("", bytes(10 + number)).await;
        assert_eq!(gateway.content(&format!("/ipfs/{good}")).await, bytes(10 + number));
    }
    // A refusal of one CAR says nothing about others.
    let stored: Cid = origin.add("", "of another codec").await.parse().unwrap();
    let relabelled = Cid::new_v1(0x90, *stored.hash());
    for _ in 0..4 {
        gateway.request(Method::GET, &format!("/ipfs/{relabelled}/x")).send().await.unwrap();
    }
    let (before, cid) = (source.requests().len(), origin.add("", bytes(600_000)).await);
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, bytes(600_000));
    let requests = source.requests();
    assert!(requests[before..].iter().any(|head| head.contains("dag-scope")), "{requests:?}");
}

/// A file of ten leaves on an origin, and its CAR.
pub(crate) struct Original {
    pub(crate) origin: TestGateway,
    pub(crate) content: Bytes,
    cid: String,
    pub(crate) car: Bytes,
}

impl Original {
    pub(crate) async fn start() -> Self {
        let origin = TestGateway::start().await;
        let content = bytes(10 * 256 * 1024);
        let cid = origin.add("", content.clone()).await;
        let car = origin.content(&format!("/ipfs/{cid}?format=car")).await;
        Self { origin, content, cid, car }
    }

    pub(crate) fn path(&self) -> String {
        format!("/ipfs/{}", self.cid)
    }

    /// Returns the sections of the CAR, the header first.
    pub(crate) fn sections(&self) -> Vec<Bytes> {
        let (mut rest, mut sections) = (self.car.clone(), Vec::new());
        while !rest.is_empty() {
            let (mut len, mut shift, mut prefix) = (0, 0, 0);
            loop {
                let byte = rest[prefix];
                len |= usize::from(byte & 0x7f) << shift;
                (prefix, shift) = (prefix + 1, shift + 7);
                if byte & 0x80 == 0 {
                    break;
                }
            }
            sections.push(rest.split_to(prefix + len));
        }
        sections
    }
}

pub(crate) fn section(block: &Block) -> Bytes {
    let cid = block.cid().to_bytes();
    let (mut section, mut len) = (Vec::new(), cid.len() + block.data().len());
    while len >= 0x80 {
        section.push((len & 0x7f) as u8 | 0x80);
        len >>= 7;
    }
    section.push(len as u8);
    section.extend(cid);
    section.extend_from_slice(block.data());
    section.into()
}

pub(crate) fn raw(data: &[u8]) -> Block {
    Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::copy_from_slice(data)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_bytes_are_sent_before_the_second_leaf_arrives() {
    let original = Original::start().await;
    let (sections, go_on) = (original.sections(), Arc::new(Notify::new()));
    let gate = Arc::clone(&go_on);
    let source = SourceServer::start(Arc::new(move |_, mut connection| {
        let (sections, gate) = (sections.clone(), Arc::clone(&gate));
        Box::pin(async move {
            write_head(&mut connection, "200 OK", CAR).await;
            connection.write_all(&sections[..3].concat()).await.unwrap();
            gate.notified().await;
            connection.write_all(&sections[3..].concat()).await.unwrap();
        })
    }))
    .await;
    let gateway = retrieving(&[source.url()]).await;
    let mut response = gateway.get(&original.path()).await;
    assert_eq!(response.status(), 200);
    let mut received = response.chunk().await.unwrap().unwrap().to_vec();
    // Bytes are counted as they arrive.
    assert!(gateway.metric("ipfrs_retrieval_bytes_total{source=\"gateway\"}").await > 0);
    go_on.notify_one();
    while let Some(piece) = response.chunk().await.unwrap() {
        received.extend_from_slice(&piece);
    }
    assert!(received == original.content);
    assert_eq!(source.requests().len(), 1, "{:?}", source.requests());
    assert!(source.requests()[0].contains("dag-scope=entity"));
    // Everything is in the store now.
    assert!(gateway.content(&original.path()).await == original.content);
    assert_eq!(source.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_one_cold_file_share_its_retrieval() {
    let original = Original::start().await;
    let gateway = retrieving_from(&original.origin).await;
    let path = original.path();
    let served = join_all((0..500).map(|_| gateway.content(&path))).await;
    assert!(served.iter().all(|served| *served == original.content));
    assert_eq!(gateway.metric("ipfrs_retrieval_blocks_total{source=\"gateway\"}").await, 11);
    let bytes = gateway.metric("ipfrs_retrieval_bytes_total{source=\"gateway\"}").await;
    assert_eq!(bytes, original.car.len() as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn retrieval_ends_when_its_client_leaves() {
    let original = Original::start().await;
    let (left, has_left) = (Arc::new(Notify::new()), original.sections());
    let noted = Arc::clone(&left);
    let source = SourceServer::start(Arc::new(move |_, mut connection| {
        let (first, noted) = (has_left[..3].concat(), Arc::clone(&noted));
        Box::pin(async move {
            write_head(&mut connection, "200 OK", CAR).await;
            connection.write_all(&first).await.unwrap();
            // The gateway sends nothing more, so the connection is readable when it is closed.
            let mut byte = [0];
            let _closed = tokio::io::AsyncReadExt::read(&mut connection, &mut byte).await;
            noted.notify_one();
        })
    }))
    .await;
    let gateway = retrieving(&[source.url()]).await;
    let mut response = gateway.get(&original.path()).await;
    response.chunk().await.unwrap().unwrap();
    drop(response);
    left.notified().await;
    gateway.until_metric("ipfrs_retrieval_sessions", |sessions| sessions == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_must_stay_offline_fetch_nothing() {
    let original = Original::start().await;
    let source = SourceServer::start(always("404 Not Found", "", "")).await;
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![source.url()];
        let host = ipfrs_http::HostConfig { retrieve: false, ..ipfrs_http::HostConfig::default() };
        config.gateway.hosts.insert("local.example".to_owned(), host);
    })
    .await;
    let get = || gateway.request(Method::GET, &original.path());
    assert_eq!(get().header("cache-control", "only-if-cached").send().await.unwrap().status(), 412);
    assert_eq!(get().header("host", "local.example").send().await.unwrap().status(), 404);
    for command in ["cat", "block/get", "dag/get", "ls", "get", "dag/stat", "pin/add"] {
        for option in ["offline=true", "local=true", "L=tRuE"] {
            let response = gateway.rpc(&format!("{command}?arg={}&{option}", original.cid)).send().await.unwrap();
            let message = rpc_failure(response).await;
            assert!(message.contains("block was not found locally (offline)"), "{command} {option}: {message}");
        }
    }
    assert!(source.requests().is_empty(), "{:?}", source.requests());
    assert_eq!(get().send().await.unwrap().status(), 504);
    assert!(!source.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn gateways_that_ask_each_other_respond_at_once() {
    let missing = raw(b"nobody has this").cid().to_string();
    // Each needs the address of the other one to start.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let second = retrieving(&[format!("http://{}", listener.local_addr().unwrap())]).await;
    let first = retrieving(&[second.url("")]).await;
    let address = first.address();
    let forwarding = tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            let mut to = TcpStream::connect(address).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut from, &mut to).await });
        }
    });
    let path = format!("/ipfs/{missing}");
    let (one, two) = tokio::join!(first.get(&path), second.get(&path));
    assert_eq!((one.status(), two.status()), (504.try_into().unwrap(), 504.try_into().unwrap()));
    forwarding.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_content_is_not_fetched() {
    let original = Original::start().await;
    let source = SourceServer::start(always("404 Not Found", "", "")).await;
    let list = tempfile::NamedTempFile::with_suffix(".deny").unwrap();
    std::fs::write(list.path(), format!("/ipfs/{}\n", original.cid)).unwrap();
    let gateway = TestGateway::start_with(|config| {
        config.retrieval.gateways = vec![source.url()];
        config.gateway.denylists = vec![list.path().to_owned()];
    })
    .await;
    assert_eq!(gateway.get(&original.path()).await.status(), 410);
    assert!(source.requests().is_empty(), "{:?}", source.requests());
}

/// Starts a router that names an HTTP provider by its multiaddr.
async fn router(port: u16, is_ndjson: bool) -> SourceServer {
    let address = format!("/ip4/127.0.0.1/tcp/{port}/http");
    let record =
        json!({"Schema": "peer", "ID": "12D3", "Addrs": [address], "Protocols": ["transport-ipfs-gateway-http"]});
    match is_ndjson {
        true => {
            let other = json!({"Schema": "unknown", "Addrs": 5});
            let body = format!("{other}\nnonsense\n{record}\n");
            SourceServer::start(always("200 OK", "content-type: application/x-ndjson\r\n", body)).await
        }
        false => {
            let body = json!({"Providers": [{"Schema": "unknown"}, record]}).to_string();
            SourceServer::start(always("200 OK", "content-type: application/json\r\n", body)).await
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn providers_of_routers_deliver_unless_their_addresses_are_private() {
    let original = Original::start().await;
    let private = SourceServer::start(always("404 Not Found", "", "")).await;
    for is_ndjson in [true, false] {
        let start = |router: &SourceServer, allow: bool| {
            let url = router.url();
            TestGateway::start_with(move |config| {
                config.retrieval.routers = vec![url];
                config.retrieval.allow_private_addresses = allow;
            })
        };
        let unusable = router(private.address.port(), is_ndjson).await;
        let gateway = start(&unusable, false).await;
        let refused = gateway.get(&original.path()).await;
        assert_eq!(refused.status(), 502);
        let report = refused.text().await.unwrap();
        assert!(report.contains("retrieval.allow_private_addresses is false"), "{report}");
        assert!(private.requests().is_empty());
        let router = router(original.origin.port(), is_ndjson).await;
        let gateway = start(&router, true).await;
        assert!(gateway.content(&original.path()).await == original.content);
        let lookups = router.requests();
        assert_eq!(lookups.len(), 1, "one lookup for the whole file");
        let target = format!("/routing/v1/providers/{}?filter-protocols=", original.cid);
        assert!(lookups[0].contains(&target), "{}", lookups[0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_front_end_retrieves() {
    let original = Original::start().await;
    let (origin, cid) = (&original.origin, &original.cid);
    let tree = origin.add_tree("wrap-with-directory=true", &[("a/b.txt", "hello"), ("c.txt", "world")]).await;
    let content = &original.content;
    let text = |bytes: Bytes| String::from_utf8(bytes.to_vec()).unwrap();

    let gateway = retrieving_from(origin).await;
    assert!(gateway.rpc_bytes(&format!("cat?arg={cid}")).await == *content);
    assert_eq!(text(gateway.rpc_bytes(&format!("cat?arg={tree}/a/b.txt")).await), "hello");

    let gateway = retrieving_from(origin).await;
    let archive = gateway.rpc_bytes(&format!("get?arg={tree}")).await;
    assert!(archive.windows(5).any(|window| window == b"world"));
    let gateway = retrieving_from(origin).await;
    let listed = gateway.rpc_json(&format!("ls?arg={tree}")).await;
    assert_eq!(listed["Objects"][0]["Links"].as_array().unwrap().len(), 2);
    let gateway = retrieving_from(origin).await;
    assert_eq!(gateway.rpc_json(&format!("block/stat?arg={cid}")).await["Key"], **cid);
    let gateway = retrieving_from(origin).await;
    assert_eq!(gateway.rpc_json(&format!("dag/get?arg={tree}")).await["Links"].as_array().unwrap().len(), 2);
    let gateway = retrieving_from(origin).await;
    let exported = gateway.rpc_bytes(&format!("dag/export?arg={tree}")).await;
    assert!(exported == origin.rpc_bytes(&format!("dag/export?arg={tree}")).await);

    let gateway = retrieving_from(origin).await;
    let lines = ndjson(gateway.rpc(&format!("pin/add?arg={cid}&progress=true")).send().await.unwrap()).await;
    assert_eq!(lines.last().unwrap()["Pins"], json!([cid]));
    assert_eq!(gateway.blocks().await, 11);

    let gateway = retrieving_from(origin).await;
    let batch = gateway.v1_json("block/batch/get", &json!({"cids": [cid, tree]})).await;
    assert_eq!(batch["blocks"].as_array().unwrap().len(), 2, "{batch}");
    let gateway = retrieving_from(origin).await;
    let car = gateway.content(&format!("/ipfs/{tree}?format=car")).await;
    assert!(car == origin.content(&format!("/ipfs/{tree}?format=car")).await);
    let gateway = retrieving_from(origin).await;
    let range = gateway.request(Method::GET, &original.path()).header("range", "bytes=1000000-1000009");
    let range = range.send().await.unwrap();
    assert_eq!(range.status(), 206);
    assert!(range.bytes().await.unwrap() == content.slice(1_000_000..1_000_010));
    // Only the root is fetched, the leaf of the range, and the first one, which determines the content type.
    while gateway.blocks().await != 3 {
        tokio::task::yield_now().await;
    }
    let query = json!({"query": format!("{{ block(cid: \"{cid}\") {{ size }} }}")});
    let gateway = retrieving_from(origin).await;
    let response = gateway.request(Method::POST, "/graphql").json(&query).send().await.unwrap();
    let answer: Value = response.json().await.unwrap();
    assert!(answer["data"]["block"]["size"].as_u64().unwrap() > 0, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_pin_fetches_only_the_rest() {
    let original = Original::start().await;
    let sections = original.sections();
    let part = always("200 OK", CAR, sections[..6].concat());
    let failing = SourceServer::start(Arc::new(move |target: String, connection| {
        let response = match target.contains("format=car") {
            true => Arc::clone(&part),
            false => always("404 Not Found", "", ""),
        };
        response(target, connection)
    }))
    .await;
    let gateway = retrieving(&[failing.url()]).await;
    let pin = format!("pin/add?arg={}", original.cid);
    let message = rpc_failure(gateway.rpc(&pin).send().await.unwrap()).await;
    assert!(message.contains("no source delivered"), "{message}");
    let repo = gateway.stop().await;
    let origin = original.origin.url("");
    let gateway = TestGateway::start_on(repo, |config| config.retrieval.gateways = vec![origin]).await;
    assert_eq!(gateway.blocks().await, 5, "the root and four leaves");
    gateway.rpc_json(&pin).await;
    assert_eq!(gateway.metric("ipfrs_retrieval_blocks_total{source=\"gateway\"}").await, 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutable_files_are_usable_while_a_directory_in_them_is_fetched() {
    let original = TestGateway::start().await;
    let root = original.add_tree("", &[("d/slow/a", "a"), ("d/b", "b")]).await;
    let block = original.rpc_bytes(&format!("block/get?arg={root}")).await;
    let handler: Handler = Arc::new(|_, connection| {
        Box::pin(async move {
            let _open = connection;
            std::future::pending().await
        })
    });
    let silent = SourceServer::start(handler).await;
    let gateway = retrieving(&[silent.url()]).await;
    assert_eq!(gateway.put_block("format=v0", block).await, root);
    let copied = gateway.rpc(&format!("files/cp?arg=/ipfs/{root}&arg=/d")).send().await.unwrap();
    assert_eq!(copied.status(), 200);
    let mut waiting = Box::pin(gateway.rpc("files/stat?arg=/d/slow/a").send());
    tokio::select! {
        early = &mut waiting => panic!("it cannot be fetched: {early:?}"),
        () = silent.until_requests(1) => {}
    }
    let listed = gateway.rpc_json("files/ls?arg=/");
    let listed = tokio::time::timeout(std::time::Duration::from_secs(20), listed).await.unwrap();
    assert_eq!(listed["Entries"][0]["Name"], "d");
}
