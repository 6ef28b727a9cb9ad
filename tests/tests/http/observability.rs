//! Health and metrics.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_http::{HostConfig, Lifecycle};
use ipfrs_interface::Config;
use ipfrs_middleware::MemoryPool;
use ipfrs_middleware::Rules;
use ipfrs_node::Node;
use prometheus::Registry;
use reqwest::Method;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::car::raw_cid;
use crate::content;
use crate::harness::{TestGateway, header};
use crate::tls::Issuer;

#[tokio::test(flavor = "multi_thread")]
async fn health_reports_state_version_and_size() {
    let gateway = TestGateway::start().await;
    for path in ["/health", "/health/live", "/health/ready"] {
        let response = gateway.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        assert_eq!(header(&response, "cache-control"), "no-store", "{path}");
        let body: Value = response.json().await.unwrap();
        assert!(body["status"].is_string(), "{path}: {body}");
        let wrong = gateway.request(Method::POST, path).send().await.unwrap();
        assert_eq!(wrong.status(), 405, "{path}");
        assert!(header(&wrong, "allow").contains("GET"), "{path}");
    }
    let before = gateway.blocks().await;
    gateway.add("", "x").await;
    assert_eq!(gateway.blocks().await, before + 1);
    let health: Value = gateway.get("/health").await.json().await.unwrap();
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
}

/// Headers of a browser whose user has opened an address.
const OPENED: [(&str, &str); 4] = [
    ("sec-fetch-site", "none"),
    ("sec-fetch-mode", "navigate"),
    ("sec-fetch-dest", "document"),
    ("user-agent", "Mozilla/5.0"),
];

#[tokio::test(flavor = "multi_thread")]
async fn browser_pages_cannot_read_daemon_status() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "content").await;
    let ask = async |method: Method, path: &str, headers: &[(&'static str, &str)]| {
        let request = gateway.request(method, path);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
    };
    let download = format!("/v1/stream/download/{cid}");
    let kubo = "/debug/metrics/prometheus";
    for path in ["/health", "/health/live", "/health/ready", "/metrics", kubo, "/v1/progress", &download] {
        for method in [Method::GET, Method::HEAD] {
            for page in [
                // A script's fetch, a frame, a window that a script opened, another site, a frame again, a browser
                // without Sec-Fetch.
                [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")],
                [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
                [("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")],
                [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "script")],
                [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")],
                [("origin", "https://example.com"), ("user-agent", "Mozilla/5.0"), ("accept", "*/*")],
            ] {
                let refused = ask(method.clone(), path, &page).await;
                assert_eq!(refused.status(), 403, "{method} {path} {page:?}");
                assert_eq!(header(&refused, "access-control-allow-origin"), "", "{method} {path}");
                let text = refused.text().await.unwrap();
                assert!(!text.contains("blocks") && !text.contains("ipfrs_"), "{text}");
            }
            for client in [&OPENED[..], &[("user-agent", "curl/8")], &[]] {
                let told = ask(method.clone(), path, client).await;
                assert_eq!(told.status(), 200, "{method} {path} {client:?}");
                assert_eq!(header(&told, "cross-origin-opener-policy"), "same-origin", "{path}");
                assert_eq!(header(&told, "x-frame-options"), "DENY", "{path}");
            }
        }
    }
    // Pages may read content, the welcome page, and routing records.
    let page = [("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "empty")];
    for path in [format!("/ipfs/{cid}"), "/".to_owned(), format!("/routing/v1/providers/{cid}")] {
        assert_eq!(ask(Method::GET, &path, &page).await.status(), 200, "{path}");
    }
    let welcome = ask(Method::GET, "/", &[("accept", "text/html")]).await.text().await.unwrap();
    assert!(welcome.contains("/metrics") && !welcome.contains("href=\"/metrics"), "a link would lead to a 403");
}

#[tokio::test(flavor = "multi_thread")]
async fn public_host_reports_only_its_status() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.hosts.insert("example.com".into(), HostConfig::default());
    })
    .await;
    for (path, status) in [("/health", "ok"), ("/health/ready", "ready"), ("/health/live", "ok")] {
        for headers in [&OPENED[..], &[("user-agent", "Mozilla/5.0 (monitor)")], &[]] {
            let request = gateway.request(Method::GET, path).header("host", "example.com");
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            let body: Value = request.send().await.unwrap().json().await.unwrap();
            assert_eq!(body, json!({"status": status}), "{path} {headers:?}");
        }
    }
    assert!(gateway.get("/health").await.json::<Value>().await.unwrap()["blocks"].is_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_every_form_name_no_file_system_path() {
    let gateway = TestGateway::start().await;
    let block = gateway.put_block("", "what will be damaged").await;
    let root = gateway.add_tree("cid-version=1", &[("d/a", "what will be damaged, too")]).await;
    let repo = gateway.stop().await;
    let pack = repo.path().join("packs/00000001.car");
    let mut bytes = std::fs::read(&pack).unwrap();
    while let Some(at) = bytes.windows(7).position(|window| window == b"damaged") {
        bytes[at] ^= 1;
    }
    std::fs::write(&pack, bytes).unwrap();
    let secret = repo.path().to_str().unwrap().to_owned();
    let gateway = TestGateway::start_on(repo, |config| config.store.verify_on_read = true).await;
    let assert_clean = |text: &str, what: &str| {
        assert!(!text.contains(&secret) && !text.contains("packs/"), "{what}: {text}");
        assert!(text.contains("00000001.car"), "the error is told: {what}: {text}");
    };
    for path in [format!("/ipfs/{block}"), format!("/ipfs/{root}/a"), format!("/v1/stream/download/{block}")] {
        for accept in ["*/*", "text/html"] {
            let response = gateway.request(Method::GET, &path).header("accept", accept).send().await.unwrap();
            assert_eq!(response.status(), 500, "{path}");
            assert_clean(&response.text().await.unwrap(), &path);
        }
    }
    for command in [format!("cat?arg={block}"), format!("block/get?arg={block}"), format!("dag/get?arg={block}")] {
        let response = gateway.rpc(&command).send().await.unwrap();
        assert_clean(&response.text().await.unwrap(), &command);
    }
    let verified = gateway.rpc("repo/verify").send().await.unwrap();
    let mut lines = Vec::new();
    let mut pieces = verified.bytes_stream();
    while let Some(Ok(piece)) = futures::StreamExt::next(&mut pieces).await {
        lines.extend(piece);
    }
    let lines = String::from_utf8_lossy(&lines);
    assert!(lines.contains("was corrupt") && !lines.contains(&secret), "{lines}");
    let batch = gateway.v1_json("block/batch/get", &json!({"cids": [&block]})).await;
    assert_clean(&batch.to_string(), "a batch");
    let get = ipfrs_proto::block::v1::GetBlockRequest { cid: block.clone() };
    let status = crate::grpc::block_client(&gateway).get_block(get).await.unwrap_err();
    assert_clean(&format!("{status:?}"), "a call");
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_503_during_startup_and_draining() {
    let (repo, config, registry) = (tempfile::tempdir().unwrap(), Config::default(), Registry::new());
    let node = Node::builder(repo.path())
        .store(config.store.clone())
        .config(config.node())
        .registry(&registry)
        .open()
        .await
        .unwrap();
    let lifecycle = Lifecycle::new();
    let memory = MemoryPool::register(&node, &registry).unwrap();
    let app =
        ipfrs_http::app(node.clone(), &config.http(), 8080, lifecycle.clone(), memory, Rules::none(&node), &registry)
            .unwrap();
    let status = async |path: &str| {
        let request = http::Request::get(path).body(String::new()).unwrap();
        app.service.router().oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!((status("/health/ready").await, status("/health/live").await), (503, 200), "before");
    lifecycle.set_ready();
    assert_eq!((status("/health/ready").await, status("/health").await), (200, 200), "while it serves");
    lifecycle.drain();
    assert_eq!((status("/health/ready").await, status("/health/live").await), (503, 200), "at the end");
    node.close().await.unwrap();
}

/// Returns the value of every sample by its name with labels.
async fn samples(gateway: &TestGateway) -> BTreeMap<String, f64> {
    let text = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

/// Returns the sum of all samples of a family, over all labels.
fn sum(samples: &BTreeMap<String, f64>, family: &str) -> f64 {
    let of_family = samples.iter().filter(|(name, _)| name.split('{').next() == Some(family));
    of_family.map(|(_, value)| value).sum()
}

/// Uses every function that a metric family counts.
async fn use_everything(gateway: &TestGateway) -> String {
    let cid = gateway.add("", content::bytes(600_000)).await;
    let root = gateway.add_tree("", &[("d/a/b.txt", "hello world")]).await;
    for path in [format!("/ipfs/{cid}"), format!("/ipfs/{root}/a/b.txt"), format!("/ipfs/{root}/a/b.txt")] {
        gateway.content(&path).await;
    }
    for path in [format!("/ipfs/{root}/missing"), format!("/{cid}"), "/ipfs/nonsense".to_owned()] {
        assert!(gateway.get(&path).await.status().is_client_error());
    }
    gateway.v1_json("block/batch/get", &json!({"cids": [&cid]})).await;
    gateway.v1_json("block/batch/has", &json!({"cids": [&cid]})).await;
    let blocks = json!([{"data": STANDARD.encode("x"), "cid": raw_cid(b"x")}]);
    gateway.v1_json("block/batch/put", &json!({"blocks": blocks})).await;
    // A codec that no store accepts, to cause a failed operation.
    let refused = gateway.rpc("block/put?cid-codec=0x300001").body("x").send().await.unwrap();
    assert_eq!(refused.status(), 500);
    cid
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_metrics_exist_and_change_when_used() {
    let gateway = TestGateway::start().await;
    let before = samples(&gateway).await;
    use_everything(&gateway).await;
    // Durations and streams end with the requests.
    gateway.until_idle().await;
    let after = samples(&gateway).await;
    for (family, least) in [
        ("ipfrs_http_requests_total", 12.0),
        ("ipfrs_http_request_duration_seconds_count", 12.0),
        ("ipfrs_http_request_duration_seconds_sum", 0.000_001),
        ("ipfrs_http_request_size_bytes_sum", 600_000.0),
        ("ipfrs_http_response_size_bytes_sum", 600_000.0),
        ("ipfrs_http_connections_active", 0.0),
        ("ipfrs_blocks_retrieved_total", 5.0),
        ("ipfrs_blocks_stored_total", 8.0),
        ("ipfrs_block_errors_total", 1.0),
        ("ipfrs_block_retrieval_duration_seconds_count", 1.0),
        ("ipfrs_batch_operation_size_count", 3.0),
        ("ipfrs_batch_operation_size_sum", 3.0),
        ("ipfrs_batch_operation_duration_seconds_count", 3.0),
        ("ipfrs_upload_bytes_total", 600_011.0),
        ("ipfrs_download_bytes_total", 600_022.0),
        ("ipfrs_streaming_operations_active", 0.0),
        ("ipfrs_streaming_chunk_size_bytes_sum", 600_000.0),
        ("ipfrs_cache_hits_total", 1.0),
        ("ipfrs_cache_misses_total", 1.0),
        ("ipfrs_cache_size_bytes", 1.0),
        ("process_cpu_seconds_total", 0.0),
        ("process_open_fds", 0.0),
    ] {
        assert!(after.keys().any(|name| name.split('{').next() == Some(family)), "{family} is not there");
        let grown = sum(&after, family) - sum(&before, family);
        if least > 0.0 {
            assert!(grown >= least, "{family} grew by {grown}");
        }
    }
    assert!(sum(&after, "ipfrs_http_connections_active") >= 1.0, "the one that asks");
    assert_eq!(sum(&after, "ipfrs_streaming_operations_active"), 0.0, "nothing is being sent");
    let root_requests = "ipfrs_http_requests_total{endpoint=\"/api/v0/add\",method=\"POST\",status=\"200\"}";
    assert_eq!(after.get(root_requests), Some(&2.0), "{:?}", after.keys());
}

#[tokio::test(flavor = "multi_thread")]
async fn block_error_metrics_distinguish_causes() {
    let gateway = TestGateway::start().await;
    let errors = async |operation: &str, reason: &str| {
        let sample = format!("ipfrs_block_errors_total{{operation=\"{operation}\",reason=\"{reason}\"}}");
        gateway.metric(&sample).await
    };
    assert_eq!((errors("get", "missing").await, errors("put", "invalid").await), (0, 0));
    let absent = raw_cid(b"absent");
    assert_eq!(gateway.get(&format!("/ipfs/{absent}?format=raw")).await.status(), 404);
    assert_eq!(errors("get", "missing").await, 1);
    // Blocks are counted while the body is sent.
    let response = gateway.v1("block/batch/get", &json!({"cids": [absent, raw_cid(b"absent too")]})).await;
    response.bytes().await.unwrap();
    assert_eq!(errors("get", "missing").await, 3);

    let mut put = json!([{"data": STANDARD.encode("x"), "cid": raw_cid(b"another")}]);
    gateway.v1("block/batch/put", &json!({"blocks": put})).await;
    assert_eq!(errors("put", "invalid").await, 1);
    gateway.rpc("block/put?cid-codec=0x300001").body("x").send().await.unwrap();
    assert_eq!(errors("put", "invalid").await, 2);
    put[0]["cid"] = json!(raw_cid(b"x"));
    gateway.v1_json("block/batch/put", &json!({"blocks": put})).await;
    gateway.content(&format!("/ipfs/{}?format=raw", raw_cid(b"x"))).await;
    let all = samples(&gateway).await;
    assert_eq!(sum(&all, "ipfrs_block_errors_total"), 5.0, "no failure of the store among them");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_are_counted_once_and_exactly() {
    let gateway = TestGateway::start().await;
    for (size, options) in [(10, ""), (600_000, ""), (600_000, "raw-leaves=true")] {
        let before = samples(&gateway).await;
        let cid = gateway.add(options, content::bytes(size)).await;
        let added = samples(&gateway).await;
        gateway.content(&format!("/ipfs/{cid}")).await;
        gateway.rpc_bytes(&format!("cat?arg={cid}&offset=1")).await;
        let fetched = samples(&gateway).await;
        let grown = |family: &str, from: &BTreeMap<_, _>, to: &BTreeMap<_, _>| sum(to, family) - sum(from, family);
        assert_eq!(grown("ipfrs_upload_bytes_total", &before, &added), size as f64);
        assert_eq!(grown("ipfrs_download_bytes_total", &added, &fetched), (2 * size - 1) as f64, "{size} {options}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_are_bounded_whatever_clients_send() {
    let gateway = TestGateway::start().await;
    let cid = use_everything(&gateway).await;
    gateway.request(Method::from_bytes(b"BREW").unwrap(), "/ipfs/bafkqaaa").send().await.unwrap();
    for path in ["/no/such/route", "/v1/no/such/route", "/api/v0/no/such/command", "/api/v0/no-other-command"] {
        gateway.request(Method::POST, path).send().await.unwrap();
    }
    let samples = samples(&gateway).await;
    for name in samples.keys() {
        for bad in [cid.as_str(), "b.txt", "nonsense", "BREW", "such", "no-other", "127.0.0.1"] {
            assert!(!name.contains(bad), "{name}");
        }
    }
    let endpoints: BTreeSet<_> =
        samples.keys().filter_map(|name| name.split("endpoint=\"").nth(1)?.split('"').next()).collect();
    assert!(endpoints.contains("/ipfs/{*path}"), "{endpoints:?}");
    assert!(endpoints.iter().all(|endpoint| !endpoint.contains("__private")), "{endpoints:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_page_is_valid_prometheus_text() {
    let gateway = TestGateway::start().await;
    use_everything(&gateway).await;
    gateway.get("/metrics").await;
    let response = gateway.get("/metrics").await;
    assert_eq!(header(&response, "content-type"), "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    let families: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(families.iter().all(|family| text.contains(&format!("# HELP {} ", family.split(' ').next().unwrap()))));
    let ours: Vec<_> = families.into_iter().filter(|family| family.starts_with("ipfrs_")).collect();
    insta::assert_snapshot!(ours.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn openmetrics_has_exemplars_of_recorded_traces() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "traced").await;
    let (recorded, other) = ("4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c");
    for _ in 0..4 {
        // The later ones could be served from the response cache.
        for (trace, flags) in [(recorded, "01"), (other, "00")] {
            let request = gateway.request(Method::GET, &format!("/ipfs/{cid}"));
            let request = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-{flags}"));
            assert_eq!(request.send().await.unwrap().text().await.unwrap(), "traced");
        }
    }
    let request = gateway.request(Method::GET, "/metrics").header("accept", "application/openmetrics-text");
    let response = request.send().await.unwrap();
    assert_eq!(header(&response, "content-type"), "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = response.text().await.unwrap();
    let exemplars: Vec<_> = text.lines().filter(|line| line.contains(" # {")).collect();
    let is_expected = |line: &&str| {
        line.starts_with("ipfrs_http_request_duration_seconds_bucket{endpoint=\"/ipfs/{*path}\",method=\"GET\",le=")
            && line.contains(&format!(" # {{trace_id=\"{recorded}\",span_id=\"00f067aa0ba902b7\"}} "))
    };
    assert!(!exemplars.is_empty() && exemplars.iter().all(is_expected), "{exemplars:?}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    assert!(!gateway.get("/metrics").await.text().await.unwrap().contains(recorded));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_page_matches_the_registered_families() {
    // With a denylist, a source, Bitswap and TLS, because their metrics do not exist without them.
    let list = tempfile::NamedTempFile::new().unwrap();
    let issuer = Issuer::new();
    let configure = |config: &mut Config| {
        config.gateway.denylists = vec![list.path().to_owned()];
        config.retrieval.gateways = vec!["http://127.0.0.1:1".to_owned()];
        config.retrieval.bitswap.enabled = true;
        config.retrieval.bitswap.listen = Vec::new();
    };
    let gateway = issuer.gateway(configure).await;
    assert_eq!(gateway.get(&format!("/ipfs/{}", raw_cid(b"unreachable"))).await.status(), 502);
    gateway.get("/health").await;
    gateway.request(Method::POST, "/graphql").body(r#"{"query":"{ stats { blocks } }"}"#).send().await.unwrap();
    let text = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    let comment = |kind: &'static str| {
        let lines = text.lines().filter_map(move |line| line.strip_prefix(kind)?.split_once(' '));
        lines.filter(|(name, _)| name.starts_with("ipfrs_"))
    };
    let kinds: BTreeMap<&str, &str> = comment("# TYPE ").collect();
    let registered: BTreeSet<_> = comment("# HELP ").map(|(name, help)| (name, kinds[name], help)).collect();
    let page = include_str!("../../../docs/METRICS.md");
    let documented: BTreeSet<_> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.strip_prefix("| `")?.split(" | ").collect();
            Some((cells[0].trim_end_matches('`'), cells[1], cells[cells.len() - 1].trim_end_matches(" |")))
        })
        .collect();
    assert_eq!(registered, documented);
}
