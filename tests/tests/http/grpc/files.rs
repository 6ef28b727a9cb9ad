//! `ipfrs.file.v1.FileService`: adding and reading files, and describing paths. [`super::directories`] tests
//! pagination.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use ipfrs_core::Cid;
use ipfrs_proto::file::v1::add_file_request::Part;
use ipfrs_proto::file::v1::file_service_client::FileServiceClient;
use ipfrs_proto::file::v1::{
    AddFileRequest, AddFileResponse, FileMetadata, FileType, GetFileInfoRequest, GetFileRequest, PinFileRequest,
    UnpinFileRequest,
};
use tokio::sync::mpsc;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::blocks::received;
use super::{ABSENT, assert_failed};
use crate::content::{self, assert_same};
use crate::crafted::{Dag, Data, FILE};
use crate::harness::TestGateway;
use crate::multipart::Form;

const ACTIVE: &str = "ipfrs_streaming_operations_active";
const MEBIBYTE: usize = 1024 * 1024;

pub(super) fn file_client(gateway: &TestGateway) -> FileServiceClient<Channel> {
    FileServiceClient::new(gateway.channel()).max_decoding_message_size(4 * MEBIBYTE)
}

fn message(part: Part) -> AddFileRequest {
    AddFileRequest { part: Some(part) }
}

fn chunk(bytes: impl Into<Bytes>) -> AddFileRequest {
    message(Part::Chunk(bytes.into()))
}

/// Adds a file in chunks of the sizes in `sizes`, which are used cyclically.
async fn add(
    gateway: &TestGateway,
    metadata: FileMetadata,
    file: &Bytes,
    sizes: &[usize],
) -> Result<AddFileResponse, Status> {
    let mut left = file.clone();
    let chunks: Vec<_> = sizes
        .iter()
        .cycle()
        .map_while(|size| (!left.is_empty()).then(|| chunk(left.split_to(left.len().min(*size)))))
        .collect();
    let messages = stream::iter([message(Part::Metadata(metadata))]).chain(stream::iter(chunks));
    Ok(file_client(gateway).add_file(messages).await?.into_inner())
}

fn get(path: &str, offset: u64, length: Option<u64>) -> GetFileRequest {
    GetFileRequest { path: path.to_owned(), offset, length }
}

/// Returns the pieces of a span of a file, and the file size in the first message.
async fn read(gateway: &TestGateway, request: GetFileRequest) -> Result<(Vec<Bytes>, u64), Status> {
    let mut messages = file_client(gateway).get_file(request).await?.into_inner();
    let first = messages.message().await?.unwrap();
    let (mut pieces, size) = (vec![first.data], first.file_size.unwrap());
    while let Some(message) = messages.message().await? {
        assert_eq!(message.file_size, None, "the first message alone has the size");
        pieces.push(message.data);
    }
    Ok((pieces, size))
}

async fn is_pinned(gateway: &TestGateway) -> bool {
    !gateway.rpc_json("pin/ls").await["Keys"].as_object().unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn file_of_64_mib_round_trips_with_any_chunk_sizes() {
    let gateway = TestGateway::start().await;
    let file = content::bytes(64 * MEBIBYTE + 1);
    let added = add(&gateway, FileMetadata::default(), &file, &[1, 0, 70_000, 4 * MEBIBYTE, 262_144, 999_983]).await;
    let added = added.unwrap();
    assert_eq!(added.cid, gateway.add("only-hash=true", file.clone()).await, "the same as add's");
    // 257 leaves, two nodes above them, and the root.
    assert_eq!((added.size, added.blocks), (file.len() as u64, 260));
    assert!(is_pinned(&gateway).await);
    let (pieces, size) = read(&gateway, get(&added.cid, 0, None)).await.unwrap();
    assert_eq!(size, file.len() as u64);
    assert_same(&pieces.concat(), &file, "the file");
    assert!(pieces.iter().all(|piece| piece.len() <= MEBIBYTE));
    gateway.assert_metric(&format!("{ACTIVE}{{direction=\"download\"}}"), 0).await;
}

#[tokio::test]
async fn file_spans_are_exact_and_fit_into_messages() {
    let gateway = TestGateway::start().await;
    let file = content::bytes(5 * MEBIBYTE);
    let (len, size) = (file.len() as u64, file.len());
    let options = FileMetadata { chunker: "size-2000000".into(), ..FileMetadata::default() };
    let cid = add(&gateway, options, &file, &[MEBIBYTE]).await.unwrap().cid;
    let leaf = 2_000_000;
    for (offset, length, expected) in [
        (0, None, 0..size),
        (0, Some(0), 0..0),
        (0, Some(1), 0..1),
        (1, Some(leaf), 1..2_000_001),
        (leaf - 1, Some(2), 1_999_999..2_000_001),
        (leaf, Some(leaf), 2_000_000..4_000_000),
        (len - 1, None, size - 1..size),
        (len - 1, Some(u64::MAX), size - 1..size),
        (len, None, size..size),
        (len, Some(7), size..size),
    ] {
        let (pieces, all) = read(&gateway, get(&format!("/ipfs/{cid}"), offset, length)).await.unwrap();
        assert_eq!(all, len);
        assert_same(&pieces.concat(), &file[expected], &format!("{offset}, {length:?}"));
        assert!(pieces.iter().all(|piece| piece.len() <= MEBIBYTE), "leaves of 2 MB are cut");
    }
    let refused = read(&gateway, get(&cid, len + 1, None)).await.unwrap_err();
    assert_failed(&refused, Code::InvalidArgument, "INVALID_INPUT", Some("offset"));
    let empty = add(&gateway, FileMetadata::default(), &Bytes::new(), &[1]).await.unwrap();
    assert_eq!(read(&gateway, get(&empty.cid, 0, None)).await.unwrap(), (vec![Bytes::new()], 0));
}

#[tokio::test]
async fn grpc_add_options_match_rpc_add() {
    let gateway = TestGateway::start().await;
    let file = content::bytes(300_000);
    let default = FileMetadata::default;
    for (metadata, query) in [
        (FileMetadata { cid_version: Some(1), ..default() }, "cid-version=1"),
        (FileMetadata { raw_leaves: Some(true), ..default() }, "raw-leaves=true"),
        (FileMetadata { cid_version: Some(1), raw_leaves: Some(false), ..default() }, "cid-version=1&raw-leaves=false"),
        (FileMetadata { profile: "unixfs-v1-2025".into(), ..default() }, "profile=unixfs-v1-2025"),
        (FileMetadata { chunker: "size-1000".into(), ..default() }, "chunker=size-1000"),
        (FileMetadata { hash: "blake3".into(), ..default() }, "hash=blake3"),
    ] {
        let expected = gateway.add(&format!("{query}&only-hash=true"), file.clone()).await;
        assert_eq!(add(&gateway, metadata, &file, &[9_999]).await.unwrap().cid, expected, "{query}");
    }
    let wrapped = FileMetadata { name: "a b.bin".into(), wrap_with_directory: true, no_pin: true, ..default() };
    let wrapped = add(&gateway, wrapped, &file, &[9_999]).await.unwrap();
    assert_same(&gateway.content(&format!("/ipfs/{}/a%20b.bin", wrapped.cid)).await, &file, "by its name");
    let kept = gateway.rpc_json("pin/ls?type=recursive").await;
    assert!(!kept["Keys"].as_object().unwrap().contains_key(&wrapped.cid), "no_pin");

    let watched = FileMetadata { operation_id: "my-import".into(), name: "named".into(), ..default() };
    let watched = add(&gateway, watched, &file, &[9_999]).await.unwrap();
    assert_eq!(watched.operation_id, "my-import");
    let progress = String::from_utf8(gateway.content("/v1/progress/my-import").await.to_vec()).unwrap();
    assert!(progress.contains(&watched.cid), "{progress}");
    assert_eq!(gateway.rpc_json("pin/ls?names=true").await["Keys"][&watched.cid]["Name"], "named");
}

#[tokio::test]
async fn malformed_add_file_stream_adds_nothing() {
    let gateway = TestGateway::start().await;
    let metadata = |change: fn(&mut FileMetadata)| {
        let mut metadata = FileMetadata::default();
        change(&mut metadata);
        message(Part::Metadata(metadata))
    };
    let plain = || metadata(|_| {});
    let none = AddFileRequest { part: None };
    for (messages, field) in [
        (vec![], "metadata"),
        (vec![none.clone()], "metadata"),
        (vec![chunk("first")], "metadata"),
        (vec![plain(), plain()], "metadata"),
        (vec![plain(), chunk("first"), plain(), chunk("second")], "metadata"),
        (vec![plain(), chunk("first"), none], "chunk"),
        (vec![metadata(|m| m.name = "a/b".into()), chunk("x")], "metadata.name"),
        (vec![metadata(|m| m.name = "..".into()), chunk("x")], "metadata.name"),
        (vec![metadata(|m| m.profile = "what".into()), chunk("x")], "metadata.profile"),
        (vec![metadata(|m| m.chunker = "size-0".into()), chunk("x")], "metadata.chunker"),
        (vec![metadata(|m| m.cid_version = Some(2)), chunk("x")], "metadata.cid_version"),
        (vec![metadata(|m| m.operation_id = "a b".into()), chunk("x")], "metadata.operation_id"),
    ] {
        let shown = format!("{messages:?}");
        let refused = file_client(&gateway).add_file(stream::iter(messages)).await.expect_err(&shown);
        assert_failed(&refused, Code::InvalidArgument, "INVALID_INPUT", Some(field));
    }
    let unknown = metadata(|metadata| metadata.hash = "what".into());
    let refused = file_client(&gateway).add_file(stream::iter([unknown])).await.unwrap_err();
    assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", Some("metadata.hash"));
    // The message has room for a chunk of one byte too many.
    for bytes in [5 * MEBIBYTE, 4 * MEBIBYTE + 1] {
        let too_large = chunk(vec![0; bytes]);
        let refused = file_client(&gateway).add_file(stream::iter([plain(), too_large])).await.unwrap_err();
        assert_failed(&refused, Code::ResourceExhausted, "TOO_LARGE", None);
    }
    assert!(!is_pinned(&gateway).await);

    let gateway = TestGateway::start_with(|config| config.upload.max_bytes = 1_000).await;
    let refused = add(&gateway, FileMetadata::default(), &content::bytes(1_001), &[100]).await.unwrap_err();
    assert_failed(&refused, Code::ResourceExhausted, "TOO_LARGE", None);
    assert!(refused.message().contains("upload.max_bytes") && !is_pinned(&gateway).await, "{refused}");
}

#[tokio::test]
async fn abandoned_grpc_import_pins_nothing() {
    let gateway = TestGateway::start().await;
    let (sender, receiver) = mpsc::channel(1);
    let mut client = file_client(&gateway);
    let adding = tokio::spawn(async move { client.add_file(received(receiver)).await });
    sender.send(message(Part::Metadata(FileMetadata::default()))).await.unwrap();
    for _ in 0..8 {
        sender.send(chunk(vec![1; MEBIBYTE])).await.unwrap();
    }
    gateway.until_metric("ipfrs_upload_bytes_total", |bytes| bytes > MEBIBYTE as u64).await;
    let uploads = format!("{ACTIVE}{{direction=\"upload\"}}");
    assert_eq!(gateway.metric(&uploads).await, 1);
    adding.abort();
    gateway.until_metric(&uploads, |active| active == 0).await;
    assert!(!is_pinned(&gateway).await);
    let cancelled =
        "ipfrs_grpc_requests_total{code=\"CANCELLED\",method=\"AddFile\",service=\"ipfrs.file.v1.FileService\"}";
    gateway.until_metric(cancelled, |calls| calls == 1).await;

    // A stream that only pauses is aborted.
    let gateway = TestGateway::start_with(|config| config.gateway.upload_idle_seconds = 1).await;
    let (sender, receiver) = mpsc::channel(2);
    sender.send(message(Part::Metadata(FileMetadata::default()))).await.unwrap();
    sender.send(chunk("first")).await.unwrap();
    let refused = file_client(&gateway).add_file(received(receiver)).await.unwrap_err();
    assert_failed(&refused, Code::DeadlineExceeded, "TIMEOUT", None);
    assert!(!is_pinned(&gateway).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_import_applies_backpressure() {
    // One import at a time: the second waits for the first, which waits for its client.
    let gateway = TestGateway::start_with(|config| config.concurrency.max_concurrent_tasks = 1).await;
    let (first, receiver) = mpsc::channel(1);
    let mut client = file_client(&gateway);
    let adding = tokio::spawn(async move { client.add_file(received(receiver)).await });
    first.send(message(Part::Metadata(FileMetadata::default()))).await.unwrap();
    gateway.until_metric(&format!("{ACTIVE}{{direction=\"upload\"}}"), |active| active == 1).await;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let chunks = stream::iter(0..64).map(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
        chunk(vec![2; MEBIBYTE])
    });
    let messages = stream::iter([message(Part::Metadata(FileMetadata::default()))]).chain(chunks);
    let mut client = file_client(&gateway);
    let waiting = tokio::spawn(async move { client.add_file(messages).await });
    // Meanwhile the first import continues, with many times the data of the whole second import.
    for _ in 0..64 {
        first.send(chunk(vec![1; MEBIBYTE])).await.unwrap();
    }
    let taken = sent.load(Ordering::SeqCst);
    assert!(taken < 32, "{taken} MiB were taken from a client whose import had not begun");
    drop(first);
    assert_eq!(adding.await.unwrap().unwrap().into_inner().size, 64 * MEBIBYTE as u64);
    assert_eq!(waiting.await.unwrap().unwrap().into_inner().size, 64 * MEBIBYTE as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_or_gone_client_stops_get_file_reads() {
    let gateway = TestGateway::start().await;
    let (downloads, retrieved) = (format!("{ACTIVE}{{direction=\"download\"}}"), "ipfrs_blocks_retrieved_total");
    let file = content::bytes(64 * MEBIBYTE);
    let cid = gateway.add("", file.clone()).await;
    let before = gateway.metric(retrieved).await;
    let mut client = file_client(&gateway);
    let mut unread = client.get_file(get(&cid, 0, None)).await.unwrap().into_inner();
    unread.message().await.unwrap().unwrap();
    // Meanwhile, others read the whole file on separate connections: 256 leaves, two nodes above them, and the root.
    for _ in 0..2 {
        let (pieces, _) = read(&gateway, get(&cid, 0, None)).await.unwrap();
        assert_same(&pieces.concat(), &file, "beside one who does not read");
    }
    let (read, most) = (gateway.metric(retrieved).await - before, 2 * 270 + 100);
    assert!(read < most, "{read} blocks were read, over {most}: a client that does not read does not stop the reader");
    gateway.assert_metric(&downloads, 1).await;
    drop(unread);
    gateway.until_metric(&downloads, |active| active == 0).await;
    let at_the_end = gateway.metric(retrieved).await - before;
    assert!(at_the_end < most, "{at_the_end} blocks were read");
    let cancelled =
        "ipfrs_grpc_requests_total{code=\"CANCELLED\",method=\"GetFile\",service=\"ipfrs.file.v1.FileService\"}";
    gateway.until_metric(cancelled, |calls| calls == 1).await;
}

#[tokio::test]
async fn get_file_errors_state_the_reason() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1", &[("d/a.txt", "a")]).await;
    let node = gateway.put_block("cid-codec=dag-cbor", b"\xa1\x61a\x01".to_vec()).await;
    for (path, code, reason, field) in [
        (root.clone(), Code::InvalidArgument, "INVALID_INPUT", Some("path")),
        (format!("/ipfs/{root}/none"), Code::NotFound, "NOT_FOUND", None),
        (ABSENT.to_owned(), Code::NotFound, "NOT_FOUND", None),
        (node, Code::Unimplemented, "UNSUPPORTED", None),
        ("what".to_owned(), Code::InvalidArgument, "INVALID_INPUT", Some("path")),
        (String::new(), Code::InvalidArgument, "INVALID_INPUT", Some("path")),
    ] {
        let refused = read(&gateway, get(&path, 0, None)).await.expect_err(&path);
        assert_failed(&refused, code, reason, field);
    }
    // An error in the middle fails the call.
    let (file, options) = (content::bytes(400_000), "cid-version=1&chunker=size-100000&pin=false");
    let cid = gateway.add(options, file.clone()).await;
    let leaf = gateway.add(options, file.slice(300_000..)).await;
    assert_eq!(gateway.rpc(&format!("block/rm?arg={leaf}")).send().await.unwrap().status(), 200);
    let refused = read(&gateway, get(&cid, 0, None)).await.unwrap_err();
    assert_failed(&refused, Code::NotFound, "NOT_FOUND", None);
    assert_eq!(refused.get_details_resource_info().unwrap().resource_name, leaf);
    assert!(read(&gateway, get(&cid, 0, Some(300_000))).await.is_ok(), "what is there can be had");

    let repo = gateway.stop().await;
    std::fs::write(repo.path().join("some.deny"), format!("/ipfs/{cid}\n")).unwrap();
    let gateway = TestGateway::start_on(repo, |config| config.gateway.denylists = vec!["some.deny".into()]).await;
    let refused = read(&gateway, get(&cid, 0, None)).await.unwrap_err();
    assert_failed(&refused, Code::PermissionDenied, "GONE", None);
}

#[tokio::test]
async fn get_file_info_describes_files_and_directories() {
    let gateway = TestGateway::start().await;
    let info = async |path: String| {
        file_client(&gateway).get_file_info(GetFileInfoRequest { path }).await.map(tonic::Response::into_inner)
    };
    let form = Form::new().file("d/a.txt", "hello").symlink("d/link", "a.txt");
    let root = crate::harness::hash_of(gateway.add_form("cid-version=1", form).await.last().unwrap());
    let directory = info(root.clone()).await.unwrap();
    let kinds = (directory.r#type(), directory.size, directory.links, directory.cid == root);
    assert_eq!(kinds, (FileType::Directory, 0, 2, true));
    let leaf = info(format!("{root}/a.txt")).await.unwrap();
    for uri in [format!("ipfs://{root}/a.txt"), format!("ipfs:{root}/a.txt"), format!("IPFS:/{root}/a.txt")] {
        assert_eq!(info(uri).await.unwrap(), leaf);
    }
    assert_eq!((leaf.r#type(), leaf.size, leaf.dag_size, leaf.links), (FileType::File, 5, 5, 0));
    let link = info(format!("{root}/link")).await.unwrap();
    assert_eq!((link.r#type(), link.size, link.mtime), (FileType::Symlink, 0, None));
    let file = gateway.add("mode=0640&mtime=1700000000", content::bytes(600_000)).await;
    let file = info(format!("/ipfs/{file}")).await.unwrap();
    assert_eq!((file.r#type(), file.size, file.links), (FileType::File, 600_000, 3));
    assert_eq!((file.mode, file.mtime), (Some(0o640), Some(1_700_000_000)));
    assert!(file.dag_size > 600_000 && file.dag_size < 601_000, "{file:?}");
    assert_failed(&info(ABSENT.to_owned()).await.unwrap_err(), Code::NotFound, "NOT_FOUND", None);
}

#[tokio::test]
async fn pins_are_made_and_removed() {
    let gateway = TestGateway::start().await;
    let root = gateway.add_tree("cid-version=1&pin=false", &[("d/in/a.txt", "a"), ("d/in/b.txt", "b")]).await;
    let mut client = file_client(&gateway);
    let path = format!("/ipfs/{root}/in");
    let pin = |direct, name: &str| PinFileRequest { path: path.clone(), direct, name: name.to_owned() };
    let unpin = || UnpinFileRequest { path: path.clone() };
    let kinds = async || {
        let pins = gateway.rpc_json("pin/ls?names=true").await;
        let pins = pins["Keys"].as_object().unwrap().values();
        let mut kinds: Vec<_> = pins.map(|pin| format!("{}{}", pin["Type"], pin["Name"])).collect();
        kinds.sort();
        kinds
    };
    let pinned = client.pin_file(pin(true, "mine")).await.unwrap().into_inner().cid;
    assert_eq!(kinds().await, ["\"direct\"\"mine\""]);
    assert_eq!(client.unpin_file(unpin()).await.unwrap().into_inner().cid, pinned);
    client.pin_file(pin(false, "all")).await.unwrap();
    assert_eq!(kinds().await, ["\"indirect\"\"\"", "\"indirect\"\"\"", "\"recursive\"\"all\""]);
    let refused = client.pin_file(pin(true, "")).await.unwrap_err();
    assert_failed(&refused, Code::FailedPrecondition, "CONFLICT", None);
    client.unpin_file(unpin()).await.unwrap();
    assert_failed(&client.unpin_file(unpin()).await.unwrap_err(), Code::NotFound, "NOT_FOUND", None);
    let absent = PinFileRequest { path: ABSENT.to_owned(), ..PinFileRequest::default() };
    assert_failed(&client.pin_file(absent).await.unwrap_err(), Code::NotFound, "NOT_FOUND", None);
    assert!(!is_pinned(&gateway).await);
}

#[tokio::test]
async fn malformed_unixfs_is_a_failed_precondition_of_each_method() {
    let gateway = TestGateway::start().await;
    let mut dag = Dag::default();
    let data = Data { kind: FILE, filesize: Some(5), ..Data::default() };
    let path = dag.node(std::iter::empty::<(&str, Cid)>(), &data).to_string();
    dag.import(&gateway).await;
    let mut client = file_client(&gateway);
    let info = client.get_file_info(GetFileInfoRequest { path: path.clone() }).await.unwrap_err();
    assert_failed(&info, Code::FailedPrecondition, "INVALID_CONTENT", None);
    let file = client.get_file(GetFileRequest { path, ..Default::default() }).await;
    let refused = match file {
        Ok(stream) => stream.into_inner().message().await.unwrap_err(),
        Err(status) => status,
    };
    assert_failed(&refused, Code::FailedPrecondition, "INVALID_CONTENT", None);
}
