//! Sections that a replay skips because their data does not match their content ID.
//!
//! A power failure leaves such sections in the part of the newest pack that was not synced, which an index tells from
//! the rest. Elsewhere they are damage, and their blocks are lost unless a later section has them or deletes them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ipfrs_core::Result;

#[cfg(test)]
use super::crash_recorder;
use super::file::FoundPack;
use super::index::Index;
use super::lock::cannot;
use super::losses::{Losses, OR_UNFINISHED};
use super::padding;
use super::record::Key;
use super::scan::Section;

/// Maximum length of an incomplete write after the last sound section. A crash does not leave a longer rest, which is
/// kept. So is a rest that does not begin with zeros and contains sound blocks.
pub(super) const MAX_TORN_BYTES: u32 = 64 * 1024 * 1024;

/// Maximum number of sections that are remembered. Of those behind, only the first is.
const MAX_SECTIONS: usize = if cfg!(test) { 100 } else { 100_000 };

#[derive(Debug, PartialEq, Eq)]
struct DamagedSection {
    pack: u32,
    start: u64,
    end: u64,
    /// The damaged block; `None` if the content ID may be damaged too.
    key: Option<Key>,
}

/// Damaged sections, in the order of the replay.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    sections: Vec<DamagedSection>,
    /// Pack and offset of the first section that is not remembered.
    more: Option<(u32, u64)>,
}

impl Damage {
    /// Adds a section of a pack.
    pub(super) fn add(&mut self, pack: u32, section: &Section<'_>) {
        let (start, end, key) = (section.start, section.end, section.lost_block());
        self.push(DamagedSection { pack, start, end, key });
    }

    fn push(&mut self, section: DamagedSection) {
        match self.sections.len() < MAX_SECTIONS {
            true => self.sections.push(section),
            false => _ = self.more.get_or_insert((section.pack, section.start)),
        }
    }

    /// Adds sections that follow these.
    pub(super) fn append(&mut self, next: Self) {
        next.sections.into_iter().for_each(|section| self.push(section));
        self.more = self.more.or(next.more);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sections.is_empty()
    }

    /// Removes the blocks that a later section has or deletes.
    pub(super) fn forget(&mut self, is_replaced: impl Fn(&Key) -> bool) {
        self.sections.retain(|section| !section.key.as_ref().is_some_and(&is_replaced));
    }

    /// Removes the sections of a pack from `end` on, which are not between sound ones.
    pub(super) fn cut(&mut self, pack: u32, end: u32) {
        let is_cut = |number: u32, start: u64| number == pack && start >= u64::from(end);
        self.sections.retain(|section| !is_cut(section.pack, section.start));
        self.more.take_if(|(number, start)| is_cut(*number, *start));
    }

    /// Removes and returns the sections of the newest pack that may be rests of an incomplete write.
    pub(super) fn take_torn(&mut self, newest: &FoundPack) -> Self {
        let torn_from = u64::from(newest.len.saturating_sub(MAX_TORN_BYTES));
        let is_torn = |number: u32, start: u64| number == newest.number && start >= torn_from;
        let all = std::mem::take(&mut self.sections).into_iter();
        let (sections, other) = all.partition(|section| is_torn(section.pack, section.start));
        self.sections = other;
        Self { sections, more: self.more.take_if(|(number, start)| is_torn(*number, *start)) }
    }

    /// Returns the number of the pack of the first section.
    pub(super) fn pack(&self) -> Option<u32> {
        self.sections.first().map(|section| section.pack)
    }

    /// Returns the offset of the first section.
    pub(super) fn start(&self) -> Option<u64> {
        self.sections.first().map(|section| section.start)
    }

    /// Returns an encoding, for the continuation of a replay by another process.
    pub(super) fn encode(&self) -> Vec<u8> {
        let (pack, start) = self.more.unwrap_or_default();
        let mut out = [&pack.to_le_bytes()[..], &start.to_le_bytes()].concat();
        for DamagedSection { pack, start, end, key } in &self.sections {
            // A key has at most 148 bytes, and never none.
            let key = key.as_deref().unwrap_or_default();
            out.extend(
                [&pack.to_le_bytes()[..], &start.to_le_bytes(), &end.to_le_bytes(), &[key.len() as u8], key].concat(),
            );
        }
        out
    }

    /// Decodes the output of [`encode`](Self::encode). Returns `None` for any other bytes.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (pack, rest) = bytes.split_first_chunk()?;
        let (start, mut rest) = rest.split_first_chunk()?;
        let more = Some((u32::from_le_bytes(*pack), u64::from_le_bytes(*start))).filter(|more| *more != (0, 0));
        let mut sections = Vec::new();
        while !rest.is_empty() {
            let (pack, after) = rest.split_first_chunk()?;
            let (start, after) = after.split_first_chunk()?;
            let (end, after) = after.split_first_chunk()?;
            let (len, after) = after.split_first()?;
            let (key, after) = after.split_at_checked(usize::from(*len))?;
            let [start, end] = [start, end].map(|number| u64::from_le_bytes(*number));
            let key = Some(key).filter(|key| !key.is_empty()).map(Key::from);
            sections.push(DamagedSection { pack: u32::from_le_bytes(*pack), start, end, key });
            rest = after;
        }
        Some(Self { sections, more })
    }

    /// Replaces the sections of the pack `file` at `path` with padding. Otherwise a later replay would take them for
    /// damage, once the pack is longer or no longer the newest.
    pub(super) fn pad(&self, file: &File, path: &Path) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let failed = |error| cannot("write", path, error);
        #[cfg(test)]
        if full_disk::IS_FULL.get() {
            return Err(failed(std::io::ErrorKind::StorageFull.into()));
        }
        for section in &self.sections {
            let Some(padding) = padding::section_of((section.end - section.start) as usize)? else { continue };
            #[cfg(test)]
            crash_recorder::before(path);
            file.write_all_at(&padding, section.start).map_err(failed)?;
        }
        #[cfg(test)]
        let _syncing = crash_recorder::before_sync(file);
        file.sync_data().map_err(failed)
    }

    /// Adds the blocks that the index does not locate elsewhere to the losses, once all packs are replayed.
    pub(super) fn note(mut self, index: &Index, losses: &Losses) -> Result<()> {
        let keys: Vec<_> = self.sections.iter().filter_map(|section| section.key.clone()).collect();
        let present: BTreeMap<_, _> = keys.iter().zip(index.locate(&keys)?).collect();
        self.forget(|key| present.get(key).is_some_and(Option::is_some));
        for sections in self.sections.chunk_by(|a, b| a.pack == b.pack) {
            let Some(DamagedSection { pack, start, .. }) = sections.first() else { continue };
            let count = sections.len();
            losses.add(&format!(
                "pack {pack} is damaged: {count} of its sections do not match their content IDs, the first at offset \
                 {start} {OR_UNFINISHED}"
            ))?;
        }
        if let Some((pack, start)) = self.more {
            losses.add(&format!(
                "pack {pack} is damaged: more sections from offset {start} on, maybe also of later packs, do not match \
                 their content IDs {OR_UNFINISHED}"
            ))?;
        }
        Ok(())
    }
}

/// A simulated disk that has no space to overwrite.
#[cfg(test)]
pub(super) mod full_disk {
    thread_local! {
        pub(in crate::pack) static IS_FULL: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(start: u64) -> DamagedSection {
        let key = start.is_multiple_of(2).then(|| Key::from([0x12, 1, start as u8].as_slice()));
        DamagedSection { pack: 7, start, end: start + 100, key }
    }

    #[test]
    fn damage_is_the_same_after_encoding() {
        for count in [0, 1, MAX_SECTIONS, MAX_SECTIONS + 2] {
            let mut damage = Damage::default();
            (18..18 + count as u64).for_each(|start| damage.push(section(start)));
            let encoded = damage.encode();
            assert_eq!(Damage::decode(&encoded), Some(damage));
            assert_eq!(Damage::decode(&encoded[..encoded.len() - 1]), None);
        }
    }

    #[test]
    fn damage_behind_what_is_remembered_is_a_loss() {
        let dir = tempfile::tempdir().unwrap();
        let index = Index::begin(&dir.path().join("index"), false).unwrap();
        let losses = || {
            let mut damage = Damage::default();
            (0..=MAX_SECTIONS as u64).for_each(|start| damage.push(section(start)));
            damage
        };
        let mut cut = losses();
        cut.cut(7, MAX_SECTIONS as u32);
        for (damage, lines) in [(cut, 1), (losses(), 2)] {
            let losses = Losses::of(dir.path(), false);
            damage.note(&index, &losses).unwrap();
            let noted = std::fs::read_to_string(dir.path().join("lost-blocks")).unwrap();
            assert_eq!(noted.lines().count(), lines, "{noted}");
        }
    }
}
