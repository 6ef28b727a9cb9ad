//! Storage of the pins in redb.
//!
//! Table `pins` maps a CID, as a binary CIDv1, to a record `mode | version | check | name`:
//!
//! * `mode`: one byte, 1 for direct and 2 for recursive.
//! * `version`: one byte, the version of the CID as it was given.
//! * `check`: the first 8 bytes of the sha2-256 of key, mode, version and name.
//! * `name`: the name in UTF-8.
//!
//! Table `meta` contains `format`, and `lost` if the pins from before the file was created may be lost;
//! `mutable-files` and `mutable-files-lost` are [`RootNote`]s, and `filestore` says that `filestore.redb` exists.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;

use ipfrs_core::{Cid, Error, ErrorKind, Result, as_v1, cid_from_bytes, hash, new_cid};
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};

use super::{Pin, PinMode, RootNote};
use crate::redb_file::{Contents, META, RedbFile, copy_table};

const PINS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pins");

/// Key in `meta` that marks that pins may have been lost.
const LOST: &str = "lost";

/// Key in `meta` that marks that there are references to blocks in files.
const FILESTORE: &str = "filestore";

impl RootNote {
    /// Returns the key in `meta`.
    fn key(self) -> &'static str {
        match self {
            Self::Used => "mutable-files",
            Self::Lost => "mutable-files-lost",
        }
    }
}

/// Length of a record before the name, in bytes.
const HEAD_BYTES: usize = 10;

const CONTENTS: Contents = Contents {
    name: "pins",
    format: 1,
    remedy: "Restore the file from a copy. Without one, move it away, restart, and pin what must be kept: garbage \
             collection stays off until you confirm the loss",
    check,
};

/// A change of the pins.
#[derive(Debug)]
pub(super) enum Change {
    /// Add a pin, rename it or make it recursive.
    Insert(Pin),
    /// Remove a pin. Without `recursive`, only a direct pin is removed.
    Remove { cid: Cid, recursive: bool },
    /// Pin `to` recursively with the name of `from`, which is removed unless `keep`.
    Replace { from: Cid, to: Cid, keep: bool },
}

/// The open tables. All methods wait for the disk.
#[derive(Debug)]
pub(super) struct Table(RedbFile);

/// Pins by key. `None` if there is none.
type Plan = HashMap<Vec<u8>, Option<Pin>>;

impl Table {
    /// Opens the tables, after a check of all pins. If the file is missing and `has_blocks` is true, the earlier pins
    /// are marked as lost.
    pub(super) fn open(path: &Path, is_read_only: bool, has_blocks: bool) -> Result<Self> {
        RedbFile::open(path, &CONTENTS, is_read_only, |write| prepare(write, has_blocks)).map(Self)
    }

    pub(super) fn in_memory(has_blocks: bool) -> Result<Self> {
        RedbFile::in_memory(&CONTENTS, |write| prepare(write, has_blocks)).map(Self)
    }

    pub(super) fn check_writable(&self) -> Result<()> {
        self.0.check_writable()
    }

    pub(super) fn ensure_durable(&self) -> Result<u64> {
        self.0.ensure_durable()
    }

    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Applies the changes of several callers in order, and waits for the disk once. The changes of each caller are
    /// applied completely or not at all. Returns one outcome per caller.
    pub(super) fn apply(&self, callers: &[&[Change]]) -> Result<Vec<Result<()>>> {
        self.0.write(|database| {
            let mut write = database.begin_write()?;
            write.set_durability(Durability::Immediate)?;
            let mut outcomes = Vec::with_capacity(callers.len());
            let mut has_changed = false;
            {
                let mut table = write.open_table(PINS)?;
                for changes in callers {
                    let planned = plan(&find(&table, changes)?, changes);
                    if let Ok(plan) = &planned {
                        for (key, pin) in plan {
                            has_changed = true;
                            match pin {
                                Some(pin) => drop(table.insert(key.as_slice(), encode(key, pin).as_slice())?),
                                None => drop(table.remove(key.as_slice())?),
                            }
                        }
                    }
                    outcomes.push(planned.map(drop));
                }
            }
            // If nothing changed, the existing pins are already durable.
            if has_changed {
                write.commit()?;
            } else {
                write.abort()?;
            }
            Ok(outcomes)
        })
    }

    pub(super) fn get_many(&self, cids: &[Cid]) -> Result<Vec<Option<Pin>>> {
        self.0.read(|database| {
            let table = database.begin_read()?.open_table(PINS)?;
            cids.iter().map(|cid| lookup(&table, &key_of(cid))).collect()
        })
    }

    pub(super) fn page(&self, after: Option<&Cid>, limit: usize) -> Result<Vec<Pin>> {
        self.0.read(|database| {
            let table = database.begin_read()?.open_table(PINS)?;
            let after = after.map(key_of);
            let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut pins = Vec::new();
            for entry in table.range::<&[u8]>((start, Bound::Unbounded))?.take(limit) {
                let (key, record) = entry?;
                pins.push(decode(key.value(), record.value())?);
            }
            Ok(pins)
        })
    }

    pub(super) fn are_lost(&self) -> Result<bool> {
        self.has_meta(LOST)
    }

    pub(super) fn accept_loss(&self) -> Result<()> {
        self.change_meta(LOST, false)
    }

    pub(super) fn has_root_note(&self, note: RootNote) -> Result<bool> {
        self.has_meta(note.key())
    }

    pub(super) fn set_root_note(&self, note: RootNote, is_set: bool) -> Result<()> {
        self.change_meta(note.key(), is_set)
    }

    pub(super) fn has_filestore_note(&self) -> Result<bool> {
        self.has_meta(FILESTORE)
    }

    pub(super) fn set_filestore_note(&self, is_set: bool) -> Result<()> {
        self.change_meta(FILESTORE, is_set)
    }

    fn has_meta(&self, key: &str) -> Result<bool> {
        self.0.read(|database| Ok(database.begin_read()?.open_table(META)?.get(key)?.is_some()))
    }

    fn change_meta(&self, key: &str, is_set: bool) -> Result<()> {
        self.0.write(|database| {
            let mut write = database.begin_write()?;
            write.set_durability(Durability::Immediate)?;
            {
                let mut meta = write.open_table(META)?;
                if is_set {
                    meta.insert(key, 1)?
                } else {
                    meta.remove(key)?
                };
            }
            Ok(write.commit()?)
        })
    }

    pub(super) fn count(&self) -> Result<u64> {
        self.0.read(|database| Ok(database.begin_read()?.open_table(PINS)?.len()?))
    }

    /// Returns the tables as they are now. Later changes do not affect them.
    pub(super) fn moment(&self) -> Result<ReadTransaction> {
        self.0.read(|database| Ok(database.begin_read()?))
    }

    /// Writes the tables of `moment` to a new file, which opens like the original.
    pub(super) fn save(moment: &ReadTransaction, path: &Path) -> Result<()> {
        RedbFile::save(moment, path, &CONTENTS, |to| copy_table(moment, to, PINS))
    }
}

fn prepare(write: &WriteTransaction, are_lost: bool) -> Result<(), redb::Error> {
    write.open_table(PINS)?;
    if are_lost {
        write.open_table(META)?.insert(LOST, 1)?;
    }
    Ok(())
}

/// Reads all pins and checks their number, their order and each record.
fn check(database: &Database) -> Result<(), redb::Error> {
    let table = database.begin_read()?.open_table(PINS)?;
    let expected = table.len()?;
    let (mut count, mut last) = (0, Vec::new());
    for entry in table.iter()? {
        let (key, record) = entry?;
        decode(key.value(), record.value())?;
        if key.value() <= last.as_slice() {
            return Err(redb::Error::Corrupted("its keys are out of order".to_owned()));
        }
        last = key.value().to_vec();
        count += 1;
    }
    if count != expected {
        return Err(redb::Error::Corrupted(format!("only {count} of its {expected} pins can be read")));
    }
    Ok(())
}

/// Reads the pins that the changes of one caller concern.
fn find(table: &impl ReadableTable<&'static [u8], &'static [u8]>, changes: &[Change]) -> Result<Plan, redb::Error> {
    let mut found = Plan::new();
    for change in changes {
        let cids = match change {
            Change::Insert(pin) => [Some(&pin.cid), None],
            Change::Remove { cid, .. } => [Some(cid), None],
            Change::Replace { from, to, .. } => [Some(from), Some(to)],
        };
        for key in cids.into_iter().flatten().map(key_of) {
            let pin = lookup(table, &key)?;
            found.insert(key, pin);
        }
    }
    Ok(found)
}

/// Computes the resulting changes of one caller. Nothing is written yet, so an error changes nothing.
fn plan(found: &Plan, changes: &[Change]) -> Result<Plan> {
    let mut plan = Plan::new();
    let current = |plan: &Plan, key: &Vec<u8>| plan.get(key).or_else(|| found.get(key)).cloned().flatten();
    for change in changes {
        match change {
            Change::Insert(pin) => {
                let key = key_of(&pin.cid);
                if let Some(pin) = merged(current(&plan, &key), pin)? {
                    plan.insert(key, Some(pin));
                }
            }
            Change::Remove { cid, recursive } => {
                let key = key_of(cid);
                match current(&plan, &key) {
                    None => return Err(Error::not_found(format!("not pinned or pinned indirectly: {cid}"))),
                    Some(Pin { mode: PinMode::Recursive, .. }) if !recursive => {
                        let message = format!("{cid} is pinned recursively");
                        return Err(Error::new(ErrorKind::Conflict, message));
                    }
                    Some(_) => drop(plan.insert(key, None)),
                }
            }
            Change::Replace { from, to, keep } => {
                let (from_key, to_key) = (key_of(from), key_of(to));
                let old = current(&plan, &from_key).filter(|pin| pin.mode == PinMode::Recursive);
                let old = old.ok_or_else(|| Error::not_found(format!("{from} is not pinned recursively")))?;
                if from_key != to_key {
                    let new = Pin { cid: *to, ..old };
                    let existing = current(&plan, &to_key);
                    if existing.as_ref().is_some_and(|pin| pin.mode == PinMode::Recursive) {
                        return Err(super::Pins::already_pinned());
                    }
                    if let Some(pin) = merged(existing, &new)? {
                        plan.insert(to_key, Some(pin));
                    }
                    if !keep {
                        plan.insert(from_key, None);
                    }
                }
            }
        }
    }
    Ok(plan)
}

/// Combines an existing pin with `new`. Returns `None` if nothing changes.
fn merged(old: Option<Pin>, new: &Pin) -> Result<Option<Pin>> {
    let Some(old) = old else { return Ok(Some(new.clone())) };
    if (old.mode, new.mode) == (PinMode::Recursive, PinMode::Direct) {
        return Err(Error::new(ErrorKind::Conflict, format!("pin: {} already pinned recursively", new.cid)));
    }
    let name = if new.name.is_empty() { old.name.clone() } else { new.name.clone() };
    let pin = Pin { cid: old.cid, mode: new.mode, name };
    Ok((pin != old).then_some(pin))
}

fn lookup(table: &impl ReadableTable<&'static [u8], &'static [u8]>, key: &[u8]) -> Result<Option<Pin>, redb::Error> {
    table.get(key)?.map(|record| decode(key, record.value())).transpose()
}

/// Returns the key of a CID: its binary CIDv1.
fn key_of(cid: &Cid) -> Vec<u8> {
    as_v1(cid).to_bytes()
}

fn check_of(key: &[u8], mode: u8, version: u8, name: &[u8]) -> [u8; 8] {
    let digest = hash::sha2_256(&[key, &[mode, version], name].concat());
    let mut check = [0; 8];
    check.copy_from_slice(&digest.digest()[..8]);
    check
}

fn encode(key: &[u8], pin: &Pin) -> Vec<u8> {
    let mode = match pin.mode {
        PinMode::Direct => 1,
        PinMode::Recursive => 2,
    };
    let version = u64::from(pin.cid.version()) as u8;
    let mut record = vec![mode, version];
    record.extend(check_of(key, mode, version, pin.name.as_bytes()));
    record.extend(pin.name.as_bytes());
    record
}

fn decode(key: &[u8], record: &[u8]) -> Result<Pin, redb::Error> {
    let malformed = || redb::Error::Corrupted("a pin record is malformed".to_owned());
    let ([mode, version, check @ ..], name) = record.split_first_chunk::<HEAD_BYTES>().ok_or_else(malformed)?;
    if check != &check_of(key, *mode, *version, name) {
        return Err(malformed());
    }
    let mode = match mode {
        1 => PinMode::Direct,
        2 => PinMode::Recursive,
        _ => return Err(malformed()),
    };
    let cid = cid_from_bytes(key).map_err(|_| malformed())?;
    let cid = new_cid(u64::from(*version), cid.codec(), *cid.hash()).map_err(|_| malformed())?;
    let name = std::str::from_utf8(name).map_err(|_| malformed())?.to_owned();
    Ok(Pin { cid, mode, name })
}
