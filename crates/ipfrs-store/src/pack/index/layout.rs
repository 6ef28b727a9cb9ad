//! Binary format of a run: header, fan-out tables, entries. `docs/design/store.md` describes it in a table.

use std::collections::{BTreeMap, BTreeSet};

use super::decode::{Decoder, seal, unseal};
use crate::pack::record::Location;

/// First bytes of every run.
const MAGIC: &[u8; 8] = b"ipfrsrun";
/// Format version.
const FORMAT: u32 = 1;
/// Length of the part that contains the header length, in bytes.
pub(super) const START_BYTES: usize = 16;
/// Maximum length of a header, in bytes. It would fit 65,536 shapes and as many families.
const MAX_HEADER_BYTES: usize = 4 * 1024 * 1024;
/// Base-2 logarithm of the maximum number of buckets in a fan-out table.
const MAX_BITS: u32 = 25;

/// Properties shared by many blocks: length of the prefix, and [`Location::codec`].
type Shape = (u16, u16);

/// Splits a key into its prefix, which is the digest's hash function and length, and the digest. A key that is not a
/// multihash is all prefix.
pub(super) fn split_key(key: &[u8]) -> (&[u8], &[u8]) {
    match digest_of(key) {
        Some(digest) => key.split_at(key.len() - digest.len()),
        None => (key, &[]),
    }
}

/// Returns the digest of a multihash, or `None` for anything else.
pub(super) fn digest_of(key: &[u8]) -> Option<&[u8]> {
    let (len, digest) = digest_len(key)?;
    (digest.len() == len).then_some(digest)
}

/// Returns the digest length that the prefix of a multihash declares, and the bytes after the prefix.
fn digest_len(key: &[u8]) -> Option<(usize, &[u8])> {
    match key {
        // The common case.
        [code, len, digest @ ..] if *code < 0x80 && *len < 0x80 => Some((usize::from(*len), digest)),
        _ => {
            let (_, rest) = unsigned_varint::decode::u64(key).ok()?;
            unsigned_varint::decode::usize(rest).ok()
        }
    }
}

/// Length of each field of an entry in bytes, in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Widths {
    /// Field: 0 means deleted; other values are indexes into the table of shapes, counted from 1.
    shape: usize,
    /// Field: length of the data.
    len: usize,
    offset: usize,
    pack: usize,
}

impl Widths {
    fn sum(self) -> usize {
        self.shape + self.len + self.offset + self.pack
    }
}

/// Returns the number of bytes that `value` needs.
fn width(value: u32) -> usize {
    (u32::BITS - value.leading_zeros()).div_ceil(8) as usize
}

/// Upper bounds for the content of a run to be written.
#[derive(Debug, Default)]
pub(super) struct Plan {
    widths: Widths,
    shapes: BTreeSet<Shape>,
    /// Number of entries by the prefix of their keys.
    families: BTreeMap<Box<[u8]>, usize>,
}

impl Plan {
    /// Adds an entry.
    pub(super) fn note(&mut self, key: &[u8], location: Option<Location>) {
        let (prefix, _) = split_key(key);
        match self.families.get_mut(prefix) {
            Some(count) => *count += 1,
            None => drop(self.families.insert(prefix.into(), 1)),
        }
        if let Some(Location { pack, offset, len, prefix, codec }) = location {
            self.shapes.insert((prefix, codec));
            self.widen(Widths { shape: 0, len: width(len), offset: width(offset), pack: width(pack) });
        }
    }

    /// Adds all entries of `run`.
    pub(super) fn include(&mut self, layout: &Layout) {
        self.widen(layout.widths);
        self.shapes.extend(&layout.shapes);
        for family in &layout.families {
            *self.families.entry(family.prefix.clone()).or_default() += family.count;
        }
    }

    fn widen(&mut self, by: Widths) {
        let Widths { shape: _, len, offset, pack } = &mut self.widths;
        *len = by.len.max(*len);
        *offset = by.offset.max(*offset);
        *pack = by.pack.max(*pack);
    }
}

/// The entries whose keys have the same prefix, and therefore the same length.
#[derive(Debug)]
pub(super) struct Family {
    /// Prefix of the keys.
    pub(super) prefix: Box<[u8]>,
    /// Length of the digests, in bytes.
    pub(super) digest_bytes: usize,
    /// Number of leading bits of a digest that select its bucket in the fan-out table.
    pub(super) bits: u32,
    /// Number of entries.
    pub(super) count: usize,
    /// Offset of the fan-out table in the file, and offset of the first entry.
    pub(super) fan_at: usize,
    pub(super) entries_at: usize,
    /// Length of an entry, in bytes.
    pub(super) entry_bytes: usize,
}

impl Family {
    /// Returns the number of leading bytes omitted from each digest, because the bucket implies them.
    pub(super) fn implied_bytes(&self) -> usize {
        self.bits as usize / 8
    }

    /// Returns the bucket of a digest in the fan-out table.
    pub(super) fn bucket_of(&self, digest: &[u8]) -> usize {
        let mut first = [0; 4];
        let len = digest.len().min(4);
        first[..len].copy_from_slice(&digest[..len]);
        (u64::from(u32::from_be_bytes(first)) >> (u32::BITS - self.bits)) as usize
    }

    /// Returns the leading bits of the digests in a bucket. The first [`Self::implied_bytes`] bytes are complete.
    pub(super) fn beginning_of(&self, bucket: usize) -> [u8; 4] {
        (((bucket as u64) << (u32::BITS - self.bits)) as u32).to_be_bytes()
    }

    /// Returns the number of buckets in the fan-out table.
    pub(super) fn buckets(&self) -> usize {
        1 << self.bits
    }
}

/// Offsets and lengths of all parts of a run.
#[derive(Debug)]
pub(super) struct Layout {
    widths: Widths,
    shapes: Vec<Shape>,
    /// Ordered by prefix, which is also the order of the keys: the prefix of a multihash is never a prefix of another
    /// one.
    pub(super) families: Vec<Family>,
    /// CRC-32 of the fan-out tables, and CRC-32 of the entries.
    pub(super) fan_checksum: u32,
    pub(super) entries_checksum: u32,
}

impl Layout {
    /// Returns the layout for a plan. Its families have no entries yet.
    pub(super) fn new(plan: Plan) -> Self {
        let shape = width(plan.shapes.len() as u32).max(1);
        let family = |(prefix, capacity): (Box<[u8]>, usize)| {
            let digest_bytes = digest_len(&prefix).map_or(0, |(len, _)| len);
            // Two to four entries per bucket, if the digests are uniformly distributed.
            let bits = capacity.checked_ilog2().unwrap_or(0).saturating_sub(1);
            let bits = bits.min(MAX_BITS).min(digest_bytes as u32 * 8);
            Family { prefix, digest_bytes, bits, count: 0, fan_at: 0, entries_at: 0, entry_bytes: 0 }
        };
        let mut layout = Self {
            widths: Widths { shape, ..plan.widths },
            shapes: plan.shapes.into_iter().collect(),
            families: plan.families.into_iter().map(family).collect(),
            fan_checksum: 0,
            entries_checksum: 0,
        };
        layout.place();
        layout
    }

    /// Computes the offsets of all parts.
    pub(super) fn place(&mut self) {
        let mut at = self.header_bytes();
        for family in &mut self.families {
            family.fan_at = at;
            at += 4 * family.buckets();
        }
        for family in &mut self.families {
            family.entry_bytes = family.digest_bytes - family.implied_bytes() + self.widths.sum();
            family.entries_at = at;
            at += family.count * family.entry_bytes;
        }
    }

    /// Returns the length of the header, in bytes.
    pub(super) fn header_bytes(&self) -> usize {
        let families: usize = self.families.iter().map(|family| 2 + family.prefix.len() + 4).sum();
        START_BYTES + 4 + 4 + 4 + 4 + 4 * self.shapes.len() + 4 + families + 4
    }

    /// Returns the offset of the first entry.
    pub(super) fn entries_at(&self) -> usize {
        self.header_bytes() + self.families.iter().map(|family| 4 * family.buckets()).sum::<usize>()
    }

    /// Returns the length of the whole run, in bytes.
    pub(super) fn file_bytes(&self) -> usize {
        self.families.last().map_or(self.header_bytes(), |last| last.entries_at + last.count * last.entry_bytes)
    }

    /// Returns the encoded header.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.header_bytes());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&(self.header_bytes() as u32).to_le_bytes());
        out.extend_from_slice(&self.fan_checksum.to_le_bytes());
        out.extend_from_slice(&self.entries_checksum.to_le_bytes());
        let Widths { shape, len, offset, pack } = self.widths;
        out.extend([shape, len, offset, pack].map(|width| width as u8));
        out.extend_from_slice(&(self.shapes.len() as u32).to_le_bytes());
        for (prefix, codec) in &self.shapes {
            out.extend_from_slice(&prefix.to_le_bytes());
            out.extend_from_slice(&codec.to_le_bytes());
        }
        out.extend_from_slice(&(self.families.len() as u32).to_le_bytes());
        for family in &self.families {
            out.push(family.prefix.len() as u8);
            out.extend_from_slice(&family.prefix);
            out.push(family.bits as u8);
            out.extend_from_slice(&(family.count as u32).to_le_bytes());
        }
        seal(out)
    }

    /// Returns the length of the header that begins with `start`, in bytes.
    pub(super) fn header_bytes_of(start: [u8; START_BYTES]) -> Result<usize, String> {
        let mut start = Decoder(&start);
        if start.array() != Some(*MAGIC) {
            return Err("it does not start with the header of an index run".to_owned());
        }
        match (start.u32(), start.u32()) {
            (Some(FORMAT), Some(len)) if len as usize <= MAX_HEADER_BYTES => Ok(len as usize),
            (format, _) if format != Some(FORMAT) => Err("its format version is not supported".to_owned()),
            _ => Err("its header is damaged".to_owned()),
        }
    }

    /// Decodes a header.
    pub(super) fn decode(header: &[u8]) -> Result<Self, String> {
        let damaged = || "its header is damaged".to_owned();
        let layout = unseal(header).and_then(|header| Self::fields(Decoder(header))).ok_or_else(damaged)?;
        if layout.header_bytes() == header.len() { Ok(layout) } else { Err(damaged()) }
    }

    fn fields(mut from: Decoder<'_>) -> Option<Self> {
        from.take(START_BYTES)?;
        let (fan_checksum, entries_checksum) = (from.u32()?, from.u32()?);
        let widths = from.array::<4>()?.map(usize::from);
        let [shape, len, offset, pack] = widths.iter().all(|width| *width <= 4).then_some(widths)?;
        let count = from.u32()?;
        let shapes = (0..count).map(|_| Some((from.u16()?, from.u16()?))).collect::<Option<_>>()?;
        let count = from.u32()?;
        let families = (0..count).map(|_| Self::family(&mut from)).collect::<Option<_>>()?;
        let widths = Widths { shape, len, offset, pack };
        let mut layout = Self { widths, shapes, families, fan_checksum, entries_checksum };
        layout.place();
        Some(layout)
    }

    fn family(from: &mut Decoder<'_>) -> Option<Family> {
        let len = from.u8()?;
        let prefix: Box<[u8]> = from.take(usize::from(len))?.into();
        let (bits, count) = (u32::from(from.u8()?), from.u32()? as usize);
        let (digest_bytes, rest) = digest_len(&prefix)?;
        // The length of a key fits in one byte.
        let is_short = digest_bytes <= usize::from(u8::MAX);
        let is_possible = rest.is_empty() && is_short && bits <= MAX_BITS && bits as usize <= digest_bytes * 8;
        let family = Family { prefix, digest_bytes, bits, count, fan_at: 0, entries_at: 0, entry_bytes: 0 };
        is_possible.then_some(family)
    }

    /// Returns the number of entries.
    pub(super) fn entries(&self) -> usize {
        self.families.iter().map(|family| family.count).sum()
    }

    /// Decodes the fields of an entry. Returns the location of its block, or `None` if the block was deleted.
    ///
    /// # Errors
    /// If the fields are not a valid entry.
    pub(super) fn location(&self, mut fields: &[u8]) -> Result<Option<Location>, String> {
        let mut next = |width: usize| {
            let (field, rest) = fields.split_at(width.min(fields.len()));
            fields = rest;
            field.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
        };
        let Widths { shape, len, offset, pack } = self.widths;
        let (shape, len, offset, pack) = (next(shape), next(len), next(offset), next(pack));
        let Some(shape) = shape.checked_sub(1) else { return Ok(None) };
        let (prefix, codec) = self.shapes.get(shape as usize).ok_or("the shape of an entry is not in its table")?;
        Ok(Some(Location { pack, offset, len, prefix: *prefix, codec: *codec }))
    }

    /// Appends the fields of an entry to `out`.
    pub(super) fn put_location(&self, location: Option<Location>, out: &mut Vec<u8>) {
        let Location { pack, offset, len, prefix, codec } =
            location.unwrap_or(Location { pack: 0, offset: 0, len: 0, prefix: 0, codec: 0 });
        let shape = match location {
            Some(_) => self.shapes.binary_search(&(prefix, codec)).map_or(0, |place| place as u32 + 1),
            None => 0,
        };
        let widths = self.widths;
        let fields = [(shape, widths.shape), (len, widths.len), (offset, widths.offset), (pack, widths.pack)];
        for (value, width) in fields {
            out.extend_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}
