//! Content paths.

use std::fmt;
use std::str::FromStr;

use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Cid, Error, Result, parse_cid, uri_as_path};
use ipfrs_unixfs::{BlockSource, LinkName, Resolved, resolve, resolve_values};

/// Root and the names below it: `/ipfs/{cid}/{name}/{name}`, or `/ipld/{cid}/{key}/{index}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ContentPath {
    root: Cid,
    segments: Vec<LinkName>,
    /// Whether the names are those of the data model in all blocks. Without names there is no difference.
    is_ipld: bool,
}

impl ContentPath {
    /// Creates a path from its parts.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for more than [`MAX_PATH_SEGMENTS`] names.
    pub fn new(root: Cid, segments: Vec<LinkName>) -> Result<Self> {
        if segments.len() > MAX_PATH_SEGMENTS {
            return Err(Error::too_large(format!(
                "the path has {} segments, over the limit of {MAX_PATH_SEGMENTS}: start at a CID further down",
                segments.len()
            )));
        }
        Ok(Self { root, segments, is_ipld: false })
    }

    /// Parses `/ipfs/{cid}/a/b`, `{cid}/a/b` or a [URI](uri_as_path) such as `ipfs://{cid}/a/b`, which are equivalent,
    /// or `/ipld/{cid}/a/b`, where the names below dag-pb blocks are `Data`, `Links/0/Hash` and the like. Nothing is
    /// percent-decoded; empty segments are dropped. [`Node::content_path`](crate::Node::content_path) also resolves
    /// IPNS names and domains.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) with the path and the reason, also for `/ipns/` paths.
    pub fn parse(path: impl AsRef<[u8]>) -> Result<Self> {
        let path = uri_as_path(path.as_ref());
        let path: &[u8] = &path;
        // Several slashes are one.
        let path = match path.iter().position(|byte| *byte != b'/') {
            Some(slashes @ 2..) => &path[slashes - 1..],
            _ => path,
        };
        let shown = || LinkName::from(path);
        if path.starts_with(b"/ipns/") {
            return Err(Error::invalid(format!(
                "{} is a name, whose target may change: use a CID or an /ipfs/ path",
                shown()
            )));
        }
        let rest = path.strip_prefix(b"/ipfs/").or_else(|| path.strip_prefix(b"/ipld/")).unwrap_or(path);
        let mut segments = segments(rest);
        let root = segments.next().ok_or_else(|| Error::invalid(format!("invalid path {:?}: no CID", shown())))?;
        let root = parse_cid(&LinkName::from(root).to_string_lossy())
            .map_err(|e| Error::invalid(format!("invalid path {:?}: {e}", shown())))?;
        let parsed = Self::new(root, segments.map(LinkName::from).collect())?;
        let is_ipld = path.starts_with(b"/ipld/");
        Ok(Self { is_ipld: is_ipld && !parsed.segments.is_empty(), ..parsed })
    }

    /// Returns the root.
    #[must_use]
    pub fn root(&self) -> &Cid {
        &self.root
    }

    /// Returns the names below the root.
    #[must_use]
    pub fn segments(&self) -> &[LinkName] {
        &self.segments
    }

    /// Returns whether the names are those of the data model in all blocks, also in those of directories.
    #[must_use]
    pub fn is_ipld(&self) -> bool {
        self.is_ipld
    }

    /// Resolves the path with the blocks of `source`.
    pub(crate) async fn follow(&self, source: &dyn BlockSource) -> Result<Resolved> {
        match self.is_ipld {
            true => resolve_values(source, &self.root, &self.segments).await,
            false => resolve(source, &self.root, &self.segments).await,
        }
    }

    fn namespace(&self) -> &'static str {
        if self.is_ipld { "ipld" } else { "ipfs" }
    }

    /// Returns the path without its last name; `None` if the path is a root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (_, segments) = self.segments.split_last()?;
        Some(Self { segments: segments.to_vec(), is_ipld: self.is_ipld && !segments.is_empty(), ..*self })
    }

    /// Returns the path with one more name.
    #[must_use]
    pub fn join(&self, name: impl Into<LinkName>) -> Self {
        let mut segments = self.segments.clone();
        segments.push(name.into());
        Self { segments, ..*self }
    }

    /// Returns `/ipfs/{cid}/{name}/...` (or `/ipld/...`) with the names unescaped, as [`parse`](Self::parse) expects
    /// it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        with_segments(format!("/{}/{}", self.namespace(), self.root), &self.segments)
    }
}

impl From<Cid> for ContentPath {
    fn from(root: Cid) -> Self {
        Self { root, segments: Vec::new(), is_ipld: false }
    }
}

impl FromStr for ContentPath {
    type Err = Error;

    /// Same as [`ContentPath::parse`].
    fn from_str(path: &str) -> Result<Self> {
        Self::parse(path)
    }
}

/// Splits a path at slashes and returns the names that are not empty.
pub(crate) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty())
}

/// Returns `root` and the names below it, joined with slashes.
pub(crate) fn with_segments(root: String, segments: &[LinkName]) -> Vec<u8> {
    let mut path = root.into_bytes();
    for segment in segments {
        path.push(b'/');
        path.extend_from_slice(segment.as_bytes());
    }
    path
}

/// Formats a path for messages, with names escaped as described at [`LinkName`].
impl fmt::Display for ContentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.namespace(), self.root)?;
        self.segments.iter().try_for_each(|segment| write!(f, "/{segment}"))
    }
}
