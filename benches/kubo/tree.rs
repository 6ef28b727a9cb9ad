//! Model of the tree of mutable files, from which random operations choose their paths.

use std::collections::BTreeMap;

/// A file of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) size: u64,
    /// Whether content was appended. Kubo loses content if such a file is changed in place.
    pub(crate) is_appended: bool,
    /// Whether it has a time. A write then stores the time of the write, which differs between servers.
    pub(crate) has_time: bool,
}

/// An entry of the tree: a file, or a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entry {
    Directory,
    File(File),
}

/// A tree by absolute paths, with its root.
#[derive(Debug)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

impl Tree {
    pub(crate) fn new() -> Self {
        Self(BTreeMap::from([("/".to_owned(), Entry::Directory)]))
    }

    /// Returns the number of entries, with the root.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, path: &str) -> Option<Entry> {
        self.0.get(path).copied()
    }

    /// Returns all entries in the order of their paths, the root first.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), *entry))
    }

    /// Returns the paths of an entry and of all entries below it.
    pub(crate) fn below(&self, path: &str) -> Vec<String> {
        self.0.keys().filter(|other| is_within(other, path)).cloned().collect()
    }

    pub(crate) fn put(&mut self, path: &str, entry: Entry) {
        self.0.insert(path.to_owned(), entry);
    }

    /// Creates a directory, and those above it.
    pub(crate) fn make_directories(&mut self, path: &str) {
        for (end, _) in path.match_indices('/').skip(1) {
            self.put(&path[..end], Entry::Directory);
        }
        self.put(path, Entry::Directory);
    }

    pub(crate) fn copy(&mut self, from: &str, to: &str) {
        for path in self.below(from) {
            if let Some(entry) = self.get(&path) {
                self.put(&format!("{to}{}", &path[from.len()..]), entry);
            }
        }
    }

    pub(crate) fn remove(&mut self, path: &str) {
        for path in self.below(path) {
            self.0.remove(&path);
        }
    }
}

/// Whether `path` is `directory` or below it.
pub(crate) fn is_within(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the path of an entry of a directory.
pub(crate) fn join(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.trim_end_matches('/'))
}
