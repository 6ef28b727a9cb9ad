//! Opening a store without writing to the disk. Repairs that recovery would write are made in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ipfrs_core::Result;

use super::PackOptions;
use super::damage::Damage;
use super::file::{FoundPack, Pack};
use super::index::{INDEX, Index};
use super::lock::{StoreLock, require_version};
use super::losses::Losses;
use super::recovery::{Recovered, Rest, count_lost, find_packs, forget_removed, open_index, replay_pack, replay_start};
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
    replay_all(&index, &mut found, blocks_before.is_some(), &losses)?;
    count_lost(&index, blocks_before, &losses);

    let mappings = Mappings::default();
    let next_number = found.last_key_value().map_or(1, |(number, _)| number + 1);
    let mut packs = BTreeMap::new();
    for (number, pack) in found {
        let capacity = pack.len;
        packs.insert(number, Arc::new(Pack::open(pack, capacity, &mappings)?));
    }
    let shared = Shared::new(dir.to_owned(), options, mappings, packs, index, lock, losses);
    Ok(Recovered { shared: Arc::new(shared), active: None, next_number, is_behind: false, torn: Damage::default() })
}

/// Replays the part of the packs that the index does not cover. An incomplete write at the end of the newest pack is
/// ignored.
fn replay_all(
    index: &Index,
    found: &mut BTreeMap<u32, FoundPack>,
    is_loss_counted: bool,
    losses: &Losses,
) -> Result<()> {
    let pack_uses = index.packs();
    let newest = found.last_key_value().map(|(number, _)| *number);
    let mut damage = Damage::default();
    for pack in found.values_mut() {
        let Some(from) = replay_start(&pack_uses, pack.number).filter(|from| *from < pack.len) else { continue };
        let is_newest = Some(pack.number) == newest;
        let may_be_torn = is_newest && (!pack_uses.is_empty() || is_loss_counted);
        let rest = replay_pack(index, pack, from, is_newest, may_be_torn, losses, &mut damage)?;
        if may_be_torn {
            drop(damage.take_torn(pack));
        }
        if let Rest::Torn(end) = rest {
            tracing::warn!(
                pack = %pack.path.display(), offset = end, bytes = pack.len - end, "ignored an incomplete write"
            );
            pack.len = end;
        }
    }
    damage.note(index, losses)
}
