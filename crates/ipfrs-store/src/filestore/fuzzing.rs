//! Entry point for fuzzing the file of the references.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use ipfrs_core::{ErrorKind, Result, hash};

use super::FILE;
use super::reference::{Record, ReferenceOrder};
use super::table::Table;
use crate::pack::Key;
use crate::redb_file::damage::{Damage, Sample, directory};

/// Number of references in the undamaged file.
const REFERENCES: u32 = 300;

fn reference(number: u32) -> (Key, Record) {
    let key = hash::sha2_256(&number.to_le_bytes()).to_bytes().into();
    let path = PathBuf::from(format!("directory/{}", number / 10));
    (key, Record { path, offset: u64::from(number) << 20, len: 1 + number })
}

/// An undamaged file, whose records are the first [`REFERENCES`].
static SAMPLE: LazyLock<Sample> = LazyLock::new(|| {
    let (_directory, path) = directory(FILE);
    let table = Table::open(&path, false).expect("an empty file is created");
    table.put(&(0..REFERENCES).map(reference).collect::<Vec<_>>()).expect("references are written");
    table.close();
    Sample::read(&path)
});

/// Opens the damaged file, reads it in all ways, and changes it. That is an error or not, but never a panic. The
/// undamaged file has all references.
pub(crate) fn database(damage: Damage<'_>) {
    let bytes = SAMPLE.damaged(damage);
    let (_directory, path) = directory(FILE);
    fs::write(&path, &bytes).expect("a temporary file can be written");
    for is_read_only in [true, false] {
        let used = Table::open(&path, is_read_only).and_then(|table| use_all(&table, is_read_only));
        match used {
            Ok(found) => assert!(!SAMPLE.is(&bytes) || found == REFERENCES as usize, "{found} references"),
            Err(error) => {
                assert!(!SAMPLE.is(&bytes), "an undamaged file is refused: {error}");
                let is_told =
                    matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Unavailable);
                assert!(is_told && error.message().contains(FILE), "{error}");
            }
        }
    }
}

/// Uses everything in the tables. Returns the number of records that were found.
fn use_all(table: &Table, is_read_only: bool) -> Result<usize> {
    table.totals()?;
    table.page(ReferenceOrder::File, None, usize::MAX)?;
    let found = table.page(ReferenceOrder::Hash, None, usize::MAX)?.len();
    let (keys, records): (Vec<_>, Vec<_>) =
        (0..REFERENCES).map(|number| (reference(number).0, reference(number))).unzip();
    table.get(&keys)?;
    if !is_read_only {
        table.put(&records[..2])?;
        table.remove(&keys[..2], |_, _| false)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn undamaged_file_has_all_references() {
        database(Damage::Bytes(&[]));
    }

    #[test]
    fn a_sum_of_lengths_that_is_too_small_is_damage() {
        let (_directory, path) = directory(FILE);
        let table = Table::open(&path, false).unwrap();
        let (key, mut record) = reference(0);
        table.put(&[(key.clone(), record.clone())]).unwrap();
        table.set_total(0).unwrap();
        let error = table.remove(std::slice::from_ref(&key), |_, _| false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        // Nor is memory reserved for a block that cannot exist.
        record.len = u32::MAX;
        table.put(&[(reference(1).0, record)]).unwrap();
        assert_eq!(table.get(&[reference(1).0]).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn damaged_file_is_an_error_and_never_a_panic(
            changes in vec((any::<u8>(), any::<u16>(), any::<u8>()), 1..4),
        ) {
            database(Damage::Bytes(&changes));
        }
    }
}
