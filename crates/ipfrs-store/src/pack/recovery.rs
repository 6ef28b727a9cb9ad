//! Opening a store: which packs are there, what the index does not know of them yet, and where a crash cut a write off.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use ipfrs_core::{Error, Result};

use super::PackOptions;
use super::file::{FoundPack, Pack, number_of};
use super::index::{Changes, Index, Opened, Position};
use super::lock::{StoreLock, cannot, check_version, ensure_directory};
use super::record::{CAR_HEADER, Location, key_of, pack_codec, tombstone_keys};
use super::scan::{Scanner, Section};
use super::shared::Shared;
use crate::{Mappings, RESERVED_CODEC};

/// Changes that are gathered before they go to the index.
const BATCH_CHANGES: usize = 32 * 1024;

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
}

/// Opens the store in `dir`, making one where there is none.
pub(super) fn open(dir: &Path, options: PackOptions) -> Result<Recovered> {
    ensure_directory(dir)?;
    let lock = StoreLock::take(dir, &options.holder)?;
    check_version(dir)?;
    let packs_dir = dir.join("packs");
    ensure_directory(&packs_dir)?;
    let mut found = find_packs(&packs_dir)?;
    let lengths = found.iter().map(|(number, pack)| (*number, pack.len)).collect();
    let index = open_index(&dir.join("index.redb"), &lengths)?;
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
    if let (true, Some((number, pack))) = (replayed != Replayed::Nothing, packs.last_key_value()) {
        index.apply(&Changes::new(), Position { pack: *number, offset: pack.end() }, true)?;
    }
    let shared = Shared::new(dir.to_owned(), options, mappings, packs, index, lock)?;
    Ok(Recovered { shared: Arc::new(shared), active, next_number })
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
    let covered = index.covered()?;
    let newest = found.last_key_value().map(|(number, _)| *number);
    let mut replayed = Replayed::Nothing;
    for pack in found.values_mut() {
        let Some(from) = replay_start(&covered, pack.number).filter(|from| *from < pack.len) else { continue };
        replayed = Replayed::Sections;
        // A put of what is replayed is answered "present": it must be as durable as that answer says. Before the index
        // is told, because redb makes all that it was told durable when it is closed, in whatever way opening ends.
        pack.file.sync_data().map_err(|error| cannot("sync", &pack.path, error))?;
        let end = replay(index, pack.number, &pack.file, &pack.path, from, pack.len)?;
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

/// Opens the index of a running store anew, and tells it what it does not know of `packs`. They must be on the disk up to
/// their ends.
pub(super) fn reopen_index(path: &Path, packs: &[Arc<Pack>]) -> Result<Index> {
    // It may know too much as well: what failed may have been the last step of a commit of which it tells now.
    let lengths = packs.iter().map(|pack| (pack.number(), pack.end())).collect();
    let index = open_index(path, &lengths)?;
    let covered = index.covered()?;
    for pack in packs {
        match replay_start(&covered, pack.number()) {
            Some(from) if from < pack.end() => {
                replay(&index, pack.number(), pack.file(), pack.path(), from, pack.end())?;
            }
            _ => {}
        }
    }
    Ok(index)
}

/// From where a pack must be replayed; `None` when the index was past it.
fn replay_start(covered: &BTreeMap<u32, u32>, number: u32) -> Option<u32> {
    match covered.last_key_value() {
        Some((last, _)) if number < *last => None,
        Some((last, offset)) if number == *last => Some(*offset),
        _ => Some(CAR_HEADER.len() as u32),
    }
}

/// The packs of the directory. A newest one that a crash cut off while it was created is removed.
fn find_packs(packs_dir: &Path) -> Result<BTreeMap<u32, FoundPack>> {
    let failed = |error| cannot("read", packs_dir, error);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(packs_dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(number) = path.file_name().and_then(|name| name.to_str()).and_then(number_of) else { continue };
        let failed = |error| cannot("open", &path, error);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
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
        tracing::info!(path = %newest.path.display(), "removed a pack whose creation was cut off");
        fs::remove_file(&newest.path).map_err(|error| cannot("remove", &newest.path, error))?;
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
fn open_index(path: &Path, packs: &BTreeMap<u32, u32>) -> Result<Index> {
    let unusable = match Index::open(path)? {
        Opened::Usable(index) => match contradiction(&index.covered()?, packs) {
            None => return Ok(index),
            Some(contradiction) => contradiction,
        },
        Opened::Unusable(why) => why,
    };
    tracing::warn!(index = %path.display(), reason = unusable, packs = packs.len(), "rebuilding the index from the packs");
    Index::remove(path)?;
    match Index::open(path)? {
        Opened::Usable(index) => Ok(index),
        Opened::Unusable(why) => Err(Error::internal(format!("a new index {} is not usable: {why}", path.display()))),
    }
}

/// Why an index that covers `covered` is not about `packs`.
fn contradiction(covered: &BTreeMap<u32, u32>, packs: &BTreeMap<u32, u32>) -> Option<String> {
    for (number, offset) in covered {
        match packs.get(number) {
            None => return Some(format!("it covers pack {number}, which is missing")),
            Some(len) if len < offset => {
                return Some(format!("it covers {offset} bytes of pack {number}, which has {len}"));
            }
            Some(_) => {}
        }
    }
    let (last, _) = covered.last_key_value()?;
    let holds_sections = |len: u32| len > CAR_HEADER.len() as u32;
    let unknown = packs.range(..last).find(|(number, len)| !covered.contains_key(number) && holds_sections(**len));
    unknown.map(|(number, _)| format!("it does not know of pack {number}"))
}

/// Tells the index what a pack holds between `from` and `len`. Gives the end of the last sound section.
///
/// A section that is not what its CID says is left out, and the scan goes on after it: framing is all that is needed
/// for that. Blocks are named by their content, so whatever verifies may be kept, acknowledged or not.
fn replay(index: &Index, number: u32, file: &File, path: &Path, from: u32, len: u32) -> Result<u32> {
    let mut scanner = Scanner::new(file, path, u64::from(from), u64::from(len));
    let mut changes = Changes::new();
    let mut end = from;
    while let Some(section) = scanner.next_section()? {
        let (start, section_end) = (section.start, section.end);
        match note(number, section, &mut changes) {
            Ok(()) => end = section_end as u32,
            Err(reason) => {
                tracing::warn!(pack = %path.display(), offset = start, reason, "left out a damaged section");
            }
        }
        if changes.len() >= BATCH_CHANGES {
            index.apply(&changes, Position { pack: number, offset: end }, false)?;
            changes.clear();
        }
    }
    tracing::info!(pack = %path.display(), from, to = end, "replayed");
    index.apply(&changes, Position { pack: number, offset: end }, false)?;
    Ok(end)
}

fn note(pack: u32, section: Section<'_>, changes: &mut Changes) -> Result<(), String> {
    let (cid, data) = section.content?;
    if cid.codec() == RESERVED_CODEC {
        let keys = tombstone_keys(data).map_err(|error| error.to_string())?;
        changes.extend(keys.into_iter().map(|key| (key, None)));
        return Ok(());
    }
    let location = Location {
        pack,
        offset: (section.start + section.prefix as u64) as u32,
        len: data.len() as u32,
        prefix: section.prefix as u16,
        codec: pack_codec(&cid),
    };
    changes.insert(key_of(cid.hash()), Some(location));
    Ok(())
}

/// Removes what a crash left of a write at the end of the newest pack.
fn cut_tail(pack: &mut FoundPack, end: u32) -> Result<()> {
    let cut = || {
        pack.file.set_len(u64::from(end))?;
        pack.file.sync_data()
    };
    cut().map_err(|error| cannot("cut", &pack.path, error))?;
    tracing::info!(pack = %pack.path.display(), offset = end, bytes = pack.len - end, "cut off an unfinished write");
    pack.len = end;
    Ok(())
}
