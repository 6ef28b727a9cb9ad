//! Denylists (`gateway.denylists`): no route and no format serves blocked content.

use std::fs;
use std::time::Duration;

use ipfrs_core::hash::sha2_256;
use ipfrs_core::{Cid, parse_cid};
use ipfrs_http::HostConfig;
use ipfrs_interface::{Config, Gateway};
use reqwest::{Method, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::batch_get::problem;
use crate::content;
use crate::harness::{TestGateway, header, rpc_failure};
use crate::wire::exchange;

const BAD: &str = "what nobody is to see";
/// "hello" in an identity hash.
const INLINE: &str = "bafkqabtimvwgy3yk";

/// Returns a repo with the content that `fill` stores before anything is blocked.
async fn repo(fill: impl AsyncFnOnce(&TestGateway) -> Vec<String>) -> (TempDir, Vec<String>) {
    let gateway = TestGateway::start().await;
    let cids = fill(&gateway).await;
    let repo = gateway.stop().await;
    fs::create_dir(repo.path().join("denylists")).unwrap();
    (repo, cids)
}

/// Starts a gateway on a repo with `texts` as `denylists/0.deny`, `denylists/1.deny` and so on.
async fn start(repo: TempDir, texts: &[&str], change: impl FnOnce(&mut Config)) -> TestGateway {
    for (number, text) in texts.iter().enumerate() {
        fs::write(repo.path().join(format!("denylists/{number}.deny")), text).unwrap();
    }
    TestGateway::start_on(repo, |config| {
        config.gateway.denylists = vec!["denylists".into()];
        change(config);
    })
    .await
}

/// Adds a tree with a bad file in a nested directory, and a large file. Returns the content IDs of the root, the bad
/// file, the large file and its last leaf.
async fn tree(gateway: &TestGateway) -> Vec<String> {
    let root = gateway.add_tree("cid-version=1", &[("d/in/bad.txt", BAD), ("d/in/good.txt", "good")]).await;
    let bad = resolve(gateway, &format!("{root}/in/bad.txt")).await;
    let bytes = content::bytes(3 * 262_144);
    let large = gateway.add("cid-version=1", bytes.clone()).await;
    let leaf = gateway.add("cid-version=1", bytes.slice(2 * 262_144..)).await;
    vec![root, bad, large, leaf]
}

async fn resolve(gateway: &TestGateway, path: &str) -> String {
    let answer = gateway.rpc_json(&format!("dag/resolve?arg={path}")).await;
    answer["Cid"]["/"].as_str().unwrap().to_owned()
}

async fn assert_gone(response: Response, what: &str) {
    assert_eq!(response.status(), 410, "{what}");
    assert_eq!(header(&response, "cache-control"), "no-store", "{what}");
    let text = response.text().await.unwrap();
    assert!(text.contains("is blocked and cannot be provided"), "{what}: {text}");
}

/// Returns the content ID of the same block with another codec.
fn under(codec: u64, cid: &str) -> String {
    Cid::new_v1(codec, *parse_cid(cid).unwrap().hash()).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_block_is_refused_by_every_front_end() {
    let (repo, cids) = repo(tree).await;
    let [root, bad, ..] = cids.as_slice() else { panic!() };
    let gateway = start(repo, &[&format!("/ipfs/{bad}\n/ipfs/{INLINE}\n/ipns/bad.example.org\n")], |config| {
        let host = HostConfig { subdomains: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), host);
        config.gateway.dnslink.insert("site.example.org".into(), format!("/ipfs/{root}/in"));
        config.gateway.dnslink.insert("bad.example.org".into(), format!("/ipfs/{root}/in"));
    })
    .await;
    let (as_dag_pb, as_cbor) = (under(0x70, bad), under(0x71, bad));
    let v0 = Cid::new_v0(*parse_cid(bad).unwrap().hash()).unwrap().to_string();
    let names = [bad.clone(), as_dag_pb, as_cbor, v0, INLINE.to_owned(), format!("{root}/in/bad.txt")];
    for name in &names {
        for query in
            ["", "?format=raw", "?format=car", "?format=tar", "?format=dag-json", "?format=json", "?download=true"]
        {
            let path = format!("/ipfs/{name}{query}");
            assert_gone(gateway.get(&path).await, &path).await;
            let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
            assert_eq!(head.status(), 410, "HEAD {path}");
        }
        let ranged = gateway.request(Method::GET, &format!("/ipfs/{name}")).header("range", "bytes=0-3");
        assert_gone(ranged.send().await.unwrap(), "a range").await;
        let tagged = gateway.request(Method::GET, &format!("/ipfs/{name}")).header("if-none-match", "*");
        assert_gone(tagged.send().await.unwrap(), "a condition").await;
        for command in ["cat", "block/get", "block/stat", "dag/get", "dag/export", "dag/stat", "get", "ls"] {
            let message = rpc_failure(gateway.rpc(&format!("{command}?arg={name}")).send().await.unwrap()).await;
            assert!(message.contains("is blocked and cannot be provided"), "{command} {name}: {message}");
        }
        problem(gateway.get(&format!("/v1/stream/download/{name}")).await, 410, "gone").await;
    }
    assert_gone(gateway.get("/ipns/site.example.org/bad.txt").await, "a name leads there").await;
    for (host, path) in [
        (format!("{bad}.ipfs.example.com"), "/"),
        ("site-example-org.ipns.example.com".into(), "/bad.txt"),
        ("bad-example-org.ipns.example.com".into(), "/good.txt"),
        ("bad.example.org".into(), "/good.txt"),
        ("example.com".into(), "/ipns/bad.example.org"),
        (gateway.address().to_string(), "/ipns/bad.example.org/good.txt"),
    ] {
        let request = gateway.request(Method::GET, path).header("host", &host);
        assert_gone(request.send().await.unwrap(), &host).await;
    }
    let good = resolve(&gateway, &format!("{root}/in/good.txt")).await;
    let got = gateway.v1_json("block/batch/get", &json!({"cids": [good, bad, good]})).await;
    assert_eq!((got["blocks"].as_array().unwrap().len(), got["errors"].as_array().unwrap().len()), (2, 1), "{got}");
    assert_eq!((&got["errors"][0]["cid"], &got["errors"][0]["code"]), (&json!(bad), &json!("gone")), "{got}");
    let has = gateway.v1_json("block/batch/has", &json!({"cids": [good, bad]})).await;
    assert_eq!((&has["results"][0]["exists"], &has["results"][1]["exists"]), (&json!(true), &json!(false)), "{has}");
    assert!(gateway.metric("ipfrs_denylist_blocked_total{kind=\"block\"}").await > 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_around_a_blocked_block_is_served() {
    let (repo, cids) = repo(tree).await;
    let [root, bad, large, leaf] = cids.as_slice() else { panic!() };
    let gateway = start(repo, &[&format!("/ipfs/{bad}\n"), &format!("/ipfs/{leaf}\n")], |_| {}).await;
    assert_eq!(gateway.content(&format!("/ipfs/{root}/in/good.txt")).await, "good");
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/in/")).await.to_vec()).unwrap();
    assert!(page.contains("bad.txt") && page.contains("good.txt"), "{page}");
    let listed = gateway.rpc_json(&format!("ls?arg={root}/in")).await;
    assert_eq!(listed["Objects"][0]["Links"].as_array().unwrap().len(), 2, "{listed}");
    for whole in
        [format!("{root}?format=raw"), format!("{root}?format=car&dag-scope=entity"), format!("{root}/in?format=raw")]
    {
        gateway.content(&format!("/ipfs/{whole}")).await;
    }
    for request in [
        format!("GET /ipfs/{root}?format=car HTTP/1.1"),
        format!("GET /ipfs/{root}/in?format=tar HTTP/1.1"),
        format!("GET /ipfs/{large} HTTP/1.1"),
        format!("GET /ipfs/{large}?format=car HTTP/1.1"),
        format!("GET /v1/stream/download/{large} HTTP/1.1"),
        format!("POST /api/v0/dag/export?arg={root} HTTP/1.1\r\nContent-Length: 0"),
        format!("POST /api/v0/get?arg={root} HTTP/1.1\r\nContent-Length: 0"),
        format!("POST /api/v0/cat?arg={large} HTTP/1.1\r\nContent-Length: 0"),
    ] {
        let answer = exchange(&gateway, &request).await;
        assert!(!answer.is_complete || answer.status >= 400, "{request}: {} looks whole", answer.status);
        let shown = answer.body.windows(BAD.len()).any(|window| window == BAD.as_bytes());
        assert!(!shown, "{request} shows it");
    }
    // The bytes before the blocked block are served.
    let range = gateway.request(Method::GET, &format!("/ipfs/{large}")).header("range", "bytes=0-524287");
    assert_eq!(range.send().await.unwrap().status(), 206);
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_content_is_refused_but_can_be_pinned_or_gced() {
    let (repo, cids) = repo(tree).await;
    let [root, bad, large, _] = cids.as_slice() else { panic!() };
    let gateway = start(repo, &[&format!("/ipfs/{bad}/*\n")], |_| {}).await;
    let message = rpc_failure(
        gateway
            .rpc("add?cid-version=1")
            .header("content-type", "application/octet-stream")
            .body(BAD)
            .send()
            .await
            .unwrap(),
    )
    .await;
    assert!(message.contains("is blocked"), "{message}");
    let put = json!({"blocks": [{"data": "Z29vZA=="}, {"data": base64(BAD)}], "transaction_mode": "best_effort"});
    let outcome = gateway.v1("block/batch/put", &put).await.json::<Value>().await.unwrap();
    assert!(outcome.to_string().contains("is blocked"), "{outcome}");
    // Pins, checks and garbage collection only affect the store and serve no content, so they succeed.
    gateway.rpc_bytes(&format!("pin/verify?arg={root}")).await;
    gateway.rpc_json(&format!("pin/add?arg={root}/in/bad.txt")).await;
    gateway.rpc_bytes("repo/verify").await;
    let before = gateway.blocks().await;
    gateway.rpc_bytes("repo/gc").await;
    assert_eq!(gateway.blocks().await, before, "all of it is pinned");
    gateway.rpc_json(&format!("pin/rm?arg={root}&arg={large}&arg={bad}")).await;
    gateway.rpc_bytes("repo/gc").await;
    assert!(gateway.blocks().await < before);
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Returns the current double-hash rule for a path below a root.
fn modern(cid: &str, path: &str) -> String {
    let slash = if path.is_empty() { "" } else { "/" };
    let text = format!("{}{slash}{path}", Cid::new_v0(*parse_cid(cid).unwrap().hash()).unwrap());
    format!("//{}", Cid::new_v0(sha2_256(text.as_bytes())).unwrap())
}

/// Returns the legacy double-hash rule for a CIDv1.
fn legacy(cid: &str, path: &str) -> String {
    let hash = sha2_256(format!("{cid}/{path}").as_bytes());
    let hex: String = hash.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("//{hex}")
}

#[tokio::test(flavor = "multi_thread")]
async fn denylist_rules_apply_and_later_rules_override() {
    let (mut repo, cids) = repo(async |gateway| {
        let mut cids = tree(gateway).await;
        for number in 0..4 {
            cids.push(gateway.add("cid-version=1", format!("file {number}")).await);
        }
        cids
    })
    .await;
    let (root, files) = (cids[0].clone(), cids[4..].to_vec());
    for (rules, path, expected) in [
        (modern(&files[0], ""), format!("/ipfs/{}", files[0]), 410),
        (modern(&files[0], ""), format!("/ipfs/{}", files[2]), 200),
        (legacy(&files[1], ""), format!("/ipfs/{}", files[1]), 410),
        (legacy(INLINE, ""), format!("/ipfs/{INLINE}"), 410),
        (legacy(&files[1], ""), format!("/ipfs/{}?format=raw", under(0x70, &files[1])), 200),
        (modern(&root, "in/good.txt"), format!("/ipfs/{root}/in/good.txt"), 410),
        (legacy(&root, "in/good.txt"), format!("/ipfs/{root}/in/good.txt"), 410),
        (legacy(&root, "in/good.txt"), format!("/ipfs/{root}/in/bad.txt"), 200),
        (format!("/ipfs/{root}/in/good.txt"), format!("/ipfs/{root}/in/good.txt"), 410),
        (format!("/ipfs/{root}/in/good%2Etxt"), format!("/ipfs/{root}/in/good.txt"), 410),
        (format!("/ipfs/{root}/in%2Fgood.txt"), format!("/ipfs/{root}/in/good.txt"), 410),
        (format!("/ipfs/{root}/in/good.txt"), format!("/ipfs/{root}/in%2Fgood.txt"), 410),
        (format!("/ipfs/{root}/in/good.txt"), format!("/ipfs/{root}/x%2F..%2Fin//good.txt"), 410),
        (format!("/ipfs/{root}/in/g*"), format!("/ipfs/{root}/in/good.txt"), 410),
        (format!("/ipfs/{root}/in/g*"), format!("/ipfs/{root}/in/bad.txt"), 200),
        (format!("/ipfs/{root}/in/*"), format!("/ipfs/{root}/in/bad.txt"), 410),
        (format!("/ipfs/{root}/*"), format!("/ipfs/{root}/"), 410),
        (format!("/ipfs/{root}"), format!("/ipfs/{root}/in/bad.txt"), 410),
        (format!("/ipfs/{root}/in/*\n!/ipfs/{root}/in/good.txt"), format!("/ipfs/{root}/in/good.txt"), 200),
        (format!("/ipfs/{root}/in/*\n!/ipfs/{root}/in/good.txt"), format!("/ipfs/{root}/in/bad.txt"), 410),
        (format!("{}\n!/ipfs/{}", modern(&files[0], ""), files[0]), format!("/ipfs/{}", files[0]), 200),
        ("/ipns/site.example.org".into(), "/ipns/site.example.org/in/good.txt".into(), 410),
        ("/ipns/site.example.org/in/g*".into(), "/ipns/site.example.org/in/good.txt".into(), 410),
        ("/ipns/site.example.org/in/g*".into(), "/ipns/site.example.org%2Fin/good.txt".into(), 410),
        ("/ipns/site.example.org/in/g*".into(), "/ipns/site.example.org/in/bad.txt".into(), 200),
        ("/ipns/site.example.org/in/g*".into(), "/ipns/by.example.org/good.txt".into(), 200),
        ("/ipns/site.example.org/in".into(), "/ipns/by.example.org/good.txt".into(), 410),
        ("/ipns/site.example.org/*".into(), "/ipns/by.example.org/good.txt".into(), 410),
    ] {
        let gateway = start(repo, &[&rules], |config| {
            config.gateway.dnslink.insert("site.example.org".into(), format!("/ipfs/{root}"));
            config.gateway.dnslink.insert("by.example.org".into(), "/ipns/site.example.org/in".into());
        })
        .await;
        assert_eq!(gateway.get(&path).await.status(), expected, "{rules}: {path}");
        repo = gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocked_key_is_neither_resolved_nor_served() {
    let (repo, cids) = repo(async |gateway| {
        let file = gateway.add("", "published").await;
        gateway.rpc_json(&format!("name/publish?arg={file}")).await;
        let key = gateway.rpc_json("key/list").await["Keys"][0]["Id"].as_str().unwrap().to_owned();
        let peer = gateway.rpc_json("id").await["ID"].as_str().unwrap().to_owned();
        assert_eq!(gateway.content(&format!("/ipns/{key}")).await, "published");
        vec![key, peer, file]
    })
    .await;
    let [key, peer, file] = cids.as_slice() else { panic!() };
    assert_ne!(key, peer, "two forms of one name");
    let gateway = start(repo, &[&format!("/ipns/{peer}\n")], |config| {
        config.gateway.dnslink.insert("by.example.org".into(), format!("/ipns/{key}"));
    })
    .await;
    for path in [format!("/ipns/{key}"), format!("/ipns/{key}?format=ipns-record"), "/ipns/by.example.org".into()] {
        assert_gone(gateway.get(&path).await, &path).await;
    }
    for command in
        [format!("name/resolve?arg={key}"), format!("cat?arg=/ipns/{peer}"), format!("resolve?arg=/ipns/{key}")]
    {
        let message = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
        assert!(message.contains("is blocked and cannot be provided"), "{command}: {message}");
    }
    let record = gateway.get(&format!("/routing/v1/ipns/{key}")).await;
    assert!(!record.status().is_success(), "{record:?}");
    assert_eq!(gateway.content(&format!("/ipfs/{file}")).await, "published", "what a name leads to is another matter");
}

#[tokio::test(flavor = "multi_thread")]
async fn denylist_hints_set_the_reason_and_status_451() {
    let (repo, cids) = repo(tree).await;
    let [_, bad, large, leaf] = cids.as_slice() else { panic!() };
    let list = format!(
        "name: Court orders\nhints:\n  gateway_status: 451\n---\n/ipfs/{bad} reason:order-17\n/ipfs/{large} gateway_status=410\n\
         /ipfs/{leaf}\n"
    );
    let gateway = start(repo, &[&list], |_| {}).await;
    let refused = gateway.get(&format!("/ipfs/{bad}")).await;
    assert_eq!((refused.status().as_u16(), header(&refused, "cache-control")), (451, "no-store"));
    let text = refused.text().await.unwrap();
    assert!(text.contains("(denylist Court orders, reason: order-17)"), "{text}");
    assert_eq!(gateway.get(&format!("/ipfs/{large}")).await.status(), 410);
    problem(gateway.get(&format!("/v1/stream/download/{leaf}")).await, 451, "legal_reasons").await;
}

/// Repeats the request until the response has this status.
async fn until_status(gateway: &TestGateway, path: &str, status: u16) {
    let asking = async { while gateway.get(path).await.status() != status {} };
    tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap_or_else(|_| panic!("{path} never was {status}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_denylists_reload_and_invalidate_caches() {
    let (repo, cids) = repo(tree).await;
    let [root, bad, ..] = cids.as_slice() else { panic!() };
    let dir = repo.path().join("denylists");
    let gateway = start(repo, &["name: first\n---\n"], |_| {}).await;
    let (file, inside) = (format!("/ipfs/{bad}"), format!("/ipfs/{root}/in/bad.txt"));
    let block = format!("{file}?format=raw");
    // Twice each, so that the results are cached.
    for path in [&file, &inside, &block, &file, &inside, &block] {
        gateway.content(path).await;
    }
    let rules =
        |number: u8| format!("ipfrs_denylist_rules{{list=\"{}\"}}", dir.join(format!("{number}.deny")).display());
    // Append a rule.
    fs::write(dir.join("0.deny"), format!("name: first\n---\n{inside}\n")).unwrap();
    until_status(&gateway, &inside, 410).await;
    gateway.assert_metric(&rules(0), 1).await;
    gateway.content(&file).await;
    let appended = fs::OpenOptions::new().append(true).open(dir.join("0.deny"));
    std::io::Write::write_all(&mut appended.unwrap(), format!("/ipfs/{bad}\n").as_bytes()).unwrap();
    until_status(&gateway, &file, 410).await;
    assert_gone(gateway.get(&block).await, "its block").await;
    gateway.assert_metric(&rules(0), 2).await;
    // An invalid list: the previous rules stay in effect.
    fs::write(dir.join("new"), "version: 9\n---\n").unwrap();
    fs::rename(dir.join("new"), dir.join("0.deny")).unwrap();
    gateway.assert_metric("ipfrs_denylist_reload_failures_total", 1).await;
    assert_gone(gateway.get(&file).await, "the previous rules").await;
    // A second list, whose later rules allow the content.
    fs::write(dir.join("1.deny"), format!("!/ipfs/{bad}\n")).unwrap();
    until_status(&gateway, &file, 200).await;
    assert_gone(gateway.get(&inside).await, "a rule of the first list").await;
    // Remove the second list, and then the first one.
    fs::remove_file(dir.join("1.deny")).unwrap();
    until_status(&gateway, &file, 410).await;
    fs::remove_file(dir.join("0.deny")).unwrap();
    until_status(&gateway, &inside, 200).await;
    gateway.content(&file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_denylist_prevents_startup() {
    for (name, content, expected) in
        [("missing.deny", None, "missing.deny"), ("broken.deny", Some("version: 9\n---\n"), "version 9")]
    {
        let repo = tempfile::tempdir().unwrap();
        if let Some(content) = content {
            fs::write(repo.path().join(name), content).unwrap();
        }
        let mut config = Config::default();
        config.server.port = 0;
        config.grpc.port = Some(0);
        config.api.enabled = false;
        config.gateway.denylists = vec![name.into()];
        let error = Gateway::bind(&config, repo.path()).await.unwrap_err();
        assert!(error.message().contains(name) && error.message().contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_of_file_with_blocked_beginning_has_the_status_of_get() {
    let (_repo, cids) = repo(async |gateway| {
        let bytes = content::bytes(3 * 262_144);
        let file = gateway.add("cid-version=1", bytes.clone()).await;
        let leaves = [0..262_144, 2 * 262_144..3 * 262_144].map(|range| bytes.slice(range));
        let [first, last] = leaves.map(|leaf| gateway.add("cid-version=1", leaf));
        vec![file, first.await, last.await]
    })
    .await;
    let [file, first, last] = cids.as_slice() else { panic!() };
    for (blocked, whole, end) in [(first, 410, 200), (last, 200, 410)] {
        let (copy, _) = repo(async |gateway| {
            gateway.add("cid-version=1", content::bytes(3 * 262_144)).await;
            Vec::new()
        })
        .await;
        let gateway = start(copy, &[&format!("/ipfs/{blocked}\n")], |_| {}).await;
        let path = format!("/ipfs/{file}");
        let named = format!("{path}?filename=video.mp4");
        let download = format!("/v1/stream/download/{file}");
        for (path, range, status) in [
            (&path, "", whole),
            (&named, "", whole),
            (&format!("{path}?format=tar"), "", whole),
            (&download, "", whole),
            (&format!("{download}?offset=600000"), "", end),
            (&path, "bytes=600000-600009", end),
            (&path, "bytes=600000-600009,700000-700009", end),
            (&path, "bytes=300000-300009", 200),
        ] {
            for method in [Method::GET, Method::HEAD] {
                let request = gateway.request(method.clone(), path);
                let request = if range.is_empty() { request } else { request.header("range", range) };
                let found = request.send().await.unwrap().status().as_u16();
                let expected = if range.is_empty() || status == 410 { status } else { 206 };
                assert_eq!(found, expected, "{method} {path} {range} without {blocked}");
            }
        }
    }
}
