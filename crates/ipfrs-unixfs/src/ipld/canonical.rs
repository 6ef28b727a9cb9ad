//! Conversion of DAG-CBOR to its canonical form, for the blocks that Kubo accepts.

use std::ops::Range;

use ipfrs_core::{Error, Result};

use super::cbor::{Cursor, Item, check_unique};
use super::{Strictness, check_nesting};

/// Converts a block of DAG-CBOR to its canonical form: sorted keys, floats of 64 bits, and `null` for `undefined`.
/// Like Kubo, it rejects every other deviation from the canonical form.
///
/// # Errors
/// Returns [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an invalid block, with the reason, and
/// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for lists and maps more than
/// [`MAX_BLOCK_NESTING`](ipfrs_core::limits::MAX_BLOCK_NESTING) deep.
pub fn canonical_cbor(data: &[u8]) -> Result<Vec<u8>> {
    written(data, true)
}

/// Same as [`canonical_cbor`], but the keys of maps stay in the order of the data.
///
/// # Errors
/// As [`canonical_cbor`].
pub fn ordered_cbor(data: &[u8]) -> Result<Vec<u8>> {
    written(data, false)
}

fn written(data: &[u8], sorts: bool) -> Result<Vec<u8>> {
    let mut writer = Writer { cursor: Cursor { rest: data, strictness: Strictness::AsKubo }, sorts, out: Vec::new() };
    writer.value(0)?;
    match writer.cursor.rest.len() {
        0 => Ok(writer.out),
        left => Err(Error::invalid(format!("{left} bytes follow its end"))),
    }
}

struct Writer<'a> {
    cursor: Cursor<'a>,
    /// Whether the keys of maps are sorted.
    sorts: bool,
    out: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Reads an item and returns it with its bytes. For lists and maps, reads only the head.
    fn item(&mut self) -> Result<(Item<'a>, &'a [u8])> {
        let before = self.cursor.rest;
        let item = self.cursor.item()?;
        Ok((item, &before[..before.len() - self.cursor.rest.len()]))
    }

    /// Writes a value with its contents. `depth` bounds the recursion.
    fn value(&mut self, depth: usize) -> Result<()> {
        let (item, bytes) = self.item()?;
        match item {
            Item::Scalar => self.out.extend_from_slice(&scalar(bytes)),
            Item::Link(_) | Item::Text(_) => self.out.extend_from_slice(bytes),
            Item::List(len) => {
                check_nesting(depth)?;
                self.out.extend_from_slice(bytes);
                for _ in 0..len {
                    self.value(depth + 1)?;
                }
            }
            Item::Map(len) => {
                check_nesting(depth)?;
                self.out.extend_from_slice(bytes);
                self.entries(len, depth)?;
            }
        }
        Ok(())
    }

    /// Writes the entries of a map, and sorts them if that is requested.
    fn entries(&mut self, len: u64, depth: usize) -> Result<()> {
        let start = self.out.len();
        let mut entries: Vec<(&'a [u8], Range<usize>)> = Vec::new();
        for _ in 0..len {
            let from = self.out.len();
            let (Item::Text(key), bytes) = self.item()? else {
                return Err(Error::invalid("a map key is not text"));
            };
            self.out.extend_from_slice(bytes);
            self.value(depth + 1)?;
            entries.push((key, from..self.out.len()));
        }
        if !entries.is_sorted_by(|(one, _), (next, _)| (one.len(), one) < (next.len(), next)) {
            check_unique(&mut entries.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
            if !self.sorts {
                return Ok(());
            }
            entries.sort_by_key(|(key, _)| (key.len(), *key));
            let unordered = self.out.split_off(start);
            for (_, range) in entries {
                self.out.extend_from_slice(&unordered[range.start - start..range.end - start]);
            }
        }
        Ok(())
    }
}

/// Returns the canonical form of a number or simple value.
fn scalar(bytes: &[u8]) -> Vec<u8> {
    let float = |value: f64| [&[0xfb][..], &value.to_be_bytes()].concat();
    match *bytes {
        [0xf7] => vec![0xf6],
        [0xf9, high, low] => float(half(u16::from_be_bytes([high, low]))),
        [0xfa, a, b, c, d] => float(f64::from(f32::from_be_bytes([a, b, c, d]))),
        _ => bytes.to_vec(),
    }
}

/// Returns the value of a finite 16-bit floating-point number.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * f64::powi(2.0, -24),
        exponent => (1024.0 + fraction) * f64::powi(2.0, exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_cbor_writes_what_kubo_writes_for_what_it_reads() {
        for (data, expected) in [
            // {"b": 1, "a": 2, "aa": undefined}
            (&b"\xa3\x61b\x01\x61a\x02\x62aa\xf7"[..], &b"\xa3\x61a\x02\x61b\x01\x62aa\xf6"[..]),
            (b"\xf9\x3c\x00", b"\xfb\x3f\xf0\0\0\0\0\0\0"),
            (b"\xf9\x80\x01", b"\xfb\xbe\x70\0\0\0\0\0\0"),
            (b"\xfa\x3f\xc0\0\0", b"\xfb\x3f\xf8\0\0\0\0\0\0"),
            (b"\x82\xf7\xa2\x61y\x80\x61x\x41\x00", b"\x82\xf6\xa2\x61x\x41\x00\x61y\x80"),
            (b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x3b\x7f\xff\xff\xff\xff\xff\xff\xff"),
        ] {
            assert_eq!(canonical_cbor(data).unwrap(), expected, "{data:x?}");
            assert_eq!(canonical_cbor(&ordered_cbor(data).unwrap()).unwrap(), expected, "{data:x?}");
        }
        for data in [
            &b"\x18\x17"[..],
            b"\x19\x00\xff",
            b"\x1a\0\0\xff\xff",
            b"\x1b\0\0\0\0\xff\xff\xff\xff",
            b"\x58\x01\x00",
            b"\x78\x01x",
            b"\x98\x01\x00",
            b"\xb8\x01\x61x\x00",
            b"\xd9\x00\x2a\x45\x00\x01\x55\x00\x00",
            b"\xf9\x7c\x00",
            b"\xf9\x7e\x00",
            b"\xfa\xff\x80\0\0",
            b"\xfb\x7f\xf8\0\0\0\0\0\0",
            b"\x3b\x80\0\0\0\0\0\0\0",
            b"\xa2\x61a\x00\x61a\x00",
            b"\xa3\x61a\x00\x61b\x00\x61a\x00",
            b"\x9f\xff",
            b"\x5f\xff",
            b"\xbf\xff",
            b"\xc1\x00",
            b"\xa1\x01\x00",
            b"\x00\x00",
            b"\xf8\x20",
            b"",
        ] {
            canonical_cbor(data).unwrap_err();
        }
    }
}
