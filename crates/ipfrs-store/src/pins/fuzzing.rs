//! Entry point for fuzzing the file of the pins.

use std::fs;
use std::sync::LazyLock;

use ipfrs_core::{Cid, ErrorKind, codec, hash, new_cid};

use super::table::{Change, Table};
use super::{FILE, Pin, PinMode};
use crate::redb_file::damage::{Damage, Sample, directory};

/// Number of pins in the undamaged file: its tree has several levels.
const PINS: u32 = 300;

fn pin(number: u32) -> Pin {
    let mode = if number.is_multiple_of(2) { PinMode::Recursive } else { PinMode::Direct };
    Pin { cid: cid(number), mode, name: "n".repeat(number as usize % 200) }
}

fn cid(number: u32) -> Cid {
    new_cid(1, codec::DAG_PB, hash::sha2_256(&number.to_le_bytes())).expect("the content ID is valid")
}

/// An undamaged file and its pins in their order.
static SAMPLE: LazyLock<(Sample, Vec<Pin>)> = LazyLock::new(|| {
    let (_directory, path) = directory(FILE);
    let table = Table::open(&path, false, false).expect("an empty file is created");
    for first in (0..PINS).step_by(100) {
        let changes: Vec<_> = (first..first + 100).map(|number| Change::Insert(pin(number))).collect();
        table.apply(&[&changes]).expect("pins are written");
    }
    let pins = table.page(None, usize::MAX).expect("pins are read");
    table.close();
    (Sample::read(&path), pins)
});

/// Opens the damaged file. It is refused as damaged, or has all pins. Then it must also be possible to try a change.
pub(crate) fn database(damage: Damage<'_>) {
    let (sample, pins) = &*SAMPLE;
    let bytes = sample.damaged(damage);
    let (_directory, path) = directory(FILE);
    fs::write(&path, &bytes).expect("a temporary file can be written");
    for is_read_only in [true, false] {
        let table = match Table::open(&path, is_read_only, false) {
            Ok(table) => table,
            Err(error) => {
                assert!(!sample.is(&bytes), "an undamaged file is refused: {error}");
                let is_told =
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Unavailable);
                assert!(is_told && error.message().contains(FILE), "{error}");
                continue;
            }
        };
        // It was read a moment ago.
        let found = table.page(None, usize::MAX).expect("pins that were checked are read");
        assert!(found == *pins, "{} pins of {}", found.len(), pins.len());
        let change = [Change::Remove { cid: cid(0), recursive: true }];
        let _ = table.apply(&[&change]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn undamaged_file_and_files_of_other_kinds_are_told_apart() {
        database(Damage::Bytes(&[]));
        let (sample, _) = &*SAMPLE;
        let first_page = &sample.damaged(Damage::Bytes(&[]))[..4_096];
        for content in [&b""[..], b"redb", first_page, &[0; 8_192]] {
            database(Damage::Replaced(content));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn damaged_file_is_an_error_or_has_all_pins(
            changes in vec((any::<u8>(), any::<u16>(), any::<u8>()), 1..4),
            length in proptest::option::of(any::<u32>()),
        ) {
            database(length.map_or(Damage::Bytes(&changes), Damage::Length));
        }
    }
}
