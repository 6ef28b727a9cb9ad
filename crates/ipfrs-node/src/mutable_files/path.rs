//! Paths of mutable files.

use std::fmt;

use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Error, Result};

use crate::LinkName;

/// Absolute path of a mutable file or directory: `/a/b`. A slash at the end is kept, because some operations take it
/// as the name of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MutablePath {
    names: Vec<LinkName>,
    ends_with_slash: bool,
}

impl MutablePath {
    /// Parses a path and removes empty names, `.` and `..`, like Go's `path.Clean`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a path that is empty or does not begin with a slash;
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_PATH_SEGMENTS`] names.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<Self> {
        let path = path.as_ref();
        match path.first() {
            None => return Err(Error::invalid("paths must not be empty")),
            Some(b'/') => {}
            Some(_) => return Err(Error::invalid("paths must start with a leading slash")),
        }
        let mut names: Vec<LinkName> = Vec::new();
        for name in path.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => drop(names.pop()),
                name => names.push(name.into()),
            }
        }
        let ends_with_slash = path.len() > 1 && path.ends_with(b"/");
        Self { names, ends_with_slash }.checked()
    }

    fn checked(self) -> Result<Self> {
        if self.names.len() > MAX_PATH_SEGMENTS {
            let count = self.names.len();
            return Err(Error::too_large(format!("the path has {count} names, over the limit of {MAX_PATH_SEGMENTS}")));
        }
        Ok(self)
    }

    /// Returns the names.
    pub(super) fn names(&self) -> &[LinkName] {
        &self.names
    }

    /// Returns whether the path can only be that of a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.ends_with_slash || self.names.is_empty()
    }

    /// Returns whether the path ends with a slash.
    pub(super) fn ends_with_slash(&self) -> bool {
        self.ends_with_slash
    }

    /// Returns the names up to the last slash, and the name behind it, like Go's `path.Split`. There is no name behind
    /// a slash at the end.
    pub(super) fn split(&self) -> (&[LinkName], Option<&LinkName>) {
        match self.names.split_last() {
            Some((last, parent)) if !self.ends_with_slash => (parent, Some(last)),
            _ => (&self.names, None),
        }
    }

    /// Returns the path with one more name.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(super) fn join(&self, name: LinkName) -> Result<Self> {
        let mut names = self.names.clone();
        names.push(name);
        Self { names, ends_with_slash: false }.checked()
    }

    /// Returns the path without a slash at the end.
    pub(super) fn without_slash(&self) -> Self {
        Self { names: self.names.clone(), ends_with_slash: false }
    }

    /// Returns the last name, or `None` for the root.
    #[must_use]
    pub fn last(&self) -> Option<&LinkName> {
        self.names.last()
    }
}

impl fmt::Display for MutablePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.names))?;
        if self.ends_with_slash && !self.names.is_empty() { f.write_str("/") } else { Ok(()) }
    }
}

/// Returns names as an absolute path.
pub(super) fn text(names: &[LinkName]) -> String {
    format!("/{}", joined(names))
}

/// Returns the directory part of a path with the slash at its end, as Go's `path.Split` returns it.
pub(super) fn directory_text(names: &[LinkName]) -> String {
    if names.is_empty() { "/".to_owned() } else { format!("/{}/", joined(names)) }
}

/// Returns names joined by slashes.
pub(super) fn joined(names: &[LinkName]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_cleaned_and_split_like_gos() {
        for (path, shown, parent, last) in [
            ("/", "/", 0, None),
            ("//", "/", 0, None),
            ("/a", "/a", 0, Some("a")),
            ("/a/", "/a/", 1, None),
            ("/a//b/./c/../d", "/a/b/d", 2, Some("d")),
            ("/../a", "/a", 0, Some("a")),
        ] {
            let parsed = MutablePath::parse(path).unwrap();
            let (names, name) = parsed.split();
            assert_eq!(parsed.to_string(), shown, "{path}");
            assert_eq!((names.len(), name.map(ToString::to_string).as_deref()), (parent, last), "{path}");
        }
        assert_eq!(MutablePath::parse("").unwrap_err().message(), "paths must not be empty");
        assert_eq!(MutablePath::parse("a").unwrap_err().message(), "paths must start with a leading slash");
        assert!(MutablePath::parse("/a".repeat(MAX_PATH_SEGMENTS + 1)).is_err());
    }
}
