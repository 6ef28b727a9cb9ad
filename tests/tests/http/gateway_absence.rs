//! `?format=car` of paths that do not exist: the response contains the blocks that prove the absence.

use std::fs;

use ipfrs_core::{Cid, codec, parse_cid};
use ipfrs_http::HostConfig;
use reqwest::{Method, Response};

use crate::crafted::Dag;
use crate::dag::blocks_of;
use crate::harness::{TestGateway, header};

/// Options of `add` that create directories with many shards.
const SHARDED: &str = "cid-version=1&max-directory-links=20&max-hamt-fanout=8";

/// Root of a CAR that proves an absence: the empty identity CID.
const NOTHING: &str = "bafkqaaa";

async fn cid_of(gateway: &TestGateway, path: &str) -> Cid {
    let resolved = gateway.rpc_json(&format!("dag/resolve?arg=/ipfs/{path}")).await;
    parse_cid(resolved["Cid"]["/"].as_str().unwrap()).unwrap()
}

async fn proof(response: Response) -> Vec<Cid> {
    assert_eq!(response.status(), 200, "{}", response.url());
    let url = response.url().clone();
    assert_eq!(header(&response, "content-type").split(';').next(), Some("application/vnd.ipld.car"), "{url}");
    let car = response.bytes().await.unwrap();
    blocks_of(&car, NOTHING).iter().map(|block| *block.cid()).collect()
}

async fn proof_of(gateway: &TestGateway, path: &str) -> Vec<Cid> {
    proof(gateway.get(&format!("/ipfs/{path}format=car")).await).await
}

/// Adds a dag-json block whose `in` links to `target`.
fn dag_json(dag: &mut Dag, target: &Cid) -> Cid {
    dag.put(codec::DAG_JSON, format!(r#"{{"in":[{{"/":"{target}"}}],"text":"x"}}"#).into_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_missing_path_proves_absence_in_each_kind_of_block() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/in/file", "x"), ("d/other", "y")]).await;
    let [top, inner, file] = [root.clone(), format!("{root}/in"), format!("{root}/in/file")];
    let [top, inner, file] =
        [cid_of(&gateway, &top).await, cid_of(&gateway, &inner).await, cid_of(&gateway, &file).await];
    let mut dag = Dag::default();
    let json = dag_json(&mut dag, &top);
    // A link name in dag-pb that is not UnixFS.
    let plain = dag.put(codec::DAG_PB, crate::crafted::node([("go", top)], b""));
    dag.import(&gateway).await;
    for (path, expected) in [
        (format!("{root}/index.html"), vec![top]),
        (format!("{root}/in/none"), vec![top, inner]),
        (format!("{root}/in/none/below"), vec![top, inner]),
        (format!("{root}/in/file/below"), vec![top, inner, file]),
        (format!("{json}/none"), vec![json]),
        (format!("{json}/text/below"), vec![json]),
        (format!("{json}/in/7"), vec![json]),
        (format!("{json}/in/0/in/none"), vec![json, top, inner]),
        (format!("{plain}/stop"), vec![plain]),
        (format!("{plain}/go/none"), vec![plain, top]),
        // The empty file as an identity CID.
        ("bafkqaaa/below".to_owned(), vec![]),
    ] {
        for query in ["", "dag-scope=block&", "dag-scope=entity&", "entity-bytes=5:9&", "car-dups=y&"] {
            assert_eq!(proof_of(&gateway, &format!("{path}?{query}")).await, expected, "{path} {query}");
        }
    }
    // The path resolves to a value within a block, and the block proves it.
    for (path, scope) in [(format!("{json}/text"), "block"), (format!("{json}/text"), "entity")] {
        let car = gateway.content(&format!("/ipfs/{path}?format=car&dag-scope={scope}")).await;
        let found: Vec<_> = blocks_of(&car, &json.to_string()).iter().map(|block| *block.cid()).collect();
        assert_eq!(found, [json], "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_missing_name_has_the_shards_on_its_hash_path() {
    let gateway = TestGateway::start().await;
    let names: Vec<_> = (0..300).map(|name| format!("d/many/{name}")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let root = gateway.add_tree(SHARDED, &files).await;
    let path = format!("{root}/many");
    let whole = gateway.content(&format!("/ipfs/{path}?format=car&dag-scope=entity")).await;
    let whole = blocks_of(&whole, &cid_of(&gateway, &path).await.to_string());
    assert!(whole.len() > 50, "{} shards", whole.len());
    let mut lengths = Vec::new();
    for name in ["none", "index.html", "300", "x/y"] {
        let found = proof_of(&gateway, &format!("{path}/{name}?")).await;
        // Each block links to the next one: the path from the root to the position of the missing name.
        for pair in found.windows(2) {
            let parent = whole.iter().find(|block| *block.cid() == pair[0]).unwrap();
            let links = links_of(&gateway, parent.cid()).await;
            assert!(links.contains(&pair[1]), "{name}");
        }
        assert_eq!(found[0], parse_cid(&root).unwrap());
        lengths.push(found.len());
    }
    assert!(lengths.iter().all(|length| (2..8).contains(length)) && lengths.iter().any(|length| *length > 2));
}

async fn links_of(gateway: &TestGateway, cid: &Cid) -> Vec<Cid> {
    let node = gateway.rpc_json(&format!("dag/get?arg={cid}")).await;
    let links = node["Links"].as_array().unwrap().iter();
    links.map(|link| parse_cid(link["Hash"]["/"].as_str().unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_missing_path_has_the_headers_of_a_car() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/file", "x")]).await;
    let path = format!("/ipfs/{root}/none");
    let ask = async |method, query: &str, name: &'static str, value: &str| {
        gateway.request(method, &format!("{path}{query}")).header(name, value).send().await.unwrap()
    };
    let found = ask(Method::GET, "?format=car", "cache-control", "only-if-cached").await;
    assert_eq!(found.status(), 200, "nothing is missing here");
    let tag = header(&found, "etag").to_owned();
    for (name, value) in [
        ("content-type", "application/vnd.ipld.car; version=1; order=dfs; dups=n"),
        ("content-disposition", &format!("attachment; filename=\"{root}.car\"; filename*=UTF-8''{root}.car")),
        ("x-content-type-options", "nosniff"),
        ("accept-ranges", "none"),
        ("cache-control", "public, max-age=29030400, immutable"),
        ("vary", "Accept"),
        ("x-ipfs-path", &path),
        ("x-ipfs-roots", &root),
    ] {
        assert_eq!(header(&found, name), value, "{name}");
    }
    assert!(tag.starts_with(&format!("W/\"{root}.car.")), "{tag}");
    let head = ask(Method::HEAD, "?format=car", "accept", "*/*").await;
    assert_eq!((head.status(), header(&head, "etag")), (found.status(), tag.as_str()));
    assert_eq!(ask(Method::GET, "?format=car", "if-none-match", &tag).await.status(), 304);
    let by_accept = ask(Method::GET, "", "accept", "application/vnd.ipld.car").await;
    assert_eq!((by_accept.status().as_u16(), header(&by_accept, "etag")), (200, tag.as_str()));
    let other = gateway.get(&format!("/ipfs/{root}/other?format=car")).await;
    assert_ne!(header(&other, "etag"), tag, "another path is another CAR");
    for query in ["?format=raw", "?format=tar", "?format=dag-json", ""] {
        assert_eq!(ask(Method::GET, query, "accept", "*/*").await.status(), 404, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_missing_path_comes_from_each_host_without_redirects() {
    let site = TestGateway::start().await;
    let root = site.add_tree("cid-version=1", &[("d/_redirects", "/* /file 301"), ("d/file", "x")]).await;
    let gateway = TestGateway::start_on(site.stop().await, |config| {
        let trustless = HostConfig { deserialized: Some(false), ..HostConfig::default() };
        config.gateway.hosts.insert("trustless.example".into(), trustless);
        let subdomains = HostConfig { subdomains: true, ..HostConfig::default() };
        config.gateway.hosts.insert("example.com".into(), subdomains);
        config.gateway.dnslink.insert("site.example.org".into(), format!("/ipfs/{root}"));
    })
    .await;
    let expected = [parse_cid(&root).unwrap()];
    for (host, path) in [
        ("localhost".to_owned(), format!("/ipfs/{root}/none")),
        ("localhost".to_owned(), "/ipns/site.example.org/none".to_owned()),
        ("trustless.example".to_owned(), format!("/ipfs/{root}/none")),
        (format!("{root}.ipfs.example.com"), "/none".to_owned()),
        ("site.example.org".to_owned(), "/none".to_owned()),
    ] {
        let request = gateway.request(Method::GET, &format!("{path}?format=car")).header("host", &host);
        let response = request.send().await.unwrap();
        if path.starts_with("/ipns") {
            assert_eq!(header(&response, "cache-control"), "public, max-age=60");
        }
        assert_eq!(proof(response).await, expected, "{host}{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn car_of_missing_path_fails_if_proof_block_is_absent() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/in/file", "x"), ("d/good", "y")]).await;
    let inner = cid_of(&gateway, &format!("{root}/in")).await;
    let repo = gateway.stop().await;
    fs::create_dir(repo.path().join("denylists")).unwrap();
    // "hello" in an identity hash, which is read without the store.
    let inline = "bafkqabtimvwgy3yk";
    fs::write(repo.path().join("denylists/0.deny"), format!("/ipfs/{root}/secret\n/ipfs/{inner}\n/ipfs/{inline}\n"))
        .unwrap();
    let gateway = TestGateway::start_on(repo, |config| config.gateway.denylists = vec!["denylists".into()]).await;
    let mut dag = Dag::default();
    let absent = parse_cid(&crate::car::raw_cid(b"nowhere")).unwrap();
    let dangling = dag.directory(&[("gone", absent)]);
    dag.import(&gateway).await;
    for (path, cached, status) in [
        (format!("{root}/none"), "max-age=0", 200),
        (format!("{root}/secret"), "max-age=0", 410),
        (format!("{root}/in/none"), "max-age=0", 410),
        (format!("{inline}/none"), "max-age=0", 410),
        (format!("{dangling}/gone/below"), "max-age=0", 404),
        (format!("{dangling}/gone/below"), "only-if-cached", 412),
        (format!("{absent}/below"), "max-age=0", 404),
        (format!("{absent}/below"), "only-if-cached", 412),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let request = gateway.request(method.clone(), &format!("/ipfs/{path}?format=car"));
            let response = request.header("cache-control", cached).send().await.unwrap();
            assert_eq!(response.status(), status, "{method} {path} {cached}");
        }
    }
}
