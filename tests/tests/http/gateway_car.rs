//! `?format=car` (<https://specs.ipfs.tech/http-gateways/trustless-gateway/>), compared with traversals that use
//! `dag/get`.

use ipfrs_core::{Cid, codec, parse_cid};
use reqwest::Method;

use crate::content;
use crate::dag::{blocks_of, plain_walk};
use crate::harness::{TestGateway, hash_of, header};
use crate::missing_blocks::without_some_leaves;
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

const CHUNK: usize = 1024;

/// Options of `add` that create files of many blocks and directories of many shards.
const SMALL: &str = "cid-version=1&chunker=size-1024&max-file-links=4&max-directory-links=20&max-hamt-fanout=8";

/// Adds `d/large`, a file of 21 blocks in three levels, `d/copy`, a copy of it, and `d/many`, a directory of about
/// 200 shards.
async fn tree(gateway: &TestGateway) -> String {
    let large = content::bytes(21 * CHUNK);
    let mut form = Form::new().file("d/copy", &large).file("d/large", &large);
    for name in 0..300 {
        form = form.file(format!("d/many/{name}"), name.to_string());
    }
    hash_of(gateway.add_form(SMALL, form).await.last().unwrap())
}

/// Returns the links of a dag-pb block with their names.
async fn links(gateway: &TestGateway, cid: &Cid) -> Vec<(String, Cid)> {
    let node = gateway.rpc_json(&format!("dag/get?arg={cid}")).await;
    let link = |link: &serde_json::Value| {
        (link["Name"].as_str().unwrap().to_owned(), parse_cid(link["Hash"]["/"].as_str().unwrap()).unwrap())
    };
    node["Links"].as_array().unwrap().iter().map(link).collect()
}

/// Returns the shards of a directory with fanout 8 in depth-first order. Links to shards have names of one digit.
async fn shards(gateway: &TestGateway, root: Cid) -> Vec<Cid> {
    let (mut order, mut pending) = (Vec::new(), vec![root]);
    while let Some(cid) = pending.pop() {
        order.push(cid);
        let inner = links(gateway, &cid).await.into_iter().filter(|(name, _)| name.len() == 1);
        pending.extend(inner.map(|(_, cid)| cid).rev());
    }
    order
}

/// Returns the shards on the path to an entry of a directory with fanout 8, and the entry.
async fn way_to(gateway: &TestGateway, shards: &[Cid], name: &str) -> Vec<Cid> {
    let mut way = Vec::new();
    // From the entry to the root: an earlier shard links to each of them.
    for shard in shards.iter().rev() {
        let is_next = |(link, cid): &(String, Cid)| match way.first() {
            None => link.get(1..) == Some(name),
            Some(next) => cid == next,
        };
        if let Some((_, found)) = links(gateway, shard).await.into_iter().find(is_next) {
            if way.is_empty() {
                way.push(found);
            }
            way.insert(0, *shard);
        }
    }
    way
}

async fn cid_of(gateway: &TestGateway, path: &str) -> Cid {
    let resolved = gateway.rpc_json(&format!("dag/resolve?arg=/ipfs/{path}")).await;
    parse_cid(resolved["Cid"]["/"].as_str().unwrap()).unwrap()
}

/// Returns the content IDs in the CAR of a path, in order, after verifying every block. The root of the CAR must be
/// the content ID of the path.
async fn car(gateway: &TestGateway, path: &str, query: &str) -> Vec<Cid> {
    let car = gateway.content(&format!("/ipfs/{path}?format=car&{query}")).await;
    let root = cid_of(gateway, path).await;
    blocks_of(&car, &root.to_string()).iter().map(|block| *block.cid()).collect()
}

/// Returns the leaves of a file in order.
async fn leaves(gateway: &TestGateway, file: &Cid) -> Vec<Cid> {
    let walk = plain_walk(gateway, &file.to_string()).await;
    walk.into_iter().filter(|cid| cid.codec() == codec::RAW).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_car_has_the_blocks_of_the_path_and_what_its_scope_says() {
    let gateway = TestGateway::start().await;
    let root = tree(&gateway).await;
    let root_cid = parse_cid(&root).unwrap();
    let large = cid_of(&gateway, &format!("{root}/large")).await;
    let file = plain_walk(&gateway, &large.to_string()).await;
    assert_eq!(file.len(), 1 + 2 + 6 + 21, "a file of several levels");
    let path = format!("{root}/large");
    for (query, expected) in [
        ("dag-scope=block", &file[..1]),
        ("dag-scope=entity", &file[..]),
        ("dag-scope=all", &file[..]),
        ("", &file[..]),
    ] {
        assert_eq!(car(&gateway, &path, query).await, [&[root_cid], expected].concat(), "{query}");
    }
    assert_eq!(car(&gateway, &root, "").await, plain_walk(&gateway, &root).await);
    assert_eq!(car(&gateway, &root, "dag-scope=entity").await, [root_cid], "a directory without what is in it");
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_sharded_directory_has_only_needed_shards() {
    let gateway = TestGateway::start().await;
    let root = tree(&gateway).await;
    let path = format!("{root}/many");
    let shards = shards(&gateway, cid_of(&gateway, &path).await).await;
    assert!(shards.len() > 50, "{}", shards.len());
    let before = parse_cid(&root).unwrap();
    for query in ["dag-scope=entity", "entity-bytes=0:5", "dag-scope=all&entity-bytes=0:*"] {
        assert_eq!(car(&gateway, &path, query).await, [&[before], &shards[..]].concat(), "{query}");
    }
    for name in ["7", "123", "299"] {
        let way = way_to(&gateway, &shards, name).await;
        assert!(way.len() > 2, "an entry below several shards: {way:?}");
        assert_eq!(car(&gateway, &format!("{path}/{name}"), "").await, [&[before], &way[..]].concat());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_bytes_returns_the_fewest_blocks() {
    let gateway = TestGateway::start().await;
    let large = cid_of(&gateway, &format!("{}/large", tree(&gateway).await)).await;
    let (file, leaves) = (large.to_string(), leaves(&gateway, &large).await);
    let walk = plain_walk(&gateway, &file).await;
    for (range, wanted) in [
        ("0:0", 0..1),
        ("0:1023", 0..1),
        ("1023:1024", 0..2),
        ("5000:9000", 4..9),
        ("-1:*", 20..21),
        ("-99999:-20481", 0..1),
        ("20000:99999", 19..21),
        ("2048:-17409", 2..4),
        ("0:*", 0..21),
        ("5000:-17000", 0..0),
    ] {
        let found = car(&gateway, &file, &format!("entity-bytes={range}")).await;
        let found_leaves: Vec<_> = found.iter().filter(|cid| cid.codec() == codec::RAW).copied().collect();
        assert_eq!(found_leaves, leaves[wanted.clone()], "{range}");
        // Only the inner nodes above the leaves in the range: each inner node has four children.
        let mut nodes = 1;
        if !wanted.is_empty() {
            let levels = [4, 16].map(|width| (wanted.end - 1) / width - wanted.start / width + 1);
            nodes += levels.iter().sum::<usize>();
        }
        assert_eq!(found.len() - found_leaves.len(), nodes, "{range}");
        let mut rest = walk.iter();
        assert!(found.iter().all(|cid| rest.any(|other| other == cid)), "in the order of the whole: {range}");
    }
    for range in ["21504:*", "-99999:-21505", "5:4", "x:*", "7", ""] {
        let response = gateway.get(&format!("/ipfs/{file}?format=car&entity-bytes={range}")).await;
        assert_eq!(response.status(), 400, "{range}");
    }
    let empty = gateway.add("cid-version=1", "").await;
    assert_eq!(car(&gateway, &empty, "entity-bytes=0:*").await, [parse_cid(&empty).unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_needs_no_other_leaf() {
    let (gateway, cid) = without_some_leaves("", &[1]).await;
    assert_eq!(car(&gateway, &cid, "entity-bytes=262144:300000").await.len(), 2);
    let answer = exchange(&gateway, format!("GET /ipfs/{cid}?format=car HTTP/1.1")).await;
    assert!(answer.status == 200 && !answer.is_complete, "a CAR that lacks a block breaks off");
}

#[tokio::test(flavor = "multi_thread")]
async fn car_repeats_blocks_only_with_dups() {
    let gateway = TestGateway::start().await;
    let zeros = gateway.add("cid-version=1&chunker=size-1024", vec![0; 5 * CHUNK]).await;
    let inline = gateway.add_tree("inline=true&cid-version=1", &[("d/small", "x"), ("d/other", "y")]).await;
    for (path, query, count) in [
        (&zeros, "", 2),
        (&zeros, "car-dups=n", 2),
        (&zeros, "car-dups=y", 6),
        (&zeros, "car-dups=y&entity-bytes=1024:3071", 3),
        (&zeros, "car-dups=n&entity-bytes=1000:3071", 2),
        (&inline, "car-dups=y", 1),
        (&format!("{inline}/small"), "car-dups=y", 1),
    ] {
        assert_eq!(car(&gateway, path, query).await.len(), count, "{path} {query}");
    }
    // The nodes and leaves are repeated for the second file.
    let root = tree(&gateway).await;
    let once = car(&gateway, &root, "").await;
    assert_eq!(car(&gateway, &root, "car-dups=y").await.len(), once.len() + 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_exponential_dag_streams_until_disconnect() {
    let gateway = TestGateway::start().await;
    let mut below = gateway.put_block("cid-codec=raw", content::bytes(CHUNK)).await;
    for _ in 0..60 {
        // {"l": [link, link]} in dag-json: 2^60 blocks in a few kilobytes.
        let node = format!("{{\"l\":[{{\"/\":\"{below}\"}},{{\"/\":\"{below}\"}}]}}");
        below = gateway.put_block("cid-codec=dag-json", node).await;
    }
    let mut wire = Wire::connect(&gateway).await;
    wire.send(format!("GET /ipfs/{below}?format=car&car-dups=y HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    assert_eq!(wire.take(4 * 1024 * 1024).await.len(), 4 * 1024 * 1024);
    assert_eq!(car(&gateway, &below, "").await.len(), 61);
}

#[tokio::test(flavor = "multi_thread")]
async fn car_headers_describe_its_parameters() {
    let gateway = TestGateway::start().await;
    let root = tree(&gateway).await;
    let large = cid_of(&gateway, &format!("{root}/large")).await;
    let path = format!("/ipfs/{root}/large");
    let get = async |method: Method, query: &str, name: &'static str, value: &str| {
        let request = gateway.request(method, &format!("{path}{query}")).header(name, value);
        request.header("accept-encoding", "gzip, zstd").header("range", "bytes=0-9").send().await.unwrap()
    };
    let mut tags = Vec::new();
    for (query, accept, dups, location) in [
        ("?format=car", "*/*", 'n', None),
        ("?format=car", "application/vnd.ipld.raw", 'n', None),
        ("?format=car&car-dups=y", "application/vnd.ipld.car;dups=n", 'y', Some("")),
        ("?dag-scope=block", "application/vnd.ipld.car; order=unk", 'n', Some("dag-scope=block&")),
        ("", "text/html, application/vnd.ipld.car;version=1;order=dfs;dups=y", 'y', Some("")),
        ("?format=car&dag-scope=entity", "", 'n', None),
        ("?format=car&entity-bytes=0:9", "", 'n', None),
        ("?format=car&entity-bytes=0:10", "", 'n', None),
    ] {
        let response = get(Method::GET, query, "accept", accept).await;
        let location =
            location.map(|kept| format!("{path}?{kept}format=car&car-version=1&car-order=dfs&car-dups={dups}"));
        let tag = header(&response, "etag").to_owned();
        for (name, value) in [
            ("content-type", format!("application/vnd.ipld.car; version=1; order=dfs; dups={dups}")),
            ("content-disposition", format!("attachment; filename=\"{large}.car\"; filename*=UTF-8''{large}.car")),
            ("x-content-type-options", "nosniff".to_owned()),
            ("accept-ranges", "none".to_owned()),
            ("cache-control", "public, max-age=29030400, immutable".to_owned()),
            ("vary", "Accept".to_owned()),
            ("x-ipfs-path", path.clone()),
            ("x-ipfs-roots", format!("{root},{large}")),
            ("content-location", location.unwrap_or_default()),
            ("content-encoding", String::new()),
        ] {
            assert_eq!(header(&response, name), value, "{name}, {query} {accept}");
        }
        assert!(tag.starts_with(&format!("W/\"{large}.car.")), "{tag}");
        let head = get(Method::HEAD, query, "accept", accept).await;
        let comparable = |response: &reqwest::Response| {
            let mut headers = response.headers().clone();
            for name in ["x-request-id", "date", "transfer-encoding"] {
                headers.remove(name);
            }
            (response.status(), headers)
        };
        assert_eq!(comparable(&head), comparable(&response), "{query} {accept}");
        if query.starts_with("?format") {
            let same = get(Method::GET, query, "if-none-match", &format!("\"x\", {tag}")).await;
            let settled = (same.status(), header(&same, "etag"), header(&same, "cache-control"));
            assert_eq!(settled, (http::StatusCode::NOT_MODIFIED, tag.as_str(), header(&response, "cache-control")));
        }
        tags.push(tag);
    }
    assert_eq!(tags[0], tags[1], "the same CAR has the same tag");
    assert_eq!(tags[2], tags[4], "the same CAR has the same tag");
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 6, "and another one another: {tags:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn car_error_precedes_the_first_byte() {
    let gateway = TestGateway::start().await;
    let root = tree(&gateway).await;
    let absent = crate::car::raw_cid(b"nobody has this");
    for (path, status) in [
        (format!("{root}/large?format=car"), 200),
        (format!("{absent}?format=car"), 404),
        (format!("{root}?format=car&car-version=2"), 400),
        (format!("{root}?format=car&car-order=bfs"), 400),
        (format!("{root}?format=car&car-dups=some"), 400),
        (format!("{root}?format=car&dag-scope=half"), 400),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let response = gateway.request(method, &format!("/ipfs/{path}")).send().await.unwrap();
            assert_eq!(response.status(), status, "{path}");
            assert!(status == 200 || header(&response, "cache-control") == "no-store", "{path}");
        }
    }
    for (cid, status) in [(&absent, 412), (&root, 200)] {
        let request = gateway.request(Method::GET, &format!("/ipfs/{cid}?format=car"));
        let response = request.header("cache-control", "only-if-cached").send().await.unwrap();
        assert_eq!(response.status(), status);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_identity_block_probe_returns_a_car() {
    let gateway = TestGateway::start().await;
    assert_eq!(car(&gateway, "bafkqaaa", "").await, []);
    let request = gateway.request(Method::HEAD, "/ipfs/bafkqaaa").header("accept", "application/vnd.ipld.car");
    assert_eq!(request.send().await.unwrap().status(), 200);
}
