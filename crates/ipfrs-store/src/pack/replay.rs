//! Telling the index what a pack holds. One thread reads, several hash, one writes the index.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use ipfrs_core::{Error, Result};
use parking_lot::Mutex;

use super::changes::{Change, Changes};
use super::index::{Index, Position};
use super::record::{key_of, tombstone_keys};
use super::scan::{Chunk, Scanner, Section};
use crate::RESERVED_CODEC;

/// Changes that are gathered before they go to the index, which sorts them: the more there are, the nearer to each other
/// are those that it looks up one after the other. About 10 MiB.
const BATCH_CHANGES: usize = 64 * 1024;

/// Chunks that have been hashed and wait for the index, in their order. What is left of them then is small: 16 chunks
/// of the smallest blocks are one batch.
const CHUNKS_AHEAD: usize = 16;

/// Most threads that hash. Each holds a chunk, of up to 4 MiB, and as many wait for them.
const MAX_THREADS: usize = 16;

/// A pack to be replayed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// Its number.
    pub(super) number: u32,
    /// The file.
    pub(super) file: &'a File,
    /// Where that is.
    pub(super) path: &'a Path,
    /// The first section that the index does not know of.
    pub(super) from: u32,
    /// The end of the last one.
    pub(super) len: u32,
}

/// What a chunk says.
struct Noted {
    changes: Changes,
    /// Where its last sound section ends.
    end: Option<u32>,
}

/// A chunk, and where to send what it says.
type Work = (Chunk, SyncSender<Noted>);

/// Tells the index what a pack holds between `from` and `len`. Gives the end of the last sound section.
///
/// A section that is not what its CID says is left out, and the scan goes on after it: framing is all that is needed
/// for that. Blocks are named by their content, so whatever verifies may be kept, acknowledged or not. The pack must be on
/// the disk, because the index may commit what it is told.
pub(super) fn replay(index: &Index, source: Source<'_>) -> Result<u32> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get().min(MAX_THREADS));
    let (work, chunks) = sync_channel::<Work>(threads);
    let chunks = Mutex::new(chunks);
    thread::scope(|scope| {
        let (ordered, noted) = sync_channel(CHUNKS_AHEAD);
        for _ in 0..threads {
            start(scope, || hash_all(source, &chunks))?;
        }
        start(scope, move || read_all(source, &work, &ordered))?;
        let end = apply_all(index, source, noted)?;
        tracing::info!(pack = %source.path.display(), from = source.from, to = end, "replayed");
        Ok(end)
    })
}

fn start<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> Result<()> {
    let started = thread::Builder::new().name("ipfrs-replay".to_owned()).spawn_scoped(scope, work);
    started.map(drop).map_err(|error| Error::io("cannot start a thread that replays a pack", error))
}

/// Hands the chunks of a pack to those who hash them, and to `ordered`, in their order, where the outcomes will come.
/// Ends early when nobody is interested any more.
fn read_all(source: Source<'_>, work: &SyncSender<Work>, ordered: &SyncSender<Result<Receiver<Noted>>>) {
    let mut scanner = Scanner::new(u64::from(source.from), u64::from(source.len));
    loop {
        let (sent, outcome) = match scanner.next_chunk(source.file, source.path) {
            Ok(None) => return,
            Ok(Some(chunk)) => {
                let (reply, outcome) = sync_channel(1);
                (work.send((chunk, reply)).is_ok(), Ok(outcome))
            }
            Err(error) => (false, Err(error)),
        };
        if ordered.send(outcome).is_err() || !sent {
            return;
        }
    }
}

/// Hashes what comes next, until nothing comes any more.
fn hash_all(source: Source<'_>, chunks: &Mutex<Receiver<Work>>) {
    loop {
        let next = chunks.lock().recv();
        let Ok((chunk, reply)) = next else { return };
        let mut noted = Noted { changes: Changes::default(), end: None };
        for section in chunk.sections() {
            let (start, end) = (section.start, section.end);
            match note(source.number, section, &mut noted.changes) {
                Ok(()) => noted.end = Some(end as u32),
                Err(reason) => {
                    tracing::warn!(pack = %source.path.display(), offset = start, reason, "left out a damaged section");
                }
            }
        }
        // Nobody waits for it after an error.
        let _ = reply.send(noted);
    }
}

fn apply_all(index: &Index, source: Source<'_>, noted: Receiver<Result<Receiver<Noted>>>) -> Result<u32> {
    let mut changes = Changes::default();
    let mut end = source.from;
    let apply = |changes, end| index.replay(changes, Position { pack: source.number, offset: end });
    for outcome in noted {
        let noted = outcome?.recv().map_err(|_| Error::internal("a thread that replays a pack ended early"))?;
        changes.append(noted.changes);
        end = noted.end.unwrap_or(end);
        if changes.blocks.len() >= BATCH_CHANGES {
            apply(std::mem::take(&mut changes), end)?;
        }
    }
    apply(changes, end)?;
    Ok(end)
}

fn note(pack: u32, section: Section<'_>, changes: &mut Changes) -> Result<(), String> {
    let location = section.location(pack);
    let (cid, data) = section.content?;
    if cid.codec() == RESERVED_CODEC {
        let keys = tombstone_keys(data).map_err(|error| error.to_string())?;
        changes.blocks.extend(keys.into_iter().map(|key| (key, Change { from: None, to: None })));
        changes.tombstone_bytes += section.end - section.start;
        return Ok(());
    }
    changes.blocks.insert(key_of(cid.hash()), Change { from: None, to: location });
    Ok(())
}
