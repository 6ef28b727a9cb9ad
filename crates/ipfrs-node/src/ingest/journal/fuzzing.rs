//! Entry point for fuzzing journals.

use super::{JOURNAL_BYTES, MAX_RECORD_BYTES, encode, parse};

/// Reads a journal with these records, of which each follows the one before after a gap, and then `rest`. `size` is
/// that of the object. Records without gaps are read whole, and what is read continues the object.
pub(crate) fn read(first: u64, records: &[(u8, &[u8])], rest: &[u8], size: u64) {
    let (mut content, mut offset) = (Vec::new(), first);
    // The bytes of the records before the first gap.
    let (mut whole, mut has_gap) = (Vec::new(), false);
    for (gap, bytes) in records {
        has_gap |= *gap > 0 || bytes.is_empty() || bytes.len() > MAX_RECORD_BYTES;
        offset = offset.saturating_add(u64::from(*gap));
        content.extend_from_slice(&encode(offset, bytes).expect("the record is short"));
        let Some(end) = offset.checked_add(bytes.len() as u64) else { break };
        offset = end;
        if !has_gap {
            whole.extend_from_slice(bytes);
        }
    }
    content.extend_from_slice(rest);
    content.truncate(JOURNAL_BYTES);
    let found = parse(&content, size);
    if let Some(leftover) = &found.leftover {
        let end = leftover.offset.checked_add(leftover.bytes.len() as u64);
        assert!(leftover.offset >= size && end.is_some_and(|end| end > size), "{leftover:?} beyond {size}");
        assert!(leftover.bytes.len() <= content.len());
    }
    let lacks = usize::try_from(size.saturating_sub(first)).ok().and_then(|known| whole.get(known..));
    if let Some(lacks) = lacks.filter(|lacks| !lacks.is_empty() && content.len() < JOURNAL_BYTES) {
        let leftover = found.leftover.expect("the object lacks bytes");
        assert!(leftover.bytes.starts_with(lacks), "{} bytes are lacking", lacks.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_at_the_end_of_all_numbers_are_ignored() {
        read(u64::MAX - 2, &[(0, b"four"), (0, b"more")], b"", 0);
        read(u64::MAX - 4, &[(0, b"four")], b"", 3);
        assert!(parse(&encode(u64::MAX - 2, b"four").unwrap(), 0).leftover.is_none());
    }

    #[test]
    fn records_longer_than_a_commit_are_ignored() {
        let longest = vec![1; MAX_RECORD_BYTES];
        assert!(parse(&encode(0, &longest).unwrap(), 0).leftover.is_some());
        assert!(parse(&encode(0, &[&longest[..], &[1]].concat()).unwrap(), 0).leftover.is_none());
    }

    #[test]
    fn records_are_read_up_to_the_first_gap() {
        read(0, &[(0, b"one"), (0, b"two"), (3, b"later")], b"rest", 0);
        read(7, &[(0, b"one"), (0, b"two")], &[0; 40], 8);
        read(7, &[(0, b""), (0, b"two")], b"", 0);
    }
}
