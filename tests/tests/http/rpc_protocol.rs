//! Calling conventions and errors of all commands of the Kubo RPC.

use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{TestGateway, header, rpc_failure};
use crate::wire::exchange;

const COMMANDS: [&str; 10] =
    ["add", "cat", "ls", "block/get", "block/put", "block/stat", "id", "version", "stats/bw", "repo/stat"];

#[tokio::test(flavor = "multi_thread")]
async fn commands_are_called_with_post_and_nothing_else() {
    let gateway = TestGateway::start().await;
    for command in COMMANDS {
        let path = format!("/api/v0/{command}?arg=bafkqaaa");
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::PATCH] {
            let response = gateway.request(method.clone(), &path).send().await.unwrap();
            assert_eq!(response.status(), 405, "{method} {command}");
            assert!(header(&response, "allow").contains("POST"), "{method} {command}");
            assert!(header(&response, "content-type").starts_with("text/plain"), "{method} {command}");
        }
        let options = gateway.request(Method::OPTIONS, &path).send().await.unwrap();
        assert_eq!(options.status(), 204, "{command}");
        assert!(header(&options, "allow").contains("POST"));
        assert!(!options.headers().contains_key("access-control-allow-origin"), "no page is let in");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_does_not_exist_is_not_found() {
    let gateway = TestGateway::start().await;
    for command in ["nothing", "block/nothing", "pin/", "", "ADD", "cat/ipfs/bafkqaaa"] {
        let answer = exchange(&gateway, format!("POST /api/v0/{command} HTTP/1.1\r\nContent-Length: 0")).await;
        assert_eq!(answer.status, 404, "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_argument_returns_400_with_its_name() {
    let gateway = TestGateway::start().await;
    for command in ["cat", "ls", "block/get", "block/stat", "block/get?offline=true"] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 400, "{command}");
        assert!(header(&response, "content-type").starts_with("text/plain"));
        assert!(response.text().await.unwrap().contains("is required"), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_option_returns_400_with_its_name() {
    let gateway = TestGateway::start().await;
    for (command, name) in [
        ("cat?arg=bafkqaaa&length=many", "length"),
        ("ls?arg=bafkqaaa&stream=maybe", "stream"),
        ("block/stat?arg=bafkqaaa&upgrade-cidv0-in-output=7", "upgrade-cidv0-in-output"),
    ] {
        let response = gateway.rpc(command).send().await.unwrap();
        assert_eq!(response.status(), 400, "{command}");
        assert!(response.text().await.unwrap().contains(name), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_command_returns_500_with_message_and_code() {
    let gateway = TestGateway::start().await;
    let absent = gateway.add("only-hash=true", "absent").await;
    for (command, named) in [
        (format!("cat?arg={absent}"), absent.as_str()),
        (format!("ls?arg={absent}"), &absent),
        (format!("block/get?arg={absent}"), &absent),
        (format!("block/stat?arg=/ipfs/{absent}/a"), &absent),
        ("cat?arg=bafkqaaa&offset=-1".to_owned(), "cannot specify negative offset"),
        ("block/stat?arg=bafkqaaa&cid-base=base7".to_owned(), "unsupported multibase encoding: base7"),
        ("cat?arg=nonsense".to_owned(), "nonsense"),
        ("cat?arg=/ipfs/".to_owned(), "/ipfs/"),
        ("block/get?arg=".to_owned(), "enough components"),
        ("cat?arg=/ipns/example.com".to_owned(), "/ipns"),
    ] {
        let response = gateway.rpc(&command).send().await.unwrap();
        assert!(header(&response, "content-type").starts_with("application/json"), "{command}");
        let message = rpc_failure(response).await;
        assert!(message.contains(named), "{command}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_errors_contain_the_words_kubo_clients_match() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("pin=false", "content").await;
    let directory = gateway.add_tree("", &[("d/x", "x")]).await;
    let key = "k51qzi5uqu5dhdmyb9bd18pypu2wp5lpv2xnskfmrqa4lb5knqryrotb05e7or";
    for (command, words) in [
        (format!("cat?arg={directory}"), "this dag node is a directory"),
        (format!("cat?arg={directory}/y"), "no link named \"y\" under "),
        (format!("pin/rm?arg={cid}"), "not pinned or pinned indirectly"),
        (format!("pin/ls?arg={cid}"), "is not pinned"),
        (format!("name/publish?arg={cid}&key=none"), "no key by the given name or PeerID was found"),
        ("key/rm?arg=none".to_owned(), "no key named none was found"),
        (format!("name/resolve?arg={key}"), "could not resolve name"),
        (format!("resolve?arg=/ipns/{key}"), "could not resolve name"),
        (format!("cat?arg=/ipns/{key}/x"), "could not resolve name"),
        (format!("routing/get?arg=/ipns/{key}"), "routing: not found"),
        ("routing/get?arg=/pk/x".to_owned(), "invalid key"),
        (format!("name/get?arg={key}"), "routing: not found"),
    ] {
        let message = rpc_failure(gateway.rpc(&command).send().await.unwrap()).await;
        assert!(message.contains(words), "{command}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_error_states_its_kind() {
    let gateway = TestGateway::start().await;
    let absent = gateway.add("only-hash=true", "absent").await;
    let directory = gateway.add_tree("", &[("d/x", "x")]).await;
    for (command, kind) in [
        (format!("cat?arg={absent}"), "not_found"),
        ("cat?arg=nonsense".to_owned(), "invalid_input"),
        (format!("cat?arg={directory}"), "invalid_input"),
        (format!("pin/rm?arg={absent}"), "not_found"),
        ("block/rm?arg=bafkqaaa/name".to_owned(), "not_found"),
        ("add?nocopy=true".to_owned(), "unsupported"),
        ("id?arg=QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWKSPFG".to_owned(), "unsupported"),
    ] {
        let response = gateway.rpc(&command).body("x").send().await.unwrap();
        let failure: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        assert_eq!(failure["Kind"], kind, "{command}: {failure}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_objects_are_newline_delimited() {
    let gateway = TestGateway::start().await;
    for command in ["version", "repo/stat", "block/stat?arg=bafkqac3imvwgy3zao5xxe3de", "cat?arg=nonsense", "pin/ls"] {
        let answer = gateway.rpc(command).send().await.unwrap().text().await.unwrap();
        assert!(answer.ends_with("}\n"), "{command}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_refuses_cross_origin_browser_requests() {
    let gateway = TestGateway::start().await;
    let port = gateway.port();
    let browser = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)";
    let own = |host: &str| format!("Origin: http://{host}:{port}");
    for (headers, status) in [
        ("User-Agent: curl/8.5.0".to_owned(), 200),
        ("User-Agent: Go-http-client/1.1".to_owned(), 200),
        (String::from("Accept: */*"), 200),
        (own("localhost"), 200),
        (own("127.0.0.1"), 200),
        (own("[::1]"), 200),
        (format!("{}\r\n{browser}", own("localhost")), 200),
        (format!("Referer: http://127.0.0.1:{port}/ipfs/bafkqaaa/\r\n{browser}"), 200),
        (browser.to_owned(), 403),
        (format!("Origin: null\r\n{browser}"), 403),
        ("Origin: https://evil.example".to_owned(), 403),
        (format!("Origin: https://evil.example:{port}"), 403),
        (format!("Origin: http://localhost:{}", port ^ 1), 403),
        ("Origin: http://localhost".to_owned(), 403),
        (format!("Origin: http://localhost.evil.example:{port}"), 403),
        (format!("Origin: http://localhost@evil.example:{port}"), 403),
        ("Origin: http://192.168.0.1:5001".to_owned(), 403),
        (format!("Referer: http://evil.example/http://localhost:{port}/"), 403),
        (format!("Origin: https://evil.example\r\nReferer: http://localhost:{port}/"), 403),
        ("Origin: \u{fc}".to_owned(), 403),
        // Content under /ipfs has the same origin as the daemon and may be a page.
        (format!("{}\r\nSec-Fetch-Site: same-origin\r\n{browser}", own("127.0.0.1")), 403),
        ("Sec-Fetch-Dest: empty".to_owned(), 403),
        // As the fetch of Node.js sends it.
        ("Sec-Fetch-Mode: cors\r\nUser-Agent: node".to_owned(), 200),
    ] {
        for path in ["/api/v0/version", "/v1/block/batch/has"] {
            let head = format!("POST {path} HTTP/1.1\r\nContent-Length: 11\r\n{headers}");
            let answer = exchange_with_body(&gateway, &head, "{\"cids\":[]}").await;
            assert_eq!(answer, status, "{path} {headers}");
        }
    }
}

/// aiohttp up to 3.9 stops sending a body when the response arrives, and sends its next request in place of the rest.
#[tokio::test(flavor = "multi_thread")]
async fn connection_ends_after_the_response_to_half_a_body() {
    let gateway = TestGateway::start().await;
    for (sent, connection) in [(100, "close"), (200, "")] {
        let mut wire = crate::wire::Wire::connect(&gateway).await;
        let body = "x".repeat(sent);
        wire.send(format!(
            "POST /api/v0/add?chunker=foo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200\r\n\
             Content-Type: multipart/form-data; boundary=b\r\n\r\n{body}"
        ))
        .await;
        let answer = wire.answer().await;
        assert_eq!((answer.status, answer.header("connection")), (500, connection), "{sent}");
    }
}

async fn exchange_with_body(gateway: &TestGateway, head: &str, body: &str) -> u16 {
    let mut wire = crate::wire::Wire::connect(gateway).await;
    wire.send(format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n{body}")).await;
    wire.answer().await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn cid_base_option_selects_the_base() {
    let gateway = TestGateway::start().await;
    let cid = gateway.add("", "hello world").await;
    for (base, expected) in [
        ("base58btc", "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD"),
        ("base32", "bafybeihykld7uyxzogax6vgyvag42y7464eywpf55gxi5qpoisibh3c5wa"),
        ("base16", "f01701220f852c7fa62f971817f54d8a80dcd63fcf7098b3cbde9ae8ec1ee449013ec5db0"),
    ] {
        let stat = gateway.rpc_json(&format!("block/stat?arg={cid}&cid-base={base}")).await;
        assert_eq!(stat["Key"], expected, "{base}");
        assert_eq!(gateway.add(&format!("cid-base={base}"), "hello world").await, expected, "{base}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rpc_path_arguments_accept_every_spelling() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("", &[("d/a b/ü.txt", "hello")]).await;
    for path in [
        format!("{root}/a%20b/%C3%BC.txt"),
        format!("/ipfs/{root}/a+b/%C3%BC.txt"),
        format!("%2Fipfs%2F{root}%2Fa%20b%2F%C3%BC.txt"),
        format!("ipfs://{root}/a%20b/%C3%BC.txt"),
        format!("ipfs:{root}/a%20b/%C3%BC.txt"),
        format!("ipfs:/{root}/a%20b/%C3%BC.txt"),
        format!("IPFS:%2F%2F{root}/x/../a%20b/%C3%BC.txt"),
        format!("/ipfs/{root}/x//../a%20b/%C3%BC.txt"),
        format!("//ipfs//{root}/a%20b/%C3%BC.txt"),
    ] {
        assert_eq!(gateway.rpc_bytes(&format!("cat?arg={path}")).await, "hello", "{path}");
    }
    for uri in [format!("ipfs:{root}"), format!("ipfs:/{root}"), format!("ipld:{root}"), format!("Ipfs://{root}")] {
        let listed = gateway.rpc_json(&format!("ls?arg={uri}")).await;
        assert_eq!(listed["Objects"][0]["Links"][0]["Name"], "a b", "{uri}");
        assert_eq!(gateway.rpc_json(&format!("pin/add?arg={uri}")).await["Pins"], json!([root]), "{uri}");
        assert_eq!(gateway.rpc_json(&format!("files/stat?arg={uri}")).await["Hash"], root, "{uri}");
        let path = if uri.starts_with("ipld") { format!("/ipld/{root}") } else { format!("/ipfs/{root}") };
        assert_eq!(gateway.rpc_json(&format!("resolve?arg={uri}")).await["Path"], path, "{uri}");
    }
    for (uri, text) in [
        ("ipfs:", "invalid path \"/ipfs/\": path does not have enough components"),
        ("IPNS://", "invalid path \"/ipns/\": path does not have enough components"),
        ("ipfsfile:x", "invalid path \"ipfsfile:x\": path does not have enough components"),
        ("ipfs:bad", "invalid path \"/ipfs/bad\": "),
    ] {
        let message = rpc_failure(gateway.rpc(&format!("cat?arg={uri}")).send().await.unwrap()).await;
        assert!(message.starts_with(text), "{uri}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn id_returns_a_persistent_peer_id() {
    let gateway = TestGateway::start().await;
    let id = gateway.rpc_json("id").await;
    assert!(id["ID"].as_str().unwrap().starts_with("12D3Koo"), "{id}");
    assert_eq!(id["ID"].as_str().unwrap().len(), 52);
    assert!(id["AgentVersion"].as_str().unwrap().contains("ipfrs"));
    assert!(id["Addresses"].is_array() && id["Protocols"].is_array() && id["PublicKey"].is_string(), "{id}");
    let repo = gateway.stop().await;
    let again = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(again.rpc_json("id").await, id);
    assert_ne!(TestGateway::start().await.rpc_json("id").await["ID"], id["ID"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn version_has_the_members_that_clients_read() {
    let gateway = TestGateway::start().await;
    let version = gateway.rpc_json("version").await;
    for member in ["Version", "Commit", "Repo", "System", "Golang"] {
        assert!(version[member].is_string(), "{member}: {version}");
    }
    // Clients refuse to work with versions of Kubo that they do not know.
    assert_eq!(version["Version"], "0.44.0");
    assert_eq!(version["Ipfrs"], env!("CARGO_PKG_VERSION"));
    assert!(version["System"].as_str().unwrap().ends_with("/linux"));
    let configured = TestGateway::start_with(|config| config.api.version = Some("0.39.0".into())).await;
    let version = configured.rpc_json("version?number=true").await;
    assert_eq!((&version["Version"], &version["Ipfrs"]), (&"0.39.0".into(), &env!("CARGO_PKG_VERSION").into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn bandwidth_counts_at_least_the_bytes_that_were_moved() {
    const MOVED: u64 = 5_000_000;
    let gateway = TestGateway::start().await;
    let totals = |stats: Value| (stats["TotalIn"].as_u64().unwrap(), stats["TotalOut"].as_u64().unwrap());
    let before = totals(gateway.rpc_json("stats/bw").await);
    let cid = gateway.add("", crate::content::bytes(usize::try_from(MOVED).unwrap())).await;
    let added = totals(gateway.rpc_json("stats/bw").await);
    assert!(added.0 >= before.0 + MOVED, "{before:?} {added:?}");
    assert!(added.1 < before.1 + MOVED, "nothing of that size went out: {before:?} {added:?}");
    gateway.content(&format!("/ipfs/{cid}")).await;
    let stats = gateway.rpc_json("stats/bw").await;
    assert!(stats["RateIn"].is_f64() && stats["RateOut"].is_f64(), "{stats}");
    let fetched = totals(stats);
    assert!(fetched.1 >= added.1 + MOVED, "{added:?} {fetched:?}");
    assert!(fetched.1 < added.1 + MOVED + MOVED / 10, "counted once: {added:?} {fetched:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bandwidth_is_polled_until_the_client_leaves() {
    let gateway = TestGateway::start().await;
    let mut polled = gateway.rpc("stats/bw?poll=true&interval=1ns").send().await.unwrap();
    for _ in 0..3 {
        let line: Value = serde_json::from_slice(&polled.chunk().await.unwrap().unwrap()).unwrap();
        assert!(line["TotalIn"].is_u64(), "{line}");
    }
    let wrong = rpc_failure(gateway.rpc("stats/bw?interval=often").send().await.unwrap()).await;
    assert!(wrong.contains("invalid duration"), "{wrong}");
}

#[tokio::test(flavor = "multi_thread")]
async fn repo_stat_counts_blocks_and_bytes() {
    let gateway = TestGateway::start().await;
    gateway.add("raw-leaves=true", crate::content::bytes(600_000)).await;
    let stat = gateway.rpc_json("repo/stat").await;
    assert_eq!(stat["NumObjects"], 4);
    assert!(stat["RepoSize"].as_u64().unwrap() >= 600_000, "{stat}");
    assert_eq!(stat["RepoPath"], gateway.repo().path().to_str().unwrap());
}
