//! `_redirects` files (<https://specs.ipfs.tech/http-gateways/web-redirects-file/>): rules of a site with its own
//! origin for paths that it does not contain.

use ipfrs_http::HostConfig;
use reqwest::{Method, Response};

use crate::harness::{TestGateway, header};
use crate::rpc_get::directory;

const IMMUTABLE: &str = "public, max-age=29030400, immutable";

const RULES: &str = "\u{feff}# what moved\r
/one /found.txt\r
\t/two  /caf%C3%A9/:splat 302 \r
/blog/:year/:title /articles/:title?year=:year 303\r
/old/* https://example.com/new/:splat 307\r
/away ipfs://bafkqaaa 308\r
\r
/spa/* /index.html 200\r
/styled /style.css 200\r
/area /sub 200\r
/area/ /never 301\r
/to-root / 200\r
/lost/* /404.html 404\r
/gone/* /410.html 410\r
/law/* /451.html 451\r
/dangling /no-such-page 200\r
/dangling-page /no-such-page 404\r
/found.txt /one 301\r
/sub /elsewhere 301\r
/proxied https://example.com/ 200\r
";

const SITE: [(&str, &str); 8] = [
    ("d/_redirects", RULES),
    ("d/index.html", "<p>home"),
    ("d/style.css", "p { color: red }"),
    ("d/found.txt", "found"),
    ("d/sub/index.html", "<p>sub"),
    ("d/404.html", "<p>lost"),
    ("d/410.html", "<p>gone"),
    ("d/451.html", "<p>law"),
];

/// Returns a gateway with subdomains at `example.com` and without them at `example.net`.
async fn gateway() -> TestGateway {
    TestGateway::start_with(|config| {
        let with = HostConfig { subdomains: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), with);
        config.gateway.hosts.insert("example.net".into(), HostConfig::default());
    })
    .await
}

/// Sends a request to a host and returns the response.
async fn ask(gateway: &TestGateway, method: Method, host: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.request(method, path).header("host", host);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

async fn get(gateway: &TestGateway, host: &str, path: &str) -> Response {
    ask(gateway, Method::GET, host, path, &[]).await
}

/// Adds a site of these files on its own subdomain, and returns its host and the content ID of its root.
async fn site(gateway: &TestGateway, files: &[(&str, &str)]) -> (String, String) {
    let root = gateway.add_tree("cid-version=1", files).await;
    (format!("{root}.ipfs.example.com"), root)
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_rules_return_their_location() {
    let gateway = gateway().await;
    let (host, _) = site(&gateway, &SITE).await;
    for (path, status, location) in [
        ("/one", 301, "/found.txt"),
        ("/one/", 301, "/found.txt"),
        ("/one?a=1&b=%2F", 301, "/found.txt?a=1&b=%2F"),
        ("/two", 302, "/caf%C3%A9/"),
        ("/blog/2022/hello", 303, "/articles/hello?year=2022"),
        ("/blog/2022/hello?year=1999&x", 303, "/articles/hello?year=1999&x"),
        ("/blog/a%26b/c%3Fd", 303, "/articles/c%3Fd?year=a%26b"),
        ("/blog%2F2022/hello", 303, "/articles/hello?year=2022"),
        ("/old/a/b%20c/%C3%A9", 307, "https://example.com/new/a/b%20c/%C3%A9"),
        ("/old/%0D%0AX-Evil:%201", 307, "https://example.com/new/%0D%0AX-Evil:%201"),
        ("/away", 308, "ipfs://bafkqaaa"),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let response = ask(&gateway, method.clone(), &host, path, &[]).await;
            assert_eq!((response.status().as_u16(), header(&response, "location")), (status, location), "{path}");
            assert_eq!(header(&response, "vary"), "Accept", "{path}");
            assert_eq!(header(&response, "access-control-allow-origin"), "*", "{path}");
            assert!(!response.headers().contains_key("x-evil") && !response.headers().contains_key("cache-control"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rewrite_rules_serve_other_content_of_the_site() {
    let gateway = gateway().await;
    let (host, root) = site(&gateway, &SITE).await;
    for (path, target, content_type, body) in [
        ("/spa/a/b.js", "index.html", "text/html", "<p>home"),
        ("/styled", "style.css", "text/css; charset=utf-8", "p { color: red }"),
        ("/area", "sub/index.html", "text/html", "<p>sub"),
        ("/to-root", "index.html", "text/html", "<p>home"),
    ] {
        let response = get(&gateway, &host, path).await;
        assert_eq!(response.status(), 200, "{path}");
        let of = match target.strip_suffix("index.html") {
            // The entity tag of an index page is that of its directory.
            Some(directory) if path != "/spa/a/b.js" => directory,
            _ => target,
        };
        let tag_of = gateway.rpc_json(&format!("dag/resolve?arg=/ipfs/{root}/{of}")).await;
        let etag = format!("\"{}\"", tag_of["Cid"]["/"].as_str().unwrap());
        for (name, value) in [
            ("etag", etag.as_str()),
            ("content-type", content_type),
            ("cache-control", IMMUTABLE),
            ("accept-ranges", "bytes"),
            ("x-ipfs-path", &format!("/ipfs/{root}{path}")),
            ("location", ""),
        ] {
            assert_eq!(header(&response, name), value, "{name} of {path}");
        }
        assert!(header(&response, "x-ipfs-roots").starts_with(&root), "{path}");
        assert_eq!(response.text().await.unwrap(), body, "{path}");

        let known = ask(&gateway, Method::GET, &host, path, &[("if-none-match", &etag)]).await;
        assert_eq!((known.status().as_u16(), header(&known, "etag")), (304, etag.as_str()), "{path}");
        assert_eq!(header(&known, "cache-control"), IMMUTABLE);
        let changed = ask(&gateway, Method::GET, &host, path, &[("if-match", "\"x\"")]).await;
        assert_eq!(changed.status(), 412, "{path}");
        let part = ask(&gateway, Method::GET, &host, path, &[("range", "bytes=1-2")]).await;
        assert_eq!((part.status().as_u16(), part.text().await.unwrap().as_str()), (206, &body[1..3]), "{path}");
        let head = ask(&gateway, Method::HEAD, &host, path, &[]).await;
        assert_eq!(header(&head, "content-length"), body.len().to_string(), "{path}");
        // Again, with filled caches.
        assert_eq!(get(&gateway, &host, path).await.text().await.unwrap(), body, "{path}");
    }
    let text = get(&gateway, &host, "/spa/x").await.text().await.unwrap();
    assert_eq!(text, "<p>home", "under another path too");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_file_serves_custom_error_pages() {
    let gateway = gateway().await;
    let (host, root) = site(&gateway, &SITE).await;
    for (path, status, page) in
        [("/lost/x", 404, "404.html"), ("/gone/x/y", 410, "410.html"), ("/law/x", 451, "451.html")]
    {
        let resolved = gateway.rpc_json(&format!("dag/resolve?arg=/ipfs/{root}/{page}")).await;
        let etag = format!("\"{}\"", resolved["Cid"]["/"].as_str().unwrap());
        let body = gateway.content(&format!("/ipfs/{root}/{page}")).await;
        for (method, headers) in [
            (Method::GET, vec![]),
            (Method::HEAD, vec![]),
            // Conditions and ranges apply only to successful responses (RFC 9110, 13.2.1 and 14.2).
            (Method::GET, vec![("if-none-match", etag.as_str())]),
            (Method::GET, vec![("if-match", "\"x\"")]),
            (Method::GET, vec![("range", "bytes=0-1")]),
        ] {
            let response = ask(&gateway, method.clone(), &host, path, &headers).await;
            assert_eq!(response.status(), status, "{path} {headers:?}");
            for (name, value) in [
                ("etag", etag.as_str()),
                ("content-type", "text/html"),
                ("cache-control", IMMUTABLE),
                ("content-length", &body.len().to_string()),
                ("accept-ranges", ""),
                ("content-range", ""),
                ("x-ipfs-path", &format!("/ipfs/{root}{path}")),
            ] {
                assert_eq!(header(&response, name), value, "{name} of {path}");
            }
            let sent = response.bytes().await.unwrap();
            assert_eq!(sent, if method == Method::HEAD { "".into() } else { body.clone() }, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn existing_paths_take_precedence_over_rules() {
    let gateway = gateway().await;
    let (host, root) = site(&gateway, &SITE).await;
    for (path, status, body) in [("/found.txt", 200, "found"), ("/", 200, "<p>home"), ("/sub/", 200, "<p>sub")] {
        let response = get(&gateway, &host, path).await;
        assert_eq!((response.status().as_u16(), response.text().await.unwrap().as_str()), (status, body), "{path}");
    }
    let moved = get(&gateway, &host, "/sub").await;
    assert_eq!((moved.status().as_u16(), header(&moved, "location")), (301, "/sub/"));
    let rules = get(&gateway, &host, "/_redirects").await;
    assert_eq!(rules.text().await.unwrap(), RULES);
    for path in ["/nothing", "/dangling", "/dangling-page", "/lost"] {
        let response = get(&gateway, &host, path).await;
        assert_eq!((response.status().as_u16(), header(&response, "cache-control")), (404, "no-store"), "{path}");
        assert!(response.text().await.unwrap().contains("no link named"), "{path}");
    }
    // The rules do not apply to formats of blocks and archives, so a missing path is not found.
    for query in ["format=raw", "format=tar", "format=dag-json"] {
        assert_eq!(get(&gateway, &host, &format!("/one?{query}")).await.status(), 404, "{query}");
    }
    let raw = ask(&gateway, Method::GET, &host, "/one", &[("accept", "application/vnd.ipld.raw")]).await;
    assert_eq!(raw.status(), 404);
    // Clients that take anything, but name JSON first, get what browsers get.
    for accept in ["application/json, text/plain, */*", "application/vnd.ipld.dag-json, text/html;q=0.5"] {
        for (path, status) in [("/one", 301), ("/spa/x", 200), ("/gone/x", 410)] {
            let response = ask(&gateway, Method::GET, &host, path, &[("accept", accept)]).await;
            assert_eq!(response.status(), status, "{path} {accept}");
        }
    }
    let cached = ask(&gateway, Method::GET, &host, "/one", &[("cache-control", "only-if-cached")]).await;
    assert_eq!(cached.status(), 301, "its rules are here");
    let absent = ask(&gateway, Method::GET, &host, "/nothing", &[("cache-control", "only-if-cached")]).await;
    assert_eq!(absent.status(), 412);

    // The rules of a site without its own origin are ignored.
    for host in ["127.0.0.1", "localhost", "example.net"] {
        let response = get(&gateway, host, &format!("/ipfs/{root}/one")).await;
        assert_eq!(response.status(), 404, "{host}");
    }
    let (bare, _) = site(&gateway, &[("d/x", "x")]).await;
    assert_eq!(get(&gateway, &bare, "/y").await.status(), 404, "a site without rules");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_redirects_file_affects_only_missing_paths() {
    let gateway = gateway().await;
    let large = "#".repeat(64 * 1024 + 1);
    let full = format!("{}/y /found.txt", "\n".repeat(64 * 1024 - 13));
    for (rules, path, status, text) in [
        ("/x /y 301!", "/y", 500, "could not parse _redirects: line 1: "),
        ("/x /y\n/z /y 42", "/x", 500, "could not parse _redirects: line 2: "),
        ("nonsense", "/x", 500, "could not parse _redirects: line 1: "),
        (large.as_str(), "/x", 500, "could not parse _redirects: redirects file size cannot exceed 65536 bytes"),
        ("/x https://example.com 200", "/x", 500, "could not use _redirects: the rule for /x: "),
        ("/x https://example.com 200", "/y", 404, "no link named"),
        (&format!("/x {} 200", "/a".repeat(300)), "/x", 413, "segments"),
        (full.as_str(), "/y", 301, ""),
    ] {
        let (host, _) = site(&gateway, &[("d/_redirects", rules), ("d/found.txt", "found")]).await;
        let response = get(&gateway, &host, path).await;
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(header(&response, "cache-control"), if status == 301 { "" } else { "no-store" });
        let answer = response.text().await.unwrap();
        assert!(answer.contains(text) && (status != 500 || answer.starts_with(text)), "{answer}");
        let found = get(&gateway, &host, "/found.txt").await;
        assert_eq!((found.status().as_u16(), found.text().await.unwrap().as_str()), (200, "found"));
    }
    let (host, _) = site(&gateway, &[("d/_redirects/x", "x")]).await;
    let response = get(&gateway, &host, "/y").await;
    assert_eq!((response.status().as_u16(), response.text().await.unwrap().contains("not a file")), (500, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_are_not_applied_if_a_block_is_missing() {
    let gateway = gateway().await;
    let rules = gateway.add("cid-version=1", "/* /index.html 200").await;
    let index = gateway.add("cid-version=1", "<p>home").await;
    let absent = gateway.add("cid-version=1&only-hash=true", "absent").await;
    let root = directory(&gateway, &[("_redirects", &rules), ("index.html", &index), ("page", &absent)]).await;
    let host = format!("{root}.ipfs.example.com");
    assert_eq!(get(&gateway, &host, "/page").await.status(), 404, "the path exists");
    assert_eq!(get(&gateway, &host, "/other").await.text().await.unwrap(), "<p>home");
    // The `_redirects` entry exists, but its block is missing.
    let rules = gateway.add("cid-version=1&only-hash=true", "/* /absent 200").await;
    let root = directory(&gateway, &[("_redirects", &rules), ("index.html", &index)]).await;
    let response = get(&gateway, &format!("{root}.ipfs.example.com"), "/other").await;
    assert_eq!(response.status(), 500);
    assert!(response.text().await.unwrap().starts_with("could not read _redirects: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn dnslink_site_uses_rules_of_its_linked_directory() {
    let first = TestGateway::start().await;
    let root = first.add_tree("cid-version=1", &SITE.map(|(path, content)| (path, content))).await;
    let files = SITE.map(|(path, content)| (path.replacen("d/", "d/below/", 1), content));
    let files: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), *content)).collect();
    let deep = first.add_tree("cid-version=1", &files).await;
    let gateway = TestGateway::start_on(first.stop().await, |config| {
        config.server.port = 0;
        let with = HostConfig { subdomains: true, inline_dnslink: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), with);
        config.gateway.dnslink.insert("site.example.org".into(), format!("/ipfs/{root}"));
        config.gateway.dnslink.insert("deep.example.org".into(), format!("/ipfs/{deep}/below"));
    })
    .await;
    for (host, name) in [
        ("site.example.org", "site.example.org"),
        ("deep.example.org", "deep.example.org"),
        ("site-example-org.ipns.example.com", "site.example.org"),
        ("deep-example-org.ipns.example.com", "deep.example.org"),
    ] {
        let moved = get(&gateway, host, "/one").await;
        assert_eq!((moved.status().as_u16(), header(&moved, "location")), (301, "/found.txt"), "{host}");
        for (path, status, body) in [("/spa/x", 200, "<p>home"), ("/lost/x", 404, "<p>lost")] {
            let response = get(&gateway, host, path).await;
            assert_eq!(response.status(), status, "{host}{path}");
            let cached = header(&response, "cache-control");
            assert!(!cached.contains("immutable"), "the target of a name may change: {cached}");
            assert_eq!(header(&response, "x-ipfs-path"), format!("/ipns/{name}{path}"), "{host}{path}");
            let etag = header(&response, "etag").to_owned();
            assert_eq!(response.text().await.unwrap(), body, "{host}{path}");
            let known = ask(&gateway, Method::GET, host, path, &[("if-none-match", &etag)]).await;
            assert_eq!(known.status(), if status == 200 { 304 } else { 404 }, "{host}{path}");
        }
    }
    assert_eq!(get(&gateway, "127.0.0.1", "/ipns/site.example.org/one").await.status(), 404, "no origin of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_rules_never_serve_blocked_content() {
    let first = TestGateway::start().await;
    let rules = "/a /by-id 200\n/b /by-id 404\n/c /by-name 200\n/d /by-name 410\n/e /free 200";
    let files = [("d/_redirects", rules), ("d/by-id", "1"), ("d/by-name", "2"), ("d/free", "3")];
    let root = first.add_tree("cid-version=1", &files).await;
    let repo = first.stop().await;
    let list = format!("/ipfs/{root}/by-id\n/ipns/site.example.org/by-name gateway_status=451\n");
    std::fs::write(repo.path().join("0.deny"), list).unwrap();
    let gateway = TestGateway::start_on(repo, |config| {
        config.gateway.denylists = vec!["0.deny".into()];
        config.gateway.hosts.insert("example.com".into(), HostConfig { subdomains: true, ..HostConfig::default() });
        config.gateway.dnslink.insert("site.example.org".into(), format!("/ipfs/{root}"));
    })
    .await;
    for (host, by_name, page) in [(format!("{root}.ipfs.example.com"), 200, 410), ("site.example.org".into(), 451, 451)]
    {
        for (path, status) in [("/a", 410), ("/b", 410), ("/c", by_name), ("/d", page), ("/e", 200), ("/f", 404)] {
            assert_eq!(get(&gateway, &host, path).await.status(), status, "{host}{path}");
        }
    }
}
