//! Responses to the wants of one peer.
//!
//! One task per peer reads blocks and composes messages, and a few tasks send them. Permits to read a block are granted
//! in the order in which the tasks ask, so peers are served in turns. A peer that takes its messages slowly uses up its
//! own memory and then waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use libp2p::Stream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use super::wantlist::Task;
use crate::context::Context;
use crate::frame;
use crate::peer::{OpenError, Peer};
use crate::wire::{Response, Version, WantKind};

/// Size at which a message is sent, in bytes, as in Kubo. A larger block is a message of its own.
const TARGET_BYTES: usize = 16 * 1024;
/// Blocks of up to this number of bytes are sent in place of `HAVE`, as in Kubo.
const HAVE_REPLACEMENT_BYTES: u64 = 1024;
/// Number of wants that are handled together.
const BATCH_WANTS: usize = 64;
/// Number of blocks that are read at the same time for one peer.
const PEER_READS: usize = 4;
/// Number of streams on which responses are sent. The peer handles the messages of several streams in parallel.
const STREAMS: usize = 4;
/// Number of streams on which a message is sent until the peer is disconnected.
const MAX_ATTEMPTS: usize = 3;

/// A message with the memory of its blocks.
#[derive(Default)]
struct Prepared {
    response: Response,
    permits: Vec<OwnedSemaphorePermit>,
}

/// Result of looking up a want.
enum Found {
    Block(Bytes),
    Have,
    Missing,
}

type Queue = Arc<Mutex<mpsc::Receiver<Prepared>>>;

/// Responds to the wants of a peer until the peer is gone.
pub(crate) async fn run(context: Arc<Context>, peer: Arc<Peer>) {
    let (sender, receiver) = mpsc::channel(STREAMS);
    let queue = Arc::new(Mutex::new(receiver));
    let mut senders = JoinSet::new();
    for _ in 0..STREAMS {
        senders.spawn(send_all(Arc::clone(&context), Arc::clone(&peer), Arc::clone(&queue)));
    }
    let responses = async {
        loop {
            let tasks = peer.served.lock().pop(BATCH_WANTS);
            if tasks.is_empty() {
                peer.served_changed.notified().await;
            } else {
                prepare(&context, &peer, tasks, &sender).await;
            }
        }
    };
    tokio::select! {
        () = peer.closed.cancelled() => {}
        () = responses => {}
    }
}

async fn prepare(context: &Context, peer: &Peer, tasks: Vec<Task>, queue: &mpsc::Sender<Prepared>) {
    let lookups = tasks.into_iter().map(|task| async move { (task, look_up(context, &task).await) });
    let mut lookups = futures::stream::iter(lookups).buffered(PEER_READS);
    let mut prepared = Prepared::default();
    while let Some((task, found)) = lookups.next().await {
        if !peer.served.lock().is_active(&task) {
            continue;
        }
        match found {
            Found::Block(data) => {
                let permits = match try_reserve(context, peer, data.len()) {
                    Some(permits) => permits,
                    None => {
                        // The blocks of this message hold memory too.
                        flush(&mut prepared, queue).await;
                        reserve(context, peer, data.len()).await
                    }
                };
                finish(context, peer, &task);
                prepared.permits.extend(permits);
                prepared.response.push_block(task.cid, data);
            }
            Found::Have => {
                finish(context, peer, &task);
                context.metrics.presences.with_label_values(&["have_sent"]).inc();
                prepared.response.push_presence(task.cid, true);
            }
            Found::Missing => {
                if task.send_dont_have {
                    context.metrics.presences.with_label_values(&["dont_have_sent"]).inc();
                    prepared.response.push_presence(task.cid, false);
                }
                keep_waiting(context, peer, &task).await;
            }
        }
        if prepared.response.size() >= TARGET_BYTES {
            flush(&mut prepared, queue).await;
        }
    }
    flush(&mut prepared, queue).await;
}

async fn look_up(context: &Context, task: &Task) -> Found {
    let Ok(_permit) = context.reads.acquire().await else { return Found::Missing };
    let provider = &context.provider;
    let found = async {
        if task.kind == WantKind::Have {
            match provider.size(&task.cid).await? {
                None => return Ok(Found::Missing),
                Some(size) if size > HAVE_REPLACEMENT_BYTES => return Ok(Found::Have),
                Some(_) => {}
            }
        }
        Ok(provider.get(&task.cid).await?.map_or(Found::Missing, Found::Block))
    };
    found.await.unwrap_or_else(|error: ipfrs_core::Error| {
        tracing::warn!(cid = %task.cid, "a block that a peer wants could not be read: {error}");
        Found::Missing
    })
}

fn finish(context: &Context, peer: &Peer, task: &Task) {
    let mut served = peer.served.lock();
    let before = served.len();
    served.finish(task);
    if served.len() < before {
        context.metrics.server_wants.dec();
    }
}

/// Keeps the want for a missing block until the block is stored.
async fn keep_waiting(context: &Context, peer: &Peer, task: &Task) {
    if !context.waiting.insert(peer.id, &task.cid) {
        finish(context, peer, task);
        return;
    }
    peer.served.lock().wait(task);
    // The block may have been stored between the lookup and the insertion.
    let is_stored = context.provider.size(&task.cid).await.is_ok_and(|size| size.is_some());
    let is_gone = !peer.served.lock().is_active(task);
    if is_stored || is_gone {
        context.waiting.remove(peer.id, &task.cid);
        if is_stored && peer.served.lock().wake(&task.cid) {
            peer.served_changed.notify_one();
        }
    }
}

/// Returns the permits that `bytes` take of a semaphore with `max` permits.
fn permits(bytes: usize, max: usize) -> u32 {
    u32::try_from(bytes.min(max)).unwrap_or(u32::MAX)
}

fn counts(context: &Context, peer: &Peer, bytes: usize) -> [(Arc<Semaphore>, u32); 2] {
    let config = &context.config;
    [
        (Arc::clone(&peer.send_memory), permits(bytes, config.max_outstanding_bytes_per_peer)),
        (Arc::clone(&context.send_memory), permits(bytes, config.max_memory_bytes)),
    ]
}

fn try_reserve(context: &Context, peer: &Peer, bytes: usize) -> Option<Vec<OwnedSemaphorePermit>> {
    let counts = counts(context, peer, bytes).into_iter();
    counts.map(|(memory, count)| memory.try_acquire_many_owned(count).ok()).collect()
}

async fn reserve(context: &Context, peer: &Peer, bytes: usize) -> Vec<OwnedSemaphorePermit> {
    let mut reserved = Vec::with_capacity(2);
    for (memory, count) in counts(context, peer, bytes) {
        // The semaphores are never closed.
        reserved.extend(memory.acquire_many_owned(count).await.ok());
    }
    reserved
}

async fn flush(prepared: &mut Prepared, queue: &mpsc::Sender<Prepared>) {
    if !prepared.response.is_empty() {
        queue.send(std::mem::take(prepared)).await.ok();
    }
}

async fn send_all(context: Arc<Context>, peer: Arc<Peer>, queue: Queue) {
    let mut stream = None;
    loop {
        let next = tokio::time::timeout(context.config.idle_timeout(), async { queue.lock().await.recv().await });
        let Ok(next) = next.await else {
            stream = None;
            continue;
        };
        let Some(prepared) = next else { return };
        let sent = send(&context, &peer, &mut stream, &prepared.response).await;
        if let Err(error) = sent {
            context.disconnect(&peer, &error);
            return;
        }
    }
}

/// Sends a message. If a stream fails, the message is sent on a new one.
async fn send(
    context: &Context,
    peer: &Peer,
    stream: &mut Option<(Stream, Version)>,
    response: &Response,
) -> Result<(), String> {
    let mut attempts = 0;
    loop {
        let (opened, version) = match stream {
            Some(opened) => opened,
            None => match peer.open_stream().await {
                Ok(opened) => stream.insert(opened),
                // A peer may want blocks and accept none; then it wants none.
                Err(OpenError::Unsupported) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            },
        };
        let parts = response.encode(*version);
        if parts.is_empty() {
            return Ok(());
        }
        attempts += 1;
        match frame::write(opened, &parts).await {
            Ok(()) => break,
            Err(error) if attempts >= MAX_ATTEMPTS => return Err(error.to_string()),
            Err(_) => *stream = None,
        }
    }
    let bytes: usize = response.blocks.iter().map(|(_, data)| data.len()).sum();
    context.metrics.messages.sent.inc();
    context.metrics.blocks.sent.inc_by(response.blocks.len() as u64);
    context.metrics.block_bytes.sent.inc_by(bytes as u64);
    peer.exchange.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    peer.exchange.messages.fetch_add(1, Ordering::Relaxed);
    peer.touch();
    Ok(())
}
