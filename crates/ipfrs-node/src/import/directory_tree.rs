//! Names of an import, and the directories that they imply.

use std::path::PathBuf;
use std::sync::Arc;

use ipfrs_core::{Error, Result, cid_from_bytes};
use ipfrs_store::BlockStore;
use ipfrs_unixfs::{Attributes, DirectoryBuilder, Entry, EntryKind, Importer, Mtime, entry_hash};
use tokio::task::coop::consume_budget;

use super::options::Added;
use super::sorted_table::{Record, SortedTable};
use crate::LinkName;

/// Approximate memory for the names of one import, in bytes. Further names are stored in a temporary file.
const MAX_MEMORY_BYTES: usize = 4 * 1024 * 1024;

/// Number of entries of a directory that are taken together.
const BATCH_ENTRIES: usize = 1_024;

/// Terminator of a directory's names in a key. It sorts after all other bytes, so that a directory follows the
/// directories inside it. In names, it is escaped.
const END: u8 = 0xff;
/// Escape for itself and for [`END`] in the names of a directory's key. The next byte says which of the two is meant.
const ESCAPE: u8 = 0xfe;
const ESCAPED_ESCAPE: u8 = 1;
const ESCAPED_END: u8 = 2;
/// Separator of a directory's names in a key. No name contains it.
const SEPARATOR: u8 = 0;
/// Length of an [`entry_hash`] in a key, which is big-endian.
const HASH_BYTES: usize = 8;

/// Names of an import with their entries, in the order in which directories are built.
///
/// The key of an entry consists of the key of its directory, the hash of its name, and the name; its value is an
/// [`Entry`]. The key of a directory consists of its names, escaped, separated and terminated. The table also
/// contains this key by itself, with the attributes of the directory as its value.
#[derive(Debug)]
pub(crate) struct Tree {
    /// `None` while another thread uses the table, or after that thread has panicked.
    table: Option<SortedTable>,
    /// Whether empty directories are left out, except at the top level.
    skips_empty: bool,
    /// Store on the same disk, whose reserve is checked before the temporary file grows.
    store: Option<Arc<dyn BlockStore>>,
}

/// Result of building a directory.
enum Outcome {
    Built(Box<Added>),
    /// The directory was left out, because it is empty.
    Skipped,
    /// The directory is the one without a name, and the client did not request it.
    Unasked,
}

impl Tree {
    /// Creates an empty tree. Its temporary file is created in `dir`, on the disk of `store`, when it is needed.
    pub(crate) fn new(dir: PathBuf, store: Option<Arc<dyn BlockStore>>) -> Self {
        Self { store, ..Self::with_memory(dir, MAX_MEMORY_BYTES) }
    }

    fn with_memory(dir: PathBuf, max_bytes: usize) -> Self {
        Self { table: Some(SortedTable::new(dir, max_bytes)), skips_empty: false, store: None }
    }

    /// Leaves out empty directories, except at the top level.
    pub(crate) fn skip_empty(&mut self) {
        self.skips_empty = true;
    }

    /// Puts `entry` at `names`, of which there must be at least one.
    ///
    /// # Errors
    /// If the name is known to be taken; if this is found only later, [`Self::build_next`] returns the error. Also if
    /// the temporary file cannot be written.
    pub(crate) async fn place(&mut self, names: &[&[u8]], entry: &Entry) -> Result<()> {
        let Some((name, parents)) = names.split_last() else {
            return Err(Error::internal("an entry of an import has no name"));
        };
        let key = entry_key(directory_key(parents), name);
        let replaced = self.table()?.insert(key, Value::Entry(entry.clone()).to_bytes());
        if let Some(replaced) = replaced {
            return Err(name_conflict(names, &Value::from_bytes(&replaced)?, entry));
        }
        self.make_room().await
    }

    /// Creates a directory at `names`, or replaces the attributes of an existing one.
    ///
    /// # Errors
    /// If the temporary file cannot be written.
    pub(crate) async fn directory(&mut self, names: &[&[u8]], attributes: Attributes) -> Result<()> {
        self.table()?.insert(directory_key(names), Value::Attributes(attributes).to_bytes());
        self.make_room().await
    }

    /// Imports the next directory, after all directories inside it. `stored` maps the attributes that the client sent
    /// to those to store. The last directory is the one without a name, which contains everything. Unless `wrap` is
    /// set, it is only checked, and the result is `None`. After the first call, nothing more can be placed.
    ///
    /// # Errors
    /// If a name occurs twice, if the sink fails, or if the temporary file cannot be read or written.
    pub(crate) async fn build_next(
        &mut self,
        importer: &mut Importer,
        stored: impl Fn(Attributes) -> Attributes,
        wrap: bool,
    ) -> Result<Option<Added>> {
        loop {
            // Small directories in memory never wait, and there may be many.
            consume_budget().await;
            let Some((key, batch)) = self.with_table(first_batch).await? else { return Ok(None) };
            match self.build(importer, &stored, wrap, key, batch).await? {
                Outcome::Built(added) => return Ok(Some(*added)),
                Outcome::Skipped => {}
                Outcome::Unasked => return Ok(None),
            }
        }
    }

    /// Imports the directory of `key`, whose first entries are in `batch`.
    async fn build(
        &mut self,
        importer: &mut Importer,
        stored: impl Fn(Attributes) -> Attributes,
        wrap: bool,
        key: Vec<u8>,
        mut batch: Vec<Record>,
    ) -> Result<Outcome> {
        let names = names_of(&key)?;
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let mut directory = Building { names: &names, attributes: Attributes::default(), last: None, is_empty: true };
        let mut builder = None;
        loop {
            let is_last = batch.len() < BATCH_ENTRIES;
            let entries = directory.entries(batch)?;
            if self.skips_empty && directory.is_empty && names.len() > usize::from(!wrap) {
                self.skip(&names).await?;
                return Ok(Outcome::Skipped);
            }
            if wrap || !names.is_empty() {
                let begun = match builder {
                    Some(begun) => begun,
                    None => importer.begin_directory(stored(directory.attributes))?,
                };
                builder = Some(importer.extend_directory(begun, entries).await?);
            }
            if is_last {
                break;
            }
            let of = key.clone();
            batch = self.with_table(move |table| take_batch(table, &of)).await?;
        }
        let Some(builder) = builder else { return Ok(Outcome::Unasked) };
        self.finish(importer, &names, builder, directory.attributes).await.map(|added| Outcome::Built(Box::new(added)))
    }

    /// Records that a directory was left out. As in Kubo, its parent does not count as empty because of that.
    async fn skip(&mut self, names: &[&[u8]]) -> Result<()> {
        let Some((name, parents)) = names.split_last() else { return Ok(()) };
        let key = entry_key(directory_key(parents), name);
        self.table()?.insert(key, Value::Skipped.to_bytes());
        self.make_room().await
    }

    /// Imports a directory and adds it as an entry to its parent.
    async fn finish(
        &mut self,
        importer: &mut Importer,
        names: &[&[u8]],
        builder: DirectoryBuilder,
        attributes: Attributes,
    ) -> Result<Added> {
        let entry = importer.finish_directory(builder).await?;
        let (name, kind) = (names.join(&b'/').into(), EntryKind::Directory);
        let added = Added { name, cid: entry.cid, size: entry.tsize, kind, attributes };
        if !names.is_empty() {
            self.place(names, &entry).await?;
        }
        Ok(added)
    }

    fn table(&mut self) -> Result<&mut SortedTable> {
        self.table.as_mut().ok_or_else(|| Error::internal("the import ended with an earlier error"))
    }

    async fn make_room(&mut self) -> Result<()> {
        if !self.table()?.is_full() {
            return Ok(());
        }
        if let Some(store) = &self.store
            && let Some(disk) = store.disk().await?
        {
            disk.check(MAX_MEMORY_BYTES as u64)?;
        }
        self.on_blocking_thread(SortedTable::spill).await
    }

    /// Runs `work` with the table, on a blocking thread if the table may wait for the disk.
    async fn with_table<T, F>(&mut self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut SortedTable) -> Result<T> + Send + 'static,
    {
        let table = self.table()?;
        if table.is_on_disk() { self.on_blocking_thread(work).await } else { work(table) }
    }

    async fn on_blocking_thread<T, F>(&mut self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut SortedTable) -> Result<T> + Send + 'static,
    {
        let mut table = self.table.take().ok_or_else(|| Error::internal("the import ended with an earlier error"))?;
        let done = tokio::task::spawn_blocking(move || (work(&mut table), table)).await;
        let (result, table) =
            done.map_err(|e| Error::internal("sorting the names of an import failed").with_source(e))?;
        self.table = Some(table);
        result
    }
}

/// Directory whose entries are being read.
struct Building<'a> {
    names: &'a [&'a [u8]],
    /// Attributes that the client sent. They are the first record of the first batch, so they are known from then on.
    attributes: Attributes,
    /// Last entry that was read.
    last: Option<(LinkName, Entry)>,
    /// Whether no record was found so far, not even that of a directory which was left out.
    is_empty: bool,
}

impl Building<'_> {
    /// Returns the entries of a batch, after a check that each name occurs once.
    fn entries(&mut self, batch: Vec<Record>) -> Result<Vec<(LinkName, Entry)>> {
        let mut entries = Vec::with_capacity(batch.len());
        for (key, value) in batch {
            match Value::from_bytes(&value)? {
                Value::Attributes(attributes) => self.attributes = attributes,
                Value::Skipped => self.is_empty = false,
                Value::Entry(entry) => {
                    self.is_empty = false;
                    let name = LinkName::from(name_of(&key)?);
                    if let Some((_, last)) = self.last.as_ref().filter(|(last, _)| *last == name) {
                        let names: Vec<_> = self.names.iter().copied().chain([name.as_bytes()]).collect();
                        return Err(name_conflict(&names, &Value::Entry(last.clone()), &entry));
                    }
                    self.last = Some((name.clone(), entry.clone()));
                    entries.push((name, entry));
                }
            }
        }
        Ok(entries)
    }
}

/// Returns the key of the directory of the first entry, and the first records of that directory.
fn first_batch(table: &mut SortedTable) -> Result<Option<(Vec<u8>, Vec<Record>)>> {
    let Some(first) = table.first()? else { return Ok(None) };
    let directory = first.split_inclusive(|byte| *byte == END).next().unwrap_or_default().to_vec();
    let batch = take_batch(table, &directory)?;
    Ok(Some((directory, batch)))
}

/// Takes the next records of a directory. A batch with fewer than [`BATCH_ENTRIES`] records is the last one.
fn take_batch(table: &mut SortedTable, directory: &[u8]) -> Result<Vec<Record>> {
    let mut batch = Vec::new();
    while batch.len() < BATCH_ENTRIES
        && let Some(entry) = table.take(directory)?
    {
        batch.push(entry);
    }
    Ok(batch)
}

fn name_conflict(names: &[&[u8]], before: &Value, entry: &Entry) -> Error {
    let path = LinkName::from(names.join(&b'/'));
    let is_directory = |kind| kind == EntryKind::Directory;
    match before {
        Value::Entry(before) if is_directory(before.kind) == is_directory(entry.kind) => {
            Error::invalid(format!("{path:?} is in the import twice: give each file a name of its own"))
        }
        _ => Error::invalid(format!("{path:?} is a file and a directory in one import: give each a name of its own")),
    }
}

fn directory_key(names: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::new();
    for (i, name) in names.iter().enumerate() {
        key.extend((i > 0).then_some(SEPARATOR));
        for byte in *name {
            match *byte {
                ESCAPE => key.extend([ESCAPE, ESCAPED_ESCAPE]),
                END => key.extend([ESCAPE, ESCAPED_END]),
                byte => key.push(byte),
            }
        }
    }
    key.push(END);
    key
}

fn entry_key(mut key: Vec<u8>, name: &[u8]) -> Vec<u8> {
    key.extend(entry_hash(name).to_be_bytes());
    key.extend(name);
    key
}

/// Returns the names in a directory's key.
fn names_of(key: &[u8]) -> Result<Vec<Vec<u8>>> {
    let names = key.strip_suffix(&[END]).ok_or_else(damaged)?;
    names.split(|byte| *byte == SEPARATOR).filter(|name| !name.is_empty()).map(unescaped).collect()
}

fn unescaped(name: &[u8]) -> Result<Vec<u8>> {
    let (mut out, mut bytes) = (Vec::with_capacity(name.len()), name.iter());
    while let Some(byte) = bytes.next() {
        out.push(match *byte {
            ESCAPE => match bytes.next() {
                Some(&ESCAPED_ESCAPE) => ESCAPE,
                Some(&ESCAPED_END) => END,
                _ => return Err(damaged()),
            },
            byte => byte,
        });
    }
    Ok(out)
}

/// Returns the name in an entry's key.
fn name_of(key: &[u8]) -> Result<&[u8]> {
    let end = key.iter().position(|byte| *byte == END).ok_or_else(damaged)?;
    key.get(end + 1 + HASH_BYTES..).ok_or_else(damaged)
}

fn damaged() -> Error {
    Error::internal("the names of an import did not read back as they were written")
}

/// Value of a key in the table. In its encoding, numbers are little-endian and absent fields are zero:
///
/// | byte | entry | attributes |
/// |---|---|---|
/// | 0 | its kind: 0 file, 1 directory, 2 symlink | 4, with a mode 5, with a time 6, with both 7 |
/// | 1 | tsize, 8 bytes | seconds, 8 bytes |
/// | 9 | size, 8 bytes | mode, 4 bytes; nanoseconds, 4 bytes |
/// | 17 | binary CID | |
///
/// A directory that was left out is encoded as the byte 8, followed by zeros.
enum Value {
    Entry(Entry),
    Attributes(Attributes),
    /// Directory that was left out.
    Skipped,
}

const KINDS: [EntryKind; 3] = [EntryKind::File, EntryKind::Directory, EntryKind::Symlink];
const IS_ATTRIBUTES: u8 = 4;
const IS_SKIPPED: u8 = 8;
const HAS_MODE: u8 = 1;
const HAS_MTIME: u8 = 2;

impl Value {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Entry(entry) => {
                let kind = KINDS.iter().position(|kind| *kind == entry.kind).unwrap_or_default() as u8;
                let sizes = [entry.tsize.to_le_bytes(), entry.size.to_le_bytes()];
                [&[kind], sizes.as_flattened(), &entry.cid.to_bytes()].concat()
            }
            Self::Attributes(Attributes { mode, mtime }) => {
                let flags = mode.map_or(0, |_| HAS_MODE) | mtime.map_or(0, |_| HAS_MTIME);
                let mtime = mtime.unwrap_or(Mtime { seconds: 0, nanos: 0 });
                let rest = [mode.unwrap_or_default().to_le_bytes(), mtime.nanos.to_le_bytes()];
                [&[IS_ATTRIBUTES | flags], &mtime.seconds.to_le_bytes()[..], rest.as_flattened()].concat()
            }
            Self::Skipped => [&[IS_SKIPPED][..], &[0; 16]].concat(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (head, cid) = bytes.split_first_chunk::<17>().ok_or_else(damaged)?;
        let [flags, a @ .., b0, b1, b2, b3, c0, c1, c2, c3] = *head;
        if flags == IS_SKIPPED {
            return Ok(Self::Skipped);
        }
        if flags & IS_ATTRIBUTES != 0 {
            let mtime = Mtime { seconds: i64::from_le_bytes(a), nanos: u32::from_le_bytes([c0, c1, c2, c3]) };
            let mode = u32::from_le_bytes([b0, b1, b2, b3]);
            return Ok(Self::Attributes(Attributes {
                mode: (flags & HAS_MODE != 0).then_some(mode),
                mtime: (flags & HAS_MTIME != 0).then_some(mtime),
            }));
        }
        Ok(Self::Entry(Entry {
            cid: cid_from_bytes(cid)?,
            tsize: u64::from_le_bytes(a),
            size: u64::from_le_bytes([b0, b1, b2, b3, c0, c1, c2, c3]),
            kind: *KINDS.get(usize::from(flags)).ok_or_else(damaged)?,
        }))
    }
}

#[cfg(test)]
mod tests;
