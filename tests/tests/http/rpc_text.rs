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
        (format!("ls?arg={DIRECTORY}&long=true"), format!("- {A} 6 - a.txt\n- {SUB} - - sub/\n")),
        (
            format!("ls?arg={DIRECTORY}&long=true&headers=true&size=false"),
            format!(
                "Mode Hash                                           ModTime Name\n\
                 -    {A} -       a.txt\n-    {SUB} -       sub/\n"
            ),
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
async fn reports_are_those_of_kubo() {
    let gateway = gateway().await;
    let commands = text(&gateway, "commands?encoding=text").await;
    assert!(commands.starts_with("ipfs\nipfs add\nipfs bitswap\nipfs bitswap ledger\n"), "{commands}");
    assert!(commands.contains("\nipfs bootstrap rm\nipfs bootstrap rm all\nipfs cat\nipfs cid\nipfs cid base32\n"));
    let flags = text(&gateway, "commands?flags=true&encoding=text").await;
    let options =
        "ipfs\nipfs add\nipfs add --chunker / ipfs add -s\nipfs add --cid-version\nipfs add --dereference-args\n";
    assert!(flags.starts_with(options), "{flags}");

    let logged = text(&gateway, "diag/cmds?encoding=text").await;
    assert!(logged.starts_with("Command") && logged.lines().next().unwrap().ends_with("  RunTime"), "{logged}");
    let own = logged.lines().last().unwrap();
    assert!(own.starts_with("diag/cmds ") && own.contains("  true    "), "{logged}");
    let verbose = text(&gateway, "diag/cmds?verbose=true&encoding=text").await;
    assert!(verbose.starts_with("ID  ") && verbose.contains("  [encoding=text,verbose=true,]  true"), "{verbose}");
    let system = text(&gateway, "diag/sys?encoding=text").await;
    assert!(system.starts_with("{\"diskinfo\":{") && system.ends_with("}\n"), "{system}");
    for (command, expected) in [
        ("diag/healthy", "ok"),
        ("diag/cmds/clear", ""),
        ("diag/cmds/set-time?arg=1h", ""),
        ("name/pubsub/state", "disabled\n"),
        ("provide/clear", "removed 0 items from provide queue\n"),
        ("provide/clear?quiet=true", ""),
        ("pubsub/reset", "Reset validator state for 0 peer(s)\n"),
    ] {
        let separator = if command.contains('?') { '&' } else { '?' };
        assert_eq!(text(&gateway, &format!("{command}{separator}encoding=text")).await, expected, "{command}");
    }

    let name = gateway.rpc_json("key/list").await["Keys"][0]["Id"].as_str().unwrap().to_owned();
    gateway.rpc_json(&format!("name/publish?arg={DIRECTORY}&ttl=90s")).await;
    let record = gateway.rpc_bytes(&format!("name/get?arg={name}")).await;
    let of_record = async |command: &str| {
        let form = Form::new().file("record", record.clone());
        gateway.post_form(&format!("{command}encoding=text"), form).await.text().await.unwrap()
    };
    let entry = gateway.post_form("name/inspect", Form::new().file("record", record.clone())).await;
    let inspected: serde_json::Value = entry.json().await.unwrap();
    let fields = format!(
        "Value:          \"/ipfs/{DIRECTORY}\"\nValidity Type:  0\nValidity:       {}\nSequence:       0\n\
         TTL:            1m30s\nProtobuf Size:  {}\nSignature Type: V1+V2\n\n",
        inspected["Entry"]["Validity"],
        record.len()
    );
    let not_verified = "This record was not verified. Pass '--verify k51...' to verify.\n";
    let dump = inspected["HexDump"].as_str().unwrap();
    assert_eq!(of_record("name/inspect?").await, format!("{fields}{not_verified}\nHex Dump:\n{dump}"));
    let valid = format!("{fields}Validation results:\n Valid: true\n Name:  {name}\n");
    assert_eq!(of_record(&format!("name/inspect?verify={name}&dump=false&")).await, valid);
    let other = "k51qzi5uqu5dhdmyb9bd18pypu2wp5lpv2xnskfmrqa4lb5knqryrotb05e7or";
    let invalid = of_record(&format!("name/inspect?verify={other}&dump=false&")).await;
    assert!(invalid.starts_with(&format!("{fields}Validation results:\n Valid:  false\n Reason: ")), "{invalid}");
    assert!(invalid.ends_with(&format!("\n Name:   {other}\n")), "{invalid}");
    let id = gateway.rpc_json("id").await["ID"].as_str().unwrap().to_owned();
    assert_eq!(of_record(&format!("routing/put?arg=/ipns/{name}&")).await, format!("{id}\n"));
    assert_eq!(gateway.rpc_bytes(&format!("routing/get?arg=/ipns/{name}&encoding=text")).await, record);
    let removed = gateway.rpc("files/rm?arg=/nope&encoding=text").header("TE", "trailers").send().await.unwrap();
    assert_eq!(removed.text().await.unwrap(), "/nope: file does not exist");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_without_a_text_print_structures_of_go() {
    let gateway = gateway().await;
    let missing = "QmaRGe7bVmVaLmxbrMiVNXqW4pRNNp3xq7hFtyRKA3mtJL";
    let v1 = "bafybeifdjs3nxzumzewvxc3h5ionqh2ggbras4ppeg6pz5pjf6ojtjxgm4";
    for (command, expected) in [
        (
            format!("block/rm?arg={missing}&arg={A}"),
            format!("&{{{missing} ipld: could not find {missing}}}&{{{A} pinned via {DIRECTORY}}}"),
        ),
        (format!("block/rm?arg={missing}&force=true"), format!("&{{{missing} }}")),
        (format!("cid/base32?arg={A}&arg={v1}"), format!("&{{{A} {v1} }}&{{{v1} {v1} }}")),
        (format!("cid/format?arg={A}&f=%25v-%25L"), format!("&{{{A} cidv0-32 }}")),
        ("cid/format?arg=x".to_owned(), "&{x  invalid cid: cid too short}".to_owned()),
    ] {
        assert_eq!(text(&gateway, &format!("{command}&encoding=text")).await, expected, "{command}");
    }
    let with_body = async |command: &str| {
        let response = gateway.post_form(command, Form::new().file("a", "a")).await;
        assert_eq!(response.headers()["content-type"], "text/plain", "{command}");
        response.text().await.unwrap()
    };
    let added = with_body("add?encoding=text").await;
    assert_eq!(added, format!("&{{a {B} %!s(int64=0) 9  %!s(int64=0) %!s(int=0)}}"));
    let progress = with_body("add?encoding=text&progress=true").await;
    assert!(progress.starts_with("&{a  %!s(int64=1)   %!s(int64=0) %!s(int=0)}&{a "), "{progress}");
    let head = "Content-Disposition: form-data; name=\"file?mode=0640&mtime=1700000000&mtime-nsecs=5\"; \
                filename=\"f\"\r\nContent-Type: application/octet-stream";
    let with_time = gateway.post_form("add?encoding=text", Form::new().part(head, b"a")).await.text().await.unwrap();
    assert_eq!(with_time, format!("&{{f {B} %!s(int64=0) 9 0640 %!s(int64=1700000000) %!s(int=5)}}"));
    let id = gateway.rpc_json("key/list").await["Keys"][0]["Id"].as_str().unwrap().to_owned();
    let signed = with_body("key/sign?encoding=text").await;
    let signature = signed.strip_prefix(&format!("&{{{{self {id}}} ")).unwrap().strip_suffix('}').unwrap();
    let verified = with_body(&format!("key/verify?encoding=text&signature={signature}")).await;
    assert_eq!(verified, format!("&{{{{self {id}}} %!s(bool=true)}}"));
    let totals = text(&gateway, "stats/bw?encoding=text").await;
    assert!(
        totals.starts_with("&{%!s(int64=") && totals.contains(") %!s(float64=") && totals.ends_with(")}"),
        "{totals}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_texts_too() {
    let gateway = gateway().await;
    for (command, status, expected) in [
        ("files/stat?arg=/nope&encoding=text", 500, "file does not exist"),
        ("add?encoding=text", 400, "file argument 'path' is required\n"),
        ("cid/inspect?arg=xyz&encoding=text", 500, "invalid CID"),
        ("dag/stat?encoding=text&cid-base=nope&arg=a", 500, "unsupported multibase encoding"),
        ("dht/get?arg=x&encoding=text", 500, "removed, use 'ipfs routing' instead"),
        ("version?encoding=textnl", 400, "invalid encoding: textnl\n"),
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
