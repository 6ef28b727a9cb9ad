//! Records of the ledger's log.
//!
//! | bytes | content |
//! |---|---|
//! | 1 | kind: 1 added to the small queue, 2 in the main queue, 3 evicted from the small queue, 4 removed, 5 heads |
//! | 1 | length of the key, *n* |
//! | 4 | size of the block in bytes |
//! | n | multihash of the block; for heads, three positions as segment (4) and offset (4): small, main, ghost |
//! | 4 | CRC-32 of everything before |
//!
//! Integers are little-endian.

use ipfrs_core::Multihash;

/// Length of a record besides its key, in bytes.
const FRAME_BYTES: usize = 10;

/// Largest length of a record, in bytes.
pub(super) const MAX_RECORD_BYTES: usize = FRAME_BYTES + u8::MAX as usize;

/// Position of a record in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Position {
    pub(super) segment: u32,
    pub(super) offset: u32,
}

/// Next records of the queues that eviction has not passed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Heads {
    pub(super) small: Position,
    pub(super) main: Position,
    pub(super) ghost: Position,
}

/// Record of the log: a change of one block's state, or the heads of the queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// The block was fetched and is the newest of the small queue.
    Small(Multihash, u32),
    /// The block is the newest of the main queue.
    Main(Multihash, u32),
    /// The block was evicted from the small queue and is the newest of the ghost queue.
    Ghost(Multihash, u32),
    /// The block was evicted, or is content of a user.
    Removed(Multihash),
    /// Eviction has passed all records before these.
    Heads(Heads),
}

impl Record {
    /// Appends the record to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut key = Vec::with_capacity(64);
        let (kind, size) = match self {
            Self::Small(hash, size) => (1, Self::key(hash, *size, &mut key)),
            Self::Main(hash, size) => (2, Self::key(hash, *size, &mut key)),
            Self::Ghost(hash, size) => (3, Self::key(hash, *size, &mut key)),
            Self::Removed(hash) => (4, Self::key(hash, 0, &mut key)),
            Self::Heads(heads) => {
                for at in [heads.small, heads.main, heads.ghost] {
                    key.extend_from_slice(&at.segment.to_le_bytes());
                    key.extend_from_slice(&at.offset.to_le_bytes());
                }
                (5, 0)
            }
        };
        out.push(kind);
        // A multihash has at most 148 bytes.
        out.push(key.len() as u8);
        out.extend_from_slice(&u32::to_le_bytes(size));
        out.extend_from_slice(&key);
        let checksum = crc32fast::hash(&out[start..]);
        out.extend_from_slice(&checksum.to_le_bytes());
    }

    fn key(hash: &Multihash, size: u32, key: &mut Vec<u8>) -> u32 {
        // Writing to memory cannot fail.
        let _infallible = hash.write(key);
        size
    }

    /// Returns the first record of `bytes` and its length, or `None` if there is no valid one.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let (kind, len) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let checked = bytes.get(..6 + len)?;
        let checksum = bytes.get(6 + len..FRAME_BYTES + len)?;
        if crc32fast::hash(checked).to_le_bytes() != checksum {
            return None;
        }
        let number = |at: usize| Some(u32::from_le_bytes(checked.get(at..at + 4)?.try_into().ok()?));
        let key = &checked[6..];
        let hash = || Multihash::from_bytes(key).ok();
        let size = number(2)?;
        let record = match kind {
            1 => Self::Small(hash()?, size),
            2 => Self::Main(hash()?, size),
            3 => Self::Ghost(hash()?, size),
            4 => Self::Removed(hash()?),
            5 if key.len() == 24 => {
                let at =
                    |index: usize| Some(Position { segment: number(6 + 8 * index)?, offset: number(10 + 8 * index)? });
                Self::Heads(Heads { small: at(0)?, main: at(1)?, ghost: at(2)? })
            }
            _ => return None,
        };
        Some((record, FRAME_BYTES + len))
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::hash::sha2_256;

    use super::*;

    #[test]
    fn records_are_read_as_written_and_no_prefix_is_valid() {
        let hash = sha2_256(b"block");
        let at = |segment, offset| Position { segment, offset };
        let heads = Heads { small: at(1, 2), main: at(3, 4), ghost: at(u32::MAX, 6) };
        let records = [
            Record::Small(hash, 1 << 21),
            Record::Main(hash, 1),
            Record::Ghost(hash, 0),
            Record::Removed(hash),
            Record::Heads(heads),
        ];
        for record in records {
            let mut bytes = Vec::new();
            record.write(&mut bytes);
            assert!(bytes.len() <= MAX_RECORD_BYTES);
            assert_eq!(Record::read(&bytes), Some((record, bytes.len())));
            for len in 0..bytes.len() {
                assert_eq!(Record::read(&bytes[..len]), None);
            }
            for index in 0..bytes.len() {
                let mut wrong = bytes.clone();
                wrong[index] ^= 1;
                assert_eq!(Record::read(&wrong), None, "byte {index} of {record:?}");
            }
        }
        assert_eq!(Record::read(&[0; 64]), None, "zeros are no record");
    }
}
