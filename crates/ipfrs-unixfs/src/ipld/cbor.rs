//! DAG-CBOR (<https://ipld.io/specs/codecs/dag-cbor/spec/>), read in place: nothing but links is copied.
//!
//! What is not strict but has one meaning is read all the same (integers and lengths in more bytes than they need, keys
//! in another order), as Kubo does. Indefinite lengths, tags other than 42 and keys other than text are refused.

use ipfrs_core::{Cid, Error, Result, cid_from_bytes};

use super::{Step, check_nesting, list_index, push_link};

/// The one tag that DAG-CBOR has: a byte string with a content ID.
const TAG_CID: u64 = 42;

/// The links of a block in its order.
pub(super) fn links(data: &[u8]) -> Result<Vec<Cid>> {
    let mut links = Vec::new();
    let mut cursor = Cursor { rest: data };
    cursor.walk(0, &mut |cid| push_link(&mut links, cid))?;
    if !cursor.rest.is_empty() {
        return Err(Error::invalid(format!("{} bytes follow its end", cursor.rest.len())));
    }
    Ok(links)
}

/// Where `segments` lead; what lies behind it in the block is not looked at.
pub(super) fn follow(data: &[u8], segments: &[String]) -> Result<Step> {
    let mut cursor = Cursor { rest: data };
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

/// What a data item is. Of lists and maps only the head has been read.
enum Item<'a> {
    Link(Cid),
    Text(&'a [u8]),
    /// A number of items.
    List(u64),
    /// A number of pairs.
    Map(u64),
    /// Anything else.
    Scalar,
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    /// Reads an item and everything in it, and gives its links to `on_link`. `depth` bounds the recursion.
    fn walk(&mut self, depth: usize, on_link: &mut dyn FnMut(Cid) -> Result<()>) -> Result<()> {
        match self.item()? {
            Item::Link(cid) => on_link(cid)?,
            Item::Text(_) | Item::Scalar => {}
            Item::List(len) => {
                check_nesting(depth)?;
                for _ in 0..len {
                    self.walk(depth + 1, on_link)?;
                }
            }
            Item::Map(len) => {
                check_nesting(depth)?;
                for _ in 0..len {
                    self.key()?;
                    self.walk(depth + 1, on_link)?;
                }
            }
        }
        Ok(())
    }

    /// Reads up to the value of `key` in a map of `len` pairs; false when it has none.
    fn seek_key(&mut self, len: u64, key: &str) -> Result<bool> {
        for _ in 0..len {
            if self.key()? == key.as_bytes() {
                return Ok(true);
            }
            self.skip()?;
        }
        Ok(false)
    }

    /// Reads up to the item of index `segment` in a list of `len` items; false when it has none.
    fn seek_index(&mut self, len: u64, segment: &str) -> Result<bool> {
        let Some(index) = list_index(segment).filter(|index| *index < len) else { return Ok(false) };
        for _ in 0..index {
            self.skip()?;
        }
        Ok(true)
    }

    fn skip(&mut self) -> Result<()> {
        self.walk(0, &mut |_| Ok(()))
    }

    fn key(&mut self) -> Result<&'a [u8]> {
        match self.item()? {
            Item::Text(key) => Ok(key),
            _ => Err(Error::invalid("a key of a map is no text")),
        }
    }

    fn item(&mut self) -> Result<Item<'a>> {
        let (major, argument) = self.head()?;
        Ok(match major {
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

    /// The binary CID of a link, which has a zero byte before it.
    fn cid(&mut self) -> Result<Cid> {
        let (major, len) = self.head()?;
        match (major, self.take(len)?) {
            (2, [0, cid @ ..]) => cid_from_bytes(cid),
            _ => Err(Error::invalid("a link is no byte string that begins with zero")),
        }
    }

    /// Major type and argument of the next item.
    fn head(&mut self) -> Result<(u8, u64)> {
        let first = self.take(1)?[0];
        let (major, short) = (first >> 5, first & 0x1f);
        let following = match short {
            0..=23 => 0,
            24..=27 => 1 << (short - 24),
            _ => {
                return Err(Error::invalid(format!(
                    "byte 0x{first:02x} begins no item (indefinite lengths have none)"
                )));
            }
        };
        if major == 7 && !matches!(short, 20..=23 | 25..=27) {
            return Err(Error::invalid(format!("byte 0x{first:02x} is no simple value")));
        }
        if following == 0 {
            return Ok((major, short.into()));
        }
        let bytes = self.take(following)?;
        Ok((major, bytes.iter().fold(0, |argument, byte| argument << 8 | u64::from(*byte))))
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len));
        let (bytes, rest) = split.ok_or_else(|| Error::invalid("it ends before its last item does"))?;
        self.rest = rest;
        Ok(bytes)
    }
}
