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
use super::recovery::MAX_TORN_BYTES;
use super::scan::Section;

/// Maximum number of sections that are remembered. Those behind are only logged.
const MAX_SECTIONS: usize = 10_000;

#[derive(Debug)]
struct DamagedSection {
    pack: u32,
    start: u64,
    end: u64,
    /// The damaged block; `None` if the content ID may be damaged too.
    key: Option<Key>,
}

/// Damaged sections, in the order of the replay.
#[derive(Debug, Default)]
pub(super) struct Damage(Vec<DamagedSection>);

impl Damage {
    /// Adds a section of a pack.
    pub(super) fn add(&mut self, pack: u32, section: &Section<'_>) {
        if self.0.len() < MAX_SECTIONS {
            let (start, end, key) = (section.start, section.end, section.lost_block());
            self.0.push(DamagedSection { pack, start, end, key });
        }
    }

    /// Adds sections that follow these.
    pub(super) fn append(&mut self, next: Self) {
        self.0.extend(next.0);
        self.0.truncate(MAX_SECTIONS);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the blocks that a later section has or deletes.
    pub(super) fn forget(&mut self, is_replaced: impl Fn(&Key) -> bool) {
        self.0.retain(|section| !section.key.as_ref().is_some_and(&is_replaced));
    }

    /// Removes the sections of a pack from `end` on, which are not between sound ones.
    pub(super) fn cut(&mut self, pack: u32, end: u32) {
        self.0.retain(|section| section.pack != pack || section.start < u64::from(end));
    }

    /// Removes and returns the sections of the newest pack that may be rests of an incomplete write.
    pub(super) fn take_torn(&mut self, newest: &FoundPack) -> Self {
        let torn_from = u64::from(newest.len.saturating_sub(MAX_TORN_BYTES));
        let is_torn = |section: &DamagedSection| section.pack == newest.number && section.start >= torn_from;
        let (torn, other) = std::mem::take(&mut self.0).into_iter().partition(is_torn);
        self.0 = other;
        Self(torn)
    }

    /// Returns the number of the pack of the first section.
    pub(super) fn pack(&self) -> Option<u32> {
        self.0.first().map(|section| section.pack)
    }

    /// Replaces the sections of the pack `file` at `path` with padding. Otherwise a later replay would take them for
    /// damage, once the pack is longer or no longer the newest.
    pub(super) fn pad(&self, file: &File, path: &Path) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let failed = |error| cannot("write", path, error);
        for section in &self.0 {
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
        let keys: Vec<_> = self.0.iter().filter_map(|section| section.key.clone()).collect();
        let present: BTreeMap<_, _> = keys.iter().zip(index.locate(&keys)?).collect();
        self.forget(|key| present.get(key).is_some_and(Option::is_some));
        for sections in self.0.chunk_by(|a, b| a.pack == b.pack) {
            let Some(DamagedSection { pack, start, .. }) = sections.first() else { continue };
            let count = sections.len();
            losses.add(&format!(
                "pack {pack} is damaged: {count} of its sections do not match their content IDs, the first at offset \
                 {start} {OR_UNFINISHED}"
            ));
        }
        Ok(())
    }
}
