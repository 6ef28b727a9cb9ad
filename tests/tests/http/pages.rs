//! HTML pages of the daemon: when they are served, and their permissions. `tests/browser` tests them in a browser.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ipfrs_core::hash;
use ipfrs_http::HostConfig;
use reqwest::{Method, Response};

use crate::harness::{TestGateway, client, hash_of, header};
use crate::multipart::Form;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn browse(gateway: &TestGateway, method: Method, path: &str) -> Response {
    gateway.request(method, path).header("accept", BROWSER).send().await.unwrap()
}

/// Returns the texts of the elements `name` of a page.
fn elements<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    page.split(&open).skip(1).map(|rest| rest.split(&close).next().unwrap()).collect()
}

/// Checks that a page may run and display only its own content.
fn check_policy(policy: &str, page: &str) {
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'self'"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"), "{policy}");
    for name in ["style", "script"] {
        let found = elements(page, name);
        assert_eq!(page.matches(&format!("<{name}")).count(), 1, "{name}");
        let hash = BASE64_STANDARD.encode(hash::sha2_256(found[0].as_bytes()).digest());
        assert!(policy.contains(&format!("{name}-src 'sha256-{hash}'")), "{name}: {policy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_is_html_for_browsers_and_text_otherwise() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/<b>/x", "x")]).await;
    for (path, status, reason, up) in [
        (format!("/ipfs/{root}/%3Cb%3E/%3Ci%3E"), 404, "no link named", Some(format!("/ipfs/{root}/%3Cb%3E/"))),
        ("/ipfs/bafybeie5gq4jxvzmsym6hjlwxej4rwdoxt7wadqvmmwbqi7r27fclha2va".to_owned(), 404, "is not in", None),
        ("/ipfs/not-a-cid".to_owned(), 400, "not-a-cid", None),
        (format!("/ipfs/{root}/%3Cb%3E/x?format=dag-json"), 406, "dag-json", Some(format!("/ipfs/{root}/%3Cb%3E/"))),
        ("/nowhere/at/all".to_owned(), 404, "no route", None),
        ("/?open=nothing".to_owned(), 400, "nothing", None),
    ] {
        let text = gateway.get(&path).await;
        assert_eq!(text.status(), status, "{path}");
        assert_eq!(header(&text, "content-type"), "text/plain; charset=utf-8", "{path}");
        assert!(header(&text, "vary").starts_with("Accept"), "{path}");
        let text = text.text().await.unwrap();
        assert!(text.contains(reason), "{path}: {text}");

        let head = browse(&gateway, Method::HEAD, &path).await;
        let page = browse(&gateway, Method::GET, &path).await;
        for answer in [&head, &page] {
            assert_eq!(answer.status(), status, "{path}");
            assert_eq!(header(answer, "content-type"), "text/html; charset=utf-8", "{path}");
            assert_eq!(header(answer, "cache-control"), "no-store", "{path}");
            assert_eq!(header(answer, "x-content-type-options"), "nosniff", "{path}");
            assert!(header(answer, "vary").starts_with("Accept"), "{path}");
        }
        assert!(head.bytes().await.unwrap().is_empty(), "{path}");
        let (policy, id) =
            (header(&page, "content-security-policy").to_owned(), header(&page, "x-request-id").to_owned());
        let page = page.text().await.unwrap();
        check_policy(&policy, &page);
        assert!(page.contains(&id) && page.contains(&format!(">{status}</p>")), "{page}");
        assert!(page.contains(reason) && !page.contains("<i>") && !page.contains("<b>"), "{page}");
        let shown = up.as_ref().is_none_or(|up| page.contains(&format!("href=\"{up}\"")));
        assert!(shown && page.contains("Up to the parent") == up.is_some(), "{page}");
    }
}

/// Checks the headers that every page of the daemon has. Returns whether the response is a page.
fn check_headers(response: &Response, referrer: &str) -> bool {
    if !header(response, "content-type").starts_with("text/html") {
        return false;
    }
    let url = response.url();
    assert_eq!(header(response, "x-content-type-options"), "nosniff", "{url}");
    assert_eq!(header(response, "referrer-policy"), referrer, "{url}");
    let policy = header(response, "content-security-policy");
    for directive in ["default-src 'none'", "base-uri 'none'", "frame-ancestors "] {
        assert!(policy.contains(directive), "{url}: {policy}");
    }
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_has_the_security_headers() {
    let gateway = TestGateway::start_with(|config| {
        (config.api.enabled, config.api.port) = (true, Some(0));
        config.dns.enabled = false;
        let subdomains = HostConfig { subdomains: true, ..Default::default() };
        config.gateway.hosts.insert("example.com".into(), subdomains);
    })
    .await;
    let root = gateway.add_tree("cid-version=1", &[("d/a/x", "x"), ("d/b.txt", "y")]).await;
    let node = gateway.put_block("cid-codec=dag-cbor", &b"\xa1\x61a\x01"[..]).await;
    for (host, path) in [
        ("127.0.0.1", "/".to_owned()),
        ("127.0.0.1", "/nowhere".to_owned()),
        ("127.0.0.1", "/?open=nothing".to_owned()),
        ("127.0.0.1", format!("/ipfs/{root}/")),
        ("127.0.0.1", format!("/ipfs/{root}/missing")),
        ("127.0.0.1", format!("/ipfs/{node}/")),
        ("127.0.0.1", "/ipfs/not-a-cid".to_owned()),
        ("127.0.0.1", "/ipns/not-a-name".to_owned()),
        ("example.com", "/ipfs/not-a-cid".to_owned()),
        (&*format!("{root}.ipfs.example.com"), "/".to_owned()),
        (&*format!("{root}.ipfs.example.com"), "/a/missing".to_owned()),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let request = gateway.request(method, &path).header("host", host).header("accept", BROWSER);
            let response = request.send().await.unwrap();
            assert!(check_headers(&response, "same-origin"), "{host} {path}: {response:?}");
        }
    }
    let api = format!("http://{}", gateway.gateway.api_addresses()[0]);
    let client = client().build().unwrap();
    for path in ["/ui/", "/ui/graphql", "/docs/"] {
        let response = client.get(format!("{api}{path}")).header("accept", BROWSER).send().await.unwrap();
        assert!(check_headers(&response, "no-referrer"), "{path}: {response:?}");
        assert_eq!(header(&response, "x-frame-options"), "DENY", "{path}");
    }
    // Whatever else is HTML, on both listeners: redirects, and errors of every route.
    let description: serde_json::Value = gateway.get("/openapi.json").await.json().await.unwrap();
    let described = description["paths"].as_object().unwrap();
    let readable = described.iter().filter(|(_, operations)| operations["get"].is_object());
    let filled = readable.map(|(path, _)| path.replace(['{', '}'], ""));
    let paths: Vec<String> = filled.chain([format!("/ipfs/{root}"), "/webui".to_owned()]).collect();
    assert!(paths.len() > 10, "{paths:?}");
    for path in paths {
        for base in [gateway.url(""), api.clone()] {
            let response = client.get(format!("{base}{path}")).header("accept", BROWSER).send().await.unwrap();
            let is_for_operators = ["/ui", "/docs"].iter().any(|page| path.starts_with(page));
            check_headers(&response, if is_for_operators { "no-referrer" } else { "same-origin" });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn api_errors_are_the_same_for_browsers() {
    let gateway = TestGateway::start().await;
    for (method, path, status, content_type) in [
        (Method::POST, "/api/v0/cat?arg=nothing", 500, "application/json"),
        (Method::POST, "/api/v0/nothing", 404, "text/plain; charset=utf-8"),
        (Method::GET, "/api/v0/cat", 405, "text/plain; charset=utf-8"),
        (Method::GET, "/v1/nothing", 404, "application/problem+json"),
        (Method::GET, "/v1/progress/nothing", 404, "application/problem+json"),
    ] {
        let response = browse(&gateway, method, path).await;
        assert_eq!((response.status().as_u16(), header(&response, "content-type")), (status, content_type), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn welcome_page_opens_the_typed_address() {
    let gateway = TestGateway::start().await;
    let text = gateway.get("/").await;
    assert_eq!(header(&text, "content-type"), "text/plain; charset=utf-8");
    assert!(text.text().await.unwrap().contains("/ipfs/{cid}"));
    let page = browse(&gateway, Method::GET, "/").await;
    let policy = header(&page, "content-security-policy").to_owned();
    assert!(!policy.contains("form-action"), "browsers hold redirects to subdomains against it, too: {policy}");
    assert!(header(&page, "vary").starts_with("Accept"));
    let page = page.text().await.unwrap();
    check_policy(&policy, &page);
    assert!(page.contains("<form action=\"/\" method=\"get\"") && page.contains(env!("CARGO_PKG_VERSION")), "{page}");
    for (typed, location) in [
        ("bafkqabtimvwgy3yk", "/ipfs/bafkqabtimvwgy3yk"),
        ("ipfs%3A%2F%2Fbafkqabtimvwgy3yk%2Fa+b", "/ipfs/bafkqabtimvwgy3yk/a%20b"),
        ("docs.ipfs.tech", "/ipns/docs.ipfs.tech"),
    ] {
        let response = browse(&gateway, Method::GET, &format!("/?open={typed}")).await;
        assert_eq!((response.status().as_u16(), header(&response, "location")), (303, location), "{typed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn root_leads_to_the_configured_path() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.root_redirect = Some("/ipns/docs.ipfs.tech".to_owned());
        config.gateway.hosts.insert("ipfs.example".into(), HostConfig::default());
    })
    .await;
    let at_host = gateway.request(Method::GET, "/").header("host", "ipfs.example").send().await.unwrap();
    for response in [gateway.get("/").await, browse(&gateway, Method::HEAD, "/").await, at_host] {
        assert_eq!((response.status().as_u16(), header(&response, "location")), (302, "/ipns/docs.ipfs.tech"));
        assert_eq!(header(&response, "cache-control"), "no-store");
    }
    let typed = gateway.get("/?open=bafkqabtimvwgy3yk").await;
    assert_eq!((typed.status().as_u16(), header(&typed, "location")), (303, "/ipfs/bafkqabtimvwgy3yk"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_runs_nothing_but_its_own_script() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/<script>alert(1)<script>", "x"), ("d/<style>", "y")]).await;
    let response = gateway.get(&format!("/ipfs/{root}/")).await;
    let policy = header(&response, "content-security-policy").to_owned();
    assert!(policy.contains("form-action 'none'"), "{policy}");
    check_policy(&policy, &response.text().await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn listing_page_shows_entry_count_and_size() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a/x", "x"), ("d/b.jpg", &"y".repeat(1536)), ("d/c.txt", "z")]).await;
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
    for expected in [
        "<td role=\"cell\" class=\"name folder\"><a href=\"/ipfs/",
        "class=\"name image\"",
        "class=\"name text\"",
        "class=\"size\" data-bytes=\"1536\">1.5 KiB</td>",
        "<span>3 entries</span>",
        "1 directory, 2 files (1.5 KiB)",
        "href=\"?format=tar\"",
        "href=\"?format=car\"",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    assert!(!page.contains(">..</a>"), "a root is in no directory");
    let empty = gateway.put_block("cid-codec=dag-pb", &b"\x0a\x02\x08\x01"[..]).await;
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{empty}/")).await.to_vec()).unwrap();
    assert!(page.contains("This directory is empty"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_listing_inspects_a_bounded_number_of_entries() {
    let gateway = TestGateway::start().await;
    let form = (0..3_000).fold(Form::new(), |form, i| form.file(format!("d/{i}/x"), "x"));
    let root = hash_of(gateway.add_form("max-directory-links=100", form).await.last().unwrap());
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
    assert_eq!(page.matches("class=\"name folder\"").count(), 2_048);
    assert_eq!(page.matches("class=\"name file\"").count(), 3_000 - 2_048, "as what their names say");
    assert!(page.contains("3,000 entries"), "{}", &page[page.len() - 500..]);
}
