//! DAG-CBOR (<https://ipld.io/specs/codecs/dag-cbor/spec/>) as values of the data model. serde_ipld_dagcbor turns -0.0
//! into 0.0 when it writes, and refuses it when it reads, so that blocks of Kubo could not be read.

use ipfrs_core::{Error, Result};
use ipld_core::cid::Cid as LinkCid;
use ipld_core::ipld::Ipld;

/// Tag of a link.
const LINK: [u8; 2] = [0xd8, 42];

/// A value whose maps have the order of the data.
#[derive(Debug)]
pub(super) enum Tree {
    /// Anything but a list or a map.
    Leaf(Ipld),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    pub(super) fn into_ipld(self) -> Ipld {
        match self {
            Self::Leaf(value) => value,
            Self::List(list) => Ipld::List(list.into_iter().map(Self::into_ipld).collect()),
            Self::Map(map) => Ipld::Map(map.into_iter().map(|(key, value)| (key, value.into_ipld())).collect()),
        }
    }
}

/// Decodes CBOR in the form of [`ordered_cbor`](ipfrs_unixfs::ordered_cbor), which has checked all but texts,
/// and bounds the depth.
///
/// # Errors
/// For a text that is not UTF-8, and for a link that is no content ID.
pub(super) fn decode(cbor: &[u8]) -> Result<Tree> {
    let mut rest = cbor;
    value(&mut rest)
}

fn value(rest: &mut &[u8]) -> Result<Tree> {
    let first = take(rest, 1)?[0];
    let (major, low) = (first >> 5, first & 0x1f);
    let leaf = match (major, first) {
        (7, 0xf4) => Ipld::Bool(false),
        (7, 0xf5) => Ipld::Bool(true),
        (7, 0xf6) => Ipld::Null,
        (7, 0xfb) => Ipld::Float(f64::from_bits(number(rest, low)?)),
        (0, _) => Ipld::Integer(number(rest, low)?.into()),
        (1, _) => Ipld::Integer(-1 - i128::from(number(rest, low)?)),
        (2, _) => {
            let len = number(rest, low)?;
            Ipld::Bytes(take(rest, len)?.to_vec())
        }
        (3, _) => Ipld::String(text(rest, low)?),
        (4, _) => {
            let len = number(rest, low)?;
            return (0..len).map(|_| value(rest)).collect::<Result<_>>().map(Tree::List);
        }
        (5, _) => {
            let len = number(rest, low)?;
            let entry = |_| {
                let first = take(rest, 1)?[0];
                Ok((text(rest, first & 0x1f)?, value(rest)?))
            };
            return (0..len).map(entry).collect::<Result<_>>().map(Tree::Map);
        }
        (6, _) => {
            let (tag, head) = (number(rest, low)?, take(rest, 1)?[0]);
            let len = number(rest, head & 0x1f)?;
            match (tag, head >> 5, take(rest, len)?) {
                (42, 2, [0, cid @ ..]) => {
                    let cid = LinkCid::try_from(cid);
                    Ipld::Link(cid.map_err(|e| Error::invalid(format!("a link is no content ID: {e}")))?)
                }
                _ => return Err(Error::invalid("a tag is no link")),
            }
        }
        _ => return Err(Error::invalid(format!("the byte 0x{first:02x} cannot begin a value"))),
    };
    Ok(Tree::Leaf(leaf))
}

fn text(rest: &mut &[u8], low: u8) -> Result<String> {
    let len = number(rest, low)?;
    String::from_utf8(take(rest, len)?.to_vec()).map_err(|_| Error::invalid("a text is not UTF-8"))
}

/// Reads the number of a head whose first byte ends with `low`.
fn number(rest: &mut &[u8], low: u8) -> Result<u64> {
    let bytes = match low {
        0..24 => return Ok(low.into()),
        24..28 => take(rest, 1 << (low - 24))?,
        _ => return Err(Error::invalid("a length is indefinite")),
    };
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn take<'a>(rest: &mut &'a [u8], len: u64) -> Result<&'a [u8]> {
    let truncated = || Error::invalid("it is truncated");
    let len = usize::try_from(len).ok().filter(|len| *len <= rest.len()).ok_or_else(truncated)?;
    let (taken, left) = rest.split_at(len);
    *rest = left;
    Ok(taken)
}

/// Encodes a value.
///
/// # Errors
/// For an integer of more than 64 bits, and for NaN and infinities.
pub(super) fn encode(value: &Ipld) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    put(&mut out, value)?;
    Ok(out)
}

fn put(out: &mut Vec<u8>, value: &Ipld) -> Result<()> {
    match value {
        Ipld::Null => out.push(0xf6),
        Ipld::Bool(value) => out.push(if *value { 0xf5 } else { 0xf4 }),
        Ipld::Integer(value) => put_integer(out, *value)?,
        Ipld::Float(value) => put_float(out, *value)?,
        Ipld::String(text) => put_text(out, text),
        Ipld::Bytes(bytes) => {
            put_head(out, 0x40, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        Ipld::Link(cid) => {
            let cid = cid.to_bytes();
            out.extend_from_slice(&LINK);
            put_head(out, 0x40, cid.len() as u64 + 1);
            out.push(0);
            out.extend_from_slice(&cid);
        }
        Ipld::List(list) => {
            put_head(out, 0x80, list.len() as u64);
            list.iter().try_for_each(|value| put(out, value))?;
        }
        Ipld::Map(map) => {
            put_head(out, 0xa0, map.len() as u64);
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| (key.len(), key.as_bytes()));
            for (key, value) in entries {
                put_text(out, key);
                put(out, value)?;
            }
        }
    }
    Ok(())
}

/// Appends an integer in its shortest form.
pub(super) fn put_integer(out: &mut Vec<u8>, value: i128) -> Result<()> {
    let too_large = |_| Error::invalid("an integer has more than 64 bits");
    match value >= 0 {
        true => put_head(out, 0, u64::try_from(value).map_err(too_large)?),
        false => put_head(out, 0x20, u64::try_from(-1 - value).map_err(too_large)?),
    }
    Ok(())
}

/// Appends a number of 64 bits.
pub(super) fn put_float(out: &mut Vec<u8>, value: f64) -> Result<()> {
    if !value.is_finite() {
        return Err(Error::invalid("a number is not finite"));
    }
    out.push(0xfb);
    out.extend_from_slice(&value.to_be_bytes());
    Ok(())
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    put_head(out, 0x60, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends the head of an item: its major type, and a number.
pub(super) fn put_head(out: &mut Vec<u8>, major: u8, number: u64) {
    match number {
        0..24 => out.push(major | number as u8),
        24..0x100 => out.extend_from_slice(&[major | 24, number as u8]),
        0x100..0x1_0000 => {
            out.push(major | 25);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        0x1_0000..0x1_0000_0000 => {
            out.push(major | 26);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn values_survive_and_are_encoded_as_the_library_does() {
        let cid = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy".parse().unwrap();
        let numbers = [0, 23, 24, 255, 256, 65_536, 1 << 40, u64::MAX.into(), -1, -25, -(1 << 40), -(1_i128 << 64)];
        let map: BTreeMap<_, _> = [
            ("long key".to_owned(), Ipld::List(numbers.map(Ipld::Integer).to_vec())),
            ("b".to_owned(), Ipld::Link(cid)),
            ("a".to_owned(), Ipld::Bytes(vec![0; 300])),
            ("z".to_owned(), Ipld::List(vec![Ipld::Null, Ipld::Bool(true), Ipld::Bool(false), Ipld::Float(1.5)])),
            (String::new(), Ipld::Map(BTreeMap::new())),
        ]
        .into();
        let value = Ipld::Map(map);
        let encoded = encode(&value).unwrap();
        assert_eq!(encoded, serde_ipld_dagcbor::to_vec(&value).unwrap());
        assert_eq!(decode(&encoded).unwrap().into_ipld(), value);
        for end in 0..encoded.len() {
            assert!(decode(&encoded[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn negative_zero_keeps_its_sign() {
        let encoded = encode(&Ipld::Float(-0.0)).unwrap();
        assert_eq!(encoded, b"\xfb\x80\0\0\0\0\0\0\0");
        let Ipld::Float(zero) = decode(&encoded).unwrap().into_ipld() else { panic!("no number") };
        assert!(zero.is_sign_negative());
    }

    #[test]
    fn what_cbor_cannot_have_is_refused() {
        for value in
            [Ipld::Float(f64::NAN), Ipld::Float(f64::INFINITY), Ipld::Integer(1 << 64), Ipld::Integer(-(1 << 65))]
        {
            encode(&value).unwrap_err();
        }
        for data in [&b"\x61\xff"[..], b"\xd8\x2a\x42\x01\x02", b"\xd8\x2a\x42\x00\x02", b"\xc1\x00", b"\x9f", b"\xe0"]
        {
            decode(data).unwrap_err();
        }
    }
}
