//! `encoding=xml`: the types of Kubo as Go writes them. The expected texts are those of Kubo 0.44.

use crate::harness::{TestGateway, header};
use crate::multipart::Form;
use crate::rpc_config;
use crate::wire::exchange;

const DIRECTORY: &str = "QmbmBbFnwWDEJu3NzHtPt976fecifKRyky1GZnowffAefZ";
const SUB: &str = "QmRNJzBXQ7nNro8qsHFv1LKBfgtGa9SiSSxYGAJ12Z1WGe";
const A: &str = "QmZL71aXSCNBgkv28W2rxfdxgxMZNngBYSjZT8HQK53sNE";
const B: &str = "QmfDmsHTywy6L9Ne5RXsj5YumDedfBLMvCvmaxjBoe6w4d";
const MISSING: &str = "QmaRGe7bVmVaLmxbrMiVNXqW4pRNNp3xq7hFtyRKA3mtJL";

async fn gateway() -> TestGateway {
    let gateway = TestGateway::start().await;
    assert_eq!(gateway.add_tree("", &[("d/a.txt", "fixed\n"), ("d/sub/b", "a")]).await, DIRECTORY);
    gateway
}

fn with_xml(command: &str) -> String {
    let separator = if command.contains('?') { '&' } else { '?' };
    format!("{command}{separator}encoding=xml")
}

async fn xml(gateway: &TestGateway, command: &str) -> String {
    let response = gateway.rpc(&with_xml(command)).send().await.unwrap();
    assert_eq!((response.status().as_u16(), header(&response, "content-type")), (200, "application/xml"), "{command}");
    response.text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn xml_is_that_of_kubo() {
    let gateway = gateway().await;
    let link = |name: &str, hash: &str, size: u64, kind: u8| {
        format!(
            "<Links><Name>{name}</Name><Hash>{hash}</Hash><Size>{size}</Size><Type>{kind}</Type><Target></Target>\
             <Mode>0</Mode><ModTime>0001-01-01T00:00:00Z</ModTime></Links>"
        )
    };
    let (a, sub) = (link("a.txt", A, 6, 2), link("sub", SUB, 0, 1));
    let object = |links: &str| format!("<LsOutput><Objects><Hash>{DIRECTORY}</Hash>{links}</Objects></LsOutput>");
    let reference = |cid: &str| format!("<RefWrapper><Ref>{cid}</Ref><Err></Err></RefWrapper>");
    let change = |kind: u8, path: &str, before: &str, after: &str| {
        format!(
            "<Changes><Type>{kind}</Type><Path>{path}</Path><Before>{before}</Before><After>{after}</After></Changes>"
        )
    };
    let stat = |cid: &str, blocks: u64, ratio: u8, size: u64, visited: u64| {
        format!(
            "<DagStatSummary><UniqueBlocks>{blocks}</UniqueBlocks><TotalSize>{size}</TotalSize>\
             <SharedSize>0</SharedSize><Ratio>{ratio}</Ratio><DagStatsArray><Cid>{cid}</Cid><Size>{size}</Size>\
             <NumBlocks>{visited}</NumBlocks></DagStatsArray></DagStatSummary>"
        )
    };
    let cid_v1 = "bafybeifdjs3nxzumzewvxc3h5ionqh2ggbras4ppeg6pz5pjf6ojtjxgm4";
    for (command, expected) in [
        (format!("block/stat?arg={A}"), format!("<BlockStat><Key>{A}</Key><Size>14</Size></BlockStat>")),
        (format!("ls?arg={DIRECTORY}"), object(&format!("{a}{sub}"))),
        (format!("ls?arg={DIRECTORY}&stream=true"), format!("{}{}", object(&a), object(&sub))),
        (format!("refs?arg={DIRECTORY}"), format!("{}{}", reference(A), reference(SUB))),
        (
            format!("dag/resolve?arg={DIRECTORY}/a.txt"),
            format!("<ResolveOutput><Cid>{A}</Cid><RemPath></RemPath></ResolveOutput>"),
        ),
        (format!("dag/stat?arg={DIRECTORY}&progress=false"), stat(DIRECTORY, 4, 1, 166, 4)),
        (
            format!("pin/add?arg={A}"),
            format!("<AddPinOutput><Pins>{A}</Pins><Progress>0</Progress><Bytes>0</Bytes></AddPinOutput>"),
        ),
        (
            format!("pin/add?arg={A}&progress=true"),
            format!(
                "<AddPinOutput><Progress>1</Progress><Bytes>14</Bytes></AddPinOutput><AddPinOutput><Pins>{A}</Pins>\
                 <Progress>0</Progress><Bytes>0</Bytes></AddPinOutput>"
            ),
        ),
        (format!("pin/rm?arg={A}"), format!("<PinOutput><Pins>{A}</Pins></PinOutput>")),
        (
            "pin/verify?verbose=true".to_owned(),
            format!("<PinVerifyRes><Cid>{DIRECTORY}</Cid><Err></Err><Ok>true</Ok></PinVerifyRes>"),
        ),
        (
            format!("object/diff?arg={DIRECTORY}&arg={SUB}"),
            format!(
                "<Changes>{}{}{}</Changes>",
                change(1, "a.txt", A, "b"),
                change(1, "sub", SUB, "b"),
                change(0, "b", "b", B)
            ),
        ),
        (
            format!("object/patch/add-link?arg={DIRECTORY}&arg=zz&arg={A}"),
            "<Object><Hash>QmW7J9aXX1bHD9u5StQnrgwsJbdBKCFdyCxWvG46zyeoMD</Hash></Object>".to_owned(),
        ),
        (
            format!("cid/base32?arg={A}"),
            format!(
                "<CidFormatRes><CidStr>{A}</CidStr><Formatted>{cid_v1}</Formatted><ErrorMsg></ErrorMsg></CidFormatRes>"
            ),
        ),
        (
            "cid/inspect?arg=bafkqaaa".to_owned(),
            "<CidInspectRes><Cid>bafkqaaa</Cid><Version>1</Version><Multibase><Prefix>b</Prefix><Name>base32</Name>\
             </Multibase><Multicodec><Code>85</Code><Name>raw</Name></Multicodec><Multihash><Code>0</Code>\
             <Name>identity</Name><Length>0</Length><Digest></Digest></Multihash><CidV0></CidV0><CidV1>bafkqaaa</CidV1>\
             <ErrorMsg></ErrorMsg></CidInspectRes>"
                .to_owned(),
        ),
        (
            format!("block/rm?arg={MISSING}&arg={A}"),
            format!(
                "<removedBlock><Hash>{MISSING}</Hash><Error>ipld: could not find {MISSING}</Error></removedBlock>\
                 <removedBlock><Hash>{A}</Hash><Error>pinned via {DIRECTORY}</Error></removedBlock>"
            ),
        ),
        ("files/ls?arg=/".to_owned(), "<filesLsOutput></filesLsOutput>".to_owned()),
        (
            "files/stat?arg=/".to_owned(),
            "<statOutput><Hash>QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn</Hash><Size>0</Size>\
             <CumulativeSize>4</CumulativeSize><Blocks>0</Blocks><Type>directory</Type>\
             <WithLocality>false</WithLocality><Local>false</Local><SizeLocal>0</SizeLocal><Mode>0</Mode>\
             <Mtime>0</Mtime><MtimeNsecs>0</MtimeNsecs></statOutput>"
                .to_owned(),
        ),
        (
            "resolve?arg=/ipfs/bafkqaaa".to_owned(),
            "<ResolvedPath><Path>/ipfs/bafkqaaa</Path></ResolvedPath>".to_owned(),
        ),
        ("pin/remote/service/ls".to_owned(), "<PinServicesList></PinServicesList>".to_owned()),
        ("bootstrap".to_owned(), "<BootstrapOutput></BootstrapOutput>".to_owned()),
        ("diag/healthy".to_owned(), "<string>ok</string>".to_owned()),
        ("provide/clear".to_owned(), "<int>0</int>".to_owned()),
        (format!("cat?arg={A}"), "fixed\n".to_owned()),
        ("files/mkdir?arg=/m".to_owned(), String::new()),
    ] {
        assert_eq!(xml(&gateway, &command).await, expected, "{command}");
    }
    let version = xml(&gateway, "version").await;
    assert!(version.starts_with("<VersionInfo><Version>0.44.0</Version><Commit></Commit><Repo>"), "{version}");
    let id = gateway.rpc_json("id").await["ID"].as_str().unwrap().to_owned();
    let identity = xml(&gateway, "id").await;
    assert!(identity.starts_with(&format!("<IdOutput><ID>{id}</ID><PublicKey>")), "{identity}");
    let short = gateway.rpc("version?enc=xml").send().await.unwrap();
    assert_eq!(header(&short, "content-type"), "application/xml");
    let raw = gateway.rpc(&with_xml(&format!("block/get?arg={A}"))).send().await.unwrap();
    assert_eq!(header(&raw, "content-type"), "application/vnd.ipld.raw");
    // Octal numbers are decimal, and times have their fractions.
    let form = || Form::new().file("x", "x");
    let options = "mode=0640&mtime=1700000000&mtime-nsecs=5&wrap-with-directory=true";
    let lines = gateway.add_form(options, form()).await;
    let root = lines.last().unwrap()["Hash"].as_str().unwrap();
    let state = xml(&gateway, &format!("files/stat?arg=/ipfs/{root}")).await;
    assert!(state.ends_with("<Mode>2147484064</Mode><Mtime>1700000000</Mtime><MtimeNsecs>5</MtimeNsecs></statOutput>"));
    let listed = xml(&gateway, &format!("ls?arg={root}")).await;
    assert!(listed.contains("<Mode>416</Mode><ModTime>2023-11-14T22:13:20.000000005Z</ModTime>"), "{listed}");
    let added = gateway.post_form("add?only-hash=true&encoding=xml", form()).await.text().await.unwrap();
    assert!(added.starts_with("<AddEvent><Name>x</Name><Hash>Qm") && added.contains("<Bytes>0</Bytes>"), "{added}");
    let put = gateway.post_form("block/put?encoding=xml", form()).await.text().await.unwrap();
    let key = "bafkreibnoelefnzgwbcacyt4vh52ymxvzbjq7mmqhtcnwarfq4lzegsiqe";
    assert_eq!(put, format!("<BlockStat><Key>{key}</Key><Size>1</Size></BlockStat>"));
    let node =
        gateway.post_form("dag/put?encoding=xml", Form::new().file("n", "{\"a\":1}")).await.text().await.unwrap();
    let cid = "bafyreihltcnuuyqp2jm24aqydpnlj7b6w3ogwrplomrjtg5rifv44mmjey";
    assert_eq!(node, format!("<OutputObject><Cid>{cid}</Cid></OutputObject>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_xml_too() {
    let gateway = gateway().await;
    for (command, status, code, message) in [
        ("files/stat?arg=/nope", 500, 0, "file does not exist"),
        ("bootstrap/add?arg=x", 500, 0, "failed to parse multiaddr &#34;x&#34;: must begin with /"),
        ("name/pubsub/subs", 400, 1, "IPNS pubsub subsystem is not enabled"),
        ("dht/get?arg=x", 500, 0, "removed, use &#39;ipfs routing&#39; instead"),
    ] {
        let response = gateway.rpc(&with_xml(command)).send().await.unwrap();
        let kind = header(&response, "content-type").to_owned();
        assert_eq!((response.status().as_u16(), kind.as_str()), (status, "application/xml"), "{command}");
        let expected = format!("<Error><Message>{message}</Message><Code>{code}</Code></Error>");
        assert_eq!(response.text().await.unwrap(), expected, "{command}");
    }
    let refused = gateway.rpc("ls?encoding=xml").send().await.unwrap();
    assert!(header(&refused, "content-type").starts_with("text/plain"));
    assert_eq!(refused.text().await.unwrap(), "argument \"ipfs-path\" is required\n");
    for (query, text) in [("encoding=bogus", "invalid encoding: bogus\n"), ("encoding=", "invalid encoding: \n")] {
        let refused = gateway.rpc(&format!("version?{query}")).send().await.unwrap();
        assert_eq!((refused.status().as_u16(), refused.text().await.unwrap().as_str()), (400, text), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn types_that_are_no_xml_fail_as_in_kubo() {
    let gateway = gateway().await;
    let configured = rpc_config::start(tempfile::tempdir().unwrap(), "").await;
    let setting = "<ConfigField><Key>Import.UnixFSChunker</Key><Value>size-262144</Value></ConfigField>";
    assert_eq!(xml(&configured, "config?arg=Import.UnixFSChunker").await, setting);
    for (command, name) in [
        ("pin/ls", "map[string]pin.PinLsType"),
        (&format!("pin/ls?arg={DIRECTORY}"), "map[string]pin.PinLsType"),
        ("pin/ls?stream=true", "map[string]pin.PinLsType"),
        ("config/show", "map[string]interface {}"),
        ("config?arg=Addresses", "map[string]interface {}"),
        ("config/profile/apply?arg=announce-off&dry-run=true", "map[string]interface {}"),
        ("diag/cmds", "map[string]interface {}"),
        ("diag/sys", "map[string]interface {}"),
    ] {
        let head = format!("POST /api/v0/{} HTTP/1.1\r\nTE: trailers\r\nContent-Length: 0", with_xml(command));
        let gateway = if command.starts_with("config") { &configured } else { &gateway };
        let answer = exchange(gateway, head).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, "application/xml"), "{command}");
        assert_eq!((answer.text().as_str(), answer.header("trailer")), ("", "X-Stream-Error"), "{command}");
        assert_eq!(answer.trailer("x-stream-error"), format!("xml: unsupported type: {name}"), "{command}");
        // Clients that take no trailers see that the response is incomplete.
        let cut = gateway.rpc(&with_xml(command)).send().await.unwrap();
        assert!(cut.text().await.is_err(), "{command}");
    }
    let not_pinned = gateway.rpc(&with_xml(&format!("pin/ls?arg={A}&type=direct"))).send().await.unwrap();
    assert_eq!(not_pinned.status(), 500);
    let expected = format!("<Error><Message>path &#39;{A}&#39; is not pinned</Message><Code>0</Code></Error>");
    assert_eq!(not_pinned.text().await.unwrap(), expected);
    // The lines before an error stay.
    let command = with_xml(&format!("block/rm?arg={MISSING}&arg=bad"));
    let answer =
        exchange(&gateway, format!("POST /api/v0/{command} HTTP/1.1\r\nTE: trailers\r\nContent-Length: 0")).await;
    let line =
        format!("<removedBlock><Hash>{MISSING}</Hash><Error>ipld: could not find {MISSING}</Error></removedBlock>");
    assert_eq!(answer.text(), line);
    let why = "invalid path \"bad\": path does not have enough components";
    assert_eq!(answer.trailer("x-stream-error"), why);
}
