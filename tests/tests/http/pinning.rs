//! The pinning service API, and pins at such services.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;

use http::Method;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Block, codec};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::source_server::{SourceServer, write_head};

const PINS: &str = "/pinning/v1/pins";
const ALL: &str = "status=queued,pinning,pinned,failed";
/// ID of content that does not exist.
const UNKNOWN: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";

async fn with_peers() -> TestGateway {
    TestGateway::start_with(|config| {
        config.retrieval.bitswap.enabled = true;
        config.retrieval.bitswap.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
    })
    .await
}

async fn send(gateway: &TestGateway, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let mut request = gateway.request(method, path);
    if !body.is_null() {
        request = request.body(body.to_string());
    }
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or_default())
}

async fn get(gateway: &TestGateway, path: &str) -> Value {
    let (status, body) = send(gateway, Method::GET, path, &Value::Null).await;
    assert_eq!(status, 200, "{path}: {body}");
    body
}

/// Requests a pin and returns its ID.
async fn request(gateway: &TestGateway, path: &str, pin: Value) -> String {
    let (status, created) = send(gateway, Method::POST, path, &pin).await;
    assert_eq!((status, &created["pin"]), (202, &pin), "{created}");
    created["requestid"].as_str().unwrap().to_owned()
}

async fn until_state(gateway: &TestGateway, id: &str, state: &str) -> Value {
    loop {
        let status = get(gateway, &format!("{PINS}/{id}")).await;
        if status["status"] == state {
            return status;
        }
        tokio::task::yield_now().await;
    }
}

async fn remove(gateway: &TestGateway, id: &str) {
    assert_eq!(send(gateway, Method::DELETE, &format!("{PINS}/{id}"), &Value::Null).await.0, 202);
}

async fn recursive_pins(gateway: &TestGateway) -> Value {
    gateway.rpc_json("pin/ls?type=recursive&names=true").await["Keys"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn content_is_pinned_at_another_node() {
    let (service, client) = (with_peers().await, with_peers().await);
    let cid = client.add("cid-version=1&pin=false", vec![7; 1_000_000]).await;
    let endpoint = service.url("//pinning//v1/");
    let command = |command: String| client.rpc(&command).send();
    let added = command(format!("pin/remote/service/add?arg=svc&arg={endpoint}&arg=secret")).await.unwrap();
    assert_eq!(added.status(), 200);
    for (service, why) in [
        ("svc&arg=http://example.com&arg=k", "service already present"),
        ("other&arg=example.com&arg=k", "service endpoint must be a valid HTTP URL"),
        ("other&arg=http://example.com/pins&arg=k", "without the /pins suffix"),
    ] {
        let refused = command(format!("pin/remote/service/add?arg={service}")).await.unwrap();
        assert!(rpc_failure(refused).await.contains(why), "{service}");
    }
    let mine = [json!({ "Status": "pinned", "Cid": cid, "Name": "mine" })];
    assert_eq!(client.rpc_json(&format!("pin/remote/add?arg={cid}&service=svc&name=mine")).await, mine[0]);
    assert_eq!(recursive_pins(&service).await, json!({ &cid: { "Type": "recursive", "Name": "mine" } }));
    assert_eq!(service.content(&format!("/ipfs/{cid}")).await.len(), 1_000_000);
    let queued = client.rpc_json(&format!("pin/remote/add?arg={UNKNOWN}&service=svc&background=true")).await;
    assert_eq!((&queued["Cid"], &queued["Status"]), (&json!(UNKNOWN), &json!("queued")));

    let ls = async |options: &str| ndjson(command(format!("pin/remote/ls?service=svc{options}")).await.unwrap()).await;
    assert_eq!(ls("").await, mine);
    assert_eq!(ls("&name=mine").await, mine);
    assert_eq!(ls("&name=min").await, [] as [Value; 0]);
    assert_eq!(ls(&format!("&cid={UNKNOWN},{cid}")).await, mine);
    assert_eq!(ls("&status=queued&status=pinning,pinned,failed").await.len(), 2);
    let services = client.rpc_json("pin/remote/service/ls?stat=true").await;
    let counts = &services["RemoteServices"][0]["Stat"]["PinCount"];
    assert_eq!((&counts["Pinned"], &counts["Failed"]), (&json!(1), &json!(0)), "{services}");
    for (options, why) in [
        ("", "a service name must be passed"),
        ("?service=nope", "service not known"),
        ("?service=svc&status=done", r#"status "done" is not valid"#),
        ("?service=svc&cid=Qm", r#"CID "Qm" cannot be parsed"#),
    ] {
        let refused = command(format!("pin/remote/ls{options}")).await.unwrap();
        assert!(rpc_failure(refused).await.contains(why), "{options}");
    }
    for key in ["Pinning", "pinning.remoteservices.svc.api.key"] {
        let hidden = rpc_failure(command(format!("config?arg={key}")).await.unwrap()).await;
        assert!(hidden.contains("cannot show or change pinning services credentials"), "{hidden}");
    }

    let all = "status=queued,pinning,pinned";
    let refused = command(format!("pin/remote/rm?service=svc&{all}")).await.unwrap();
    assert!(rpc_failure(refused).await.contains("multiple remote pins are matching this query"));
    let refused = command(format!("pin/remote/rm?service=svc&arg={cid}&force=true&{all}")).await.unwrap();
    assert_eq!(rpc_failure(refused).await, format!("unexpected argument {cid:?}"));
    assert_eq!(command(format!("pin/remote/rm?service=svc&force=true&{all}")).await.unwrap().status(), 200);
    assert_eq!((ls(&format!("&{ALL}")).await.len(), recursive_pins(&service).await), (0, json!({})));
    client.rpc_bytes("pin/remote/service/rm?arg=svc").await;
    client.rpc_bytes("pin/remote/service/rm?arg=svc").await;
    assert_eq!(client.rpc_json("pin/remote/service/ls").await, json!({ "RemoteServices": [] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_stay_as_long_as_a_request_or_a_user_needs_them() {
    let gateway = TestGateway::start().await;
    let [mine, shared, next] = [1, 2, 3].map(|byte| vec![byte; 300_000]);
    let mine = gateway.add("cid-version=1&pin=true", mine).await;
    let shared = gateway.add("cid-version=1&pin=false", shared).await;
    let next = gateway.add("cid-version=1&pin=false", next).await;
    let pinned = async || recursive_pins(&gateway).await.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let sorted = |mut cids: Vec<String>| {
        cids.sort();
        cids
    };
    let mut ids = Vec::new();
    for (cid, name) in [(&mine, "of the user"), (&shared, "first"), (&shared, "second")] {
        let id = request(&gateway, PINS, json!({ "cid": cid, "name": name })).await;
        until_state(&gateway, &id, "pinned").await;
        ids.push(id);
    }
    remove(&gateway, &ids[0]).await;
    remove(&gateway, &ids[1]).await;
    assert_eq!(sorted(pinned().await), sorted(vec![mine.clone(), shared.clone()]));
    // The replacement keeps the old content until it has the new.
    let id = request(&gateway, &format!("{PINS}/{}", ids[2]), json!({ "cid": UNKNOWN })).await;
    assert_eq!(send(&gateway, Method::GET, &format!("{PINS}/{}", ids[2]), &Value::Null).await.0, 404);
    assert_eq!(sorted(pinned().await), sorted(vec![mine.clone(), shared.clone()]));
    let id = request(&gateway, &format!("{PINS}/{id}"), json!({ "cid": next })).await;
    until_state(&gateway, &id, "pinned").await;
    assert_eq!(sorted(pinned().await), sorted(vec![mine.clone(), next]));
    remove(&gateway, &id).await;
    assert_eq!(pinned().await, [mine]);
    assert_eq!(send(&gateway, Method::DELETE, &format!("{PINS}/{id}"), &Value::Null).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_continue_after_a_restart() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("only-hash=true&raw-leaves=true", "later").await;
    let pin = json!({ "cid": cid, "name": "n", "meta": { "app": "x" } });
    let id = request(&gateway, PINS, pin.clone()).await;
    let stored = gateway.add("raw-leaves=true&pin=false", "now").await;
    let done = request(&gateway, PINS, json!({ "cid": stored })).await;
    let before = until_state(&gateway, &done, "pinned").await;
    // Files that are no requests do no harm.
    for (name, content) in [("junk.json", "{"), ("note.txt", "")] {
        fs::write(gateway.repo().path().join("pin-requests").join(name), content).unwrap();
    }
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    let listed = get(&gateway, &format!("{PINS}?{ALL}")).await;
    assert_eq!(listed["count"], 2);
    assert_eq!(listed["results"][0], before);
    assert_eq!((&listed["results"][1]["requestid"], &listed["results"][1]["pin"]), (&json!(id), &pin));
    assert_eq!(gateway.add("raw-leaves=true&pin=false", "later").await, cid);
    until_state(&gateway, &id, "pinned").await;
    assert_eq!(gateway.metric(r#"ipfrs_pin_requests{state="pinned"}"#).await, 2);

    let select = async |query: &str| get(&gateway, &format!("{PINS}?{query}")).await["count"].clone();
    let created = before["created"].as_str().unwrap();
    for (query, count) in [
        ("", 2),
        ("status=failed", 0),
        (r"meta=%7B%22app%22:%22x%22%7D", 1),
        (r"meta=%7B%22app%22:%22y%22%7D", 0),
        ("name=N", 0),
        ("name=N&match=iexact", 1),
        (&format!("before={created}"), 1),
        (&format!("after={created}"), 0),
        (&format!("cid={cid},{UNKNOWN}"), 1),
    ] {
        assert_eq!(select(query).await, count, "{query}");
    }
    let page = get(&gateway, &format!("{PINS}?limit=1")).await;
    assert_eq!((&page["count"], page["results"].as_array().unwrap().len()), (&json!(2), 1));
}

fn file_of(gateway: &TestGateway, id: &str) -> PathBuf {
    gateway.repo().path().join("pin-requests").join(id).with_extension("json")
}

/// Replaces the file of a request by a directory, so that it cannot be removed.
fn make_irremovable(gateway: &TestGateway, id: &str) {
    let file = file_of(gateway, id);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_cannot_be_removed_is_still_fulfilled() {
    let block = Block::hash(1, codec::RAW, HashFunction::Sha2_256, "late".into()).unwrap();
    let (release, released) = watch::channel(false);
    let data = block.data().clone();
    let source = SourceServer::start(Arc::new(move |target, mut connection| {
        let (data, mut released) = (data.clone(), released.clone());
        Box::pin(async move {
            released.wait_for(|released| *released).await.unwrap();
            if target.contains("format=car") {
                return write_head(&mut connection, "404 Not Found", "").await;
            }
            write_head(&mut connection, "200 OK", "content-type: application/vnd.ipld.raw\r\n").await;
            let _gone = connection.write_all(&data).await;
        })
    }))
    .await;
    let gateway = TestGateway::start_with(|config| config.retrieval.gateways = vec![source.url()]).await;
    let cid = block.cid().to_string();
    let id = request(&gateway, PINS, json!({ "cid": cid })).await;
    source.until_requests(1).await;
    make_irremovable(&gateway, &id);
    let (status, failure) = send(&gateway, Method::DELETE, &format!("{PINS}/{id}"), &Value::Null).await;
    assert_eq!((status, &failure["error"]["reason"]), (500, &json!("INTERNAL_SERVER_ERROR")), "{failure}");
    assert_eq!(get(&gateway, &format!("{PINS}/{id}")).await["status"], "pinning");
    fs::remove_dir(file_of(&gateway, &id)).unwrap();
    release.send_replace(true);
    until_state(&gateway, &id, "pinned").await;
    // One whose pin is already released is pinned again.
    make_irremovable(&gateway, &id);
    assert_eq!(send(&gateway, Method::DELETE, &format!("{PINS}/{id}"), &Value::Null).await.0, 500);
    fs::remove_dir(file_of(&gateway, &id)).unwrap();
    until_state(&gateway, &id, "pinned").await;
    assert_eq!(recursive_pins(&gateway).await.as_object().unwrap().len(), 1);
    remove(&gateway, &id).await;
    assert_eq!(recursive_pins(&gateway).await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_replacement_adds_no_request() {
    let gateway = TestGateway::start().await;
    let id = request(&gateway, PINS, json!({ "cid": UNKNOWN })).await;
    make_irremovable(&gateway, &id);
    let replacement = json!({ "cid": "bafkqaaa" });
    let (status, failure) = send(&gateway, Method::POST, &format!("{PINS}/{id}"), &replacement).await;
    assert_eq!(status, 500, "{failure}");
    let file = file_of(&gateway, &id);
    let files: Vec<_> = fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, [file]);
    let listed = get(&gateway, &format!("{PINS}?{ALL}")).await;
    assert_eq!((&listed["count"], &listed["results"][0]["requestid"]), (&json!(1), &json!(id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn repo_without_access_is_no_missing_right_of_the_client() {
    let gateway = TestGateway::start().await;
    // No process can create a file there.
    symlink("/sys/kernel", gateway.repo().path().join("pin-requests")).unwrap();
    let (status, failure) = send(&gateway, Method::POST, PINS, &json!({ "cid": UNKNOWN })).await;
    assert_eq!((status, &failure["error"]["reason"]), (500, &json!("INTERNAL_SERVER_ERROR")), "{failure}");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_change_nothing() {
    let gateway = TestGateway::start_with(|config| config.pinning.max_requests = 1).await;
    for (method, path, body, status) in [
        (Method::POST, PINS.to_owned(), json!({}), 400),
        (Method::POST, PINS.to_owned(), json!({ "cid": "Qm" }), 400),
        (Method::POST, PINS.to_owned(), json!(["bafkqaaa"]), 400),
        (Method::POST, PINS.to_owned(), json!({ "cid": UNKNOWN, "name": "x".repeat(256) }), 400),
        (Method::POST, PINS.to_owned(), json!({ "cid": UNKNOWN, "origins": ["example.com"] }), 400),
        (Method::POST, PINS.to_owned(), json!({ "cid": UNKNOWN, "meta": { "a": "x".repeat(20_000) } }), 400),
        (Method::POST, PINS.to_owned(), json!({ "cid": UNKNOWN, "meta": { "a": "x".repeat(300_000) } }), 413),
        (Method::POST, format!("{PINS}/none"), json!({ "cid": UNKNOWN }), 404),
        (Method::GET, format!("{PINS}/none"), Value::Null, 404),
        (Method::GET, format!("{PINS}?limit=0"), Value::Null, 400),
        (Method::GET, "/pinning/v1/other".to_owned(), Value::Null, 404),
    ] {
        let (found, failure) = send(&gateway, method.clone(), &path, &body).await;
        assert_eq!(found, status, "{method} {path}: {failure}");
        assert!(failure["error"]["reason"].is_string() && failure["error"]["details"].is_string(), "{failure}");
    }
    assert_eq!(get(&gateway, &format!("{PINS}?{ALL}")).await["count"], 0);
    let id = request(&gateway, PINS, json!({ "cid": UNKNOWN })).await;
    let (status, failure) = send(&gateway, Method::POST, PINS, &json!({ "cid": "bafkqaaa" })).await;
    assert_eq!((status, &failure["error"]["reason"]), (429, &json!("RATE_LIMITED")));
    request(&gateway, &format!("{PINS}/{id}"), json!({ "cid": "bafkqaaa" })).await;
}

/// The same content as CIDv0 and CIDv1 has one pin.
#[tokio::test(flavor = "multi_thread")]
async fn requests_with_both_versions_of_a_content_id_share_its_pin() {
    let gateway = TestGateway::start().await;
    let v0 = gateway.add("pin=false", vec![1; 300_000]).await;
    let v1 = gateway.rpc_json(&format!("cid/format?arg={v0}&v=1")).await["Formatted"].as_str().unwrap().to_owned();
    let mut ids = Vec::new();
    for cid in [&v0, &v1] {
        let id = request(&gateway, PINS, json!({ "cid": cid, "name": cid })).await;
        until_state(&gateway, &id, "pinned").await;
        ids.push(id);
    }
    remove(&gateway, &ids[0]).await;
    gateway.rpc_bytes("repo/gc").await;
    assert_eq!(gateway.content(&format!("/ipfs/{v1}")).await.len(), 300_000);
    // The pin stays with a replacement in the other version.
    let id = request(&gateway, &format!("{PINS}/{}", ids[1]), json!({ "cid": v0, "name": "again" })).await;
    until_state(&gateway, &id, "pinned").await;
    assert_eq!(recursive_pins(&gateway).await.as_object().unwrap().len(), 1);
    remove(&gateway, &id).await;
    assert_eq!(recursive_pins(&gateway).await, json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn pins_that_others_make_or_remove_are_no_longer_those_of_a_request() {
    let gateway = TestGateway::start().await;
    let other = gateway.add("pin=false", vec![8; 1_000]).await;
    gateway.rpc_bytes(&format!("pin/add?arg={other}")).await;
    let content = vec![9; 300_000];
    let cid = gateway.add("pin=false", content.clone()).await;
    for theirs in
        ["pin/add?arg={}", "pin/add?arg={}&name=mine", "add", "pin/rm, pin/add", "pin/update?arg={other}&arg={}"]
    {
        let id = request(&gateway, PINS, json!({ "cid": cid, "name": "of the request" })).await;
        until_state(&gateway, &id, "pinned").await;
        match theirs {
            "add" => drop(gateway.add("pin=true", content.clone()).await),
            "pin/rm, pin/add" => {
                gateway.rpc_bytes(&format!("pin/rm?arg={cid}")).await;
                let failed = until_state(&gateway, &id, "failed").await;
                assert!(failed["info"]["status_details"].as_str().unwrap().contains("its pin was removed"), "{failed}");
                gateway.rpc_bytes(&format!("pin/add?arg={cid}&name=mine")).await;
            }
            "pin/update?arg={other}&arg={}" => {
                // It refuses a target that is pinned, so the pin of the request is removed first.
                gateway.rpc_bytes(&format!("pin/rm?arg={cid}")).await;
                gateway.rpc_bytes(&format!("pin/update?arg={other}&arg={cid}")).await;
            }
            command => drop(gateway.rpc_bytes(&command.replace("{}", &cid)).await),
        }
        remove(&gateway, &id).await;
        gateway.rpc_bytes("repo/gc").await;
        assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, content, "{theirs}");
        gateway.rpc_bytes(&format!("pin/rm?arg={cid}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn direct_pin_is_there_again_after_the_request() {
    let gateway = TestGateway::start().await;
    let content = vec![7; 1_000];
    let [cid, other] =
        [gateway.add("pin=false", content.clone()).await, gateway.add("pin=false", vec![6; 1_000]).await];
    let as_v1 = gateway.rpc_json(&format!("cid/format?arg={cid}&v=1&b=base32")).await;
    let as_v1 = as_v1["Formatted"].as_str().unwrap();
    gateway.rpc_bytes(&format!("pin/add?arg={cid}&recursive=false&name=direct")).await;
    let is_direct = async || {
        let pins = gateway.rpc_json("pin/ls?type=direct&names=true").await;
        pins["Keys"][&cid]["Name"] == "direct"
    };
    let id = request(&gateway, PINS, json!({ "cid": as_v1 })).await;
    until_state(&gateway, &id, "pinned").await;
    assert!(!is_direct().await);
    remove(&gateway, &id).await;
    assert!(is_direct().await);

    // Another request for the same content inherits it, and so does one that replaces that.
    let first = request(&gateway, PINS, json!({ "cid": cid })).await;
    until_state(&gateway, &first, "pinned").await;
    let second = request(&gateway, PINS, json!({ "cid": cid })).await;
    until_state(&gateway, &second, "pinned").await;
    remove(&gateway, &first).await;
    assert!(!is_direct().await);
    let named = request(&gateway, &format!("{PINS}/{second}"), json!({ "cid": cid, "name": "named" })).await;
    until_state(&gateway, &named, "pinned").await;
    assert_eq!(recursive_pins(&gateway).await[&cid]["Name"], "named");
    let moved = request(&gateway, &format!("{PINS}/{named}"), json!({ "cid": other })).await;
    until_state(&gateway, &moved, "pinned").await;
    assert!(is_direct().await);
    gateway.rpc_bytes("repo/gc").await;
    assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, content);
}

#[tokio::test(flavor = "multi_thread")]
async fn name_has_at_most_255_characters_of_any_length() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("cid-version=1&pin=false", "content").await;
    let name = "名".repeat(255);
    let id = request(&gateway, PINS, json!({ "cid": cid, "name": name })).await;
    assert_eq!(until_state(&gateway, &id, "pinned").await["pin"]["name"], name);
    assert_eq!(recursive_pins(&gateway).await[&cid]["Name"], "名".repeat(85), "names of pins have at most 255 bytes");
    let longer = json!({ "cid": cid, "name": "名".repeat(256) });
    assert_eq!(send(&gateway, Method::POST, PINS, &longer).await.0, 400);
}
