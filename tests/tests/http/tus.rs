//! Resumable uploads: the tus protocol 1.0.0 (<https://tus.io/protocols/resumable-upload>).

use std::fs;
use std::io;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, stream};
use ipfrs_interface::Config;
use reqwest::{Body, Method, RequestBuilder, Response};
use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;

use crate::batch_get::problem;
use crate::content;
use crate::harness::{TestGateway, header};
use crate::progress::Events;

const ROUTE: &str = "/v1/stream/upload";
const OFFSET_OCTET_STREAM: &str = "application/offset+octet-stream";

fn tus(gateway: &TestGateway, method: Method, path: &str) -> RequestBuilder {
    gateway.request(method, path).header("tus-resumable", "1.0.0")
}

/// Creates an upload and returns its location.
async fn begin(gateway: &TestGateway, query: &str, length: usize) -> String {
    let request = tus(gateway, Method::POST, &format!("{ROUTE}?{query}")).header("upload-length", length);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 201);
    assert_eq!(header(&response, "tus-resumable"), "1.0.0");
    assert!(!header(&response, "upload-expires").is_empty(), "{:?}", response.headers());
    header(&response, "location").to_owned()
}

fn patch_request(gateway: &TestGateway, upload: &str, offset: usize, body: impl Into<Body>) -> RequestBuilder {
    let request = tus(gateway, Method::PATCH, upload).header("content-type", OFFSET_OCTET_STREAM);
    request.header("upload-offset", offset).body(body)
}

async fn patch(gateway: &TestGateway, upload: &str, offset: usize, body: impl Into<Body>) -> Response {
    patch_request(gateway, upload, offset, body).send().await.unwrap()
}

async fn head(gateway: &TestGateway, upload: &str) -> Response {
    tus(gateway, Method::HEAD, upload).send().await.unwrap()
}

/// Returns the offset of an upload, after checking the other headers.
async fn offset(gateway: &TestGateway, upload: &str) -> usize {
    let response = head(gateway, upload).await;
    assert_eq!((response.status().as_u16(), header(&response, "cache-control")), (200, "no-store"));
    header(&response, "upload-offset").parse().unwrap()
}

/// Returns the files in the upload directory.
fn spooled(gateway: &TestGateway) -> Vec<String> {
    let entries = fs::read_dir(gateway.repo().path().join("uploads")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns the content ID that `add` gives the content.
async fn expected(content: &Bytes) -> String {
    TestGateway::start().await.add("", content.clone()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_options_return_version_extensions_and_limit() {
    let gateway = TestGateway::start_with(|config| config.upload.max_bytes = 1_000).await;
    for target in [ROUTE.to_owned(), format!("{ROUTE}/x?y=1")] {
        let response = gateway.request(Method::OPTIONS, &target).send().await.unwrap();
        assert_eq!(response.status(), 204, "{target}");
        assert_eq!(header(&response, "tus-version"), "1.0.0");
        assert_eq!(header(&response, "tus-extension"), "creation,creation-with-upload,expiration,termination");
        assert_eq!(header(&response, "tus-max-size"), "1000");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_upload_in_parts_matches_add() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(3_000_000);
    let upload = begin(&gateway, "operation_id=parts", body.len()).await;
    let mut events = Events::of(&gateway, "/v1/progress/parts").await;
    let first = events.next().await.unwrap();
    assert_eq!((&first.data["state"], &first.data["total"]), (&json!("paused"), &json!(3_000_000)));
    for (from, to) in [(0, 0), (0, 1), (1, 1_500_000), (1_500_000, 2_999_999)] {
        let response = patch(&gateway, &upload, from, body.slice(from..to)).await;
        assert_eq!((response.status().as_u16(), header(&response, "upload-offset")), (204, to.to_string().as_str()));
        assert_eq!(header(&response, "x-ipfs-cid"), "", "not all is there");
        assert_eq!(offset(&gateway, &upload).await, to);
    }
    let last = patch(&gateway, &upload, 2_999_999, body.slice(2_999_999..)).await;
    let cid = expected(&body).await;
    assert_eq!((last.status().as_u16(), header(&last, "x-ipfs-cid")), (204, cid.as_str()));
    assert_eq!(header(&last, "x-operation-id"), "parts");
    assert_eq!(header(&head(&gateway, &upload).await, "x-ipfs-cid"), cid);
    content::assert_same(&gateway.content(&format!("/ipfs/{cid}")).await, &body, "the file");
    let done = events.rest().await.pop().unwrap();
    assert_eq!((done.name.as_str(), &done.data["cid"], &done.data["blocks"]), ("done", &json!(cid), &json!(13)));
    assert_eq!(spooled(&gateway).len(), 1, "only the record is left");
    gateway.rpc_bytes("repo/gc").await;
    content::assert_same(&gateway.content(&format!("/ipfs/{cid}")).await, &body, "it is pinned");
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_upload_and_result_survive_a_restart() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(2_000_000);
    let upload = begin(&gateway, "cid-version=1&filename=x&wrap=true", body.len()).await;
    assert_eq!(patch(&gateway, &upload, 0, body.slice(..1_234_567)).await.status(), 204);
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    assert_eq!(offset(&gateway, &upload).await, 1_234_567);
    let record = gateway.repo().path().join("uploads").join(format!("{}.json", upload.rsplit('/').next().unwrap()));
    assert!(fs::read_to_string(&record).unwrap().contains("127.0.0.1"));
    let last = patch(&gateway, &upload, 1_234_567, body.slice(1_234_567..)).await;
    let cid = header(&last, "x-ipfs-cid").to_owned();
    content::assert_same(&gateway.content(&format!("/ipfs/{cid}/x")).await, &body, "the options are kept as well");
    assert!(!fs::read_to_string(&record).unwrap().contains("127.0.0.1"), "the address is needed no longer");
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    let told = head(&gateway, &upload).await;
    assert_eq!((header(&told, "x-ipfs-cid"), header(&told, "upload-offset")), (cid.as_str(), "2000000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn complete_tus_upload_is_imported_after_a_crash() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(700_000);
    let upload = begin(&gateway, "", body.len()).await;
    assert_eq!(patch(&gateway, &upload, 0, body.slice(..1)).await.status(), 204);
    let repo = gateway.stop().await;
    // The state after a crash between the last byte and the import.
    let part = repo.path().join("uploads").join(format!("{}.part", upload.rsplit('/').next().unwrap()));
    fs::write(part, &body).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    let expected = expected(&body).await;
    // Concurrent requests import it only once.
    for told in join_all((0..4).map(|_| head(&gateway, &upload))).await {
        assert_eq!((header(&told, "upload-offset"), header(&told, "x-ipfs-cid")), ("700000", &*expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_patch_is_on_the_disk_before_it_ends() {
    let gateway = TestGateway::start().await;
    let upload = begin(&gateway, "", 1_000).await;
    let (sender, body) = unbounded_channel::<io::Result<Bytes>>();
    sender.send(Ok(content::bytes(300))).unwrap();
    let body = Body::wrap_stream(stream::unfold(body, |mut body| async { body.recv().await.map(|it| (it, body)) }));
    let sending = tokio::spawn(patch_request(&gateway, &upload, 0, body).header("content-length", 1_000).send());
    let id = upload.rsplit('/').next().unwrap();
    let part = gateway.repo().path().join("uploads").join(format!("{id}.part"));
    let arrived = async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
        while fs::metadata(&part).map_or(0, |metadata| metadata.len()) < 300 {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), arrived).await.unwrap();
    sender.send(Ok(content::bytes(700))).unwrap();
    drop(sender);
    assert_eq!(sending.await.unwrap().unwrap().status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn aborted_tus_patch_keeps_received_bytes() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(500_000);
    let upload = begin(&gateway, "operation_id=broken", body.len()).await;
    let (pieces, receiver) = unbounded_channel::<io::Result<Bytes>>();
    let stream = stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let request = tus(&gateway, Method::PATCH, &upload).header("content-type", OFFSET_OCTET_STREAM);
    let request = request.header("upload-offset", 0).body(Body::wrap_stream(stream));
    let sending = tokio::spawn(request.send());
    pieces.send(Ok(body.slice(..300_000))).unwrap();
    let mut events = Events::of(&gateway, "/v1/progress/broken").await;
    while events.next().await.unwrap().data["bytes"] != json!(300_000) {}
    // No other client may send data at the same time.
    problem(patch(&gateway, &upload, 0, "x").await, 409, "conflict").await;
    let delete = tus(&gateway, Method::DELETE, &upload).send().await.unwrap();
    problem(delete, 409, "conflict").await;
    pieces.send(Err(io::Error::other("the cable is out"))).unwrap();
    assert!(sending.await.unwrap().is_err());
    while events.next().await.unwrap().data["state"] != json!("paused") {}
    assert_eq!(offset(&gateway, &upload).await, 300_000);
    let rest = patch(&gateway, &upload, 300_000, body.slice(300_000..)).await;
    assert_eq!(header(&rest, "x-ipfs-cid"), expected(&body).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_creation_may_include_data() {
    let gateway = TestGateway::start().await;
    let body = content::bytes(1_000);
    for sent in [0, 400, 1_000] {
        let request = tus(&gateway, Method::POST, ROUTE).header("upload-length", 1_000);
        let request = request.header("content-type", OFFSET_OCTET_STREAM).body(body.slice(..sent));
        let response = request.send().await.unwrap();
        assert_eq!((response.status().as_u16(), header(&response, "upload-offset")), (201, sent.to_string().as_str()));
        let is_done = sent == 1_000;
        assert_eq!(header(&response, "x-ipfs-cid") == expected(&body).await, is_done);
        assert_eq!(offset(&gateway, header(&response, "location")).await, sent);
    }
    let empty = tus(&gateway, Method::POST, ROUTE).header("upload-length", 0).send().await.unwrap();
    assert_eq!((empty.status().as_u16(), header(&empty, "x-ipfs-cid")), (201, &*expected(&Bytes::new()).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_breaks_off_leaves_nothing() {
    let gateway = TestGateway::start_with(|config| config.upload.max_unfinished = 1).await;
    let request = tus(&gateway, Method::POST, &format!("{ROUTE}?operation_id=lost")).header("upload-length", 1_000);
    let pieces = stream::iter([Ok(content::bytes(400))]).chain(stream::pending::<io::Result<Bytes>>());
    let request = request.header("content-type", OFFSET_OCTET_STREAM).body(Body::wrap_stream(pieces));
    let sending = tokio::spawn(request.send());
    let mut events = Events::of(&gateway, "/v1/progress/lost").await;
    while events.next().await.unwrap().data["bytes"] != json!(400) {}
    sending.abort();
    assert!(sending.await.is_err());
    assert_eq!(events.rest().await.pop().unwrap().name, "error");
    assert_eq!(spooled(&gateway), [""; 0]);
    begin(&gateway, "", 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_metadata_is_echoed_and_names_the_file() {
    let gateway = TestGateway::start().await;
    let metadata = format!("filename {},filetype dGV4dC9wbGFpbg==,flag", STANDARD.encode("wörld.txt"));
    let request = tus(&gateway, Method::POST, &format!("{ROUTE}?wrap=true")).header("upload-length", 5);
    // Several headers are one list.
    let (first, rest) = metadata.split_once(',').unwrap();
    let request = request.header("upload-metadata", first).header("upload-metadata", rest);
    let request = request.header("content-type", OFFSET_OCTET_STREAM);
    let response = request.body("hello").send().await.unwrap();
    let path = format!("/ipfs/{}/w%C3%B6rld.txt", header(&response, "x-ipfs-cid"));
    assert_eq!(gateway.content(&path).await, "hello");
    let told = head(&gateway, header(&response, "location")).await;
    assert_eq!(header(&told, "upload-metadata"), metadata);
    for bad in ["filename ???", "a eA==,a eA==", ",", "filename Li4vLi4=", "filename /w=="] {
        let request = tus(&gateway, Method::POST, ROUTE).header("upload-length", 5).header("upload-metadata", bad);
        problem(request.send().await.unwrap(), 400, "invalid_input").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_tus_request_is_refused_without_change() {
    let gateway = TestGateway::start_with(|config| config.upload.max_bytes = 1_000).await;
    let upload = begin(&gateway, "", 10).await;
    assert_eq!(patch(&gateway, &upload, 0, "hello").await.status(), 204);
    let request = |method, path: &str| gateway.request(method, path);
    let whole = |request: RequestBuilder| request.header("content-type", OFFSET_OCTET_STREAM).body("wor");
    let version = ("tus-resumable", "1.0.0");
    let create = || tus(&gateway, Method::POST, ROUTE);
    for (what, request, status) in [
        ("no version", whole(request(Method::PATCH, &upload)).header("upload-offset", 5), 412),
        ("another version", whole(request(Method::PATCH, &upload)).header("tus-resumable", "0.2.2"), 412),
        ("no version to create", request(Method::POST, ROUTE).header("upload-length", 5), 412),
        ("no version to ask", request(Method::HEAD, &upload), 412),
        ("no offset", whole(tus(&gateway, Method::PATCH, &upload)), 400),
        ("a wrong offset", whole(tus(&gateway, Method::PATCH, &upload)).header("upload-offset", 4), 409),
        ("an offset at the end", whole(tus(&gateway, Method::PATCH, &upload)).header("upload-offset", 10), 409),
        ("no number", whole(tus(&gateway, Method::PATCH, &upload)).header("upload-offset", "+5"), 400),
        (
            "another length",
            whole(tus(&gateway, Method::PATCH, &upload)).header("upload-offset", 5).header("upload-length", 9),
            400,
        ),
        ("no type", tus(&gateway, Method::PATCH, &upload).header("upload-offset", 5).body("wor"), 415),
        ("too long", whole(tus(&gateway, Method::PATCH, &upload)).header("upload-offset", 5).body("worldy"), 413),
        (
            "a checksum",
            whole(tus(&gateway, Method::PATCH, &upload)).header("upload-checksum", "sha1 Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
            501,
        ),
        ("a page", whole(tus(&gateway, Method::PATCH, &upload)).header("origin", "http://example.com"), 403),
        ("compressed", whole(create()).header("upload-length", 5).header("content-encoding", "gzip"), 415),
        ("no length", create(), 400),
        ("a negative length", create().header("upload-length", "-1"), 400),
        ("an offset to begin at", whole(create()).header("upload-length", 5).header("upload-offset", 2), 400),
        ("over the limit", create().header("upload-length", 1_001), 413),
        ("a length that comes later", create().header("upload-defer-length", 1), 501),
        ("a body of another type", create().header("upload-length", 5).body("hello"), 415),
        ("a body that is too long", whole(create()).header("upload-length", 2), 413),
        ("a wrong option", tus(&gateway, Method::POST, "/v1/stream/upload?no-such=1").header("upload-length", 5), 400),
        ("a method", request(Method::PUT, &upload).header(version.0, version.1), 405),
        ("no upload", request(Method::HEAD, "/v1/stream/upload/0123").header(version.0, version.1), 404),
        ("no path", request(Method::HEAD, "/v1/stream/upload/..%2Fconfig").header(version.0, version.1), 404),
    ] {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), status, "{what}");
        assert_eq!(header(&response, "tus-resumable"), "1.0.0", "{what}");
        if status == 412 {
            assert_eq!(header(&response, "tus-version"), "1.0.0", "{what}");
        }
    }
    // More bytes than announced, in a body of unknown length.
    let pieces = stream::iter(["wo", "rld", "!"].map(|piece| Ok::<_, io::Error>(Bytes::from(piece))));
    problem(patch(&gateway, &upload, 5, Body::wrap_stream(pieces)).await, 413, "too_large").await;
    assert_eq!(offset(&gateway, &upload).await, 5);
    let last = patch(&gateway, &upload, 5, "world").await;
    assert_eq!(header(&last, "x-ipfs-cid"), expected(&"helloworld".into()).await);
    assert_eq!(spooled(&gateway).len(), 1, "nothing else was begun");
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_method_override_header_works_with_post() {
    let gateway = TestGateway::start().await;
    let upload = begin(&gateway, "", 5).await;
    let post = |method: &str| tus(&gateway, Method::POST, &upload).header("x-http-method-override", method);
    let sent = post("PATCH").header("upload-offset", 0).header("content-type", OFFSET_OCTET_STREAM).body("he");
    assert_eq!(sent.send().await.unwrap().status(), 204);
    assert_eq!(offset(&gateway, &upload).await, 2);
    // A method override in a GET does not bypass the check of browser requests.
    let get = tus(&gateway, Method::GET, &upload).header("x-http-method-override", "DELETE");
    problem(get.header("sec-fetch-site", "same-origin").send().await.unwrap(), 403, "forbidden").await;
    assert_eq!(post("DELETE").send().await.unwrap().status(), 204);
    assert_eq!(head(&gateway, &upload).await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_tus_upload_is_removed_and_frees_quota() {
    let gateway = TestGateway::start_with(|config| config.upload.max_unfinished = 1).await;
    let upload = begin(&gateway, "operation_id=ended", 5).await;
    let refused = tus(&gateway, Method::POST, ROUTE).header("upload-length", 5).send().await.unwrap();
    problem(refused, 429, "rate_limited").await;
    assert_eq!(patch(&gateway, &upload, 0, "he").await.status(), 204);
    assert_eq!(tus(&gateway, Method::DELETE, &upload).send().await.unwrap().status(), 204);
    assert_eq!(spooled(&gateway), [""; 0]);
    assert_eq!(head(&gateway, &upload).await.status(), 404);
    problem(patch(&gateway, &upload, 2, "l").await, 404, "not_found").await;
    let last = Events::of(&gateway, "/v1/progress/ended").await.rest().await.pop().unwrap();
    assert_eq!((last.name.as_str(), &last.data["code"]), ("error", &json!("gone")));
    begin(&gateway, "", 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_tus_uploads_are_removed() {
    let gateway = TestGateway::start().await;
    let (old, new) = (begin(&gateway, "operation_id=old", 5).await, begin(&gateway, "", 5).await);
    let repo = gateway.stop().await;
    let uploads = repo.path().join("uploads");
    let part = uploads.join(format!("{}.part", old.rsplit('/').next().unwrap()));
    let part = fs::File::options().write(true).open(part).unwrap();
    part.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    // A file that a crash left during the creation of an upload, and an unrelated file.
    fs::write(uploads.join("00000000000000000000000000000000.part"), "x").unwrap();
    fs::write(uploads.join("README"), "mine").unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(head(&gateway, &old).await.status(), 404);
    assert_eq!(head(&gateway, &new).await.status(), 200);
    let end = Events::of(&gateway, "/v1/progress/old?wait=60").await.rest().await.pop().unwrap();
    assert_eq!((end.name.as_str(), &end.data["code"]), ("error", &json!("gone")));
    let left = spooled(&gateway);
    assert!(left.contains(&"README".to_owned()) && left.len() == 3, "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_upload_of_an_unknown_client_is_continued() {
    let gateway = TestGateway::start().await;
    let upload = begin(&gateway, "", 5).await;
    assert_eq!(patch(&gateway, &upload, 0, "he").await.status(), 204);
    let repo = gateway.stop().await;
    let record = repo.path().join("uploads").join(format!("{}.json", upload.rsplit('/').next().unwrap()));
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    // As records were before they had the client.
    fields.as_object_mut().unwrap().remove("client").unwrap();
    fs::write(&record, fields.to_string()).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(patch(&gateway, &upload, 2, "llo").await.status(), 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn tus_upload_limits_are_enforced() {
    for change in [
        |config: &mut Config| config.upload.max_bytes = 0,
        |config: &mut Config| config.upload.max_unfinished = 0,
        |config: &mut Config| config.upload.expires_after_seconds = 0,
    ] {
        let mut config = Config::default();
        change(&mut config);
        let error = config.validate().unwrap_err();
        assert!(error.message().starts_with("upload."), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn record_that_cannot_be_read_leaves_other_uploads_alone() {
    let gateway = TestGateway::start().await;
    let (finished, other) = (begin(&gateway, "", 5).await, begin(&gateway, "", 5).await);
    assert_eq!(patch(&gateway, &finished, 0, "hello").await.status(), 204);
    let repo = gateway.stop().await;
    let record = repo.path().join("uploads").join(format!("{}.json", finished.rsplit('/').next().unwrap()));
    let mut fields: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    fields["imported"]["cid"] = "nonsense".into();
    fs::write(&record, fields.to_string()).unwrap();
    let gateway = TestGateway::start_on(repo, |_| {}).await;
    assert_eq!(head(&gateway, &finished).await.status(), 404);
    assert_eq!(head(&gateway, &other).await.status(), 200);
    assert!(record.exists(), "the files are kept");
    begin(&gateway, "", 5).await;
}
