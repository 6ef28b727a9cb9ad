//! Files with missing blocks: no truncated response may look complete.

use reqwest::Method;
use serde_json::Value;

use crate::content::{self, assert_same};
use crate::harness::{TestGateway, client};
use crate::multipart::Form;
use crate::wire::{Wire, exchange};

const CHUNK: usize = 262_144;
const SIZE: usize = 4 * CHUNK;

/// Returns a gateway that has the root of a file of four chunks and only the leaves in `has`, and the content ID of
/// the file.
pub(crate) async fn without_some_leaves(options: &str, has: &[usize]) -> (TestGateway, String) {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let content = content::bytes(SIZE);
    let cid = whole.add(options, content.clone()).await;
    let root = whole.rpc_bytes(&format!("block/get?arg={cid}")).await;
    assert_eq!(gateway.put_block("format=v0", root).await, cid);
    for leaf in has {
        // A file of one chunk is identical to its leaf.
        gateway.add(options, content.slice(leaf * CHUNK..(leaf + 1) * CHUNK)).await;
    }
    assert_eq!(gateway.blocks().await, 1 + has.len() as u64);
    (gateway, cid)
}

#[tokio::test(flavor = "multi_thread")]
async fn download_with_missing_leaf_aborts() {
    for options in ["", "raw-leaves=true&cid-version=0"] {
        for has in [&[][..], &[1, 2, 3], &[0, 1, 3], &[0, 1, 2]] {
            let (gateway, cid) = without_some_leaves(options, has).await;
            for request in [
                format!("GET /ipfs/{cid} HTTP/1.1"),
                format!("GET /ipfs/{cid} HTTP/1.0"),
                format!("GET /ipfs/{cid} HTTP/1.1\r\nRange: bytes=1-{}", SIZE - 2),
                format!("GET /ipfs/{cid} HTTP/1.1\r\nRange: bytes=0-0,{},{}-{}", "300000-300001", CHUNK, SIZE - 10),
                format!("POST /api/v0/cat?arg={cid} HTTP/1.1\r\nContent-Length: 0"),
            ] {
                let answer = exchange(&gateway, &request).await;
                let is_failure = answer.status >= 400 || !answer.is_complete;
                assert!(is_failure, "{options} {has:?} {request}: {} bytes look whole", answer.body.len());
                if answer.status == 200 {
                    assert_same(&answer.body, &content::bytes(SIZE)[..answer.body.len()], "what came is right");
                    assert_ne!(answer.header("content-length"), "", "a client of HTTP/1.0 sees that it is cut");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_first_block_returns_404() {
    let (gateway, cid) = without_some_leaves("", &[1, 2, 3]).await;
    for range in ["", "bytes=5-10", "bytes=0-0,300000-300001"] {
        let request = gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("range", range);
        assert_eq!(request.send().await.unwrap().status(), 404, "{range}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_avoid_a_missing_leaf_are_served() {
    let (gateway, cid) = without_some_leaves("", &[0, 2, 3]).await;
    let content = content::bytes(SIZE);
    for range in [0..CHUNK, 5..10, 2 * CHUNK..SIZE, SIZE - 1..SIZE, 2 * CHUNK..2 * CHUNK + 1] {
        let header = format!("bytes={}-{}", range.start, range.end - 1);
        let request = gateway.request(Method::GET, &format!("/ipfs/{cid}")).header("range", header);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 206);
        assert_same(&response.bytes().await.unwrap(), &content[range.clone()], &format!("{range:?}"));
        let command = format!("cat?arg={cid}&offset={}&length={}", range.start, range.len());
        assert_same(&gateway.rpc_bytes(&command).await, &content[range], "cat");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_the_status_of_get_when_leaves_are_missing() {
    for has in [&[][..], &[1, 2], &[0]] {
        let (gateway, cid) = without_some_leaves("", has).await;
        for (query, range) in [
            ("", ""),
            ("", "\r\nRange: bytes=0-9"),
            ("", "\r\nRange: bytes=300000-"),
            ("", "\r\nRange: bytes=0-9,300000-300009"),
            ("?format=tar", ""),
        ] {
            let mut statuses = Vec::new();
            for method in ["GET", "HEAD"] {
                let mut wire = Wire::connect(&gateway).await;
                wire.send(format!("{method} /ipfs/{cid}{query} HTTP/1.1\r\nHost: x{range}\r\n\r\n")).await;
                let head = wire.head().await;
                statuses.push((head.status, (head.status < 300).then(|| head.header("content-length").to_owned())));
            }
            assert_eq!(statuses[0], statuses[1], "{has:?} {query}{range}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_stream_error_resets_without_trailers() {
    let (gateway, cid) = without_some_leaves("", &[0, 1]).await;
    let h2 = client().http2_prior_knowledge().build().unwrap();
    for command in ["cat", "dag/export"] {
        let request = || h2.post(gateway.url(&format!("/api/v0/{command}?arg={cid}")));
        // The reset may overtake the head.
        let broken = async { request().send().await?.bytes().await };
        assert!(broken.await.is_err(), "{command}");
        let told = request().header("te", "trailers").send().await.unwrap();
        assert_eq!((told.version(), told.status().as_u16()), (http::Version::HTTP_2, 200));
        assert!(told.bytes().await.unwrap().len() < SIZE, "{command}: the reason is in the trailer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_stream_error_is_in_the_trailer() {
    let (gateway, cid) = without_some_leaves("", &[0, 1]).await;
    let mut wire = Wire::connect(&gateway).await;
    // Kubo's command line reads trailers without saying so.
    for reader in ["TE: trailers", "User-Agent: go-ipfs-cmds/http"] {
        let head = format!("POST /api/v0/cat?arg={cid} HTTP/1.1\r\nContent-Length: 0\r\nHost: x");
        wire.send(format!("{head}\r\n{reader}\r\n\r\n")).await;
        let answer = wire.answer().await;
        assert_eq!(answer.status, 200, "{reader}");
        assert_eq!(answer.header("trailer"), "X-Stream-Error");
        assert_eq!(answer.header("x-content-length"), SIZE.to_string());
        assert_same(&answer.body, &content::bytes(SIZE)[..2 * CHUNK], "the leaves that are here");
        assert!(answer.trailer("x-stream-error").contains(": ipld: could not find "), "{:?}", answer.trailers);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_shows_entries_whose_blocks_are_missing() {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let root = whole.add_tree("", &[("d/a", "a"), ("d/b/c", "c")]).await;
    let block = whole.rpc_bytes(&format!("block/get?arg={root}")).await;
    gateway.put_block("format=v0", block).await;
    let page = String::from_utf8(gateway.content(&format!("/ipfs/{root}/")).await.to_vec()).unwrap();
    assert!(page.contains(">a</a>") && page.contains(">b</a>"), "{page}");
    assert_eq!(gateway.get(&format!("/ipfs/{root}/a")).await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_block_error_has_the_words_of_kubo() {
    let gateway = TestGateway::start().await;
    let absent = "bafkreigaknpexyvxt76zgkitavbwx6ejgfheup5oybpm77f3pxzrvwpfdi";
    let listing = format!("{{\"to\": {{\"/\": \"{absent}\"}}}}");
    let node = gateway.put_block("cid-codec=dag-json", listing).await;
    for command in [
        format!("block/get?arg={absent}"),
        format!("block/stat?arg={absent}"),
        format!("cat?arg={absent}"),
        format!("ls?arg={absent}"),
        format!("dag/get?arg={absent}"),
        format!("dag/get?arg={node}/to"),
        format!("dag/stat?arg={node}&progress=false"),
        format!("get?arg={absent}"),
        format!("pin/add?arg={node}"),
    ] {
        let response = gateway.rpc(&command).send().await.unwrap();
        let failure: Value = response.json().await.unwrap();
        let message = failure["Message"].as_str().unwrap_or_default();
        assert!(message.ends_with(&words(absent)), "{command}: {failure}");
    }
    // Lines within successful streams contain the same words.
    let removed = gateway.rpc_json(&format!("block/rm?arg={absent}")).await;
    assert_eq!(removed["Error"], format!("ipld: could not find {absent}"));
    let car = [b"\x3a\xa2eroots\x81\xd8\x2aX\x25\x00".as_slice(), &cid_bytes(absent), b"gversion\x01"].concat();
    let imported: Value = gateway.post_form("dag/import", Form::new().file("a.car", car)).await.json().await.unwrap();
    let message = imported["Root"]["PinErrorMsg"].as_str().unwrap();
    assert!(message.ends_with(&words(absent)), "{imported}");
    // The words are specific to the RPC and appear in no other response.
    let page = gateway.get(&format!("/ipfs/{absent}?format=raw")).await.text().await.unwrap();
    assert!(page.contains(absent) && !page.contains("ipld:"), "{page}");
}

/// Returns the words by which Kubo's clients recognize that a block is missing, and which one.
fn words(cid: &str) -> String {
    format!("block was not found locally (offline): ipld: could not find {cid}")
}

fn cid_bytes(cid: &str) -> Vec<u8> {
    ipfrs_core::parse_cid(cid).unwrap().to_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn directory_whose_index_is_missing_is_not_listed() {
    let (whole, gateway) = (TestGateway::start().await, TestGateway::start().await);
    let root = whole.add_tree("", &[("d/index.html", "<p>hello"), ("d/other", "x")]).await;
    let block = whole.rpc_bytes(&format!("block/get?arg={root}")).await;
    assert_eq!(gateway.put_block("format=v0", block).await, root);
    for path in ["", "index.html"] {
        assert_eq!(gateway.get(&format!("/ipfs/{root}/{path}")).await.status(), 404, "{path}");
    }
    let cached = gateway.request(Method::GET, &format!("/ipfs/{root}/")).header("cache-control", "Only-If-Cached");
    assert_eq!(cached.send().await.unwrap().status(), 412);
}
