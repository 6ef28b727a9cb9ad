//! Content by name: `/ipns/{key}` and `/ipns/{domain}`.

use reqwest::{Method, Response};

use crate::harness::{TestGateway, header};

async fn get(gateway: &TestGateway, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.request(Method::GET, path);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

/// Returns a gateway whose own key leads to `d` in a tree, as does `site.example` by DNSLink, the name of the key,
/// and the content ID of the root of the tree.
async fn gateway() -> (TestGateway, String, String) {
    let first = TestGateway::start().await;
    let files = [("r/d/a%20b/f.txt", "hello"), ("r/d/index.html", "<p>home"), ("r/d/list/x", "x")];
    let root = first.add_tree("cid-version=1", &files).await;
    let published = first.rpc_json(&format!("name/publish?arg=/ipfs/{root}/d&ttl=90s")).await;
    let name = published["Name"].as_str().unwrap().to_owned();
    let gateway = TestGateway::start_on(first.stop().await, |config| {
        config.gateway.dnslink.insert("site.example".into(), format!("/ipfs/{root}/d"));
        config.gateway.dnslink.insert("chain.example".into(), format!("/ipns/{name}/a%20b"));
        config.dns.enabled = false;
    })
    .await;
    (gateway, name, root)
}

#[tokio::test]
async fn ipns_path_serves_every_format() {
    let (gateway, name, root) = gateway().await;
    for start in [format!("/ipns/{name}"), "/ipns/site.example".into(), "/ipns/Site.Example".into()] {
        for (below, accept) in [
            ("/a%2520b/f.txt", ""),
            ("/a%2520b/f.txt", "application/vnd.ipld.raw"),
            ("/a%2520b/f.txt", "application/vnd.ipld.car"),
            ("/a%2520b/f.txt", "application/x-tar"),
            ("/list/x?format=raw", ""),
            ("/", ""),
            ("/?format=car&dag-scope=entity", ""),
        ] {
            let headers: &[_] = if accept.is_empty() { &[] } else { &[("accept", accept)] };
            let by_name = get(&gateway, &format!("{start}{below}"), headers).await;
            let by_id = get(&gateway, &format!("/ipfs/{root}/d{below}"), headers).await;
            assert_eq!(by_name.status(), 200, "{start}{below} {accept}");
            for same in ["etag", "content-type", "x-ipfs-roots", "accept-ranges", "content-disposition"] {
                assert_eq!(header(&by_name, same), header(&by_id, same), "{start}{below} {accept}: {same}");
            }
            let path = below.split('?').next().unwrap();
            assert_eq!(header(&by_name, "x-ipfs-path"), format!("{start}{path}").replace("%25", "%"));
            assert_eq!(by_name.bytes().await.unwrap(), by_id.bytes().await.unwrap(), "{start}{below} {accept}");
        }
    }
    let part = get(&gateway, "/ipns/site.example/a%2520b/f.txt", &[("range", "bytes=1-2")]).await;
    assert_eq!((part.status().as_u16(), part.text().await.unwrap().as_str()), (206, "el"));
    // A DNSLink value is not a URL and is not percent-decoded.
    assert_eq!(gateway.content("/ipns/chain.example/f.txt").await, "hello");
}

#[tokio::test]
async fn ipns_response_max_age_follows_the_record() {
    let (gateway, name, _) = gateway().await;
    for _ in 0..3 {
        let file = get(&gateway, &format!("/ipns/{name}/a%2520b/f.txt"), &[]).await;
        assert_eq!(header(&file, "cache-control"), "public, max-age=90", "also where it would be ready to send");
        let page = get(&gateway, &format!("/ipns/{name}/list/"), &[("accept", "text/html")]).await;
        assert_eq!(header(&page, "cache-control"), "public, max-age=90, stale-while-revalidate=2678400");
        let moved = get(&gateway, &format!("/ipns/{name}/list"), &[]).await;
        assert_eq!((moved.status().as_u16(), header(&moved, "cache-control")), (301, "public, max-age=90"));
    }
    let etag = header(&get(&gateway, &format!("/ipns/{name}/"), &[]).await, "etag").to_owned();
    let again = get(&gateway, &format!("/ipns/{name}/"), &[("if-none-match", &etag)]).await;
    assert_eq!((again.status().as_u16(), header(&again, "cache-control")), (304, "public, max-age=90"));
}

#[tokio::test]
async fn changed_ipns_name_serves_the_new_content() {
    let (gateway, name, root) = gateway().await;
    let path = format!("/ipns/{name}/x");
    assert_eq!(get(&gateway, &path, &[]).await.status(), 404);
    gateway.rpc_json(&format!("name/publish?arg=/ipfs/{root}/d/list")).await;
    for _ in 0..2 {
        assert_eq!(gateway.content(&path).await, "x");
    }
    let other = gateway.add_tree("cid-version=1", &[("d/x", "y")]).await;
    gateway.rpc_json(&format!("name/publish?arg=/ipfs/{other}")).await;
    assert_eq!(gateway.content(&path).await, "y");
}

#[tokio::test]
async fn ipns_key_names_redirect_to_canonical_form() {
    let (gateway, name, _) = gateway().await;
    let (peer, key) = (
        "12D3KooWRBy97UB99e3J6hiPesre1MZeuNQvfan4gBziswrRJsNK",
        "k51qzi5uqu5dlvj2baxnqndepeb86cbk3ng7n3i46uzyxzyqj2xjonzllnv0v8",
    );
    let rsa =
        ("QmcJM7PRfkSbcM5cf1QugM5R37TLRKyJGgBEhXjLTB8uA2", "k2k4r8ol4m8kkcqz509c1rcjwunebj02gcnm5excpx842u736nja8ger");
    for (path, expected) in [
        (format!("/ipns/{peer}/root2/"), format!("/ipns/{key}/root2/")),
        (format!("/ipns/{}/%c3%bc?a=b", rsa.0), format!("/ipns/{}/%C3%BC?a=b", rsa.1)),
        (format!("/ipns/{}", rsa.0), format!("/ipns/{}", rsa.1)),
    ] {
        let response = get(&gateway, &path, &[]).await;
        assert_eq!((response.status().as_u16(), header(&response, "location")), (302, expected.as_str()), "{path}");
    }
    assert_eq!(gateway.content(&format!("/ipns/{name}/list/x")).await, "x");
}

#[tokio::test]
async fn unresolvable_ipns_path_states_the_reason() {
    let (gateway, name, _) = gateway().await;
    let unknown = "k51qzi5uqu5dk3v4rmjber23h16xnr23bsggmqqil9z2gduiis5se8dht36dam";
    for (path, status, text) in [
        (format!("/ipns/{unknown}"), 500, unknown),
        ("/ipns/unlinked.example/x".into(), 500, "no DNSLink"),
        (format!("/ipns/{name}/none"), 404, "none"),
        ("/ipns/bafkqabtimvwgy3yk".into(), 400, "libp2p-key"),
        ("/ipns/nodot".into(), 400, "invalid path \"/ipns/nodot\""),
        ("/ipns/".into(), 400, "does not name content"),
        ("/ipns/%ff.example".into(), 400, "not UTF-8"),
    ] {
        let response = get(&gateway, &path, &[]).await;
        let (got, cache) = (response.status(), header(&response, "cache-control").to_owned());
        let body = response.text().await.unwrap();
        assert_eq!((got.as_u16(), cache.as_str()), (status, "no-store"), "{path}: {body}");
        assert!(body.contains(text), "{path}: {body}");
    }
    let miss = get(&gateway, &format!("/ipns/{unknown}"), &[("cache-control", "only-if-cached")]).await;
    assert_eq!(miss.status(), 412);
    let script = get(&gateway, &format!("/ipns/{name}"), &[("service-worker", "script")]).await;
    assert_eq!(script.status(), 400);
    let below = get(&gateway, &format!("/ipns/{name}/list/x"), &[("service-worker", "script")]).await;
    assert_eq!(below.status(), 200);
}

/// <https://specs.ipfs.tech/http-gateways/dnslink-gateway/>, "Host".
#[tokio::test]
async fn endless_dnslinks_are_400() {
    let gateway = TestGateway::start_with(|config| {
        config.dns.enabled = false;
        let dnslink = &mut config.gateway.dnslink;
        dnslink.insert("one.example".into(), "/ipns/two.example/x".into());
        dnslink.insert("two.example".into(), "/ipns/one.example".into());
        for step in 0..33 {
            dnslink.insert(format!("step{step}.example"), format!("/ipns/step{}.example", step + 1));
        }
        dnslink.insert("step33.example".into(), "/ipfs/bafkqabtimvwgy3yk".into());
    })
    .await;
    for (domain, status, text) in [
        ("one.example", 400, "/ipns/one.example leads back to itself"),
        ("two.example", 400, "/ipns/two.example leads back to itself"),
        ("step1.example", 400, "more than 32 names"),
        ("step2.example", 200, "hello"),
    ] {
        for (path, host) in [(format!("/ipns/{domain}"), "localhost"), ("/".to_owned(), domain)] {
            let response = get(&gateway, &path, &[("host", host)]).await;
            let (got, body) = (response.status(), response.text().await.unwrap());
            assert_eq!(got, status, "{host}{path}: {body}");
            assert!(body.contains(text), "{host}{path}: {body}");
        }
    }
}

#[tokio::test]
async fn requests_by_name_are_counted_by_their_own_route() {
    let (gateway, name, _) = gateway().await;
    gateway.content(&format!("/ipns/{name}/list/x")).await;
    let metrics = String::from_utf8(gateway.content("/metrics").await.to_vec()).unwrap();
    let line = r#"ipfrs_http_requests_total{endpoint="/ipns/{*path}",method="GET",status="200"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
}
