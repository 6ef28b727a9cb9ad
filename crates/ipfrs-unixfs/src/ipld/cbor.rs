//! A reader of DAG-CBOR (<https://ipld.io/specs/codecs/dag-cbor/spec/>) in place: only links are copied.
//!
//! Like Kubo (the default decoder of go-ipld-prime), the reader rejects integers and lengths that are not in the
//! shortest form, indefinite lengths, NaN and infinities. It rejects non-text or repeated keys of a map, tags other
//! than 42, and trailing bytes. It accepts keys in any order, floats of 16 and 32 bits, and `undefined`.

use ipfrs_core::{Cid, CidList, Error, Result, cid_from_bytes};

use super::{Step, Strictness, list_index};

/// The only tag of DAG-CBOR: a byte string with a content ID.
const TAG_CID: u64 = 42;

/// Returns the links of a block, in block order.
pub(super) fn links(data: &[u8], strictness: Strictness) -> Result<CidList> {
    let mut links = CidList::default();
    let mut cursor = Cursor { rest: data, strictness };
    cursor.walk(&mut |cid| links.push(&cid))?;
    if !cursor.rest.is_empty() {
        return Err(Error::invalid(format!("{} bytes follow its end", cursor.rest.len())));
    }
    Ok(links)
}

/// Follows `segments` in a block. The whole block must be valid.
pub(super) fn follow(data: &[u8], segments: &[String]) -> Result<Step> {
    links(data, Strictness::AsKubo)?;
    let mut cursor = Cursor { rest: data, strictness: Strictness::AsKubo };
    for (used, segment) in segments.iter().enumerate() {
        let found = match cursor.item()? {
            Item::Map(len) => cursor.seek_key(len, segment)?,
            Item::List(len) => cursor.seek_index(len, segment)?,
            Item::Link(cid) if used > 0 => return Ok(Step::Link { cid, used }),
            Item::Link(_) | Item::Text(_) | Item::Scalar => false,
        };
        if !found {
            return Ok(Step::Missing(used));
        }
    }
    Ok(match cursor.item()? {
        Item::Link(cid) if !segments.is_empty() => Step::Link { cid, used: segments.len() },
        _ => Step::Within,
    })
}

/// A data item. For lists and maps, only the head has been read.
pub(super) enum Item<'a> {
    Link(Cid),
    Text(&'a [u8]),
    /// A list of this many items.
    List(u64),
    /// A map of this many pairs.
    Map(u64),
    /// Any other item.
    Scalar,
}

/// A list or map with unread items. It is dropped before its last item is read, so each open list or map costs at
/// least two bytes of the block.
struct Open {
    /// Number of items or pairs that have not been read.
    left: u32,
    /// Index of the first key of this map among the keys of all open maps; `None` for a list.
    first_key: Option<u32>,
    /// Whether each key was longer than the one before, or as long and greater. If so, no key is repeated.
    is_sorted: bool,
}

pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
    pub(super) strictness: Strictness,
}

impl<'a> Cursor<'a> {
    /// Reads an item with its contents, and passes its links to `on_link`. Open lists and maps are kept on the heap,
    /// so no depth overflows the stack.
    fn walk(&mut self, on_link: &mut dyn FnMut(Cid)) -> Result<()> {
        let (mut open, mut keys): (Vec<Open>, Vec<&'a [u8]>) = (Vec::new(), Vec::new());
        loop {
            match self.item()? {
                Item::Link(cid) => on_link(cid),
                Item::Text(_) | Item::Scalar | Item::List(0) | Item::Map(0) => {}
                Item::List(len) => open.push(Open { left: self.count(len)?, first_key: None, is_sorted: true }),
                Item::Map(len) => {
                    let first_key = Some(keys.len() as u32);
                    open.push(Open { left: self.count(len)?, first_key, is_sorted: true });
                }
            }
            let Some(inner) = open.last_mut() else { return Ok(()) };
            inner.left -= 1;
            if let Some(first_key) = inner.first_key {
                let key = self.key()?;
                let of_map = first_key as usize;
                let before = keys.get(of_map..).and_then(<[_]>::last);
                inner.is_sorted &= before.is_none_or(|before| (before.len(), *before) < (key.len(), key));
                keys.push(key);
                if inner.left == 0 {
                    if !inner.is_sorted && self.strictness == Strictness::AsKubo {
                        check_unique(&mut keys[of_map..])?;
                    }
                    keys.truncate(of_map);
                }
            }
            if inner.left == 0 {
                open.pop();
            }
        }
    }

    /// Converts the length of a list or map. Each item takes at least one byte, so a greater length is an error.
    fn count(&self, len: u64) -> Result<u32> {
        match u32::try_from(len) {
            Ok(len) if len as usize <= self.rest.len() => Ok(len),
            _ => Err(cut_off()),
        }
    }

    /// Skips to the value of `key` in a map of `len` pairs. Returns `false` if the map does not have the key.
    fn seek_key(&mut self, len: u64, key: &str) -> Result<bool> {
        for _ in 0..len {
            if self.key()? == key.as_bytes() {
                return Ok(true);
            }
            self.skip()?;
        }
        Ok(false)
    }

    /// Skips to the item at index `segment` in a list of `len` items. Returns `false` if the list does not have the
    /// index.
    fn seek_index(&mut self, len: u64, segment: &str) -> Result<bool> {
        let Some(index) = list_index(segment).filter(|index| *index < len) else { return Ok(false) };
        for _ in 0..index {
            self.skip()?;
        }
        Ok(true)
    }

    fn skip(&mut self) -> Result<()> {
        self.walk(&mut |_| ())
    }

    fn key(&mut self) -> Result<&'a [u8]> {
        match self.item()? {
            Item::Text(key) => Ok(key),
            _ => Err(Error::invalid("a map key is not text")),
        }
    }

    pub(super) fn item(&mut self) -> Result<Item<'a>> {
        let (major, argument) = self.head()?;
        Ok(match major {
            1 if argument > i64::MAX as u64 && self.strictness == Strictness::AsKubo => {
                return Err(Error::invalid("an integer is below -2^63"));
            }
            0 | 1 | 7 => Item::Scalar,
            2 => {
                self.take(argument)?;
                Item::Scalar
            }
            3 => Item::Text(self.take(argument)?),
            4 => Item::List(argument),
            5 => Item::Map(argument),
            _ if argument == TAG_CID => Item::Link(self.cid()?),
            _ => return Err(Error::invalid(format!("it has the tag {argument}, but only {TAG_CID} is allowed"))),
        })
    }

    /// Reads the binary CID of a link, which follows a zero byte.
    fn cid(&mut self) -> Result<Cid> {
        let (major, len) = self.head()?;
        match (major, self.take(len)?) {
            (2, [0, cid @ ..]) => cid_from_bytes(cid),
            _ => Err(Error::invalid("a link is not a byte string that starts with zero")),
        }
    }

    /// Reads the major type and the argument of the next item.
    fn head(&mut self) -> Result<(u8, u64)> {
        let first = self.take(1)?[0];
        let (major, short) = (first >> 5, first & 0x1f);
        let following = match short {
            0..=23 => 0,
            24..=27 => 1 << (short - 24),
            _ => {
                return Err(Error::invalid(format!(
                    "byte 0x{first:02x} does not start an item (indefinite lengths are not allowed)"
                )));
            }
        };
        if major == 7 && !matches!(short, 20..=23 | 25..=27) {
            return Err(Error::invalid(format!("byte 0x{first:02x} is not a simple value")));
        }
        if following == 0 {
            return Ok((major, short.into()));
        }
        let bytes = self.take(following)?;
        let argument = bytes.iter().fold(0, |argument, byte| argument << 8 | u64::from(*byte));
        if self.strictness == Strictness::AsKubo {
            check_head(major, following, argument)?;
        }
        Ok((major, argument))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (bytes, rest) = split.ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(bytes)
    }
}

/// Rejects an argument of `following` bytes that is not allowed for its major type.
fn check_head(major: u8, following: u64, argument: u64) -> Result<()> {
    if major == 7 {
        // The exponent of NaN and of the infinities is all ones.
        let exponent = match following {
            2 => 0x7c00,
            4 => 0x7f80_0000,
            _ => 0x7ff0_0000_0000_0000,
        };
        return match argument & exponent == exponent {
            true => Err(Error::invalid("a floating-point number is NaN or infinite")),
            false => Ok(()),
        };
    }
    let minimum = if following == 1 { 24 } else { 1 << (4 * following) };
    if argument < minimum {
        return Err(Error::invalid("an integer or a length has more bytes than it needs"));
    }
    Ok(())
}

/// Rejects repeated keys.
pub(super) fn check_unique(keys: &mut [&[u8]]) -> Result<()> {
    keys.sort_unstable();
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            let key: String = String::from_utf8_lossy(pair[0]).chars().take(80).collect();
            Err(Error::invalid(format!("the key {key:?} occurs twice in one map")))
        }
        None => Ok(()),
    }
}

fn cut_off() -> Error {
    Error::invalid("it ends in the middle of an item")
}
