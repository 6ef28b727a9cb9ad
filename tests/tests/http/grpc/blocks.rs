//! `ipfrs.block.v1.BlockService`.

use std::collections::HashSet;
use std::convert::Infallible;

use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt};
use ipfrs_proto::block::v1::batch_get_blocks_response::Result as Got;
use ipfrs_proto::block::v1::put_result::Result as PutOutcome;
use ipfrs_proto::block::v1::stream_blocks_request::Operation;
use ipfrs_proto::block::v1::stream_blocks_response::Result as Answer;
use ipfrs_proto::block::v1::{
    BatchGetBlocksRequest, BatchPutBlocksRequest, BatchPutBlocksResponse, DeleteBlockRequest, GetBlockRequest,
    HasBlockRequest, PutBlockRequest, PutOptions, StreamBlocksRequest, StreamBlocksResponse,
};
use prost::Message;
use reqwest::Body;
use tokio::sync::{mpsc, watch};
use tonic::{Code, Status};

use super::{ABSENT, assert_failed, block_client, raw, stored, with_options};
use crate::harness::{TestGateway, client};
use crate::withholding::Withholding;

fn get(cid: &str) -> GetBlockRequest {
    GetBlockRequest { cid: cid.to_owned() }
}

#[tokio::test]
async fn put_block_is_visible_to_all_front_ends_until_deleted() {
    let gateway = TestGateway::start().await;
    let mut client = block_client(&gateway);
    let put = client.put_block(raw("hello")).await.unwrap().into_inner();
    assert_eq!((put.cid.as_str(), put.size), ("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq", 5));
    assert_eq!(gateway.content(&format!("/ipfs/{}?format=raw", put.cid)).await, "hello");
    let block = client.get_block(get(&put.cid)).await.unwrap().into_inner().block.unwrap();
    assert_eq!((block.cid.as_str(), &block.data[..]), (put.cid.as_str(), &b"hello"[..]));
    let has = |cid: &str| HasBlockRequest { cid: cid.to_owned() };
    let found = client.has_block(has(&put.cid)).await.unwrap().into_inner();
    assert_eq!((found.exists, found.size), (true, Some(5)));
    let delete = || DeleteBlockRequest { cid: put.cid.clone() };
    assert!(client.delete_block(delete()).await.unwrap().into_inner().deleted);
    assert!(!client.delete_block(delete()).await.unwrap().into_inner().deleted);
    let found = client.has_block(has(&put.cid)).await.unwrap().into_inner();
    assert_eq!((found.exists, found.size), (false, None));
}

#[tokio::test]
async fn put_options_determine_the_content_id() {
    let gateway = TestGateway::start().await;
    let mut client = block_client(&gateway);
    for (request, prefix) in [
        (with_options(raw("a"), |options| options.codec = "dag-cbor".into()), "bafyrei"),
        (with_options(raw("a"), |options| options.hash = "blake3".into()), "bafkr4i"),
        (with_options(raw([0x0a, 0]), |options| options.cid_version = Some(0)), "Qm"),
        (
            PutBlockRequest {
                cid: "bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq".into(),
                ..raw("hello")
            },
            "bafkreibm",
        ),
    ] {
        let put = client.put_block(request).await.unwrap().into_inner();
        assert!(put.cid.starts_with(prefix), "{}", put.cid);
    }
    for (request, field) in [
        (with_options(raw("a"), |options| options.codec = "what".into()), Some("options.codec")),
        (with_options(raw("a"), |options| options.cid_version = Some(2)), Some("options.cid_version")),
        (PutBlockRequest { cid: "what".into(), ..raw("a") }, Some("cid")),
        (
            PutBlockRequest { cid: ABSENT.into(), ..with_options(raw("a"), |options| options.codec = "dag-pb".into()) },
            Some("options"),
        ),
        // A content ID that does not match its data is not the fault of a single field.
        (PutBlockRequest { cid: ABSENT.into(), ..raw("a") }, None),
    ] {
        let refused = client.put_block(request).await.unwrap_err();
        assert_failed(&refused, Code::InvalidArgument, "INVALID_INPUT", field);
    }
    let refused = client.put_block(with_options(raw("a"), |options| options.hash = "what".into())).await.unwrap_err();
    assert_failed(&refused, Code::Unimplemented, "UNSUPPORTED", Some("options.hash"));
    assert_eq!(gateway.blocks().await, 4);
}

#[tokio::test]
async fn delete_block_keeps_a_pinned_block() {
    let gateway = TestGateway::start().await;
    let mut client = block_client(&gateway);
    let put = client.put_block(with_options(raw("kept"), |options| options.pin = true)).await.unwrap().into_inner();
    let refused = client.delete_block(DeleteBlockRequest { cid: put.cid.clone() }).await.unwrap_err();
    assert_failed(&refused, Code::FailedPrecondition, "CONFLICT", None);
    assert!(refused.message().contains(&put.cid), "{refused}");
}

#[tokio::test]
async fn grpc_refuses_denylisted_block() {
    let gateway = TestGateway::start().await;
    let cid = stored(&gateway, "blocked").await;
    let repo = gateway.stop().await;
    std::fs::write(repo.path().join("list.deny"), format!("/ipfs/{cid}\n")).unwrap();
    let gateway = TestGateway::start_on(repo, |config| config.gateway.denylists = vec!["list.deny".into()]).await;
    let mut client = block_client(&gateway);
    let refused = client.get_block(get(&cid)).await.unwrap_err();
    assert_failed(&refused, Code::PermissionDenied, "GONE", None);
    let refused = client.has_block(HasBlockRequest { cid: cid.clone() }).await.unwrap_err();
    assert_failed(&refused, Code::PermissionDenied, "GONE", None);
    let mut answers = client.batch_get_blocks(BatchGetBlocksRequest { cids: vec![cid] }).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap().result.unwrap();
    assert!(matches!(&answer, Got::Error(error) if error.code == Code::PermissionDenied as i32), "{answer:?}");
}

#[tokio::test]
async fn grpc_batch_keeps_order_and_reports_errors_per_item() {
    let gateway = TestGateway::start().await;
    let (first, second) = (stored(&gateway, "first").await, stored(&gateway, "second").await);
    let cids = [&second, ABSENT, "what", &first, &second].map(str::to_owned).to_vec();
    let mut client = block_client(&gateway);
    let mut answers = client.batch_get_blocks(BatchGetBlocksRequest { cids: cids.clone() }).await.unwrap().into_inner();
    let mut found = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        assert_eq!(answer.index as usize, found.len());
        found.push(match answer.result.unwrap() {
            Got::Block(block) => (block.cid, Ok(block.data)),
            Got::Error(error) => (error.cid, Err(Code::from_i32(error.code))),
        });
    }
    let outcomes = [Ok("second"), Err(Code::NotFound), Err(Code::InvalidArgument), Ok("first"), Ok("second")];
    let expected = cids.into_iter().zip(outcomes.map(|outcome| outcome.map(Into::into)));
    assert_eq!(found, expected.collect::<Vec<_>>());

    let most = ipfrs_interface::Config::default().batch.max_batch_size;
    let too_many = BatchGetBlocksRequest { cids: vec![first; most + 1] };
    let refused = client.batch_get_blocks(too_many).await.unwrap_err();
    assert_failed(&refused, Code::ResourceExhausted, "TOO_LARGE", None);
    assert!(refused.message().contains("batch.max_batch_size"), "{refused}");
}

#[tokio::test]
async fn streamed_puts_are_durable_and_acknowledged_in_order() {
    let gateway = TestGateway::start().await;
    let mut requests: Vec<_> = (0_u32..1_200)
        .map(|number| BatchPutBlocksRequest { data: number.to_le_bytes().to_vec().into(), ..Default::default() })
        .collect();
    requests[7].cid = ABSENT.to_owned();
    requests[8].data = vec![0; 2 * 1024 * 1024 + 1].into();
    let answer = block_client(&gateway).batch_put_blocks(stream::iter(requests.clone())).await.unwrap().into_inner();
    assert_eq!((answer.stored, answer.stored_bytes, answer.results.len()), (1_198, 1_198 * 4, 1_200));
    // The repo was closed and opened again, so only blocks on disk remain.
    let gateway = TestGateway::start_on(gateway.stop().await, |_| {}).await;
    let mut client = block_client(&gateway);
    for (index, (request, outcome)) in requests.into_iter().zip(answer.results).enumerate() {
        match outcome.result.unwrap() {
            PutOutcome::Block(block) if index % 100 == 0 => {
                let stored = client.get_block(get(&block.cid)).await.unwrap().into_inner().block.unwrap();
                assert_eq!(stored.data, request.data);
            }
            PutOutcome::Block(_) => assert!(index != 7 && index != 8),
            PutOutcome::Error(error) if index == 7 => {
                assert_eq!((error.cid.as_str(), Code::from_i32(error.code)), (ABSENT, Code::InvalidArgument));
            }
            PutOutcome::Error(error) => {
                assert_eq!((index, Code::from_i32(error.code)), (8, Code::ResourceExhausted), "{}", error.message);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_of_tiny_blocks_behind_a_slow_one_keeps_its_connection() {
    const BLOCKS: u32 = 50_000;
    let store = Withholding::new();
    let gateway = TestGateway::start_over(store.clone(), |_| {}).await;
    // The results are in order, so no block behind the first one leaves the batch before it.
    store.withhold("bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq");
    // Each message in its own frame, as clients in Go send them.
    let (sender, messages) = futures::channel::mpsc::unbounded();
    let http2 = client().http2_prior_knowledge().build().unwrap();
    let url = format!("http://{}/ipfrs.block.v1.BlockService/BatchPutBlocks", gateway.grpc_address());
    let call = http2.post(url).header("content-type", "application/grpc").body(Body::wrap_stream(messages));
    let call = tokio::spawn(call.send());
    for number in 0..BLOCKS {
        let data = if number == 0 { b"hello".to_vec() } else { number.to_le_bytes()[..3].to_vec() };
        let message = framed(&BatchPutBlocksRequest { data: data.into(), ..Default::default() });
        sender.unbounded_send(Ok::<_, Infallible>(message)).unwrap();
        if number % 10_000 == 9_999 {
            // A busy server may be late with the reading, but must not stop it: all but a few hundred messages wait.
            let waiting = u64::from(number - 1_000) * 256;
            gateway.until_metric("ipfrs_request_memory_bytes", |bytes| bytes >= waiting).await;
        }
    }
    drop(sender);
    store.release();
    let bytes = call.await.unwrap().unwrap().bytes().await.unwrap();
    assert_eq!(BatchPutBlocksResponse::decode(bytes.slice(5..)).unwrap().stored, u64::from(BLOCKS));
}

#[tokio::test]
async fn results_of_streamed_puts_are_bounded() {
    let gateway = TestGateway::start().await;
    // Each result quotes the name, truncated. The results reach 8 MiB long before the maximum number of blocks in a
    // stream.
    let options = Some(PutOptions { codec: "x".repeat(2_000), ..PutOptions::default() });
    let wrong = BatchPutBlocksRequest { options, ..Default::default() };
    let refused = block_client(&gateway).batch_put_blocks(stream::iter(vec![wrong.clone(); 9_000])).await.unwrap_err();
    assert_failed(&refused, Code::ResourceExhausted, "TOO_LARGE", None);
    assert!(refused.message().contains("send several streams"), "{refused}");
    let answer = block_client(&gateway).batch_put_blocks(stream::iter(vec![wrong; 7_000])).await;
    assert_eq!(answer.err().map(|status| status.code()), Some(Code::OutOfRange), "over what a client takes by default");
}

#[tokio::test]
async fn aborted_stream_of_puts_acknowledges_nothing() {
    let gateway = TestGateway::start_with(|config| config.gateway.upload_idle_seconds = 1).await;
    let (sender, receiver) = mpsc::channel(1);
    let first = BatchPutBlocksRequest { data: b"first".to_vec().into(), ..Default::default() };
    sender.send(first).await.unwrap();
    // The client pauses with the stream open.
    let refused = block_client(&gateway).batch_put_blocks(received(receiver)).await.unwrap_err();
    assert_failed(&refused, Code::DeadlineExceeded, "TIMEOUT", None);
    assert!(refused.message().contains("gateway.upload_idle_seconds"), "{refused}");
    drop(sender);
}

/// Returns the items of a channel as a stream.
pub(super) fn received<T: Send + 'static>(
    receiver: mpsc::Receiver<T>,
) -> impl stream::Stream<Item = T> + Send + 'static {
    stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) })
}

#[tokio::test]
async fn stream_operations_complete_out_of_order_by_id() {
    let gateway = TestGateway::start().await;
    let cid = stored(&gateway, "there").await;
    let (sender, receiver) = mpsc::channel(16);
    let mut answers = block_client(&gateway).stream_blocks(received(receiver)).await.unwrap().into_inner();
    // A put waits for the disk; the operations after it do not wait for the put.
    let operations = [
        Some(Operation::Put(raw(vec![1; 1024 * 1024]))),
        Some(Operation::Get(get(&cid))),
        Some(Operation::Has(HasBlockRequest { cid: ABSENT.to_owned() })),
        Some(Operation::Get(get(ABSENT))),
        Some(Operation::Put(with_options(raw("a"), |options| options.codec = "what".into()))),
        None,
    ];
    for (id, operation) in (10..).zip(operations) {
        sender.send(StreamBlocksRequest { id, operation }).await.unwrap();
    }
    let mut order = Vec::new();
    for _ in 0..6 {
        let answer = answers.message().await.unwrap().unwrap();
        order.push(answer.id);
        match (answer.id, answer.result.unwrap()) {
            (10, Answer::Put(put)) => assert_eq!(put.size, 1024 * 1024),
            (11, Answer::Block(block)) => {
                assert_eq!((block.cid.as_str(), &block.data[..]), (cid.as_str(), &b"there"[..]))
            }
            (12, Answer::Has(has)) => assert!(!has.exists),
            (13, Answer::Error(error)) => assert_eq!((error.cid.as_str(), error.code), (ABSENT, Code::NotFound as i32)),
            (14 | 15, Answer::Error(error)) => assert_eq!(error.code, Code::InvalidArgument as i32),
            (id, other) => panic!("{id} is answered with {other:?}"),
        }
    }
    assert_eq!(order.iter().copied().collect::<HashSet<_>>().len(), 6);
    assert_ne!(order[0], 10, "the first answer waited for the disk: {order:?}");
    // The stream continues after errors, and ends when its client has finished its requests.
    sender.send(StreamBlocksRequest { id: 16, operation: Some(Operation::Get(get(&cid))) }).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().id, 16);
    drop(sender);
    assert!(answers.message().await.unwrap().is_none());
}

#[tokio::test]
async fn stream_blocks_stops_reading_for_a_stalled_client() {
    let gateway = TestGateway::start().await;
    let cid = stored(&gateway, vec![7; 1024 * 1024]).await;
    let retrieved = "ipfrs_blocks_retrieved_total";
    let asked = BatchGetBlocksRequest { cids: vec![cid.clone(); 1_000] };
    let mut answers = block_client(&gateway).batch_get_blocks(asked).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    // Meanwhile, the gateway serves other clients, for a multiple of the time that reading all blocks would take.
    let mut other = block_client(&gateway);
    for _ in 0..100 {
        other.get_block(get(&stored(&gateway, "small").await)).await.unwrap();
    }
    let read = gateway.metric(retrieved).await;
    assert!(read < 200, "{read} blocks of 1 MiB were read for a client that took one");
    let mut taken = 1;
    while taken < 1_000 {
        taken += usize::from(answers.message().await.unwrap().is_some());
    }
}

/// Returns a message with its prefix.
fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::from(&[0; 5][..]);
    message.encode(&mut frame).unwrap();
    let length = u32::try_from(frame.len() - 5).unwrap();
    frame[1..5].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

#[tokio::test]
async fn stalled_client_that_sends_requests_keeps_its_connection() {
    const ASKED: usize = 40_000;
    let gateway = TestGateway::start().await;
    let operation = Operation::Has(HasBlockRequest { cid: "malformed".to_owned() });
    let (asked, mut has_asked) = watch::channel(0);
    // Each message in its own frame, as clients send single messages.
    let messages = stream::iter(0..ASKED).map(move |id| {
        asked.send_replace(id);
        Ok::<_, Infallible>(framed(&StreamBlocksRequest { id: id as u64, operation: Some(operation.clone()) }))
    });
    let http2 = client().http2_prior_knowledge().http2_initial_stream_window_size(16 * 1024).build().unwrap();
    let url = format!("http://{}/ipfrs.block.v1.BlockService/StreamBlocks", gateway.grpc_address());
    let call = http2.post(url).header("content-type", "application/grpc").body(Body::wrap_stream(messages));
    let response = call.send().await.unwrap();
    // Maximum number of requests that one stream may send ahead.
    has_asked.wait_for(|id| *id >= 24_000).await.unwrap();
    let mut bytes = response.bytes().await.unwrap();
    let mut answered = HashSet::new();
    while !bytes.is_empty() {
        let length = u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize;
        answered.insert(StreamBlocksResponse::decode(bytes.split_to(5 + length).slice(5..)).unwrap().id);
    }
    assert_eq!(answered.len(), ASKED);
}

#[tokio::test]
async fn grpc_limit_error_names_the_limit() {
    let gateway = TestGateway::start().await;
    let mut client = block_client(&gateway);
    for size in [2 * 1024 * 1024 + 1, 3 * 1024 * 1024] {
        let refused: Status = client.put_block(raw(vec![0; size])).await.unwrap_err();
        assert_failed(&refused, Code::ResourceExhausted, "TOO_LARGE", None);
    }
    let largest = client.put_block(raw(vec![0; 2 * 1024 * 1024])).await.unwrap().into_inner();
    assert_eq!(
        client.get_block(get(&largest.cid)).await.unwrap().into_inner().block.unwrap().data.len(),
        2 * 1024 * 1024
    );
}
