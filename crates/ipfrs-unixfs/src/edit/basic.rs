//! A directory in one block that is being changed.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::{Block, Result, codec};
use prost::Message;

use super::cid_format::CidFormat;
use crate::dag_pb::{self, PbLink};
use crate::data::Attributes;
use crate::import::{DirectoryBytes, Sharding, basic_data};
use crate::link_name::LinkName;

/// A directory in one block that is being changed.
#[derive(Debug, Clone)]
pub(super) struct Basic {
    pub(super) format: CidFormat,
    /// Entries, in the order of their names after the first change. Clones share them until then.
    pub(super) links: Arc<Vec<PbLink>>,
    is_sorted: bool,
    /// Encoded UnixFS data.
    pub(super) data: Bytes,
    pub(super) bytes: DirectoryBytes,
}

impl Basic {
    pub(super) fn new(format: CidFormat, links: Vec<PbLink>, attributes: &Attributes, sharding: &Sharding) -> Self {
        let bytes = links.iter().map(|link| sharding.link_bytes(link)).sum();
        let data = basic_data(attributes).encode_to_vec().into();
        let is_sorted = links.is_sorted_by(|a, b| a.name <= b.name);
        Self { format, links: Arc::new(links), is_sorted, data, bytes: sharding.empty_bytes(attributes) + bytes }
    }

    pub(super) fn position(&self, name: &LinkName) -> Option<usize> {
        if !self.is_sorted {
            return self.links.iter().position(|link| link.name == *name);
        }
        Some(self.named(name)).filter(|range| !range.is_empty()).map(|range| range.start)
    }

    /// Returns the positions of all entries with a name, once the entries are sorted. Another implementation may have
    /// written several.
    fn named(&self, name: &LinkName) -> Range<usize> {
        let start = self.links.partition_point(|link| link.name < *name);
        let count = self.links[start..].iter().take_while(|link| link.name == *name).count();
        start..start + count
    }

    pub(super) fn insert(&mut self, link: PbLink, sharding: &Sharding) {
        let name = link.name.clone();
        self.replace(&name, Some(link), sharding);
    }

    /// Removes all entries with a name.
    pub(super) fn remove(&mut self, name: &LinkName, sharding: &Sharding) -> bool {
        let exists = self.position(name).is_some();
        if exists {
            self.replace(name, None, sharding);
        }
        exists
    }

    /// Replaces all entries with a name.
    fn replace(&mut self, name: &LinkName, new: Option<PbLink>, sharding: &Sharding) {
        if !self.is_sorted {
            Arc::make_mut(&mut self.links).sort_by(|a, b| a.name.cmp(&b.name));
            self.is_sorted = true;
        }
        let replaced = self.named(name);
        let removed: DirectoryBytes = self.links[replaced.clone()].iter().map(|old| sharding.link_bytes(old)).sum();
        let added = new.as_ref().map(|new| sharding.link_bytes(new)).unwrap_or_default();
        self.bytes = self.bytes - removed + added;
        drop(Arc::make_mut(&mut self.links).splice(replaced, new));
    }

    pub(super) fn block(&self) -> Result<Block> {
        self.format.block(codec::DAG_PB, dag_pb::encode(&self.links, &self.data))
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::Cid;

    use super::*;

    #[test]
    fn clone_shares_the_entries_until_one_changes() {
        let (sharding, link) = (Sharding::default(), PbLink { cid: Cid::default(), name: "a".into(), tsize: 1 });
        let basic = Basic::new(CidFormat::new(0, None).unwrap(), vec![link], &Attributes::default(), &sharding);
        let mut changed = basic.clone();
        assert!(Arc::ptr_eq(&basic.links, &changed.links));
        assert!(!changed.remove(&"b".into(), &sharding) && Arc::ptr_eq(&basic.links, &changed.links));
        assert!(changed.remove(&"a".into(), &sharding));
        assert_eq!((basic.links.len(), changed.links.len()), (1, 0));
    }

    #[test]
    fn entries_are_sorted_by_the_first_change_and_repeated_names_replaced() {
        let sharding = Sharding::default();
        let link = |name: &str, tsize| PbLink { cid: Cid::default(), name: name.into(), tsize };
        let listed =
            |basic: &Basic| -> Vec<_> { basic.links.iter().map(|link| (link.name.to_string(), link.tsize)).collect() };
        let links = vec![link("c", 1), link("a", 2), link("b", 3), link("a", 4)];
        let new = |links| Basic::new(CidFormat::V0, links, &Attributes::default(), &sharding);
        let mut basic = new(links);
        assert_eq!((basic.position(&"a".into()), basic.position(&"d".into())), (Some(1), None));
        assert!(!basic.remove(&"d".into(), &sharding));
        assert_eq!(basic.links[0].tsize, 1, "nothing has changed");
        basic.insert(link("b", 5), &sharding);
        assert_eq!(
            listed(&basic),
            [("a", 2), ("a", 4), ("b", 5), ("c", 1)].map(|(name, size)| (name.to_owned(), size))
        );
        basic.insert(link("a", 6), &sharding);
        assert_eq!(listed(&basic), [("a", 6), ("b", 5), ("c", 1)].map(|(name, size)| (name.to_owned(), size)));
        assert_eq!(basic.bytes, new(basic.links.to_vec()).bytes);
    }
}
