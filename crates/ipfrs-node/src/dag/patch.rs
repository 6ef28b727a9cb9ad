//! Changes of single links of dag-pb nodes, and the differences between two DAGs.

use std::pin::Pin;

use bytes::Bytes;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_BLOCK_BYTES;
use ipfrs_core::{Cid, Error, Result, codec};
use ipfrs_unixfs::dag_pb::{self, PbLink, PbNode};
use ipfrs_unixfs::{LinkName, declared_type};

use crate::{BlockFormat, ContentPath, Node, Object, PutBlock, PutBlockOptions};

/// Encoded UnixFS data of an empty directory.
const DIRECTORY_DATA: &[u8] = &[0x08, 0x01];

/// Maximum number of links below each other that are compared.
const MAX_DIFF_DEPTH: usize = 128;

/// Maximum number of pairs of nodes that are compared.
const MAX_COMPARED: usize = 100_000;

/// Change of a link of a dag-pb node.
#[derive(Debug, Clone)]
pub enum LinkChange {
    /// The link is added, or replaced if there is one with its name.
    Add {
        /// Target of the link.
        target: ContentPath,
        /// Whether directories on the way to the link are created.
        creates: bool,
    },
    /// The link is removed.
    Remove,
}

/// Checks that [`Node::patch_link`] leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatchOptions {
    /// Whether the node may be something else than a directory in one block, which a change would damage.
    pub any_node: bool,
    /// Whether the DAG of the new node may be larger than a block, in which case Kubo refuses the change.
    pub any_size: bool,
}

/// Kind of a [`LinkDifference`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The second DAG has a link that the first one lacks.
    Added,
    /// The first DAG has a link that the second one lacks.
    Removed,
    /// The targets differ.
    Changed,
}

/// Difference between two DAGs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkDifference {
    /// How they differ.
    pub kind: DifferenceKind,
    /// Names of the links that lead to the difference, separated by slashes.
    pub path: String,
    /// Target in the first DAG.
    pub before: Option<Cid>,
    /// Target in the second DAG.
    pub after: Option<Cid>,
}

impl Node {
    /// Changes the link at the path `link` below a dag-pb node, and returns the new node, which is stored.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for nodes that are not
    /// [allowed](PatchOptions::any_node); [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) if there is no link with a
    /// name on the way; that of a large block for DAGs that are not [allowed](PatchOptions::any_size).
    pub async fn patch_link(
        &self,
        root: ContentPath,
        link: &str,
        change: LinkChange,
        options: PatchOptions,
    ) -> Result<Cid> {
        let root = self.resolve(root).await?.whole()?;
        let target = match &change {
            LinkChange::Add { target, .. } => Some(self.resolve(target.clone()).await?.whole()?),
            LinkChange::Remove => None,
        };
        let mut current = Opened::decode(root.cid, &root.block)?;
        if !options.any_node {
            check_directory(&root, &change)?;
        }
        let names: Vec<_> = link.split('/').map(LinkName::from).collect();
        let (last, above) = names.split_last().ok_or_else(|| Error::internal("a path without names"))?;
        let mut opened = Vec::with_capacity(above.len());
        for name in above {
            let below = current.node.links.iter().find(|link| link.name == *name).map(|link| link.cid);
            let next = match (below, &change) {
                (Some(cid), _) => Opened::decode(cid, &self.get_block(&cid).await?)?,
                (None, LinkChange::Add { creates: true, .. }) => Opened::directory(),
                (None, _) => return Err(no_link()),
            };
            opened.push((std::mem::replace(&mut current, next), name));
        }
        match target {
            Some(_) if last.is_empty() => return Err(Error::invalid("cannot create link with no name")),
            Some(target) => {
                let tsize = total_size(&target.cid, &target.block)?;
                current.set(PbLink { cid: target.cid, name: last.clone(), tsize });
            }
            None if current.remove(last) => {}
            None => return Err(no_link()),
        }
        let put = PutBlockOptions { pin: false, allows_big: options.any_size };
        while let Some((mut parent, name)) = opened.pop() {
            let (block, tsize) = current.encode();
            let (cid, _) = self.put_block_with(block, put).await?;
            parent.set(PbLink { cid, name: name.clone(), tsize });
            current = parent;
        }
        let (block, total) = current.encode();
        if total > MAX_BLOCK_BYTES as u64 && !options.any_size {
            return Err(Error::large_block(format!("the DAG of the new node has {total} bytes")));
        }
        Ok(self.put_block_with(block, put).await?.0)
    }

    /// Returns the differences between two DAGs. Only dag-pb nodes are compared link by link.
    ///
    /// # Errors
    /// As [`Self::resolve`]; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) if the DAGs differ at too many places.
    pub async fn diff_dags(&self, before: ContentPath, after: ContentPath) -> Result<Vec<LinkDifference>> {
        let (before, after) = (self.resolve(before).await?.whole()?, self.resolve(after).await?.whole()?);
        let mut diff = Diff { node: self, differences: Vec::new(), compared: 0 };
        diff.compare((before.cid, before.block), (after.cid, after.block), String::new(), 0).await?;
        Ok(diff.differences)
    }
}

fn no_link() -> Error {
    Error::not_found("no link by that name")
}

/// Checks that the root of a change is a directory in one block.
fn check_directory(root: &Object, change: &LinkChange) -> Result<()> {
    let (verb, noun, from) = match change {
        LinkChange::Add { .. } => ("add", "addition", "to"),
        LinkChange::Remove => ("remove", "removal", "from"),
    };
    let why = match declared_type(&root.block) {
        Some("Directory") => return Ok(()),
        Some("HAMTShard") => {
            let tool =
                if matches!(change, LinkChange::Add { .. }) { "'ipfs files' commands" } else { "'ipfs files rm'" };
            format!(
                "cannot {verb} links {from} a HAMTShard at the dag-pb level (would corrupt the HAMT bitfield); use {tool} \
                 instead, or pass --allow-non-unixfs to override"
            )
        }
        found => {
            let named =
                if matches!(change, LinkChange::Add { .. }) { "add named links to" } else { "remove links from" };
            match found {
                None => format!("cannot {named} a non-UnixFS dag-pb node; pass --allow-non-unixfs to skip validation"),
                Some(kind) => format!(
                    "cannot {named} a UnixFS {kind} node, only Directory nodes support link {noun} at the dag-pb level \
                     (see https://specs.ipfs.tech/unixfs/)"
                ),
            }
        }
    };
    Err(Error::unsupported(why))
}

/// A dag-pb node that is being changed.
struct Opened {
    node: PbNode,
    format: BlockFormat,
}

impl Opened {
    /// Returns the block of the node, and the bytes of its DAG.
    fn encode(self) -> (PutBlock, u64) {
        let Self { node, format } = self;
        let data = match &node.data {
            Some(data) => dag_pb::encode(&node.links, data),
            None => dag_pb::encode_without_data(&node.links),
        };
        let total = node.links.iter().map(|link| link.tsize).fold(data.len() as u64, u64::saturating_add);
        (PutBlock { data, cid: None, format }, total)
    }

    fn directory() -> Self {
        let format =
            BlockFormat { version: 0, codec: codec::DAG_PB, hash: HashFunction::default(), digest_bytes: None };
        Self { node: PbNode { links: Vec::new(), data: Some(Bytes::from_static(DIRECTORY_DATA)) }, format }
    }

    fn decode(cid: Cid, block: &Bytes) -> Result<Self> {
        if cid.codec() != codec::DAG_PB {
            return Err(Error::unsupported("expected protobuf dag node"));
        }
        let hash = HashFunction::from_code(cid.hash().code())?;
        let format = BlockFormat { version: cid.version().into(), codec: codec::DAG_PB, hash, digest_bytes: None };
        Ok(Self { node: dag_pb::decode(block)?, format })
    }

    /// Adds a link, in the order of names, in place of those with its name.
    fn set(&mut self, link: PbLink) {
        self.remove(&link.name.clone());
        self.node.links.push(link);
        self.node.links.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Removes the links with a name. Returns whether there were any.
    fn remove(&mut self, name: &LinkName) -> bool {
        let before = self.node.links.len();
        self.node.links.retain(|link| link.name != *name);
        self.node.links.len() < before
    }
}

/// Returns the size of a block and of all below it, as its links declare them.
fn total_size(cid: &Cid, block: &Bytes) -> Result<u64> {
    let own = block.len() as u64;
    if cid.codec() != codec::DAG_PB {
        return Ok(own);
    }
    Ok(dag_pb::decode(block)?.links.iter().map(|link| link.tsize).fold(own, u64::saturating_add))
}

/// A comparison of two DAGs.
struct Diff<'a> {
    node: &'a Node,
    differences: Vec<LinkDifference>,
    compared: usize,
}

impl Diff<'_> {
    /// Compares two nodes, at `path`.
    fn compare<'a>(
        &'a mut self,
        before: (Cid, Bytes),
        after: (Cid, Bytes),
        path: String,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(async move {
            if before.0 == after.0 {
                return Ok(());
            }
            self.compared += 1;
            if depth > MAX_DIFF_DEPTH || self.compared > MAX_COMPARED {
                let why = format!(
                    "the DAGs differ at more than {MAX_COMPARED} places, or below more than {MAX_DIFF_DEPTH} links: \
                     compare parts of them"
                );
                return Err(Error::too_large(why));
            }
            let changed = LinkDifference {
                kind: DifferenceKind::Changed,
                path: path.clone(),
                before: Some(before.0),
                after: Some(after.0),
            };
            let links = |(cid, block): &(Cid, Bytes)| match cid.codec() {
                codec::DAG_PB => dag_pb::decode(block).map(|node| Some(node.links)),
                _ => Ok(None),
            };
            let (mut old, mut new) = match (links(&before)?, links(&after)?) {
                (Some(old), Some(new)) if !(old.is_empty() && new.is_empty()) => (old, new),
                _ => {
                    self.differences.push(changed);
                    return Ok(());
                }
            };
            // They differ in what is besides the links.
            if old == new {
                self.differences.push(changed);
                return Ok(());
            }
            let found = self.differences.len();
            // Links of files have no names. As in Kubo, each is compared with the first of the other node.
            let mut counterpart: Option<PbLink> = None;
            for link in old.clone() {
                if counterpart.as_ref().is_none_or(|other| other.name != link.name) {
                    counterpart = new.iter().find(|other| other.name == link.name).cloned();
                }
                let Some(other) = &counterpart else { continue };
                old.retain(|kept| kept.name != link.name);
                new.retain(|kept| kept.name != link.name);
                if link.cid == other.cid {
                    continue;
                }
                let left = (link.cid, self.node.get_block(&link.cid).await?);
                let right = (other.cid, self.node.get_block(&other.cid).await?);
                self.compare(left, right, below(&path, &link.name), depth + 1).await?;
            }
            let removed = old.iter().map(|link| LinkDifference {
                kind: DifferenceKind::Removed,
                path: below(&path, &link.name),
                before: Some(link.cid),
                after: None,
            });
            let added = new.iter().map(|link| LinkDifference {
                kind: DifferenceKind::Added,
                path: below(&path, &link.name),
                before: None,
                after: Some(link.cid),
            });
            self.compared += old.len() + new.len();
            self.differences.extend(removed.chain(added));
            // All links of one node are equal to the first of the other.
            if self.differences.len() == found {
                self.differences.push(changed);
            }
            Ok(())
        })
    }
}

fn below(path: &str, name: &LinkName) -> String {
    let name = name.to_string_lossy();
    if path.is_empty() {
        name.into_owned()
    } else if name.is_empty() {
        path.to_owned()
    } else {
        format!("{path}/{name}")
    }
}
