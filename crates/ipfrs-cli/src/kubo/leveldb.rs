//! Reading of LevelDB, in which Kubo keeps its pins: the files of the current version, merged by key. Only one table of
//! each level that overlaps the current key is in memory.
//!
//! The format is that of <https://github.com/google/leveldb/blob/main/doc/table_format.md> and `log_format.md`.

mod bytes;
mod checksum;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod log;
mod manifest;
mod table;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::manifest::Manifest;
use self::table::Table;

/// Maximum size of a table or a log, in bytes: far above what LevelDB writes.
const MAX_FILE_BYTES: u64 = 256 * 1024 * 1024;

/// Beginning of the names of manifests.
const MANIFEST: &str = "MANIFEST-";

/// Key of an entry: the key itself, then later entries first.
type Order = (Vec<u8>, Reverse<u64>);

/// Value of an entry; `None` for a deletion.
type Value = Option<Vec<u8>>;

/// A database.
#[derive(Debug)]
pub(super) struct LevelDb {
    path: PathBuf,
    manifest: Manifest,
    /// Entries that are in logs only.
    recent: BTreeMap<Order, Value>,
}

impl LevelDb {
    /// Opens the database in a directory.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let current = fs::read_to_string(path.join("CURRENT"))
            .with_context(|| format!("{} is no LevelDB database", path.display()))?;
        let current = current.trim();
        // Another path could name any file of this machine.
        if !current.starts_with(MANIFEST) || current.contains('/') {
            bail!("CURRENT in {} names no manifest, but {current:?}", path.display());
        }
        let manifest = Manifest::parse(&read_file(&path.join(current))?)?;
        let mut recent = BTreeMap::new();
        for number in logs(path, &manifest)? {
            let content = read_file(&path.join(format!("{number:06}.log")))?;
            log::entries(&content, |key, sequence, value| drop(recent.insert((key, Reverse(sequence)), value)))?;
        }
        Ok(Self { path: path.to_owned(), manifest, recent })
    }

    /// Calls `found` with all keys that begin with `prefix`, in order, and their values.
    pub(super) fn scan(&self, prefix: &[u8], mut found: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        let mut tables: Vec<_> = self.manifest.tables.values().filter(|table| table.may_have(prefix)).collect();
        tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        let mut unopened: VecDeque<_> = tables.into();
        let mut open: Vec<Option<Table>> = Vec::new();
        let mut heads: BinaryHeap<Reverse<(Order, usize, Value)>> = BinaryHeap::new();
        let mut recent = self.recent.range((prefix.to_vec(), Reverse(u64::MAX))..).peekable();
        let mut last: Option<Vec<u8>> = None;
        loop {
            // A table is opened when the scan reaches its first key.
            let next = heads.peek().map(|Reverse(((key, _), _, _))| key.clone());
            let next = match (next, recent.peek()) {
                (Some(key), Some(((other, _), _))) => Some(key.min(other.clone())),
                (Some(key), None) => Some(key),
                (None, Some(((other, _), _))) => Some(other.clone()),
                (None, None) => None,
            };
            if let Some(file) = unopened.pop_front_if(|file| next.as_ref().is_none_or(|key| file.smallest <= *key)) {
                let path = [format!("{:06}.ldb", file.number), format!("{:06}.sst", file.number)];
                let path = path.iter().map(|name| self.path.join(name)).find(|path| path.exists());
                let Some(path) = path else { bail!("table {} of {} is missing", file.number, self.path.display()) };
                let content = read_file(&path)?;
                let table = Table::open(content).with_context(|| format!("in {}", path.display()))?;
                open.push(Some(table));
                let number = open.len() - 1;
                advance(&mut open, number, prefix, &mut heads).with_context(|| format!("in {}", path.display()))?;
                continue;
            }
            let is_recent = match (recent.peek(), heads.peek()) {
                (Some((order, _)), Some(Reverse((head, _, _)))) => *order < head,
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (None, None) => return Ok(()),
            };
            let ((key, _), value) = if is_recent {
                let Some((order, value)) = recent.next() else { return Ok(()) };
                (order.clone(), value.clone())
            } else {
                let Some(Reverse((order, number, value))) = heads.pop() else { return Ok(()) };
                advance(&mut open, number, prefix, &mut heads)?;
                (order, value)
            };
            if !key.starts_with(prefix) {
                if key.as_slice() > prefix && heads.is_empty() && unopened.is_empty() {
                    return Ok(());
                }
                continue;
            }
            if last.as_ref() == Some(&key) {
                continue;
            }
            if let Some(value) = value {
                found(&key, &value)?;
            }
            last = Some(key);
        }
    }
}

/// Moves the next entry of a table to the heap. Closes a table that has no more keys with the prefix.
fn advance(
    open: &mut [Option<Table>],
    number: usize,
    prefix: &[u8],
    heads: &mut BinaryHeap<Reverse<(Order, usize, Value)>>,
) -> Result<()> {
    let Some(table) = open.get_mut(number).and_then(Option::as_mut) else { return Ok(()) };
    while let Some((key, sequence, value)) = table.next()? {
        if key.starts_with(prefix) {
            heads.push(Reverse(((key, Reverse(sequence)), number, value)));
            return Ok(());
        }
        if key.as_slice() > prefix {
            break;
        }
    }
    open[number] = None;
    Ok(())
}

/// Returns the numbers of the logs with entries that no table has, in order.
fn logs(path: &Path, manifest: &Manifest) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
        numbers.extend(number.filter(|number: &u64| *number >= manifest.log || *number == manifest.previous_log));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", path.display());
    let mut content = Vec::new();
    let file = File::open(path).with_context(cannot)?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut content).with_context(cannot)?;
    if content.len() as u64 > MAX_FILE_BYTES {
        bail!("{} is too long for a file of LevelDB", path.display());
    }
    Ok(content)
}
