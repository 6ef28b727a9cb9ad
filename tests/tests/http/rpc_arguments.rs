//! Arguments in the body of a command, as Kubo's command line sends its standard input.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::harness::{TestGateway, ndjson, rpc_failure};
use crate::multipart::Form;
use crate::wire::Wire;

/// Returns a form with the part that Kubo's command line sends.
fn stdin(lines: impl AsRef<[u8]>) -> Form {
    Form::new().file("stdin", lines)
}

async fn answer(gateway: &TestGateway, command: &str, lines: impl AsRef<[u8]>) -> Bytes {
    let response = gateway.post_form(command, stdin(lines)).await;
    assert_eq!(response.status(), 200, "{command}");
    response.bytes().await.unwrap()
}

async fn object(gateway: &TestGateway, command: &str, lines: impl AsRef<[u8]>) -> Value {
    serde_json::from_slice(&answer(gateway, command, lines).await).unwrap()
}

/// Returns the text of a request that is refused before the command runs.
async fn refusal(gateway: &TestGateway, command: &str, form: Form) -> String {
    let response = gateway.post_form(command, form).await;
    assert_eq!(response.status(), 400, "{command}");
    response.text().await.unwrap()
}

async fn pinned(gateway: &TestGateway) -> Vec<String> {
    let pins = gateway.rpc_json("pin/ls").await;
    pins["Keys"].as_object().unwrap().keys().cloned().collect()
}

/// Adds three files without pinning them, and returns their content IDs in sorted order.
async fn three(gateway: &TestGateway) -> Vec<String> {
    let mut cids = Vec::new();
    for content in ["one", "two", "three"] {
        cids.push(gateway.add("pin=false", content).await);
    }
    cids.sort();
    cids
}

#[tokio::test(flavor = "multi_thread")]
async fn pin_add_and_rm_take_every_line_behind_the_query() {
    let gateway = TestGateway::start().await;
    let cids = three(&gateway).await;
    for (query, lines) in [
        (format!("arg={}", cids[0]), format!("{}\n{}\n", cids[1], cids[2])),
        (String::new(), cids.join("\n")),
        (String::new(), format!("{}\r\n", cids.join("\r\n"))),
        (format!("arg={}&arg={}", cids[0], cids[1]), cids[2].clone()),
    ] {
        let added = object(&gateway, &format!("pin/add?{query}&stream-channels=true"), &lines).await;
        assert_eq!(added, json!({ "Pins": cids }), "{query} {lines:?}");
        assert_eq!(pinned(&gateway).await, cids);
        let removed = object(&gateway, &format!("pin/rm?{query}"), &lines).await;
        assert_eq!(removed, json!({ "Pins": cids }), "{query} {lines:?}");
        assert_eq!(pinned(&gateway).await, Vec::<String>::new());
    }
    let progress = gateway.post_form("pin/add?progress=true", stdin(cids.join("\n"))).await;
    assert_eq!(ndjson(progress).await.last().unwrap(), &json!({ "Pins": cids }));
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_commands_take_every_line_behind_the_query() {
    let gateway = TestGateway::start().await;
    let (a, b) = (gateway.add("", "first ").await, gateway.add("", "second").await);
    assert_eq!(answer(&gateway, &format!("cat?arg={a}"), format!("{b}\n{a}\n")).await, "first secondfirst ");
    assert_eq!(answer(&gateway, "cat?o=3", format!("{a}\n{b}")).await, "st second");
    let directory = gateway.add_tree("", &[("d/x", "x")]).await;
    let listed = object(&gateway, &format!("ls?arg={directory}"), format!("/ipfs/{directory}\n{directory}/\n")).await;
    assert_eq!(listed["Objects"].as_array().unwrap().len(), 3, "{listed}");
    let stat = object(&gateway, &format!("dag/stat?arg={a}&progress=false"), format!("{b}\n")).await;
    assert_eq!(stat["DagStats"].as_array().unwrap().len(), 2, "{stat}");
    for key in ["one", "two", "three"] {
        gateway.rpc_json(&format!("key/gen?arg={key}")).await;
    }
    let removed = object(&gateway, "key/rm?arg=one", "two\nthree").await;
    assert_eq!(removed["Keys"].as_array().unwrap().len(), 3, "{removed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_one_argument_take_it_from_the_body() {
    let gateway = TestGateway::start().await;
    // `get` would give a file without a modification time that of the request.
    let cid = gateway.add("mtime=1", "hello world").await;
    for command in ["block/get", "block/stat", "dag/get", "dag/resolve", "dag/export", "get", "name/publish", "resolve"]
    {
        let path = format!("/ipfs/{cid}");
        let expected = gateway.rpc_bytes(&format!("{command}?arg={path}")).await;
        for (query, lines) in [("", path.clone()), ("", format!("{path}\r\n")), ("", format!("{path}\n\n \n"))] {
            assert_eq!(answer(&gateway, &format!("{command}?{query}"), &lines).await, expected, "{command} {lines:?}");
        }
        // Kubo's command line sends this if there is no standard input in addition to the argument.
        for nothing in ["", "\n"] {
            assert_eq!(answer(&gateway, &format!("{command}?arg={path}"), nothing).await, expected, "{command}");
        }
        for (query, lines) in [("", format!("{path}\n{path}\n")), (&*format!("arg={path}"), path.clone())] {
            let text = refusal(&gateway, &format!("{command}?{query}"), stdin(lines)).await;
            assert!(text.contains("2 arguments given"), "{command}: {text}");
        }
        assert!(refusal(&gateway, command, stdin("")).await.contains("is required"), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_cannot_be_read_change_nothing() {
    let gateway = TestGateway::start().await;
    let cids = three(&gateway).await;
    let all = cids.join("\n");
    for (form, named) in [
        (stdin(format!("{}\n\n{}", cids[0], cids[1])), "line 2 "),
        (stdin(format!("{all}\n \n")), "line 4 "),
        (stdin(&all).file("more", &cids[0]), "more than one part"),
    ] {
        let text = refusal(&gateway, "pin/add", form).await;
        assert!(text.contains(named), "{text}");
    }
    for (form, named) in [
        (Form::new().directory("stdin"), "is a directory"),
        (stdin(format!("{all}\n{}", "x".repeat(8 * 1024 + 1))), "line 4 "),
        (stdin(format!("{all}\nnonsense\n")), "nonsense"),
        (stdin([all.as_bytes(), b"\n\xff\n"].concat()), r#""\xff""#),
    ] {
        let text = rpc_failure(gateway.post_form("pin/add", form).await).await;
        assert!(text.contains(named), "{text}");
    }
    let cut = stdin(&all);
    let request = gateway.rpc("pin/add").header("content-type", cut.content_type());
    let text = rpc_failure(request.body(cut.cut(5)).send().await.unwrap()).await;
    assert!(text.contains("cut off"), "{text}");
    assert_eq!(pinned(&gateway).await, Vec::<String>::new());
    // A body of another type has no arguments, and neither has the body of a command that reads none in Kubo.
    let plain = gateway.rpc("pin/add").body(all.clone()).send().await.unwrap();
    assert_eq!(plain.status(), 400);
    assert!(refusal(&gateway, "block/rm", stdin(&all)).await.contains("is required"));
    assert_eq!(object(&gateway, "pin/ls", &all).await["Keys"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_are_bounded_in_number_and_bytes() {
    let gateway = TestGateway::start_with(|config| config.api.max_arguments = 2).await;
    let cids = three(&gateway).await;
    assert_eq!(object(&gateway, "pin/add", format!("{}\n{}\n", cids[0], cids[1])).await["Pins"], json!(cids[..2]));
    let text = rpc_failure(gateway.post_form("pin/add", stdin(cids.join("\n"))).await).await;
    assert!(text.contains("api.max_arguments"), "{text}");
    // The body has no end: the daemon aborts it while receiving.
    let mut wire = Wire::connect(&gateway).await;
    let head = "POST /api/v0/cat HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
                Content-Type: multipart/form-data; boundary=b\r\n\r\n";
    let part = "--b\r\nContent-Disposition: form-data; filename=\"stdin\"\r\n\r\n";
    wire.send(format!("{head}{:x}\r\n{part}\r\n", part.len())).await;
    let line = format!("{}\n", "x".repeat(9_999));
    wire.send(format!("{:x}\r\n{line}\r\n", line.len())).await;
    let answer = wire.answer().await;
    assert_eq!(answer.status, 500);
    assert!(String::from_utf8_lossy(&answer.body).contains("exceeds 8192 bytes"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn multipart_type_without_a_body_is_ignored() {
    let gateway = TestGateway::start().await;
    for (command, status) in [
        ("block/stat?arg=bafkqaaa", 200),
        ("pin/ls", 200),
        ("block/stat", 400),
        ("add", 400),
        ("files/write?arg=/x&create=true", 400),
    ] {
        for kind in ["multipart/mixed", "Multipart/Mixed; boundary=b"] {
            let response = gateway.rpc(command).header("content-type", kind).send().await.unwrap();
            assert_eq!(response.status(), status, "{command} {kind}");
        }
    }
    // Kubo refuses an empty form too.
    let request = gateway.rpc("block/stat?arg=bafkqaaa").header("content-type", "multipart/form-data");
    assert!(rpc_failure(request.send().await.unwrap()).await.contains("boundary"));
}
