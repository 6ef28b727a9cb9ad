//! Streams of CARs from one source after the other, until one has delivered everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use ipfrs_core::{Block, Error, ErrorKind, Result};
use ipfrs_stream::car::{CarLimits, CarReader};
use reqwest::Response;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::attempt::Outcome;
use crate::expected::{Expected, Relation};
use crate::http::{Failure, because, excludes_repeats, request_car};
use crate::metrics::ReceivedBytes;
use crate::race::race;
use crate::running_attempt::{Blame, RunningAttempt};
use crate::session::Session;
use crate::shared::BATCH_BYTES;
use crate::source::Source;
use crate::want::Want;

/// Maximum length of the header of a CAR, in bytes.
const MAX_HEADER_BYTES: u64 = 64 * 1024;
/// Time without a complete block after which the speed of a source is examined.
const STALL: Duration = Duration::from_secs(5);
/// Least bytes that a source sends in that time, and most times that it may send no complete block.
const MIN_STALL_BYTES: u64 = 16 * 1024;
const MAX_STALLS: u32 = 6;
/// Bytes of repeated blocks that a source may send.
const MAX_REPEATED_BYTES: u64 = 16 << 20;
/// Maximum number of blocks that are stored together.
const BATCH_BLOCKS: usize = 1_024;
/// Time without progress after which a request no longer relies on a stream.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes that may pass before the block that a request waits for.
const MAX_PASSED_BYTES: u64 = 64 << 20;

/// A part of a DAG that is being received. Dropping it ends the transfer.
#[derive(Debug)]
pub(crate) struct CarStream {
    /// Bytes of delivered blocks. Closed at the end.
    delivered: watch::Receiver<u64>,
    is_over_budget: Arc<AtomicBool>,
    task: AbortHandle,
}

impl CarStream {
    pub(crate) fn begin(session: Arc<Session>, want: Want) -> Arc<Self> {
        let (sender, delivered) = watch::channel(0);
        let is_over_budget = Arc::new(AtomicBool::new(false));
        let budget = Budget { bytes: AtomicU64::new(0), is_exceeded: Arc::clone(&is_over_budget) };
        let task = tokio::spawn(async move {
            deliver(&session, &want, &sender, &budget).await;
            session.end_stream(&want);
        });
        Arc::new(Self { delivered, is_over_budget, task: task.abort_handle() })
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.delivered.has_changed().is_err()
    }

    /// Whether the stream ended because a request may not receive more.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.is_over_budget.load(Ordering::Relaxed)
    }

    /// Waits until the stream has ended, makes no progress, or has passed so much that a block which has not arrived is
    /// probably not a part of it soon.
    pub(crate) async fn until_stalled(&self) {
        let mut delivered = self.delivered.clone();
        let first = *delivered.borrow_and_update();
        while let Ok(Ok(())) = timeout(PATIENCE, delivered.changed()).await {
            if *delivered.borrow_and_update() - first > MAX_PASSED_BYTES {
                return;
            }
        }
    }

    /// Waits until the stream has ended.
    pub(crate) async fn until_end(&self) {
        let mut delivered = self.delivered.clone();
        while delivered.changed().await.is_ok() {}
    }
}

impl Drop for CarStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Bytes that one stream has received from all of its sources.
struct Budget {
    bytes: AtomicU64,
    is_exceeded: Arc<AtomicBool>,
}

/// Receives the part from the best source, and from the next one if it does not deliver everything.
async fn deliver(session: &Arc<Session>, want: &Want, delivered: &watch::Sender<u64>, budget: &Budget) {
    let mut tried = Vec::new();
    let usable = |source: &Source| !source.lacks_car();
    loop {
        let open = |source: Arc<Source>| async move {
            let mut running = RunningAttempt::begin(&session.retrieval, &session.trace, &source, want.to_string());
            let _permit = source.requests.take(session.client()).await;
            let retrieval = &session.retrieval;
            let via = retrieval.via(&want.via);
            let opened = request_car(&source, &want.car_target(), &via, retrieval.is_restricted).await;
            match opened {
                Ok(response) => {
                    running.first_byte = Some(tokio::time::Instant::now());
                    Some((response, running))
                }
                Err(failure) => {
                    running.end(Err(&failure));
                    None
                }
            }
        };
        let Some((response, mut running)) = race(session, &mut tried, usable, open).await else { return };
        let received = receive(session, want, response, &mut running, delivered, budget).await;
        let is_over_budget = budget.is_exceeded.load(Ordering::Relaxed);
        match &received {
            Ok(()) => running.note_car(),
            Err(_) if is_over_budget => running.blame = Blame::Nothing,
            Err(failure) if failure.outcome == Outcome::Failed => running.blame = Blame::Car,
            Err(_) => {}
        }
        running.end(received.as_ref().copied());
        if received.is_ok() || is_over_budget {
            return;
        }
    }
}

/// Blocks that a source has sent more than once.
struct Repeats {
    bytes: u64,
    /// Whether the source has stated that there are none.
    are_excluded: bool,
}

impl Repeats {
    /// Counts a block.
    fn add(&mut self, block: &Block) -> Result<(), Failure> {
        self.bytes += block.data().len() as u64;
        if self.bytes <= MAX_REPEATED_BYTES {
            return Ok(());
        }
        // A source may repeat what the DAG repeats, unless it says that it does not.
        let outcome = if self.are_excluded { Outcome::Invalid } else { Outcome::Unusable };
        Err(Failure::new(outcome, format!("it repeats more than {MAX_REPEATED_BYTES} bytes of blocks")))
    }
}

/// Expects the links of delivered blocks that are linked under another codec since then.
async fn expect_relinked(session: &Session, expected: &mut Expected) {
    while let Some(cid) = expected.take_relinked() {
        match session.delivered(&cid).await {
            // A block that is malformed under this codec has no links there.
            Some(data) => _ = expected.expect_below(&cid, &data).await,
            None => expected.note_unknown(),
        }
    }
}

/// Receives a CAR and delivers its blocks as they arrive.
async fn receive(
    session: &Arc<Session>,
    want: &Want,
    response: Response,
    running: &mut RunningAttempt,
    delivered: &watch::Sender<u64>,
    budget: &Budget,
) -> Result<(), Failure> {
    let limits = CarLimits { max_header: MAX_HEADER_BYTES, ..CarLimits::default() };
    let received = running.bytes.clone();
    let mut repeats = Repeats { bytes: 0, are_excluded: excludes_repeats(&response) };
    let pieces =
        response.bytes_stream().map(|piece| piece.map_err(|e| Error::new(ErrorKind::Unavailable, because(&e))));
    let counted = received.clone();
    let pieces = pieces.inspect(move |piece: &Result<Bytes>| {
        counted.add(piece.as_ref().map_or(0, Bytes::len) as u64);
    });
    let mut reader = CarReader::new(Box::pin(pieces), limits);
    let mut expected = Expected::new(&want.root);
    let mut before = 0;
    loop {
        expect_relinked(session, &mut expected).await;
        session.wait_for_readers().await;
        let place = session.retrieval.first_blocks.take(session.client()).await;
        let Some(first) = next(&mut reader, &received).await? else { break };
        // Without memory for more, the block is passed on alone.
        let more = session.retrieval.more_buffer(BATCH_BYTES);
        let most_blocks = if more.is_some() { BATCH_BLOCKS } else { 1 };
        let (mut batch, mut bytes, mut ended) = (Vec::new(), 0, Ok(true));
        let mut next_block = Some(Ok(first));
        while let Some(block) = next_block {
            match classify(block, &mut expected).await {
                Ok((block, Relation::New)) => {
                    bytes += block.data().len();
                    batch.push(block);
                }
                Ok((block, Relation::Repeated)) => ended = repeats.add(&block).map(|()| true),
                Ok(_) => {}
                Err(failure) => ended = Err(failure),
            }
            if ended.is_err() || bytes >= BATCH_BYTES || batch.len() >= most_blocks || expected.has_relinked() {
                break;
            }
            next_block = match reader.next().now_or_never() {
                Some(None) => {
                    ended = Ok(false);
                    None
                }
                Some(next) => next,
                None => None,
            };
        }
        running.blocks += batch.len() as u64;
        session.deliver(batch, true, (place, more));
        delivered.send_modify(|total| *total += bytes as u64);
        let total = received.sum();
        let spent = budget.bytes.fetch_add(total - before, Ordering::Relaxed) + (total - before);
        before = total;
        let limit = session.retrieval.max_bytes;
        if spent > limit {
            budget.is_exceeded.store(true, Ordering::Relaxed);
            let why = format!("more than {limit} bytes (retrieval.max_bytes_per_request)");
            return Err(Failure::new(Outcome::Failed, why));
        }
        if !ended? {
            break;
        }
    }
    match running.blocks {
        0 => Err(Failure { status: Some(200), ..Failure::new(Outcome::Absent, "its CAR has no blocks") }),
        _ => Ok(()),
    }
}

/// Returns the next block, if the source is fast enough.
async fn next(
    reader: &mut CarReader<impl Stream<Item = Result<Bytes>> + Unpin>,
    received: &ReceivedBytes,
) -> Result<Option<Block>, Failure> {
    for _ in 0..MAX_STALLS {
        let before = received.sum();
        tokio::select! {
            block = reader.next() => return block.transpose().map_err(failure),
            () = sleep(STALL) => {}
        }
        let progress = received.sum() - before;
        if progress < MIN_STALL_BYTES {
            let why = format!("it sent {progress} bytes in {} s", STALL.as_secs());
            return Err(Failure::new(Outcome::Slow, why));
        }
    }
    let why = format!("it sent no complete block in {} s", (STALL * MAX_STALLS).as_secs());
    Err(Failure::new(Outcome::Slow, why))
}

async fn classify(block: Result<Block>, expected: &mut Expected) -> Result<(Block, Relation), Failure> {
    let block = block.map_err(failure)?;
    let relation = expected.accept(&block).await;
    // The source is right: the block has its hash, and belongs to the content.
    match relation.map_err(|e| Failure::new(Outcome::Unusable, e.to_string()))? {
        relation @ (Relation::Foreign | Relation::Uncertain) => {
            let why = format!("it sent block {}, to which no block before it links", block.cid());
            let outcome = if relation == Relation::Foreign { Outcome::Invalid } else { Outcome::Unusable };
            Err(Failure::new(outcome, why))
        }
        relation => Ok((block, relation)),
    }
}

/// Returns the failure for an error of the reader.
fn failure(error: Error) -> Failure {
    let outcome = match error.kind() {
        _ if error.is_mismatch() => Outcome::Invalid,
        ErrorKind::TooLarge | ErrorKind::Unsupported => Outcome::Unusable,
        _ => Outcome::Failed,
    };
    Failure::new(outcome, error.to_string())
}

#[cfg(test)]
mod tests {
    use ipfrs_core::codec;
    use ipfrs_core::hash::HashFunction;

    use super::*;

    #[tokio::test]
    async fn a_source_is_not_to_blame_for_content_that_is_as_its_hash_says() {
        let block = |codec, data: &'static [u8]| {
            Block::hash(1, codec, HashFunction::Sha2_256, Bytes::from_static(data)).unwrap()
        };
        // A tag that dag-cbor does not have.
        let tagged = block(codec::DAG_CBOR, b"\xc1\x01");
        let mut expected = Expected::new(tagged.cid());
        let outcome = |classified: Result<(Block, Relation), Failure>| classified.err().map(|failure| failure.outcome);
        assert_eq!(outcome(classify(Ok(block(codec::RAW, b"x")), &mut expected).await), Some(Outcome::Invalid));
        assert_eq!(outcome(classify(Ok(tagged), &mut expected).await), Some(Outcome::Unusable));
        let large = Err(Error::too_large("a block over the limit"));
        assert_eq!(outcome(classify(large, &mut expected).await), Some(Outcome::Unusable));
    }
}
