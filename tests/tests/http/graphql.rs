//! GraphQL over HTTP.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::harness::{TestGateway, hash_of, header};
use crate::multipart::Form;
use crate::websocket::Client;
use crate::wire::Wire;
use crate::withholding::Withholding;

const CID: &str = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy";

const MEDIA: &str = "application/graphql-response+json";

async fn send(gateway: &TestGateway, request: &Value) -> Response {
    gateway.request(Method::POST, "/graphql").header("accept", MEDIA).json(request).send().await.unwrap()
}

/// Returns the data of a query without errors.
async fn query(gateway: &TestGateway, document: &str, variables: Value) -> Value {
    let response = send(gateway, &json!({"query": document, "variables": variables})).await;
    let status = response.status();
    let mut body: Value = response.json().await.unwrap();
    assert_eq!((status.as_u16(), &body["errors"]), (200, &Value::Null), "{document}");
    body["data"].take()
}

/// Returns the status, the code and the message of the first error.
pub(crate) async fn refusal(gateway: &TestGateway, request: &Value) -> (u16, String, String) {
    let response = send(gateway, request).await;
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    let error = &body["errors"][0];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{body}")).to_owned();
    (status, text(&error["extensions"]["code"]), text(&error["message"]))
}

#[tokio::test]
async fn absent_variables_skipped_fields_and_malformed_requests_follow_the_specification() {
    let gateway = TestGateway::start().await;
    let add = "mutation($p: Boolean) { addBlock(data: \"YQ==\", pin: $p) { cid } }";
    let added = query(&gateway, add, json!({})).await["addBlock"]["cid"].take();
    assert!(added.is_string());
    assert_eq!(gateway.rpc_json("pin/ls").await["Keys"], json!({}), "the default is not to pin");
    for (document, data) in [
        ("{ version @skip(if: true) { version } }", json!({})),
        ("query($yes: Boolean!) { version @skip(if: $yes) { version } }", json!({})),
    ] {
        assert_eq!(query(&gateway, document, json!({ "yes": true })).await, data, "{document}");
    }
    let (status, _, message) =
        refusal(&gateway, &json!({ "query": "{ pins(type: \"RECURSIVE\") { nodes { name } } }" })).await;
    assert!(status == 400 && message.contains("without quotes"), "{message}");
    for body in ["{}", r#"{"qeury": "{ version { version } }"}"#] {
        let response = gateway.request(Method::POST, "/graphql").body(body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
    }
    for target in ["/graphql?variables={}", "/graphql?query={__typename}&query={version{version}}"] {
        let response = gateway.request(Method::GET, target).header("accept", MEDIA).send().await.unwrap();
        assert_eq!(response.status(), 400, "{target}");
    }
}

#[tokio::test]
async fn queries_and_mutations_work_on_the_same_node_as_the_rpc() {
    let gateway = TestGateway::start().await;
    let add = r#"mutation { addBlock(data: "aGVsbG8=", pin: true) { cid size } }"#;
    let added = query(&gateway, add, json!({})).await["addBlock"].take();
    let cid = added["cid"].as_str().unwrap().to_owned();
    assert_eq!(
        (added["size"].as_u64(), &*gateway.rpc_bytes(&format!("cat?arg={cid}")).await),
        (Some(5), &b"hello"[..])
    );
    let document = "query($cid: Cid!, $other: Cid!) {
        block(cid: $cid) { cid size codec data links { cid } }
        none: block(cid: $other) { size }
        hasBlock(cid: $cid)
        blocksByCid(cids: [$cid, $other]) { size }
        pins { nodes { cid type name block { size } } }
        dag(path: $cid) { codec value }
        stats { blocks }
        version { version peerId }
    }";
    let other = CID;
    let document = document.replace("dag(path: $cid)", &format!("dag(path: \"{cid}\")"));
    let data = query(&gateway, &document, json!({"cid": cid, "other": other})).await;
    let block = json!({"cid": cid, "size": 5, "codec": "raw", "data": "aGVsbG8=", "links": []});
    assert_eq!((&data["block"], &data["none"], &data["hasBlock"]), (&block, &Value::Null, &Value::Bool(true)));
    assert_eq!(data["blocksByCid"], json!([{"size": 5}, null]));
    let pin = json!({"cid": cid, "type": "RECURSIVE", "name": "", "block": {"size": 5}});
    assert_eq!(data["pins"]["nodes"], json!([pin]));
    assert_eq!(data["dag"]["value"]["/"]["bytes"], "aGVsbG8");
    assert_eq!(data["stats"]["blocks"], 1);
    let pinned = json!({"query": format!("mutation {{ deleteBlock(cid: \"{cid}\") }}")});
    let (status, code, message) = refusal(&gateway, &pinned).await;
    assert_eq!((status, &*code), (200, "conflict"), "{message}");
    let unpin = format!("mutation {{ unpin(path: \"/ipfs/{cid}\") deleteBlock(cid: \"{cid}\") }}");
    assert_eq!(query(&gateway, &unpin, json!({})).await, json!({"unpin": cid, "deleteBlock": cid}));
    assert_eq!(gateway.blocks().await, 0);
}

#[tokio::test]
async fn connections_page_through_everything_once() {
    let gateway = TestGateway::start().await;
    let names: Vec<_> = (0..25).map(|n| format!("d/file-{n:02}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    let root = gateway.add_tree("pin=true", &files).await;
    let mut all = Vec::new();
    let mut after = Value::Null;
    loop {
        let document = format!(
            "query($after: String) {{ directory(path: \"/ipfs/{root}\", first: 7, after: $after) {{
                totalCount edges {{ cursor node {{ name kind size }} }} pageInfo {{ hasNextPage endCursor }} }} }}"
        );
        let page = query(&gateway, &document, json!({"after": after})).await["directory"].take();
        assert_eq!(page["totalCount"], 25);
        let edges = page["edges"].as_array().unwrap().clone();
        // A client may continue behind any entry.
        let behind = query(&gateway, &document, json!({"after": edges[0]["cursor"]})).await;
        if let Some(second) = edges.get(1) {
            assert_eq!(behind["directory"]["edges"][0]["node"], second["node"]);
        }
        all.extend(edges.into_iter().map(|edge| edge["node"]["name"].as_str().unwrap().to_owned()));
        after = page["pageInfo"]["endCursor"].clone();
        if page["pageInfo"]["hasNextPage"] == false {
            break;
        }
    }
    assert_eq!(all, names.iter().map(|name| name.strip_prefix("d/").unwrap()).collect::<Vec<_>>());
    for (connection, count) in [("blocks", gateway.blocks().await), ("pins", 1), ("names", 1)] {
        let (mut seen, mut after) = (Vec::new(), Value::Null);
        loop {
            let fields = if connection == "names" { "name" } else { "cid" };
            let document = format!(
                "query($after: String) {{ {connection}(first: 10, after: $after) {{
                    nodes {{ {fields} }} pageInfo {{ hasNextPage endCursor }} }} }}"
            );
            let page = query(&gateway, &document, json!({"after": after})).await[connection].take();
            seen.extend(page["nodes"].as_array().unwrap().clone());
            after = page["pageInfo"]["endCursor"].clone();
            if page["pageInfo"]["hasNextPage"] == false {
                break;
            }
        }
        let distinct: std::collections::HashSet<_> = seen.iter().map(Value::to_string).collect();
        assert_eq!((seen.len() as u64, distinct.len() as u64), (count, count), "{connection}");
    }
}

#[tokio::test]
async fn fields_of_one_query_read_their_blocks_together() {
    let gateway = TestGateway::start().await;
    let mut cids = Vec::new();
    for n in 0..100 {
        cids.push(gateway.put_block("", format!("block {n}")).await);
    }
    let fields: Vec<_> = (0..).zip(&cids).map(|(n, cid)| format!("b{n}: block(cid: \"{cid}\") {{ data }}")).collect();
    let data = query(&gateway, &format!("{{ {} }}", fields.join(" ")), json!({})).await;
    assert_eq!(data.as_object().unwrap().len(), 100);
    assert_eq!(gateway.metric("ipfrs_batch_operation_size_count{operation=\"get\"}").await, 1);
    assert_eq!(gateway.metric("ipfrs_batch_operation_size_sum{operation=\"get\"}").await, 100);
    // Two fields of a block read it once.
    let listed = query(&gateway, "{ blocks(first: 100) { nodes { size data } } }", json!({})).await;
    assert_eq!(listed["blocks"]["nodes"].as_array().unwrap().len(), 100);
    assert_eq!(gateway.metric("ipfrs_batch_operation_size_count{operation=\"get\"}").await, 2);
    assert_eq!(gateway.metric("ipfrs_batch_operation_size_sum{operation=\"get\"}").await, 200);
}

#[tokio::test]
async fn values_of_nodes_are_sent_as_they_are_on_all_transports() {
    let gateway = TestGateway::start_with(|config| config.graphql.max_response_bytes = 1_000_000).await;
    // White space with line breaks, in a block that is JSON already, must not end a server-sent event.
    let text = "{\n\"a\" : [1, 2.50,\r\n\"\\u00e9\\n\"]\n}";
    let cid = gateway.put_block("cid-codec=dag-json", text).await;
    let request = json!({"query": format!("{{ dag(path: \"{cid}\") {{ value }} }}")});
    let value: Value = serde_json::from_str(text).unwrap();
    let expected = json!({"data": {"dag": {"value": value}}});
    assert_eq!(send(&gateway, &request).await.json::<Value>().await.unwrap(), expected);
    let events = gateway.request(Method::POST, "/graphql").header("accept", "text/event-stream").json(&request);
    let events = events.send().await.unwrap().text().await.unwrap();
    let data = events.split("data: ").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), expected, "{events}");
    let mut client = Client::graphql(gateway.address()).await;
    client.send(json!({"type": "subscribe", "id": "1", "payload": request}).to_string()).await;
    assert_eq!(client.receive().await["payload"], expected);
    // The text counts, however many elements it has.
    let many = gateway.put_block("cid-codec=dag-json", format!("[{}0]", "0,".repeat(400_000))).await;
    let request = json!({"query": format!("{{ dag(path: \"{many}\") {{ value }} }}")});
    assert_eq!(refusal(&gateway, &request).await.1, "too_large");
}

#[tokio::test]
async fn files_are_uploaded_in_multipart_requests() {
    let gateway = TestGateway::start().await;
    let operations = json!({
        "query": "mutation($a: Upload!, $b: [Upload!]!) {
            one: addFile(file: $a) { cid size } two: addFile(file: $b, wrap: true) { cid size operationId } }",
        "variables": {"a": null, "b": [null]},
    });
    let operations = operations.to_string().replace("[Upload!]!", "Upload!").replace("[null]", "null");
    let form = |map: Value| {
        Form::new().text("operations", &operations).text("map", &map.to_string()).upload("0", "a.txt", "first").upload(
            "1",
            "b.txt",
            "second file",
        )
    };
    // A part that never ends is no file.
    let endless = Form::new().text("operations", &operations).part(&"X: y\r\n".repeat(300_000), b"");
    let request = gateway.request(Method::POST, "/graphql").header("content-type", endless.content_type());
    let body: Value = request.body(endless.end()).send().await.unwrap().json().await.unwrap();
    assert!(body["errors"][0]["message"].as_str().unwrap().contains("1048576"), "{body}");
    let post = async |form: Form| {
        let request = gateway.request(Method::POST, "/graphql").header("content-type", form.content_type());
        let body: Value = request.body(form.end()).send().await.unwrap().json().await.unwrap();
        body
    };
    let body = post(form(json!({"0": ["variables.a"], "1": ["variables.b"]}))).await;
    assert_eq!((&body["data"]["one"]["size"], &body["data"]["two"]["size"]), (&5.into(), &11.into()), "{body}");
    let cid = body["data"]["one"]["cid"].as_str().unwrap();
    assert_eq!(&*gateway.rpc_bytes(&format!("cat?arg={cid}")).await, b"first");
    let wrapped = body["data"]["two"]["cid"].as_str().unwrap();
    assert_eq!(&*gateway.content(&format!("/ipfs/{wrapped}/b.txt")).await, b"second file");
    // The files arrive in another order than the operation needs them.
    let body = post(form(json!({"0": ["variables.b"], "1": ["variables.a"]}))).await;
    let message = body["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("in the order of their use"), "{body}");
    for map in [json!({"0": ["variables.x"]}), json!({"0": ["query"]}), json!([])] {
        let body = post(form(map)).await;
        assert_eq!(body["errors"][0]["extensions"]["code"], "invalid_input", "{body}");
    }
    // Each file has a variable: what is sent in vain is an error.
    for (paths, reason) in [
        (json!("variables.a"), "no list"),
        (json!([]), "0 variables"),
        (json!(["variables.a", "variables.b"]), "2 variables"),
        (json!([1]), "strings"),
    ] {
        let body = post(form(json!({ "0": paths }))).await;
        assert!(body["errors"][0]["message"].as_str().unwrap().contains(reason), "{paths}: {body}");
    }
}

#[tokio::test]
async fn get_has_a_validator_and_changes_nothing() {
    let gateway = TestGateway::start().await;
    let path = "/graphql?query=%7Bstats%7Bblocks%7D%7D";
    let first = gateway.get(path).await;
    assert_eq!((first.status().as_u16(), header(&first, "cache-control")), (200, "private, no-cache"));
    let tag = header(&first, "etag").to_owned();
    let again = gateway.request(Method::GET, path).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(again.status(), 304);
    let lines = gateway.request(Method::GET, path).header("if-none-match", "\"other\"").header("if-none-match", &tag);
    assert_eq!(lines.send().await.unwrap().status(), 304);
    // A long response may be compressed, and then both say so.
    for path in [path, "/graphql?query=%7B__schema%7Btypes%7Bname,description%7D%7D%7D"] {
        let whole = gateway.get(path).await;
        let same = gateway.request(Method::GET, path).header("if-none-match", header(&whole, "etag"));
        let same = same.send().await.unwrap();
        let varies = |response: &Response| header(response, "vary").to_owned();
        assert_eq!((same.status().as_u16(), varies(&same)), (304, varies(&whole)), "{path}");
        let is_long = path.contains("__schema");
        assert_eq!(varies(&whole), if is_long { "Accept, Accept-Encoding" } else { "Accept" }, "{path}");
    }
    gateway.put_block("", "new").await;
    let changed = gateway.request(Method::GET, path).header("if-none-match", &tag).send().await.unwrap();
    assert_eq!(changed.status(), 200);
    let mutation = gateway.get("/graphql?query=mutation%7Bunpin(path:%22x%22)%7D").await;
    assert_eq!((mutation.status().as_u16(), header(&mutation, "allow")), (405, "POST"));
    let put = gateway.request(Method::PUT, "/graphql").send().await.unwrap();
    assert_eq!((put.status().as_u16(), header(&put, "allow")), (405, "GET, HEAD, POST"));
}

#[tokio::test]
async fn malformed_chunks_of_a_request_are_named() {
    let gateway = TestGateway::start().await;
    for content_type in ["application/json", "multipart/form-data; boundary=b"] {
        let mut wire = Wire::connect(&gateway).await;
        let head = format!("POST /graphql HTTP/1.1\r\nHost: x\r\nAccept: {MEDIA}\r\nContent-Type: {content_type}\r\n");
        wire.send(format!("{head}Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n0\r\n\r\n")).await;
        let answer = wire.answer().await;
        let body: Value = serde_json::from_str(&answer.text()).unwrap();
        let error = &body["errors"][0];
        assert_eq!((answer.status, &error["extensions"]["code"]), (400, &json!("invalid_input")), "{body}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with("the chunks of the request body are malformed (RFC 9112, 7.1)"), "{message}");
    }
}

#[tokio::test]
async fn persisted_queries_are_found_by_their_hash() {
    let gateway = TestGateway::start().await;
    let document = "{ version { version } }";
    let hash = "aa".repeat(32);
    let hash = hash.as_str();
    let extensions = |hash: &str| json!({"persistedQuery": {"version": 1, "sha256Hash": hash}});
    let unknown = refusal(&gateway, &json!({"extensions": extensions(hash)})).await;
    assert_eq!((&*unknown.1, &*unknown.2), ("PERSISTED_QUERY_NOT_FOUND", "PersistedQueryNotFound"));
    let wrong = refusal(&gateway, &json!({"query": document, "extensions": extensions(hash)})).await;
    assert!(wrong.2.contains("not the hash"), "{wrong:?}");
    let digest = ipfrs_core::hash::sha2_256(document.as_bytes());
    let hash: String = digest.digest().iter().map(|byte| format!("{byte:02x}")).collect();
    for request in
        [json!({"query": document, "extensions": extensions(&hash)}), json!({"extensions": extensions(&hash)})]
    {
        let body: Value = send(&gateway, &request).await.json().await.unwrap();
        assert_eq!(body["data"]["version"]["version"], env!("CARGO_PKG_VERSION"));
    }
    for bad in ["x", &"g".repeat(64)] {
        assert_eq!(refusal(&gateway, &json!({"extensions": extensions(bad)})).await.1, "invalid_input");
    }
}

#[tokio::test]
async fn hostile_documents_are_refused_at_once() {
    let gateway = TestGateway::start_with(|config| config.graphql.max_depth = 5).await;
    let doubling: String =
        (0..60).map(|n| format!("fragment f{n} on Query {{ ...f{} ...f{} }} ", n + 1, n + 1)).collect();
    for (document, code, part) in [
        ("{".to_owned(), "invalid_input", "expected"),
        ("{ nothing }".to_owned(), "invalid_input", "Unknown field"),
        (format!("{}{}", "{a".repeat(10_000), "}".repeat(10_000)), "invalid_input", "nested more than 64"),
        (format!("{{ a(x: {}{}) }}", "[".repeat(10_000), "]".repeat(10_000)), "invalid_input", "nested more than 64"),
        (format!("{{ ...f0 }} {doubling} fragment f60 on Query {{ stats {{ blocks }} }}"), "too_large", "fragments"),
        ("fragment a on Query { ...b } fragment b on Query { ...a } { ...a }".to_owned(), "invalid_input", ""),
        (format!("{{ stats {} {{ blocks }} }}", "@include(if: true) ".repeat(11)), "invalid_input", "directives"),
        (format!("{{ stats {{ blocks }} {} }}", " ".repeat(70_000)), "too_large", "graphql.max_query_bytes"),
        ("{ blocks(first: 1000) { nodes { links(first: 1000) { cid } } } }".to_owned(), "too_large", "max_complexity"),
        // A product beyond 64 bits, whose sum with the cost of another field must not begin at 0 again.
        (
            format!(
                "{{ stats {{ blocks }} block(cid: \"{CID}\") {{ {} cid {} }} }}",
                "links(first: 1000) { block { ".repeat(8),
                "} }".repeat(8)
            ),
            "too_large",
            "",
        ),
        (
            "{ blocks(first: 1) { nodes { links(first: 1) { block { links(first: 1) { cid } } } } } }".to_owned(),
            "too_large",
            "max_depth",
        ),
        (
            format!("{{ __schema {{ types {{ fields {{ {} }} }} }} }}", "name ".repeat(1_000)),
            "too_large",
            "about the schema",
        ),
        (
            "subscription { gcProgress { phase } bandwidth { totalIn } }".to_owned(),
            "invalid_input",
            "exactly one field",
        ),
        ("{ hasBlock(cid: 5) }".to_owned(), "invalid_input", "cid"),
        (String::new(), "invalid_input", "no query"),
        ("query a { stats { blocks } } query b { stats { blocks } }".to_owned(), "invalid_input", "peration name"),
    ] {
        let (status, found, message) = refusal(&gateway, &json!({"query": document})).await;
        let start: String = document.chars().take(60).collect();
        assert_eq!((status, &*found), (400, code), "{start}: {message}");
        assert!(message.contains(part) && message.len() < 2_000, "{start}: {message}");
    }
    for body in ["", "[]", "1", "{\"query\": 1}", "{\"query\": \"\u{0}"] {
        let response = gateway.request(Method::POST, "/graphql").body(body).send().await.unwrap();
        let (status, body) = (response.status(), response.json::<Value>().await.unwrap());
        assert_eq!((status.as_u16(), &body["errors"][0]["extensions"]["code"]), (400, &"invalid_input".into()));
    }
    let uses: String = (0..100).map(|n| format!("a{n}: blocksByCid(cids: $c) {{ cid }} ")).collect();
    let many = json!({"query": format!("query($c: [Cid!]!) {{ {uses} }}"), "variables": {"c": vec![CID; 900]}});
    assert_eq!(refusal(&gateway, &many).await.1, "too_large");
    let long = json!({"query": "query($p: String!) { dag(path: $p) { cid } }", "variables": {"p": "x".repeat(20_000)}});
    let (_, code, message) = refusal(&gateway, &long).await;
    assert_eq!((&*code, message.len() < 100), ("too_large", true), "{message}");
    let large = json!({"query": "{ stats { blocks } }", "variables": {"x": "x".repeat(5_000_000)}});
    assert_eq!(send(&gateway, &large).await.status(), 413);
    // With plain JSON, a request that can be read has the status 200.
    let plain = gateway.request(Method::POST, "/graphql").json(&json!({"query": "{ nothing }"})).send().await.unwrap();
    assert_eq!(plain.status(), 200);
    for (first, code) in [(-1, "invalid_input"), (1_001, "invalid_input")] {
        let request = json!({"query": format!("{{ pins(first: {first}) {{ nodes {{ cid }} }} }}")});
        assert_eq!(refusal(&gateway, &request).await.1, code);
    }
    assert_eq!(query(&gateway, "{ stats { blocks } }", json!({})).await, json!({"stats": {"blocks": 0}}));
}

#[tokio::test]
async fn content_of_responses_is_limited() {
    let gateway = TestGateway::start_with(|config| config.graphql.max_response_bytes = 100_000).await;
    let cid = gateway.put_block("", vec![7; 60_000]).await;
    let one = format!("{{ block(cid: \"{cid}\") {{ data }} }}");
    assert_eq!(query(&gateway, &one, json!({})).await["block"]["data"].as_str().unwrap().len(), 80_000);
    let two = format!("{{ a: block(cid: \"{cid}\") {{ data }} b: block(cid: \"{cid}\") {{ data }} }}");
    let (_, code, message) = refusal(&gateway, &json!({"query": two})).await;
    assert_eq!(code, "too_large");
    assert!(message.contains("graphql.max_response_bytes"), "{message}");
}

/// A shard has links to other shards, dag-pb may be something else than UnixFS, and links of other codecs have no
/// names.
#[tokio::test]
async fn links_are_those_of_the_block() {
    let gateway = TestGateway::start().await;
    let form = (0..120).fold(Form::new(), |form, name| form.file(format!("d/{name}"), name.to_string()));
    let shard = hash_of(gateway.add_form("max-directory-links=100", form).await.last().unwrap());
    let leaf = gateway.put_block("", "leaf").await;
    let plain = json!({"Links": [
        {"Hash": {"/": leaf}, "Name": "b", "Tsize": 7},
        {"Hash": {"/": CID}, "Name": "a", "Tsize": 1_u64 << 40},
        {"Hash": {"/": leaf}, "Name": "b", "Tsize": 0},
    ]});
    let put = gateway.rpc("dag/put?store-codec=dag-pb&input-codec=dag-json").body(plain.to_string());
    let plain = put.send().await.unwrap().json::<Value>().await.unwrap()["Cid"]["/"].as_str().unwrap().to_owned();
    let list = gateway.put_block("cid-codec=dag-json", format!("[{{\"/\":\"{CID}\"}},{{\"/\":\"{leaf}\"}}]")).await;
    // A gateway with only the blocks themselves.
    let other = TestGateway::start().await;
    for (cid, codec) in [(&shard, "dag-pb"), (&plain, "dag-pb"), (&list, "dag-json")] {
        let block = gateway.rpc_bytes(&format!("block/get?arg={cid}")).await;
        let stored = other.put_block(&format!("cid-codec={codec}"), block).await;
        let node = gateway.rpc_json(&format!("dag/get?arg={cid}")).await;
        let named = |link: &Value| json!({"cid": link["Hash"]["/"], "name": link["Name"], "size": link["Tsize"]});
        let unnamed = |link: &Value| json!({"cid": link["/"], "name": "", "size": 0});
        let expected: Vec<_> = match node["Links"].as_array() {
            Some(links) => links.iter().map(named).collect(),
            None => node.as_array().unwrap().iter().map(unnamed).collect(),
        };
        assert!(expected.len() > 1, "{node}");
        let document = format!("{{ block(cid: \"{stored}\") {{ links(first: 1000) {{ cid name size }} }} }}");
        assert_eq!(query(&other, &document, json!({})).await["block"]["links"], json!(expected), "{cid}");
    }
}

#[tokio::test]
async fn nothing_is_executed_with_invalid_variables() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello").await;
    let document = "mutation($p: String!, $n: Cid!) { unpin(path: $p) deleteBlock(cid: $n) }";
    for variables in [json!({"p": cid}), json!({"p": cid, "n": 5}), json!({"p": cid, "n": "x"})] {
        let (status, code, message) = refusal(&gateway, &json!({"query": document, "variables": variables})).await;
        assert_eq!((status, &*code), (400, "invalid_input"), "{message}");
        assert!(message.contains("$n"), "{message}");
    }
    assert_eq!(gateway.rpc_json("pin/ls").await["Keys"].as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn operations_end_at_their_time_limit() {
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |config| config.graphql.timeout_seconds = 1).await;
    let cid = gateway.put_block("", "slow").await;
    store.withhold(&cid);
    let query = json!({"query": format!("{{ block(cid: \"{cid}\") {{ size }} }}")});
    let (status, code, message) = refusal(&gateway, &query).await;
    // A part may have been executed, so this is no refusal of the request.
    assert_eq!((status, &*code), (200, "timeout"));
    assert!(message.contains("graphql.timeout_seconds"), "{message}");
    assert!(!store.is_waited_for());
    store.release();
}

#[tokio::test]
async fn fields_that_fail_are_null() {
    let gateway = TestGateway::start().await;
    let document = format!(
        "{{ file(path: \"/ipfs/{CID}/x\") {{ size }} version {{ version }} gone: file(path: \"x\") {{ cid }} }}"
    );
    let body: Value = send(&gateway, &json!({"query": document})).await.json().await.unwrap();
    let data = body["data"].as_object().unwrap();
    assert_eq!((&data["file"], &data["gone"], data.len()), (&Value::Null, &Value::Null, 3), "{body}");
    assert_eq!(body["errors"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn responses_have_the_shape_and_the_order_of_the_document() {
    let gateway = TestGateway::start().await;
    let file = gateway.add("", "hello").await;
    let document = format!(
        "query($no: Boolean = false) {{ version {{ ...v }} block(cid: \"{file}\") {{ x: links(first: 9999) {{ cid }} }}
         a: file(path: \"/ipfs/{file}\") {{ cid @include(if: $no) }} none: block(cid: \"{CID}\") {{ ...b }}
         dag(path: \"/ipfs/{file}\") {{ remainder codec }} hasBlock(cid: \"{file}\") }}
         fragment v on Version {{ version @skip(if: true) }} fragment b on Block {{ cid }}"
    );
    for _ in 0..20 {
        let text = send(&gateway, &json!({"query": document})).await.text().await.unwrap();
        let expected = "{\"data\":{\"version\":{},\"block\":{\"x\":null},\"a\":{},\"none\":null,\
                        \"dag\":{\"remainder\":[],\"codec\":\"dag-pb\"},\"hasBlock\":true},\"errors\":[";
        assert!(text.starts_with(expected), "{text}");
    }
}

#[tokio::test]
async fn introspection_can_be_disabled() {
    let gateway = TestGateway::start_with(|config| config.graphql.introspection = false).await;
    let (_, code, message) = refusal(&gateway, &json!({"query": "{ __schema { types { name } } }"})).await;
    assert_eq!(code, "forbidden", "{message}");
    assert_eq!(gateway.get("/graphql/schema.graphql").await.status(), 404);
    let disabled = TestGateway::start_with(|config| config.graphql.enabled = false).await;
    assert_eq!(disabled.request(Method::POST, "/graphql").body("{}").send().await.unwrap().status(), 404);
}
