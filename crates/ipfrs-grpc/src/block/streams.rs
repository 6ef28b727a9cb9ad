//! Bidirectional and client streams of blocks: batch puts, and operations of all kinds.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use futures::stream::{FuturesOrdered, FuturesUnordered, Stream, StreamExt, TryStreamExt};
use futures::{future, stream};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::{Lifecycle, RequestMemory};
use ipfrs_node::Node;
use ipfrs_proto::block::v1::put_result::Result as PutOutcome;
use ipfrs_proto::block::v1::stream_blocks_request::Operation;
use ipfrs_proto::block::v1::stream_blocks_response::Result as Answer;
use ipfrs_proto::block::v1::{
    BatchPutBlocksRequest, BatchPutBlocksResponse, PutBlockRequest, PutResult, StreamBlocksRequest,
    StreamBlocksResponse,
};
use prost::Message;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};
use tonic::{Status, Streaming};

use super::pipeline::{Pipeline, Waiting, detached};
use super::{get, has, put};
use crate::audit_target::AuditTarget;
use crate::error::{self, Fault};
use crate::inbound::{Inbound, paused};

/// Maximum number of blocks in one stream of puts. Its response then stays below 4 MiB, the usual limit of clients.
const MAX_STREAMED_BLOCKS: usize = 50_000;
/// Maximum size of that response, in bytes. It stays in memory until the end, and errors are larger than CIDs.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Stores the blocks of a stream, several at a time, and returns the results in order. `memory` is reserved for blocks
/// that wait. `audited` gets the content IDs.
pub(super) async fn put_all(
    node: &Node,
    memory: RequestMemory,
    blocks: Inbound<BatchPutBlocksRequest>,
    audited: &AuditTarget,
) -> Result<BatchPutBlocksResponse, Status> {
    let requests = stream::try_unfold((blocks, 0_usize), |(mut blocks, count)| async move {
        let Some(mut message) = blocks.next().await? else { return Ok(None) };
        if count == MAX_STREAMED_BLOCKS {
            let why = format!("more than {MAX_STREAMED_BLOCKS} blocks in one stream: send several");
            return Err(error::status(Error::too_large(why)));
        }
        message.data = detached(message.data);
        let (bytes, block_bytes) = (message.encoded_len(), message.data.len());
        Ok(Some((Waiting { message, bytes, block_bytes }, (blocks, count + 1))))
    });
    let put_one = |BatchPutBlocksRequest { data, options, cid }, permit: OwnedSemaphorePermit| {
        let node = node.clone();
        async move {
            let requested_cid = cid.clone();
            let outcome = put(&node, PutBlockRequest { data, options, cid }).await;
            drop(permit);
            outcome.map_err(|fault| fault.of_block(requested_cid))
        }
    };
    let (mut response, mut bytes) = (BatchPutBlocksResponse::default(), 0);
    let mut outcomes = Pipeline::new(requests.boxed(), memory, FuturesOrdered::new(), put_one);
    while let Some(outcome) = outcomes.try_next().await? {
        let result = match outcome {
            Ok(block) => {
                audited.note_block(&block.cid);
                response.stored += 1;
                response.stored_bytes += block.size;
                PutOutcome::Block(block)
            }
            Err(error) => PutOutcome::Error(error),
        };
        let result = PutResult { result: Some(result) };
        bytes += result.encoded_len();
        if bytes > MAX_ANSWER_BYTES {
            let why = format!("the results of these blocks exceed {MAX_ANSWER_BYTES} bytes: send several streams");
            return Err(error::status(Error::too_large(why)));
        }
        response.results.push(result);
    }
    Ok(response)
}

/// Performs the operations of a stream, several at a time, and sends each result as soon as it is available. When the
/// daemon drains, no further operations are accepted. The stream fails if the client pauses for longer than `idle`
/// while no operation is running. `memory` is reserved for operations that wait. `audited` gets the content IDs of
/// stored blocks.
pub(super) fn responses(
    node: &Node,
    memory: RequestMemory,
    lifecycle: &Lifecycle,
    idle: Duration,
    requests: Streaming<StreamBlocksRequest>,
    audited: AuditTarget,
) -> impl Stream<Item = Result<StreamBlocksResponse, Status>> + Send + use<> {
    let (node, running) = (node.clone(), UnderWay::default());
    let [until, dropping, draining] = [(); 3].map(|()| lifecycle.clone());
    let requests = requests.map_err(error::clarified).take_until(async move { until.drain_begun().await });
    let requests = until_idle(requests, idle, running.clone()).map_ok(move |mut request| {
        let mut block_bytes = 0;
        if let Some(Operation::Put(put)) = &mut request.operation {
            put.data = detached(std::mem::take(&mut put.data));
            block_bytes = put.data.len();
        }
        let bytes = request.encoded_len();
        Waiting { message: (request, running.clone()), bytes, block_bytes }
    });
    let perform = move |(request, running_operation): (StreamBlocksRequest, UnderWay), permit: OwnedSemaphorePermit| {
        let (node, audited, StreamBlocksRequest { id, operation }) = (node.clone(), audited.clone(), request);
        async move {
            let result = response(&node, operation).await;
            if let Answer::Put(stored) = &result {
                audited.note_block(&stored.cid);
            }
            let result = Some(result);
            drop((permit, running_operation));
            StreamBlocksResponse { id, result }
        }
    };
    let operations = Pipeline::new(requests.boxed(), memory, FuturesUnordered::new(), perform).until_drain(dropping);
    let ended = future::lazy(move |_| draining.is_draining().then(stopping));
    operations.chain(stream::once(ended).filter_map(future::ready).map(Err))
}

/// Reference count of operations that run or wait: one clone for each, and two for the stream itself.
type UnderWay = Arc<()>;

/// Returns the same requests, followed by an error after a pause longer than `idle`. Time in which an operation is
/// running does not count as a pause.
fn until_idle<T>(
    requests: impl Stream<Item = Result<T, Status>> + Send,
    idle: Duration,
    running: UnderWay,
) -> impl Stream<Item = Result<T, Status>> + Send {
    let (mut requests, mut timer) = (Box::pin(requests), None::<Pin<Box<Sleep>>>);
    stream::poll_fn(move |cx| {
        let polled = requests.as_mut().poll_next(cx);
        if polled.is_ready() || Arc::strong_count(&running) > 2 {
            timer = None;
            return polled;
        }
        ready!(timer.get_or_insert_with(|| Box::pin(sleep(idle))).as_mut().poll(cx));
        timer = None;
        Poll::Ready(Some(Err(paused(idle))))
    })
}

async fn response(node: &Node, operation: Option<Operation>) -> Answer {
    match operation {
        Some(Operation::Get(request)) => {
            let requested_cid = request.cid.clone();
            get(node, request).await.map_or_else(|fault| Answer::Error(fault.of_block(requested_cid)), Answer::Block)
        }
        Some(Operation::Put(request)) => {
            let requested_cid = request.cid.clone();
            put(node, request).await.map_or_else(|fault| Answer::Error(fault.of_block(requested_cid)), Answer::Put)
        }
        Some(Operation::Has(request)) => {
            let requested_cid = request.cid.clone();
            has(node, request).await.map_or_else(|fault| Answer::Error(fault.of_block(requested_cid)), Answer::Has)
        }
        None => {
            let fault = Fault::from(Error::invalid("the message has no operation: set get, put or has"));
            Answer::Error(fault.of_block(String::new()))
        }
    }
}

fn stopping() -> Status {
    let why = "the daemon is stopping: retry the operations that have no result yet";
    error::status(Error::new(ErrorKind::Unavailable, why))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tonic::Code;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn idle_stream_without_operations_times_out() {
        let idle = Duration::from_secs(60);
        let running = UnderWay::default();
        let operation = running.clone();
        let (_kept, beginning) = (running.clone(), stream::iter([Ok::<_, Status>(1)]));
        let mut requests = Box::pin(until_idle(beginning.chain(stream::pending()), idle, running));
        assert_eq!(requests.next().await.unwrap().unwrap(), 1);
        tokio::time::timeout(100 * idle, requests.next()).await.unwrap_err();
        drop(operation);
        // As in a stream after the end of an operation, the next request is polled.
        let next = poll_fn(|cx| requests.as_mut().poll_next(cx)).await;
        assert_eq!(next.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
    }
}
