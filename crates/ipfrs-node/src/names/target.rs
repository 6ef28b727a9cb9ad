//! What a record or a DNSLink says: a content path, or a path below another name.

use std::fmt;

use ipfrs_core::{Cid, Error, Result, cid_from_bytes};

use super::NameRoot;
use crate::ContentPath;

/// A record that leads nowhere has an empty value; boxo reads it as this path, the empty file.
const NOWHERE: &str = "/ipfs/bafkqaaa";

/// Where one name leads.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) root: TargetRoot,
    pub(super) segments: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum TargetRoot {
    Content(Cid),
    Name(NameRoot),
}

impl Target {
    /// Reads a path that begins with `/ipfs/`, `/ipld/` or `/ipns/`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        if let Some(rest) = text.strip_prefix("/ipns/") {
            let mut segments = rest.split('/').filter(|segment| !segment.is_empty());
            let name = NameRoot::parse(segments.next().unwrap_or_default())
                .map_err(|e| Error::invalid(format!("invalid path {text:?}: {}", e.message())))?;
            return Ok(Self { root: TargetRoot::Name(name), segments: segments.map(str::to_owned).collect() });
        }
        if !text.starts_with('/') {
            return Err(Error::invalid(format!(
                "{text:?} is no content path: it begins with neither /ipfs/ nor /ipns/"
            )));
        }
        let path = ContentPath::parse(text)?;
        Ok(Self { root: TargetRoot::Content(*path.root()), segments: path.segments().to_vec() })
    }

    /// Reads the value of a record: a path as text, or a binary CID, as some have it.
    pub(super) fn of_value(value: &[u8]) -> Result<Self> {
        match value {
            [] => Self::parse(NOWHERE),
            [b'/', ..] => {
                let text = std::str::from_utf8(value)
                    .map_err(|_| Error::invalid("the value of its record is no text in UTF-8"))?;
                Self::parse(text)
            }
            bytes => {
                let root = cid_from_bytes(bytes)
                    .map_err(|_| Error::invalid("the value of its record is neither a content path nor a CID"))?;
                Ok(Self { root: TargetRoot::Content(root), segments: Vec::new() })
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.root {
            TargetRoot::Content(cid) => write!(f, "/ipfs/{cid}")?,
            TargetRoot::Name(name) => write!(f, "/ipns/{name}")?,
        }
        self.segments.iter().try_for_each(|segment| write!(f, "/{segment}"))
    }
}
