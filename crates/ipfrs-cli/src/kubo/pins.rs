//! Pins and the root of the mutable files in a repo (boxo's `dspinner`).

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use ipfrs_core::{Cid, cid_from_bytes};

use super::leveldb::LevelDb;

/// Beginning of the keys of pins.
const PINS: &[u8] = b"/pins/pin/";
/// Key of the root of the mutable files.
const FILES_ROOT: &[u8] = b"/local/filesroot";

/// A pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KuboPin {
    pub(crate) cid: String,
    pub(crate) is_recursive: bool,
    pub(crate) name: String,
}

/// The datastore with pins.
#[derive(Debug)]
pub(crate) struct PinStore(LevelDb);

impl PinStore {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        LevelDb::open(path).map(Self)
    }

    /// Calls `found` with each pin.
    pub(crate) fn scan(&self, mut found: impl FnMut(KuboPin) -> Result<()>) -> Result<()> {
        self.0.scan(PINS, |key, value| {
            found(pin(value).with_context(|| format!("the pin {} is damaged", String::from_utf8_lossy(key)))?)
        })
    }

    /// Returns the root of the mutable files, if there is one.
    pub(crate) fn files_root(&self) -> Result<Option<Cid>> {
        let mut root = None;
        self.0.scan(FILES_ROOT, |key, value| {
            if key == FILES_ROOT {
                root = Some(cid_from_bytes(value)?);
            }
            Ok(())
        })?;
        Ok(root)
    }
}

/// Decodes a pin: a map in CBOR.
fn pin(value: &[u8]) -> Result<KuboPin> {
    let mut rest = value;
    let (mut cid, mut mode, mut name) = (None, None, String::new());
    let Item::Map(count) = Item::take(&mut rest)? else { bail!("it is no map") };
    for _ in 0..count {
        let Item::Text(key) = Item::take(&mut rest)? else { bail!("a key is no text") };
        match (key, Item::take(&mut rest)?) {
            ("cid", Item::Bytes(bytes)) => cid = Some(cid_from_bytes(bytes)?.to_string()),
            ("mode", Item::Number(number)) => mode = Some(number),
            ("name", Item::Text(text)) => text.clone_into(&mut name),
            (_, item) => item.skip(&mut rest, 0)?,
        }
    }
    // The numbers are those of boxo's `pinner.Mode`.
    let is_recursive = match mode {
        Some(0) => true,
        Some(1) => false,
        other => bail!("it has the mode {other:?}"),
    };
    Ok(KuboPin { cid: cid.ok_or_else(|| anyhow!("it has no content ID"))?, is_recursive, name })
}

/// Head of an item of CBOR (RFC 8949).
enum Item<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Text(&'a str),
    List(u64),
    Map(u64),
    Tag,
    Simple,
}

impl<'a> Item<'a> {
    fn take(rest: &mut &'a [u8]) -> Result<Self> {
        let mut take = |count: usize| {
            let (taken, after) = rest.split_at_checked(count).ok_or_else(|| anyhow!("it is truncated"))?;
            *rest = after;
            Ok::<_, anyhow::Error>(taken)
        };
        let first = take(1)?[0];
        let extra = match first & 31 {
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            28..=31 => bail!("it has items without a length"),
            _ => 0,
        };
        let argument = match extra {
            0 => u64::from(first & 31),
            _ => take(extra)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
        };
        Ok(match first >> 5 {
            0 | 1 => Self::Number(argument),
            2 => Self::Bytes(take(usize::try_from(argument)?)?),
            3 => Self::Text(std::str::from_utf8(take(usize::try_from(argument)?)?)?),
            4 => Self::List(argument),
            5 => Self::Map(argument),
            6 => Self::Tag,
            _ => Self::Simple,
        })
    }

    /// Skips what belongs to the item.
    fn skip(self, rest: &mut &'a [u8], depth: usize) -> Result<()> {
        const MAX_DEPTH: usize = 32;
        if depth > MAX_DEPTH {
            bail!("it is nested too deeply");
        }
        let count = match self {
            Self::List(count) => count,
            Self::Map(count) => count.saturating_mul(2),
            Self::Tag => 1,
            Self::Number(_) | Self::Bytes(_) | Self::Text(_) | Self::Simple => 0,
        };
        for _ in 0..count {
            Item::take(rest)?.skip(rest, depth + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_is_read_and_damaged_ones_are_refused() {
        let cid = ipfrs_core::parse_cid("QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n").unwrap();
        let bytes = cid.to_bytes();
        let head = [&[0xa4, 0x63][..], b"cid", &[0x58, bytes.len() as u8], &bytes].concat();
        let rest = [&[0x68][..], b"metadata", &[0xa1, 0x61, b'k', 0x82, 1, 0xf6], &[0x64], b"mode", &[1]].concat();
        let encoded = [&head[..], &rest, &[0x64], b"name", &[0x61, b'n']].concat();
        let expected = KuboPin { cid: cid.to_string(), is_recursive: false, name: "n".into() };
        assert_eq!(pin(&encoded).unwrap(), expected);
        for length in 0..encoded.len() {
            assert!(pin(&encoded[..length]).is_err(), "{length}");
        }
    }
}
