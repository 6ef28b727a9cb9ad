//! Verification of received blocks: their hashes are computed in batches on blocking threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use ipfrs_core::cores;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use ipfrs_core::{Block, Cid, Multihash};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::client::received::MessageMemory;
use crate::client::want_book::Delivery;
use crate::context::Context;
use crate::peer::Peer;
use crate::wire::Payload;

/// Blocks of up to this number of bytes in total are verified on the task that received them.
const INLINE_BYTES: usize = 8 * 1024;
/// Maximum number of blocks that are verified on that task.
const INLINE_BLOCKS: usize = 8;
/// Maximum number of messages in one batch.
const BATCH_MESSAGES: usize = 32;
/// Maximum number of batches at the same time.
const MAX_BATCHES: usize = 4;
/// Number of messages that wait for verification.
const QUEUE_MESSAGES: usize = 64;
/// Number of unrequested blocks that are ignored: an honest peer may send blocks that an earlier connection requested.
const TOLERATED_UNREQUESTED: usize = 8;
/// Number of unrequested blocks after which a peer is disconnected.
const MAX_UNREQUESTED: usize = 64;

/// Size of a message, divided by that of a block in it, above which the block is copied: a small block must not keep
/// the memory of a whole message.
const MAX_PINNED_RATIO: usize = 4;

/// The blocks of one message.
pub(crate) struct Received {
    pub peer: Arc<Peer>,
    pub blocks: Vec<Payload>,
    /// Size of the message, whose memory the blocks share.
    pub message_bytes: usize,
    /// Memory of the message: the share of the peer is released after the verification, and that of all peers when the
    /// blocks are stored or not wanted.
    pub permits: [OwnedSemaphorePermit; 2],
}

/// Verifies blocks and delivers them to the sessions that want them.
#[derive(Clone)]
pub(crate) struct Verifier {
    context: Arc<Context>,
    queue: mpsc::Sender<Received>,
}

impl Verifier {
    /// Starts the task that forms batches. It ends with the last clone of the verifier.
    pub(crate) fn start(context: Arc<Context>) -> Self {
        let (queue, received) = mpsc::channel(QUEUE_MESSAGES);
        tokio::spawn(form_batches(Arc::clone(&context), received));
        Self { context, queue }
    }

    /// Verifies the blocks of a message. Waits if too many messages wait already.
    pub(crate) async fn verify(&self, received: Received) {
        let bytes: usize = received.blocks.iter().map(|block| block.data.len()).sum();
        if bytes <= INLINE_BYTES && received.blocks.len() <= INLINE_BLOCKS {
            verify_batch(&self.context, vec![received]);
        } else {
            self.queue.send(received).await.ok();
        }
    }
}

async fn form_batches(context: Arc<Context>, mut received: mpsc::Receiver<Received>) {
    let threads = cores();
    let permits = Arc::new(Semaphore::new(threads.min(MAX_BATCHES)));
    // Messages that arrive while all permits are taken form the next batch.
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        let mut batch = Vec::new();
        if received.recv_many(&mut batch, BATCH_MESSAGES).await == 0 {
            return;
        }
        let context = Arc::clone(&context);
        tokio::task::spawn_blocking(move || {
            verify_batch(&context, batch);
            drop(permit);
        });
    }
}

fn verify_batch(context: &Context, mut batch: Vec<Received>) {
    batch.retain(|received| !received.peer.is_disconnecting());
    let payloads: Vec<&Payload> = batch.iter().flat_map(|received| &received.blocks).collect();
    let mut cids = cids(&payloads).into_iter();
    for received in batch {
        let Received { peer, blocks, message_bytes, permits } = received;
        let [share, permit] = permits;
        drop(share);
        let memory = MessageMemory::new(permit);
        let cids: Vec<Option<Cid>> = cids.by_ref().take(blocks.len()).collect();
        for (mut payload, cid) in blocks.into_iter().zip(cids) {
            if payload.data.len() * MAX_PINNED_RATIO < message_bytes {
                payload.data = Bytes::copy_from_slice(&payload.data);
            }
            deliver(context, &peer, payload, cid, &memory);
            if peer.is_disconnecting() {
                break;
            }
        }
    }
}

/// Computes the content IDs of blocks, or `None` for blocks that this node cannot have requested.
fn cids(payloads: &[&Payload]) -> Vec<Option<Cid>> {
    let function = |payload: &Payload| {
        let function = payload.prefix.hash_function()?;
        (payload.data.len() <= MAX_BIG_BLOCK_BYTES).then_some(function)
    };
    let is_default = |payload: &&&Payload| function(payload) == Some(HashFunction::Sha2_256);
    let messages: Vec<&[u8]> = payloads.iter().filter(is_default).map(|payload| payload.data.as_ref()).collect();
    let mut digests = HashFunction::Sha2_256.digests(&messages).unwrap_or_default().into_iter();
    let mut digest = |payload: &Payload| -> Option<Multihash> {
        match function(payload)? {
            HashFunction::Sha2_256 => digests.next(),
            other => other.truncated_digest(&payload.data, payload.prefix.digest_bytes()).ok(),
        }
    };
    payloads.iter().map(|payload| digest(payload).and_then(|digest| payload.prefix.cid(digest))).collect()
}

fn deliver(context: &Context, peer: &Peer, payload: Payload, cid: Option<Cid>, memory: &MessageMemory) {
    let metrics = &context.metrics;
    let bytes = payload.data.len();
    metrics.blocks.received.inc();
    metrics.block_bytes.received.inc_by(bytes as u64);
    peer.exchange.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    peer.exchange.blocks.fetch_add(1, Ordering::Relaxed);
    let delivery = match cid {
        Some(cid) => peer.wants.lock().deliver(&Block::trusted(cid, payload.data), memory),
        None => Delivery::Unrequested,
    };
    match delivery {
        Delivery::Wanted => {}
        Delivery::Late => {
            metrics.unneeded_blocks.inc();
            metrics.unneeded_bytes.inc_by(bytes as u64);
        }
        Delivery::Unrequested => {
            metrics.unrequested_blocks.inc();
            let count = peer.unrequested_blocks.fetch_add(1, Ordering::Relaxed) + 1;
            if count > TOLERATED_UNREQUESTED {
                peer.wants.lock().invalid(bytes);
            }
            if count > MAX_UNREQUESTED {
                context.disconnect(peer, "it sends blocks that were not requested");
            }
        }
    }
}
