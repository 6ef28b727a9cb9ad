//! `dag/export`, `dag/import`, `dag/resolve` and `dag/stat`.

use bytes::Bytes;
use futures::SinkExt;
use ipfrs_core::{Block, Cid, codec, hash, parse_cid};
use serde_json::{Value, json};

use crate::car::{self, raw_cid};
use crate::content::{self, assert_same};
use crate::harness::{TestGateway, hash_of, header, ndjson, rpc_failure};
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

const CHUNK: usize = 262_144;

/// Encodes the header of a CAR with one root by hand: `{"roots": [root], "version": 1}` in DAG-CBOR after its length.
fn header_of(root: &Cid) -> Vec<u8> {
    let cid = root.to_bytes();
    let len = cid.len() as u8 + 1;
    let head = if len < 24 { vec![0x40 | len] } else { vec![0x58, len] };
    let link = [&[0xd8, 0x2a][..], &head, &[0], &cid].concat();
    let body = [b"\xa2\x65roots\x81", &link[..], b"\x67version\x01"].concat();
    [&[body.len() as u8][..], &body].concat()
}

/// Encodes a CARv1 with one root.
pub(crate) fn car_of(root: &str, blocks: &[(&str, &[u8])]) -> Vec<u8> {
    let rootless = car::write(blocks);
    [&header_of(&parse_cid(root).unwrap())[..], &rootless[car::write(&[]).len()..]].concat()
}

/// Returns the blocks of a CAR with this root.
pub(crate) fn blocks_of(car: &[u8], root: &str) -> Vec<Block> {
    let rest = car.strip_prefix(&header_of(&parse_cid(root).unwrap())[..]).expect("the root in the header");
    car::read(&[&car::write(&[]), rest].concat())
}

/// Adds a tree with a file of many blocks, a copy of it, an empty file, and a sharded directory.
async fn tree(gateway: &TestGateway, options: &str) -> String {
    let mut form = Form::new()
        .file("d/large", content::bytes(5 * CHUNK + 1))
        .file("d/copy", content::bytes(5 * CHUNK + 1))
        .file("d/empty", "")
        .symlink("d/link", "large");
    for name in 0..120 {
        form = form.file(format!("d/many/{name}"), name.to_string());
    }
    hash_of(gateway.add_form(&format!("max-directory-links=100&{options}"), form).await.last().unwrap())
}

async fn export(gateway: &TestGateway, path: &str) -> Bytes {
    gateway.rpc_bytes(&format!("dag/export?arg={path}")).await
}

async fn import(gateway: &TestGateway, options: &str, cars: &[&[u8]]) -> Vec<Value> {
    let form = cars.iter().fold(Form::new(), |form, car| form.file("x.car", car));
    ndjson(gateway.post_form(&format!("dag/import?{options}"), form).await).await
}

/// Returns all blocks of the DAG `root` in depth-first order without duplicates, using `block/get` and recursion.
pub(crate) async fn plain_walk(gateway: &TestGateway, root: &str) -> Vec<Cid> {
    let (mut order, mut pending) = (Vec::new(), vec![parse_cid(root).unwrap()]);
    while let Some(cid) = pending.pop() {
        if order.contains(&cid) {
            continue;
        }
        order.push(cid);
        if cid.codec() == codec::DAG_PB {
            let block = gateway.rpc_bytes(&format!("block/get?arg={cid}")).await;
            pending.extend(links(&block).into_iter().rev());
        }
    }
    order
}

/// Returns the links of a dag-pb block: fields 2 (`12`), whose first field is the hash (`0a`).
fn links(mut rest: &[u8]) -> Vec<Cid> {
    let mut links = Vec::new();
    while let Some((key, after)) = rest.split_first() {
        rest = after;
        let len = car::take_varint(&mut rest);
        let (field, after) = rest.split_at(len);
        rest = after;
        if *key == 0x12 {
            assert_eq!(field[0], 0x0a);
            links.push(Cid::read_bytes(&field[2..2 + usize::from(field[1])]).unwrap());
        }
    }
    links
}

#[tokio::test(flavor = "multi_thread")]
async fn dag_export_is_depth_first_without_duplicates() {
    let gateway = TestGateway::start().await;
    for options in ["", "cid-version=1"] {
        let root = tree(&gateway, options).await;
        let response = gateway.rpc(&format!("dag/export?arg={root}&progress=true")).send().await.unwrap();
        assert_eq!(header(&response, "content-type"), "application/vnd.ipld.car");
        assert_eq!(header(&response, "x-stream-output"), "1");
        assert_eq!(header(&response, "trailer"), "X-Stream-Error");
        let blocks = blocks_of(&response.bytes().await.unwrap(), &root);
        let order: Vec<_> = blocks.iter().map(|block| *block.cid()).collect();
        assert_eq!(order, plain_walk(&gateway, &root).await);
    }
    let root = tree(&gateway, "").await;
    let file = gateway.rpc_json(&format!("dag/resolve?arg=/ipfs/{root}/large")).await;
    let file_cid = file["Cid"]["/"].as_str().unwrap();
    assert_same(&export(&gateway, &format!("{root}/large")).await, &export(&gateway, file_cid).await, "a path");
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_car_can_be_imported() {
    let (here, there) = (TestGateway::start().await, TestGateway::start().await);
    let root = tree(&here, "").await;
    let car = export(&here, &root).await;
    let blocks = blocks_of(&car, &root);
    let bytes: usize = blocks.iter().map(|block| block.data().len()).sum();
    let stats = json!({"Stats": {"BlockCount": blocks.len(), "BlockBytesCount": bytes}});
    let pinned = json!({"Root": {"Cid": {"/": root}, "PinErrorMsg": ""}});
    assert_eq!(import(&there, "stats=true", &[&car]).await, [pinned.clone(), stats.clone()]);
    assert_eq!(there.blocks().await, blocks.len() as u64);
    let file = there.rpc_bytes(&format!("cat?arg={root}/large")).await;
    assert_same(&file, &content::bytes(5 * CHUNK + 1), "the file");
    // Import it again as a raw body, and with `silent`.
    let raw = there.rpc("dag/import?stats=1&pin-roots=false").body(car.clone()).send().await.unwrap();
    assert_eq!(ndjson(raw).await, [stats]);
    assert_eq!(import(&there, "silent=true", &[&car]).await, [pinned]);
    assert_eq!(there.blocks().await, blocks.len() as u64);
    assert_same(&export(&there, &root).await, &car, "the way back");
}

#[tokio::test(flavor = "multi_thread")]
async fn dag_import_reads_several_cars_and_version_2() {
    let gateway = TestGateway::start().await;
    let (a, b) = (raw_cid(b"a"), raw_cid(b"b"));
    let both = car_of(&a, &[(&a, b"a"), (&b, b"b"), (&a, b"a")]);
    let mut v2 = b"\x0a\xa1gversion\x02".to_vec();
    v2.extend([0; 16]);
    for number in [51, both.len(), 0] {
        v2.extend((number as u64).to_le_bytes());
    }
    v2.extend(&both);
    v2.extend(b"an index, which nobody reads");
    let lines = import(&gateway, "stats=true", &[&car_of(&b, &[]), &v2, &both]).await;
    let root = |cid: &str| json!({"Root": {"Cid": {"/": cid}, "PinErrorMsg": ""}});
    let stats = json!({"Stats": {"BlockCount": 6, "BlockBytesCount": 6}});
    assert_eq!(lines, [root(&b), root(&a), stats]);
    assert_eq!(gateway.blocks().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_dag_import_reports_the_incomplete_root() {
    let (here, there) = (TestGateway::start().await, TestGateway::start().await);
    let root = here.add("raw-leaves=true&cid-version=1", content::bytes(3 * CHUNK)).await;
    let blocks = blocks_of(&export(&here, &root).await, &root);
    let sections: Vec<_> = blocks.iter().map(|block| (block.cid().to_string(), block.data().clone())).collect();
    let part: Vec<_> = sections[..3].iter().map(|(cid, data)| (cid.as_str(), data.as_ref())).collect();
    let lines = import(&there, "", &[&car_of(&root, &part)]).await;
    assert_eq!(lines[0]["Root"]["Cid"]["/"], *root);
    let message = lines[0]["Root"]["PinErrorMsg"].as_str().unwrap();
    assert!(message.contains(&sections[3].0), "it names the missing block: {message}");
    assert_eq!(there.blocks().await, 3);
    assert!(import(&there, "local-only=true", &[&car_of(&root, &part)]).await.is_empty(), "nothing is to be pinned");
}

#[tokio::test(flavor = "multi_thread")]
async fn partial_dag_is_exported_with_local_only() {
    let gateway = TestGateway::start().await;
    let (present, absent) = (gateway.put_block("cid-codec=raw", "present").await, raw_cid(b"absent"));
    let node = Form::new().file("", json!([{ "/": present }, { "/": absent }]).to_string());
    let put = ndjson(gateway.post_form("dag/put", node).await).await;
    let root = put[0]["Cid"]["/"].as_str().unwrap();
    let car = gateway.rpc_bytes(&format!("dag/export?arg={root}&local-only=true")).await;
    let exported: Vec<_> = blocks_of(&car, root).iter().map(|block| block.cid().to_string()).collect();
    assert_eq!(exported, [root, present.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn identity_blocks_are_exported_and_never_stored() {
    let gateway = TestGateway::start().await;
    let root = gateway.add("inline=true&inline-limit=100&chunker=size-50", content::bytes(140)).await;
    let car = export(&gateway, &root).await;
    let blocks = blocks_of(&car, &root);
    // As in Kubo, the three leaves that are in their content IDs count.
    let inline = blocks.iter().filter(|block| block.cid().hash().code() == hash::IDENTITY).count();
    assert_eq!((inline, blocks.len() as u64), (3, gateway.blocks().await + 3));
    assert_eq!(gateway.rpc_json(&format!("dag/stat?arg={root}")).await["UniqueBlocks"], blocks.len());
    let path = gateway.content(&format!("/ipfs/{root}?format=car")).await;
    assert_eq!(blocks_of(&path, &root).len() as u64, gateway.blocks().await, "the gateway leaves them out");
    let inline = "bafkqac3imvwgy3zao5xxe3de";
    assert_eq!(export(&gateway, inline).await, car_of(inline, &[(inline, b"hello world")]));
    let lines = import(&gateway, "stats=true", &[&car_of(inline, &[(inline, b"hello world")])]).await;
    assert_eq!(lines[0], json!({"Root": {"Cid": {"/": inline}, "PinErrorMsg": ""}}));
    assert_eq!(lines[1], json!({"Stats": {"BlockCount": 1, "BlockBytesCount": 11}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_small_blocks_arrive_in_full() {
    let (here, there) = (TestGateway::start().await, TestGateway::start().await);
    let content = content::bytes(12_000 * 64);
    let root = here.add("chunker=size-64&raw-leaves=true&cid-version=1", content.clone()).await;
    let car = export(&here, &root).await;
    assert_eq!(blocks_of(&car, &root).len() as u64, here.blocks().await);
    let lines = import(&there, "stats=true", &[&car]).await;
    assert_eq!(lines[0]["Root"]["PinErrorMsg"], "");
    assert_eq!(lines[1]["Stats"]["BlockCount"], here.blocks().await);
    assert_eq!(there.blocks().await, here.blocks().await);
    assert_same(&there.rpc_bytes(&format!("cat?arg={root}")).await, &content, "the file");
}

#[tokio::test(flavor = "multi_thread")]
async fn export_fails_without_root_and_aborts_without_leaf() {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let root = whole.add("raw-leaves=true&cid-version=1", content::bytes(3 * CHUNK)).await;
    let message = rpc_failure(gateway.rpc(&format!("dag/export?arg={root}")).send().await.unwrap()).await;
    assert!(message.contains(&root), "{message}");
    let car = export(&whole, &root).await;
    let blocks = blocks_of(&car, &root);
    for block in [&blocks[0], &blocks[1], &blocks[3]] {
        let codec = if block.cid().codec() == codec::RAW { "raw" } else { "dag-pb" };
        gateway.put_block(&format!("cid-codec={codec}"), block.data().clone()).await;
    }
    let request = format!("POST /api/v0/dag/export?arg={root} HTTP/1.1\r\nContent-Length: 0");
    let answer = exchange(&gateway, &request).await;
    assert!(answer.status == 200 && !answer.is_complete, "{answer:?}");
    assert_same(&answer.body, &car[..answer.body.len()], "what came is right");
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("{request}\r\nTE: trailers\r\nHost: x\r\n\r\n")).await;
    let answer = wire.answer().await;
    assert!(answer.trailer("x-stream-error").contains(&blocks[2].cid().to_string()), "{:?}", answer.trailers);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_car_error_names_the_offset() {
    let gateway = TestGateway::start().await;
    let (good, other) = (raw_cid(b"good"), raw_cid(b"other"));
    let start = car_of(&good, &[(&good, b"good")]);
    let at = format!("section at byte {} of the CAR: ", start.len());
    let behind = |bytes: &[u8]| [&start, bytes].concat();
    let lie = [&start[..], &car::write(&[(&other, b"a lie")])[car::write(&[]).len()..]].concat();
    let big = vec![0; 2 * 1024 * 1024 + 1];
    let big = [&start[..], &car::write(&[(&raw_cid(&big), &big)])[car::write(&[]).len()..]].concat();
    for (name, car, expected) in [
        ("huge varint", behind(&[0xff; 10]), "a varint has more than 9 bytes"),
        ("section over the limit", behind(&[0xff, 0xff, 0xff, 0x7f]), "over the limit"),
        ("block over the limit", big, "over the limit of 2097152 bytes"),
        ("cut off", behind(&[0x28, 1, 2, 3]), "the CAR is truncated"),
        ("wrong hash", lie.clone(), &other),
        ("wrong hash, more behind it", [&lie[..], &start].concat(), &other),
        ("garbage", behind(b"\x05garbage"), "invalid binary CID"),
        ("zeros", behind(&[0; 1000]), "it has no bytes"),
    ] {
        let message = rpc_failure(gateway.post_form("dag/import", Form::new().file("x.car", &car)).await).await;
        assert!(message.starts_with(&format!("x.car: {at}")), "{name}: {message}");
        assert!(message.contains(expected), "{name}: {message}");
    }
    for nonsense in [&b""[..], b"x", b"\x05hello", &start[..20]] {
        let message = rpc_failure(gateway.post_form("dag/import", Form::new().file("x", nonsense)).await).await;
        assert!(message.starts_with("x: header at byte 0 of the CAR: "), "{message}");
    }
    let nothing = gateway.post_form("dag/import", Form::new()).await;
    assert_eq!(nothing.status(), 400);
    assert!(gateway.blocks().await <= 1, "only what was right and came first");
    assert_eq!(import(&gateway, "", &[&start]).await.len(), 1);
    assert_eq!(gateway.rpc_bytes(&format!("block/get?arg={good}")).await, "good");
    assert_eq!(gateway.blocks().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stat_counts_blocks_of_each_dag_and_of_all_together() {
    let gateway = TestGateway::start().await;
    let options = "raw-leaves=true&cid-version=1";
    let long = content::bytes(3 * CHUNK);
    let (a, b) = (gateway.add(options, long.clone()).await, gateway.add(options, long.slice(..2 * CHUNK)).await);
    let size = async |cid: &str| gateway.rpc_json(&format!("block/stat?arg={cid}")).await["Size"].as_u64().unwrap();
    let (size_a, size_b) = (size(&a).await + 3 * CHUNK as u64, size(&b).await + 2 * CHUNK as u64);
    let one = gateway.rpc_json(&format!("dag/stat?arg={a}&progress=false")).await;
    let dag_a = json!({"Cid": a, "Size": size_a, "NumBlocks": 4});
    let expected = json!({"UniqueBlocks": 4, "TotalSize": size_a, "Ratio": 1.0, "DagStats": [dag_a.clone()]});
    assert_eq!(one, expected);
    let both = ndjson(gateway.rpc(&format!("dag/stat?arg={a}&arg=/ipfs/{b}")).send().await.unwrap()).await;
    let both = both.last().unwrap();
    assert_eq!(both["DagStats"], json!([dag_a, {"Cid": b, "Size": size_b, "NumBlocks": 3}]));
    assert_eq!((&both["UniqueBlocks"], &both["SharedSize"]), (&json!(5), &json!(2 * CHUNK)));
    assert_eq!(both["TotalSize"], size_a + size_b - 2 * CHUNK as u64);
    let ratio = (size_a + size_b) as f64 / (size_a + size_b - 2 * CHUNK as u64) as f64;
    assert!((both["Ratio"].as_f64().unwrap() - ratio).abs() < 1e-9);
    let absent = raw_cid(b"absent");
    let message = rpc_failure(gateway.rpc(&format!("dag/stat?arg={absent}")).send().await.unwrap()).await;
    assert!(message.contains(&absent), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dag_resolve_returns_block_and_remaining_path() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/a/file", "hello")]).await;
    let file = raw_cid(b"hello");
    let resolved = async |path: &str| gateway.rpc_json(&format!("dag/resolve?arg={path}")).await;
    // Below /ipld, a directory is the value that its block encodes.
    let value = format!("/ipld/{root}/Links/0/Hash/Links/0");
    for (path, cid, rest) in [
        (format!("{root}/a/file"), &file, ""),
        (format!("{value}/Hash"), &file, ""),
        (format!("/ipld/{root}"), &root, ""),
        (format!("/ipld/{root}/Links/0/Name"), &root, "/Links/0/Name"),
        (format!("/ipld/{root}/Data"), &root, "/Data"),
    ] {
        assert_eq!(resolved(&path).await, json!({"Cid": {"/": cid}, "RemPath": rest}), "{path}");
    }
    let link = json!({"Hash": {"/": file}, "Name": "file", "Tsize": 5});
    assert_eq!(gateway.rpc_json(&format!("dag/get?arg={value}")).await, link);
    for wrong in ["a", "Links/1", "Links/0/hash", "Links/0/Name/x", "Data/0", "Links/-1"] {
        let missing = gateway.rpc(&format!("dag/resolve?arg=/ipld/{root}/{wrong}")).send().await.unwrap();
        let message = rpc_failure(missing).await;
        let name = wrong.rsplit('/').next().unwrap();
        assert!(message.contains(&format!("no link named {name:?}")), "{wrong}: {message}");
    }
    // {"to": link to the directory, "list": [{"x": 1}]}
    let link = [&[0xd8, 0x2a, 0x58, 37, 0][..], &parse_cid(&root).unwrap().to_bytes()].concat();
    let node = [b"\xa2\x62to", &link[..], b"\x64list\x81\xa1\x61x\x01"].concat();
    let node = gateway.put_block("cid-codec=dag-cbor", node).await;
    assert_eq!(resolved(&format!("{node}/to/a/file")).await, json!({"Cid": {"/": file}, "RemPath": ""}));
    assert_eq!(resolved(&format!("{node}/list/0/x")).await, json!({"Cid": {"/": node}, "RemPath": "/list/0/x"}));
    let exported = blocks_of(&export(&gateway, &node).await, &node);
    assert_eq!(exported.len(), 4, "links of dag-cbor are followed");
    let listed = gateway.rpc_json(&format!("ls?arg={node}")).await;
    let link = json!({
        "Name": "", "Hash": root, "Size": 0, "Type": 1, "Target": "", "Mode": 0, "ModTime": "0001-01-01T00:00:00Z",
    });
    assert_eq!(listed, json!({"Objects": [{"Hash": node, "Links": [link]}]}));
    let missing = gateway.rpc(&format!("dag/resolve?arg={root}/b")).send().await.unwrap();
    assert!(rpc_failure(missing).await.contains("\"b\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_block_of_a_path_is_not_needed_to_resolve_it() {
    // With retrieval, which finds no source.
    let gateway = TestGateway::start_with(|config| config.retrieval.gateways = vec!["http://127.0.0.1:1".into()]).await;
    let absent = "bafkreifzjut3te7nhyekklss27nh3k72ysco7y32koao5eei66wof36n5e";
    let node = format!("{{\"b\":{{\"/\":\"{absent}\"}}}}");
    let form = Form::new().file("node", node.as_bytes());
    let put = ndjson(gateway.post_form("dag/put", form).await).await;
    let node = put[0]["Cid"]["/"].as_str().unwrap();
    let resolved = gateway.rpc_json(&format!("dag/resolve?arg={node}/b")).await;
    assert_eq!(resolved, json!({"Cid": {"/": absent}, "RemPath": ""}));
    assert_eq!(gateway.rpc_json(&format!("resolve?arg={node}/b")).await["Path"], format!("/ipfs/{absent}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_keeps_blocks_of_a_concurrent_import() {
    let (here, there) = (TestGateway::start().await, TestGateway::start().await);
    let content = content::bytes(40 * CHUNK);
    let root = here.add("", content.clone()).await;
    let car = export(&here, &root).await;
    let (mut sender, receiver) = futures::channel::mpsc::channel::<Result<Bytes, std::io::Error>>(4);
    let import = tokio::spawn(there.rpc("dag/import").body(reqwest::Body::wrap_stream(receiver)).send());
    let half = car.len() / 2;
    sender.send(Ok(car.slice(..half))).await.unwrap();
    // Wait until some blocks are stored. The rest is sent after the garbage collection.
    while there.blocks().await == 0 {
        tokio::task::yield_now().await;
    }
    let collect = async || there.rpc_bytes("repo/gc").await;
    there.put_block("", "garbage of others").await;
    assert_eq!(there.rpc_bytes("repo/gc").await.iter().filter(|byte| **byte == b'\n').count(), 1, "only that");
    sender.send(Ok(car.slice(half..))).await.unwrap();
    drop(sender);
    let lines = ndjson(import.await.unwrap().unwrap()).await;
    assert_eq!(lines, [json!({"Root": {"Cid": {"/": root}, "PinErrorMsg": ""}})]);
    assert_eq!(collect().await, "", "it is pinned");
    assert_same(&there.rpc_bytes(&format!("cat?arg={root}")).await, &content, "the file");
    there.rpc_bytes(&format!("pin/rm?arg={root}")).await;
    assert_ne!(collect().await, "");
    assert_eq!(there.blocks().await, 0, "nothing else kept it");
}
