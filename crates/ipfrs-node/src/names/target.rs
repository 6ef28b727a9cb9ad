//! Target of a record or a DNSLink: a content path, or a path below another name.

use ipfrs_core::{Cid, Error, Result, cid_from_bytes};

use super::root::NameRoot;
use crate::content::{segments, with_segments};
use crate::{ContentPath, LinkName};

/// An empty value means no target; boxo reads it as this path, the empty file.
const NOWHERE: &str = "/ipfs/bafkqaaa";

/// Direct target of one name.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) root: TargetRoot,
    pub(super) segments: Vec<LinkName>,
}

#[derive(Debug, Clone)]
pub(super) enum TargetRoot {
    Content(Cid),
    Name(NameRoot),
}

impl Target {
    /// Parses a path that begins with `/ipfs/`, `/ipld/` or `/ipns/`.
    pub(super) fn parse(path: &[u8]) -> Result<Self> {
        let shown = || LinkName::from(path);
        if let Some(rest) = path.strip_prefix(b"/ipns/") {
            let mut segments = segments(rest);
            let name = LinkName::from(segments.next().unwrap_or_default());
            let name = NameRoot::parse(&name.to_string_lossy())
                .map_err(|e| Error::invalid(format!("invalid path {:?}: {}", shown(), e.message())))?;
            return Ok(Self { root: TargetRoot::Name(name), segments: segments.map(LinkName::from).collect() });
        }
        if !path.starts_with(b"/") {
            return Err(Error::invalid(format!(
                "{:?} is not a content path: it begins with neither /ipfs/ nor /ipns/",
                shown()
            )));
        }
        let path = ContentPath::parse(path)?;
        if path.is_ipld() {
            let why = "it is a path of /ipld: a name leads to /ipfs or /ipns";
            return Err(Error::invalid(format!("{:?} is no target of a name: {why}", shown())));
        }
        Ok(Self { root: TargetRoot::Content(*path.root()), segments: path.segments().to_vec() })
    }

    /// Parses the value of a record: a path, or a binary CID, which some implementations write.
    pub(super) fn of_value(value: &[u8]) -> Result<Self> {
        match value {
            [] => Self::parse(NOWHERE.as_bytes()),
            [b'/', ..] => Self::parse(value),
            bytes => {
                let root = cid_from_bytes(bytes)
                    .map_err(|_| Error::invalid("the value of its record is neither a content path nor a CID"))?;
                Ok(Self { root: TargetRoot::Content(root), segments: Vec::new() })
            }
        }
    }

    /// Returns the path in the form that [`parse`](Self::parse) accepts.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let root = match &self.root {
            TargetRoot::Content(cid) => format!("/ipfs/{cid}"),
            TargetRoot::Name(name) => format!("/ipns/{name}"),
        };
        with_segments(root, &self.segments)
    }
}
