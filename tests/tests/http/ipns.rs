//! IPNS records: storing them through the RPC and through delegated routing, serving them, and validating them.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ipfrs_http::HostConfig;
use ipfrs_ipns::{KeyType, Name, PrivateKey, Record};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::harness::{TestGateway, header, rpc_failure};
use crate::multipart::Form;

const MEDIA_TYPE: &str = "application/vnd.ipfs.ipns-record";
const HOUR: Duration = Duration::from_secs(3_600);
const TTL: Duration = Duration::from_secs(120);

/// A key with its name.
struct Named {
    key: PrivateKey,
    name: Name,
}

impl Named {
    fn new() -> Self {
        Self::of_type(KeyType::Ed25519, None)
    }

    fn of_type(key_type: KeyType, bits: Option<u32>) -> Self {
        let key = PrivateKey::generate(key_type, bits).unwrap();
        Self { name: Name::of(key.public()), key }
    }

    /// Returns a record that is valid for an hour.
    fn record(&self, value: &str, sequence: u64) -> Bytes {
        self.record_until(value, sequence, SystemTime::now() + HOUR)
    }

    fn record_until(&self, value: &str, sequence: u64, end: SystemTime) -> Bytes {
        Record::create(&self.key, value, sequence, end, TTL).unwrap().bytes().clone()
    }
}

/// Stores a record through the RPC.
async fn rpc_put(gateway: &TestGateway, name: &Name, record: impl AsRef<[u8]>) -> Response {
    gateway.post_form(&format!("routing/put?arg=/ipns/{name}"), Form::new().file("record", record)).await
}

/// Stores a record through delegated routing.
async fn http_put(gateway: &TestGateway, name: &Name, record: impl Into<Bytes>) -> Response {
    let request = gateway.request(Method::PUT, &format!("/routing/v1/ipns/{name}"));
    request.header("content-type", MEDIA_TYPE).body(record.into()).send().await.unwrap()
}

/// Stores a valid record.
async fn publish(gateway: &TestGateway, named: &Named, value: &str, sequence: u64) {
    assert_eq!(http_put(gateway, &named.name, named.record(value, sequence)).await.status(), 200);
}

async fn text_of(response: Response, status: u16) -> String {
    assert_eq!(response.status(), status);
    response.text().await.unwrap()
}

fn max_age(response: &Response) -> u64 {
    let directive =
        header(response, "cache-control").split(", ").find_map(|directive| directive.strip_prefix("max-age="));
    directive.unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_ipns_record_is_returned_by_every_api() {
    let gateway = TestGateway::start().await;
    for (key_type, bits) in
        [(KeyType::Ed25519, None), (KeyType::Rsa, Some(2_048)), (KeyType::Secp256k1, None), (KeyType::Ecdsa, None)]
    {
        let named = Named::of_type(key_type, bits);
        let (name, record) = (named.name, named.record("/ipfs/bafkqaaa", 0));
        let event: Value = rpc_put(&gateway, &name, &record).await.json().await.unwrap();
        assert_eq!(event, json!({"ID": name.peer_id(), "Type": 5, "Responses": null, "Extra": ""}));
        for form in [name.to_string(), name.peer_id(), format!("/ipns/{name}")] {
            let event = gateway.rpc_json(&format!("routing/get?arg={form}")).await;
            assert_eq!(event, json!({"ID": "", "Type": 5, "Responses": null, "Extra": STANDARD.encode(&record)}));
        }
        assert_eq!(gateway.content(&format!("/routing/v1/ipns/{name}")).await, record, "{key_type}");
        assert_eq!(gateway.content(&format!("/ipns/{name}?format=ipns-record")).await, record, "{key_type}");
        assert_eq!(http_put(&gateway, &name, record).await.status(), 200, "the same once more is no error");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delegated_routing_sets_record_max_age() {
    let gateway = TestGateway::start().await;
    let named = Named::new();
    publish(&gateway, &named, "/ipfs/bafkqaaa", 0).await;
    let path = format!("/routing/v1/ipns/{}", named.name);
    let response = gateway.get(&path).await;
    assert_eq!(header(&response, "content-type"), MEDIA_TYPE);
    assert_eq!(max_age(&response), 120);
    assert!(header(&response, "cache-control").contains("stale-while-revalidate=3"), "an hour is left");
    assert!(header(&response, "expires").ends_with(" GMT") && header(&response, "last-modified").ends_with(" GMT"));
    assert_eq!(header(&response, "access-control-allow-origin"), "*");
    let etag = header(&response, "etag").to_owned();
    let again = gateway.request(Method::GET, &path).header("if-none-match", &etag).send().await.unwrap();
    assert_eq!((again.status().as_u16(), header(&again, "etag")), (304, etag.as_str()));
    let other = gateway.request(Method::GET, &path).header("if-match", "\"other\"").send().await.unwrap();
    assert_eq!(other.status(), 412);
    let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
    assert_eq!(header(&head, "content-length"), header(&response, "content-length"));

    publish(&gateway, &named, "/ipfs/bafkqaaa", 1).await;
    assert_ne!(header(&gateway.get(&path).await, "etag"), etag, "another record has another tag");

    for (accept, status) in [("text/html", 406), ("text/html, */*;q=0.1", 200), (MEDIA_TYPE, 200)] {
        let response = gateway.request(Method::GET, &path).header("accept", accept).send().await.unwrap();
        assert_eq!(response.status(), status, "{accept}");
    }
    // IPIP-513: requesting a record that does not exist is not an error.
    let none = gateway.get(&format!("/routing/v1/ipns/{}", Named::new().name)).await;
    assert!(header(&none, "content-type").starts_with("text/plain"));
    assert_eq!(header(&none, "cache-control"), "public, max-age=15");
    assert!(text_of(none, 200).await.contains("no record of the IPNS name"));
    assert_eq!(gateway.get("/routing/v1/ipns/bafkqaaa").await.status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn delegated_routing_returns_no_providers() {
    let gateway = TestGateway::start().await;
    let cid = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    let peer = Named::new().name;
    for (path, body) in
        [(format!("/providers/{cid}"), r#"{"Providers":[]}"#), (format!("/peers/{peer}"), r#"{"Peers":[]}"#)]
    {
        let path = format!("/routing/v1{path}");
        assert_eq!(gateway.content(&path).await, body);
        let lines = gateway.request(Method::GET, &path).header("accept", "application/x-ndjson, application/json");
        let lines = lines.send().await.unwrap();
        assert_eq!(header(&lines, "content-type"), "application/x-ndjson");
        assert_eq!(text_of(lines, 200).await, "");
        let html = gateway.request(Method::GET, &path).header("accept", "text/html").send().await.unwrap();
        assert_eq!(html.status(), 406);
        let posted = gateway.request(Method::POST, &path).send().await.unwrap();
        assert_eq!((posted.status().as_u16(), header(&posted, "allow")), (405, "GET, HEAD, OPTIONS"));
    }
    assert_eq!(gateway.get("/routing/v1/providers/x").await.status(), 400);
    assert_eq!(gateway.get("/routing/v1/peers/x").await.status(), 400);
    assert_eq!(gateway.get(&format!("/routing/v1/dht/closest/peers/{peer}")).await.status(), 501);
}

#[tokio::test(flavor = "multi_thread")]
async fn browsers_and_public_hosts_only_read_records() {
    let gateway = TestGateway::start_with(|config| {
        config.gateway.hosts.insert("gateway.example".into(), HostConfig::default());
        config.dns.enabled = false;
    })
    .await;
    let named = Named::new();
    let path = format!("/routing/v1/ipns/{}", named.name);
    let preflight =
        gateway.request(Method::OPTIONS, &path).header("origin", "https://example.com").send().await.unwrap();
    assert_eq!(preflight.status(), 204);
    assert_eq!(header(&preflight, "access-control-allow-origin"), "*");
    assert_eq!(header(&preflight, "access-control-allow-methods"), "GET, HEAD, OPTIONS");
    let put = gateway.request(Method::PUT, &path).header("origin", "https://example.com");
    let put = put.header("content-type", MEDIA_TYPE).body(named.record("/ipfs/bafkqaaa", 0)).send().await.unwrap();
    assert_eq!(put.status(), 403);
    let at_name = |method| gateway.request(method, &path).header("host", "gateway.example");
    let put = at_name(Method::PUT).header("content-type", MEDIA_TYPE).body(named.record("/ipfs/bafkqaaa", 0));
    assert!(text_of(put.send().await.unwrap(), 403).await.contains("use the daemon's address"));
    assert!(at_name(Method::GET).send().await.unwrap().text().await.unwrap().contains("no record"));
    assert!(gateway.get(&path).await.text().await.unwrap().contains("no record"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_gives_a_record_as_a_file() {
    let gateway = TestGateway::start().await;
    let named = Named::new();
    let name = named.name;
    let cid = gateway.add("", "x").await;
    publish(&gateway, &named, &format!("/ipfs/{cid}"), 0).await;
    let asked = gateway.request(Method::GET, &format!("/ipns/{name}?a=b")).header("accept", MEDIA_TYPE);
    let response = asked.send().await.unwrap();
    for (header_name, value) in [
        ("content-type", MEDIA_TYPE.to_owned()),
        ("cache-control", "public, max-age=120".to_owned()),
        ("x-content-type-options", "nosniff".to_owned()),
        ("content-location", format!("/ipns/{name}?a=b&format=ipns-record")),
        ("x-ipfs-path", format!("/ipns/{name}")),
        ("access-control-allow-origin", "*".to_owned()),
    ] {
        assert_eq!(header(&response, header_name), value, "{header_name}");
    }
    let file = format!("attachment; filename=\"{name}.ipns-record\"");
    assert!(header(&response, "content-disposition").starts_with(&file));
    let etag = header(&response, "etag").to_owned();
    let path = format!("/ipns/{}?format=ipns-record", name.peer_id());
    let known = gateway.request(Method::GET, &path).header("if-none-match", etag).send().await.unwrap();
    assert_eq!(known.status(), 304);
    let named_file = gateway.get(&format!("/ipns/{name}?format=ipns-record&filename=a.bin")).await;
    assert!(header(&named_file, "content-disposition").starts_with("attachment; filename=\"a.bin\""));
    let head = gateway.request(Method::HEAD, &path).send().await.unwrap();
    assert_eq!(header(&head, "content-length"), header(&response, "content-length"));

    // A response must not be cached beyond the validity of its record.
    let short = Named::new();
    let end = SystemTime::now() + Duration::from_secs(60);
    let record = short.record_until("/ipfs/bafkqaaa", 0, end);
    assert_eq!(http_put(&gateway, &short.name, record).await.status(), 200);
    assert!(max_age(&gateway.get(&format!("/ipns/{}?format=ipns-record", short.name)).await) <= 60);

    for path in [format!("/ipfs/{cid}"), format!("/ipns/{name}/a"), "/ipns/example.org".into(), "/ipns/x".into()] {
        assert_eq!(gateway.get(&format!("{path}?format=ipns-record")).await.status(), 400, "{path}");
    }
    let unknown = gateway.get(&format!("/ipns/{}?format=ipns-record", Named::new().name)).await;
    assert!(text_of(unknown, 404).await.contains("no record of the IPNS name"));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_not_valid_are_refused_and_change_nothing() {
    let gateway = TestGateway::start().await;
    let (named, other) = (Named::new(), Named::new());
    let good = named.record("/ipfs/bafkqaaa", 0);
    let changed = |at: usize| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    // The value appears first in the V1 fields, and again in the signed data.
    let signed_value = good.windows(8).rposition(|bytes| bytes == b"bafkqaaa").unwrap();
    let end = SystemTime::now() - Duration::from_secs(1);
    for (record, why) in [
        (changed(5), "its field value does not match the signed data"),
        (changed(signed_value), "its signature was not created by the name's key"),
        (other.record("/ipfs/bafkqaaa", 0).to_vec(), "its signature was not created by the name's key"),
        (named.record_until("/ipfs/bafkqaaa", 0, end).to_vec(), "it expired at"),
        (good[..good.len() - 10].to_vec(), "it is not valid protobuf"),
        (Vec::new(), "no V2 signature"),
    ] {
        let refused = text_of(http_put(&gateway, &named.name, record.clone()).await, 400).await;
        assert!(refused.contains(why), "{why}: {refused}");
        let refused = rpc_failure(rpc_put(&gateway, &named.name, &record).await).await;
        assert!(refused.contains(why), "{why}: {refused}");
    }
    assert_eq!(http_put(&gateway, &named.name, vec![0; 11_000]).await.status(), 413);
    assert!(rpc_failure(rpc_put(&gateway, &named.name, vec![0; 11_000]).await).await.contains("10240 bytes"));
    let untyped = gateway.request(Method::PUT, &format!("/routing/v1/ipns/{}", named.name)).body(good);
    assert_eq!(untyped.send().await.unwrap().status(), 406);
    let missing =
        rpc_failure(gateway.rpc(&format!("routing/get?arg=/ipns/{}", named.name)).send().await.unwrap()).await;
    assert!(missing.contains("no record of the IPNS name"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn newest_ipns_record_takes_effect_and_persists() {
    let gateway = TestGateway::start().await;
    let named = Named::new();
    let (one, two) = (gateway.add("", "one").await, gateway.add("", "two").await);
    let path = format!("/ipns/{}", named.name);
    publish(&gateway, &named, &format!("/ipfs/{one}"), 4).await;
    assert_eq!(gateway.content(&path).await, "one");
    publish(&gateway, &named, &format!("/ipfs/{two}"), 5).await;
    assert_eq!(gateway.content(&path).await, "two");

    let older = text_of(http_put(&gateway, &named.name, named.record(&format!("/ipfs/{one}"), 4)).await, 409).await;
    assert!(older.contains("with sequence 5 instead of 4"), "{older}");
    let shorter = named.record_until(&format!("/ipfs/{one}"), 5, SystemTime::now() + TTL);
    let shorter = rpc_failure(rpc_put(&gateway, &named.name, shorter).await).await;
    assert!(shorter.contains("the same sequence 5 and is valid for longer"), "{shorter}");
    assert_eq!(gateway.content(&path).await, "two");

    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    assert_eq!(gateway.content(&path).await, "two");
    let gateway = TestGateway::start_on(gateway.stop().await, |config| config.store.read_only = true).await;
    assert_eq!(gateway.content(&path).await, "two");
    let refused = http_put(&gateway, &named.name, named.record(&format!("/ipfs/{one}"), 6)).await;
    assert!(text_of(refused, 403).await.contains("read-only"));
}

#[tokio::test(flavor = "multi_thread")]
async fn ipns_chains_resolve_in_every_path_argument() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a/b.txt", "hello")]).await;
    let (first, second) = (Named::new(), Named::new());
    publish(&gateway, &second, &format!("/ipfs/{root}/a"), 0).await;
    publish(&gateway, &first, &format!("/ipns/{}", second.name), 0).await;
    let path = format!("/ipns/{}/b.txt", first.name);
    assert_eq!(gateway.content(&path).await, "hello");
    assert_eq!(gateway.rpc_bytes(&format!("cat?arg={path}")).await, "hello");
    let by_scheme = format!("ipns://{}/b.txt", first.name.peer_id());
    assert_eq!(gateway.rpc_bytes(&format!("cat?arg={by_scheme}")).await, "hello");
    let file =
        gateway.rpc_json(&format!("ls?arg=/ipns/{}", first.name)).await["Objects"][0]["Links"][0]["Hash"].clone();
    for (command, answer) in [("dag/resolve", "/Cid/~1"), ("block/stat", "/Key"), ("pin/add", "/Pins/0")] {
        let given = gateway.rpc_json(&format!("{command}?arg={path}")).await;
        assert_eq!(given.pointer(answer), Some(&file), "{command}: {given}");
    }
    let name = first.name.to_string();
    let name = name.as_str();
    for (path, saved) in [
        (path, "b.txt"),
        (format!("/ipns/{name}"), name),
        (format!("ipns:{name}"), name),
        (format!("IPNS://{name}/"), name),
        (format!("/ipns/{name}/b.txt/.."), name),
    ] {
        let archive = gateway.rpc_bytes(&format!("get?arg={path}")).await;
        assert!(archive.starts_with(saved.as_bytes()), "{path} is archived as {saved}");
    }
    assert_eq!(gateway.metric(r#"ipfrs_name_resolutions_total{kind="key",outcome="resolved"}"#).await, 12);
}

#[tokio::test(flavor = "multi_thread")]
async fn unresolvable_name_error_states_the_reason() {
    let gateway = TestGateway::start_with(|config| config.dns.enabled = false).await;
    let [unknown, circle, back, lost, odd] = std::array::from_fn(|_| Named::new());
    publish(&gateway, &circle, &format!("/ipns/{}/a", back.name), 0).await;
    publish(&gateway, &back, &format!("/ipns/{}", circle.name), 0).await;
    publish(&gateway, &lost, &format!("/ipns/{}", unknown.name), 0).await;
    publish(&gateway, &odd, "nowhere", 0).await;
    let no_record = format!("no record of the IPNS name {} is stored here", unknown.name);
    for (name, why) in [
        (&unknown, no_record.clone()),
        (&lost, no_record),
        (&circle, format!("/ipns/{} leads back to itself", circle.name)),
        (&odd, format!("/ipns/{} cannot be resolved", odd.name)),
    ] {
        let path = format!("/ipns/{}", name.name);
        let text = text_of(gateway.get(&path).await, 500).await;
        assert!(text.contains(&format!("failed to resolve {path}: ")) && text.contains(&why), "{text}");
        let text = rpc_failure(gateway.rpc(&format!("cat?arg={path}")).send().await.unwrap()).await;
        assert!(text.contains(&why), "{text}");
    }
    // A chain of 32 names is resolved, and a longer one is not.
    let chain: Vec<_> = (0..33).map(|_| Named::new()).collect();
    publish(&gateway, &chain[32], "/ipfs/bafkqaaa", 0).await;
    for pair in chain.windows(2) {
        publish(&gateway, &pair[0], &format!("/ipns/{}", pair[1].name), 0).await;
    }
    assert_eq!(gateway.get(&format!("/ipns/{}", chain[1].name)).await.status(), 200);
    let text = text_of(gateway.get(&format!("/ipns/{}", chain[0].name)).await, 500).await;
    assert!(text.contains("more than 32 names"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_not_served_and_can_be_replaced() {
    let gateway = TestGateway::start_with(|config| config.ipns.max_records = 1).await;
    let named = Named::new();
    publish(&gateway, &named, "/ipfs/bafkqaaa", 3).await;
    let full =
        text_of(http_put(&gateway, &Named::new().name, Named::new().record("/ipfs/bafkqaaa", 0)).await, 400).await;
    assert!(full.contains("signature"), "a record is checked before room is looked for: {full}");
    let other = Named::new();
    let full = text_of(http_put(&gateway, &other.name, other.record("/ipfs/bafkqaaa", 0)).await, 429).await;
    assert_eq!(gateway.metric("ipfrs_refusals_total{limit=\"capacity\"}").await, 1);
    assert!(full.contains("ipns.max_records"), "{full}");

    let repo = gateway.stop().await;
    let file = repo.path().join(format!("ipns/{}.ipns-record", named.name));
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() - 20;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    let text = text_of(gateway.get(&format!("/ipns/{}?format=ipns-record", named.name)).await, 500).await;
    assert!(text.contains("is damaged: store the record of the name again"), "{text}");
    publish(&gateway, &named, "/ipfs/bafkqaaa", 0).await;
    assert_eq!(
        gateway.content(&format!("/ipns/{}?format=ipns-record", named.name)).await.len(),
        std::fs::read(&file).unwrap().len()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_keeps_its_own_names_valid() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "x").await;
    let name = gateway.rpc_json(&format!("name/publish?arg={cid}&lifetime=1h&ttl=5m")).await["Name"].clone();
    let path = format!("/routing/v1/ipns/{}", name.as_str().unwrap());
    let published = Record::parse(gateway.content(&path).await).unwrap();

    let gateway = TestGateway::start_on(gateway.stop().await, |config| config.ipns.republish = false).await;
    assert_eq!(Record::parse(gateway.content(&path).await).unwrap(), published);
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    let renewed = loop {
        let record = Record::parse(gateway.content(&path).await).unwrap();
        if record != published {
            break record;
        }
    };
    assert!(renewed.validity() > published.validity() + 40 * HOUR);
    assert_eq!(renewed.sequence(), published.sequence());
    assert_eq!((renewed.value(), renewed.ttl()), (published.value(), published.ttl()));
    assert_eq!(gateway.content(&format!("/ipns/{}", name.as_str().unwrap())).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_ipns_record_is_replaced_by_any_valid_one() {
    let repo = TestGateway::start().await.stop().await;
    let named = Named::new();
    let record = named.record_until("/ipfs/bafkqaaa", 9, SystemTime::now() - Duration::from_secs(1));
    std::fs::create_dir(repo.path().join("ipns")).unwrap();
    std::fs::write(repo.path().join(format!("ipns/{}.ipns-record", named.name)), record).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    let path = format!("/ipns/{}", named.name);
    for (path, status) in [(path.clone(), 500), (format!("{path}?format=ipns-record"), 404)] {
        let text = text_of(gateway.get(&path).await, status).await;
        assert!(text.contains("expired at") && text.contains("must publish a new one"), "{text}");
    }
    publish(&gateway, &named, "/ipfs/bafkqaaa", 8).await;
    assert_eq!(gateway.get(&path).await.status(), 200);
}
