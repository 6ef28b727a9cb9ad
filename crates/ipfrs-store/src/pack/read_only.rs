//! Opening a store without writing to the disk. Repairs that recovery would write are made in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ipfrs_core::Result;

use super::PackOptions;
use super::damage::Damage;
use super::file::{FoundPack, Pack};
use super::index::INDEX;
use super::lock::{StoreLock, require_version};
use super::losses::Losses;
use super::recovery::{Recovered, Replay, Rest, count_lost, find_packs, forget_removed, open_index};
use super::shared::Shared;
use crate::Mappings;

/// Opens the existing store in `dir` for reading. If the index is missing or does not match the packs, it is rebuilt
/// in memory, which takes about as much memory as its file would occupy.
pub(super) fn open(dir: &Path, options: PackOptions) -> Result<Recovered> {
    require_version(dir)?;
    let lock = StoreLock::share(dir)?;
    let packs_dir = dir.join("packs");
    let mut found = match packs_dir.is_dir() {
        true => find_packs(&packs_dir, true)?,
        false => BTreeMap::new(),
    };
    let lengths = found.iter().map(|(number, pack)| (*number, pack.len)).collect();
    let losses = Losses::of(dir, true);
    let (index, blocks_before) = open_index(&dir.join(INDEX), &lengths, true, &losses)?;
    forget_removed(&index, &found);
    replay_all(Replay::new(&index, &found, blocks_before.is_some(), &losses), &mut found)?;
    count_lost(&index, blocks_before, &losses)?;

    let mappings = Mappings::default();
    let next_number = found.last_key_value().map_or(1, |(number, _)| number + 1);
    let mut packs = BTreeMap::new();
    for (number, pack) in found {
        let capacity = pack.len;
        packs.insert(number, Arc::new(Pack::open(pack, capacity, &mappings)?));
    }
    let shared = Shared::new(dir.to_owned(), options, mappings, packs, index, lock, losses);
    let torn = Damage::default();
    Ok(Recovered { shared: Arc::new(shared), active: None, next_number, is_behind: false, torn, tail: None })
}

/// Replays the part of the packs that the index does not cover. An incomplete write at the end of the last pack is
/// ignored.
fn replay_all(mut replay: Replay<'_>, found: &mut BTreeMap<u32, FoundPack>) -> Result<()> {
    for pack in found.values_mut() {
        let Some(from) = replay.start(pack) else { continue };
        let rest = replay.pack(pack, from)?;
        drop(replay.take_torn(pack));
        if let Rest::Torn(end) = rest {
            tracing::warn!(
                pack = %pack.path.display(), offset = end, bytes = pack.len - end, "ignored an incomplete write"
            );
            pack.len = end;
        }
    }
    replay.finish()
}
