//! Random operations on mutable files, most of which succeed.

use std::collections::BTreeSet;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::tree::{Entry, File, Tree, is_within, join};

/// Path of the directory that crosses the limit of sharding again and again.
pub(crate) const WIDE: &str = "/wide";
/// Number of entries of [`WIDE`] at the beginning, just below 256 KiB of names and content IDs.
pub(crate) const WIDE_ENTRIES: usize = 1_105;
/// Length of the names in [`WIDE`].
const WIDE_NAME: usize = 200;
/// Number of entries above which most operations remove.
const MAX_ENTRIES: usize = 400;
/// Maximum size of content that the servers refuse, in bytes.
const MAX_REFUSED_BYTES: usize = 1_000;
/// Number of entries of the largest tree that is copied.
const MAX_COPIED: usize = 60;

/// An operation.
#[derive(Debug)]
pub(crate) struct Operation {
    /// Name and arguments, such as `files/mkdir?arg=/a`.
    pub(crate) command: String,
    /// Content of `files/write`.
    pub(crate) content: Option<Vec<u8>>,
    /// Whether the operation leaves its change unflushed.
    pub(crate) is_unflushed: bool,
    change: Change,
}

/// Effect of an operation that succeeds.
#[derive(Debug)]
enum Change {
    Nothing,
    Directory(String),
    File(String, File),
    Copy(String, String),
    Move(String, String),
    Remove(String),
    Touch(String),
    AddWide(usize),
    RemoveWide(usize),
}

/// A random sequence of operations.
#[derive(Debug)]
pub(crate) struct History {
    generator: ChaCha8Rng,
    tree: Tree,
    wide: BTreeSet<usize>,
    /// Content ID of the file that the entries of [`WIDE`] are.
    leaf: String,
}

/// Returns the name of an entry of [`WIDE`].
pub(crate) fn wide_name(entry: usize) -> String {
    format!("{entry:0WIDE_NAME$}")
}

impl Operation {
    fn new(command: String, change: Change) -> Self {
        Self { command, content: None, is_unflushed: false, change }
    }

    fn write(command: String, content: Vec<u8>, path: &str, file: File) -> Self {
        Self { command, content: Some(content), is_unflushed: false, change: Change::File(path.to_owned(), file) }
    }
}

impl History {
    /// Begins a sequence. [`WIDE`] must exist with its entries, which are the file `leaf`.
    pub(crate) fn new(seed: u64, leaf: String) -> Self {
        let wide = (0..WIDE_ENTRIES).collect();
        Self { generator: ChaCha8Rng::seed_from_u64(seed), tree: Tree::new(), wide, leaf }
    }

    /// Returns the next operation. [`Self::apply`] must follow if it succeeds.
    pub(crate) fn next_operation(&mut self) -> Operation {
        loop {
            let Some(mut operation) = self.attempt() else { continue };
            // `files/rm` refuses the option.
            if !operation.command.starts_with("files/rm?") && self.below(10) < 3 {
                operation.command.push_str("&flush=false");
                operation.is_unflushed = true;
            }
            return operation;
        }
    }

    /// Applies the effect of an operation that succeeded.
    pub(crate) fn apply(&mut self, operation: Operation) {
        match operation.change {
            Change::Nothing => {}
            Change::Directory(path) => self.tree.make_directories(&path),
            Change::File(path, file) => self.tree.put(&path, Entry::File(file)),
            Change::Copy(from, to) => self.tree.copy(&from, &to),
            Change::Move(from, to) => {
                self.tree.copy(&from, &to);
                self.tree.remove(&from);
            }
            Change::Remove(path) => self.tree.remove(&path),
            Change::Touch(path) => {
                if let Some(Entry::File(file)) = self.tree.get(&path) {
                    self.tree.put(&path, Entry::File(File { has_time: true, ..file }));
                }
            }
            Change::AddWide(entry) => {
                self.wide.insert(entry);
            }
            Change::RemoveWide(entry) => {
                self.wide.remove(&entry);
            }
        }
    }

    /// Returns an operation, or `None` if the chosen one does not suit the chosen paths.
    fn attempt(&mut self) -> Option<Operation> {
        let kind = self.below(100);
        if kind < 8 {
            return Some(self.change_wide());
        }
        if self.tree.len() > MAX_ENTRIES {
            return self.remove();
        }
        match kind {
            8..23 => Some(self.make_directory()),
            23..45 => self.create(),
            45..53 => self.append(),
            53..60 => self.write_within(),
            60..64 => self.write_beyond(),
            64..76 => self.copy(),
            76..86 => self.rename(),
            86..91 => self.remove(),
            91..96 => Some(self.change_mode()),
            _ => Some(self.touch()),
        }
    }

    fn change_wide(&mut self) -> Operation {
        let entry = self.below(2 * WIDE_ENTRIES);
        let path = join(WIDE, &wide_name(entry));
        if self.wide.contains(&entry) {
            Operation::new(format!("files/rm?arg={path}"), Change::RemoveWide(entry))
        } else {
            Operation::new(format!("files/cp?arg=/ipfs/{}&arg={path}", self.leaf), Change::AddWide(entry))
        }
    }

    fn make_directory(&mut self) -> Operation {
        let path = self.new_path();
        if self.below(10) < 3 {
            let path = join(&path, &self.name());
            Operation::new(format!("files/mkdir?arg={path}&parents=true"), Change::Directory(path))
        } else {
            Operation::new(format!("files/mkdir?arg={path}"), Change::Directory(path))
        }
    }

    fn create(&mut self) -> Option<Operation> {
        let (path, mut content) = (self.new_path(), self.content());
        match self.tree.get(&path) {
            Some(Entry::File(file)) if file.has_time => return None,
            // A server that refuses a write may close the connection before it has received a long body.
            Some(Entry::Directory) => content.truncate(MAX_REFUSED_BYTES),
            _ => {}
        }
        let file = File { size: content.len() as u64, is_appended: false, has_time: false };
        Some(Operation::write(format!("files/write?arg={path}&create=true&truncate=true"), content, &path, file))
    }

    fn append(&mut self) -> Option<Operation> {
        let (path, file) = self.file_without_time()?;
        let content = self.content();
        let is_appended = file.is_appended || (file.size > 0 && !content.is_empty());
        let grown = File { size: file.size + content.len() as u64, is_appended, ..file };
        Some(Operation::write(format!("files/write?arg={path}&offset={}", file.size), content, &path, grown))
    }

    fn write_within(&mut self) -> Option<Operation> {
        let (path, file) = self.file_without_time().filter(|(_, file)| !file.is_appended && file.size > 0)?;
        let size = usize::try_from(file.size).ok()?;
        let offset = self.below(size);
        let length = self.below(size - offset + 1);
        let content = self.bytes(length);
        Some(Operation::write(format!("files/write?arg={path}&offset={offset}"), content, &path, file))
    }

    fn write_beyond(&mut self) -> Option<Operation> {
        let (path, file) = self.file_without_time().filter(|(_, file)| !file.is_appended)?;
        let offset = file.size + 1 + self.below(20_000) as u64;
        let mut content = self.content();
        content.push(0);
        let grown = File { size: offset + content.len() as u64, is_appended: true, ..file };
        Some(Operation::write(format!("files/write?arg={path}&offset={offset}"), content, &path, grown))
    }

    fn copy(&mut self) -> Option<Operation> {
        let (from, to) = (self.path_below_root()?, self.new_path());
        if is_within(&to, &from) || self.tree.below(&from).len() > MAX_COPIED {
            return None;
        }
        Some(Operation::new(format!("files/cp?arg={from}&arg={to}"), Change::Copy(from, to)))
    }

    fn rename(&mut self) -> Option<Operation> {
        let (from, to) = (self.path_below_root()?, self.new_path());
        // Kubo removes a directory that is moved into itself.
        if is_within(&to, &from) || self.tree.get(&to).is_some() {
            return None;
        }
        Some(Operation::new(format!("files/mv?arg={from}&arg={to}"), Change::Move(from, to)))
    }

    fn remove(&mut self) -> Option<Operation> {
        let path = self.path_below_root()?;
        Some(Operation::new(format!("files/rm?arg={path}&recursive=true"), Change::Remove(path)))
    }

    fn change_mode(&mut self) -> Operation {
        let mode = ["644", "755", "600", "777"][self.below(4)];
        let path = self.path();
        Operation::new(format!("files/chmod?arg={mode}&arg={path}"), Change::Nothing)
    }

    fn touch(&mut self) -> Operation {
        let (time, path) = (1 + self.below(2_000_000_000), self.path());
        Operation::new(format!("files/touch?arg={path}&mtime={time}"), Change::Touch(path))
    }

    /// Returns a number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.generator.next_u64() % end as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.generator.fill_bytes(&mut bytes);
        bytes
    }

    /// Returns content: usually a few KB, sometimes nothing or several chunks.
    fn content(&mut self) -> Vec<u8> {
        let length = match self.below(20) {
            0..2 => 0,
            2..16 => 1 + self.below(5_000),
            16..19 => 5_000 + self.below(295_000),
            _ => 300_000 + self.below(600_000),
        };
        self.bytes(length)
    }

    fn name(&mut self) -> String {
        let letter = ["a", "b", "c", "d", "e", "f", "g", "h"][self.below(8)];
        format!("{letter}{}", self.below(40))
    }

    /// Returns a path in an existing directory. Something may have this path already.
    fn new_path(&mut self) -> String {
        let entries = self.tree.entries().filter(|(_, entry)| *entry == Entry::Directory);
        let directories: Vec<String> = entries.map(|(path, _)| path.to_owned()).collect();
        let directory = &directories[self.below(directories.len())];
        join(directory, &self.name())
    }

    /// Returns the path of an entry, or the root.
    fn path(&mut self) -> String {
        let index = self.below(self.tree.len());
        self.tree.entries().nth(index).map_or_else(|| "/".to_owned(), |(path, _)| path.to_owned())
    }

    /// Returns the path of an entry, if there is one.
    fn path_below_root(&mut self) -> Option<String> {
        Some(self.path()).filter(|path| path != "/")
    }

    /// Returns a file that a write does not give the time of the write.
    fn file_without_time(&mut self) -> Option<(String, File)> {
        let path = self.path();
        match self.tree.get(&path)? {
            Entry::File(file) if !file.has_time => Some((path, file)),
            _ => None,
        }
    }
}
