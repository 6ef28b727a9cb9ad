//! Local files and directory trees, in the order in which Kubo adds them.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ipfrs_core::{Error, ErrorKind, Result};

use crate::{Attributes, Mtime};

/// Maximum depth of nested directories. Limits of local paths apply long before.
const MAX_DEPTH: usize = 1_024;

/// Rules in the syntax of `.gitignore` (<https://git-scm.com/docs/gitignore>). Their paths are relative to the root of
/// the tree.
#[derive(Debug, Clone)]
pub struct IgnoreRules(Arc<Gitignore>);

impl IgnoreRules {
    /// Reads rules from a file, and then from `rules`. Later rules override earlier ones.
    ///
    /// # Errors
    /// Returns an error that names the file or the rule that cannot be read.
    pub fn new(file: Option<&Path>, rules: &[String]) -> Result<Self> {
        let mut builder = GitignoreBuilder::new("");
        if let Some(file) = file {
            let text = fs::read_to_string(file).map_err(|e| unreadable(file, e))?;
            for (number, line) in text.lines().enumerate() {
                let failed = |e| Error::invalid(format!("{}, line {}: {e}", file.display(), number + 1));
                builder.add_line(None, line).map_err(failed)?;
            }
        }
        for rule in rules {
            builder.add_line(None, rule).map_err(|e| Error::invalid(format!("the rule {rule:?}: {e}")))?;
        }
        let rules = builder.build().map_err(|e| Error::invalid(format!("the rules to ignore: {e}")))?;
        Ok(Self(Arc::new(rules)))
    }

    fn excludes(&self, path: &Path, is_directory: bool) -> bool {
        self.0.matched(path, is_directory).is_ignore()
    }
}

/// How to walk over a tree.
#[derive(Debug, Clone, Default)]
pub struct WalkOptions {
    /// Name of the root, or `None` for its last component.
    pub name: Option<Vec<u8>>,
    /// Whether to include directory entries whose names begin with a dot.
    pub hidden: bool,
    /// Whether a symlink at the root means its target.
    pub follow_root: bool,
    /// Whether every symlink means its target.
    pub follow_all: bool,
    /// Entries of directories that are left out, with everything below them.
    pub ignore: Option<IgnoreRules>,
}

impl WalkOptions {
    fn follows(&self, depth: usize) -> bool {
        self.follow_all || (self.follow_root && depth == 0)
    }
}

/// Receiver of the entries of a tree. Paths begin with the name of the root, and are separated by slashes. An error
/// ends the walk.
pub trait TreeVisitor {
    /// Visits a directory. Its entries follow.
    ///
    /// # Errors
    /// Ends the walk.
    fn directory(&mut self, path: &[u8], attributes: Attributes) -> Result<()>;

    /// Visits a symlink.
    ///
    /// # Errors
    /// Ends the walk.
    fn symlink(&mut self, path: &[u8], attributes: Attributes, target: &[u8]) -> Result<()>;

    /// Visits a file. `source` is its local path.
    ///
    /// # Errors
    /// Ends the walk.
    fn file(&mut self, path: &[u8], attributes: Attributes, source: &Path, content: &mut dyn Read) -> Result<()>;
}

/// Visits the file or directory at `path` and everything below it, on the current thread.
///
/// # Errors
/// Returns an error that names the path for an entry that cannot be read, and errors of the visitor.
pub fn walk(path: &Path, options: &WalkOptions, visitor: &mut impl TreeVisitor) -> Result<()> {
    let name = match &options.name {
        Some(name) => name.clone(),
        None => name_of(path)?,
    };
    Walk { options, visitor, ancestors: Vec::new() }.entry(path, name, Path::new(""))
}

/// Returns the last component of a path.
fn name_of(path: &Path) -> Result<Vec<u8>> {
    // "." and ".." have no file name.
    let resolved = match path.file_name() {
        Some(_) => path.to_owned(),
        None => fs::canonicalize(path).map_err(|e| unreadable(path, e))?,
    };
    match resolved.file_name() {
        Some(name) => Ok(name.as_bytes().to_vec()),
        None => Err(Error::invalid(format!("{} has no name to add it under", path.display()))),
    }
}

struct Walk<'a, V> {
    options: &'a WalkOptions,
    visitor: &'a mut V,
    ancestors: Vec<FileId>,
}

/// Device and inode of a directory.
type FileId = (u64, u64);

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

impl<V: TreeVisitor> Walk<'_, V> {
    /// Visits what is at `path`. `below_root` is its path below the root of the tree.
    fn entry(&mut self, path: &Path, name: Vec<u8>, below_root: &Path) -> Result<()> {
        let depth = self.ancestors.len();
        let is_followed = self.options.follows(depth);
        let metadata = metadata(path, is_followed).map_err(|e| unreadable(path, e))?;
        let (kind, attributes) = (metadata.file_type(), attributes(&metadata));
        if kind.is_symlink() {
            let target = fs::read_link(path).map_err(|e| unreadable(path, e))?;
            return self.visitor.symlink(&name, attributes, &target.into_os_string().into_vec());
        }
        if kind.is_dir() {
            if depth == MAX_DEPTH {
                return Err(Error::too_large(format!("{} is more than {MAX_DEPTH} directories deep", path.display())));
            }
            if self.ancestors.contains(&id_of(&metadata)) {
                let why = "leads back to a directory that contains it: add it without following symlinks";
                return Err(Error::invalid(format!("{} {why}", path.display())));
            }
            self.ancestors.push(id_of(&metadata));
            self.visitor.directory(&name, attributes)?;
            for entry in names(path, below_root, self.options, depth + 1).map_err(|e| unreadable(path, e))? {
                let name = [&name, &b"/"[..], entry.as_bytes()].concat();
                self.entry(&path.join(&entry), name, &below_root.join(&entry))?;
            }
            self.ancestors.pop();
            return Ok(());
        }
        if kind.is_file() {
            let (mut file, metadata) = open(path, is_followed).map_err(|e| unreadable(path, e))?;
            if metadata.is_file() {
                return self.visitor.file(&name, self::attributes(&metadata), path, &mut file);
            }
        }
        Err(Error::invalid(format!(
            "{} is neither a file nor a directory nor a symlink: move it away, or add the others by name",
            path.display()
        )))
    }
}

/// Appends up to `bytes` bytes of `content` to `piece`. Returns their number, which is lower only at the end.
///
/// # Errors
/// Returns an error that names `path`.
pub fn read_piece(path: &Path, content: &mut dyn Read, bytes: usize, piece: &mut Vec<u8>) -> Result<usize> {
    content.take(bytes as u64).read_to_end(piece).map_err(|e| unreadable(path, e))
}

/// Returns the total size in bytes of the files that [`walk`] would visit, without those that cannot be read.
#[must_use]
pub fn size_of_tree(path: &Path, options: &WalkOptions) -> u64 {
    size_of(path, Path::new(""), options, &mut Vec::new())
}

fn size_of(path: &Path, below_root: &Path, options: &WalkOptions, ancestors: &mut Vec<FileId>) -> u64 {
    let depth = ancestors.len();
    match metadata(path, options.follows(depth)) {
        Ok(metadata) if metadata.is_dir() && depth < MAX_DEPTH && !ancestors.contains(&id_of(&metadata)) => {
            ancestors.push(id_of(&metadata));
            let names = names(path, below_root, options, depth + 1).unwrap_or_default();
            let sizes = names.iter().map(|name| size_of(&path.join(name), &below_root.join(name), options, ancestors));
            let size = sizes.sum();
            ancestors.pop();
            size
        }
        Ok(metadata) if metadata.is_file() => metadata.len(),
        _ => 0,
    }
}

fn metadata(path: &Path, is_followed: bool) -> io::Result<Metadata> {
    if is_followed { fs::metadata(path) } else { fs::symlink_metadata(path) }
}

/// Opens an entry that was a file when it was listed, and returns its current metadata. A symlink that has replaced
/// it is not followed, and a pipe does not block.
fn open(path: &Path, is_followed: bool) -> io::Result<(File, Metadata)> {
    let nofollow = if is_followed { 0 } else { libc::O_NOFOLLOW };
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | nofollow).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn unreadable(path: &Path, error: io::Error) -> Error {
    // The files are those of the caller.
    if error.kind() == io::ErrorKind::PermissionDenied {
        let message = format!("cannot read {}: {error}", path.display());
        return Error::new(ErrorKind::Forbidden, message).with_source(error);
    }
    Error::io(format_args!("cannot read {}", path.display()), error)
}

fn attributes(metadata: &Metadata) -> Attributes {
    let nanos = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
    // As in Kubo, a mode of 0 means that there is none.
    let mode = Some(metadata.mode() & 0o7777).filter(|mode| *mode != 0);
    Attributes { mode, mtime: Some(Mtime { seconds: metadata.mtime(), nanos }) }
}

/// Returns the names of the entries of a directory that are visited, in byte order. Entries are at `depth`.
fn names(path: &Path, below_root: &Path, options: &WalkOptions, depth: usize) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name()));
    let is_directory =
        |name: &OsStr| metadata(&path.join(name), options.follows(depth)).is_ok_and(|metadata| metadata.is_dir());
    let is_ignored = |rules: &IgnoreRules, name: &OsStr| rules.excludes(&below_root.join(name), is_directory(name));
    let is_wanted = |name: &OsStr| {
        (options.hidden || !name.as_bytes().starts_with(b"."))
            && !options.ignore.as_ref().is_some_and(|rules| is_ignored(rules, name))
    };
    let names = names.filter(|name| name.as_ref().map_or(true, |name| is_wanted(name)));
    let mut names = names.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_the_caller_may_not_read_is_forbidden() {
        for (system, kind) in
            [(io::ErrorKind::PermissionDenied, ErrorKind::Forbidden), (io::ErrorKind::NotFound, ErrorKind::NotFound)]
        {
            assert_eq!(unreadable(Path::new("private"), system.into()).kind(), kind);
        }
    }
}
