//! Content of public and private gateways, and keys that are restricted to roots.

use serde_json::{Value, json};

use super::{Guarded, Method, client};
use crate::harness::{header, ndjson};
use crate::multipart::Form;

#[tokio::test]
async fn content_is_public_unless_the_gateway_is_private() {
    let public = Guarded::start().await;
    let cid = public.add("hello").await;
    for path in [format!("/ipfs/{cid}"), format!("/ipfs/{cid}?format=raw"), "/".to_owned(), "/openapi.json".to_owned()]
    {
        let response = public.get(&path, "").await;
        assert_eq!(response.status(), 200, "{path}");
        // Wrong credentials do not matter where none are needed.
        assert_eq!(public.get(&path, "wrong").await.status(), 200, "{path}");
    }
    assert!(header(&public.get(&format!("/ipfs/{cid}"), "").await, "cache-control").starts_with("public"));

    let private = Guarded::start_with(|config| config.auth.private_gateway = true).await;
    let cid = private.add("hello").await;
    let reader = private.key(&["read"]).await;
    let writer = private.key(&["write"]).await;
    let path = format!("/ipfs/{cid}");
    // The second response would come from a cache.
    for _ in 0..3 {
        let response = private.get(&path, &reader).await;
        assert_eq!(response.status(), 200);
        assert!(header(&response, "cache-control").starts_with("private"), "{:?}", response.headers());
        assert_eq!(response.text().await.unwrap(), "hello");
        for token in ["", "wrong"] {
            let response = private.get(&path, token).await;
            assert_eq!(response.status(), 401);
            assert_eq!(header(&response, "cache-control"), "no-store");
        }
        assert_eq!(private.get(&path, &writer).await.status(), 403);
        assert_eq!(private.send(Method::HEAD, &path, "", None).await.status(), 401);
    }
    // The response cache is off, so the path is in the path cache.
    let metrics = private.get("/metrics", &reader).await.text().await.unwrap();
    let size = |cache: &str| {
        let name = format!("ipfrs_cache_size_bytes{{cache=\"{cache}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(name.as_str())?.parse::<u64>().ok()).unwrap()
    };
    assert!(size("answer") == 0 && size("path") > 0, "{} {}", size("answer"), size("path"));
    // A browser asks for user and password.
    let asked = private.get(&path, "").await;
    let schemes: Vec<_> = asked.headers().get_all("www-authenticate").iter().map(|it| it.to_str().unwrap()).collect();
    assert!(schemes.iter().any(|scheme| scheme.starts_with("Basic")), "{schemes:?}");
    let request = private.gateway.request(Method::GET, &path).basic_auth("anyone", Some(&reader));
    assert_eq!(request.send().await.unwrap().status(), 200);
    let record = format!("/routing/v1/providers/{cid}");
    assert_eq!(
        (private.get(&record, "").await.status(), public.get(&record, "").await.status().is_success()),
        (401.try_into().unwrap(), true)
    );
}

#[tokio::test]
async fn key_with_roots_reads_only_below_them() {
    let guarded = Guarded::start_with(|config| config.auth.private_gateway = true).await;
    let (allowed, other) = (guarded.add("allowed").await, guarded.add("other").await);
    let token = guarded.key_of(json!({ "scopes": ["read"], "roots": [allowed] })).await;
    for (path, status) in [
        (format!("/ipfs/{allowed}"), 200),
        (format!("/ipfs/{allowed}?format=raw"), 200),
        (format!("/v1/stream/download/{allowed}"), 200),
        (format!("/ipfs/{other}"), 403),
        (format!("/ipfs/{other}?format=raw"), 403),
        (format!("/ipfs/{allowed}/../{other}"), 403),
        ("/ipns/example.org".to_owned(), 403),
        (format!("/v1/stream/download/{other}"), 403),
        ("/metrics".to_owned(), 403),
        ("/debug/metrics/prometheus".to_owned(), 403),
        (format!("/routing/v1/providers/{other}"), 403),
        ("/v1/progress".to_owned(), 403),
        ("/graphql?query={version{version}}".to_owned(), 403),
    ] {
        assert_eq!(guarded.get(&path, &token).await.status().as_u16(), status, "{path}");
    }
    assert_eq!(guarded.post(&format!("/api/v0/cat?arg={allowed}"), &token).await.status(), 403);
    // A version 0 content ID is the same root.
    assert_eq!(guarded.get("/v1/auth/session", &token).await.status(), 200);
}

#[tokio::test]
async fn every_form_of_private_content_needs_rights_for_its_root() {
    let private = Guarded::start_with(|config| {
        config.auth.private_gateway = true;
        let host = ipfrs_http::HostConfig { subdomains: true, ..ipfrs_http::HostConfig::default() };
        config.gateway.hosts.insert("gw.example".to_owned(), host);
    })
    .await;
    let form = Form::new().file("d/a/x.txt", "x");
    let add = private.gateway.rpc("add?cid-version=1").bearer_auth(&private.admin);
    let add = add.header("content-type", form.content_type()).body(form.end());
    let added = ndjson(add.send().await.unwrap()).await;
    let cid_of = |name: &str| {
        let line = added.iter().find(|line| line["Name"] == name).unwrap_or_else(|| panic!("no {name} in {added:?}"));
        crate::harness::hash_of(line)
    };
    let (root, child, other) = (cid_of("d"), cid_of("d/a/x.txt"), private.add("other").await);
    let reader = private.key(&["read"]).await;
    let of_root = |root: &str| json!({ "scopes": ["read"], "roots": [root] });
    let (allowed, refused) = (private.key_of(of_root(&root)).await, private.key_of(of_root(&other)).await);
    let status = async |host: &str, path: &str, token: &str| {
        let request = private.gateway.request(Method::GET, path).header("host", host);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        request.send().await.unwrap().status().as_u16()
    };
    let own_host = format!("{root}.ipfs.gw.example");
    for (host, path) in [
        ("localhost", format!("/ipfs/{root}/a/x.txt")),
        ("localhost", format!("/ipfs/{root}/")),
        ("localhost", format!("/ipfs/{root}?format=car")),
        ("localhost", format!("/ipfs/{root}?format=tar")),
        ("localhost", format!("/ipfs/{root}/a/x.txt?format=raw")),
        (&*own_host, "/a/x.txt".to_owned()),
        (&*own_host, "/?format=car".to_owned()),
        (&*own_host, "/a?format=tar".to_owned()),
    ] {
        for (token, expected) in [("", 401), ("wrong", 401), (&*reader, 200), (&*allowed, 200), (&*refused, 403)] {
            assert_eq!(status(host, &path, token).await, expected, "{host}{path}: {token}");
        }
    }
    // The key does not know what is below its root by other names.
    assert_eq!(status("localhost", &format!("/ipfs/{child}"), &allowed).await, 403);
    assert_eq!(status("localhost", &format!("/ipfs/{other}%2f..%2f{root}/a/x.txt"), &allowed).await, 403);
}

#[tokio::test]
async fn public_listener_has_the_read_only_gateway_only() {
    let guarded = Guarded::start_with(|config| {
        config.public.enabled = true;
        (config.public.host, config.public.port) = ("127.0.0.1".to_owned(), 0);
    })
    .await;
    let cid = guarded.add("hello").await;
    let address = guarded.gateway.gateway.public_addresses()[0];
    let client = client().build().unwrap();
    let send = async |method: Method, path: &str| {
        client.request(method, format!("http://{address}{path}")).bearer_auth(&guarded.admin).send().await.unwrap()
    };
    let content = send(Method::GET, &format!("/ipfs/{cid}")).await;
    assert_eq!((content.status().as_u16(), content.text().await.unwrap()), (200, "hello".to_owned()));
    assert_eq!(send(Method::GET, "/.well-known/libp2p/protocols").await.status(), 200);
    assert_eq!(send(Method::POST, "/.well-known/libp2p/protocols").await.status(), 405);
    for path in ["/metrics", "/v1/progress", "/health", "/ui/", "/ws", "/openapi.json", "/graphql"] {
        assert_eq!(send(Method::GET, path).await.status(), 404, "{path}");
    }
    for path in ["/api/v0/id", "/api/v0/add", "/v1/auth/keys", "/graphql", "/ipfrs.block.v1.BlockService/GetBlock"] {
        assert_eq!(send(Method::POST, path).await.status(), 404, "{path}");
    }
    assert_eq!(send(Method::POST, &format!("/ipfs/{cid}")).await.status(), 405);
}

#[tokio::test]
async fn callers_have_separate_pins() {
    const PINS: &str = "/pinning/v1/pins";
    let guarded = Guarded::start().await;
    let (one, other, reader) = (guarded.key(&["pin"]).await, guarded.key(&["pin"]).await, guarded.key(&["read"]).await);
    let pin = json!({ "cid": "bafkqaaa" }).to_string();
    for (token, status, reason) in [("", 401, "UNAUTHORIZED"), (&*reader, 403, "FORBIDDEN")] {
        let refused = guarded.send(Method::POST, PINS, token, Some(pin.clone())).await;
        assert_eq!(refused.status(), status);
        let failure: Value = refused.json().await.unwrap();
        assert_eq!(failure["error"]["reason"], reason);
    }
    let created: Value = guarded.send(Method::POST, PINS, &one, Some(pin)).await.json().await.unwrap();
    let path = format!("{PINS}/{}", created["requestid"].as_str().unwrap());
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(guarded.send(method, &path, &other, None).await.status(), 404);
    }
    let listed = async |token: &str| {
        let query = format!("{PINS}?status=queued,pinning,pinned");
        let listed: Value = guarded.send(Method::GET, &query, token, None).await.json().await.unwrap();
        listed["count"].clone()
    };
    assert_eq!((listed(&one).await, listed(&other).await), (json!(1), json!(0)));
    assert_eq!(guarded.send(Method::DELETE, &path, &one, None).await.status(), 202);
}
