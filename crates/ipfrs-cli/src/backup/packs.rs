//! Copying of packs.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

use anyhow::Result;
use ipfrs_rpc::types::SnapshotPack;

use super::copier::{Named, Sum};
use super::manifest::Source;
use super::{Copier, Destination, HeldSnapshot, PackEntry, cannot, create_private};

/// How much a run copies of a pack.
#[derive(Debug)]
enum Step {
    /// No bytes: the copy is complete.
    Keep(PackEntry),
    /// The bytes behind the copy if the copy is the beginning of the pack; otherwise all of it.
    Append(PackEntry),
    /// All of it.
    Copy,
}

/// Work on the packs of a snapshot.
#[derive(Debug)]
pub(crate) struct Plan {
    steps: Vec<(SnapshotPack, Source, Step)>,
    /// Bytes that will be written.
    pub(crate) bytes: u64,
}

/// Outcome of copying packs.
#[derive(Debug, Default)]
pub(crate) struct CopiedPacks {
    pub(crate) packs: Vec<PackEntry>,
    /// Bytes that were written.
    pub(crate) bytes: u64,
    /// Number of packs of which something was written.
    pub(crate) changed: u64,
}

/// Compares the packs of a snapshot with their copies. Reads no content.
pub(crate) fn plan(snapshot: &HeldSnapshot, destination: &Destination, copier: &Copier) -> Result<Plan> {
    let mut plan = Plan { steps: Vec::new(), bytes: 0 };
    for pack in snapshot.packs() {
        let path = snapshot.pack(pack.number);
        let metadata = std::fs::metadata(&path).map_err(|e| cannot("find", &path, &e))?;
        let (source, bytes) = (Source::of_pack(&metadata), u64::from(pack.bytes));
        let step = match destination.known(pack.number) {
            Some(known) if !has(&destination.pack(&known.file), known.bytes) => Step::Copy,
            Some(known) if known.bytes == bytes && known.source == source => Step::Keep(known.clone()),
            Some(known) if known.bytes <= bytes => Step::Append(known.clone()),
            _ => Step::Copy,
        };
        match &step {
            Step::Keep(_) => {}
            Step::Append(known) => {
                plan.bytes += bytes - known.bytes;
                copier.expect(bytes);
            }
            Step::Copy => {
                plan.bytes += bytes;
                copier.expect(bytes);
            }
        }
        plan.steps.push((pack.clone(), source, step));
    }
    Ok(plan)
}

/// Whether a file has at least so many bytes.
fn has(path: &Path, bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.len() >= bytes)
}

/// Copies what the plan says. After each pack, a run that is killed need not copy it again.
pub(crate) fn copy_packs(
    plan: Plan,
    snapshot: &HeldSnapshot,
    destination: &mut Destination,
    copier: &mut Copier,
) -> Result<CopiedPacks> {
    let mut copied = CopiedPacks::default();
    for (pack, source, step) in plan.steps {
        let (number, bytes) = (pack.number, u64::from(pack.bytes));
        let known = match step {
            Step::Keep(entry) => {
                copied.packs.push(entry);
                continue;
            }
            Step::Append(entry) => Some(entry),
            Step::Copy => None,
        };
        let path = snapshot.pack(number);
        let mut original = File::open(&path).map_err(|e| cannot("open", &path, &e))?;
        let mut from = Named { file: &mut original, path: &path };
        let mut sum = Sum::new();
        let (file, begin) = match known {
            Some(known) if begins_like(&known, &mut from, &mut sum, copier)? => (known.file, known.bytes),
            _ => {
                sum = Sum::new();
                from.file.seek(SeekFrom::Start(0)).map_err(|e| cannot("read", &path, &e))?;
                (destination.new_name(number), 0)
            }
        };
        if begin < bytes {
            let target = destination.pack(&file);
            append(from, bytes - begin, begin, &target, &mut sum, copier)?;
            copied.bytes += bytes - begin;
            copied.changed += 1;
        }
        let entry = PackEntry { number, file, bytes, sha256: sum.hex(), source };
        destination.record(&entry)?;
        copied.packs.push(entry);
    }
    Ok(copied)
}

/// Reads as much of the pack as its copy has, and compares the hashes: the repo may have been replaced by another
/// state of itself, in which the pack has other content.
fn begins_like(known: &PackEntry, from: &mut Named<'_>, sum: &mut Sum, copier: &mut Copier) -> Result<bool> {
    copier.copy(Named { file: from.file, path: from.path }, known.bytes, sum, None)?;
    Ok(sum.clone().hex() == known.sha256)
}

/// Appends bytes to a copy that has `begin` of them, and removes what an unfinished run has appended.
fn append(from: Named<'_>, bytes: u64, begin: u64, target: &Path, sum: &mut Sum, copier: &mut Copier) -> Result<()> {
    let failed = |e: &std::io::Error| cannot("write", target, e);
    let mut file = match begin {
        0 => create_private(target),
        _ => File::options().write(true).open(target),
    }
    .map_err(|e| failed(&e))?;
    file.set_len(begin).and_then(|()| file.seek(SeekFrom::End(0))).map_err(|e| failed(&e))?;
    copier.copy(from, bytes, sum, Some(Named { file: &mut file, path: target }))?;
    file.sync_data().map_err(|e| failed(&e))?;
    // The copy is not read again soon, and its pages would push hot content out of memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    Ok(())
}
