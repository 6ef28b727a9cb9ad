//! Databases with arbitrary content, for fuzzing and tests.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::LevelDb;
use super::checksum::masked;
use super::log::{BLOCK_BYTES, HEAD_BYTES};
use super::table::{FOOTER_BYTES, MAGIC};

/// Number of the log.
const LOG: u64 = 9;
/// Number of tables.
const TABLES: usize = 3;
/// Entries per block of a table.
const BLOCK_ENTRIES: usize = 3;

/// A write: the file that has it, the key, and the value; `None` for a deletion.
pub(crate) type Write<'a> = (u8, &'a [u8], Option<&'a [u8]>);

/// Makes a database with these writes, of which later ones replace earlier ones, and reads the keys with a prefix.
/// These are the last values, in the order of their keys.
pub(crate) fn writes(directory: &Path, writes: &[Write<'_>], prefix: &[u8]) {
    write(directory, writes);
    let mut expected = BTreeMap::new();
    for (_, key, value) in writes.iter().filter(|(_, key, _)| key.starts_with(prefix)) {
        match value {
            Some(value) => drop(expected.insert(key.to_vec(), value.to_vec())),
            None => drop(expected.remove(*key)),
        }
    }
    let mut found = Vec::new();
    let database = LevelDb::open(directory).expect("the database is valid");
    let scanned = database.scan(prefix, |key, value| {
        found.push((key.to_vec(), value.to_vec()));
        Ok(())
    });
    scanned.expect("the database is valid");
    assert!(found.iter().map(|(key, value)| (key, value)).eq(&expected), "{found:?} is not {expected:?}");
}

/// Writes a database with these writes.
pub(crate) fn write(directory: &Path, writes: &[Write<'_>]) {
    let mut tables: [Vec<(Vec<u8>, Vec<u8>)>; TABLES] = Default::default();
    let mut batches = Vec::new();
    for (sequence, (file, key, value)) in (1..).zip(writes) {
        match usize::from(*file) % (TABLES + 1) {
            TABLES => batches.push(batch(sequence, key, *value)),
            table => tables[table].push((internal(key, sequence, value.is_some()), value.unwrap_or_default().to_vec())),
        }
    }
    let mut edit = [&[1_u8][..], &text(b"leveldb.BytewiseComparator"), &[2], &varint(LOG)].concat();
    for (number, mut entries) in (1..).zip(tables) {
        entries.sort_by_key(|(key, _)| order(key));
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { continue };
        let size = varint(0);
        edit.extend([&[7_u8, 0][..], &varint(number), &size, &text(&first.0), &text(&last.0)].concat());
        let name = format!("{number:06}.ldb");
        fs::write(directory.join(name), table(&entries)).expect("a temporary file can be written");
    }
    files(directory, &[edit], &batches);
}

/// Reads a database with these records in its manifest and its log, and a table with these blocks, of which the last
/// one is the index. All of them have valid checksums. Whatever they are, they are read in the order of their keys.
pub(crate) fn records(directory: &Path, manifest: &[&[u8]], batches: &[&[u8]], blocks: &[&[u8]]) {
    let (mut content, mut index) = (Vec::new(), (0, 0));
    for block in blocks {
        index = (content.len() as u64, block.len() as u64);
        seal(&mut content, block);
    }
    let mut footer = [varint(0), varint(0), varint(index.0), varint(index.1)].concat();
    footer.resize(FOOTER_BYTES - size_of::<u64>(), 0);
    content.extend([&footer[..], &MAGIC.to_le_bytes()].concat());
    fs::write(directory.join("000001.ldb"), content).expect("a temporary file can be written");
    let all = [&[2_u8][..], &varint(LOG), &[7, 0, 1, 0], &text(&[0; 8]), &text(&[0xff; 40])].concat();
    let edits: Vec<_> = [all].into_iter().chain(manifest.iter().map(|edit| edit.to_vec())).collect();
    files(directory, &edits, &batches.iter().map(|batch| batch.to_vec()).collect::<Vec<_>>());
    let Ok(database) = LevelDb::open(directory) else { return };
    let _ = database.scan(b"", |_, _| Ok(()));
    let _ = database.scan(b"/pins/", |key, _| {
        assert!(key.starts_with(b"/pins/"));
        Ok(())
    });
}

/// Writes the manifest, the log, and the name of the manifest.
fn files(directory: &Path, edits: &[Vec<u8>], batches: &[Vec<u8>]) {
    for (name, content) in [
        ("CURRENT".to_owned(), b"MANIFEST-000008\n".to_vec()),
        ("MANIFEST-000008".to_owned(), log(edits)),
        (format!("{LOG:06}.log"), log(batches)),
    ] {
        fs::write(directory.join(name), content).expect("a temporary file can be written");
    }
}

/// Returns the bytes of a log.
fn log(records: &[Vec<u8>]) -> Vec<u8> {
    let mut content: Vec<u8> = Vec::new();
    for record in records {
        let (mut rest, mut is_first) = (record.as_slice(), true);
        while is_first || !rest.is_empty() {
            let left = BLOCK_BYTES - content.len() % BLOCK_BYTES;
            if left < HEAD_BYTES {
                content.resize(content.len() + left, 0);
                continue;
            }
            let (data, after) = rest.split_at(rest.len().min(left - HEAD_BYTES));
            let kind = match (is_first, after.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            content.extend(masked(&[&[kind], data]).to_le_bytes());
            content.extend((data.len() as u16).to_le_bytes());
            content.push(kind);
            content.extend_from_slice(data);
            (rest, is_first) = (after, false);
        }
    }
    content
}

/// Returns a record of the log with one entry.
fn batch(sequence: u64, key: &[u8], value: Option<&[u8]>) -> Vec<u8> {
    let head = [&sequence.to_le_bytes()[..], &1_u32.to_le_bytes(), &[u8::from(value.is_some())]].concat();
    [head, text(key), value.map(text).unwrap_or_default()].concat()
}

/// Returns the bytes of a table.
fn table(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut content, mut index) = (Vec::new(), Vec::new());
    for entries in entries.chunks(BLOCK_ENTRIES) {
        let block = block(entries);
        let handle = [varint(content.len() as u64), varint(block.len() as u64)].concat();
        index.extend(entries.last().map(|(key, _)| (key.clone(), handle)));
        seal(&mut content, &block);
    }
    let index = block(&index);
    let mut footer = [varint(0), varint(0), varint(content.len() as u64), varint(index.len() as u64)].concat();
    footer.resize(FOOTER_BYTES - size_of::<u64>(), 0);
    seal(&mut content, &index);
    [content, footer, MAGIC.to_le_bytes().to_vec()].concat()
}

/// Returns the entries of a block, whose keys continue those before.
fn block(entries: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut content, mut before): (Vec<u8>, &[u8]) = (Vec::new(), &[]);
    for (key, value) in entries {
        let shared = key.iter().zip(before).take_while(|(a, b)| a == b).count();
        let lengths = [shared, key.len() - shared, value.len()].map(|length| varint(length as u64));
        content.extend([&lengths.concat()[..], &key[shared..], value].concat());
        before = key;
    }
    // One restart, at the beginning.
    [content, vec![0; 4], 1_u32.to_le_bytes().to_vec()].concat()
}

/// Appends a block that is not compressed, with its checksum.
fn seal(content: &mut Vec<u8>, block: &[u8]) {
    let sum = masked(&[block, &[0]]);
    content.extend([block, &[0], &sum.to_le_bytes()].concat());
}

/// Returns a key with its sequence number and its type.
fn internal(key: &[u8], sequence: u64, is_value: bool) -> Vec<u8> {
    [key, &(sequence << 8 | u64::from(is_value)).to_le_bytes()].concat()
}

/// Returns what entries of tables are sorted by.
fn order(internal: &[u8]) -> (Vec<u8>, Reverse<u64>) {
    let (key, tag) = internal.split_at(internal.len() - 8);
    (key.to_vec(), Reverse(tag.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))))
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&varint(bytes.len() as u64)[..], bytes].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_directory(run: impl FnOnce(&Path)) {
        run(tempfile::tempdir().unwrap().path());
    }

    #[test]
    fn last_values_are_read_from_all_files() {
        let long = vec![b'x'; 2 * BLOCK_BYTES];
        let written: [Write<'_>; 8] = [
            (0, b"/pins/a", Some(b"1")),
            (1, b"/pins/b", Some(b"2")),
            (3, b"/pins/a", Some(&long)),
            (2, b"/pins/b", None),
            (0, b"/pins/c", Some(b"")),
            (0, b"/pins", Some(b"outside")),
            (1, b"/pint", Some(b"outside")),
            (3, b"", Some(b"empty")),
        ];
        for count in 0..=written.len() {
            for prefix in [&b"/pins/"[..], b"", b"/pins/a", b"none"] {
                in_directory(|directory| writes(directory, &written[..count], prefix));
            }
        }
    }

    #[test]
    fn numbers_that_overflow_are_damage() {
        // The last sequence number, a handle at the end of all numbers, and a key that continues a long one.
        let last = [&u64::MAX.to_le_bytes()[..], &2_u32.to_le_bytes(), &[0, 1, b'a', 0, 1, b'b']].concat();
        in_directory(|directory| records(directory, &[], &[&last], &[]));
        let far = [varint(u64::MAX - 3), varint(3)].concat();
        let index = block(&[(b"key".to_vec(), far)]);
        in_directory(|directory| records(directory, &[], &[], &[&index]));
        in_directory(|directory| {
            records(directory, &[], &[&last], &[]);
            assert!(LevelDb::open(directory).is_err());
        });
    }

    #[test]
    fn only_manifests_of_the_directory_are_read() {
        in_directory(|directory| {
            write(directory, &[(0, b"a", Some(b"1"))]);
            assert!(LevelDb::open(directory).is_ok());
            for other in ["/dev/zero", "../MANIFEST-000008", "MANIFEST-1/../../x", "CURRENT", ""] {
                fs::write(directory.join("CURRENT"), other).unwrap();
                let error = LevelDb::open(directory).unwrap_err();
                assert!(error.to_string().contains("CURRENT"), "{other}: {error}");
            }
        });
    }

    #[test]
    fn long_keys_are_damage() {
        let entries = [(vec![b'k'; 100_000], Vec::new())];
        assert!(super::super::table::Table::open(table(&entries)).is_err());
    }
}
