//! `name/publish`, `name/resolve`, `name/get`, `name/put`, `name/inspect`, `resolve`.

use std::sync::atomic::{AtomicU32, Ordering};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use crate::harness::{TestGateway, rpc_failure};
use crate::multipart::Form;

/// Returns the message of a failing command.
async fn failure(gateway: &TestGateway, command: &str) -> String {
    rpc_failure(gateway.rpc(command).send().await.unwrap()).await
}

/// Generates a key and returns its ID.
async fn new_key(gateway: &TestGateway, query: &str) -> String {
    gateway.rpc_json(&format!("key/gen?{query}")).await["Id"].as_str().unwrap().to_owned()
}

/// Returns the result of `name/inspect` for the published record.
async fn inspected(gateway: &TestGateway, name: &str) -> Value {
    let record = gateway.rpc_bytes(&format!("name/get?arg={name}")).await;
    let form = Form::new().file("record", record);
    gateway.post_form(&format!("name/inspect?verify={name}&dump=false"), form).await.json().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn published_name_is_served_at_once_and_persists() {
    let gateway = TestGateway::start().await;
    let (one, two) = (gateway.add("", "one").await, gateway.add("", "two").await);
    for key_type in ["ed25519", "rsa", "secp256k1"] {
        let name = new_key(&gateway, &format!("arg={key_type}&type={key_type}")).await;
        let published = gateway.rpc_json(&format!("name/publish?arg={one}&key={key_type}&ttl=1h")).await;
        assert_eq!(published, json!({"Name": name, "Value": format!("/ipfs/{one}")}));
        assert_eq!(gateway.content(&format!("/ipns/{name}")).await, "one", "{key_type}");
        // The publishing node does not wait for the TTL.
        gateway.rpc_json(&format!("name/publish?arg=/ipfs/{two}&key={name}")).await;
        assert_eq!(gateway.content(&format!("/ipns/{name}")).await, "two", "{key_type}");
    }
    gateway.rpc_json(&format!("name/publish?arg={one}")).await;
    let own = gateway.rpc_json("key/list").await["Keys"][0]["Id"].as_str().unwrap().to_owned();
    let repo = gateway.stop().await;
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(gateway.content(&format!("/ipns/{own}")).await, "one");
    assert_eq!(gateway.rpc_json("name/resolve").await, json!({"Path": format!("/ipfs/{one}")}));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sequence_rises_when_the_value_changes() {
    let gateway = TestGateway::start().await;
    let (one, two) = (gateway.add("", "one").await, gateway.add("", "two").await);
    let name = new_key(&gateway, "arg=key").await;
    let publish = async |query: &str| {
        gateway.rpc_json(&format!("name/publish?key=key&{query}")).await;
        inspected(&gateway, &name).await["Entry"].take()
    };
    let first = publish(&format!("arg={one}&lifetime=1h&ttl=90s")).await;
    assert_eq!((&first["Sequence"], &first["TTL"]), (&json!(0), &json!(90_000_000_000_u64)));
    let again = publish(&format!("arg={one}&lifetime=2h")).await;
    assert_eq!(again["Sequence"], 0, "the same value is only valid for longer");
    assert!(again["Validity"].as_str() > first["Validity"].as_str(), "{again}");
    let shorter = publish(&format!("arg={one}&lifetime=1m")).await;
    assert_eq!(shorter["Sequence"], 1, "a record that ends earlier holds by its sequence");
    assert_eq!(shorter["TTL"], 60_000_000_000_u64, "no longer than the record");
    assert_eq!(publish(&format!("arg={two}")).await["Sequence"], 2);
    assert_eq!(publish(&format!("arg={two}&sequence=40")).await["Sequence"], 40);
    for sequence in ["40", "0"] {
        let message = failure(&gateway, &format!("name/publish?key=key&arg={one}&sequence={sequence}")).await;
        let text = "sequence number must be greater than the current record sequence";
        assert!(message.starts_with(text) && message.contains("41"), "{message}");
    }
    assert_eq!(publish(&format!("arg={one}")).await["Sequence"], 41);
    let record = inspected(&gateway, &name).await;
    assert_eq!((&record["SignatureType"], &record["Validation"]["Valid"]), (&json!("V1+V2"), &json!(true)));
    publish(&format!("arg={two}&v1compat=false")).await;
    assert_eq!(inspected(&gateway, &name).await["SignatureType"], "V2");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishes_get_distinct_sequence_numbers() {
    let gateway = TestGateway::start().await;
    let name = new_key(&gateway, "arg=key").await;
    let mut values = Vec::new();
    for content in 0..16_u8 {
        values.push(gateway.add("", vec![content]).await);
    }
    let publish = |value: &String| gateway.rpc(&format!("name/publish?key=key&arg={value}")).send();
    for published in join_all(values.iter().map(publish)).await {
        assert_eq!(published.unwrap().status(), 200);
    }
    let entry = inspected(&gateway, &name).await["Entry"].take();
    assert_eq!(entry["Sequence"], 15);
    assert_eq!(gateway.rpc_json(&format!("name/resolve?arg={name}")).await["Path"], entry["Value"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_publish_leaves_the_name_unchanged() {
    let gateway = TestGateway::start().await;
    let (file, missing) = (gateway.add("", "a file").await, "QmdytmR4wULMd3SLo6ePF4s3WcRHWcpnJZ7bHhoj3QB13v");
    let name = new_key(&gateway, "arg=key").await;
    gateway.rpc_json(&format!("name/publish?arg={file}&key=key")).await;
    for (query, says) in [
        (format!("arg={missing}"), missing),
        (format!("arg={file}/none"), "none"),
        (format!("arg={file}&key=other"), "no key by the given name or PeerID was found: other"),
        ("arg=no-cid".to_owned(), "invalid path \"no-cid\": path does not have enough components"),
        ("arg=".to_owned(), "invalid path \"\": path does not have enough components"),
        ("arg=/ipfs/".to_owned(), "invalid path \"/ipfs/\": path does not have enough components"),
        ("arg=/x/y".to_owned(), "invalid path \"/x/y\": unknown namespace: \"x\""),
        ("arg=/ipns/no-dot".to_owned(), "no-dot"),
        (format!("arg=/ipns/{name}"), "itself"),
        (format!("arg={file}&lifetime=soon"), "error parsing lifetime option: time: invalid duration \"soon\""),
        (format!("arg={file}&lifetime=0s"), "lifetime must be greater than zero, got 0s"),
        (format!("arg={file}&lifetime=-1h"), "lifetime must be greater than zero, got -1h"),
        (format!("arg={file}&lifetime=10m&ttl=1h"), "ttl (1h0m0s) must not be greater than lifetime (10m0s)"),
        (format!("arg={file}&ttl=72h"), "ttl (72h0m0s) must not be greater than lifetime (48h0m0s)"),
        (format!("arg={file}&ttl=-1s"), "ttl must not be negative, got -1s"),
    ] {
        let key = if query.contains("key=") { "" } else { "&key=key" };
        let message = failure(&gateway, &format!("name/publish?{query}{key}")).await;
        assert!(message.contains(says), "{query}: {message}");
    }
    // An empty `key`, such as an unset variable of a script, publishes nothing.
    failure(&gateway, &format!("name/publish?arg={file}&key=")).await;
    failure(&gateway, "name/resolve").await;
    assert_eq!(gateway.content(&format!("/ipns/{name}")).await, "a file");
    assert_eq!(gateway.rpc("name/publish").send().await.unwrap().status(), 400);
    // Content that is missing can be published with `resolve=false`.
    let published = gateway.rpc_json(&format!("name/publish?arg={missing}/x&resolve=false&key=key")).await;
    assert_eq!(published["Value"], format!("/ipfs/{missing}/x"));
}

#[tokio::test(flavor = "multi_thread")]
async fn published_path_stays_as_given_but_for_relative_parts() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/sub/b", "a"), ("d/a.txt", "fixed")]).await;
    let in_base58 = gateway.rpc_json(&format!("cid/format?arg={root}&v=1&b=base58btc")).await["Formatted"].take();
    let in_base58 = in_base58.as_str().unwrap();
    let name = new_key(&gateway, "arg=key").await;
    // The values are those of Kubo 0.44.
    for (path, value) in [
        (root.to_string(), format!("/ipfs/{root}")),
        (format!("/ipfs/{root}/"), format!("/ipfs/{root}/")),
        (format!("/ipfs/{root}/sub//b"), format!("/ipfs/{root}/sub/b")),
        (format!("/ipfs/{root}/sub/../a.txt"), format!("/ipfs/{root}/a.txt")),
        (format!("ipfs://{root}/sub/"), format!("/ipfs/{root}/sub/")),
        (format!("IPFS:{root}/sub"), format!("/ipfs/{root}/sub")),
        (in_base58.to_owned(), format!("/ipfs/{in_base58}")),
    ] {
        let published = gateway.rpc_json(&format!("name/publish?arg={path}&key=key")).await;
        assert_eq!(published, json!({ "Name": name, "Value": value }), "{path}");
        assert_eq!(inspected(&gateway, &name).await["Entry"]["Value"], value, "{path}");
    }
    gateway.rpc_json(&format!("name/publish?arg=/ipfs/{root}/sub/&key=key")).await;
    assert_eq!(gateway.content(&format!("/ipns/{name}/b")).await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn name_resolve_is_recursive_or_single_step() {
    let gateway = TestGateway::start().await;
    let tree = gateway.add_tree("wrap-with-directory=true", &[("d/f", "content")]).await;
    let first = new_key(&gateway, "arg=first").await;
    let second = new_key(&gateway, "arg=second").await;
    gateway.rpc_json(&format!("name/publish?arg={tree}&key=first")).await;
    let value = gateway.rpc_json(&format!("name/publish?arg=ipns://{first}/d&key=second")).await["Value"].take();
    assert_eq!(value, format!("/ipns/{first}/d"));
    let file = gateway.rpc_json(&format!("dag/resolve?arg={tree}/d/f")).await["Cid"]["/"].take();
    let directory = gateway.rpc_json(&format!("dag/resolve?arg={tree}/d")).await["Cid"]["/"].take();
    let in_base = async |base: &str, below: &str| {
        let resolved = gateway.rpc_json(&format!("dag/resolve?arg={tree}{below}&cid-base={base}")).await;
        resolved["Cid"]["/"].as_str().unwrap().to_owned()
    };
    for (command, path) in [
        (format!("name/resolve?arg={second}"), format!("/ipfs/{tree}/d")),
        (format!("name/resolve?arg=/ipns/{second}/f"), format!("/ipfs/{tree}/d/f")),
        (format!("name/resolve?arg={second}&recursive=false"), format!("/ipns/{first}/d")),
        (format!("name/resolve?arg={second}/f&recursive=false"), format!("/ipns/{first}/d/f")),
        (
            format!("name/resolve?arg={second}&stream=true&nocache=true&dht-timeout=1m&dhtrc=4"),
            format!("/ipfs/{tree}/d"),
        ),
        (format!("resolve?arg=/ipns/{second}"), format!("/ipfs/{}", directory.as_str().unwrap())),
        (format!("resolve?arg=/ipns/{second}&recursive=false"), format!("/ipns/{first}/d")),
        (format!("resolve?arg=ipns://{second}/f"), format!("/ipfs/{}", file.as_str().unwrap())),
        (format!("resolve?arg=ipns:{second}&recursive=false"), format!("/ipns/{first}/d")),
        (format!("name/resolve?arg=IPNS:{second}/f"), format!("/ipfs/{tree}/d/f")),
        (format!("name/resolve?arg={second}/x//../f"), format!("/ipfs/{tree}/d/f")),
        (format!("resolve?arg=//ipns/{second}/x/../f&recursive=false"), format!("/ipns/{first}/d/f")),
        // In the base of the content ID in the path, or in the requested base.
        (
            format!("resolve?arg=/ipfs/{}/d", in_base("base36", "").await),
            format!("/ipfs/{}", in_base("base36", "/d").await),
        ),
        (
            format!("resolve?arg={}/d&cid-base=base16", in_base("base36", "").await),
            format!("/ipfs/{}", in_base("base16", "/d").await),
        ),
        (format!("resolve?arg={tree}/d/f"), format!("/ipfs/{}", file.as_str().unwrap())),
    ] {
        assert_eq!(gateway.rpc_json(&command).await, json!({ "Path": path }), "{command}");
    }
    assert_eq!(gateway.content(&format!("/ipns/{second}/f")).await, "content");
    let none = new_key(&gateway, "arg=none").await;
    for (command, says) in [
        (format!("name/resolve?arg={none}"), none.as_str()),
        (format!("name/resolve?arg=/ipfs/{tree}"), "\" is not an IPNS name"),
        ("name/resolve?arg=no-dot".to_owned(), "no-dot"),
        (format!("name/resolve?arg={second}&dht-timeout=x"), "dht-timeout"),
        (format!("name/resolve?arg={second}&dht-timeout=-1s"), "DHT timeout value must be >= 0"),
        (format!("resolve?arg=/ipns/{second}&recursive=false&dhtt=-1s"), "DHT timeout value must be >= 0"),
        (format!("resolve?arg=/ipns/{none}"), none.as_str()),
        (format!("resolve?arg={tree}/none"), "none"),
    ] {
        let message = failure(&gateway, &command).await;
        assert!(message.contains(says), "{command}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn name_put_accepts_and_inspect_shows_records() {
    let (owner, mirror) = (TestGateway::start().await, TestGateway::start().await);
    let (one, two) = (owner.add("", "one").await, owner.add("", "two").await);
    mirror.add("", "one").await;
    mirror.add("", "two").await;
    let name = new_key(&owner, "arg=key&type=rsa").await;
    let record = async |cid: &str| {
        owner.rpc_json(&format!("name/publish?arg={cid}&key=key")).await;
        owner.rpc_bytes(&format!("name/get?arg=/ipns/{name}")).await
    };
    let (first, second) = (record(&one).await, record(&two).await);
    let put = async |query: &str, record: &bytes::Bytes| {
        let response = mirror.post_form(&format!("name/put?{query}"), Form::new().file("record", record.clone())).await;
        if response.status() == 200 {
            Ok(response.json::<Value>().await.unwrap())
        } else {
            Err(rpc_failure(response).await)
        }
    };
    let taken = put(&format!("arg={name}"), &first).await.unwrap();
    assert_eq!(taken, json!({"Name": name, "Value": format!("/ipfs/{one}")}));
    assert_eq!(mirror.content(&format!("/ipns/{name}")).await, "one");
    put(&format!("arg={name}&allow-offline=true"), &second).await.unwrap();
    put(&format!("arg={name}"), &second).await.unwrap();
    assert_eq!(mirror.content(&format!("/ipns/{name}")).await, "two");
    let message = put(&format!("arg={name}"), &first).await.unwrap_err();
    let conflict = "existing IPNS record has sequence 1 >= new record sequence 0, use 'ipfs name put --force' to skip";
    assert!(message.starts_with(conflict), "{message}");
    let message = put(&format!("arg={name}"), &bytes::Bytes::new()).await.unwrap_err();
    assert_eq!(message, "record is empty");
    let message = put("arg=no-name", &first).await.unwrap_err();
    assert!(message.starts_with("invalid IPNS name: "), "{message}");
    for (query, record) in [
        (format!("arg={name}&force=true"), &first),
        (format!("arg={}", new_key(&mirror, "arg=other").await), &second),
        (format!("arg={name}"), &bytes::Bytes::from_static(b"no record")),
        (format!("arg={name}"), &bytes::Bytes::from(vec![0; 11 * 1024])),
    ] {
        assert!(put(&query, record).await.is_err(), "{query}");
    }
    assert_eq!(mirror.rpc_bytes(&format!("name/get?arg={name}")).await, second);
    // A record with the same sequence that is valid for longer replaces the other only with `force`.
    owner.rpc_json(&format!("name/publish?arg={two}&key=key&lifetime=9000h")).await;
    let longer = owner.rpc_bytes(&format!("name/get?arg=/ipns/{name}")).await;
    assert_ne!(longer, second);
    let message = put(&format!("arg={name}"), &longer).await.unwrap_err();
    assert!(message.starts_with("existing IPNS record has sequence 1 >= new record sequence 1"), "{message}");
    let replaced = put(&format!("arg={name}&force=true"), &longer).await.unwrap();
    assert_eq!(replaced, json!({"Name": name, "Value": format!("/ipfs/{two}")}));
    assert_eq!(mirror.rpc_bytes(&format!("name/get?arg={name}")).await, longer);
    let shown = mirror.post_form("name/inspect", Form::new().file("record", second.clone())).await;
    let shown: Value = shown.json().await.unwrap();
    assert_eq!(
        (&shown["Entry"]["Value"], &shown["Entry"]["ValidityType"]),
        (&json!(format!("/ipfs/{two}")), &json!(0))
    );
    assert_eq!((&shown["PbSize"], &shown["Validation"]), (&json!(second.len()), &Value::Null));
    assert!(shown["HexDump"].as_str().unwrap().starts_with("00000000  0a "), "{shown}");
    let own = mirror.rpc_json("key/list").await["Keys"][0]["Id"].as_str().unwrap().to_owned();
    let form = Form::new().file("record", second);
    let shown: Value = mirror.post_form(&format!("name/inspect?verify={own}"), form).await.json().await.unwrap();
    let validation = &shown["Validation"];
    assert_eq!((&validation["Valid"], &validation["Name"]), (&json!(false), &json!(own)));
    assert_ne!(validation["Reason"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn nocache_repeats_dns_queries() {
    let resolver = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = resolver.local_addr().unwrap();
    let gateway = TestGateway::start_with(|config| {
        config.dns.resolvers = serde_json::from_value(address.to_string().into()).unwrap();
    })
    .await;
    let questions = AtomicU32::new(0);
    let answering = async {
        loop {
            let mut message = [0; 512];
            let (length, client) = resolver.recv_from(&mut message).await.unwrap();
            questions.fetch_add(1, Ordering::Relaxed);
            // A DNS response (RFC 1035, 4.1.1) with the code for a name that does not exist.
            message[2] |= 0x80;
            message[3] = 0x83;
            resolver.send_to(&message[..length], client).await.unwrap();
        }
    };
    let asking = async {
        // Each lookup queries the domain itself and the `_dnslink` name.
        for (query, count) in [("", 2), ("", 2), ("&nocache=true", 4), ("&nocache=true&recursive=false", 6), ("", 6)] {
            let message = failure(&gateway, &format!("name/resolve?arg=site.example.net{query}")).await;
            assert!(message.contains("has no DNSLink"), "{message}");
            assert_eq!(questions.load(Ordering::Relaxed), count, "{query}");
        }
    };
    tokio::select! {
        () = asking => {}
        _ = answering => {}
    }
}
