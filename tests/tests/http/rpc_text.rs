//! `encoding=text`: responses as Kubo's command line prints them. The expected texts are those of Kubo 0.44.

use serde_json::json;

use crate::harness::TestGateway;
use crate::multipart::Form;

const DIRECTORY: &str = "QmbmBbFnwWDEJu3NzHtPt976fecifKRyky1GZnowffAefZ";
const SUB: &str = "QmRNJzBXQ7nNro8qsHFv1LKBfgtGa9SiSSxYGAJ12Z1WGe";
const A: &str = "QmZL71aXSCNBgkv28W2rxfdxgxMZNngBYSjZT8HQK53sNE";
const B: &str = "QmfDmsHTywy6L9Ne5RXsj5YumDedfBLMvCvmaxjBoe6w4d";

async fn text(gateway: &TestGateway, command: &str) -> String {
    let response = gateway.rpc(command).send().await.unwrap();
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let status = response.status();
    let text = response.text().await.unwrap();
    assert!(status == 200 && kind == "text/plain", "{command}: {status} {kind} {text}");
    text
}

/// Starts a gateway with the directory, a mutable file and a key.
async fn gateway() -> TestGateway {
    let gateway = TestGateway::start().await;
    let form = Form::new().file("d/a.txt", "fixed\n").file("d/sub/b", "a");
    let added = gateway.post_form("add", form).await.text().await.unwrap();
    assert!(added.contains(DIRECTORY) && added.contains(SUB) && added.contains(B), "{added}");
    gateway.rpc("files/mkdir?arg=/m").send().await.unwrap();
    gateway.post_form("files/write?arg=/m/x&create=true", Form::new().file("f", "hello")).await;
    gateway.rpc("files/chmod?arg=0640&arg=/m/x").send().await.unwrap();
    gateway.rpc("files/touch?arg=/m/x&mtime=1700000000").send().await.unwrap();
    gateway.rpc("pin/remote/service/add?arg=s&arg=https://s.example&arg=key").send().await.unwrap();
    gateway
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_are_those_of_kubo() {
    let gateway = gateway().await;
    let state = gateway.rpc_json("files/stat?arg=/m/x").await;
    let hash = state["Hash"].as_str().unwrap();
    let ls = format!("{A} 6 a.txt\n{SUB} - sub/\n");
    for (command, expected) in [
        (format!("resolve?arg={DIRECTORY}/sub"), format!("/ipfs/{SUB}\n")),
        (format!("block/stat?arg={A}"), format!("Key: {A}\nSize: 14\n")),
        (format!("pin/add?arg={A}"), format!("pinned {A} recursively\n")),
        (format!("pin/rm?arg={A}"), format!("unpinned {A}\n")),
        (format!("pin/ls?arg={DIRECTORY}"), format!("{DIRECTORY} recursive\n")),
        ("pin/ls?quiet=true&type=recursive".to_owned(), format!("{DIRECTORY}\n")),
        (format!("refs?arg={DIRECTORY}"), format!("{A}\n{SUB}\n")),
        (format!("ls?arg={DIRECTORY}"), ls.clone()),
        (format!("ls?arg={DIRECTORY}&stream=true"), format!("{A} 6         a.txt\n{SUB} -         sub/\n")),
        (format!("ls?arg={DIRECTORY}&size=false"), format!("{A} a.txt\n{SUB} sub/\n")),
        (
            format!("ls?arg={DIRECTORY}&headers=true"),
            format!("Hash                                           Size Name\n{A} 6    a.txt\n{SUB} -    sub/\n"),
        ),
        (format!("ls?arg={DIRECTORY}&arg={DIRECTORY}/sub"), format!("{DIRECTORY}:\n{ls}\n{DIRECTORY}/sub:\n{B} 1 b\n")),
        (format!("dag/resolve?arg={DIRECTORY}/sub/b"), B.to_owned()),
        (
            format!("dag/stat?arg={DIRECTORY}&progress=false"),
            format!(
                "\n{:46}\t{:15}\tSize\n{DIRECTORY}\t{:<15}\t166\n\nSummary\nTotal Size: 166 (166 B)\nUnique Blocks: 4\n\
                 Shared Size: 0 (0 B)\nRatio: 1.000000\n\n\n",
                "CID", "Blocks", 4
            ),
        ),
        (
            "files/ls?arg=/&long=true".to_owned(),
            format!("m/\t{}\t0\n", gateway.rpc_json("files/stat?arg=/m").await["Hash"].as_str().unwrap()),
        ),
        (
            "files/stat?arg=/m/x".to_owned(),
            format!(
                "{hash}\nSize: 5\nCumulativeSize: {}\nChildBlocks: 1\nType: file\nMode: -rw-r----- (0640)\n\
                 Mtime: 14 Nov 2023, 22:13:20 UTC\n",
                state["CumulativeSize"]
            ),
        ),
        ("files/stat?arg=/m/x&format=<type>+<mtime-secs>".to_owned(), "file 1700000000\n".to_owned()),
        ("files/read?arg=/m/x".to_owned(), "hello".to_owned()),
        ("version".to_owned(), "ipfs version 0.44.0\n".to_owned()),
        ("version?number=true".to_owned(), "0.44.0\n".to_owned()),
        ("key/list".to_owned(), "self\n".to_owned()),
        ("pin/remote/service/ls".to_owned(), "s https://s.example\n".to_owned()),
        (format!("object/diff?arg={DIRECTORY}&arg={SUB}"), format!("- {A} \"a.txt\"\n- {SUB} \"sub\"\n+ {B} \"b\"\n")),
    ] {
        let separator = if command.contains('?') { '&' } else { '?' };
        let got = text(&gateway, &format!("{command}{separator}encoding=text")).await;
        assert_eq!(got, expected, "{command}");
    }
    let inspected = text(&gateway, &format!("cid/inspect?arg={A}&encoding=text")).await;
    let lines: Vec<_> = inspected.lines().collect();
    assert_eq!(lines[0], format!("CID:        {A}"));
    assert_eq!(
        lines[1..5],
        [
            "Version:    0",
            "Multibase:  base58btc (implicit)",
            "Multicodec: dag-pb (0x70, implicit)",
            "Multihash:  sha2-256 (0x12, implicit)",
        ]
    );
    assert_eq!((lines.len(), lines[7]), (9, format!("CIDv0:      {A}").as_str()));
    let put = gateway.post_form("block/put?encoding=text", Form::new().file("f", "x")).await.text().await.unwrap();
    assert!(put.starts_with("bafkrei") && put.ends_with('\n'), "{put}");
    let id = text(&gateway, "id?encoding=text").await;
    assert!(id.starts_with("{\n\t\"ID\": \"12D3") && id.ends_with("]\n}\n\n"), "{id}");
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_texts_too() {
    let gateway = gateway().await;
    for (command, status, expected) in [
        ("files/stat?arg=/nope&encoding=text", 500, "file does not exist"),
        ("add?encoding=text", 400, "file argument 'path' is required\n"),
        ("stats/bw?encoding=text", 400, "encoding \"text\" is not supported for stats/bw: use json\n"),
        ("ls?arg=a&long=true&encoding=text", 400, "encoding \"text\" is not supported for ls with long: use json\n"),
        ("cid/inspect?arg=xyz&encoding=text", 500, "invalid CID"),
        ("dag/stat?encoding=text&cid-base=nope&arg=a", 500, "unsupported multibase encoding"),
        ("version?encoding=xml", 400, "encoding \"xml\" is not supported: use json or text\n"),
    ] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{command}");
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"), "{command}");
        let text = response.text().await.unwrap();
        let is_expected = if status == 400 { text == expected } else { text.starts_with(expected) };
        assert!(is_expected, "{command}: {text}");
    }
    // The text before an error is complete, and the trailer has the error.
    let missing = "QmaRGe7bVmVaLmxbrMiVNXqW4pRNNp3xq7hFtyRKA3mtJL";
    let request = gateway.rpc(&format!("refs?arg={DIRECTORY}&arg={missing}&offline=true&encoding=text"));
    let response = request.header("TE", "trailers").send().await.unwrap();
    assert_eq!(response.headers()["trailer"], "X-Stream-Error");
    assert_eq!(response.text().await.unwrap(), format!("{A}\n{SUB}\n"));
    let cut = gateway.rpc(&format!("refs?arg={DIRECTORY}&arg={missing}&offline=true&encoding=text")).send().await;
    assert!(cut.unwrap().text().await.is_err());
    // Objects stay JSON without the option.
    assert_eq!(gateway.rpc_json("resolve?arg=/ipfs/bafkqaaa&encoding=json").await, json!({ "Path": "/ipfs/bafkqaaa" }));
}
