//! States in which a crash of the computer may leave a file system.
//!
//! Without a sync, nothing is certain. Data that was written may be on the disk in any part, in units of sectors; a
//! file may have its new length without its new data. Entries of a directory reach the disk in the order of their
//! changes, but those of different directories in any order. A sync of a file makes its data durable and not its name;
//! a sync of its directory does that (fsync(2)).

use std::collections::{HashMap, HashSet};

use rand::rngs::SmallRng;
use rand::{Rng, RngCore};

use super::tree::{Change, Number, Tree};

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;

/// Share of the changes without a sync that is lost.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loss {
    /// Everything: only the process was killed.
    Nothing,
    /// Nothing.
    Everything,
    /// A random part.
    Some,
}

/// Returns the state after a crash that followed the changes in `log`.
pub(crate) fn after(log: &[Change], loss: Loss, random: &mut SmallRng) -> Tree {
    let mut tree = Tree::default();
    if let Loss::Nothing = loss {
        log.iter().for_each(|change| tree.apply(change));
        return tree;
    }
    let durable = durable(log);
    let fates = Fates::draw(log, &durable, loss, random);
    for (change, is_durable) in log.iter().zip(&durable) {
        if *is_durable {
            tree.apply(change);
            continue;
        }
        match change {
            // Without a name it does not appear.
            Change::Create { .. } => tree.apply(change),
            Change::Link { directory, .. } | Change::Unlink { directory, .. } => {
                fates.keep(*directory, || tree.apply(change));
            }
            Change::Rename { to, .. } => fates.keep(to.0, || tree.apply(change)),
            Change::Truncate { file, .. } => fates.keep(*file, || tree.apply(change)),
            Change::Write { file, offset, data } => {
                fates.keep(*file, || write_part(&mut tree, *file, *offset, data, loss, random));
            }
            Change::Sync { .. } | Change::FailedSync { .. } => {}
        }
    }
    tree
}

/// Returns for each change whether a sync made it durable.
fn durable(log: &[Change]) -> Vec<bool> {
    let mut synced = HashSet::new();
    let mut durable: Vec<bool> = Vec::with_capacity(log.len());
    for change in log.iter().rev() {
        durable.push(match change {
            Change::Sync { number } => {
                synced.insert(*number);
                true
            }
            Change::FailedSync { number } => {
                synced.remove(number);
                true
            }
            Change::Create { .. } => true,
            Change::Link { directory, .. } | Change::Unlink { directory, .. } => synced.contains(directory),
            Change::Rename { to, .. } => synced.contains(&to.0),
            Change::Write { file, .. } | Change::Truncate { file, .. } => synced.contains(file),
        });
    }
    durable.reverse();
    durable
}

/// Number of changes that survive of those of each file or directory that are not durable. Of a file, those from a
/// truncation on survive only if it does.
struct Fates(std::cell::RefCell<HashMap<Number, usize>>);

impl Fates {
    fn draw(log: &[Change], durable: &[bool], loss: Loss, random: &mut SmallRng) -> Self {
        let mut open: HashMap<Number, (usize, Vec<usize>)> = HashMap::new();
        for (change, _) in log.iter().zip(durable).filter(|(_, durable)| !**durable) {
            let (number, is_truncation) = match change {
                Change::Link { directory, .. } | Change::Unlink { directory, .. } => (*directory, true),
                Change::Rename { to, .. } => (to.0, true),
                Change::Truncate { file, .. } => (*file, true),
                Change::Write { file, .. } => (*file, false),
                Change::Create { .. } | Change::Sync { .. } | Change::FailedSync { .. } => continue,
            };
            let (count, cuts) = open.entry(number).or_default();
            if is_truncation {
                cuts.push(*count);
            }
            *count += 1;
        }
        let mut numbers: Vec<_> = open.keys().copied().collect();
        numbers.sort_unstable();
        let fates = numbers.into_iter().map(|number| {
            let (count, cuts) = &open[&number];
            let choice = match loss {
                Loss::Everything => cuts.first().copied().unwrap_or(*count),
                _ => match random.random_range(0..=cuts.len()) {
                    all if all == cuts.len() => *count,
                    cut => cuts[cut],
                },
            };
            (number, choice)
        });
        Self(std::cell::RefCell::new(fates.collect()))
    }

    /// Calls `apply` if the next change of `number` survives.
    fn keep(&self, number: Number, apply: impl FnOnce()) {
        let mut fates = self.0.borrow_mut();
        let left = fates.get_mut(&number).unwrap();
        if *left > 0 {
            *left -= 1;
            apply();
        }
    }
}

/// Writes what survives of a write.
fn write_part(tree: &mut Tree, file: Number, offset: u64, data: &[u8], loss: Loss, random: &mut SmallRng) {
    if let Loss::Everything = loss {
        return;
    }
    let length = tree.file(file).unwrap().len() as u64;
    let end = offset + data.len() as u64;
    match random.random_range(0..4) {
        0 => {}
        1 => tree.apply(&Change::Write { file, offset, data: data.into() }),
        kind => {
            if kind == 2 && end > length {
                tree.apply(&Change::Truncate { file, length: end });
            }
            // Sectors count from the beginning of the file.
            let mut begin = 0;
            while begin < data.len() {
                let sector_end = SECTOR - (offset as usize + begin) % SECTOR;
                let sector = begin..data.len().min(begin + sector_end);
                if random.next_u32().is_multiple_of(2) {
                    let part =
                        Change::Write { file, offset: offset + sector.start as u64, data: data[sector.clone()].into() };
                    tree.apply(&part);
                }
                begin = sector.end;
            }
        }
    }
}
