//! Entry point for fuzzing denylists.

use std::io::Cursor;

use super::list::List;
use crate::fingerprint::Fingerprints;

/// Reads a list.
pub(crate) fn read(bytes: &[u8]) {
    if let Ok(list) = List::read(Cursor::new(bytes), &Fingerprints::default()) {
        assert!(list.count() > 0 || list.malformed() == 0, "a list without rules is refused if it has other lines");
    }
}
