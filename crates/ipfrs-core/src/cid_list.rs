//! A compact list of content IDs.

use std::iter::FusedIterator;

use crate::{Cid, cid_from_bytes};

/// A list of content IDs in their binary form. Each takes about 40 bytes, whereas a [`Cid`] reserves space for the
/// longest digest.
///
/// The list can be iterated from both ends: the length of each content ID is stored before and after it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CidList {
    bytes: Vec<u8>,
    len: usize,
}

impl CidList {
    /// Returns the number of content IDs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the memory used by the content IDs, in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a content ID.
    pub fn push(&mut self, cid: &Cid) {
        let start = self.bytes.len();
        self.bytes.push(0);
        // Writing to a growable vector cannot fail.
        let _written = cid.write_bytes(&mut self.bytes);
        // The codes and lengths take at most 9 bytes each, and the digest at most 128.
        let len = (self.bytes.len() - start - 1) as u8;
        self.bytes[start] = len;
        self.bytes.push(len);
        self.len += 1;
    }

    /// Removes the last content ID and returns it.
    pub fn pop(&mut self) -> Option<Cid> {
        let mut iter = self.iter();
        let last = iter.next_back()?;
        let left = iter.rest.len();
        self.bytes.truncate(left);
        self.len -= 1;
        // A list that was long must not keep its memory.
        if self.bytes.capacity() > 4 * left.max(1024) {
            self.bytes.shrink_to(2 * left);
        }
        Some(last)
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes);
        self.len += other.len;
    }

    /// Returns an iterator over the content IDs.
    #[must_use]
    pub fn iter(&self) -> CidListIter<'_> {
        self.iter_from(0)
    }

    /// Returns an iterator that starts at an `offset` returned by [`CidListIter::offset`].
    #[must_use]
    pub fn iter_from(&self, offset: usize) -> CidListIter<'_> {
        let rest = self.bytes.get(offset..).unwrap_or_default();
        CidListIter { total: self.bytes.len(), rest }
    }
}

impl FromIterator<Cid> for CidList {
    fn from_iter<I: IntoIterator<Item = Cid>>(cids: I) -> Self {
        let mut list = Self::default();
        cids.into_iter().for_each(|cid| list.push(&cid));
        list
    }
}

impl<'a> IntoIterator for &'a CidList {
    type Item = Cid;
    type IntoIter = CidListIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over a [`CidList`].
#[derive(Debug, Clone)]
pub struct CidListIter<'a> {
    rest: &'a [u8],
    total: usize,
}

impl CidListIter<'_> {
    /// Returns the offset of the next content ID in the list, in bytes. Valid only if nothing was taken from the end.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.total - self.rest.len()
    }
}

impl Iterator for CidListIter<'_> {
    type Item = Cid;

    fn next(&mut self) -> Option<Cid> {
        let (len, rest) = self.rest.split_first()?;
        let (cid, rest) = rest.split_at_checked(usize::from(*len))?;
        self.rest = rest.get(1..)?;
        cid_from_bytes(cid).ok()
    }
}

impl DoubleEndedIterator for CidListIter<'_> {
    fn next_back(&mut self) -> Option<Cid> {
        let (len, rest) = self.rest.split_last()?;
        let (rest, cid) = rest.split_at_checked(rest.len().checked_sub(usize::from(*len))?)?;
        self.rest = rest.get(..rest.len().checked_sub(1)?)?;
        cid_from_bytes(cid).ok()
    }
}

impl FusedIterator for CidListIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{HashFunction, sha2_256};
    use crate::{codec, new_cid};

    #[test]
    fn cid_list_gives_what_was_pushed_from_both_ends() {
        let longest = HashFunction::Identity.digest(&[7; 128]).unwrap();
        let cids = [
            new_cid(0, codec::DAG_PB, sha2_256(b"a")).unwrap(),
            new_cid(1, codec::RAW, HashFunction::Identity.digest(b"").unwrap()).unwrap(),
            new_cid(1, codec::DAG_CBOR, longest).unwrap(),
            new_cid(1, 0x3fff_ffff, sha2_256(b"b")).unwrap(),
        ];
        let mut list: CidList = cids.into_iter().collect();
        assert_eq!(list.iter().collect::<Vec<_>>(), cids);
        assert_eq!(list.iter().rev().collect::<Vec<_>>(), cids.iter().rev().copied().collect::<Vec<_>>());
        let mut iter = list.iter();
        iter.next();
        assert_eq!(list.iter_from(iter.offset()).collect::<Vec<_>>(), cids[1..]);
        list.append(&list.clone());
        assert_eq!(list.len(), 8);
        for expected in cids.iter().chain(&cids).rev() {
            assert_eq!(list.pop(), Some(*expected));
        }
        assert_eq!((list.pop(), list.len(), list.memory()), (None, 0, 0));
    }
}
