//! The subdomain gateway (<https://specs.ipfs.tech/http-gateways/subdomain-gateway/>): each root has its own origin.

use ipfrs_core::{Base, Cid, cid_to_string, codec, parse_cid};
use ipfrs_http::HostConfig;
use reqwest::{Method, Response};

use crate::content_ids::{HELLO, KEY, KEY_AS_PEER, LONG};
use crate::harness::{TestGateway, header};
use crate::wire::Wire;

/// Returns a gateway with subdomains at `example.com`, and without them at `paths.example`.
async fn gateway() -> TestGateway {
    TestGateway::start_with(|config| {
        let subdomains = HostConfig { subdomains: true, inline_dnslink: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), subdomains.clone());
        config.gateway.hosts.insert("*.wild.example".into(), HostConfig { inline_dnslink: false, ..subdomains });
        config.gateway.hosts.insert("paths.example".into(), HostConfig::default());
        config.gateway.dnslink.insert("my.v-long.example.org".into(), format!("/ipfs/{HELLO}"));
        config.gateway.trusted_proxies = vec!["127.0.0.0/8".to_owned().try_into().unwrap()];
    })
    .await
}

async fn ask(gateway: &TestGateway, host: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.request(Method::GET, path).header("host", host);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

/// Adds a directory with subdirectories that have the names of the namespaces.
async fn sneaky_directory(gateway: &TestGateway) -> String {
    let files =
        [("d/ipfs/file.txt", "a file"), ("d/ipfs/ipns/bar", "bar"), ("d/api/v0/version", "content"), ("d/ü/f", "x")];
    gateway.add_tree("cid-version=1", &files).await
}

#[tokio::test]
async fn paths_redirect_to_subdomain_origins() {
    let gateway = gateway().await;
    let v0 = gateway.add("cid-version=0", "hello").await;
    let v1 = cid_to_string(&parse_cid(&v0).unwrap(), Base::Base32Lower).unwrap();
    for (host, path, proto, expected) in [
        ("example.com", format!("/ipfs/{HELLO}"), "", format!("http://{HELLO}.ipfs.example.com/")),
        ("Example.COM.:8080", format!("/ipfs/{HELLO}/"), "", format!("http://{HELLO}.ipfs.example.com:8080/")),
        ("example.com", format!("/ipfs/{v0}/a?b=c"), "", format!("http://{v1}.ipfs.example.com/a?b=c")),
        (
            "example.com",
            format!("/ipfs/{HELLO}/P%252C+España=I%20b%c3%a9"),
            "",
            format!("http://{HELLO}.ipfs.example.com/P%252C+Espa%C3%B1a=I%20b%C3%A9"),
        ),
        ("example.com", format!("/ipfs/{HELLO}"), "https", format!("https://{HELLO}.ipfs.example.com/")),
        ("example.com", format!("/ipfs/{HELLO}"), "http", format!("http://{HELLO}.ipfs.example.com/")),
        ("one.wild.example", format!("/ipfs/{HELLO}"), "", format!("http://{HELLO}.ipfs.one.wild.example/")),
        // Every form of a key redirects to its canonical name.
        ("example.com", format!("/ipns/{KEY}/x"), "", format!("http://{KEY}.ipns.example.com/x")),
        ("example.com", format!("/ipns/{KEY_AS_PEER}"), "", format!("http://{KEY}.ipns.example.com/")),
        // Domains become one label if the operator has enabled that, and for HTTPS.
        (
            "example.com",
            "/ipns/my.v-long.example.org/x/".into(),
            "",
            "http://my-v--long-example-org.ipns.example.com/x/".into(),
        ),
        (
            "example.com",
            "/ipns/my-v--long-example-org".into(),
            "",
            "http://my-v--long-example-org.ipns.example.com/".into(),
        ),
        (
            "a.wild.example",
            "/ipns/my.v-long.example.org".into(),
            "",
            "http://my.v-long.example.org.ipns.a.wild.example/".into(),
        ),
        (
            "a.wild.example",
            "/ipns/my.v-long.example.org".into(),
            "https",
            "https://my-v--long-example-org.ipns.a.wild.example/".into(),
        ),
        // A domain without a DNSLink is not converted.
        ("example.com", "/ipns/unknown.localhost/".into(), "", "http://unknown.localhost.ipns.example.com/".into()),
    ] {
        let headers: &[_] = if proto.is_empty() { &[] } else { &[("x-forwarded-proto", proto)] };
        let response = ask(&gateway, host, &path, headers).await;
        assert_eq!(
            (response.status().as_u16(), header(&response, "location")),
            (301, expected.as_str()),
            "{host}{path}"
        );
        assert_eq!(header(&response, "access-control-allow-origin"), "*", "a page that may read may follow");
    }
}

#[tokio::test]
async fn roots_in_host_names_have_one_form() {
    let gateway = gateway().await;
    let (hello, key) = (parse_cid(HELLO).unwrap(), parse_cid(KEY).unwrap());
    let key_as = |codec, base| cid_to_string(&Cid::new_v1(codec, *key.hash()), base).unwrap();
    for (id, expected) in [
        (format!("{}.ipfs", cid_to_string(&hello, Base::Base58Btc).unwrap()), format!("{HELLO}.ipfs")),
        (format!("{KEY_AS_PEER}.ipns"), format!("{KEY}.ipns")),
        (format!("{}.ipns", key_as(codec::LIBP2P_KEY, Base::Base58Btc)), format!("{KEY}.ipns")),
        (format!("{}.ipns", key_as(codec::DAG_PB, Base::Base36Lower)), format!("{KEY}.ipns")),
    ] {
        let response = ask(&gateway, &format!("{id}.example.com"), "/a/?b", &[]).await;
        let expected = format!("http://{expected}.example.com/a/?b");
        assert_eq!((response.status().as_u16(), header(&response, "location")), (301, expected.as_str()), "{id}");
        let asked = gateway.request(Method::OPTIONS, "/").header("host", format!("{id}.example.com"));
        assert_eq!(asked.send().await.unwrap().status(), 204, "{id}: browsers follow no redirect before they ask");
    }
    // Browsers send hosts in lower case. Other clients may use upper case with the same meaning.
    let upper = format!("{}.ipfs.EXAMPLE.com", HELLO.to_ascii_uppercase());
    assert_eq!(ask(&gateway, &upper, "/", &[]).await.text().await.unwrap(), "hello\n");
}

#[tokio::test]
async fn an_origin_serves_its_root_and_nothing_else() {
    let gateway = gateway().await;
    let directory = sneaky_directory(&gateway).await;
    let host = format!("{directory}.ipfs.example.com");
    for (path, expected) in [("/ipfs/file.txt", "a file"), ("/ipfs/ipns/bar", "bar"), ("/api/v0/version", "content")] {
        let response = ask(&gateway, &host, path, &[]).await;
        assert_eq!(header(&response, "x-ipfs-path"), format!("/ipfs/{directory}{path}"));
        assert_eq!(header(&response, "cache-control"), "public, max-age=29030400, immutable");
        assert_eq!(response.text().await.unwrap(), expected, "{path}");
    }
    for path in [&*format!("/ipfs/{HELLO}"), &*format!("/ipns/{KEY}"), "/health", "/metrics", "/v1/progress"] {
        assert_eq!(ask(&gateway, &host, path, &[]).await.status(), 404, "{path}");
    }
    let rpc = gateway.request(Method::POST, "/api/v0/version").header("host", &host).send().await.unwrap();
    assert_eq!((rpc.status().as_u16(), header(&rpc, "allow")), (405, "GET, HEAD, OPTIONS"));
    // A response to a request by path is not used for the same path on a subdomain, and vice versa.
    assert_eq!(gateway.content(&format!("/ipfs/{HELLO}")).await, "hello\n");
    assert_eq!(ask(&gateway, &host, &format!("/ipfs/{HELLO}"), &[]).await.status(), 404);
    assert_eq!(ask(&gateway, "example.com", &format!("/ipfs/{HELLO}"), &[]).await.status(), 301);
}

#[tokio::test]
async fn subdomain_pages_and_redirects_use_host_paths() {
    let gateway = gateway().await;
    let directory = sneaky_directory(&gateway).await;
    let host = format!("{directory}.ipfs.example.com:81");
    for (path, expected) in [("/%c3%bc?a=b", "/%C3%BC/?a=b"), ("/ipfs/ipns", "/ipfs/ipns/")] {
        let response = ask(&gateway, &host, path, &[]).await;
        assert_eq!((response.status().as_u16(), header(&response, "location")), (301, expected), "{path}");
    }
    let page = ask(&gateway, &host, "/ipfs/ipns/", &[("accept", "text/html")]).await.text().await.unwrap();
    for link in [
        "href=\"/ipfs/ipns/bar\"".to_owned(),
        "href=\"/ipfs/ipns/..\"".to_owned(),
        format!("href=\"//example.com:81/ipfs/{directory}\""),
        format!("href=\"//example.com:81/ipfs/{directory}/ipfs/ipns\""),
        "href=\"//example.com:81/ipfs/bafk".to_owned(),
    ] {
        assert!(page.contains(&link), "{link} in {page}");
    }
    let root = ask(&gateway, &host, "/", &[("accept", "text/html")]).await.text().await.unwrap();
    assert!(root.contains("href=\"/ipfs\"") && !root.contains("href=\"/..\""), "{root}");
    let node = format!(r#"{{"link":{{"/":"{directory}"}}}}"#);
    let node = gateway.put_block("cid-codec=dag-json", node).await;
    let page = ask(&gateway, &format!("{node}.ipfs.example.com:81"), "/", &[("accept", "text/html")]).await;
    let (page, link) = (page.text().await.unwrap(), format!("href=\"//example.com:81/ipfs/{directory}\""));
    assert!(page.contains(&link), "{page}");
    let raw = ask(&gateway, &host, "/ipfs/file.txt?x=y", &[("accept", "application/vnd.ipld.raw")]).await;
    assert_eq!(header(&raw, "content-location"), "/ipfs/file.txt?x=y&format=raw");
}

#[tokio::test]
async fn subdomain_directory_cannot_redirect_to_other_host() {
    let gateway = gateway().await;
    let directory = gateway.add_tree("cid-version=1", &[("d/evil.example/f", "x"), ("d/\\evil.example/f", "x")]).await;
    for (path, expected) in [("//evil.example", "/evil.example/"), ("/%5Cevil.example", "/%5Cevil.example/")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {directory}.ipfs.example.com\r\nConnection: close\r\n\r\n");
        let mut wire = Wire::connect(&gateway).await;
        wire.send(request).await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("location")), (301, expected), "{path}");
    }
}

#[tokio::test]
async fn invalid_subdomain_roots_are_refused() {
    let gateway = gateway().await;
    for (host, path, status, text) in [
        ("example.com".to_owned(), "/ipfs/QmInvalidCID".to_owned(), 400, "invalid path \"/ipfs/QmInvalidCID\""),
        ("example.com".into(), format!("/ipfs/{LONG}"), 400, "CID incompatible with DNS label length limit of 63"),
        (format!("{LONG}.ipfs.example.com"), "/".into(), 400, "CID incompatible with DNS label length limit of 63"),
        ("bafynope.ipfs.example.com".into(), "/".into(), 400, "invalid path \"/ipfs/bafynope/\""),
        (format!("{LONG}.ipns.example.com"), "/".into(), 400, "invalid IPNS name"),
        (format!("{HELLO}.ipld.example.com"), "/".into(), 404, "not served"),
        (format!("{HELLO}.ipfs.paths.example"), "/".into(), 404, "not served"),
        (format!("a.b.{HELLO}.ipfs.wild.example"), "/".into(), 404, ""),
        ("example.com".into(), "/ipfs/".into(), 400, "invalid path \"/ipfs/\""),
        ("example.com".into(), "/ipns/evil.example%23/x".into(), 400, "invalid path"),
        ("example.com".into(), "/ipns/no-link/x".into(), 400, "a domain name must contain a dot"),
        ("example.com".into(), "/ipfs/?uri=https%3A%2F%2Fevil.example".into(), 400, "expected ipfs://"),
    ] {
        let response = ask(&gateway, &host, &path, &[]).await;
        let (got, body) = (response.status(), response.text().await.unwrap());
        assert_eq!(got, status, "{host}{path}: {body}");
        assert!(body.contains(text), "{host}{path}: {body}");
    }
}

#[tokio::test]
async fn protocol_handler_uris_redirect_to_content() {
    let gateway = gateway().await;
    for host in ["example.com", "127.0.0.1", "paths.example"] {
        for (path, expected) in [
            ("/ipfs/?uri=ipfs%3A%2F%2FQmX%2Fwiki%2FD%C3%A9.html%3Fa", "/ipfs/QmX/wiki/D%C3%A9.html?a"),
            ("/ipns/?uri=ipns://en.wikipedia-on-ipfs.org", "/ipns/en.wikipedia-on-ipfs.org"),
            ("/ipfs?uri=ipfs://x", "/ipfs/x"),
            ("/ipfs/ipfs/x?y", "/ipfs/x?y"),
        ] {
            let response = ask(&gateway, host, path, &[]).await;
            assert_eq!((response.status().as_u16(), header(&response, "location")), (301, expected), "{host}{path}");
        }
    }
    let directory = sneaky_directory(&gateway).await;
    let content = ask(&gateway, &format!("{directory}.ipfs.example.com"), "/ipfs/file.txt?uri=ipfs://x", &[]).await;
    assert_eq!(content.text().await.unwrap(), "a file");
}

#[tokio::test]
async fn redirect_rules_apply_only_on_the_site_origin() {
    let gateway = gateway().await;
    let rules = [("d/_redirects", "/* /index.html 200"), ("d/index.html", "<p>home"), ("d/f.txt", "file")];
    let directory = gateway.add_tree("cid-version=1", &rules).await;
    let host = format!("{directory}.ipfs.example.com");
    for _ in 0..3 {
        // Both hosts may share a cached response if it is the same for both.
        for (host, path) in [(&*host, "/f.txt".to_owned()), ("127.0.0.1", format!("/ipfs/{directory}/f.txt"))] {
            let response = ask(&gateway, host, &path, &[]).await;
            assert_eq!(header(&response, "x-ipfs-path"), format!("/ipfs/{directory}/f.txt"));
            assert_eq!(response.text().await.unwrap(), "file", "{host}");
        }
        assert_eq!(ask(&gateway, &host, "/none", &[]).await.text().await.unwrap(), "<p>home");
        assert_eq!(ask(&gateway, "127.0.0.1", &format!("/ipfs/{directory}/none"), &[]).await.status(), 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_connection_or_a_proxy_knows_that_a_client_uses_https() {
    let gateway = TestGateway::start_with(|config| {
        let host = HostConfig { subdomains: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".to_owned(), host);
    })
    .await;
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET https://example.com/ipfs/{HELLO} HTTP/1.1\r\nHost: example.com\r\n\r\n")).await;
    assert_eq!(wire.answer().await.header("location"), format!("http://{HELLO}.ipfs.example.com/"));
}
