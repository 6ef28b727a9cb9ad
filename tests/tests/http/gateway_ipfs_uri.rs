//! The `Ipfs-Uri` header: a content path has the same URI for every spelling of its URL (IPIP-548,
//! <https://specs.ipfs.tech/http-gateways/path-gateway/#ipfs-uri-response-header>). Requests are written by hand
//! because client libraries resolve dot segments.

use ipfrs_core::{Base, Cid, cid_to_string, codec, parse_cid};
use ipfrs_http::HostConfig;

use crate::content_ids::{HELLO, KEY, KEY_AS_PEER, LONG};
use crate::crafted::Dag;
use crate::harness::TestGateway;
use crate::wire::{Answer, Wire};

/// Returns a gateway with subdomains at `example.com`, without subdomains at `paths.example`, and for blocks only at
/// `blocks.example`.
async fn gateway() -> TestGateway {
    TestGateway::start_with(|config| {
        let subdomains = HostConfig { subdomains: true, inline_dnslink: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), subdomains);
        config.gateway.hosts.insert("paths.example".into(), HostConfig::default());
        let blocks = HostConfig { deserialized: Some(false), ..HostConfig::default() };
        config.gateway.hosts.insert("blocks.example".into(), blocks);
        for domain in ["my.v-long.example.org", "xn--bcher-kva.example", "under_score.example"] {
            config.gateway.dnslink.insert(domain.into(), format!("/ipfs/{HELLO}"));
        }
        config.dns.enabled = false;
    })
    .await
}

/// Sends a request to a host, with the target unchanged.
async fn ask(gateway: &TestGateway, method: &str, host: &str, target: &str, headers: &str) -> Answer {
    let mut wire = Wire::connect(gateway).await;
    wire.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n")).await;
    if method == "HEAD" { wire.head().await } else { wire.answer().await }
}

async fn get(gateway: &TestGateway, host: &str, target: &str) -> Answer {
    ask(gateway, "GET", host, target, "").await
}

/// Adds a directory with files of these names, each containing its name.
async fn directory(gateway: &TestGateway, names: &[&str]) -> Cid {
    let mut dag = Dag::default();
    let mut entries: Vec<_> = names.iter().map(|name| (*name, dag.put(codec::RAW, name.as_bytes().to_vec()))).collect();
    let sub = [("b.txt", dag.put(codec::RAW, b"in a".to_vec())), ("~ c", dag.put(codec::RAW, b"~ c".to_vec()))];
    entries.push(("a", dag.directory(&sub)));
    entries.push(("a b", dag.directory(&sub)));
    let root = dag.directory(&entries);
    dag.import(gateway).await;
    root
}

const NAMES: [&str; 19] = [
    "plain.txt",
    "with space.txt",
    "100% sure.txt",
    "a#b?c.txt",
    "łódź.txt",
    "emoji🚀.txt",
    "קובץ.txt",
    "ملف.txt",
    "नमस्ते.txt",
    "ファイル.txt",
    "你好.txt",
    "file!'()*~.txt",
    "Portugal%2C+España=Peninsula Ibérica.txt",
    "%2F",
    "%2E%2E",
    "\ttab",
    "line\r\nX-Evil: 1",
    "\"q\\:@&;$,[]|",
    "a/b.txt",
];

#[tokio::test]
async fn ipfs_uri_is_canonical_for_every_spelling() {
    let gateway = gateway().await;
    let root = directory(&gateway, &NAMES).await;
    for (asked, uri, body, legacy) in [
        ("/plain.txt", "/plain.txt", "plain.txt", "/plain.txt"),
        ("/pl%61in%2etxt", "/plain.txt", "plain.txt", "/plain.txt"),
        ("//plain.txt", "/plain.txt", "plain.txt", "/plain.txt"),
        ("/with%20space.txt", "/with%20space.txt", "with space.txt", "/with space.txt"),
        ("/100%25%20sure.txt", "/100%25%20sure.txt", "100% sure.txt", "/100% sure.txt"),
        ("/100%%20sure.txt", "/100%25%20sure.txt", "100% sure.txt", "/100% sure.txt"),
        ("/a%23b%3Fc.txt", "/a%23b%3Fc.txt", "a#b?c.txt", "/a#b?c.txt"),
        ("/a%23b%3fc.txt?filename=d.txt&x", "/a%23b%3Fc.txt", "a#b?c.txt", "/a#b?c.txt"),
        ("/%c5%82%c3%b3d%c5%ba.txt", "/%C5%82%C3%B3d%C5%BA.txt", "łódź.txt", ""),
        ("/łódź.txt", "/%C5%82%C3%B3d%C5%BA.txt", "łódź.txt", ""),
        ("/emoji%F0%9F%9A%80.txt", "/emoji%F0%9F%9A%80.txt", "emoji🚀.txt", ""),
        ("/קובץ.txt", "/%D7%A7%D7%95%D7%91%D7%A5.txt", "קובץ.txt", ""),
        ("/ملف.txt", "/%D9%85%D9%84%D9%81.txt", "ملف.txt", ""),
        ("/नमस्ते.txt", "/%E0%A4%A8%E0%A4%AE%E0%A4%B8%E0%A5%8D%E0%A4%A4%E0%A5%87.txt", "नमस्ते.txt", ""),
        ("/ファイル.txt", "/%E3%83%95%E3%82%A1%E3%82%A4%E3%83%AB.txt", "ファイル.txt", ""),
        ("/你好.txt", "/%E4%BD%A0%E5%A5%BD.txt", "你好.txt", ""),
        ("/file!'()*~.txt", "/file%21%27%28%29%2A~.txt", "file!'()*~.txt", "/file!'()*~.txt"),
        ("/file%21%27%28%29%2a%7e.txt", "/file%21%27%28%29%2A~.txt", "file!'()*~.txt", "/file!'()*~.txt"),
        (
            "/Portugal%252C%2bEspa%c3%b1a%3dPeninsula%20Ib%c3%a9rica%2etxt",
            "/Portugal%252C%2BEspa%C3%B1a%3DPeninsula%20Ib%C3%A9rica.txt",
            "Portugal%2C+España=Peninsula Ibérica.txt",
            "",
        ),
        (
            "/Portugal%252C+España=Peninsula%20Ibérica.txt",
            "/Portugal%252C%2BEspa%C3%B1a%3DPeninsula%20Ib%C3%A9rica.txt",
            "Portugal%2C+España=Peninsula Ibérica.txt",
            "",
        ),
        // Names that look percent-encoded are literal names.
        ("/%252F", "/%252F", "%2F", "/%2F"),
        ("/%252E%252E", "/%252E%252E", "%2E%2E", "/%2E%2E"),
        ("/%09tab", "/%09tab", "\ttab", "/\ttab"),
        ("/line%0D%0AX-Evil:%201", "/line%0D%0AX-Evil%3A%201", "line\r\nX-Evil: 1", ""),
        ("/\"q%5C:@&;$,[]|", "/%22q%5C%3A%40%26%3B%24%2C%5B%5D%7C", "\"q\\:@&;$,[]|", "/\"q\\:@&;$,[]|"),
        // An encoded slash separates names, so no path leads to a name that contains a slash.
        ("/a/b.txt", "/a/b.txt", "in a", "/a/b.txt"),
        ("/a%2Fb.txt", "/a/b.txt", "in a", "/a/b.txt"),
        ("%2fa%2f%2F/b.txt", "/a/b.txt", "in a", "/a/b.txt"),
        ("/a%20b/~%20c", "/a%20b/~%20c", "~ c", "/a b/~ c"),
        // Dot segments are resolved as in any URL.
        ("/a%2F..%2Fplain%2Etxt", "/plain.txt", "plain.txt", "/plain.txt"),
        ("/./a/../%2E/a%20b/%2e%2E/plain.txt", "/plain.txt", "plain.txt", "/plain.txt"),
    ] {
        // The third response may come from the response cache.
        for _ in 0..3 {
            let answer = get(&gateway, "127.0.0.1", &format!("/ipfs/{root}{asked}")).await;
            assert_eq!((answer.status, answer.text().as_str()), (200, body), "{asked}");
            assert_eq!(answer.header("ipfs-uri"), format!("ipfs://{root}{uri}"), "{asked}");
            let legacy = if legacy.is_empty() { String::new() } else { format!("/ipfs/{root}{legacy}") };
            assert_eq!(answer.header("x-ipfs-path"), legacy, "{asked}");
            assert!(answer.header("access-control-expose-headers").contains("Ipfs-Uri"), "{asked}");
            assert_eq!(answer.header("x-evil"), "");
        }
    }
    for (asked, uri) in [
        ("", ""),
        ("/", "/"),
        ("//", "/"),
        ("%2F", "/"),
        ("/a%20b", "/a%20b"),
        ("/a%20b/", "/a%20b/"),
        ("/a%20b//", "/a%20b/"),
        ("/a/../", "/"),
        ("/none%2f?x", "/none/"),
    ] {
        let answer = get(&gateway, "127.0.0.1", &format!("/ipfs/{root}{asked}")).await;
        assert_eq!(answer.header("ipfs-uri"), format!("ipfs://{root}{uri}"), "{asked}: {}", answer.status);
    }
    let long = format!("/ipfs/{HELLO}/{}", "x".repeat(8_192));
    assert_eq!(get(&gateway, "127.0.0.1", &long).await.header("ipfs-uri"), "", "longer than clients need to take");
}

#[tokio::test]
async fn every_kind_of_response_has_ipfs_uri() {
    let gateway = gateway().await;
    let root = directory(&gateway, &["f.txt", "_x"]).await;
    let etag = get(&gateway, "127.0.0.1", &format!("/ipfs/{root}/f.txt")).await.header("etag").to_owned();
    for (below, headers, status) in [
        ("/f.txt", String::new(), 200),
        ("/f.txt", format!("If-None-Match: {etag}\r\n"), 304),
        ("/f.txt", "If-Match: \"x\"\r\n".into(), 412),
        ("/f.txt", "Range: bytes=1-2\r\n".into(), 206),
        ("/f.txt", "Range: bytes=99-\r\n".into(), 416),
        ("/f.txt?format=raw", String::new(), 200),
        ("/f.txt?format=car", String::new(), 200),
        ("/f.txt?format=tar", String::new(), 200),
        ("/f.txt?format=json&filename=a.b&download=true", String::new(), 200),
        ("/f.txt?format=dag-cbor", String::new(), 406),
        ("/f.txt?format=nope", String::new(), 400),
        ("/f.txt?format=ipns-record", String::new(), 400),
        ("/f.txt/below", String::new(), 404),
        ("/none", "Accept: text/html\r\n".into(), 404),
        ("/none", "Cache-Control: only-if-cached\r\n".into(), 412),
        ("/a", String::new(), 301),
        ("/a/", "Accept: text/html\r\n".into(), 200),
        ("", "Service-Worker: script\r\n".into(), 400),
    ] {
        for method in ["GET", "HEAD"] {
            let answer = ask(&gateway, method, "127.0.0.1", &format!("/ipfs/{root}{below}"), &headers).await;
            let said = format!("{method} {below} {headers}");
            assert_eq!(answer.status, status, "{said}");
            let path = below.split('?').next().unwrap();
            assert_eq!(answer.header("ipfs-uri"), format!("ipfs://{root}{path}"), "{said}");
        }
    }
    let deleted = ask(&gateway, "DELETE", "127.0.0.1", &format!("/ipfs/{root}/f.txt"), "").await;
    assert_eq!((deleted.status, deleted.header("ipfs-uri")), (405, &*format!("ipfs://{root}/f.txt")));
    for (target, status) in [
        ("/ipfs/", 400),
        ("/ipfs/x/f.txt", 400),
        ("/ipfs/%FF/f.txt", 400),
        ("/ipns/no-dot/f.txt", 400),
        ("/ipfs/?uri=ipfs://x", 301),
        ("/ipfs/ipns/x", 301),
        ("/health", 200),
        ("/none", 404),
    ] {
        let answer = get(&gateway, "127.0.0.1", target).await;
        assert_eq!((answer.status, answer.header("ipfs-uri")), (status, ""), "{target} names no content");
    }
}

#[tokio::test]
async fn roots_have_one_form() {
    let gateway = gateway().await;
    let v0 = gateway.add("cid-version=0", "hello").await;
    let cid = parse_cid(&v0).unwrap();
    let v1 = Cid::new_v1(cid.codec(), *cid.hash());
    let canonical = format!("ipfs://{}", cid_to_string(&v1, Base::Base32Lower).unwrap());
    let as_base = |base| cid_to_string(&v1, base).unwrap();
    for root in [v0.clone(), as_base(Base::Base32Upper), as_base(Base::Base36Lower), as_base(Base::Base58Btc)] {
        let answer = get(&gateway, "paths.example", &format!("/ipfs/{root}")).await;
        assert_eq!((answer.status, answer.header("ipfs-uri")), (200, &*canonical), "{root}");
        assert_eq!(
            answer.header("x-ipfs-path"),
            format!("/ipfs/{root}"),
            "the legacy header has it as it was asked for"
        );
    }
    for (host, target, status, uri) in [
        ("example.com", format!("/ipfs/{v0}/"), 301, format!("{canonical}/")),
        ("paths.example", format!("/ipfs/{LONG}/x"), 404, format!("ipfs://{LONG}/x")),
        ("example.com", format!("/ipfs/{LONG}/x"), 400, format!("ipfs://{LONG}/x")),
        (&*format!("{}.ipfs.example.com", as_base(Base::Base32Lower)), "/".into(), 200, format!("{canonical}/")),
        (&*format!("{}.ipfs.example.com", as_base(Base::Base36Lower)), "/%41".into(), 404, format!("{canonical}/A")),
        (&*format!("{v0}.ipfs.example.com"), "/a?b".into(), 301, format!("{canonical}/a")),
        // Keys.
        ("paths.example", format!("/ipns/{KEY}/a/"), 500, format!("ipns://{KEY}/a/")),
        ("paths.example", format!("/ipns/{KEY_AS_PEER}/a/?b"), 302, format!("ipns://{KEY}/a/")),
        ("paths.example", format!("/ipns/{KEY}?format=ipns-record"), 404, format!("ipns://{KEY}")),
        ("example.com", format!("/ipns/{KEY_AS_PEER}"), 301, format!("ipns://{KEY}")),
        (&*format!("{KEY_AS_PEER}.ipns.example.com"), "/%2a".into(), 301, format!("ipns://{KEY}/%2A")),
        // Domains: in ASCII and lower case, with their dots, and without a trailing dot.
        ("paths.example", "/ipns/my.v-long.example.org".into(), 200, "ipns://my.v-long.example.org".into()),
        ("paths.example", "/ipns/My.V-Long.Example.ORG./".into(), 200, "ipns://my.v-long.example.org/".into()),
        ("paths.example", "/ipns/b%C3%BCcher.example/".into(), 200, "ipns://xn--bcher-kva.example/".into()),
        ("paths.example", "/ipns/Bücher.Example".into(), 200, "ipns://xn--bcher-kva.example".into()),
        ("paths.example", "/ipns/under_score.example".into(), 200, String::new()),
        ("example.com", "/ipns/my.v-long.example.org/a".into(), 301, "ipns://my.v-long.example.org/a".into()),
        ("my-v--long-example-org.ipns.example.com", "/".into(), 200, "ipns://my.v-long.example.org/".into()),
        ("my.v-long.example.org", "/".into(), 200, "ipns://my.v-long.example.org/".into()),
        ("my.v-long.example.org:81", "/%c3%bc".into(), 404, "ipns://my.v-long.example.org/%C3%BC".into()),
        ("XN--bcher-kva.example", "/".into(), 200, "ipns://xn--bcher-kva.example/".into()),
    ] {
        let answer = get(&gateway, host, &target).await;
        assert_eq!((answer.status, answer.header("ipfs-uri")), (status, &*uri), "{host}{target}: {}", answer.text());
    }
}

#[tokio::test]
async fn redirect_rule_response_has_uri_of_requested_path() {
    let gateway = gateway().await;
    let rules = "/old/* /new/:splat\n/lost /404.html 404\n/* /index.html 200\n";
    let files = [("d/_redirects", rules), ("d/index.html", "<p>home"), ("d/404.html", "<p>lost")];
    let root = gateway.add_tree("cid-version=1", &files).await;
    for (path, status, uri) in
        [("/old/%c3%bc?a", 301, "/old/%C3%BC"), ("/lost", 404, "/lost"), ("/spa%2Fx/", 200, "/spa/x/"), ("/", 200, "/")]
    {
        let answer = get(&gateway, &format!("{root}.ipfs.example.com"), path).await;
        assert_eq!((answer.status, answer.header("ipfs-uri")), (status, &*format!("ipfs://{root}{uri}")), "{path}");
    }
}

#[tokio::test]
async fn encoded_dots_and_slashes_cannot_escape_the_root() {
    let gateway = gateway().await;
    let (root, other) = (directory(&gateway, &["f.txt", "sw.js"]).await, directory(&gateway, &["evil.html"]).await);
    let (site, own) = (format!("{root}.ipfs.example.com"), format!("http://{root}.ipfs.example.com"));
    for (host, path) in [
        (&*site, format!("/..%2F{other}/evil.html")),
        (&*site, format!("/../{other}/evil.html")),
        (&*site, format!("/a/%2e%2e/%2E%2E/{other}/evil.html")),
        (&*site, format!("/a%2f..%2f..%2f..%2fipfs%2f{other}/evil.html")),
        ("my.v-long.example.org", format!("/..%2F{other}/evil.html")),
        ("my.v-long.example.org", format!("/..%2F..%2Fipfs/{other}/evil.html")),
        ("127.0.0.1", format!("/ipfs/{root}/..%2F{other}/evil.html")),
        ("127.0.0.1", format!("/ipfs/{root}/../{other}/evil.html")),
        ("127.0.0.1", format!("/ipns/my.v-long.example.org/..%2F{other}/evil.html")),
        ("127.0.0.1", format!("/v1/stream/download/{root}/..%2F{other}/evil.html")),
    ] {
        let answer = get(&gateway, host, &path).await;
        assert_eq!((answer.status, answer.header("ipfs-uri")), (400, ""), "{host}{path}");
        assert!(answer.text().contains("outside its root"), "{host}{path}: {}", answer.text());
    }
    // Content with its own origin is served only on that origin.
    for (path, location) in [
        (format!("/ipfs//{root}/f.txt"), format!("{own}/f.txt")),
        (format!("/ipfs/%2F{root}/f.txt"), format!("{own}/f.txt")),
        (format!("/ipfs/{root}%2Ff.txt"), format!("{own}/f.txt")),
        (format!("/ipfs/{root}%2f@evil.example"), format!("{own}/@evil.example")),
        ("/ipns//my.v-long.example.org/x".to_owned(), "http://my-v--long-example-org.ipns.example.com/x".to_owned()),
    ] {
        let answer = get(&gateway, "example.com", &path).await;
        assert_eq!((answer.status, answer.header("location")), (301, &*location), "{path}");
    }
    for path in [format!("/ipfs/./{root}/f.txt"), format!("/ipfs/x/../{root}/f.txt")] {
        assert_eq!(get(&gateway, "example.com", &path).await.status, 400, "{path}");
    }
    // A raw block does not prove that a path leads to it.
    let raw = get(&gateway, "blocks.example", &format!("/ipfs/{root}%2Ff.txt?format=raw")).await;
    assert_eq!(raw.status, 406);
    // The scope of a script is its URL up to the last literal slash: here everything under /ipfs/.
    let script = format!("/ipfs/{root}%2Fsw.js");
    assert_eq!(ask(&gateway, "GET", "127.0.0.1", &script, "Service-Worker: script\r\n").await.status, 400);
    assert_eq!(get(&gateway, "127.0.0.1", &script).await.text(), "sw.js");
}

#[tokio::test]
async fn dnslink_value_may_contain_literal_dot_names() {
    let first = TestGateway::start().await;
    let mut dag = Dag::default();
    let (inner, outer) = (dag.put(codec::RAW, b"inner".to_vec()), dag.put(codec::RAW, b"outer".to_vec()));
    let up = dag.directory(&[("f", inner)]);
    let a = dag.directory(&[("..", up)]);
    let root = dag.directory(&[("a", a), ("f", outer)]);
    dag.import(&first).await;
    let gateway = TestGateway::start_on(first.stop().await, |config| {
        config.gateway.dnslink.insert("dots.example".into(), format!("/ipfs/{root}/a/.."));
    })
    .await;
    for _ in 0..2 {
        // The same path has different meanings on the two hosts, and the results must not be mixed up.
        assert_eq!(get(&gateway, "127.0.0.1", &format!("/ipfs/{root}/a/../f")).await.text(), "outer");
        assert_eq!(get(&gateway, "dots.example", "/f").await.text(), "inner");
        assert_eq!(get(&gateway, "dots.example", "/none").await.status, 404);
    }
}

#[tokio::test]
async fn listing_links_entries_unreachable_by_path() {
    let gateway = gateway().await;
    let root = directory(&gateway, &["a/b.txt", "..", "plain"]).await;
    let page = get(&gateway, "127.0.0.1", &format!("/ipfs/{root}/")).await.text();
    let plain = format!("href=\"/ipfs/{root}/plain\"");
    assert!(page.contains(&plain) && !page.contains(&format!("{root}/a%2Fb.txt\"")), "{page}");
    let cid =
        cid_to_string(&Cid::new_v1(codec::RAW, ipfrs_core::hash::sha2_256(b"a/b.txt")), Base::Base32Lower).unwrap();
    assert_eq!(page.matches(&format!("href=\"/ipfs/{cid}?filename=")).count(), 2, "{page}");
}
