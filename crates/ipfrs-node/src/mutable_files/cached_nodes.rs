//! The cached nodes of a directory.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use super::directory::Cached;
use crate::LinkName;

/// Number of changed nodes above which a map that is shared is copied to take them.
const MAX_CHANGED: usize = 64;

/// Cached nodes by name. Clones share most of them, so that one costs little although there are many.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedNodes {
    shared: Arc<BTreeMap<LinkName, Cached>>,
    /// Nodes in place of those in `shared`; `None` for a removed one.
    changed: BTreeMap<LinkName, Option<Cached>>,
}

impl CachedNodes {
    pub(super) fn contains(&self, name: &LinkName) -> bool {
        match self.changed.get(name) {
            Some(node) => node.is_some(),
            None => self.shared.contains_key(name),
        }
    }

    /// Returns the node `name` for a change.
    pub(super) fn get_mut(&mut self, name: &LinkName) -> Option<&mut Cached> {
        if self.merges_changes() {
            return self.all_mut().get_mut(name);
        }
        if !self.changed.contains_key(name) {
            let node = self.shared.get(name)?.clone();
            self.changed.insert(name.clone(), Some(node));
        }
        self.changed.get_mut(name)?.as_mut()
    }

    pub(super) fn insert(&mut self, name: LinkName, node: Cached) {
        if self.merges_changes() {
            self.all_mut().insert(name, node);
        } else {
            self.changed.insert(name, Some(node));
        }
    }

    pub(super) fn remove(&mut self, name: &LinkName) {
        if self.merges_changes() {
            self.all_mut().remove(name);
        } else {
            self.changed.insert(name.clone(), None);
        }
    }

    /// Whether changes are made in the map of all nodes: no clone has it, or there are so many that it is copied.
    fn merges_changes(&mut self) -> bool {
        self.changed.len() >= MAX_CHANGED || Arc::get_mut(&mut self.shared).is_some()
    }

    /// Returns all nodes. Copies them if a clone has them.
    pub(super) fn all_mut(&mut self) -> &mut BTreeMap<LinkName, Cached> {
        let all = Arc::make_mut(&mut self.shared);
        for (name, node) in mem::take(&mut self.changed) {
            match node {
                Some(node) => all.insert(name, node),
                None => all.remove(&name),
            };
        }
        all
    }

    /// Returns the number of nodes at all depths. A changed file may count twice.
    pub(super) fn count(&self) -> usize {
        let with_below = |node: &Cached| match node {
            Cached::Directory(directory) => 1 + directory.cached_nodes(),
            Cached::File(_) => 1,
        };
        // A directory in both would be walked twice, and those below it four times.
        let shared = self.shared.iter().map(|(name, node)| match node {
            Cached::Directory(_) if self.changed.contains_key(name) => 0,
            node => with_below(node),
        });
        shared.sum::<usize>() + self.changed.values().flatten().map(with_below).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use ipfrs_core::Cid;
    use ipfrs_unixfs::NewLink;

    use super::*;
    use crate::mutable_files::directory::CachedFile;

    fn file(tsize: u64) -> Cached {
        Cached::File(CachedFile::new(NewLink { cid: Cid::default(), tsize }))
    }

    fn sizes(mut nodes: CachedNodes) -> Vec<(String, u64)> {
        let size = |node: &Cached| match node {
            Cached::File(file) => file.link.tsize,
            Cached::Directory(_) => u64::MAX,
        };
        nodes.all_mut().iter().map(|(name, node)| (name.to_string(), size(node))).collect()
    }

    #[test]
    fn change_of_a_clone_copies_no_other_nodes() {
        let mut nodes = CachedNodes::default();
        (0..5_000).for_each(|number| nodes.insert(format!("{number:04}").into(), file(0)));
        let before = nodes.clone();
        *nodes.get_mut(&"0007".into()).unwrap() = file(7);
        assert!(Arc::ptr_eq(&nodes.shared, &before.shared));
        assert_eq!((nodes.changed.len(), before.count()), (1, 5_000));
        drop(before);
        nodes.insert("more".into(), file(1));
        assert!(nodes.changed.is_empty(), "the map is not shared any more");
        assert_eq!(nodes.count(), 5_001);
    }

    #[test]
    fn clone_stays_as_it_was_whatever_changes() {
        let (mut nodes, mut expected) = (CachedNodes::default(), BTreeMap::<String, u64>::new());
        for change in 0..1_000_u64 {
            let before = nodes.clone();
            let listed: Vec<_> = expected.clone().into_iter().collect();
            // Some clones are dropped before the change.
            let kept = (change % 100 < 90).then_some(before);
            let name = format!("{}", change * 7 % 150);
            match change % 4 {
                0 => {
                    nodes.remove(&name.as_str().into());
                    expected.remove(&name);
                }
                1 if expected.contains_key(&name) => {
                    *nodes.get_mut(&name.as_str().into()).unwrap() = file(change);
                    expected.insert(name.clone(), change);
                }
                _ => {
                    nodes.insert(name.as_str().into(), file(change));
                    expected.insert(name.clone(), change);
                }
            }
            assert_eq!(nodes.contains(&name.as_str().into()), expected.contains_key(&name));
            assert_eq!(nodes.get_mut(&name.as_str().into()).is_some(), expected.contains_key(&name));
            if let Some(before) = kept {
                assert_eq!(sizes(before), listed);
            }
        }
        assert_eq!(sizes(nodes), expected.into_iter().collect::<Vec<_>>());
    }
}
