//! Reads of mutable files and directories.

use std::collections::HashMap;

use futures::StreamExt;
use futures::stream::BoxStream;
use ipfrs_core::limits::MAX_DAG_BLOCKS;
use ipfrs_core::{Cid, Error, ErrorKind, Result, codec};
use ipfrs_store::{BlockStore, BlockStoreExt};
use ipfrs_unixfs::links;
use tokio::task::spawn_blocking;

use super::path::MutablePath;
use super::write::not_a_file;
use crate::{ContentPath, FileContent, LinkName, Listed, ListedKind, Node, Object, ObjectKind};

/// Entry of a mutable directory.
#[derive(Debug, Clone)]
pub struct MutableEntry {
    /// Name of the entry.
    pub name: LinkName,
    /// Kind, size and content ID, if they were requested.
    pub details: Option<Listed>,
}

/// Listing of a mutable file or directory.
pub enum MutableListing {
    /// The file itself, under its own name.
    File(Box<MutableEntry>),
    /// Entries of a directory.
    Directory(BoxStream<'static, Result<MutableEntry>>),
}

/// Size of the blocks of a DAG that are in the store.
#[derive(Debug, Clone, Copy, Default)]
struct LocalSize {
    is_complete: bool,
    bytes: u64,
}

impl LocalSize {
    fn add(&mut self, below: Self) {
        self.is_complete &= below.is_complete;
        self.bytes = self.bytes.saturating_add(below.bytes);
    }
}

/// A node on the path of a walk.
struct Level {
    cid: Cid,
    links: std::vec::IntoIter<Cid>,
    size: LocalSize,
}

impl Node {
    /// Returns the object at a path in the tree. All of its blocks that the tree created are stored, unless the disk is
    /// full. They are read from memory then.
    ///
    /// # Errors
    /// If the path does not exist.
    pub async fn mutable_object(&self, path: &MutablePath) -> Result<Object> {
        self.fetch_ways(&[path.names()]).await?;
        let cid = {
            let mut open = self.open_tree().await?;
            let (tree, staging) = open.parts()?;
            let cid = tree.link(staging, path.names()).await?.cid;
            // Blocks that are missing in other directories are no error here.
            let _limited = tree.limit_cache(staging).await;
            cid
        };
        // The blocks below a block of the tree are stored before it or with it.
        if self.inner.mutable_files.unstored.contains(&cid) {
            self.store_tree_if_there_is_space().await?;
        }
        self.resolve(ContentPath::from(cid)).await
    }

    /// Returns whether all blocks of an object are in the store, and the size of those that are. As in Kubo, a block
    /// counts as often as it is linked.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] for more than [`MAX_DAG_BLOCKS`] blocks; otherwise errors of the store.
    pub async fn local_size(&self, object: &Object) -> Result<(bool, u64)> {
        let mut sizes: HashMap<Cid, LocalSize> = HashMap::new();
        let store = self.store_below(&object.cid);
        let mut path = vec![open_level(&*store, object.cid).await?];
        loop {
            let Some(level) = path.last_mut() else { return Err(Error::internal("a walk without a root")) };
            let Some(link) = level.links.next() else {
                let size = level.size;
                sizes.insert(level.cid, size);
                path.pop();
                match path.last_mut() {
                    None => return Ok((size.is_complete, size.bytes)),
                    Some(above) => above.size.add(size),
                }
                continue;
            };
            if let Some(size) = sizes.get(&link) {
                level.size.add(*size);
                continue;
            }
            if sizes.len() + path.len() > MAX_DAG_BLOCKS {
                return Err(Error::too_large(format!("the DAG has more than {MAX_DAG_BLOCKS} blocks")));
            }
            path.push(open_level(&*store, link).await?);
        }
    }

    /// Returns a file in the tree for reading. Later writes do not change it.
    ///
    /// # Errors
    /// If the path does not exist or is not a file.
    pub async fn mutable_file(&self, path: &MutablePath) -> Result<FileContent> {
        let found = self.mutable_object(path).await.map_err(|e| match e.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidInput => {
                Error::new(e.kind(), format!("{path}: {e}")).with_source(e)
            }
            _ => e,
        })?;
        match found.kind {
            ObjectKind::File(file) => Ok(file),
            ObjectKind::Symlink(_) => Err(Error::unsupported("symlinks not yet supported")),
            ObjectKind::Directory(_) | ObjectKind::Other => Err(not_a_file(path)),
        }
    }

    /// Lists a directory in the tree in stored order, or a file as its own entry. With `long`, kinds, sizes and
    /// content IDs are included.
    ///
    /// # Errors
    /// If the path does not exist.
    pub async fn list_tree(&self, path: &MutablePath, long: bool) -> Result<MutableListing> {
        let object = self.mutable_object(path).await?;
        let ObjectKind::Directory(_) = &object.kind else {
            let info = self.object_info(&object).await?;
            let (_, name) = path.split();
            let name = name.cloned().unwrap_or_default();
            let details = Listed {
                name: name.clone(),
                cid: object.cid,
                kind: info.kind,
                size: info.size,
                dag_size: info.dag_size,
                target: LinkName::default(),
                attributes: info.attributes,
            };
            return Ok(MutableListing::File(Box::new(MutableEntry { name, details: long.then_some(details) })));
        };
        let most = if long { usize::MAX } else { 0 };
        let entries = self.list(&object, most).map(move |entry| {
            let entry = entry?;
            let is_known = entry.kind != ListedKind::Unknown;
            if long && !is_known {
                let missing = format!("{}: block {} is not in this store", entry.name, entry.cid);
                return Err(Error::no_block(&entry.cid, missing));
            }
            Ok(MutableEntry { name: entry.name.clone(), details: long.then_some(entry) })
        });
        Ok(MutableListing::Directory(entries.boxed()))
    }
}

/// Reads a block for [`Node::local_size`]. Only nodes are read; a leaf is looked up.
async fn open_level(store: &dyn BlockStore, cid: Cid) -> Result<Level> {
    let missing = |cid| Level { cid, links: Vec::new().into_iter(), size: LocalSize::default() };
    if cid.codec() == codec::RAW {
        let size = store.size(&cid).await?;
        let size = size.map_or(LocalSize::default(), |bytes| LocalSize { is_complete: true, bytes });
        return Ok(Level { size, ..missing(cid) });
    }
    let Some(block) = store.get(&cid).await? else { return Ok(missing(cid)) };
    let size = LocalSize { is_complete: true, bytes: block.len() as u64 };
    let links = spawn_blocking(move || links(&cid, &block)).await;
    let links = links.map_err(|e| Error::internal(format!("decoding block {cid} failed")).with_source(e))??;
    let links: Vec<_> = links.iter().collect();
    Ok(Level { cid, links: links.into_iter(), size })
}
