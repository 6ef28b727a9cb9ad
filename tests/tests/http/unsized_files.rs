//! Files whose nodes have links without sizes. UnixFS requires the sizes; Kubo reads such files from the beginning.

use ipfrs_core::{Cid, codec};
use reqwest::Method;

use crate::crafted::{Dag, Data, FILE};
use crate::harness::TestGateway;

/// Adds a node of a file without sizes.
fn bare(dag: &mut Dag, filesize: Option<u64>, data: &[u8], children: &[Cid]) -> Cid {
    let data = Data { kind: FILE, data, filesize, ..Data::default() };
    dag.node(children.iter().map(|cid| ("", *cid)), &data)
}

async fn range(gateway: &TestGateway, cid: &Cid, range: &str) -> String {
    let request = gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("Range", format!("bytes={range}"));
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 206);
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_sizes_is_served_as_if_it_had_them() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let foo = dag.file(b"foo", &[]);
    let raw = dag.put(codec::RAW, b"raw".to_vec());
    let empty = dag.file(b"", &[]);
    let sized = dag.file(b"s", &[(raw, 3), (foo, 3)]);
    let inner = bare(&mut dag, None, b"", &[raw, sized]);
    // Sizes are missing on two levels, and only on the inner one.
    let root = bare(&mut dag, Some(1 + 3 + 10 + 3), b"!", &[foo, inner, empty, foo]);
    let above = dag.file(b"", &[(inner, 10), (foo, 3)]);
    let directory = dag.directory(&[("root", root), ("above", above)]);
    dag.import(&gateway).await;
    let (whole, upper) = ("!foorawsrawfoofoo", "rawsrawfoofoo");
    for (cid, text) in [(root, whole), (above, upper)] {
        assert_eq!(gateway.content(&format!("/ipfs/{cid}")).await, text);
        let head = gateway.request(Method::HEAD, &format!("/ipfs/{cid}")).send().await.unwrap();
        assert_eq!(head.headers()["content-length"], text.len().to_string().as_str());
        for (from, to) in [(0, 0), (1, 5), (4, 9), (7, 7), (8, 12)] {
            assert_eq!(range(&gateway, &cid, &format!("{from}-{to}")).await, text[from..=to], "{from}-{to}");
        }
        assert_eq!(gateway.rpc_bytes(&format!("cat?arg={cid}&offset=2&length=7")).await, text[2..9]);
        let stat = gateway.rpc_json(&format!("files/stat?arg=/ipfs/{cid}")).await;
        assert_eq!(stat["Size"], text.len());
    }
    let listed = gateway.rpc_json(&format!("ls?arg={directory}")).await;
    let sizes: Vec<_> =
        listed["Objects"][0]["Links"].as_array().unwrap().iter().map(|link| link["Size"].clone()).collect();
    assert_eq!(sizes, [upper.len(), whole.len()]);
    let archive = gateway.content(&format!("/ipfs/{directory}?format=tar")).await;
    let has = |text: &str| archive.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has(whole) && has(upper));
    // A CAR has what its scope needs, and no part twice.
    let car = async |query: &str| gateway.content(&format!("/ipfs/{root}?format=car&{query}")).await;
    let contains = |car: &[u8], cid: &Cid| car.windows(36).any(|window| window == cid.to_bytes());
    let (entity, last) = (car("dag-scope=entity").await, car("dag-scope=entity&entity-bytes=14:16").await);
    assert_eq!(entity, car("dag-scope=all").await);
    let of = |car: &[u8]| [foo, raw, inner, sized].map(|cid| contains(&car[100..], &cid));
    assert_eq!(of(&entity), [true; 4]);
    assert_eq!((contains(&last, &root), contains(&last[300..], &raw)), (true, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_are_not_searched_for_without_a_limit() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let leaf = dag.put(codec::RAW, b"x".to_vec());
    let text = dag.put(codec::DAG_CBOR, vec![0xa0]);
    // 32 * 33 parts, a chain of nodes without sizes, a wrong size, and parts that are no files.
    let wide = bare(&mut dag, None, b"", &[leaf; 32]);
    let wide = bare(&mut dag, None, b"", &[wide; 32]);
    let deep = (0..12).fold(leaf, |below, _| bare(&mut dag, None, b"", &[below]));
    let wrong = bare(&mut dag, Some(3), b"", &[leaf, leaf]);
    let directory = dag.directory(&[("x", leaf)]);
    let odd = [text, directory].map(|part| bare(&mut dag, None, b"", &[part]));
    let exact = bare(&mut dag, None, b"", &[leaf; 1_024]);
    dag.import(&gateway).await;
    assert_eq!(gateway.content(&format!("/ipfs/{exact}")).await, "x".repeat(1_024));
    for cid in [wide, deep, wrong, odd[0], odd[1]] {
        let response = gateway.request(Method::GET, &format!("/ipfs/{cid}")).send().await.unwrap();
        assert_eq!(response.status(), 422, "{cid}");
        let response = gateway.request(Method::GET, &format!("/ipfs/{cid}?format=raw")).send().await.unwrap();
        assert_eq!(response.status(), 200, "{cid}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_sizes_is_served_once_its_parts_are_there() {
    let gateway = TestGateway::start().await;
    let (mut dag, mut later) = (Dag::default(), Dag::default());
    let part = later.put(codec::RAW, b"part".to_vec());
    let file = bare(&mut dag, None, b"", &[part, part]);
    dag.import(&gateway).await;
    let status = async |query: &str| {
        let request = gateway.request(Method::GET, &format!("/ipfs/{file}{query}"));
        request.send().await.unwrap().status().as_u16()
    };
    // Repeated, for the caches of paths.
    for _ in 0..3 {
        assert_eq!((status("").await, status("?format=raw").await), (422, 200));
    }
    later.import(&gateway).await;
    assert_eq!(gateway.content(&format!("/ipfs/{file}")).await, "partpart");
}
