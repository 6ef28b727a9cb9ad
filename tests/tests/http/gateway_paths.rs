//! Content paths: parsing of URLs, and errors for paths that name no content.

use crate::harness::{TestGateway, header, rpc_failure};
use crate::wire::exchange;

const HELLO: &str = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD";

#[tokio::test(flavor = "multi_thread")]
async fn gateway_checker_probe_works_on_an_empty_repo() {
    let gateway = TestGateway::start().await;
    let response = gateway.get("/ipfs/bafkqaaa").await;
    assert_eq!(response.status(), 200);
    assert_eq!(header(&response, "content-length"), "0");
    let raw = gateway.get("/ipfs/bafkqaaa?format=raw").await;
    assert_eq!((raw.status().as_u16(), header(&raw, "content-type")), (200, "application/vnd.ipld.raw"));
    // "hello world" as an identity CID.
    assert_eq!(gateway.content("/ipfs/bafkqac3imvwgy3zao5xxe3de").await, "hello world");
}

#[tokio::test(flavor = "multi_thread")]
async fn block_is_found_under_every_cid_spelling() {
    let gateway = TestGateway::start().await;
    gateway.add("", "hello world").await;
    gateway.add("raw-leaves=true", "raw leaf").await;
    let base32 = "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5wa";
    let mut forms = vec![HELLO.to_owned(), base32.to_owned(), base32.to_uppercase()];
    for base in ["base36", "base58btc", "base16", "base64url"] {
        let id = gateway.rpc_json(&format!("block/stat?arg={base32}&cid-base={base}")).await;
        forms.push(id["Key"].as_str().unwrap().to_owned());
    }
    for cid in forms {
        let response = gateway.get(&format!("/ipfs/{cid}")).await;
        assert_eq!(response.status(), 200, "{cid}");
        assert_eq!(response.text().await.unwrap(), "hello world", "{cid}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_content_id_returns_400_with_reason() {
    let gateway = TestGateway::start().await;
    for cid in [
        "x",
        "Qm",
        "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQ",
        "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQ0",
        "qmbfmke1kxqnyybbwxb74n4c5sbnjmvaimnrcgu6x1awqh",
        "bafkqaa",
        "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5w1",
        "%00",
        "..",
        "<script>",
        "%3Cscript%3E",
        &"b".repeat(5_000),
    ] {
        let answer = exchange(&gateway, format!("GET /ipfs/{cid} HTTP/1.1")).await;
        assert_eq!(answer.status, 400, "{cid}: {}", answer.text());
        assert!(!answer.text().contains("<script>") || !answer.header("content-type").contains("html"), "{cid}");
        assert_eq!(answer.header("cache-control"), if answer.body.is_empty() { "" } else { "no-store" }, "{cid}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_content_returns_404_with_its_cid() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/file", "x"), ("d/sub/y", "y")]).await;
    let absent = gateway.add("only-hash=true", "never stored").await;
    for (path, named) in [
        (format!("/ipfs/{absent}"), absent.as_str()),
        (format!("/ipfs/{absent}/a/b"), absent.as_str()),
        (format!("/ipfs/{absent}?format=raw"), absent.as_str()),
        (format!("/ipfs/{root}/missing"), "missing"),
        (format!("/ipfs/{root}/sub/missing/deeper"), "missing"),
        (format!("/ipfs/{root}/FILE"), "FILE"),
        (format!("/ipfs/{root}/file/below"), "below"),
        (format!("/ipfs/{root}/sub%2Fz"), "z"),
    ] {
        let response = gateway.get(&path).await;
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(header(&response, "cache-control"), "no-store", "what comes later must be found");
        let text = response.text().await.unwrap();
        assert!(text.contains(named), "{path}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn content_added_after_a_404_is_found() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("only-hash=true", "later").await;
    let root = gateway.add_tree("only-hash=true", &[("d/x", "later")]).await;
    for path in [format!("/ipfs/{cid}"), format!("/ipfs/{root}/x")] {
        assert_eq!(gateway.get(&path).await.status(), 404);
    }
    gateway.add_tree("", &[("d/x", "later")]).await;
    for path in [format!("/ipfs/{cid}"), format!("/ipfs/{root}/x")] {
        assert_eq!(gateway.content(&path).await, "later");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_decoded_once() {
    let gateway = TestGateway::start().await;
    let files = [("d/a b", "space"), ("d/%41", "percent"), ("d/ü", "umlaut"), ("d/a+b", "plus"), ("d/sub/x", "deep")];
    let root = gateway.add_tree("", &files).await;
    for (path, content) in [
        ("a%20b", "space"),
        ("%2541", "percent"),
        ("%C3%BC", "umlaut"),
        ("%c3%bc", "umlaut"),
        ("ü", "umlaut"),
        ("a+b", "plus"),
        ("a%2Bb", "plus"),
        ("sub/x", "deep"),
        ("sub//x", "deep"),
        ("sub%2Fx", "deep"),
        ("a%20b/../sub/./x", "deep"),
        ("/sub/x", "deep"),
        ("%73ub/%78", "deep"),
    ] {
        let answer = exchange(&gateway, format!("GET /ipfs/{root}/{path} HTTP/1.1")).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, content), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_utf8_path_returns_400() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/x", "x")]).await;
    for path in [&b"%ff"[..], b"%C3", b"a%00b%FF", b"\xff\xfe", b"x/%80"] {
        let request = [format!("GET /ipfs/{root}/").as_bytes(), path, b" HTTP/1.1"].concat();
        let answer = exchange(&gateway, request).await;
        assert!(matches!(answer.status, 400 | 404), "{path:?}: {}", answer.status);
    }
    assert_eq!(gateway.content(&format!("/ipfs/{root}/x")).await, "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn dots_in_a_path_do_not_climb_out_of_its_root() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/sub/x", "x"), ("d/y", "y")]).await;
    for path in ["..", "%2e%2e/y", "sub/../../y", "../../../../etc/passwd", "..%2f..%2fetc/passwd"] {
        let answer = exchange(&gateway, format!("GET /ipfs/{root}/{path} HTTP/1.1")).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text().contains("outside its root"), "{path}: {}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_over_the_limit_of_its_depth_is_refused() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/x", "x")]).await;
    let answer = exchange(&gateway, format!("GET /ipfs/{root}{} HTTP/1.1", "/x".repeat(3_000))).await;
    assert!(matches!(answer.status, 400 | 404 | 413 | 414), "{}", answer.status);
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_that_do_not_exist_are_not_found() {
    let gateway = TestGateway::start().await;
    for path in ["/nothing", "/ipfs", "/ipfs/", "/v2/block", "/api", "/api/v1/id", "/favicon.ico", "/health/x"] {
        let response = gateway.get(path).await;
        assert!(matches!(response.status().as_u16(), 400 | 404), "{path}: {}", response.status());
        assert!(!response.text().await.unwrap().is_empty(), "{path}");
    }
    assert_eq!(gateway.get("/").await.status(), 200);
}

/// <https://specs.ipfs.tech/http-gateways/libp2p-gateway/>
#[tokio::test]
async fn libp2p_clients_find_the_gateway_in_the_list_of_protocols() {
    let gateway = TestGateway::start().await;
    let path = "/.well-known/libp2p/protocols";
    let response = gateway.get(path).await;
    assert_eq!((response.status().as_u16(), header(&response, "content-type")), (200, "application/json"));
    assert_eq!(header(&response, "access-control-allow-origin"), "*");
    let list: serde_json::Value = response.json().await.unwrap();
    assert_eq!(list, serde_json::json!({"protocols": {"/ipfs/gateway": {"path": "/"}}}));
    let refused = gateway.request(reqwest::Method::POST, path).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), header(&refused, "allow")), (405, "GET, HEAD"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_is_not_unixfs_is_offered_raw_only() {
    let gateway = TestGateway::start().await;
    let cid = gateway.put_block("cid-codec=libp2p-key", b"no key".to_vec()).await;
    assert_eq!(gateway.content(&format!("/ipfs/{cid}?format=raw")).await, "no key");
    let response = gateway.get(&format!("/ipfs/{cid}")).await;
    assert!(matches!(response.status().as_u16(), 406 | 501), "{}", response.status());
    assert!(response.text().await.unwrap().contains("format=raw"), "it says what works");
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_unixfs_block_is_an_error() {
    let gateway = TestGateway::start().await;
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\x0a\xff\xff\xff\xff\x0f", b"", b"\x0a\x02\x08\x63"] {
        let cid = gateway.put_block("format=v0", garbage.to_vec()).await;
        for path in [format!("/ipfs/{cid}"), format!("/ipfs/{cid}/"), format!("/ipfs/{cid}/x")] {
            let status = gateway.get(&path).await.status();
            assert!(status.is_client_error() || status.is_server_error(), "{garbage:?}: {status}");
        }
        assert_eq!(gateway.content(&format!("/ipfs/{cid}?format=raw")).await, garbage);
    }
    assert_eq!(gateway.get("/health").await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_traverse_dag_json_but_not_into_blocks() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("docs/a.txt", "in a file")]).await;
    let document = format!(r#"{{"list": [0, {{"/": "{root}"}}], "text": "words"}}"#);
    let cid = gateway.put_block("cid-codec=dag-json", document.clone()).await;

    let response = gateway.get(&format!("/ipfs/{cid}/list/1/a.txt")).await;
    let file = gateway.rpc_json(&format!("block/stat?arg={cid}/list/1/a.txt")).await["Key"].clone();
    assert_eq!(header(&response, "x-ipfs-roots"), format!("{cid},{root},{}", file.as_str().unwrap()));
    assert_eq!(response.text().await.unwrap(), "in a file");
    assert_eq!(gateway.rpc_bytes(&format!("cat?arg={cid}/list/1/a.txt")).await, "in a file");
    assert_eq!(gateway.content(&format!("/ipfs/{cid}?format=raw")).await, document);

    let missing = gateway.get(&format!("/ipfs/{cid}/list/2")).await;
    assert_eq!(missing.status(), 404);
    assert!(missing.text().await.unwrap().contains(&format!("no link named \"2\" under {cid}")));
    for within in ["text", "list", "list/0"] {
        for query in ["", "?format=raw"] {
            let answer = gateway.get(&format!("/ipfs/{cid}/{within}{query}")).await;
            assert_eq!(answer.status(), 501, "{within}{query}");
            assert!(answer.text().await.unwrap().contains(&format!("resolves to {within:?} within block {cid}")));
        }
        for command in ["block/get", "block/stat", "cat", "ls"] {
            let failure = gateway.rpc(&format!("{command}?arg={cid}/{within}")).send().await.unwrap();
            assert!(rpc_failure(failure).await.contains("within block"), "{command}");
        }
        let failure = gateway.rpc(&format!("dag/stat?arg={cid}/{within}")).send().await.unwrap();
        let text = "cannot return size for anything other than a DAG with a root CID";
        assert!(rpc_failure(failure).await.starts_with(text), "{within}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_too_many_links_is_refused_with_the_limit() {
    let gateway = TestGateway::start().await;
    // The maximum number of links in a block plus one, with the shortest possible links (an empty identity CID).
    let mut block = b"\x12\x06\x0a\x04\x01\x55\x00\x00".repeat(65_537);
    block.extend(b"\x0a\x02\x08\x01");
    let cid = gateway.put_block("cid-codec=dag-pb", block).await;
    for answer in [gateway.get(&format!("/ipfs/{cid}/")).await, gateway.get(&format!("/ipfs/{cid}/name")).await] {
        assert!(matches!(answer.status().as_u16(), 413 | 501), "{}", answer.status());
        assert!(answer.text().await.unwrap().contains("more than 65536 links"));
    }
}
