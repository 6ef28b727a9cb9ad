//! Opening a store: which packs are there, what the index does not know of them yet, and where a crash cut a write off.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ipfrs_core::{Error, ErrorKind, Result};

use super::PackOptions;
use super::changes::{Changes, PackUse};
use super::file::{FoundPack, Pack, number_of};
use super::index::{Index, Position};
#[cfg(test)]
use super::instants;
use super::lock::{StoreLock, cannot, check_version, ensure_directory};
use super::read_only;
use super::record::CAR_HEADER;
use super::replay::{Source, replay};
use super::room::pack_bytes_for;
use super::shared::Shared;
use crate::Mappings;

/// The directory of the index.
pub(super) const INDEX: &str = "index";

/// More than this after the last sound section is not a write that a crash cut off, and is not cut away.
const MAX_TORN_BYTES: u32 = 64 * 1024 * 1024;

/// An open store and what its writer needs.
pub(super) struct Recovered {
    /// The store.
    pub(super) shared: Arc<Shared>,
    /// The pack to append to, when there is one with room.
    pub(super) active: Option<Arc<Pack>>,
    /// Number of the next pack.
    pub(super) next_number: u32,
    /// Whether the index knows more than there was room for on the disk.
    pub(super) is_behind: bool,
}

/// Opens the store in `dir`, making one where there is none.
pub(super) fn open(dir: &Path, mut options: PackOptions) -> Result<Recovered> {
    if options.read_only {
        return read_only::open(dir, options);
    }
    ensure_directory(dir)?;
    let lock = StoreLock::take(dir, &options.holder)?;
    check_version(dir)?;
    options.pack_bytes = pack_bytes_for(dir, options.pack_bytes);
    let packs_dir = dir.join("packs");
    ensure_directory(&packs_dir)?;
    let mut found = find_packs(&packs_dir, false)?;
    let lengths = found.iter().map(|(number, pack)| (*number, pack.len)).collect();
    remove_old_index(dir)?;
    let index = open_index(&dir.join(INDEX), &lengths, false)?;
    if forget_removed(&index, &found) {
        // For good, before a new pack can get the number of one.
        index.commit()?;
    }
    let replayed = replay_all(&index, &mut found)?;

    let mappings = Mappings::default();
    let mut packs = BTreeMap::new();
    let mut active = None;
    let newest = found.last_key_value().map(|(number, _)| *number);
    for (number, pack) in found {
        let appendable = Some(number) == newest && replayed != Replayed::Damaged && pack.len < options.pack_bytes;
        let capacity = if appendable { options.pack_bytes } else { pack.len };
        let pack = Arc::new(Pack::open(pack, capacity, &mappings)?);
        active = appendable.then(|| Arc::clone(&pack));
        packs.insert(number, pack);
    }
    let mut next_number = newest.map_or(1, |number| number + 1);
    if replayed == Replayed::Damaged {
        // A scan would not find what comes after the damage: the damaged pack must never be the newest again.
        let pack = Arc::new(Pack::create(&packs_dir, next_number, options.pack_bytes, &mappings)?);
        packs.insert(next_number, Arc::clone(&pack));
        active = Some(pack);
        next_number += 1;
    }
    let mut is_behind = false;
    if let (true, Some((number, pack))) = (replayed != Replayed::Nothing, packs.last_key_value()) {
        index.apply(&Changes::default(), Position { pack: *number, offset: pack.end() });
        match index.commit() {
            // What is there can be read all the same.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                tracing::warn!(%error, "the index is behind: the next start replays more");
                is_behind = true;
            }
            committed => committed?,
        }
    }
    let shared = Shared::new(dir.to_owned(), options, mappings, packs, index, lock);
    Ok(Recovered { shared: Arc::new(shared), active, next_number, is_behind })
}

/// Removes what earlier versions of this program had for an index.
fn remove_old_index(dir: &Path) -> Result<()> {
    let path = dir.join("index.redb");
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot("remove", &path, error)),
        Ok(()) => {
            tracing::info!(path = %path.display(), "removed an index of an earlier version: it is built anew");
            Ok(())
        }
    }
}

/// Lets the index forget the packs that are not there any more; says whether there are any.
pub(super) fn forget_removed(index: &Index, found: &BTreeMap<u32, FoundPack>) -> bool {
    let removed: Vec<_> = index.packs().into_keys().filter(|number| !found.contains_key(number)).collect();
    index.forget(&removed);
    !removed.is_empty()
}

/// What the index had to be told at open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Replayed {
    /// Nothing: it knew everything.
    Nothing,
    /// Some sections; an unfinished write at the end was cut off.
    Sections,
    /// Some sections, but the newest pack has more after them, which is kept as it is.
    Damaged,
}

/// Tells the index what it does not know of the packs yet, and cuts an unfinished write off the newest.
fn replay_all(index: &Index, found: &mut BTreeMap<u32, FoundPack>) -> Result<Replayed> {
    let known = index.packs();
    let newest = found.last_key_value().map(|(number, _)| *number);
    let mut replayed = Replayed::Nothing;
    for pack in found.values_mut() {
        let Some(from) = replay_start(&known, pack.number).filter(|from| *from < pack.len) else { continue };
        replayed = Replayed::Sections;
        // A put of what is replayed is answered "present": it must be as durable as that answer says. Before the index
        // is told, because it commits now and then.
        #[cfg(test)]
        let syncing = instants::before_sync(&pack.file);
        pack.file.sync_data().map_err(|error| cannot("sync", &pack.path, error))?;
        #[cfg(test)]
        drop(syncing);
        let source = Source { number: pack.number, file: &pack.file, path: &pack.path, from, len: pack.len };
        let end = replay(index, source)?;
        let rest = pack.len - end;
        if rest == 0 {
            continue;
        }
        if Some(pack.number) == newest && rest <= MAX_TORN_BYTES {
            cut_tail(pack, end)?;
            continue;
        }
        tracing::warn!(
            pack = %pack.path.display(), offset = end, bytes = rest,
            "no section can be made out from here on: what this part held is lost to the index; the file is kept"
        );
        if Some(pack.number) == newest {
            replayed = Replayed::Damaged;
        }
    }
    Ok(replayed)
}

/// From where a pack must be replayed; `None` when the index was past it.
pub(super) fn replay_start(known: &BTreeMap<u32, PackUse>, number: u32) -> Option<u32> {
    match known.last_key_value() {
        Some((last, _)) if number < *last => None,
        Some((last, known)) if number == *last => Some(known.covered),
        _ => Some(CAR_HEADER.len() as u32),
    }
}

/// The packs of the directory. A newest one that a crash cut off while it was created is removed, or left out when nothing
/// is to be changed.
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
            Error::corrupt(format!("{} has {len} bytes, more than a pack can have: move it away", path.display()))
        })?;
        found.insert(number, FoundPack { number, path, file, len });
    }
    if let Some(newest) = found.last_entry()
        && newest.get().len <= CAR_HEADER.len() as u32
        && !begins_as_pack(&newest.get().file).map_err(failed)?
    {
        let newest = newest.remove();
        if !read_only {
            tracing::info!(path = %newest.path.display(), "removed a pack whose creation was cut off");
            fs::remove_file(&newest.path).map_err(|error| cannot("remove", &newest.path, error))?;
        }
    }
    for pack in found.values() {
        if !begins_as_pack(&pack.file).map_err(|error| cannot("read", &pack.path, error))? {
            return Err(Error::corrupt(format!(
                "{} does not begin as a pack of this store does: move it away, or restore it from a copy",
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

/// Opens the index, or begins a new one where it is missing, damaged, or not about these packs, given by their lengths.
pub(super) fn open_index(path: &Path, packs: &BTreeMap<u32, u32>, is_read_only: bool) -> Result<Index> {
    let unusable = match Index::open(path, is_read_only)? {
        Ok(index) => match contradiction(&index.packs(), packs) {
            None => return Ok(index),
            Some(contradiction) => contradiction,
        },
        Err(why) => why,
    };
    let advice = match is_read_only {
        true => ", in memory, at every start: open the store once without store.read_only to keep it",
        false => "",
    };
    let (path_shown, packs) = (path.display(), packs.len());
    tracing::warn!(index = %path_shown, reason = unusable, packs, "rebuilding the index from the packs{advice}");
    Index::begin(path, is_read_only)
}

/// Why an index that knows `known` is not about `packs`, given by their lengths.
pub(super) fn contradiction(known: &BTreeMap<u32, PackUse>, packs: &BTreeMap<u32, u32>) -> Option<String> {
    for (number, PackUse { covered, live_bytes, .. }) in known {
        match packs.get(number) {
            // One that compaction had emptied: it was being removed.
            None if *live_bytes == 0 => {}
            None => return Some(format!("it covers pack {number}, which is missing")),
            Some(len) if len < covered => {
                return Some(format!("it covers {covered} bytes of pack {number}, which has {len}"));
            }
            Some(_) => {}
        }
    }
    let (last, _) = known.last_key_value()?;
    let holds_sections = |len: u32| len > CAR_HEADER.len() as u32;
    let unknown = packs.range(..last).find(|(number, len)| !known.contains_key(number) && holds_sections(**len));
    unknown.map(|(number, _)| format!("it does not know of pack {number}"))
}

/// Removes what a crash left of a write at the end of the newest pack.
fn cut_tail(pack: &mut FoundPack, end: u32) -> Result<()> {
    let cut = || {
        #[cfg(test)]
        instants::before(&pack.path);
        pack.file.set_len(u64::from(end))?;
        pack.file.sync_data()
    };
    cut().map_err(|error| cannot("cut", &pack.path, error))?;
    tracing::info!(pack = %pack.path.display(), offset = end, bytes = pack.len - end, "cut off an unfinished write");
    pack.len = end;
    Ok(())
}
