//! The index: which block lies where. It is derived from the packs and may be behind them, never ahead.
//!
//! Tables of the redb file: `blocks` maps a binary multihash to a [`Location`]; `packs` maps the number of each pack to
//! its [`PackUse`]; `meta` holds the format and the totals. The position from which packs are replayed at open is the
//! last entry of `packs`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipfrs_core::{Error, ErrorKind, Result};
use redb::backends::FileBackend;
use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, StorageBackend, StorageError, Table, TableDefinition,
    WriteTransaction,
};

use super::changes::{Changes, PackUse};
use super::index_file::IndexFile;
use super::record::{Key, Location};

const BLOCKS: TableDefinition<'_, &[u8], &[u8; 16]> = TableDefinition::new("blocks");
const PACKS: TableDefinition<'_, u32, (u32, u64, u64)> = TableDefinition::new("packs");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// Number of the tables' format. An index of any other is rebuilt.
const FORMAT: u64 = 2;

/// Memory that redb may use for pages, in bytes.
const CACHE_BYTES: usize = 64 * 1024 * 1024;

/// An index of at most this size, of about a million blocks, is compared with its checksums when it is opened: that takes
/// some tenths of a second. For larger ones, opening would take too long.
const CHECK_BYTES: u64 = 256 * 1024 * 1024;

/// How far a pack is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    /// Number of the pack.
    pub(super) pack: u32,
    /// Its first byte that is not covered.
    pub(super) offset: u32,
}

/// Totals of the blocks in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// Number of blocks.
    pub(super) blocks: u64,
    /// Their data, in bytes.
    pub(super) payload_bytes: u64,
}

/// What a commit made of the totals.
#[derive(Debug)]
pub(super) struct Applied {
    /// The store's.
    pub(super) totals: Totals,
    /// Those of the packs for which something changed, by number.
    pub(super) packs: BTreeMap<u32, PackUse>,
}

/// The open index.
#[derive(Debug)]
pub(super) struct Index {
    database: Database,
    path: PathBuf,
    sealed: Arc<AtomicBool>,
}

/// What [`Index::open`] found.
pub(super) enum Opened {
    /// An index that can be used, possibly a new and empty one.
    Usable(Index),
    /// A file that is no index, or not one of this format; says why.
    Unusable(String),
}

impl Index {
    /// Opens the index at `path`, or creates it.
    ///
    /// # Errors
    /// Only for failures that another index would not mend: permissions, a full disk.
    pub(super) fn open(path: &Path) -> Result<Opened> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| super::lock::cannot("open", path, error))?;
        let file = FileBackend::new(file).map_err(|error| failed("open", path, error.into()))?;
        Self::open_on(file, path)
    }

    /// Opens the index in `file`, which is the one at `path`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(super) fn open_on(file: impl StorageBackend, path: &Path) -> Result<Opened> {
        // redb asserts where damage contradicts what it relies on. Nothing is shared with what unwinds here.
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let sealed = Arc::new(AtomicBool::new(false));
            let file = IndexFile::new(file, Arc::clone(&sealed));
            let is_checked = file.len()? <= CHECK_BYTES;
            let mut database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(file)?;
            if is_checked && !database.check_integrity()? {
                return Err(redb::Error::Corrupted("its checksums do not match".to_owned()));
            }
            let index = Self { database, path: path.to_owned(), sealed };
            let format = index.prepare()?;
            Ok::<_, redb::Error>((index, format))
        }));
        match opened {
            Ok(Ok((index, FORMAT))) => Ok(Opened::Usable(index)),
            Ok(Ok((_, format))) => Ok(Opened::Unusable(format!("its format is {format} instead of {FORMAT}"))),
            Ok(Err(error)) if is_damage(&error) => Ok(Opened::Unusable(error.to_string())),
            Ok(Err(error)) => Err(failed("open", path, error)),
            Err(_) => Ok(Opened::Unusable("it is damaged".to_owned())),
        }
    }

    /// Creates the tables where they are missing; gives the format.
    fn prepare(&self) -> Result<u64, redb::Error> {
        let write = self.database.begin_write()?;
        let found = write.open_table(META)?.get("format")?.map(|format| format.value());
        if let Some(format) = found {
            write.abort()?;
            return Ok(format);
        }
        write.open_table(BLOCKS)?;
        write.open_table(PACKS)?;
        write.open_table(META)?.insert("format", FORMAT)?;
        write.commit()?;
        Ok(FORMAT)
    }

    /// Lets the file stay as it is: closing would make durable what is not so yet. Reads go on.
    pub(super) fn seal(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Removes the file, so that the next [`Self::open`] makes a new one.
    pub(super) fn remove(path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|error| super::lock::cannot("remove", path, error))
    }

    /// What is known of each pack, by number.
    pub(super) fn packs(&self) -> Result<BTreeMap<u32, PackUse>> {
        let read = || -> Result<_, redb::Error> {
            let table = self.database.begin_read()?.open_table(PACKS)?;
            let mut packs = BTreeMap::new();
            for entry in table.iter()? {
                let (pack, known) = entry?;
                packs.insert(pack.value(), known.value().into());
            }
            Ok(packs)
        };
        read().map_err(|error| self.failed("read", error))
    }

    /// The totals.
    pub(super) fn totals(&self) -> Result<Totals> {
        let read = || -> Result<_, redb::Error> { Ok(read_totals(&self.database.begin_read()?.open_table(META)?)?) };
        read().map_err(|error| self.failed("read", error))
    }

    /// Where each of `keys` is.
    pub(super) fn locate<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Location>>> {
        let read = || -> Result<_, redb::Error> {
            let table = self.database.begin_read()?.open_table(BLOCKS)?;
            let mut found = Vec::with_capacity(keys.len());
            for key in keys {
                found.push(table.get(key.as_ref())?.map(|value| Location::from_bytes(value.value())));
            }
            Ok(found)
        };
        read().map_err(|error| self.failed("read", error))
    }

    /// Up to `limit` blocks after `after`, in the order of their keys.
    pub(super) fn page(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Key, Location)>> {
        let read = || -> Result<_, redb::Error> {
            let table = self.database.begin_read()?.open_table(BLOCKS)?;
            let start = after.map_or(Bound::Unbounded, Bound::Excluded);
            let mut page = Vec::with_capacity(limit);
            for entry in table.range::<&[u8]>((start, Bound::Unbounded))?.take(limit) {
                let (key, value) = entry?;
                page.push((key.value().into(), Location::from_bytes(value.value())));
            }
            Ok(page)
        };
        read().map_err(|error| self.failed("read", error))
    }

    /// Applies `changes`, after which the index covers its packs up to `position`. With `durable`, this and everything
    /// before it survives a crash; the packs must be on the disk up to `position` then.
    pub(super) fn apply(&self, changes: &Changes, position: Position, durable: bool) -> Result<Applied> {
        let write = || -> Result<_, redb::Error> {
            let write = self.begin_write(durable)?;
            let mut meta = write.open_table(META)?;
            let mut totals = read_totals(&meta)?;
            let mut blocks = write.open_table(BLOCKS)?;
            let mut grown = BTreeMap::<u32, i64>::new();
            // Sorted, neighbours are changed while their page is at hand.
            let mut sorted: Vec<_> = changes.blocks.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            for (key, location) in sorted {
                let key: &[u8] = key;
                let old = match location {
                    Some(location) => blocks.insert(key, &location.to_bytes())?,
                    None => blocks.remove(key)?,
                };
                if let Some(old) = old {
                    let old = Location::from_bytes(old.value());
                    totals.blocks -= 1;
                    totals.payload_bytes -= u64::from(old.len);
                    *grown.entry(old.pack).or_default() -= old.section_bytes() as i64;
                }
                if let Some(location) = location {
                    totals.blocks += 1;
                    totals.payload_bytes += u64::from(location.len);
                    *grown.entry(location.pack).or_default() += location.section_bytes() as i64;
                }
            }
            meta.insert("blocks", totals.blocks)?;
            meta.insert("payload_bytes", totals.payload_bytes)?;
            let packs = update_packs(&mut write.open_table(PACKS)?, grown, changes.tombstone_bytes, position)?;
            drop((meta, blocks));
            write.commit()?;
            Ok(Applied { totals, packs })
        };
        write().map_err(|error| self.failed("write", error))
    }

    /// Forgets packs that are not there any more. With `durable`, for good.
    pub(super) fn forget(&self, packs: &[u32], durable: bool) -> Result<()> {
        let write = || -> Result<_, redb::Error> {
            let write = self.begin_write(durable)?;
            let mut table = write.open_table(PACKS)?;
            for pack in packs {
                table.remove(pack)?;
            }
            drop(table);
            Ok(write.commit()?)
        };
        write().map_err(|error| self.failed("write", error))
    }

    fn begin_write(&self, durable: bool) -> Result<WriteTransaction, redb::Error> {
        let mut write = self.database.begin_write()?;
        write.set_durability(if durable { Durability::Immediate } else { Durability::None })?;
        // Without it, opening after a crash would walk the whole file.
        write.set_quick_repair(durable);
        Ok(write)
    }

    /// Size of its file, in bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len())
    }

    fn failed(&self, action: &str, error: redb::Error) -> Error {
        failed(action, &self.path, error)
    }
}

fn read_totals(meta: &impl ReadableTable<&'static str, u64>) -> Result<Totals, StorageError> {
    let read = |key| Ok::<_, StorageError>(meta.get(key)?.map_or(0, |value| value.value()));
    Ok(Totals { blocks: read("blocks")?, payload_bytes: read("payload_bytes")? })
}

/// Notes for which packs how much of them is `grown`, what else was written at their end, and how far that is covered.
fn update_packs(
    table: &mut Table<'_, u32, (u32, u64, u64)>,
    mut grown: BTreeMap<u32, i64>,
    tombstone_bytes: u64,
    position: Position,
) -> Result<BTreeMap<u32, PackUse>, StorageError> {
    let mut packs = BTreeMap::new();
    grown.entry(position.pack).or_default();
    for (pack, grown) in grown {
        let mut known: PackUse = table.get(pack)?.map(|known| known.value().into()).unwrap_or_default();
        known.live_bytes = known.live_bytes.saturating_add_signed(grown);
        if pack == position.pack {
            known.covered = position.offset;
            known.tombstone_bytes += tombstone_bytes;
        }
        table.insert(pack, (known.covered, known.live_bytes, known.tombstone_bytes))?;
        packs.insert(pack, known);
    }
    Ok(packs)
}

/// Whether a new index would mend it.
fn is_damage(error: &redb::Error) -> bool {
    use std::io::ErrorKind as Io;
    match error {
        redb::Error::Io(error) => matches!(error.kind(), Io::InvalidData | Io::UnexpectedEof | Io::InvalidInput),
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::RepairAborted
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. } => true,
        _ => false,
    }
}

fn failed(action: &str, path: &Path, error: redb::Error) -> Error {
    match error {
        redb::Error::Io(error) => super::lock::cannot(action, path, error),
        redb::Error::DatabaseAlreadyOpen => Error::new(
            ErrorKind::Conflict,
            format!("{} is open in another process: stop it, then try again", path.display()),
        ),
        error if is_damage(&error) => Error::corrupt(format!(
            "cannot {action} {}: {error} (stop the program, delete that file and start again: it is rebuilt from the packs)",
            path.display()
        ))
        .with_source(error),
        error => Error::internal(format!("cannot {action} {}: {error}", path.display())).with_source(error),
    }
}
