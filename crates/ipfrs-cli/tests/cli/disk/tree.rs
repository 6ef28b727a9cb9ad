//! The content of a file system in memory, as the result of changes that can be repeated in part.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

/// Number of a file or directory. The root has 1.
pub(crate) type Number = u64;

pub(crate) const ROOT: Number = 1;

/// A step in the life of a file system.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A new file or directory, which has no name yet.
    Create {
        number: Number,
        is_directory: bool,
        mode: u32,
    },
    /// An entry is created or replaced.
    Link {
        directory: Number,
        name: OsString,
        number: Number,
    },
    Unlink {
        directory: Number,
        name: OsString,
    },
    Rename {
        from: (Number, OsString),
        to: (Number, OsString),
        number: Number,
    },
    Write {
        file: Number,
        offset: u64,
        data: Arc<[u8]>,
    },
    Truncate {
        file: Number,
        length: u64,
    },
    /// `fsync` or `fdatasync` of a file or directory.
    Sync {
        number: Number,
    },
    /// A sync of a file that failed. What was not durable before it never will be, even if a later sync succeeds.
    FailedSync {
        number: Number,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) mode: u32,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<OsString, Number>),
}

#[derive(Debug, Clone)]
pub(crate) struct Tree(HashMap<Number, Inode>);

impl Default for Tree {
    fn default() -> Self {
        let root = Inode { mode: 0o755, content: Content::Directory(BTreeMap::new()) };
        Self(HashMap::from([(ROOT, root)]))
    }
}

impl Tree {
    pub(crate) fn get(&self, number: Number) -> Option<&Inode> {
        self.0.get(&number)
    }

    pub(crate) fn entries(&self, directory: Number) -> Option<&BTreeMap<OsString, Number>> {
        match &self.0.get(&directory)?.content {
            Content::Directory(entries) => Some(entries),
            Content::File(_) => None,
        }
    }

    pub(crate) fn entry(&self, directory: Number, name: &OsStr) -> Option<Number> {
        self.entries(directory)?.get(name).copied()
    }

    pub(crate) fn file(&self, number: Number) -> Option<&[u8]> {
        match &self.0.get(&number)?.content {
            Content::File(bytes) => Some(bytes),
            Content::Directory(_) => None,
        }
    }

    pub(crate) fn set_mode(&mut self, number: Number, mode: u32) {
        if let Some(inode) = self.0.get_mut(&number) {
            inode.mode = mode;
        }
    }

    /// Makes a change. Files and directories that it concerns exist, with or without a name.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { number, is_directory, mode } => {
                let content =
                    if *is_directory { Content::Directory(BTreeMap::new()) } else { Content::File(Vec::new()) };
                self.0.insert(*number, Inode { mode: *mode, content });
            }
            Change::Link { directory, name, number } => {
                self.entries_mut(*directory).insert(name.clone(), *number);
            }
            Change::Unlink { directory, name } => {
                self.entries_mut(*directory).remove(name);
            }
            Change::Rename { from, to, number } => {
                self.entries_mut(from.0).remove(&from.1);
                self.entries_mut(to.0).insert(to.1.clone(), *number);
            }
            Change::Write { file, offset, data } => {
                let bytes = self.bytes_mut(*file);
                let end = *offset as usize + data.len();
                if bytes.len() < end {
                    bytes.resize(end, 0);
                }
                bytes[*offset as usize..end].copy_from_slice(data);
            }
            Change::Truncate { file, length } => self.bytes_mut(*file).resize(*length as usize, 0),
            Change::Sync { .. } | Change::FailedSync { .. } => {}
        }
    }

    fn entries_mut(&mut self, directory: Number) -> &mut BTreeMap<OsString, Number> {
        match &mut self.0.get_mut(&directory).unwrap().content {
            Content::Directory(entries) => entries,
            Content::File(_) => panic!("{directory} is a file"),
        }
    }

    fn bytes_mut(&mut self, file: Number) -> &mut Vec<u8> {
        match &mut self.0.get_mut(&file).unwrap().content {
            Content::File(bytes) => bytes,
            Content::Directory(_) => panic!("{file} is a directory"),
        }
    }

    /// Writes everything that has a name below `path`, an existing directory.
    pub(crate) fn write_to(&self, path: &Path) {
        self.write_directory(ROOT, path, &mut HashMap::new());
    }

    fn write_directory(&self, directory: Number, path: &Path, written: &mut HashMap<Number, std::path::PathBuf>) {
        for (name, number) in self.entries(directory).unwrap() {
            let path = path.join(name);
            let inode = &self.0[number];
            match &inode.content {
                Content::Directory(_) => {
                    fs::create_dir(&path).unwrap();
                    self.write_directory(*number, &path, written);
                }
                Content::File(_) if written.contains_key(number) => fs::hard_link(&written[number], &path).unwrap(),
                Content::File(bytes) => {
                    fs::write(&path, bytes).unwrap();
                    written.insert(*number, path.clone());
                }
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(inode.mode & 0o7777)).unwrap();
        }
    }
}
