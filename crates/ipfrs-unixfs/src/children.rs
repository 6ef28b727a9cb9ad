//! The parts of a file that are in other blocks.

use ipfrs_core::{Cid, cid_from_bytes};

/// A part of a file that is in another block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Content ID of the root of this part.
    pub cid: Cid,
    /// Number of file bytes below this link.
    pub size: u64,
    /// Offset of the end of this part from the first byte of its parent. It allows a binary search for an offset.
    pub end: u64,
}

/// A list of parts, in file order. Content IDs are kept in their binary form: a part takes about 60 bytes, whereas a
/// [`Child`] reserves space for the longest digest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Children {
    /// Binary content IDs, one after another.
    cids: Vec<u8>,
    parts: Vec<Part>,
}

/// A [`Child`] without its content ID.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    size: u64,
    end: u64,
    /// Offset of the end of the content ID.
    cid_end: usize,
}

/// Length of most binary content IDs, in bytes: version 1 with a digest of 32 bytes.
const ORDINARY_CID_BYTES: usize = 36;

impl Children {
    pub(crate) fn with_capacity(parts: usize) -> Self {
        Self { cids: Vec::with_capacity(parts * ORDINARY_CID_BYTES), parts: Vec::with_capacity(parts) }
    }

    /// Returns the number of parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns whether there are no parts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the memory of the list, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.cids.capacity() + self.parts.capacity() * size_of::<Part>()
    }

    /// Returns the part at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Child> {
        let part = self.parts.get(index)?;
        // Only valid content IDs are added.
        let cid = cid_from_bytes(self.encoded_cid(index)?).ok()?;
        Some(Child { cid, size: part.size, end: part.end })
    }

    /// Returns [`Child::size`] and [`Child::end`] of the part at `index`.
    #[must_use]
    pub fn extent(&self, index: usize) -> Option<(u64, u64)> {
        self.parts.get(index).map(|part| (part.size, part.end))
    }

    /// Returns the parts from `index` on.
    pub fn iter_from(&self, index: usize) -> impl Iterator<Item = Child> {
        (index..self.len()).map_while(move |index| self.get(index))
    }

    /// Returns the end of the last part; see [`Child::end`].
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.parts.last().map(|part| part.end)
    }

    /// Returns the index of the first part that ends after `offset`, by a binary search.
    #[must_use]
    pub fn first_past(&self, offset: u64) -> usize {
        self.parts.partition_point(|part| part.end <= offset)
    }

    /// Appends a part.
    pub fn push(&mut self, child: &Child) {
        // Writing to a growable vector cannot fail.
        let _written = child.cid.write_bytes(&mut self.cids);
        self.parts.push(Part { size: child.size, end: child.end, cid_end: self.cids.len() });
    }

    /// Appends a part whose binary content ID is known to be valid.
    pub(crate) fn push_encoded(&mut self, cid: &[u8], size: u64, end: u64) {
        self.cids.extend_from_slice(cid);
        self.parts.push(Part { size, end, cid_end: self.cids.len() });
    }

    /// Appends the part at `index` of another list.
    pub fn push_from(&mut self, other: &Self, index: usize) {
        if let Some((part, cid)) = other.parts.get(index).zip(other.encoded_cid(index)) {
            self.push_encoded(cid, part.size, part.end);
        }
    }

    /// Removes the first `count` parts, and frees their memory.
    pub fn remove_first(&mut self, count: usize) {
        let start = self.cid_start(count);
        self.cids.drain(..start);
        self.parts.drain(..count.min(self.parts.len()));
        for part in &mut self.parts {
            part.cid_end -= start;
        }
        self.cids.shrink_to_fit();
        self.parts.shrink_to_fit();
    }

    /// Returns the offset of the content ID at `index`, or the end of all.
    fn cid_start(&self, index: usize) -> usize {
        let before = index.checked_sub(1).map(|before| before.min(self.parts.len().saturating_sub(1)));
        before.and_then(|before| self.parts.get(before)).map_or(0, |part| part.cid_end)
    }

    fn encoded_cid(&self, index: usize) -> Option<&[u8]> {
        self.cids.get(self.cid_start(index)..self.parts.get(index)?.cid_end)
    }
}

impl FromIterator<Child> for Children {
    fn from_iter<I: IntoIterator<Item = Child>>(children: I) -> Self {
        let mut list = Self::default();
        children.into_iter().for_each(|child| list.push(&child));
        list
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::{HashFunction, sha2_256};
    use ipfrs_core::{codec, new_cid};

    use super::*;

    #[test]
    fn children_are_those_that_were_pushed() {
        let identity = HashFunction::Identity.digest(&[7; 128]).unwrap();
        let cids = [
            new_cid(0, codec::DAG_PB, sha2_256(b"a")).unwrap(),
            new_cid(1, codec::RAW, HashFunction::Identity.digest(b"").unwrap()).unwrap(),
            new_cid(1, codec::RAW, identity).unwrap(),
            new_cid(1, codec::RAW, sha2_256(b"b")).unwrap(),
        ];
        let all: Vec<_> = cids.iter().zip(1..).map(|(cid, n)| Child { cid: *cid, size: 10, end: n * 10 }).collect();
        let mut list: Children = all.iter().cloned().collect();
        assert_eq!(list.iter_from(0).collect::<Vec<_>>(), all);
        assert_eq!(list.iter_from(2).collect::<Vec<_>>(), all[2..]);
        assert_eq!((list.len(), list.end(), list.get(4)), (4, Some(40), None));
        assert_eq!([0, 9, 10, 39, 40].map(|offset| list.first_past(offset)), [0, 0, 1, 3, 4]);
        let mut copy = Children::default();
        (0..5).for_each(|index| copy.push_from(&list, index));
        assert_eq!(copy, list);
        let memory = list.memory_bytes();
        list.remove_first(3);
        assert_eq!(list.iter_from(0).collect::<Vec<_>>(), all[3..]);
        assert!(list.memory_bytes() < memory / 2, "{} of {memory}", list.memory_bytes());
        list.remove_first(9);
        assert_eq!((list.is_empty(), list.end(), list.memory_bytes()), (true, None, 0));
    }

    #[test]
    fn child_takes_a_third_of_the_memory_in_a_list() {
        let cid = new_cid(1, codec::RAW, sha2_256(b"a")).unwrap().to_bytes();
        let mut list = Children::with_capacity(1_000);
        (0..1_000).for_each(|n| list.push_encoded(&cid, 1, n + 1));
        assert!(list.memory_bytes() <= 1_000 * size_of::<Child>() * 2 / 5, "{}", list.memory_bytes());
    }
}
