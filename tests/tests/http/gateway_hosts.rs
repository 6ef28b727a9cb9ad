//! Content by host: configured gateways, trustless gateways, DNSLink websites, and all other hosts.

use ipfrs_http::{HostConfig, Namespace};
use ipfrs_interface::Config;
use reqwest::{Method, Response, Version};
use tokio::net::UdpSocket;

use crate::content_ids::HELLO;
use crate::harness::{TestGateway, client, header};
use crate::wire::Wire;

/// List of the protocols of a host with a gateway.
const PROTOCOLS: &str = "/.well-known/libp2p/protocols";

fn hosts(config: &mut Config) {
    let gateway = &mut config.gateway;
    let subdomains = HostConfig { subdomains: true, ..HostConfig::default() };
    gateway.hosts.insert("example.com".into(), subdomains);
    gateway.hosts.insert("paths.example".into(), HostConfig::default());
    gateway.hosts.insert("ipfs.example".into(), HostConfig { paths: vec![Namespace::Ipfs], ..HostConfig::default() });
    gateway.hosts.insert("closed.example".into(), HostConfig { paths: vec![], ..HostConfig::default() });
    gateway.hosts.insert("trustless.example".into(), HostConfig { deserialized: Some(false), ..HostConfig::default() });
    gateway.hosts.insert("127.0.0.2".into(), HostConfig::default());
    // The tests send no DNS queries.
    config.dns.enabled = false;
}

async fn ask(gateway: &TestGateway, host: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.request(Method::GET, path).header("host", host);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

async fn status(gateway: &TestGateway, host: &str, path: &str) -> u16 {
    ask(gateway, host, path, &[]).await.status().as_u16()
}

/// Returns a gateway with a DNSLink website at `site.example`, and at `both.example`, which is also a configured
/// gateway.
async fn with_websites() -> (TestGateway, String) {
    let files = [
        ("d/index.html", "<p>home"),
        ("d/ipfs/mine", "mine"),
        ("d/api/v0/version", "content"),
        ("d/list/a b", "x"),
        ("d/health", "fine"),
        ("d/.well-known/libp2p/protocols", "of the site"),
    ];
    let first = TestGateway::start().await;
    let root = first.add_tree("cid-version=1", &files).await;
    let repo = first.stop().await;
    let gateway = TestGateway::start_on(repo, |config| {
        hosts(config);
        let both = HostConfig { paths: vec![Namespace::Ipfs], ..HostConfig::default() };
        config.gateway.hosts.insert("both.example".into(), both);
        config.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
        for domain in ["site.example", "both.example", "closed.example", "www.example.com"] {
            config.gateway.dnslink.insert(domain.into(), format!("/ipfs/{root}"));
        }
    })
    .await;
    (gateway, root)
}

#[tokio::test]
async fn configured_host_serves_only_its_paths_and_health() {
    let gateway = TestGateway::start_with(hosts).await;
    let hello = format!("/ipfs/{HELLO}");
    for (host, served, refused) in [
        (
            "paths.example",
            vec![&*hello, "/", "/health", "/health/ready", PROTOCOLS],
            vec!["/metrics", "/debug/metrics/prometheus", "/v1/progress", "/ipfsx", "/x"],
        ),
        ("PATHS.example.:80", vec![&hello, "/health/live"], vec!["/metrics"]),
        ("127.0.0.2:8080", vec![&hello], vec!["/metrics"]),
        ("ipfs.example", vec![&hello], vec!["/ipns/x.example", "/metrics"]),
        ("closed.example", vec![], vec![&hello, "/", "/health", PROTOCOLS]),
        // A host below a subdomain gateway that is not a valid subdomain.
        ("rpc.example.com", vec![], vec![&hello, "/", "/health", "/metrics"]),
        ("x.foo.example.com", vec![], vec![&hello, "/metrics"]),
        // All other hosts reach the daemon.
        ("other.example", vec![&hello, "/", "/health", "/metrics"], vec!["/x"]),
        ("www.paths.example", vec![&hello, "/metrics"], vec!["/x"]),
        ("localhost", vec![&hello, "/metrics", PROTOCOLS], vec!["/x"]),
        ("[::1]:1", vec![&hello, "/metrics"], vec!["/x"]),
        ("", vec![&hello, "/metrics"], vec!["/x"]),
    ] {
        for path in served {
            assert_eq!(status(&gateway, host, path).await, 200, "{host}{path}");
        }
        for path in refused {
            assert_eq!(status(&gateway, host, path).await, 404, "{host}{path}");
        }
    }
    for host in ["paths.example", "example.com", "closed.example", "rpc.example.com", "trustless.example"] {
        for path in ["/api/v0/version", "/api/v0/shutdown", "/v1/block/batch/put"] {
            let rpc = gateway.request(Method::POST, path).header("host", host).send().await.unwrap();
            assert_eq!(rpc.status(), 404, "{host}{path}");
        }
    }
    assert_eq!(gateway.rpc("version").send().await.unwrap().status(), 200);
    let welcome = ask(&gateway, "ipfs.example", "/", &[]).await.text().await.unwrap();
    assert!(welcome.contains("/ipfs/") && welcome.contains("/health"), "{welcome}");
    assert!(!welcome.contains("/ipns/") && !welcome.contains("/api/"), "{welcome}");
}

#[tokio::test]
async fn slashes_before_a_path_are_redirected_to_one() {
    let gateway = TestGateway::start_with(hosts).await;
    let content = format!("ipfs/{HELLO}?filename=a%20b");
    let (content, rpc) = (content.as_str(), "api/v0/version?number=true");
    for (host, slashes, path, status) in [
        ("localhost", "//", content, 307),
        ("other.example", "///", content, 307),
        ("localhost", "//", rpc, 307),
        ("paths.example", "//", content, 301),
        ("localhost", "//", "ipfs.example/x", 404),
        ("paths.example", "//", "ipfs.example/x", 404),
        ("ipfs.example", "//", "ipns/x.example", 404),
        ("closed.example", "//", content, 404),
        ("paths.example", "//", rpc, 404),
    ] {
        let response = ask(&gateway, host, &format!("{slashes}{path}"), &[]).await;
        let location = if status == 404 { String::new() } else { format!("/{path}") };
        let found = (response.status().as_u16(), header(&response, "location"));
        assert_eq!(found, (status, &*location), "{host}{slashes}{path}");
        let is_readable = header(&response, "access-control-allow-origin") == "*";
        assert_eq!(is_readable, path == content || host != "localhost", "{host}{slashes}{path}");
    }
    // Only the slashes are removed: a path that leaves its root is refused as without them.
    let response = ask(&gateway, "localhost", &format!("//ipfs/{HELLO}/..%2Fx"), &[]).await;
    assert_eq!(header(&response, "location"), format!("/ipfs/{HELLO}/..%2Fx"));
}

#[tokio::test]
async fn domain_serves_no_rpc_while_dns_fails() {
    let gateway = TestGateway::start_with(|config| {
        // No resolver listens on this address.
        config.dns.resolvers = serde_json::from_value("127.0.0.1:1".into()).unwrap();
    })
    .await;
    let host = "unknown.example.com";
    for path in [format!("/ipfs/{HELLO}"), "/health".into()] {
        assert_eq!(status(&gateway, host, &path).await, 200, "{path}");
    }
    for path in ["/", "/index.html", "/metrics", "/v1/progress"] {
        let response = ask(&gateway, host, path, &[]).await;
        assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (503, "1"), "{path}");
        let text = response.text().await.unwrap();
        assert!(text.contains(host) && text.contains("use the daemon's address instead"), "{text}");
    }
    let rpc = gateway.request(Method::POST, "/api/v0/version").header("host", host).send().await.unwrap();
    assert_eq!(rpc.status(), 503);

    let gateway = TestGateway::start_with(|config| {
        let resolver = "http://user:secret@127.0.0.1:1/token?key=hidden";
        config.dns.resolvers = serde_json::from_value(resolver.into()).unwrap();
    })
    .await;
    let text = ask(&gateway, host, "/", &[]).await.text().await.unwrap();
    assert!(text.contains("http://127.0.0.1:1") && !text.contains("secret"), "{text}");
    assert!(!text.contains("token") && !text.contains("hidden"), "{text}");
}

#[tokio::test]
async fn dns_wait_holds_a_permit_and_is_measured() {
    // A resolver that receives queries and never responds.
    let resolver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = resolver.local_addr().unwrap();
    let gateway = TestGateway::start_with(|config| {
        config.dns.resolvers = serde_json::from_value(address.to_string().into()).unwrap();
        config.dns.timeout_seconds = 1;
        config.gateway.max_concurrent_requests = 1;
    })
    .await;
    let beside = async {
        resolver.recv_from(&mut [0; 512]).await.unwrap();
        assert_eq!(status(&gateway, "two.example.net", "/x").await, 429);
        // Whatever the path, or a client could occupy all lookups. An address takes none.
        assert_eq!(status(&gateway, "two.example.net", "/health").await, 429);
        assert_eq!(gateway.get("/health").await.status(), 200);
    };
    let (waited, ()) = tokio::join!(status(&gateway, "one.example.net", "/x"), beside);
    assert_eq!(waited, 503);
    let metrics = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    assert!(metrics.contains("ipfrs_refusals_total{limit=\"max_concurrent_requests\"} 2\n"), "{metrics}");
    let sum = "ipfrs_http_request_duration_seconds_sum{endpoint=\"unmatched\",method=\"GET\"} ";
    let seconds = metrics.lines().find_map(|line| line.strip_prefix(sum)).unwrap();
    assert!(seconds.parse::<f64>().unwrap() > 0.1, "the wait itself: {seconds}");
}

#[tokio::test]
async fn a_website_is_served_at_its_domain_and_nothing_else_is() {
    let (gateway, root) = with_websites().await;
    for (host, path, body) in [
        ("site.example", "/", "<p>home"),
        ("Site.Example:8080", "/ipfs/mine", "mine"),
        ("site.example.", "/api/v0/version", "content"),
        ("site.example", "/health", "fine"),
        ("closed.example", "/health", "fine"),
        ("www.example.com", "/ipfs/mine", "mine"),
        ("both.example", "/", "<p>home"),
        ("both.example", PROTOCOLS, "of the site"),
        ("both.example", &format!("/ipfs/{HELLO}"), "hello\n"),
    ] {
        let response = ask(&gateway, host, path, &[]).await;
        assert_eq!(response.status(), 200, "{host}{path}");
        assert_eq!(response.text().await.unwrap(), body, "{host}{path}");
    }
    for (host, path) in [
        ("site.example", &*format!("/ipfs/{HELLO}")),
        ("site.example", "/metrics"),
        ("site.example", "/ipns/site.example"),
        ("www.example.com", "/v1/progress"),
        // Paths of the gateway take precedence over the website.
        ("both.example", &format!("/ipfs/{root}/none")),
    ] {
        assert_eq!(status(&gateway, host, path).await, 404, "{host}{path}");
    }
    for host in ["site.example", "www.example.com"] {
        let rpc = gateway.request(Method::POST, "/api/v0/version").header("host", host).send().await.unwrap();
        assert_eq!(rpc.status(), 405, "{host}: content is read only");
    }
    let forwarded = [("x-forwarded-host", "site.example")];
    for host in ["proxy.example", "127.0.0.1", "paths.example"] {
        assert_eq!(ask(&gateway, host, "/health", &forwarded).await.text().await.unwrap(), "fine", "{host}");
    }
    let page = ask(&gateway, "site.example:80", "/list/", &[("accept", "text/html")]).await;
    assert_eq!(header(&page, "x-ipfs-path"), "/ipns/site.example/list/");
    assert!(!header(&page, "cache-control").contains("immutable"), "{}", header(&page, "cache-control"));
    let page = page.text().await.unwrap();
    for link in [
        "href=\"/list/a%20b\"",
        "href=\"/list/..\"",
        "href=\"//site.example:80/\"",
        "href=\"//site.example:80/list\"",
        "href=\"https://cid.ipfs.tech/#bafk",
    ] {
        assert!(page.contains(link), "{link} in {page}");
    }
    let missing = ask(&gateway, "site.example", "/list/none", &[("accept", "text/html")]).await;
    assert_eq!(missing.status(), 404);
    let missing = missing.text().await.unwrap();
    assert!(missing.contains("<a href=\"/list/\">Up to the parent directory</a>"), "{missing}");
    let moved = ask(&gateway, "site.example", "/list?a=b", &[]).await;
    assert_eq!((moved.status().as_u16(), header(&moved, "location")), (301, "/list/?a=b"));
}

#[tokio::test]
async fn a_trustless_host_serves_only_what_can_be_verified() {
    let gateway = TestGateway::start_with(hosts).await;
    let directory = gateway.add_tree("cid-version=1", &[("d/f", "x"), ("d/index.html", "x")]).await;
    let raw = ("accept", "application/vnd.ipld.raw");
    let car = ("accept", "application/vnd.ipld.car");
    for (path, headers, status) in [
        ("/ipfs/bafkqaaa?format=raw".to_owned(), vec![], 200),
        ("/ipfs/bafkqaaa".into(), vec![raw], 200),
        ("/ipfs/bafkqaaa".into(), vec![car], 200),
        (format!("/ipfs/{directory}?format=raw"), vec![], 200),
        (format!("/ipfs/{directory}/f?format=car"), vec![], 200),
        // The format that proves the path is chosen.
        (format!("/ipfs/{directory}/f"), vec![("accept", "application/vnd.ipld.raw, application/vnd.ipld.car")], 200),
        (format!("/ipfs/{directory}"), vec![("accept", "application/x-tar, application/vnd.ipld.raw;q=0.1")], 200),
        (format!("/ipfs/{directory}?format=raw"), vec![("range", "bytes=0-1")], 206),
        // A raw block does not prove that a path leads to it.
        (format!("/ipfs/{directory}/f?format=raw"), vec![], 406),
        ("/ipfs/bafkqaaa".into(), vec![], 406),
        (format!("/ipfs/{directory}/"), vec![("accept", "text/html")], 406),
        (format!("/ipfs/{directory}/f"), vec![("range", "bytes=0-0")], 406),
        (format!("/ipfs/{directory}?format=tar"), vec![], 406),
        (format!("/ipfs/{directory}?format=json"), vec![], 406),
        (format!("/ipfs/{directory}"), vec![("accept", "application/vnd.ipld.dag-json")], 406),
        ("/ipns/site.example?format=car".into(), vec![], 406),
    ] {
        for _ in 0..2 {
            let response = ask(&gateway, "trustless.example", &path, &headers).await;
            assert_eq!(response.status(), status, "{path} {headers:?}");
            if status == 406 {
                let text = response.text().await.unwrap();
                assert!(text.contains("format=raw") && text.contains("format=car"), "{text}");
            }
            // A cached response of another host must not be served here.
            let _other = ask(&gateway, "localhost", &path, &headers).await;
        }
    }
    let probe = gateway.request(Method::HEAD, "/ipfs/bafkqaaa?format=raw").header("host", "trustless.example");
    assert_eq!(probe.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn files_are_served_only_under_names_that_say_so() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.deserialized = false;
        config.gateway.hosts.insert("default.example".into(), HostConfig::default());
        let files = HostConfig { deserialized: Some(true), ..HostConfig::default() };
        config.gateway.hosts.insert("files.example".into(), files.clone());
        let subdomains = HostConfig { subdomains: true, ..files };
        config.gateway.hosts.insert("roots.example".into(), subdomains);
        config.gateway.dnslink.insert("site.example".into(), "/ipfs/bafkqaaa".into());
        config.gateway.dnslink.insert("files.example".into(), "/ipfs/bafkqaaa".into());
        config.dns.enabled = false;
    })
    .await;
    let cid = gateway.add("cid-version=1", "hello\n").await;
    let (path, root) = (format!("/ipfs/{cid}"), format!("{cid}.ipfs.roots.example"));
    // Repeated, for the caches.
    for _ in 0..3 {
        for host in ["files.example", "localhost", "default.example", "127.0.0.1", "10.0.0.1"] {
            let expected = if host == "files.example" { 200 } else { 406 };
            assert_eq!(status(&gateway, host, &path).await, expected, "{host}");
            assert_eq!(status(&gateway, host, &format!("{path}?format=tar")).await, expected, "{host}");
            for format in ["raw", "car"] {
                assert_eq!(status(&gateway, host, &format!("{path}?format={format}")).await, 200, "{host} {format}");
            }
        }
        assert_eq!(status(&gateway, &root, "/").await, 200);
        assert_eq!(status(&gateway, "site.example", "/").await, 406);
        assert_eq!(status(&gateway, "files.example", "/").await, 200);
    }
}

#[tokio::test]
async fn cached_responses_are_separate_per_host() {
    let (gateway, _) = with_websites().await;
    let path = format!("/ipfs/{HELLO}");
    for host in ["localhost", "paths.example", "other.example", "localhost", "paths.example", "both.example"] {
        assert_eq!(ask(&gateway, host, &path, &[]).await.text().await.unwrap(), "hello\n", "{host}");
    }
    for (host, expected) in [
        ("example.com", 301),
        ("closed.example", 404),
        ("site.example", 404),
        ("trustless.example", 406),
        ("rpc.example.com", 404),
        ("b.ipfs.example.com", 400),
    ] {
        assert_eq!(status(&gateway, host, &path).await, expected, "{host}");
    }
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET {path} HTTP/1.1\r\nHost: trustless.example\r\n\r\n")).await;
    assert_eq!(wire.answer().await.status, 400, "no Accept");
}

#[tokio::test]
async fn only_trusted_proxies_may_set_the_host() {
    let path = format!("/ipfs/{HELLO}");
    for (trusted, expected) in [
        (vec![], None),
        (vec!["10.0.0.0/8", "::1"], None),
        (vec!["127.0.0.1"], Some(())),
        (vec!["127.0.0.0/8"], Some(())),
    ] {
        let gateway = TestGateway::start_with(|config| {
            hosts(config);
            config.gateway.trusted_proxies = trusted.iter().map(|text| text.to_string().try_into().unwrap()).collect();
        })
        .await;
        let headers = [("x-forwarded-host", "other.example, example.com"), ("x-forwarded-proto", "http, https")];
        let response = ask(&gateway, "proxy.example", &path, &headers).await;
        let location = header(&response, "location").to_owned();
        // A forwarded host cannot make a closed route available, because many proxies pass on this header from their
        // clients.
        for forwarded in ["localhost", "127.0.0.1", "other.example", ""] {
            let closed = ask(&gateway, "example.com", "/metrics", &[("x-forwarded-host", forwarded)]).await;
            assert_eq!(closed.status(), 404, "{trusted:?} {forwarded}");
            let open = ask(&gateway, "localhost", "/metrics", &[("x-forwarded-host", forwarded)]).await;
            assert_eq!(open.status(), 200, "{trusted:?} {forwarded}");
        }
        let open = ask(&gateway, "localhost", "/metrics", &[("x-forwarded-host", "example.com")]).await.status();
        match expected {
            Some(()) => {
                assert_eq!(location, format!("https://{HELLO}.ipfs.example.com/"), "{trusted:?}");
                assert_eq!(open, 404, "{trusted:?}");
            }
            None => {
                assert_eq!((response.status().as_u16(), location.as_str()), (200, ""), "{trusted:?}");
                assert_eq!(open, 200, "{trusted:?}");
                let proto = ask(&gateway, "example.com", &path, &[("x-forwarded-proto", "https")]).await;
                assert_eq!(header(&proto, "location"), format!("http://{HELLO}.ipfs.example.com/"), "{trusted:?}");
            }
        }
    }
}

#[tokio::test]
async fn invalid_host_name_is_refused() {
    let gateway = TestGateway::start_with(hosts).await;
    for (host, status) in [
        ("exa mple.com", 400),
        ("example.com/ipfs", 400),
        ("user@example.com", 400),
        ("example.com:80a", 400),
        ("example.com:123456", 400),
        ("[::g]", 400),
        ("::1", 400),
        ("ex\u{e4}mple.com", 400),
        ("example.com:", 301),
        ("ex_ample.test", 200),
    ] {
        let mut wire = Wire::connect(&gateway).await;
        wire.send(format!("GET /ipfs/{HELLO} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        let answer = wire.answer().await;
        assert_eq!(answer.status, status, "{host}: {}", answer.text());
        assert_eq!(answer.text().contains("is not a host name"), status == 400, "{host}: {}", answer.text());
    }
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET /ipfs/{HELLO} HTTP/1.0\r\n\r\n")).await;
    assert_eq!(wire.answer().await.text(), "hello\n");
    // An absolute target with the same host.
    let mut wire = Wire::connect(&gateway).await;
    let request =
        format!("GET http://example.com/ipfs/{HELLO} HTTP/1.1\r\nHost: example.com:80\r\nConnection: close\r\n\r\n");
    wire.send(request).await;
    assert_eq!(wire.answer().await.header("location"), format!("http://{HELLO}.ipfs.example.com/"));
}

#[tokio::test]
async fn over_http_2_the_authority_is_the_host() {
    let gateway = TestGateway::start_with(hosts).await;
    let address = gateway.address();
    let client = client().http2_prior_knowledge().resolve("example.com", address).resolve("trustless.example", address);
    let client = client.build().unwrap();
    let port = address.port();
    let get = |host: &str| client.get(format!("http://{host}:{port}/ipfs/{HELLO}")).send();
    let moved = get("example.com").await.unwrap();
    assert_eq!(moved.version(), Version::HTTP_2);
    assert_eq!(header(&moved, "location"), format!("http://{HELLO}.ipfs.example.com:{port}/"));
    assert_eq!(get("trustless.example").await.unwrap().status(), 406);
    assert_eq!(get("127.0.0.1").await.unwrap().text().await.unwrap(), "hello\n");
    // No response to HEAD has a body, on any host. HTTP/2 does not drop the body automatically.
    for url in ["example.com", "trustless.example", "127.0.0.1"].map(|host| format!("http://{host}:{port}/ipfs/x")) {
        let (whole, head) = (client.get(&url).send().await.unwrap(), client.head(&url).send().await.unwrap());
        let told = |response: &Response| (response.status(), header(response, "content-length").to_owned());
        assert_eq!(told(&head), told(&whole), "{url}");
        assert!(head.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn unknown_names_are_refused_if_the_known_ones_are_listed() {
    let gateway = TestGateway::start_with(|config| {
        config.server.hosts = vec!["Known.example.org".to_owned(), "*.wild.example".to_owned()];
        config
            .gateway
            .hosts
            .insert("configured.example".to_owned(), HostConfig { subdomains: true, ..HostConfig::default() });
        config.gateway.trusted_proxies = vec!["127.0.0.1".to_owned().try_into().unwrap()];
        config.dns.enabled = false;
    })
    .await;
    let cid = gateway.add("cid-version=1", "hello").await;
    let status = async |method: Method, path: &str, headers: &[(&str, &str)]| {
        let request = gateway.request(method, path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.send().await.unwrap().status().as_u16()
    };
    let content = format!("/ipfs/{cid}");
    let root = format!("{cid}.ipfs.configured.example");
    // The second response may come from a cache.
    for _ in 0..2 {
        for (host, expected) in [
            ("127.0.0.1", 200),
            ("localhost:1234", 200),
            ("intranet", 200),
            ("known.EXAMPLE.org:80", 200),
            ("a.wild.example", 200),
            ("configured.example", 301),
            ("evil.example", 403),
            ("wild.example", 403),
            ("a.b.wild.example", 403),
            ("known.example.org.evil.example", 403),
        ] {
            assert_eq!(status(Method::GET, &content, &[("host", host)]).await, expected, "{host}");
        }
    }
    assert_eq!(status(Method::GET, "/", &[("host", &root)]).await, 200);
    assert_eq!(status(Method::POST, "/api/v0/id", &[("host", "evil.example")]).await, 403);
    assert_eq!(
        status(Method::GET, &content, &[("host", "127.0.0.1"), ("x-forwarded-host", "evil.example")]).await,
        403
    );
    let refused = gateway.request(Method::GET, &content).header("host", "evil.example").send().await.unwrap();
    assert_eq!(header(&refused, "x-content-type-options"), "nosniff");
}
