//! Entries of directories.

use ipfrs_core::Cid;

use crate::dag_pb::PbLink;
use crate::link_name::LinkName;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Name of the entry, which may be any bytes.
    pub name: LinkName,
    /// Content ID of the entry.
    pub cid: Cid,
    /// Total size of all blocks below this entry, as declared by the writer of the directory.
    pub tsize: u64,
}

impl From<PbLink> for DirEntry {
    fn from(link: PbLink) -> Self {
        Self { name: link.name, cid: link.cid, tsize: link.tsize }
    }
}
