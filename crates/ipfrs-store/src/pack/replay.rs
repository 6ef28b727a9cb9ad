//! Replays the content of a pack into the index. One thread reads, several threads hash, and one writes the index.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use ipfrs_core::{Error, Result, cores};
use parking_lot::Mutex;

use super::changes::{Change, Changes};
use super::damage::Damage;
use super::index::{Index, Position};
use super::record::{Key, MAX_SECTION_BYTES, is_padding, key_of, tombstone_keys};
use super::scan::{Chunk, Scanner, Section, find_block, is_hole};
use crate::RESERVED_CODEC;

/// Changes collected before they are applied to the index, which sorts them. In a larger batch, consecutive lookups
/// are closer together. About 10 MiB.
const BATCH_CHANGES: usize = 64 * 1024;

/// Maximum number of chunks whose results wait for the index, in order. The results are small: those of 16 chunks of
/// the smallest blocks make one batch.
const CHUNKS_AHEAD: usize = 16;

/// Maximum number of hashing threads. Each holds one chunk of up to 4 MiB, and as many chunks wait for the threads.
const MAX_THREADS: usize = 16;

/// A pack to replay.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    /// Number of the pack.
    pub(super) number: u32,
    /// The open file.
    pub(super) file: &'a File,
    /// Path of the file.
    pub(super) path: &'a Path,
    /// Offset of the first section that the index does not cover.
    pub(super) from: u32,
    /// Length of the pack, in bytes.
    pub(super) len: u32,
    /// Whether tombstones count. Behind damage they may be bytes of a block.
    pub(super) deletes: bool,
}

/// Changes made by a chunk.
#[derive(Default)]
struct Noted {
    changes: Changes,
    /// Its damaged sections.
    damage: Damage,
    /// End of its last sound section.
    end: Option<u32>,
}

/// A chunk, and the channel for its result.
type Work = (Chunk, SyncSender<Noted>);

/// Number of bytes that the search behind gaps may hash: some seconds.
const SEARCH_BYTES: u64 = if cfg!(test) { 8 * 1024 * 1024 } else { 4 * 1024 * 1024 * 1024 };

/// Maximum number of gaps in a pack behind which a replay continues.
const MAX_GAPS: usize = 1_000;

/// Replays a pack like [`replay`], and continues behind bytes that are no section, if blocks follow. Returns the end of
/// the last sound section, and whether there were such bytes before it: they are damage, or an incomplete write of a
/// block whose content looks like blocks. Nothing behind them is cut off. If the pack `may_be_torn`, sectors that were
/// never written end it: what follows them was not acknowledged.
pub(super) fn replay_with_gaps(
    index: &Index,
    source: Source<'_>,
    may_be_torn: bool,
    damage: &mut Damage,
) -> Result<(u32, bool)> {
    let mut end = replay(index, source, damage)?;
    let mut budget = SEARCH_BYTES;
    for gaps in 0..MAX_GAPS {
        let (from, len) = (u64::from(end), u64::from(source.len));
        if from == len || (may_be_torn && is_hole(source.file, source.path, from, len)?) {
            return Ok((end, gaps > 0));
        }
        let Some(next) = find_block(source.file, source.path, from, len, &mut budget)? else {
            // Blocks may follow where the search has ended.
            return Ok((end, gaps > 0 || budget < MAX_SECTION_BYTES as u64));
        };
        let next = next as u32;
        tracing::error!(
            pack = %source.path.display(), offset = end, bytes = next - end,
            "the pack is damaged: the blocks behind these bytes are kept, and deletions behind them are not known"
        );
        // The block at `next` is sound, so this makes progress.
        end = replay(index, Source { from: next, deletes: false, ..source }, damage)?;
    }
    Ok((end, true))
}

/// Replays the content of a pack between `from` and `len` into the index. Returns the end of the last sound section.
///
/// A section whose data does not match its CID is skipped, and the scan continues after it: only the framing is
/// needed for that. Blocks are named by their content, so any block that verifies may be kept, acknowledged or not.
/// Skipped sections before a sound one are added to `damage`. The pack must be on the disk, because the index may
/// commit the changes.
fn replay(index: &Index, source: Source<'_>, damage: &mut Damage) -> Result<u32> {
    let threads = cores().min(MAX_THREADS);
    let (work, chunks) = sync_channel::<Work>(threads);
    let chunks = Mutex::new(chunks);
    thread::scope(|scope| {
        let (ordered, noted) = sync_channel(CHUNKS_AHEAD);
        for _ in 0..threads {
            start(scope, || hash_all(source, &chunks))?;
        }
        start(scope, move || read_all(source, &work, &ordered))?;
        let end = apply_all(index, source, noted, damage)?;
        tracing::info!(pack = %source.path.display(), from = source.from, to = end, "replayed");
        Ok(end)
    })
}

fn start<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> Result<()> {
    let started = thread::Builder::new().name("ipfrs-replay".to_owned()).spawn_scoped(scope, work);
    started.map(drop).map_err(|error| Error::io("cannot start a thread that replays a pack", error))
}

/// Sends the chunks of a pack to the hashing threads, and the channels for their results to `ordered`, in order. Ends
/// early if the receivers are gone.
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

/// Hashes chunks until there are no more.
fn hash_all(source: Source<'_>, chunks: &Mutex<Receiver<Work>>) {
    loop {
        let next = chunks.lock().recv();
        let Ok((chunk, reply)) = next else { return };
        let mut noted = Noted::default();
        for section in chunk.sections() {
            match note(source, &section, &mut noted) {
                Ok(()) => noted.end = Some(section.end as u32),
                Err(reason) => {
                    let (pack, offset) = (source.path.display(), section.start);
                    tracing::warn!(%pack, offset, reason, "skipped a damaged section");
                    noted.damage.add(source.number, &section);
                }
            }
        }
        // After an error, the receiver is gone.
        let _ = reply.send(noted);
    }
}

fn apply_all(
    index: &Index,
    source: Source<'_>,
    noted: Receiver<Result<Receiver<Noted>>>,
    damage: &mut Damage,
) -> Result<u32> {
    let mut changes = Changes::default();
    let mut end = source.from;
    let apply = |changes, end| index.replay(changes, Position { pack: source.number, offset: end });
    for outcome in noted {
        let noted = outcome?.recv().map_err(|_| Error::internal("a thread that replays a pack ended early"))?;
        damage.forget(|key| noted.changes.blocks.contains_key(key));
        damage.append(noted.damage);
        changes.append(noted.changes);
        end = noted.end.unwrap_or(end);
        if changes.blocks.len() >= BATCH_CHANGES {
            apply(std::mem::take(&mut changes), end)?;
        }
    }
    apply(changes, end)?;
    damage.cut(source.number, end);
    Ok(end)
}

fn note(source: Source<'_>, section: &Section<'_>, noted: &mut Noted) -> Result<(), String> {
    let (location, changes) = (section.location(source.number), &mut noted.changes);
    let (cid, data) = section.content.clone()?;
    if cid.codec() == RESERVED_CODEC {
        if is_padding(data) {
            changes.padding_bytes += section.end - section.start;
            return Ok(());
        }
        let keys = tombstone_keys(data).map_err(|error| error.to_string())?;
        let keys = if source.deletes { keys } else { Default::default() };
        if !noted.damage.is_empty() {
            let deleted: HashSet<&Key> = keys.iter().collect();
            noted.damage.forget(|key| deleted.contains(key));
        }
        changes.blocks.extend(keys.into_iter().map(|key| (key, Change { from: None, to: None })));
        changes.tombstone_bytes += section.end - section.start;
        return Ok(());
    }
    changes.blocks.insert(key_of(cid.hash()), Change { from: None, to: location });
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;
    use ipfrs_core::hash::HashFunction;
    use ipfrs_core::{Block, codec};

    use crate::store::BlockStoreExt;
    use crate::{PackOptions, PackStore};

    #[tokio::test]
    async fn nothing_is_cut_off_where_the_search_ends_early() {
        let block = |data: Vec<u8>| Block::hash(1, codec::RAW, HashFunction::Sha2_256, Bytes::from(data)).unwrap();
        // Its content has beginnings of blocks of a megabyte, which the search hashes.
        let mut buffer = unsigned_varint::encode::usize_buffer();
        let length = unsigned_varint::encode::usize(1024 * 1024, &mut buffer);
        let beginning = [length, &[1, 0x55, 0x12, 0x20], &[7; 32]].concat();
        let crafted = block([beginning.repeat(100), vec![0; 1_500_000]].concat());
        let [before, behind] = [1, 2].map(|byte| block(vec![byte; 1_000]));
        let dir = tempfile::tempdir().unwrap();
        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        for block in [&before, &crafted, &behind] {
            store.put(block.clone()).await.unwrap();
        }
        store.close().await.unwrap();
        fs::remove_dir_all(dir.path().join("index")).unwrap();
        let path = dir.path().join("packs/00000001.car");
        let mut pack = fs::read(&path).unwrap();
        let at = pack.windows(beginning.len()).position(|bytes| bytes == beginning).unwrap();
        // The length of the section, of three bytes, before the content ID.
        pack[at - 36 - 3] = 0;
        fs::write(&path, &pack).unwrap();
        let store = PackStore::open(dir.path(), PackOptions::default()).unwrap();
        assert!(store.losses().unwrap()[0].starts_with("pack 1 is damaged"), "{:?}", store.losses());
        assert_eq!(store.require(before.cid()).await.unwrap(), before.data());
        store.close().await.unwrap();
        assert_eq!(fs::read(&path).unwrap(), pack);
    }
}
