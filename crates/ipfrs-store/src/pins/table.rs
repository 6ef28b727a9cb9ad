//! Storage of the pins in redb.
//!
//! Table `pins` maps a CID, as a binary CIDv1, to a record `mode | version | check | name`:
//!
//! * `mode`: one byte, 1 for direct and 2 for recursive.
//! * `version`: one byte, the version of the CID as it was given.
//! * `check`: the first 8 bytes of the sha2-256 of key, mode, version and name.
//! * `name`: the name in UTF-8.
//!
//! Table `meta` contains `format`, and `lost` if the pins from before the file was created may be lost.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use ipfrs_core::{Cid, Error, ErrorKind, Result, cid_from_bytes, hash, new_cid};
use redb::backends::{FileBackend, InMemoryBackend};
use redb::{
    Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, ReadableTableMetadata, StorageBackend,
    TableDefinition,
};

use super::{Pin, PinMode};
use crate::redb_overlay::Overlay;

pub(super) const PINS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pins");
pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// Key in `meta` that marks that pins may have been lost.
const LOST: &str = "lost";

/// Format version of the tables.
const FORMAT: u64 = 1;

/// Maximum size of redb's page cache, in bytes.
pub(super) const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// Length of a record before the name, in bytes.
const HEAD_BYTES: usize = 10;

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

/// Access to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    ReadWrite,
    ReadOnly,
}

/// The open database.
#[derive(Debug)]
pub(super) struct Table {
    database: Database,
    place: String,
    access: Access,
}

/// The resulting changes of a call, by key. `None` removes the pin.
type Plan = HashMap<Vec<u8>, Option<Pin>>;

impl Table {
    /// Opens the tables. If the file is missing and `has_blocks` is true, the earlier pins are marked as lost.
    pub(super) fn open(path: &Path, access: Access, has_blocks: bool) -> Result<Self> {
        let io = |action: &str, e| Error::io(format_args!("cannot {action} the pins {}", path.display()), e);
        let is_there = path.try_exists().map_err(|e| io("check for", e))?;
        if access == Access::ReadOnly {
            let overlay = Overlay::open(path).map_err(|e| io("open", e))?;
            let contents = if is_there { Contents::Existing } else { Contents::new(has_blocks) };
            return Self::load(overlay, path, contents).map(|table| Self { access, ..table });
        }
        if !is_there {
            create(path, Contents::new(has_blocks))?;
        }
        // The process that created it may have ended before that was durable.
        sync_parent(path).map_err(|e| io("sync the directory of", e))?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| io("open", e))?;
        if file.metadata().map_err(|e| io("inspect", e))?.len() == 0 {
            // The file is created atomically, so an empty file is damaged.
            return Err(damaged(path, &"it is empty"));
        }
        let file = FileBackend::new(file).map_err(|e| failed("open", &path.display().to_string(), e.into()))?;
        Self::load(file, path, Contents::Existing)
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn in_memory(has_blocks: bool) -> Result<Self> {
        Self::load(InMemoryBackend::new(), Path::new("memory"), Contents::new(has_blocks))
    }

    fn load(file: impl StorageBackend, path: &Path, contents: Contents) -> Result<Self> {
        let place = path.display().to_string();
        // redb panics if damage violates its invariants. The closure shares no state that could be left inconsistent.
        let loaded = catch_unwind(AssertUnwindSafe(|| {
            let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file);
            let table = Self { database: database?, place: place.clone(), access: Access::ReadWrite };
            if contents != Contents::Existing {
                table.prepare(contents == Contents::Lost)?;
            }
            let format = table.database.begin_read()?.open_table(META)?.get("format")?.map(|format| format.value());
            Ok::<_, redb::Error>((table, format))
        }));
        let (table, format) = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(redb::Error::DatabaseAlreadyOpen)) => {
                let message = format!("{place} is open in another process: stop it, then try again");
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            Ok(Err(redb::Error::Io(e))) if !is_damage(&e) => {
                return Err(Error::io(format_args!("cannot read the pins {place}"), e));
            }
            Ok(Err(error)) => return Err(damaged(path, &error)),
            Err(_) => return Err(damaged(path, &"it is inconsistent")),
        };
        match format {
            Some(FORMAT) => {}
            None => return Err(damaged(path, &"it has no format version")),
            Some(other) => {
                return Err(Error::unsupported(format!(
                    "{place} has format {other}, but this version reads format {FORMAT}: use the version that wrote it, or a \
                     newer one"
                )));
            }
        }
        let checked = catch_unwind(AssertUnwindSafe(|| table.check()));
        match checked {
            Ok(Ok(())) => Ok(table),
            Ok(Err(error)) => Err(damaged(path, &error)),
            Err(_) => Err(damaged(path, &"it is inconsistent")),
        }
    }

    fn prepare(&self, are_lost: bool) -> Result<(), redb::Error> {
        let write = self.database.begin_write()?;
        write.open_table(PINS)?;
        write.open_table(META)?.insert("format", FORMAT)?;
        if are_lost {
            write.open_table(META)?.insert(LOST, 1)?;
        }
        Ok(write.commit()?)
    }

    /// Reads all pins and checks their number, their order and each record.
    fn check(&self) -> Result<()> {
        let failed = |e: redb::Error| Error::corrupt(e.to_string());
        let read = self.database.begin_read().map_err(|e| failed(e.into()))?;
        let table = read.open_table(PINS).map_err(|e| failed(e.into()))?;
        let expected = table.len().map_err(|e| failed(e.into()))?;
        let (mut count, mut last) = (0, Vec::new());
        for entry in table.iter().map_err(|e| failed(e.into()))? {
            let (key, record) = entry.map_err(|e| failed(e.into()))?;
            decode(key.value(), record.value())?;
            if key.value() <= last.as_slice() {
                return Err(Error::corrupt("its keys are out of order"));
            }
            last = key.value().to_vec();
            count += 1;
        }
        if count != expected {
            return Err(Error::corrupt(format!("only {count} of its {expected} pins can be read")));
        }
        Ok(())
    }

    /// Applies the changes of several callers in order, and waits for the disk once. The changes of each caller are
    /// applied completely or not at all. Returns one outcome per caller.
    pub(super) fn apply(&self, callers: &[&[Change]]) -> Result<Vec<Result<()>>> {
        let failed = |e: redb::Error| failed("write", &self.place, e);
        let mut write = self.database.begin_write().map_err(|e| failed(e.into()))?;
        write.set_durability(Durability::Immediate).map_err(|e| failed(e.into()))?;
        let mut outcomes = Vec::with_capacity(callers.len());
        let mut has_changed = false;
        {
            let mut table = write.open_table(PINS).map_err(|e| failed(e.into()))?;
            for changes in callers {
                let planned = plan(&table, changes);
                if let Ok(plan) = &planned {
                    for (key, pin) in plan {
                        has_changed = true;
                        let changed = match pin {
                            Some(pin) => table.insert(key.as_slice(), encode(key, pin).as_slice()).map(drop),
                            None => table.remove(key.as_slice()).map(drop),
                        };
                        changed.map_err(|e| failed(e.into()))?;
                    }
                }
                outcomes.push(planned.map(drop));
            }
        }
        // If nothing changed, the existing pins are already durable.
        if has_changed {
            write.commit().map_err(|e| failed(e.into()))?;
        } else {
            write.abort().map_err(|e| failed(e.into()))?;
        }
        Ok(outcomes)
    }

    pub(super) fn get_many(&self, cids: &[Cid]) -> Result<Vec<Option<Pin>>> {
        let failed = |e: redb::Error| failed("read", &self.place, e);
        let read = self.database.begin_read().map_err(|e| failed(e.into()))?;
        let table = read.open_table(PINS).map_err(|e| failed(e.into()))?;
        cids.iter().map(|cid| lookup(&table, &key_of(cid))).collect()
    }

    pub(super) fn page(&self, after: Option<&Cid>, limit: usize) -> Result<Vec<Pin>> {
        let failed = |e: redb::Error| failed("read", &self.place, e);
        let read = self.database.begin_read().map_err(|e| failed(e.into()))?;
        let table = read.open_table(PINS).map_err(|e| failed(e.into()))?;
        let after = after.map(key_of);
        let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut pins = Vec::new();
        for entry in table.range::<&[u8]>((start, Bound::Unbounded)).map_err(|e| failed(e.into()))?.take(limit) {
            let (key, record) = entry.map_err(|e| failed(e.into()))?;
            pins.push(decode(key.value(), record.value())?);
        }
        Ok(pins)
    }

    pub(super) fn are_lost(&self) -> Result<bool> {
        let lost =
            || -> Result<_, redb::Error> { Ok(self.database.begin_read()?.open_table(META)?.get(LOST)?.is_some()) };
        lost().map_err(|e| failed("read", &self.place, e))
    }

    pub(super) fn accept_loss(&self) -> Result<()> {
        let accept = || -> Result<_, redb::Error> {
            let mut write = self.database.begin_write()?;
            write.set_durability(Durability::Immediate)?;
            write.open_table(META)?.remove(LOST)?;
            Ok(write.commit()?)
        };
        accept().map_err(|e| failed("write", &self.place, e))
    }

    /// Returns the tables as they are now. Later changes do not affect them.
    pub(super) fn moment(&self) -> Result<ReadTransaction> {
        self.database.begin_read().map_err(|e| failed("read", &self.place, e.into()))
    }

    pub(super) fn count(&self) -> Result<u64> {
        let count = || -> Result<_, redb::Error> { Ok(self.database.begin_read()?.open_table(PINS)?.len()?) };
        count().map_err(|e| failed("read", &self.place, e))
    }
}

/// State of the file before it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    Existing,
    /// There were no pins before.
    New,
    /// Earlier pins are unknown.
    Lost,
}

impl Contents {
    /// Returns the state of a file that is being created.
    fn new(has_blocks: bool) -> Self {
        if has_blocks { Self::Lost } else { Self::New }
    }
}

/// Creates an empty file and renames it into place, so that an interrupted creation and damage can be told apart.
fn create(path: &Path, contents: Contents) -> Result<()> {
    let draft = path.with_extension("redb.new");
    let io = |e: io::Error| Error::io(format_args!("cannot create the pins {}", draft.display()), e);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&draft).map_err(io)?;
    let file = FileBackend::new(file).map_err(|e| failed("make", &draft.display().to_string(), e.into()))?;
    drop(Table::load(file, &draft, contents)?);
    fs::rename(&draft, path).map_err(io)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Computes the resulting changes of one caller. Nothing is written yet, so an error changes nothing.
fn plan(table: &impl ReadableTable<&'static [u8], &'static [u8]>, changes: &[Change]) -> Result<Plan> {
    let mut plan = Plan::new();
    let current = |plan: &Plan, key: &Vec<u8>| match plan.get(key) {
        Some(pin) => Ok(pin.clone()),
        None => lookup(table, key),
    };
    for change in changes {
        match change {
            Change::Insert(pin) => {
                let key = key_of(&pin.cid);
                if let Some(pin) = merged(current(&plan, &key)?, pin)? {
                    plan.insert(key, Some(pin));
                }
            }
            Change::Remove { cid, recursive } => {
                let key = key_of(cid);
                match current(&plan, &key)? {
                    None => return Err(Error::not_found(format!("not pinned or pinned indirectly: {cid}"))),
                    Some(Pin { mode: PinMode::Recursive, .. }) if !recursive => {
                        let message = format!("{cid} is pinned recursively: unpin it with recursive=true");
                        return Err(Error::new(ErrorKind::Conflict, message));
                    }
                    Some(_) => drop(plan.insert(key, None)),
                }
            }
            Change::Replace { from, to, keep } => {
                let (from_key, to_key) = (key_of(from), key_of(to));
                let old = current(&plan, &from_key)?.filter(|pin| pin.mode == PinMode::Recursive);
                let old = old.ok_or_else(|| Error::not_found(format!("{from} is not pinned recursively")))?;
                if from_key != to_key {
                    let new = Pin { cid: *to, ..old };
                    if let Some(pin) = merged(current(&plan, &to_key)?, &new)? {
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

fn lookup(table: &impl ReadableTable<&'static [u8], &'static [u8]>, key: &[u8]) -> Result<Option<Pin>> {
    let record = table.get(key).map_err(|e| failed("read", "of the store", e.into()))?;
    record.map(|record| decode(key, record.value())).transpose()
}

/// Returns the key of a CID: its binary CIDv1.
fn key_of(cid: &Cid) -> Vec<u8> {
    Cid::new_v1(cid.codec(), *cid.hash()).to_bytes()
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

fn decode(key: &[u8], record: &[u8]) -> Result<Pin> {
    let malformed = || Error::corrupt("a pin record is malformed");
    let ([mode, version, check @ ..], name) = record.split_first_chunk::<HEAD_BYTES>().ok_or_else(malformed)?;
    if check != &check_of(key, *mode, *version, name) {
        return Err(malformed());
    }
    let mode = match mode {
        1 => PinMode::Direct,
        2 => PinMode::Recursive,
        _ => return Err(malformed()),
    };
    let cid = cid_from_bytes(key)?;
    let cid = new_cid(u64::from(*version), cid.codec(), *cid.hash())?;
    let name = std::str::from_utf8(name).map_err(|_| malformed())?.to_owned();
    Ok(Pin { cid, mode, name })
}

/// Whether an I/O error is caused by the content of the file and not by the system.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput)
}

fn damaged(path: &Path, why: &dyn std::fmt::Display) -> Error {
    Error::corrupt(format!(
        "the pins in {} cannot be read: {why}. Restore the file from a copy. Without one, move it away, restart, and \
         pin what must be kept: garbage collection stays off until you confirm the loss",
        path.display()
    ))
}

pub(super) fn failed(action: &str, place: &str, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(error) => Error::io(format_args!("cannot {action} the pins {place}"), error),
        error => Error::new(
            ErrorKind::Unavailable,
            format!("cannot {action} the pins {place}: {error} (check the disk, then restart)"),
        )
        .with_source(error),
    }
}
