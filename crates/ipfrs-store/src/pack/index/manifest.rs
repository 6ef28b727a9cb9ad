//! The manifest: one small file that lists the parts of the index and holds entries that are too few for a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::{Decoder, seal, unseal};
use super::memory::Memory;
use super::run::{Run, Said};
use super::totals::Totals;
use crate::pack::changes::PackUse;
use crate::pack::record::Location;

/// First bytes of every manifest.
const MAGIC: &[u8; 8] = b"ipfrsidx";
/// Format version. An index with an unknown version is rebuilt.
const FORMAT: u32 = 2;

/// Format version of an index whose rebuild is not finished. Its notes precede the entries.
const UNFINISHED_FORMAT: u32 = 3;

/// Format version of indexes without padding.
const UNPADDED_FORMAT: u32 = 1;

/// A reference to a run in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedRun {
    /// Number of the run.
    pub(super) number: u64,
    /// Checksum of the run ([`Run::checksum`]).
    pub(super) checksum: u32,
}

impl NamedRun {
    /// Returns the reference to `run`.
    pub(super) fn of(run: &Run) -> Self {
        Self { number: run.number(), checksum: run.checksum() }
    }
}

/// Content of the manifest.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) totals: Totals,
    pub(super) packs: BTreeMap<u32, PackUse>,
    /// Ordered from oldest to newest.
    pub(super) runs: Vec<NamedRun>,
    /// Entries newer than all runs.
    pub(super) memory: Memory,
    /// Notes of a rebuild that is not finished.
    pub(super) unfinished: Option<Arc<[u8]>>,
}

/// Returns the encoded manifest.
pub(super) fn encode(
    totals: Totals,
    packs: &BTreeMap<u32, PackUse>,
    runs: impl ExactSizeIterator<Item = NamedRun>,
    memory: &Memory,
    unfinished: Option<&[u8]>,
) -> Vec<u8> {
    let notes = unfinished.map_or(0, <[u8]>::len);
    let mut out = Vec::with_capacity(64 + 32 * packs.len() + 64 * memory.len() + notes);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&unfinished.map_or(FORMAT, |_| UNFINISHED_FORMAT).to_le_bytes());
    out.extend_from_slice(&totals.blocks.to_le_bytes());
    out.extend_from_slice(&totals.payload_bytes.to_le_bytes());
    out.extend_from_slice(&(packs.len() as u32).to_le_bytes());
    for (number, PackUse { covered, live_bytes, tombstone_bytes, padding_bytes }) in packs {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&covered.to_le_bytes());
        out.extend_from_slice(&live_bytes.to_le_bytes());
        out.extend_from_slice(&tombstone_bytes.to_le_bytes());
        out.extend_from_slice(&padding_bytes.to_le_bytes());
    }
    out.extend_from_slice(&(runs.len() as u32).to_le_bytes());
    for NamedRun { number, checksum } in runs {
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
    }
    if let Some(notes) = unfinished {
        out.extend_from_slice(&(notes.len() as u32).to_le_bytes());
        out.extend_from_slice(notes);
    }
    out.extend_from_slice(&(memory.len() as u32).to_le_bytes());
    for (key, said) in memory.iter() {
        // A key has at most 148 bytes: a multihash prefix of at most 20 and a digest of at most 128.
        out.push(key.len() as u8);
        out.extend_from_slice(key);
        out.push(u8::from(said.is_some()));
        out.extend_from_slice(said.map(Location::to_bytes).as_ref().map_or(&[], |bytes| &bytes[..]));
    }
    seal(out)
}

impl Manifest {
    /// Decodes the output of [`encode`].
    ///
    /// # Errors
    /// A description of the damage.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes = unseal(bytes).ok_or("its manifest is damaged")?;
        let mut from = Decoder(bytes);
        if from.array() != Some(*MAGIC) {
            return Err("it is not an index manifest".to_owned());
        }
        let format = match from.u32() {
            Some(format @ (FORMAT | UNPADDED_FORMAT | UNFINISHED_FORMAT)) => format,
            format => return Err(format!("its format is {} instead of {FORMAT}", format.unwrap_or_default())),
        };
        Self::fields(from, format).ok_or_else(|| "its manifest is damaged".to_owned())
    }

    fn fields(mut from: Decoder<'_>, format: u32) -> Option<Self> {
        let totals = Totals { blocks: from.u64()?, payload_bytes: from.u64()? };
        let mut manifest = Self { totals, ..Self::default() };
        for _ in 0..from.u32()? {
            let number = from.u32()?;
            let pack_use = PackUse {
                covered: from.u32()?,
                live_bytes: from.u64()?,
                tombstone_bytes: from.u64()?,
                padding_bytes: if format == UNPADDED_FORMAT { 0 } else { from.u64()? },
            };
            manifest.packs.insert(number, pack_use);
        }
        for _ in 0..from.u32()? {
            manifest.runs.push(NamedRun { number: from.u64()?, checksum: from.u32()? });
        }
        if format == UNFINISHED_FORMAT {
            let len = from.u32()? as usize;
            manifest.unfinished = Some(from.take(len)?.into());
        }
        for _ in 0..from.u32()? {
            let len = from.u8()?;
            let key = from.take(usize::from(len))?.into();
            manifest.memory.insert(key, said(&mut from)?);
        }
        from.0.is_empty().then_some(manifest)
    }
}

fn said(from: &mut Decoder<'_>) -> Option<Said> {
    match from.u8()? {
        0 => Some(None),
        _ => Some(Some(Location::from_bytes(&from.array()?))),
    }
}
