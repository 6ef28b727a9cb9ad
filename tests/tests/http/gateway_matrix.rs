//! Every format of content, under every condition, with both methods, at each kind of address: a path, a subdomain, a
//! website, and a name.

use ipfrs_http::HostConfig;
use reqwest::{Method, Response};

use crate::content;
use crate::harness::{TestGateway, hash_of, header};
use crate::multipart::Form as Parts;
use crate::rpc_get::directory;

const TEXT: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const HTML_FILE: &str = "text/html";
const RAW: &str = "application/vnd.ipld.raw";
const TAR: &str = "application/x-tar";
const DAG_JSON: &str = "application/vnd.ipld.dag-json";
const DAG_CBOR: &str = "application/vnd.ipld.dag-cbor";
const ALLOW: &str = "GET, HEAD, OPTIONS";

/// An address at which content is served.
struct Place {
    /// `Host` header of requests.
    host: String,
    /// URL prefix of the names of the root's entries.
    url: String,
    /// Prefix of `Ipfs-Uri`.
    uri: String,
    /// Prefix of `X-Ipfs-Path`.
    content_path: String,
    /// `Cache-Control` of content and of pages.
    cached: [&'static str; 2],
}

/// A format of an entry of the root, with the expected headers.
struct Form {
    /// Name of the entry.
    name: &'static str,
    /// URL suffix after the name.
    then: &'static str,
    accept: &'static str,
    content_type: &'static str,
    /// Expected entity tag; `{}` is replaced by the content ID of the entry, `*` matches anything.
    etag: &'static str,
    is_page: bool,
    /// Expected `Accept-Ranges`.
    ranges: &'static str,
    /// Prefix of `Content-Disposition`.
    disposition: &'static str,
    is_not_sniffed: bool,
    /// Query of `Content-Location`.
    located: &'static str,
}

const PLAIN: Form = Form {
    name: "text.txt",
    then: "",
    accept: "*/*",
    content_type: TEXT,
    etag: "\"{}\"",
    is_page: false,
    ranges: "bytes",
    disposition: "",
    is_not_sniffed: false,
    located: "",
};
const BLOCK: Form = Form { is_not_sniffed: true, ..PLAIN };
const PAGE: Form = Form { content_type: HTML, is_page: true, ranges: "", is_not_sniffed: true, ..PLAIN };
const STREAM: Form = Form { ranges: "none", disposition: "attachment", ..BLOCK };

#[rustfmt::skip]
const FORMS: [Form; 27] = [
    PLAIN,
    Form { then: "?filename=x.pdf", content_type: "application/pdf", disposition: "inline; filename=\"x.pdf\"", ..PLAIN },
    Form { then: "?download=true", disposition: "attachment; filename=\"text.txt\"", ..PLAIN },
    Form { then: "?format=json", ..PLAIN },
    Form { name: "large", content_type: "application/octet-stream", ..PLAIN },
    Form { name: "link", content_type: "inode/symlink", ..PLAIN },
    Form { name: "site", then: "/", content_type: HTML_FILE, ..PLAIN },
    Form { name: "list", then: "/", etag: "\"DirIndex-*_CID-{}\"", ..PAGE },
    Form { name: "list", then: "/?download=true", etag: "\"DirIndex-*_CID-{}\"", ..PAGE },
    Form { name: "dag-json", then: "/", accept: "text/html", etag: "\"DagIndex-*_CID-{}\"", ..PAGE },
    Form { then: "?format=raw", content_type: RAW, etag: "\"{}.raw\"", disposition: "attachment", ..BLOCK },
    Form { name: "large", accept: RAW, content_type: RAW, etag: "\"{}.raw\"", disposition: "attachment", located: "?format=raw", ..BLOCK },
    Form { then: "?format=raw", accept: TAR, content_type: RAW, etag: "\"{}.raw\"", disposition: "attachment", ..BLOCK },
    Form { name: "list", then: "?format=raw", content_type: RAW, etag: "\"{}.raw\"", disposition: "attachment", ..BLOCK },
    Form { then: "?format=car", content_type: "application/vnd.ipld.car; version=1; order=dfs; dups=n", etag: "W/\"{}.car.*\"", ..STREAM },
    Form { name: "list", accept: "application/vnd.ipld.car; dups=y", content_type: "application/vnd.ipld.car; version=1; order=dfs; dups=y", etag: "W/\"{}.car.*\"", located: "?format=car&car-version=1&car-order=dfs&car-dups=y", ..STREAM },
    Form { then: "?format=tar", content_type: TAR, etag: "W/\"{}.x-tar\"", ..STREAM },
    Form { name: "list", accept: TAR, content_type: TAR, etag: "W/\"{}.x-tar\"", located: "?format=tar", ..STREAM },
    Form { name: "dag-json", content_type: DAG_JSON, etag: "\"{}.dag-json\"", disposition: "inline", ..BLOCK },
    Form { name: "dag-json", then: "?format=dag-json", content_type: DAG_JSON, etag: "\"{}.dag-json\"", disposition: "inline", ..BLOCK },
    Form { name: "dag-json", accept: "application/json", content_type: "application/json", etag: "\"{}.json\"", disposition: "inline", located: "?format=json", ..BLOCK },
    Form { name: "dag-cbor", content_type: DAG_CBOR, etag: "\"{}.dag-cbor\"", disposition: "attachment", ..BLOCK },
    Form { name: "dag-cbor", accept: DAG_CBOR, content_type: DAG_CBOR, etag: "\"{}.dag-cbor\"", disposition: "attachment", located: "?format=dag-cbor", ..BLOCK },
    Form { name: "dag-cbor", then: "?format=cbor", content_type: "application/cbor", etag: "\"{}.cbor\"", disposition: "attachment", ..BLOCK },
    Form { name: "json", content_type: "application/json", etag: "\"{}.json\"", disposition: "inline", ..BLOCK },
    Form { name: "cbor", content_type: "application/cbor", etag: "\"{}.cbor\"", disposition: "attachment", ..BLOCK },
    Form { name: "cbor", then: "?download=true&filename=a.b", content_type: "application/cbor", etag: "\"{}.cbor\"", disposition: "attachment; filename=\"a.b\"", ..BLOCK },
];

/// Returns a gateway that serves the same content at four addresses, the content ID of its root, and those of its
/// entries.
async fn gateway() -> (TestGateway, String, Vec<(&'static str, String)>) {
    let first = TestGateway::start().await;
    let entries = vec![
        ("cbor", first.put_block("cid-codec=cbor", b"\xa1\x61\x61\x85\x01\x02\x03\x04\x05".to_vec()).await),
        ("dag-cbor", first.put_block("cid-codec=dag-cbor", b"\xa1\x61\x61\x85\x01\x02\x03\x04\x05".to_vec()).await),
        ("dag-json", first.put_block("cid-codec=dag-json", br#"{"a":[1,2,3]}"#.to_vec()).await),
        ("json", first.put_block("cid-codec=json", br#"{"a":[1,2,3]}"#.to_vec()).await),
        ("large", first.add("cid-version=1", content::bytes(600_000)).await),
        ("link", hash_of(&first.add_form("cid-version=1", Parts::new().symlink("link", "text.txt")).await[0])),
        ("list", first.add_tree("cid-version=1", &[("d/a", "a"), ("d/b/c", "c")]).await),
        ("site", first.add_tree("cid-version=1", &[("d/index.html", "<p>site")]).await),
        ("text.txt", first.add("cid-version=1", "some words").await),
    ];
    let links: Vec<_> = entries.iter().map(|(name, cid)| (*name, cid.as_str())).collect();
    let root = directory(&first, &links).await;
    let gateway = TestGateway::start_on(first.stop().await, |config| {
        let host = HostConfig { subdomains: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), host);
        config.gateway.dnslink.insert("site.example.org".into(), format!("/ipfs/{root}"));
    })
    .await;
    (gateway, root, entries)
}

fn places(root: &str) -> [Place; 4] {
    let by_id = ["public, max-age=29030400, immutable", "public, max-age=604800, stale-while-revalidate=2678400"];
    let by_name = ["public, max-age=60", "public, max-age=60, stale-while-revalidate=2678400"];
    let place = |host: &str, url: String, content_path: String, cached| {
        let uri = content_path.replacen('/', "", 1).replacen('/', "://", 1);
        Place { host: host.into(), url, uri, content_path, cached }
    };
    let (id, name) = (format!("/ipfs/{root}"), "/ipns/site.example.org".to_owned());
    [
        place("127.0.0.1", id.clone(), id.clone(), by_id),
        place(&format!("{root}.ipfs.example.com"), String::new(), id, by_id),
        place("site.example.org", String::new(), name.clone(), by_name),
        place("127.0.0.1", name.clone(), name, by_name),
    ]
}

async fn ask(gateway: &TestGateway, place: &Place, method: Method, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = gateway.request(method, &format!("{}{path}", place.url)).header("host", &place.host);
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send().await.unwrap()
}

/// Whether `text` matches `pattern`, in which `*` matches anything.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => text.len() > start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
        None => text == pattern,
    }
}

/// Returns the headers that the responses to HEAD and GET have in common.
fn comparable(response: &Response) -> reqwest::header::HeaderMap {
    let mut headers = response.headers().clone();
    // Headers that depend on the time, on the request, or on the body.
    for name in ["date", "x-request-id", "transfer-encoding", "content-length"] {
        headers.remove(name);
    }
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn every_format_has_the_same_headers_at_every_address() {
    let (gateway, root, entries) = gateway().await;
    for place in places(&root) {
        for form in &FORMS {
            let cid = &entries.iter().find(|(name, _)| *name == form.name).unwrap().1;
            let path = format!("/{}{}", form.name, form.then);
            let said = format!("{path} as {} at {}{}", form.accept, place.host, place.url);
            let response = ask(&gateway, &place, Method::GET, &path, &[("accept", form.accept)]).await;
            assert_eq!(response.status(), 200, "{said}");
            let slash = if form.then.starts_with('/') { "/" } else { "" };
            let location = match form.located {
                "" => String::new(),
                query => format!("{}/{}{query}", place.url, form.name),
            };
            for (name, value) in [
                ("content-type", form.content_type),
                ("cache-control", place.cached[usize::from(form.is_page)]),
                ("ipfs-uri", &format!("{}/{}{slash}", place.uri, form.name)),
                ("x-ipfs-path", &format!("{}/{}{slash}", place.content_path, form.name)),
                ("x-ipfs-roots", &format!("{root},{cid}")),
                ("accept-ranges", form.ranges),
                ("content-location", &location),
                ("x-content-type-options", if form.is_not_sniffed { "nosniff" } else { "" }),
                ("access-control-allow-origin", "*"),
                ("access-control-allow-methods", ALLOW),
            ] {
                assert_eq!(header(&response, name), value, "{name} of {said}");
            }
            assert!(header(&response, "vary").split(", ").any(|name| name == "Accept"), "{said}");
            let etag = header(&response, "etag");
            assert!(is_like(etag, &form.etag.replace("{}", cid)), "{etag} of {said}");
            let disposition = header(&response, "content-disposition");
            assert!(disposition.starts_with(form.disposition), "{disposition} of {said}");
            assert_eq!(disposition.is_empty(), form.disposition.is_empty(), "{disposition} of {said}");
            let head = ask(&gateway, &place, Method::HEAD, &path, &[("accept", form.accept)]).await;
            assert_eq!((head.status(), comparable(&head)), (response.status(), comparable(&response)), "{said}");
            let length = header(&head, "content-length").to_owned();
            assert!(length.is_empty() || length == header(&response, "content-length"), "{said}");
            assert_eq!(head.bytes().await.unwrap(), "", "{said}");
            let body = response.bytes().await.unwrap();
            assert!(length.is_empty() || length == body.len().to_string(), "{said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_and_ranges_agree_at_every_address() {
    let (gateway, root, _) = gateway().await;
    for place in places(&root) {
        for form in &FORMS {
            let path = format!("/{}{}", form.name, form.then);
            let whole = ask(&gateway, &place, Method::GET, &path, &[("accept", form.accept)]).await;
            let (etag, plain) = (header(&whole, "etag").to_owned(), comparable(&whole));
            let body = whole.bytes().await.unwrap();
            let opaque = etag.trim_start_matches("W/");
            let is_strong = opaque == etag;
            let (part, beyond) = if form.ranges == "bytes" { (206, 416) } else { (200, 200) };
            let both = format!("\"x, y\", {opaque}");
            for (headers, status) in [
                (vec![("if-none-match", etag.as_str())], 304),
                (vec![("if-none-match", &format!("W/{opaque}"))], 304),
                (vec![("if-none-match", &both)], 304),
                (vec![("if-none-match", "*")], 304),
                (vec![("if-none-match", "\"x\"")], 200),
                (vec![("if-none-match", &etag), ("range", "bytes=0-1")], 304),
                (vec![("if-match", "*")], 200),
                (vec![("if-match", opaque)], if is_strong { 200 } else { 412 }),
                (vec![("if-match", "\"x\"")], 412),
                (vec![("if-match", "\"x\""), ("if-none-match", "*")], 412),
                (vec![("range", "bytes=1-2")], part),
                (vec![("range", "bytes=-2")], part),
                (vec![("range", "bytes=1-2"), ("if-range", &etag)], if is_strong { part } else { 200 }),
                (vec![("range", "bytes=1-2"), ("if-range", "\"x\"")], 200),
                (vec![("range", "bytes=9999999-")], beyond),
                (vec![("range", "lines=1-2")], 200),
            ] {
                for method in [Method::GET, Method::HEAD] {
                    let said = format!("{method} {path} with {headers:?} at {}{}", place.host, place.url);
                    let all = [&headers[..], &[("accept", form.accept)]].concat();
                    let response = ask(&gateway, &place, method.clone(), &path, &all).await;
                    assert_eq!(response.status(), status, "{said}");
                    let (found, is_head) = (comparable(&response), method == Method::HEAD);
                    let range = header(&response, "content-range").to_owned();
                    let length = header(&response, "content-length").to_owned();
                    let sent = response.bytes().await.unwrap();
                    match status {
                        304 => {
                            for name in ["etag", "cache-control", "vary", "ipfs-uri", "x-ipfs-path", "x-ipfs-roots"] {
                                assert_eq!(found.get(name), plain.get(name), "{name}: {said}");
                            }
                            assert!(!found.contains_key("content-type") && sent.is_empty(), "{said}");
                        }
                        206 => {
                            let suffix = headers[0].1 == "bytes=-2";
                            let start = if suffix { body.len() - 2 } else { 1 };
                            assert_eq!(range, format!("bytes {start}-{}/{}", start + 1, body.len()), "{said}");
                            assert_eq!(length, "2", "{said}");
                            assert_eq!(sent, if is_head { &[] } else { &body[start..start + 2] }, "{said}");
                            for name in ["etag", "cache-control", "vary", "content-type", "accept-ranges"] {
                                assert_eq!(found.get(name), plain.get(name), "{name}: {said}");
                            }
                        }
                        416 => assert_eq!(range, format!("bytes */{}", body.len()), "{said}"),
                        412 => assert_eq!(found.get("cache-control").unwrap(), "no-store", "{said}"),
                        _ => assert_eq!((found, sent.is_empty()), (plain.clone(), is_head), "{said}"),
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_have_the_same_status_at_every_address() {
    let (gateway, root, _) = gateway().await;
    for place in places(&root) {
        for (path, headers, status) in [
            ("/missing", vec![], 404),
            ("/text.txt/below", vec![], 404),
            ("/missing?format=raw", vec![], 404),
            ("/missing?format=tar", vec![], 404),
            ("/missing", vec![("cache-control", "only-if-cached")], 412),
            ("/missing", vec![("if-none-match", "*")], 404),
            ("/text.txt?format=dag-json", vec![], 406),
            ("/text.txt", vec![("accept", DAG_CBOR)], 406),
            ("/dag-json?format=dag-cbor", vec![], 406),
            ("/dag-cbor?format=tar", vec![], 406),
            ("/json", vec![("accept", TAR)], 406),
            ("/text.txt?format=exe", vec![], 400),
            ("/text.txt?format=car&car-order=bfs", vec![], 400),
            ("/text.txt?format=car&entity-bytes=x", vec![], 400),
            ("/text.txt?format=ipns-record", vec![], 400),
            ("/%FF", vec![], 404),
            ("/dag-json/a", vec![], 501),
            ("/dag-json/a?format=raw", vec![], 501),
            ("/dag-json/b", vec![], 404),
            ("/site", vec![], 301),
            ("/list?a=b", vec![], 301),
            ("/dag-json", vec![("accept", "text/html")], 301),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let said = format!("{method} {path} with {headers:?} at {}{}", place.host, place.url);
                let response = ask(&gateway, &place, method, path, &headers).await;
                assert_eq!(response.status(), status, "{said}");
                assert_eq!(header(&response, "access-control-allow-origin"), "*", "{said}");
                assert!(response.headers().contains_key("x-request-id"), "{said}");
                assert!(!response.headers().contains_key("etag"), "{said}");
                match status {
                    301 => {
                        let (name, query) = path.split_once('?').map_or((path, ""), |(name, _)| (name, "?a=b"));
                        assert_eq!(header(&response, "location"), format!("{}{name}/{query}", place.url), "{said}");
                    }
                    412 => {}
                    _ => assert_eq!(header(&response, "cache-control"), "no-store", "{said}"),
                }
                if status == 406 {
                    assert!(header(&response, "vary").contains("Accept"), "{said}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_methods_are_refused_at_every_address() {
    let (gateway, root, _) = gateway().await;
    for place in places(&root) {
        for path in ["/text.txt", "/list/", "/missing", "/text.txt?format=car"] {
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
                let response = ask(&gateway, &place, method.clone(), path, &[]).await;
                let found = (response.status().as_u16(), header(&response, "allow"));
                assert_eq!(found, (405, ALLOW), "{method} {path} at {}{}", place.host, place.url);
                assert_eq!(header(&response, "access-control-allow-origin"), "*");
            }
            let asked = [("origin", "https://example.net"), ("access-control-request-method", "GET")];
            let response = ask(&gateway, &place, Method::OPTIONS, path, &asked).await;
            assert_eq!((response.status().as_u16(), header(&response, "allow")), (204, ALLOW), "{path}");
            for (name, listed) in [
                ("access-control-allow-methods", "GET, HEAD"),
                ("access-control-allow-headers", "Content-Type, Range, User-Agent, X-Requested-With"),
                ("access-control-expose-headers", "Content-Length, Content-Range, Ipfs-Uri, X-Ipfs-Path, X-Ipfs-Roots"),
            ] {
                let found: Vec<_> = header(&response, name).split(", ").collect();
                assert!(listed.split(", ").all(|name| found.contains(&name)), "{name}: {found:?}");
            }
        }
    }
}
