//! References in redb.
//!
//! * Table `references`: from the binary multihash of a block to `offset (u64, little-endian) | length (u32,
//!   little-endian) | path`, where the path is relative to the root of the filestore.
//! * Table `files`, for listings in the order of files: the keys `path | 0 | offset (u64, big-endian) | multihash`,
//!   without values.
//! * Table `meta`: `format`, and `bytes`, the sum of all lengths.

use std::ffi::OsString;
use std::ops::Bound;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ipfrs_core::Result;
use ipfrs_core::limits::MAX_BIG_BLOCK_BYTES;
use redb::{Durability, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use super::reference::{Position, Record, ReferenceOrder};
use crate::pack::Key;
use crate::redb_file::{Contents, META, RedbFile, copy_table};

const REFERENCES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("references");
const FILES: TableDefinition<'_, &[u8], ()> = TableDefinition::new("files");

const CONTENTS: Contents = Contents {
    name: "references of the filestore",
    remedy: "Restore the file from a copy. Or move it away and restart: its references are then lost, until the files \
             are added again",
    format: 1,
    check: |_| Ok(()),
};

/// Bytes of a record before the path.
const HEAD_BYTES: usize = 12;

/// Number of references, and the sum of their lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) blocks: u64,
    pub(super) bytes: u64,
}

/// A record with its key and its position in an order.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) position: Position,
    pub(super) key: Key,
    pub(super) record: Record,
}

/// The open tables. All methods wait for the disk.
#[derive(Debug)]
pub(super) struct Table(RedbFile);

impl Table {
    pub(super) fn open(path: &Path, is_read_only: bool) -> Result<Self> {
        RedbFile::open(path, &CONTENTS, is_read_only, |write| {
            write.open_table(REFERENCES)?;
            write.open_table(FILES).map(drop)?;
            Ok(())
        })
        .map(Self)
    }

    pub(super) fn totals(&self) -> Result<Totals> {
        self.0.read(|database| {
            let read = database.begin_read()?;
            let bytes = read.open_table(META)?.get("bytes")?.map_or(0, |bytes| bytes.value());
            Ok(Totals { blocks: read.open_table(REFERENCES)?.len()?, bytes })
        })
    }

    /// Returns the record of each of `keys`.
    pub(super) fn get(&self, keys: &[Key]) -> Result<Vec<Option<Record>>> {
        self.0.read(|database| {
            let table = database.begin_read()?.open_table(REFERENCES)?;
            keys.iter().map(|key| record(&table, key)).collect()
        })
    }

    /// Stores records, in place of existing ones with the same keys. Returns for each whether it is new.
    pub(super) fn put(&self, records: &[(Key, Record)]) -> Result<Vec<bool>> {
        self.change(|references, files, bytes| {
            let mut are_new = Vec::with_capacity(records.len());
            for (key, new) in records {
                let old = record(references, key)?;
                are_new.push(old.is_none());
                if let Some(old) = old {
                    files.remove(old.file_key(key).as_slice())?;
                    *bytes = without(*bytes, &old)?;
                }
                references.insert(&**key, encode(new).as_slice())?;
                files.insert(new.file_key(key).as_slice(), ())?;
                *bytes = bytes.checked_add(u64::from(new.len)).ok_or_else(wrong_sum)?;
            }
            Ok(are_new)
        })
    }

    /// Removes the records of `keys`, except those that `is_spared` keeps, which gets the index of the key. Returns for
    /// each whether it was removed.
    pub(super) fn remove(&self, keys: &[Key], is_spared: impl Fn(usize, &Record) -> bool) -> Result<Vec<bool>> {
        self.change(|references, files, bytes| {
            let mut are_removed = Vec::with_capacity(keys.len());
            for (index, key) in keys.iter().enumerate() {
                let old = record(references, key)?.filter(|old| !is_spared(index, old));
                are_removed.push(old.is_some());
                if let Some(old) = old {
                    references.remove(&**key)?;
                    files.remove(old.file_key(key).as_slice())?;
                    *bytes = without(*bytes, &old)?;
                }
            }
            Ok(are_removed)
        })
    }

    /// Applies a change in one durable transaction. No other change happens meanwhile.
    fn change(
        &self,
        change: impl FnOnce(
            &mut redb::Table<'_, &'static [u8], &'static [u8]>,
            &mut redb::Table<'_, &'static [u8], ()>,
            &mut u64,
        ) -> Result<Vec<bool>, redb::Error>,
    ) -> Result<Vec<bool>> {
        self.0.write(|database| {
            let mut write = database.begin_write()?;
            write.set_durability(Durability::Immediate)?;
            let outcomes = {
                let (mut references, mut files) = (write.open_table(REFERENCES)?, write.open_table(FILES)?);
                let mut meta = write.open_table(META)?;
                let mut bytes = meta.get("bytes")?.map_or(0, |bytes| bytes.value());
                let outcomes = change(&mut references, &mut files, &mut bytes)?;
                meta.insert("bytes", bytes)?;
                outcomes
            };
            write.commit()?;
            Ok(outcomes)
        })
    }

    /// Returns up to `most` records behind a position, in an order.
    pub(super) fn page(&self, order: ReferenceOrder, after: Option<&Position>, most: usize) -> Result<Vec<Entry>> {
        let start = after.map_or(Bound::Unbounded, |Position(after)| Bound::Excluded(&**after));
        self.0.read(|database| {
            let read = database.begin_read()?;
            let references = read.open_table(REFERENCES)?;
            let mut page = Vec::new();
            match order {
                ReferenceOrder::Hash => {
                    for entry in references.range::<&[u8]>((start, Bound::Unbounded))?.take(most) {
                        let (key, value) = entry?;
                        let key: Key = key.value().into();
                        page.push(Entry { position: Position(key.clone()), key, record: decode(value.value())? });
                    }
                }
                ReferenceOrder::File => {
                    for entry in read.open_table(FILES)?.range::<&[u8]>((start, Bound::Unbounded))?.take(most) {
                        let position: Box<[u8]> = entry?.0.value().into();
                        let key: Key = hash_of_file_key(&position).ok_or_else(malformed)?.into();
                        let record = record(&references, &key)?.ok_or_else(malformed)?;
                        page.push(Entry { position: Position(position), key, record });
                    }
                }
            }
            Ok(page)
        })
    }

    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Replaces the sum of all lengths.
    #[cfg(test)]
    pub(super) fn set_total(&self, bytes: u64) -> Result<()> {
        self.change(|_, _, total| {
            *total = bytes;
            Ok(Vec::new())
        })
        .map(drop)
    }

    /// Returns the tables as they are now. Later changes do not affect them.
    pub(super) fn moment(&self) -> Result<ReadTransaction> {
        self.0.read(|database| Ok(database.begin_read()?))
    }

    /// Writes the tables of `moment` to a new file, which opens like the original.
    pub(super) fn save(moment: &ReadTransaction, path: &Path) -> Result<()> {
        RedbFile::save(moment, path, &CONTENTS, |to| {
            copy_table(moment, to, REFERENCES)?;
            copy_table(moment, to, FILES)
        })
    }
}

/// Returns the sum of all lengths without that of a record.
fn without(bytes: u64, record: &Record) -> Result<u64, redb::Error> {
    bytes.checked_sub(u64::from(record.len)).ok_or_else(wrong_sum)
}

fn wrong_sum() -> redb::Error {
    redb::Error::Corrupted("the sum of the lengths is not that of the references".to_owned())
}

fn record(table: &impl ReadableTable<&'static [u8], &'static [u8]>, key: &[u8]) -> Result<Option<Record>, redb::Error> {
    table.get(key)?.map(|record| decode(record.value())).transpose()
}

impl Record {
    /// Returns the key of the record in the table `files`.
    fn file_key(&self, key: &[u8]) -> Vec<u8> {
        [self.path.as_os_str().as_bytes(), &[0], &self.offset.to_be_bytes(), key].concat()
    }
}

/// Returns the multihash at the end of a key of the table `files`.
fn hash_of_file_key(key: &[u8]) -> Option<&[u8]> {
    // A path contains no zero.
    let path_end = key.iter().position(|byte| *byte == 0)?;
    key.get(path_end + 1 + size_of::<u64>()..)
}

fn encode(record: &Record) -> Vec<u8> {
    let path = record.path.as_os_str().as_bytes();
    [&record.offset.to_le_bytes()[..], &record.len.to_le_bytes()[..], path].concat()
}

fn decode(record: &[u8]) -> Result<Record, redb::Error> {
    let (head, path) = record.split_first_chunk::<HEAD_BYTES>().ok_or_else(malformed)?;
    let [a, b, c, d, e, f, g, h, len @ ..] = *head;
    let len = u32::from_le_bytes(len);
    // Memory is reserved for as many bytes.
    if len as usize > MAX_BIG_BLOCK_BYTES {
        return Err(malformed());
    }
    let path = PathBuf::from(OsString::from_vec(path.to_vec()));
    Ok(Record { path, offset: u64::from_le_bytes([a, b, c, d, e, f, g, h]), len })
}

fn malformed() -> redb::Error {
    redb::Error::Corrupted("a reference is malformed".to_owned())
}
