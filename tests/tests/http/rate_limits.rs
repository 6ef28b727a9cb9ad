//! `[rate_limit]`: requests of one client or caller.

use std::net::IpAddr;

use futures::FutureExt;
use ipfrs_proto::block::v1::GetBlockRequest;
use ipfrs_proto::block::v1::block_service_client::BlockServiceClient;
use reqwest::{Method, Response, Version};
use serde_json::{Value, json};
use tonic::Code;

use crate::content;
use crate::grpc::ABSENT;
use crate::harness::{TestGateway, client, hash_of, header};
use crate::websocket::Client as WebSocket;

/// Requests at once. Even a slow test sends twice as many before that many tokens are there again.
pub(crate) const BURST: usize = 40;

pub(crate) async fn start(change: impl FnOnce(&mut ipfrs_interface::Config)) -> TestGateway {
    TestGateway::start_with(|config| {
        config.rate_limit.enabled = true;
        (config.rate_limit.requests_per_second, config.rate_limit.burst_requests) = (1, BURST as u64);
        change(config);
    })
    .await
}

/// Sends requests until one is refused, and returns the number of those that were not, and the refusal.
pub(crate) async fn until_refused(send: impl AsyncFn() -> Response) -> (usize, Response) {
    for sent in 0..2 * BURST {
        let response = send().await;
        if response.status() == 429 {
            return (sent, response);
        }
    }
    panic!("no request was refused");
}

#[tokio::test]
async fn refusals_of_content_are_for_pages_and_local_commands_are_not_limited() {
    let gateway = start(|config| {
        let host = ipfrs_http::HostConfig { subdomains: true, ..ipfrs_http::HostConfig::default() };
        config.gateway.hosts.insert("gw.example".to_owned(), host);
    })
    .await;
    let ask = async |path: &str, host: &str| {
        let request = gateway.request(Method::GET, path).header("host", host).header("accept", "text/html");
        request.send().await.unwrap()
    };
    for (path, host) in
        [("/ipfs/bafkqaaa", "localhost"), ("/a", "bafkqaaa.ipfs.gw.example"), ("/routing/v1/x", "localhost")]
    {
        let (_, refused) = until_refused(async || ask(path, host).await).await;
        assert_eq!(header(&refused, "access-control-allow-origin"), "*", "{path}");
        assert!(header(&refused, "content-type").starts_with("text/html"), "{path}");
        let left = format!("\"requests\";r=0;t={}", header(&refused, "retry-after"));
        assert_eq!(header(&refused, "ratelimit"), left, "{path}");
    }
    let (_, command) = until_refused(async || ask("/v1/auth/session", "localhost").await).await;
    assert_eq!(command.headers().get("access-control-allow-origin"), None);
    let token = std::fs::read_to_string(gateway.repo().path().join("api-token")).unwrap();
    let session =
        async |token: &str| gateway.request(Method::GET, "/v1/auth/session").bearer_auth(token).send().await.unwrap();
    until_refused(async || session("ipfrs_wrong").await).await;
    for _ in 0..2 * BURST {
        assert_eq!(session(&token).await.status(), 200);
    }
}

#[tokio::test]
async fn cached_content_and_commands_take_tokens_of_the_same_client() {
    let gateway = start(|config| {
        let host = ipfrs_http::HostConfig { subdomains: true, ..ipfrs_http::HostConfig::default() };
        config.gateway.hosts.insert("gw.example".to_owned(), host);
    })
    .await;
    let cid = gateway.add("", "hello").await;
    let site = gateway.add_tree("cid-version=1", &[("d/health", "content")]).await;
    let path = format!("/ipfs/{cid}");
    let first = gateway.get(&path).await;
    assert_eq!(header(&first, "ratelimit-policy"), format!("\"requests\";q={BURST};w={BURST}"));
    assert!(header(&first, "ratelimit").starts_with("\"requests\";r="), "{:?}", first.headers());
    let (sent, refused) = until_refused(async || gateway.get(&path).await).await;
    assert!(sent >= BURST - 4, "{sent}");
    assert_eq!(refused.headers().get_all("retry-after").iter().count(), 1);
    let seconds: usize = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=2).contains(&seconds), "{seconds}");
    assert!(refused.text().await.unwrap().contains("rate_limit.requests_per_second"));
    // Each API has its own form of errors.
    let rpc: Value = until_refused(async || gateway.rpc("id").send().await.unwrap()).await.1.json().await.unwrap();
    assert_eq!(rpc["Kind"], "rate_limited");
    let native: Value =
        until_refused(async || gateway.v1("block/batch/has", &json!({})).await).await.1.json().await.unwrap();
    assert_eq!(native["code"], "rate_limited");
    until_refused(async || gateway.get("/nothing").await).await;
    // Load balancers and other clients are not affected.
    for path in ["/health", "/health/live", "/health/ready"] {
        assert_eq!(gateway.get(path).await.status(), 200, "{path}");
    }
    // A file of that name is content.
    let host = format!("{site}.ipfs.gw.example");
    let health = async || gateway.request(Method::GET, "/health").header("host", &host).send().await.unwrap();
    assert_eq!(
        until_refused(health).await.1.headers()["ratelimit-policy"],
        format!("\"requests\";q={BURST};w={BURST}")
    );
    let mut blocks = BlockServiceClient::new(gateway.channel());
    let mut code = Code::Ok;
    for _ in 0..2 * BURST {
        code = blocks.get_block(GetBlockRequest { cid: ABSENT.to_owned() }).await.unwrap_err().code();
        if code == Code::ResourceExhausted {
            break;
        }
        assert_eq!(code, Code::NotFound);
    }
    assert_eq!(code, Code::ResourceExhausted);
}

#[tokio::test]
async fn limits_that_a_reload_sets_count_requests_of_open_connections() {
    let mut gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello").await;
    let (client, url) = (client().build().unwrap(), gateway.url(&format!("/ipfs/{cid}")));
    let get = async || client.get(&url).send().await.unwrap();
    // The head of the response is written without hyper, for headers that were seen before.
    for _ in 0..4 {
        assert_eq!(get().await.text().await.unwrap(), "hello");
    }
    let mut config = ipfrs_interface::Config::default();
    config.rate_limit.enabled = true;
    (config.rate_limit.requests_per_second, config.rate_limit.burst_requests) = (1, BURST as u64);
    gateway.gateway.reload(&config).await.unwrap();
    until_refused(get).await;
}

#[tokio::test]
async fn needless_credentials_spare_nobody_the_limits() {
    let resolver = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = resolver.local_addr().unwrap();
    let gateway = start(|config| {
        config.auth.enabled = true;
        config.dns.resolvers = serde_json::from_value(address.to_string().into()).unwrap();
        config.dns.timeout_seconds = 1;
        config.gateway.max_concurrent_requests = 2 * BURST;
    })
    .await;
    let send = |method: Method, path: &str, host: &str| {
        gateway.request(method, path).header("host", host).bearer_auth("x").send()
    };
    until_refused(async || send(Method::GET, "//", "-").await.unwrap()).await;
    // No lookup for those who have no token left. A few come back meanwhile.
    let hosts = (0..20).map(|number| format!("h{number}.example.net"));
    let asked = futures::future::join_all(hosts.map(|host| async { send(Method::GET, "/", &{ host }).await.unwrap() }));
    let refused = asked.await.iter().filter(|response| response.status() == 429).count();
    assert!(refused > 10, "{refused}");
    // Probes are free, whatever the host.
    let probe = gateway.request(Method::GET, "/health").header("host", "probe.example.net").send().await.unwrap();
    assert_eq!(probe.status(), 200);
}

#[tokio::test]
async fn proxies_name_the_clients_that_pay() {
    let loopback = || "127.0.0.1".to_owned().try_into().unwrap();
    let gateway = start(|config| config.gateway.trusted_proxies = vec![loopback()]).await;
    let send = async |client: &str| {
        let request = gateway.request(Method::GET, "/nothing").header("x-forwarded-for", client);
        request.send().await.unwrap()
    };
    until_refused(async || send("192.0.2.1").await).await;
    assert_eq!(send("192.0.2.2").await.status(), 404);
    // A network of IPv6 is one client.
    let hosts: Vec<IpAddr> =
        (0..BURST as u128 + 20).map(|host| IpAddr::from((0x2001_0db8_u128 << 96 | host).to_be_bytes())).collect();
    let mut refused = 0;
    for host in hosts {
        refused += usize::from(send(&host.to_string()).await.status() == 429);
    }
    assert!(refused > 0);
    // The header of a stranger has no effect.
    let gateway = start(|_| {}).await;
    let next = std::cell::Cell::new(0);
    until_refused(async || {
        next.set(next.get() + 1);
        let request = gateway.request(Method::GET, "/nothing");
        request.header("x-forwarded-for", format!("192.0.2.{}", next.get())).send().await.unwrap()
    })
    .await;
    let gateway = start(|config| config.rate_limit.exempt = vec![loopback()]).await;
    for _ in 0..2 * BURST {
        assert_eq!(gateway.get("/nothing").await.status(), 404);
    }
}

#[tokio::test]
async fn callers_pay_for_themselves() {
    let gateway = start(|config| {
        config.auth.enabled = true;
        config.rate_limit.caller_factor = 2;
    })
    .await;
    let admin = std::fs::read_to_string(gateway.repo().path().join("api-token")).unwrap();
    let key = async || {
        let request = gateway.request(Method::POST, "/v1/auth/keys").bearer_auth(&admin);
        let created: Value = request.body(r#"{"scopes": ["read"]}"#).send().await.unwrap().json().await.unwrap();
        created["token"].as_str().unwrap().to_owned()
    };
    let (one, other) = (key().await, key().await);
    let send =
        async |token: &str| gateway.request(Method::GET, "/v1/progress").bearer_auth(token).send().await.unwrap();
    let mut answered = 0;
    let refused = loop {
        let response = send(&one).await;
        if response.status() != 200 {
            break response;
        }
        answered += 1;
        assert!(answered < 4 * BURST);
    };
    assert_eq!(header(&refused, "ratelimit-policy"), format!("\"requests\";q={};w={BURST}", 2 * BURST));
    assert!(answered >= 2 * BURST - 2, "{answered}");
    assert_eq!(send(&other).await.status(), 200);
    assert_eq!(gateway.get("/").await.status(), 200, "the address has tokens of its own");
    // Credentials that are not needed, or are wrong, do not give anyone a bucket.
    until_refused(async || gateway.request(Method::GET, "/").bearer_auth("x").send().await.unwrap()).await;
    let file = gateway.rpc("add").bearer_auth(&admin).header("content-type", "application/octet-stream").body("hello");
    let cid = hash_of(&file.send().await.unwrap().json().await.unwrap());
    let path = format!("/ipfs/{cid}");
    until_refused(async || gateway.request(Method::GET, &path).bearer_auth("x").send().await.unwrap()).await;
    // The operator is not locked out.
    for _ in 0..3 * BURST {
        assert_eq!(send(&admin).await.status(), 200);
    }
}

#[tokio::test]
async fn bytes_beyond_the_burst_are_not_sent_over_http1_and_http2() {
    // Responses pay for pieces of this size. A further piece takes a minute.
    const PIECE: usize = 256 * 1024;
    let body = content::bytes(8 * 1024 * 1024);
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let gateway = start(|config| {
            config.auth.enabled = true;
            (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 4 * PIECE as u64 + 1_000);
        })
        .await;
        // The operator has no limits.
        let operator = std::fs::read_to_string(gateway.repo().path().join("api-token")).unwrap();
        let add = gateway.rpc("add").bearer_auth(&operator).header("content-type", "application/octet-stream");
        let cid = hash_of(&add.body(body.clone()).send().await.unwrap().json().await.unwrap());
        let builder = if version == Version::HTTP_2 { client().http2_prior_knowledge() } else { client() };
        let address = builder.build().unwrap();
        let mut response = address.get(gateway.url(&format!("/ipfs/{cid}"))).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, version));
        let mut received = Vec::new();
        while received.len() < 4 * PIECE {
            received.extend_from_slice(&response.chunk().await.unwrap().unwrap());
        }
        // Meanwhile, others get much more.
        for _ in 0..4 {
            let download = gateway.request(Method::GET, &format!("/v1/stream/download/{cid}")).bearer_auth(&operator);
            content::assert_same(&download.send().await.unwrap().bytes().await.unwrap(), &body, "the download");
        }
        while let Some(chunk) = response.chunk().now_or_never() {
            received.extend_from_slice(&chunk.unwrap().unwrap());
        }
        assert_eq!(received.len(), 4 * PIECE, "{version:?}");
        content::assert_same(&received, &body[..4 * PIECE], "what is sent");
    }
}

/// Begins an operation of GraphQL.
async fn subscribe(socket: &mut WebSocket, id: usize, query: &str) {
    let message = json!({ "type": "subscribe", "id": id.to_string(), "payload": { "query": query } });
    socket.send(message.to_string()).await;
}

#[tokio::test]
async fn graphql_operations_on_a_websocket_count_as_requests() {
    let gateway = start(|_| {}).await;
    let mut socket = WebSocket::graphql(gateway.address()).await;
    let mut served = 0;
    let refused = loop {
        subscribe(&mut socket, served, "{ version { version } }").await;
        let reply = socket.receive().await;
        if reply["type"] == "error" {
            break reply;
        }
        assert_eq!(reply["type"], "next", "{reply}");
        assert_eq!(socket.receive().await["type"], "complete");
        served += 1;
        assert!(served < 2 * BURST, "no operation was refused");
    };
    assert!(served >= BURST - 2, "{served}");
    assert_eq!(refused["payload"][0]["extensions"]["code"], "rate_limited", "{refused}");
    // The bucket is that of all requests of the client, and the connection stays open.
    until_refused(async || gateway.get("/nothing").await).await;
    socket.send(json!({ "type": "ping" }).to_string()).await;
    assert_eq!(socket.receive().await["type"], "pong");
}

#[tokio::test]
async fn graphql_results_on_a_websocket_wait_until_the_last_is_paid() {
    let gateway = start(|config| (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, 100)).await;
    let mut socket = WebSocket::graphql(gateway.address()).await;
    subscribe(&mut socket, 1, "{ __schema { types { name } } }").await;
    assert_eq!(socket.receive().await["type"], "next");
    subscribe(&mut socket, 2, "{ version { version } }").await;
    // The connection serves other messages meanwhile. The result takes a minute.
    for _ in 0..100 {
        socket.send(json!({ "type": "ping" }).to_string()).await;
        assert_eq!(socket.receive().await["type"], "pong");
    }
}

#[tokio::test]
async fn grpc_messages_beyond_the_burst_are_not_sent() {
    const BURST_BYTES: usize = 300_000;
    let gateway = start(|config| {
        config.auth.enabled = true;
        (config.rate_limit.bytes_per_second, config.rate_limit.burst_bytes) = (1, BURST_BYTES as u64);
        config.rate_limit.caller_factor = 1;
    })
    .await;
    // The operator has no limits.
    let operator = std::fs::read_to_string(gateway.repo().path().join("api-token")).unwrap();
    let created = gateway.request(Method::POST, "/v1/auth/keys").bearer_auth(&operator);
    let created: Value = created.body(r#"{"scopes": ["read"]}"#).send().await.unwrap().json().await.unwrap();
    let reader = created["token"].as_str().unwrap().to_owned();
    let add = async |bytes: usize| {
        let add = gateway.rpc("add?cid-version=1&chunker=size-1000000").bearer_auth(&operator);
        let add = add.header("content-type", "application/octet-stream").body(content::bytes(bytes));
        hash_of(&add.send().await.unwrap().json().await.unwrap())
    };
    let (small, large) = (add(1_000).await, add(1_000_000).await);
    let mut blocks = BlockServiceClient::new(gateway.channel());
    let get = |cid: &str, token: &str| {
        let mut request = tonic::Request::new(GetBlockRequest { cid: cid.to_owned() });
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        request
    };
    assert!(blocks.get_block(get(&small, &reader)).await.is_ok());
    let mut other = blocks.clone();
    let request = get(&large, &reader);
    let limited = tokio::spawn(async move { other.get_block(request).await });
    // Meanwhile, others get as much many times.
    for _ in 0..8 {
        let block = blocks.get_block(get(&large, &operator)).await.unwrap().into_inner().block.unwrap();
        assert_eq!(block.data.len(), 1_000_000);
    }
    assert!(!limited.is_finished());
    limited.abort();
}
