//! Names that are not UTF-8. Names on disk may be such names, and names in crafted blocks may be any bytes.

use ipfrs_core::{Base, Cid, parse_cid};
use ipfrs_proto::file::v1::ListDirectoryRequest;
use ipfrs_proto::file::v1::file_service_client::FileServiceClient;
use reqwest::Method;
use serde_json::{Value, json};

use crate::crafted::{DIRECTORY, Dag, Data, node};
use crate::harness::{TestGateway, hash_of, header, ndjson, rpc_failure};
use crate::multipart::Form;
use crate::rpc_get::{paths, untar};
use crate::wire::exchange;

/// Names in byte order. The content of each file is its name.
const NAMES: [&[u8]; 5] = [b"caf\xc3\xa9", b"caf\xe9", b"plain.txt", b"\xfe\xff", b"\xff.txt"];

fn url(name: &[u8]) -> String {
    name.iter().map(|byte| format!("%{byte:02X}")).collect()
}

fn base64(name: &[u8]) -> String {
    Base::Base64Pad.encode(name)
}

/// Adds `d` with [`NAMES`], a directory with a non-UTF-8 name and one file, and a symlink. Returns the content ID of
/// `d` and the response lines.
async fn add(gateway: &TestGateway, options: &str) -> (Cid, Vec<Value>) {
    let form = NAMES.iter().fold(Form::new(), |form, name| form.file([b"d/", *name].concat(), name));
    let form = form.file(b"d/sub\xff/\xfe.bin", "nested").symlink(b"d/to", b"\xff.txt");
    let lines = gateway.add_form(&format!("cid-version=1&pin=false&{options}"), form).await;
    (parse_cid(&hash_of(lines.last().unwrap())).unwrap(), lines)
}

#[tokio::test]
async fn added_names_are_bytes_and_give_the_cid_of_dag_pb_by_hand() {
    let gateway = TestGateway::start().await;
    let (_, lines) = add(&gateway, "").await;
    let line = |bytes: &[u8]| lines.iter().find(|line| line["NameBytes"] == base64(bytes).as_str()).unwrap();
    assert_eq!(line(b"d/\xff.txt")["Name"], "d/\u{fffd}.txt");
    assert_eq!(line(b"d/caf\xe9")["Name"], "d/caf\u{fffd}");
    let plain = lines.iter().find(|line| line["Name"] == "d/caf\u{e9}").unwrap();
    assert!(plain.get("NameBytes").is_none(), "{plain}");
    // A directory of one file, byte for byte as go-merkledag writes it. `node` writes no Tsize, so it is patched in.
    let nested = parse_cid(&hash_of(line(b"d/sub\xff/\xfe.bin"))).unwrap();
    let mut block = node([(b"\xfe.bin", nested)], &Data { kind: DIRECTORY, ..Data::default() }.encode());
    let tsize = block.windows(2).position(|bytes| bytes == [0x18, 0]).unwrap() + 1;
    block[tsize] = "nested".len() as u8;
    let stored = gateway.content(&format!("/ipfs/{}?format=raw", hash_of(line(b"d/sub\xff")))).await;
    assert_eq!(stored, block);
}

#[tokio::test]
async fn the_gateway_serves_and_lists_names_that_are_bytes() {
    let gateway = TestGateway::start().await;
    for options in ["", "max-directory-links=1"] {
        let (root, _) = add(&gateway, options).await;
        // The second request uses the path cache.
        for name in [NAMES, NAMES].concat() {
            let response = gateway.get(&format!("/ipfs/{root}/{}", url(name))).await;
            assert_eq!((response.status().as_u16(), response.bytes().await.unwrap()), (200, name.into()));
        }
        assert_eq!(gateway.content(&format!("/ipfs/{root}/sub%ff/%fE.bin")).await, "nested");
        // Client libraries normalize paths, so these requests are written by hand.
        for (below, status) in
            [("%FE", 404), ("%FF.txt/x", 404), ("%EF%BF%BD.txt", 404), ("%FF/../%FF.txt", 200), ("%2E%2e/%FF", 400)]
        {
            let request = format!("GET /ipfs/{root}/{below} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            assert_eq!(exchange(&gateway, request).await.status, status, "{below}");
        }
        let response = gateway.get(&format!("/ipfs/{root}/%FF.txt?download=true")).await;
        let disposition = "attachment; filename=\"_.txt\"; filename*=UTF-8''%EF%BF%BD.txt";
        assert_eq!(header(&response, "content-disposition"), disposition);
        assert_eq!(header(&response, "content-type"), "text/plain; charset=utf-8");
        assert!(header(&response, "ipfs-uri").ends_with("/%FF.txt"));
        assert!(header(&response, "x-ipfs-roots").starts_with(&root.to_string()));
        let response = gateway.get(&format!("/ipfs/{root}/sub%ff")).await;
        assert_eq!(header(&response, "location"), format!("/ipfs/{root}/sub%FF/"));
        let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
        for shown in ["⟨0xFF⟩.txt", "caf⟨0xE9⟩", "caf\u{e9}", "/%FF.txt\"", "/caf%E9\"", "/caf%C3%A9\"", "/sub%FF\""]
        {
            assert!(page.contains(shown), "{shown} in {page}");
        }
        let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/sub%FF/")).await.to_vec()).unwrap();
        assert!(page.contains("sub⟨0xFF⟩") && page.contains("/sub%FF/%FE.bin"), "{page}");
        let file = gateway.content(&format!("/v1/stream/download/{root}/%FF.txt")).await;
        assert_eq!(file, NAMES[4]);
    }
}

#[tokio::test]
async fn the_rpc_takes_and_gives_names_that_are_bytes() {
    let gateway = TestGateway::start().await;
    for options in ["", "max-directory-links=1"] {
        let (root, _) = add(&gateway, options).await;
        for name in NAMES {
            let path = format!("/ipfs/{root}/{}", url(name));
            assert_eq!(gateway.rpc_bytes(&format!("cat?arg={path}")).await, name);
            assert_eq!(gateway.rpc_json(&format!("files/stat?arg={path}")).await["Size"], name.len());
            let resolved = gateway.rpc_json(&format!("resolve?arg={path}")).await;
            assert_eq!(gateway.content(resolved["Path"].as_str().unwrap()).await, name);
            let archive = untar(&gateway.rpc_bytes(&format!("get?arg={path}")).await);
            assert_eq!((archive.len(), &archive[0].content[..]), (1, name));
        }
        let missing = gateway.rpc(&format!("cat?arg=/ipfs/{root}/%FE")).send().await.unwrap();
        assert!(rpc_failure(missing).await.contains(r#"no link named "\xfe""#));
        let links = gateway.rpc_json(&format!("ls?arg={root}")).await["Objects"][0]["Links"].clone();
        let names: Vec<_> = links.as_array().unwrap().iter().map(|link| (&link["Name"], &link["NameBytes"])).collect();
        let (lossy, encoded) = (|text: &str| Value::from(text), |name: &[u8]| Value::from(base64(name)));
        let expected = [
            (lossy("caf\u{e9}"), Value::Null),
            (lossy("caf\u{fffd}"), encoded(b"caf\xe9")),
            (lossy("plain.txt"), Value::Null),
            (lossy("sub\u{fffd}"), encoded(b"sub\xff")),
            (lossy("to"), Value::Null),
            (lossy("\u{fffd}\u{fffd}"), encoded(b"\xfe\xff")),
            (lossy("\u{fffd}.txt"), encoded(b"\xff.txt")),
        ];
        assert_eq!(names, expected.iter().map(|(name, bytes)| (name, bytes)).collect::<Vec<_>>());
        let link = links.as_array().unwrap().iter().find(|link| link["Name"] == "to").unwrap();
        assert_eq!((&link["Target"], &link["TargetBytes"]), (&lossy("\u{fffd}.txt"), &encoded(b"\xff.txt")));
        let streamed = ndjson(gateway.rpc(&format!("ls?arg={root}&stream=true")).send().await.unwrap()).await;
        assert_eq!(streamed.len(), expected.len());
    }
}

#[tokio::test]
async fn archives_keep_names_that_are_bytes() {
    let gateway = TestGateway::start().await;
    for options in ["", "max-directory-links=1"] {
        let (root, _) = add(&gateway, options).await;
        let archive = untar(&gateway.rpc_bytes(&format!("get?arg={root}")).await);
        let mut found = paths(&archive);
        found.sort_unstable();
        let expected = [
            "",
            "/caf\\xe9",
            "/caf\u{e9}",
            "/plain.txt",
            "/sub\\xff",
            "/sub\\xff/\\xfe.bin",
            "/to",
            "/\\xfe\\xff",
            "/\\xff.txt",
        ];
        let mut expected = expected.map(|below| format!("{root}{below}"));
        expected.sort_unstable();
        assert_eq!(found, expected);
        let mut again = untar(&gateway.content(&format!("/ipfs/{root}?format=tar")).await);
        // The RPC gives entries without a time that of the request.
        for (entry, other) in again.iter_mut().zip(&archive) {
            assert_eq!(std::mem::replace(&mut entry.mtime, other.mtime.clone()), "0");
        }
        assert_eq!(again, archive);
    }
}

#[tokio::test]
async fn pins_gc_and_cars_hold_directories_with_names_that_are_bytes() {
    let (gateway, other) = (TestGateway::start().await, TestGateway::start().await);
    for options in ["", "max-directory-links=1"] {
        let (root, _) = add(&gateway, options).await;
        let path = format!("/ipfs/{root}/sub%FF");
        let pinned = gateway.rpc_json(&format!("pin/add?arg={root}&arg={path}")).await;
        assert_eq!(pinned["Pins"].as_array().unwrap().len(), 2);
        gateway.rpc_bytes("repo/gc").await;
        assert!(gateway.rpc_json(&format!("pin/ls?arg={path}")).await["Keys"].is_object());
        let verified = ndjson(gateway.rpc("repo/verify").send().await.unwrap()).await;
        assert!(verified.iter().all(|line| !line.to_string().contains("corrupt ")), "{verified:?}");
        let stat = gateway.rpc_json(&format!("dag/stat?arg={root}&progress=false")).await;
        assert!(stat["DagStats"][0]["NumBlocks"].as_u64().unwrap() > 6, "{stat}");
        // Export the whole DAG, and then one file by its path, which requires the directories along the path.
        let whole = gateway.rpc_bytes(&format!("dag/export?arg={root}")).await;
        let by_path = gateway.content(&format!("{path}/%FE.bin?format=car&dag-scope=all")).await;
        assert!(by_path.len() < whole.len());
        for car in [by_path, whole] {
            ndjson(other.post_form("dag/import?pin-roots=false", Form::new().file("car", car)).await).await;
            assert_eq!(other.content(&format!("{path}/%FE.bin")).await, "nested");
        }
        assert_eq!(other.content(&format!("/ipfs/{root}/%FF.txt")).await, NAMES[4]);
        gateway.rpc_json(&format!("pin/rm?arg={root}&arg={path}")).await;
    }
}

#[tokio::test]
async fn paths_in_the_body_of_a_command_are_bytes() {
    let gateway = TestGateway::start().await;
    let (root, _) = add(&gateway, "").await;
    let path = format!("/ipfs/{root}/");
    let lines = [path.as_bytes(), b"\xff.txt\n", path.as_bytes(), b"caf\xe9\n"].concat();
    let response = gateway.post_form("cat", Form::new().file("stdin", lines)).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.bytes().await.unwrap(), [NAMES[4], NAMES[1]].concat());
}

#[tokio::test]
async fn non_utf8_is_replaced_in_dag_json_and_refused_on_put() {
    let gateway = TestGateway::start().await;
    let (root, _) = add(&gateway, "").await;
    let node = gateway.rpc_json(&format!("dag/get?arg={root}")).await;
    let names: Vec<_> = node["Links"].as_array().unwrap().iter().map(|link| link["Name"].as_str().unwrap()).collect();
    assert!(names.contains(&"\u{fffd}.txt") && names.contains(&"caf\u{e9}"), "{names:?}");
    let block = gateway.rpc_bytes(&format!("dag/get?arg={root}&output-codec=dag-pb")).await;
    let failed = gateway.rpc(&format!("dag/get?arg={root}&output-codec=dag-cbor")).send().await.unwrap();
    assert!(rpc_failure(failed).await.contains("a name that is not UTF-8"));
    let put = async |store: &str| {
        let form = Form::new().file("node", &block);
        gateway.post_form(&format!("dag/put?input-codec=dag-pb&store-codec={store}"), form).await
    };
    assert_eq!(ndjson(put("dag-pb").await).await[0]["Cid"]["/"], root.to_string());
    assert!(rpc_failure(put("dag-json").await).await.contains("a name that is not UTF-8"));
}

#[tokio::test]
async fn grpc_lists_escaped_names_beside_their_bytes() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let file = dag.file(b"x", &[]);
    let root = dag.directory(&[(&b"a\\b"[..], file), (b"\xff\n", file)]);
    dag.import(&gateway).await;
    let request = ListDirectoryRequest { path: root.to_string(), ..ListDirectoryRequest::default() };
    let entries = FileServiceClient::new(gateway.channel()).list_directory(request).await.unwrap().into_inner().entries;
    let names: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), &entry.name_bytes[..])).collect();
    assert_eq!(names, [("a\\b", &b""[..]), ("\\xff\\n", b"\xff\n")]);
}

#[tokio::test]
async fn crafted_names_cannot_escape_on_any_route() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let (file, other) = (dag.file(b"x", &[]), dag.file(b"other", &[]));
    let long = vec![b'n'; 5_000];
    let names: [&[u8]; 10] = [b"", b".", b"..", b"/", b"a/b", b"../../x", b"nul\0", b"line\n", b"twice", &long];
    let mut entries: Vec<_> = names.into_iter().map(|name| (name, file)).collect();
    entries.push((b"twice", other));
    let root = dag.directory(&entries);
    let alone = names.map(|name| dag.directory(&[(name, file)]));
    dag.import(&gateway).await;
    // Each listing contains all of them, and a path finds those that are valid names.
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
    assert!(page.contains("11 entries") && page.contains("(no name)") && page.contains("nul⟨U+0000⟩"), "{page}");
    let links = gateway.rpc_json(&format!("ls?arg={root}")).await["Objects"][0]["Links"].clone();
    assert_eq!(links.as_array().unwrap().len(), 11);
    for (below, content) in
        [("nul%00", "x"), ("line%0A", "x"), ("twice", "x"), (std::str::from_utf8(&long).unwrap(), "x")]
    {
        assert_eq!(gateway.content(&format!("/ipfs/{root}/{below}")).await, content);
    }
    // An archive contains the name below its root, or the request is refused.
    for (name, directory) in names.into_iter().zip(alone) {
        let response = gateway.rpc(&format!("get?arg={directory}")).send().await.unwrap();
        let is_kept = matches!(name, b"a/b" | b"line\n" | b"twice") || name.len() == long.len();
        assert_eq!(response.status() == 200, is_kept, "{}", name.escape_ascii());
        if is_kept {
            let archive = untar(&response.bytes().await.unwrap());
            assert!(paths(&archive).iter().all(|path| path.starts_with(&directory.to_string())));
        }
    }
}

#[tokio::test]
async fn imports_refuse_only_names_that_escape() {
    let gateway = TestGateway::start().await;
    for (name, why) in [(&b"d/\xff\0"[..], "a NUL byte")] {
        let response = gateway.post_form("add", Form::new().file(name, "x")).await;
        assert!(rpc_failure(response).await.contains(why), "{}", name.escape_ascii());
    }
    // Different names that lossy decoding would make equal, and then duplicate names.
    let form = Form::new().file(b"d/\xff", "1").file(b"d/\xfe", "2").file("d/\u{fffd}", "3");
    let root = hash_of(gateway.add_form("cid-version=1", form).await.last().unwrap());
    for (name, content) in [("%FF", "1"), ("%FE", "2"), ("%EF%BF%BD", "3")] {
        assert_eq!(gateway.content(&format!("/ipfs/{root}/{name}")).await, content);
    }
    let twice = gateway.post_form("add", Form::new().file(b"d/\xff", "1").file(b"d/\xff", "2")).await;
    assert!(rpc_failure(twice).await.contains(r#""d/\xff" is in the import twice"#));
}

#[tokio::test]
async fn graphql_names_have_a_replacement_for_each_byte_and_no_escapes() {
    let gateway = TestGateway::start().await;
    let names: [&[u8]; 4] = [b"caf\xe9", b"plain.txt", b"line\nbreak", br"back\slash"];
    let form = names.iter().fold(Form::new(), |form, name| form.file([b"d/", *name].concat(), name));
    let root = hash_of(gateway.add_form("cid-version=1", form).await.last().unwrap());
    let document = "query($path: String!, $cid: Cid!) {
        directory(path: $path) { nodes { name } } block(cid: $cid) { links { name } } }";
    let request = json!({"query": document, "variables": {"path": format!("/ipfs/{root}"), "cid": root}});
    let response: Value =
        gateway.request(Method::POST, "/graphql").json(&request).send().await.unwrap().json().await.unwrap();
    let data = &response["data"];
    let expected = json!([
        {"name": r"back\slash"}, {"name": "caf\u{fffd}"}, {"name": "line\nbreak"}, {"name": "plain.txt"}
    ]);
    assert_eq!((&data["directory"]["nodes"], &data["block"]["links"]), (&expected, &expected), "{response}");
}
