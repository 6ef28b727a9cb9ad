//! Content paths.

use std::fmt;

use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Cid, Error, Result, parse_cid};

/// A root and the names below it: `/ipfs/{cid}/{name}/{name}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContentPath {
    root: Cid,
    segments: Vec<String>,
}

impl ContentPath {
    /// A path from its parts.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_PATH_SEGMENTS`] names.
    pub fn new(root: Cid, segments: Vec<String>) -> Result<Self> {
        if segments.len() > MAX_PATH_SEGMENTS {
            return Err(Error::too_large(format!(
                "the path has {} segments, over the limit of {MAX_PATH_SEGMENTS}: begin at a CID further down",
                segments.len()
            )));
        }
        Ok(Self { root, segments })
    }

    /// Reads `/ipfs/{cid}/a/b`, `/ipld/{cid}/a/b`, `ipfs://{cid}/a/b` or `{cid}/a/b`, which are all the same. Nothing is
    /// percent-decoded; empty segments are dropped. [`Node::content_path`](crate::Node::content_path) reads names as well.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path and what is wrong, also for `/ipns/` paths.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with("/ipns/") || text.starts_with("ipns://") {
            return Err(Error::invalid(format!(
                "{text} is a name, which may lead elsewhere tomorrow: give a CID or /ipfs/"
            )));
        }
        let rest =
            ["/ipfs/", "/ipld/", "ipfs://"].into_iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
        let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
        let root = segments.next().ok_or_else(|| Error::invalid(format!("invalid path {text:?}: no CID")))?;
        let root = parse_cid(root).map_err(|e| Error::invalid(format!("invalid path {text:?}: {e}")))?;
        Self::new(root, segments.map(str::to_owned).collect())
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Cid {
        &self.root
    }

    /// The names below the root.
    #[must_use]
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The same path without its last name; `None` for a root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, segments) = self.segments.split_last()?;
        Some(Self { root: self.root, segments: segments.to_vec() })
    }

    /// The same path with one more name.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let mut segments = self.segments.clone();
        segments.push(name.to_owned());
        Self { root: self.root, segments }
    }
}

impl fmt::Display for ContentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/ipfs/{}", self.root)?;
        self.segments.iter().try_for_each(|segment| write!(f, "/{segment}"))
    }
}
