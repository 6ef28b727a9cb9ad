//! Opening a store: finds the packs, replays what the index does not cover, and removes an incomplete write.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};
use rustix::fs::{Advice, fadvise};

use super::PackOptions;
use super::changes::{Changes, PackUse};
#[cfg(test)]
use super::crash_recorder;
use super::damage::{Damage, MAX_TORN_BYTES};
use super::file::{FoundPack, Pack, number_of};
use super::free_space::pack_bytes_for;
use super::index::{Index, Position};
use super::lock::{StoreLock, cannot, check_version, ensure_directory};
use super::losses::{self, Losses, OR_UNFINISHED};
use super::record::CAR_HEADER;
use super::replay::{Source, replay_with_gaps};
use super::shared::Shared;
use crate::Mappings;
use crate::pack::index::INDEX;

/// A multiple of the length of pages on all systems, in bytes.
const PAGES_BYTES: u32 = 64 * 1024;

/// An open store and the state that its writer needs.
pub(super) struct Recovered {
    /// The store.
    pub(super) shared: Arc<Shared>,
    /// The pack to append to, if there is one with space.
    pub(super) active: Option<Arc<Pack>>,
    /// Number of the next pack.
    pub(super) next_number: u32,
    /// Whether the disk has no space for changes that the index holds in memory.
    pub(super) is_behind: bool,
    /// Rests of an incomplete write that the index must not cover before they are padded. Empty unless it is behind.
    pub(super) torn: Damage,
    /// The only pack that may have an incomplete write in the part that the index on the disk does not cover, if there
    /// is an index.
    pub(super) tail: Option<u32>,
}

/// Opens the store in `dir`, creating it if it does not exist.
pub(super) fn open(dir: &Path, mut options: PackOptions) -> Result<Recovered> {
    ensure_directory(dir)?;
    let lock = StoreLock::take(dir, &options.holder)?;
    check_version(dir)?;
    options.pack_bytes = pack_bytes_for(dir, options.pack_bytes);
    let packs_dir = dir.join("packs");
    ensure_directory(&packs_dir)?;
    let mut found = find_packs(&packs_dir, false)?;
    let lengths = found.iter().map(|(number, pack)| (*number, pack.len)).collect();
    remove_old_index(dir)?;
    let losses = Losses::of(dir, false);
    let (index, blocks_before) = open_index(&dir.join(INDEX), &lengths, false, &losses)?;
    if let Some(removed) = forget_removed(&index, &found) {
        // Durably, before a new pack can reuse the number of a removed one.
        match index.commit() {
            // A new pack gets a higher number than all others. A later commit, or the next start, forgets the removed.
            Err(error) if error.kind() == ErrorKind::NoSpace && found.keys().any(|number| *number > removed) => {
                tracing::warn!(%error, "the index on the disk still names packs that were removed");
            }
            committed => committed?,
        }
    }
    let replay = Replay::new(&index, &found, blocks_before.is_some(), &losses);
    let has_index = replay.has_index;
    let Replayed { is_any, first, damaged, unpadded: torn } = replay_all(replay, &mut found)?;
    count_lost(&index, blocks_before, &losses)?;

    let mappings = Mappings::default();
    let mut packs = BTreeMap::new();
    let mut active = None;
    let newest = found.last_key_value().map(|(number, _)| *number);
    for (number, pack) in found {
        let appendable = Some(number) == newest && damaged != newest && pack.len < options.pack_bytes;
        let capacity = if appendable { options.pack_bytes } else { pack.len };
        let pack = Arc::new(Pack::open(pack, capacity, &mappings)?);
        active = appendable.then(|| Arc::clone(&pack));
        packs.insert(number, pack);
    }
    let mut next_number = newest.map_or(1, |number| number + 1);
    if damaged.is_some() && damaged == newest {
        // A scan would not find sections after the damage, so the damaged pack must never be the newest again. It is
        // the last that may have an incomplete write until the commit, because the new pack is empty.
        let pack = Arc::new(Pack::create(&packs_dir, next_number, options.pack_bytes, &mappings)?);
        packs.insert(next_number, Arc::clone(&pack));
        active = Some(pack);
        next_number += 1;
    }
    let mut is_behind = !torn.is_empty();
    let last = packs.last_key_value().map(|(number, _)| *number);
    // Replayed sections are on the disk.
    let is_sound = torn.is_empty() && damaged.is_none();
    let mut tail = last.filter(|_| has_index && (is_sound || first == last));
    if let (true, Some((number, pack))) = (is_any && !is_behind, packs.last_key_value()) {
        index.apply(&Changes::default(), Position { pack: *number, offset: pack.end() });
        match index.commit() {
            // Existing blocks can still be read.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                tracing::warn!(%error, "the index is behind: the next start replays more");
                is_behind = true;
            }
            committed => {
                committed?;
                tail = Some(*number);
            }
        }
    }
    let shared = Shared::new(dir.to_owned(), options, mappings, packs, index, lock, losses);
    Ok(Recovered { shared: Arc::new(shared), active, next_number, is_behind, torn, tail })
}

/// Removes the index file of earlier versions of this program.
fn remove_old_index(dir: &Path) -> Result<()> {
    let path = dir.join("index.redb");
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot("remove", &path, error)),
        Ok(()) => {
            tracing::info!(path = %path.display(), "removed the index of an earlier version: it will be rebuilt");
            Ok(())
        }
    }
}

/// Removes packs that no longer exist from the index. Returns the number of the newest of them.
pub(super) fn forget_removed(index: &Index, found: &BTreeMap<u32, FoundPack>) -> Option<u32> {
    let removed: Vec<_> = index.packs().into_keys().filter(|number| !found.contains_key(number)).collect();
    index.forget(&removed);
    removed.into_iter().max()
}

/// Result of replaying the packs at open.
#[derive(Debug, Default)]
struct Replayed {
    /// Whether the index was not up to date.
    is_any: bool,
    /// The first pack of which a part was replayed.
    first: Option<u32>,
    /// The last pack, if it contains bytes that are no sections and no incomplete write, which are kept.
    damaged: Option<u32>,
    /// Rests of an incomplete write that the disk has no space to pad.
    unpadded: Damage,
}

/// Replays the part of the packs that the index does not cover, and removes an incomplete write from the last pack.
fn replay_all(mut replay: Replay<'_>, found: &mut BTreeMap<u32, FoundPack>) -> Result<Replayed> {
    let mut replayed = Replayed { is_any: replay.index.unfinished().is_some(), ..Replayed::default() };
    for pack in found.values_mut() {
        let Some(from) = replay.start(pack) else { continue };
        replayed.is_any = true;
        replayed.first = replayed.first.or(Some(pack.number));
        // A later put of a replayed block returns `Present`, so the block must be durable by then.
        #[cfg(test)]
        let syncing = crash_recorder::before_sync(&pack.file);
        pack.file.sync_data().map_err(|error| cannot("sync", &pack.path, error))?;
        #[cfg(test)]
        drop(syncing);
        if replay.is_last(pack) {
            // After a failed sync of an earlier process, the page cache may hold bytes that are not on the disk. File
            // systems without a cache ignore this hint.
            let _ = fadvise(&pack.file, u64::from(from - from % PAGES_BYTES), None, Advice::DontNeed);
        }
        let rest = replay.pack(pack, from)?;
        let torn = replay.take_torn(pack);
        // Without an index, they may as well be damaged blocks, whose bytes are kept.
        let padded = if replay.has_index { torn.pad(&pack.file, &pack.path) } else { Ok(()) };
        match padded {
            // A file system that copies on write needs space to overwrite. Existing blocks can still be read.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                tracing::warn!(%error, "the index is behind: the next start replays more");
                replayed.unpadded = torn;
            }
            padded => padded?,
        }
        match rest {
            Rest::Torn(end) => cut_tail(pack, end)?,
            // A scan, and so a compaction, would stop at the damage.
            Rest::Damaged if replay.is_last(pack) => replayed.damaged = Some(pack.number),
            Rest::Damaged | Rest::Sound => {}
        }
        if !replay.has_index && !replay.is_last(pack) {
            replay.keep_progress()?;
        }
    }
    replay.finish()?;
    Ok(replayed)
}

/// A replay of all packs that the index does not cover.
pub(super) struct Replay<'a> {
    index: &'a Index,
    losses: &'a Losses,
    pack_uses: BTreeMap<u32, PackUse>,
    /// Whether the index is complete up to its position, and not one that is built from the packs.
    has_index: bool,
    /// The last pack that may have an incomplete write.
    last: Option<u32>,
    /// Whether damage at the end of the last pack may be an incomplete write.
    may_be_torn: bool,
    damage: Damage,
}

impl<'a> Replay<'a> {
    /// Begins to replay the packs `found`, or continues a rebuild of the index that was interrupted.
    pub(super) fn new(
        index: &'a Index,
        found: &BTreeMap<u32, FoundPack>,
        is_loss_counted: bool,
        losses: &'a Losses,
    ) -> Self {
        let (pack_uses, unfinished) = (index.packs(), index.unfinished());
        let has_index = !pack_uses.is_empty() && unfinished.is_none();
        // The writer begins a pack once the index covers the one before, or, for deletions on a full disk, once that is
        // sound and on the disk. A start may have begun an empty pack behind a damaged one and ended before that.
        // Without an index, the end of a restored pack is no incomplete write.
        let written = found.values().rev().find(|pack| has_index && pack.len > CAR_HEADER.len() as u32);
        Self {
            index,
            losses,
            pack_uses,
            has_index,
            last: written.or(found.values().next_back()).map(|pack| pack.number),
            may_be_torn: has_index || is_loss_counted,
            damage: unfinished.and_then(|notes| Damage::decode(&notes)).unwrap_or_default(),
        }
    }

    /// Whether this is the last pack that may have an incomplete write.
    fn is_last(&self, pack: &FoundPack) -> bool {
        self.last == Some(pack.number)
    }

    /// Returns the offset from which a pack must be replayed, or `None` if the index covers it.
    pub(super) fn start(&self, pack: &FoundPack) -> Option<u32> {
        let from = match self.pack_uses.last_key_value() {
            Some((last, _)) if pack.number < *last => return None,
            Some((last, pack_use)) if pack.number == *last => pack_use.covered,
            _ => CAR_HEADER.len() as u32,
        };
        Some(from).filter(|from| *from < pack.len)
    }

    /// Replays a pack from `from` on. Damage is added to the losses, or remembered if later sections may replace it. In
    /// the last pack, gaps and an incomplete end are no loss if an index covers what is before them: a power failure
    /// leaves them in sections that were not synced, and so not acknowledged. Without an index, that would be the whole
    /// pack.
    pub(super) fn pack(&mut self, pack: &FoundPack, from: u32) -> Result<Rest> {
        let (number, len, is_last) = (pack.number, pack.len, self.is_last(pack));
        let may_be_torn = is_last && self.may_be_torn;
        let source = Source { number, file: &pack.file, path: &pack.path, from, len, deletes: true };
        let (end, has_gaps) = replay_with_gaps(self.index, source, is_last && self.has_index, &mut self.damage)?;
        if has_gaps && !may_be_torn {
            let what = "it has other bytes between its blocks";
            self.losses.add(&format!("pack {number} is damaged: {what} {OR_UNFINISHED}"))?;
        }
        let rest = len - end;
        if has_gaps && is_last {
            return Ok(Rest::Damaged);
        }
        if rest == 0 {
            return Ok(Rest::Sound);
        }
        let is_cut = is_last && rest <= MAX_TORN_BYTES;
        if !(is_cut && may_be_torn) {
            let what = format!("from offset {end} on, {rest} bytes are no blocks {OR_UNFINISHED}");
            self.losses.add(&format!("pack {number} is damaged: {what}"))?;
        }
        if is_cut {
            return Ok(Rest::Torn(end));
        }
        tracing::warn!(
            pack = %pack.path.display(), offset = end, bytes = rest,
            "no section can be decoded from here on: the rest of the pack is not indexed; the file is kept"
        );
        Ok(Rest::Damaged)
    }

    /// Removes and returns the damaged sections of a pack that may be rests of an incomplete write.
    pub(super) fn take_torn(&mut self, pack: &FoundPack) -> Damage {
        match self.is_last(pack) && self.may_be_torn {
            true => self.damage.take_torn(pack),
            false => Damage::default(),
        }
    }

    /// Commits a part of the index that is built from the packs. The next start continues behind this pack, and knows
    /// the damage before.
    fn keep_progress(&self) -> Result<()> {
        match self.index.commit_unfinished(self.damage.encode()) {
            // The last commit fails too, or there is space by then.
            Err(error) if error.kind() == ErrorKind::NoSpace => Ok(()),
            kept => kept,
        }
    }

    /// Adds the damage to the losses, once all packs are replayed. The next commit makes the index complete.
    pub(super) fn finish(self) -> Result<()> {
        self.damage.note(self.index, self.losses)?;
        self.index.finish();
        Ok(())
    }
}

/// Result of replaying one pack.
pub(super) enum Rest {
    /// All of it was replayed.
    Sound,
    /// It ends with an incomplete write, which begins at this offset.
    Torn(u32),
    /// It has bytes that are no sections and no incomplete write.
    Damaged,
}

/// Finds the packs in the directory. If a crash interrupted the creation of the newest, that pack is removed, or
/// ignored if the store is read-only.
pub(super) fn find_packs(packs_dir: &Path, read_only: bool) -> Result<BTreeMap<u32, FoundPack>> {
    let failed = |error| cannot("read", packs_dir, error);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(packs_dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(number) = path.file_name().and_then(|name| name.to_str()).and_then(number_of) else { continue };
        let failed = |error| cannot("open", &path, error);
        let file = OpenOptions::new().read(true).write(!read_only).open(&path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        let len = u32::try_from(len).map_err(|_| {
            Error::corrupt(format!(
                "{} has {len} bytes, more than the maximum for a pack: move it away",
                path.display()
            ))
        })?;
        found.insert(number, FoundPack { number, path, file, len });
    }
    if let Some(newest) = found.last_entry()
        && newest.get().len <= CAR_HEADER.len() as u32
        && !begins_as_pack(&newest.get().file).map_err(failed)?
    {
        let newest = newest.remove();
        if !read_only {
            tracing::info!(path = %newest.path.display(), "removed a pack whose creation was interrupted");
            fs::remove_file(&newest.path).map_err(|error| cannot("remove", &newest.path, error))?;
        }
    }
    for pack in found.values() {
        if !begins_as_pack(&pack.file).map_err(|error| cannot("read", &pack.path, error))? {
            return Err(Error::corrupt(format!(
                "{} does not start with the header of a pack: move it away, or restore it from a copy",
                pack.path.display()
            )));
        }
    }
    Ok(found)
}

fn begins_as_pack(file: &File) -> io::Result<bool> {
    let mut header = [0; CAR_HEADER.len()];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => Ok(header == *CAR_HEADER),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens the index. Creates a new one if it is missing, damaged, or does not match these packs, given by their
/// lengths. If it proves that blocks were lost, returns their number before the loss as well.
pub(super) fn open_index(
    path: &Path,
    packs: &BTreeMap<u32, u32>,
    is_read_only: bool,
    losses: &Losses,
) -> Result<(Index, Option<u64>)> {
    let unusable = match Index::open(path, is_read_only)? {
        Ok(index) => match contradiction(&index.packs(), packs) {
            None if index.unfinished().is_some_and(|notes| Damage::decode(&notes).is_none()) => {
                "the notes of its rebuild are damaged".to_owned()
            }
            None => return Ok((index, None)),
            Some(contradiction) => contradiction,
        },
        Err(why) => why,
    };
    let mut blocks_before = None;
    // An index whose runs are damaged may prove a loss, too.
    if let Some((pack_uses, totals)) = Index::statistics(path)
        && let Some(loss) = losses::proven_by(&pack_uses, packs)
    {
        // Before the index is replaced, which is the proof.
        losses.add(&loss)?;
        blocks_before = Some(totals.blocks);
    }
    let advice = match is_read_only {
        true => ", in memory, at every start: open the store once without store.read_only to keep it",
        false => "",
    };
    let (path_shown, packs) = (path.display(), packs.len());
    tracing::warn!(index = %path_shown, reason = unusable, packs, "rebuilding the index from the packs{advice}");
    Ok((Index::begin(path, is_read_only)?, blocks_before))
}

/// Adds the number of lost blocks to the losses, once the packs are replayed.
pub(super) fn count_lost(index: &Index, blocks_before: Option<u64>, losses: &Losses) -> Result<()> {
    let Some(before) = blocks_before else { return Ok(()) };
    let left = index.totals().blocks;
    losses.add(&format!("{} of {before} blocks are lost, {left} are left", before.saturating_sub(left)))
}

/// Returns the reason why an index with the statistics `pack_uses` does not match `packs`, given by their lengths.
pub(super) fn contradiction(pack_uses: &BTreeMap<u32, PackUse>, packs: &BTreeMap<u32, u32>) -> Option<String> {
    for (number, PackUse { covered, live_bytes, .. }) in pack_uses {
        match packs.get(number) {
            // Compaction had emptied it and was removing it.
            None if *live_bytes == 0 => {}
            None => return Some(format!("it covers pack {number}, which is missing")),
            Some(len) if len < covered => {
                return Some(format!("it covers {covered} bytes of pack {number}, which has {len}"));
            }
            Some(_) => {}
        }
    }
    let (last, _) = pack_uses.last_key_value()?;
    let holds_sections = |len: u32| len > CAR_HEADER.len() as u32;
    let unknown = packs.range(..last).find(|(number, len)| !pack_uses.contains_key(number) && holds_sections(**len));
    unknown.map(|(number, _)| format!("it does not list pack {number}"))
}

/// Removes an incomplete write at the end of the newest pack.
fn cut_tail(pack: &mut FoundPack, end: u32) -> Result<()> {
    let cut = || {
        #[cfg(test)]
        crash_recorder::before(&pack.path);
        pack.file.set_len(u64::from(end))?;
        pack.file.sync_data()
    };
    cut().map_err(|error| cannot("cut", &pack.path, error))?;
    tracing::info!(pack = %pack.path.display(), offset = end, bytes = pack.len - end, "removed an incomplete write");
    pack.len = end;
    Ok(())
}
