//! Responses to the wants of one peer.
//!
//! One task per peer reads blocks and composes messages, and a few tasks send them. Permits to read a block are granted
//! in the order in which the tasks ask, so peers are served in turns. A peer that takes its messages slowly uses up its
//! own memory and then waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use libp2p::Stream;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::wantlist::Task;
use crate::context::Context;
use crate::frame::{self, FrameError};
use crate::peer::{OpenError, Peer};
use crate::wire::{Response, Version, WantKind};

/// Size at which a message is sent, in bytes, as in Kubo. A larger block is a message of its own.
const TARGET_BYTES: usize = 16 * 1024;
/// Blocks of up to this number of bytes are sent in place of `HAVE`, as in Kubo.
const HAVE_REPLACEMENT_BYTES: u64 = 1024;
/// Number of wants that are handled together.
const BATCH_WANTS: usize = 64;
/// Number of blocks that are read at the same time for one peer.
const PEER_READS: usize = 8;
/// Number of streams on which responses are sent. The peer handles the messages of several streams in parallel.
const STREAMS: usize = 8;
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
    /// The block is sent. It has this number of bytes.
    Block(usize),
    Have,
    Missing,
}

type Queue = Mutex<mpsc::Receiver<Prepared>>;

/// Open streams on which no message is being sent. The last one that was used is used first, so that a peer with few
/// messages has few streams.
#[derive(Default)]
struct IdleStreams {
    streams: parking_lot::Mutex<Vec<(Stream, Version)>>,
    /// Locked while a stream is opened: some peers drop streams that arrive at the same time.
    opening: Mutex<()>,
}

impl IdleStreams {
    fn pop(&self) -> Option<(Stream, Version)> {
        self.streams.lock().pop()
    }

    async fn open(&self, peer: &Peer) -> Result<(Stream, Version), OpenError> {
        let _guard = self.opening.lock().await;
        peer.open_stream().await
    }
}

/// Responds to the wants of a peer until the peer is gone.
pub(crate) async fn run(context: Arc<Context>, peer: Arc<Peer>) {
    let (sender, receiver) = mpsc::channel(STREAMS);
    let queue = Arc::new(Mutex::new(receiver));
    let idle = Arc::new(IdleStreams::default());
    let mut senders = JoinSet::new();
    for _ in 0..STREAMS {
        senders.spawn(send_all(Arc::clone(&context), Arc::clone(&peer), Arc::clone(&queue), Arc::clone(&idle)));
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

/// Looks up the wants, reads the blocks and composes messages.
///
/// Lookups and reads are tasks of their own: they make progress while this one waits for memory or for the peer, and so
/// release the permits that all peers share. Memory for a block is reserved here, in the order of the wants, so that no
/// read waits for memory that a later one holds.
async fn prepare(context: &Arc<Context>, peer: &Arc<Peer>, tasks: Vec<Task>, queue: &mpsc::Sender<Prepared>) {
    let lookups = tasks.into_iter().filter_map(|task| {
        let waits = start_waiting(context, peer, &task)?;
        let context = Arc::clone(context);
        Some((task, waits, context))
    });
    let lookups = futures::stream::iter(lookups).map(|(task, waits, context)| {
        let lookup = spawn(async move { look_up(&context, &task).await });
        async move { (task, waits, lookup.await.unwrap_or(Found::Missing)) }
    });
    let mut lookups = lookups.buffered(PEER_READS).fuse();
    let mut reads = FuturesOrdered::new();
    let mut prepared = Prepared::default();
    loop {
        tokio::select! {
            Some(read) = reads.next(), if !reads.is_empty() => {
                push_read(context, peer, &mut prepared, queue, read).await;
            }
            Some((task, waits, found)) = lookups.next(), if reads.len() < PEER_READS && !lookups.is_done() => match found {
                Found::Have => push_have(context, peer, &mut prepared, &task),
                Found::Missing => push_missing(context, peer, &mut prepared, &task, waits),
                Found::Block(bytes) => {
                    let permits = match try_reserve(context, peer, bytes) {
                        Some(permits) => permits,
                        None => {
                            // The blocks that are being read and those of this message hold memory too.
                            while let Some(read) = reads.next().await {
                                push_read(context, peer, &mut prepared, queue, read).await;
                            }
                            flush(&mut prepared, queue).await;
                            reserve(context, peer, bytes).await
                        }
                    };
                    let context = Arc::clone(context);
                    let read = spawn(async move { read(&context, &task).await });
                    reads.push_back(async move { (task, waits, read.await.unwrap_or(None), permits) });
                }
            },
            else => break,
        }
        if prepared.response.size() >= TARGET_BYTES {
            flush(&mut prepared, queue).await;
        }
    }
    flush(&mut prepared, queue).await;
}

/// Starts a task that is aborted when the handle is dropped.
fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(future))
}

/// Registers a want before its lookup, so that a block that is stored during the lookup is not missed. Returns whether
/// the want can wait for a missing block, or `None` if the peer no longer wants the block.
fn start_waiting(context: &Context, peer: &Peer, task: &Task) -> Option<bool> {
    let served = peer.served.lock();
    served.is_active(task).then(|| context.waiting.insert(peer.id, &task.cid))
}

async fn look_up(context: &Context, task: &Task) -> Found {
    let Ok(_permit) = context.reads.acquire().await else { return Found::Missing };
    match context.provider.size(&task.cid).await {
        Ok(None) => Found::Missing,
        // A block that was stored as too big to be exchanged.
        Ok(Some(size)) if !Response::default().has_room_for(&task.cid, usize::try_from(size).unwrap_or(usize::MAX)) => {
            Found::Missing
        }
        Ok(Some(size)) if task.kind == WantKind::Have && size > HAVE_REPLACEMENT_BYTES => Found::Have,
        Ok(Some(size)) => Found::Block(usize::try_from(size).unwrap_or(usize::MAX)),
        Err(error) => {
            note_failure(task, &error);
            Found::Missing
        }
    }
}

async fn read(context: &Context, task: &Task) -> Option<Bytes> {
    let _permit = context.reads.acquire().await.ok()?;
    context.provider.get(&task.cid).await.unwrap_or_else(|error| {
        note_failure(task, &error);
        None
    })
}

fn note_failure(task: &Task, error: &ipfrs_core::Error) {
    tracing::warn!(cid = %task.cid, "a block that a peer wants could not be read: {error}");
}

/// Adds a block to the message, or to the next one if it does not fit.
async fn push_read(
    context: &Context,
    peer: &Peer,
    prepared: &mut Prepared,
    queue: &mpsc::Sender<Prepared>,
    (task, waits, block, permits): (Task, bool, Option<Bytes>, Vec<OwnedSemaphorePermit>),
) {
    let Some(data) = block else { return push_missing(context, peer, prepared, &task, waits) };
    if finish(context, peer, &task) {
        if !prepared.response.has_room_for(&task.cid, data.len()) {
            flush(prepared, queue).await;
        }
        prepared.permits.extend(permits);
        prepared.response.push_block(task.cid, data);
    }
}

fn push_have(context: &Context, peer: &Peer, prepared: &mut Prepared, task: &Task) {
    if finish(context, peer, task) {
        context.metrics.presences.with_label_values(&["have_sent"]).inc();
        prepared.response.push_presence(task.cid, true);
    }
}

/// Adds `DONT_HAVE`, and keeps the want until the block is stored if it can wait.
fn push_missing(context: &Context, peer: &Peer, prepared: &mut Prepared, task: &Task, waits: bool) {
    let is_wanted = if waits {
        let mut served = peer.served.lock();
        served.wait(task);
        peer.served_room.notify_waiters();
        served.is_active(task)
    } else {
        finish(context, peer, task)
    };
    if is_wanted && task.send_dont_have {
        context.metrics.presences.with_label_values(&["dont_have_sent"]).inc();
        prepared.response.push_presence(task.cid, false);
    }
}

/// Removes the want of a request that is responded to. Returns false if the peer has cancelled or repeated it since;
/// then there is nothing to send for this request.
fn finish(context: &Context, peer: &Peer, task: &Task) -> bool {
    let mut served = peer.served.lock();
    let is_wanted = served.is_active(task);
    if is_wanted {
        served.remove(&task.cid);
        peer.served_room.notify_waiters();
        context.waiting.remove(peer.id, &task.cid);
        context.metrics.server_wants.dec();
    }
    is_wanted
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

async fn send_all(context: Arc<Context>, peer: Arc<Peer>, queue: Arc<Queue>, idle: Arc<IdleStreams>) {
    loop {
        let next = tokio::time::timeout(context.config.idle_timeout(), async { queue.lock().await.recv().await });
        let Ok(next) = next.await else {
            idle.streams.lock().clear();
            continue;
        };
        let Some(prepared) = next else { return };
        let sent = send(&context, &peer, &idle, &prepared.response).await;
        if let Err(error) = sent {
            context.disconnect(&peer, &error);
            return;
        }
    }
}

/// Sends a message. If a stream fails, the message is sent on a new one.
async fn send(context: &Context, peer: &Peer, idle: &IdleStreams, response: &Response) -> Result<(), String> {
    let mut attempts = 0;
    let mut stream = idle.pop();
    loop {
        let (mut opened, version) = match stream.take() {
            Some(opened) => opened,
            None => match idle.open(peer).await {
                Ok(opened) => opened,
                // A peer may want blocks and accept none; then it wants none.
                Err(OpenError::Unsupported) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            },
        };
        let parts = response.encode(version);
        if parts.is_empty() {
            return Ok(());
        }
        attempts += 1;
        match frame::write(&mut opened, &parts).await {
            Ok(()) => {
                idle.streams.lock().push((opened, version));
                break;
            }
            // A slow peer would be as slow on another stream, and the message holds memory.
            Err(error @ FrameError::TimedOut) => return Err(error.to_string()),
            Err(error) if attempts >= MAX_ATTEMPTS => return Err(error.to_string()),
            Err(_) => {}
        }
    }
    let bytes: usize = response.blocks.iter().map(|(_, data)| data.len()).sum();
    context.metrics.messages.sent.inc();
    context.metrics.blocks.sent.inc_by(response.blocks.len() as u64);
    context.metrics.block_bytes.sent.inc_by(bytes as u64);
    peer.exchange.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    peer.exchange.blocks.fetch_add(response.blocks.len() as u64, Ordering::Relaxed);
    peer.touch();
    Ok(())
}
