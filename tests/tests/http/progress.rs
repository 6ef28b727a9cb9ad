//! `GET /v1/progress`: running operations as server-sent events.

use std::io;

use bytes::Bytes;
use futures::stream;
use reqwest::{Body, Method, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::batch_get::problem;
use crate::content;
use crate::harness::{TestGateway, header, ndjson};
use crate::multipart::Form;
use crate::upload::upload;

/// A server-sent event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) data: Value,
}

/// A reader of events.
pub(crate) struct Events {
    response: Response,
    text: String,
}

impl Events {
    pub(crate) async fn of(gateway: &TestGateway, path: &str) -> Self {
        let response = gateway.get(path).await;
        assert_eq!(response.status(), 200, "{path}");
        Self { response, text: String::new() }
    }

    /// Returns the next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let (name, id, data) = (field("event: "), field("id: "), field("data: "));
                self.text = rest.to_owned();
                let Some(data) = data else { continue };
                let data = serde_json::from_str(&data).unwrap();
                return Some(Event { name: name.unwrap(), id: id.unwrap().parse().unwrap(), data });
            }
            self.text.push_str(std::str::from_utf8(&self.response.chunk().await.unwrap()?).unwrap());
        }
    }

    pub(crate) async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}

/// Starts an upload whose body is sent piece by piece.
fn piecewise(gateway: &TestGateway, query: &str) -> (UnboundedSender<io::Result<Bytes>>, JoinHandle<Value>) {
    let (pieces, receiver) = unbounded_channel();
    let body = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let request = gateway.request(Method::POST, &format!("/v1/stream/upload?{query}")).body(Body::wrap_stream(body));
    (pieces, tokio::spawn(async move { request.send().await.unwrap().json().await.unwrap() }))
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_covers_an_upload_from_start_to_end() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(3_000_000);
    let path = "/v1/progress/followed?wait=60";
    let (mut events, (pieces, answer)) =
        tokio::join!(Events::of(&gateway, path), async { piecewise(&gateway, "operation_id=followed") });
    assert_eq!(header(&events.response, "content-type"), "text/event-stream");
    assert_eq!(header(&events.response, "cache-control"), "no-store");
    assert_eq!(header(&events.response, "x-accel-buffering"), "no");
    let first = events.next().await.unwrap();
    assert_eq!((first.name.as_str(), &first.data["bytes"]), ("progress", &json!(0)), "{first:?}");
    assert_eq!((&first.data["kind"], &first.data["state"]), (&json!("upload"), &json!("running")));
    assert_eq!((&first.data["operation_id"], first.data.get("total")), (&json!("followed"), None));
    for sent in [1_000_000, 2_000_000] {
        pieces.send(Ok(body.slice(sent - 1_000_000..sent))).unwrap();
        // The body pauses here, so that exactly this count is reported, regardless of how the body was split in
        // transit.
        while events.next().await.unwrap().data["bytes"] != json!(sent) {}
    }
    let listed: Value = gateway.get("/v1/progress").await.json().await.unwrap();
    assert_eq!(listed["operations"][0]["operation_id"], "followed", "{listed}");
    assert_eq!(listed["operations"][0]["bytes"], 2_000_000, "{listed}");
    pieces.send(Ok(body.slice(2_000_000..))).unwrap();
    drop(pieces);
    let answer = answer.await.unwrap();
    let rest = events.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["state"]), ("done", &json!("done")));
    assert_eq!((&last.data["cid"], &last.data["size"]), (&answer["cid"], &json!(3_000_000)));
    assert_eq!((&last.data["bytes"], &last.data["blocks"]), (&json!(3_000_000), &answer["blocks"]));
    assert!(last.data["rate_bytes_per_second"].as_u64().unwrap() > 0, "{last:?}");
    assert!(rest.iter().rev().skip(1).all(|event| event.name == "progress" && event.id < last.id), "{rest:?}");
    let listed: Value = gateway.get("/v1/progress").await.json().await.unwrap();
    assert_eq!(listed, json!({"operations": []}));
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_covers_an_add_with_operation_id() {
    let gateway = TestGateway::start().await;
    let form = Form::new().file("d/a", "hello").file("d/b", "hello world");
    let request = gateway.rpc("add").header("content-type", form.content_type()).header("x-operation-id", "tree");
    let lines = ndjson(request.body(form.end()).send().await.unwrap()).await;
    let last = Events::of(&gateway, "/v1/progress/tree").await.rest().await.pop().unwrap();
    assert_eq!((&last.data["kind"], &last.data["bytes"], &last.data["blocks"]), (&json!("add"), &json!(16), &json!(3)));
    assert_eq!(last.data["cid"], lines.last().unwrap()["Hash"]);
    // The event of a failed operation contains the reason.
    let form = Form::new().file("d", "hello");
    let request = gateway.rpc("add").header("content-type", form.content_type()).header("x-operation-id", "cut");
    request.body(form.cut(2)).send().await.unwrap();
    let last = Events::of(&gateway, "/v1/progress/cut").await.rest().await.pop().unwrap();
    assert_eq!((last.name.as_str(), &last.data["state"]), ("error", &json!("failed")));
    let bad = gateway.rpc("add").header("x-operation-id", "a b").body("x").send().await.unwrap();
    assert_eq!(bad.status(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_of_finished_operation_is_sent_once() {
    let gateway = TestGateway::start().await;
    upload(&gateway, "operation_id=over", "hello world").await;
    let events = Events::of(&gateway, "/v1/progress/over").await.rest().await;
    let names: Vec<_> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["progress", "done"]);
    assert_eq!((&events[1].data["total"], &events[1].data["size"]), (&json!(11), &json!(11)));
    // An EventSource in a browser sends this request when the stream ends.
    let again = gateway.request(Method::GET, "/v1/progress/over").header("last-event-id", events[1].id);
    assert_eq!(again.send().await.unwrap().status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_fails_ends_with_an_error() {
    let gateway = TestGateway::start().await;
    let (pieces, answer) = piecewise(&gateway, "operation_id=failed");
    pieces.send(Ok("hello".into())).unwrap();
    let mut events = Events::of(&gateway, "/v1/progress/failed?wait=60").await;
    while events.next().await.unwrap().data["bytes"] != json!(5) {}
    pieces.send(Err(io::Error::other("the disk of the client is gone"))).unwrap();
    assert!(answer.await.is_err());
    let rest = events.rest().await;
    let last = rest.last().unwrap();
    assert_eq!((last.name.as_str(), &last.data["state"]), ("error", &json!("failed")));
    assert!(!last.data["code"].as_str().unwrap().is_empty() && !last.data["error"].as_str().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_operation_is_404_and_a_malformed_id_400() {
    let gateway = TestGateway::start().await;
    problem(gateway.get("/v1/progress/nothing?wait=0").await, 404, "not_found").await;
    problem(gateway.get("/v1/progress/a%20b").await, 400, "invalid_input").await;
    let post = gateway.request(Method::POST, "/v1/progress/x").send().await.unwrap();
    assert!(header(&post, "allow").contains("GET"), "{:?}", post.headers());
    problem(post, 405, "method_not_allowed").await;
    for wait in ["61", "-1", "soon"] {
        problem(gateway.get(&format!("/v1/progress/x?wait={wait}")).await, 400, "invalid_input").await;
    }
}

/// A body that has one piece and does not end.
fn unfinished(piece: &'static [u8]) -> Body {
    let pieces = stream::iter([io::Result::Ok(Bytes::from_static(piece))]);
    Body::wrap_stream(futures::StreamExt::chain(pieces, stream::pending()))
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_are_cancelled() {
    let gateway = TestGateway::start().await;
    let cancel = async |id: &str| gateway.request(Method::DELETE, &format!("/v1/progress/{id}")).send().await.unwrap();
    let created = gateway.request(Method::POST, "/v1/stream/upload?operation_id=paused");
    let created = created.header("tus-resumable", "1.0.0").header("upload-length", "9").send().await.unwrap();
    let paused = header(&created, "location").to_owned();
    let created = gateway.request(Method::POST, "/v1/stream/upload?operation_id=patched");
    let created = created.header("tus-resumable", "1.0.0").header("upload-length", "9").send().await.unwrap();
    let patched = header(&created, "location").to_owned();
    let requests = [
        ("plain", gateway.request(Method::POST, "/v1/stream/upload?operation_id=plain")),
        ("added", gateway.rpc("add").header("x-operation-id", "added")),
        (
            "patched",
            gateway
                .request(Method::PATCH, &patched)
                .header("tus-resumable", "1.0.0")
                .header("upload-offset", "0")
                .header("content-type", "application/offset+octet-stream"),
        ),
    ];
    for (id, request) in requests {
        let answer = tokio::spawn(request.body(unfinished(b"part")).send());
        let mut events = Events::of(&gateway, &format!("/v1/progress/{id}?wait=60")).await;
        while events.next().await.unwrap().data["bytes"] != 4 {}
        assert_eq!(cancel(id).await.status(), 204, "{id}");
        let last = events.rest().await.pop().unwrap();
        assert_eq!((&*last.name, &last.data["error"]), ("error", &json!("the operation was cancelled")), "{id}");
        let answer = answer.await.unwrap().unwrap();
        let status = answer.status();
        assert!(status.is_client_error() || status == 500, "{id}: {status}");
        assert!(answer.text().await.unwrap().contains("cancelled"), "{id}");
        assert_eq!(cancel(id).await.status(), 409, "{id} has ended");
    }
    assert_eq!(cancel("paused").await.status(), 204);
    for location in [paused, patched] {
        let left = gateway.request(Method::HEAD, &location).header("tus-resumable", "1.0.0").send().await.unwrap();
        assert_eq!(left.status(), 404, "{location}");
    }
    assert_eq!(cancel("unknown").await.status(), 404);
    assert_eq!(cancel("a%20b").await.status(), 400);
    assert_eq!(gateway.get("/v1/progress").await.json::<Value>().await.unwrap(), json!({"operations": []}));
}
