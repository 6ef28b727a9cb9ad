//! Imports of streams, and of local files and trees.

use std::path::PathBuf;

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Result};
use ipfrs_node::{AddOptions as NodeOptions, AddSession, Added as Imported, Attributes, Layout, Mtime, Node};
use ipfrs_rpc::client as rpc;

use super::tree::{Tree, TreeEvent};
use crate::backing::{AddOptions, Added, Pieces, Progress};

/// Number of files of a tree between checks for files that have become durable.
const FILES_PER_LOOK: usize = 256;

impl AddOptions {
    fn for_node(&self) -> Result<NodeOptions> {
        Ok(NodeOptions {
            profile: self.profile.as_deref().map(str::parse).transpose()?,
            cid_version: self.cid_version,
            raw_leaves: self.raw_leaves,
            chunker: self.chunker.as_deref().map(str::parse).transpose()?,
            hash: self.hash.as_deref().map(HashFunction::from_name).transpose()?,
            inline_limit: self.inline_limit,
            layout: self.trickle.then_some(Layout::Trickle),
            attributes: Attributes { mode: self.mode, mtime: self.mtime.map(mtime) },
            preserve_mode: self.preserve_mode,
            preserve_mtime: self.preserve_mtime,
            max_file_links: self.max_file_links,
            max_directory_links: self.max_directory_links,
            hamt_fanout: self.hamt_fanout,
            only_hash: self.only_hash,
            wrap_with_directory: self.wrap_with_directory,
            skip_empty_directories: false,
            unpinned: !self.pin,
            pin_name: self.pin_name.clone(),
            operation: None,
        })
    }
}

fn mtime((seconds, nanos): (i64, u32)) -> Mtime {
    Mtime { seconds, nanos }
}

fn for_node(attributes: rpc::Attributes) -> Attributes {
    // A mode of 0 means none, as in the daemon's requests.
    Attributes { mode: Some(attributes.mode).filter(|mode| *mode != 0), mtime: Some(mtime(attributes.mtime)) }
}

/// Imports one file.
pub(super) async fn add(node: &Node, content: Pieces, options: &AddOptions) -> Result<Added> {
    let mut session = node.add(options.for_node()?).await?;
    // The name is only used in a wrapping directory.
    let name = if options.wrap_with_directory { options.name.as_bytes() } else { b"" };
    session.file(name, Attributes::default(), content, |_| {}).await?;
    root(session, None).await
}

/// Imports the file or directory at `path`.
pub(super) async fn add_path(
    node: &Node,
    path: PathBuf,
    options: &AddOptions,
    progress: Option<Progress>,
) -> Result<Added> {
    let mut session = node.add(options.for_node()?).await?;
    progress.iter().for_each(|progress| progress.measure(path.clone(), options.walk()));
    let mut tree = Tree::read(path, options.walk());
    let (mut files, mut latest) = (0, None);
    while let Some(event) = tree.next().await.transpose()? {
        match event {
            TreeEvent::Directory { path, attributes } => session.directory(&path, for_node(attributes)).await?,
            TreeEvent::Symlink { path, attributes, target } => {
                session.symlink(&path, for_node(attributes), &target).await?;
            }
            TreeEvent::File { path, attributes } => {
                let mut counted = 0;
                let count = |total: u64| {
                    if let Some(progress) = &progress {
                        progress.advance(total.saturating_sub(counted));
                        counted = total;
                    }
                };
                session.file(&path, for_node(attributes), tree.content(), count).await?;
                files += 1;
                if files % FILES_PER_LOOK == 0 {
                    latest = session.acknowledged().await?.pop().or(latest);
                }
            }
            TreeEvent::Piece(_) | TreeEvent::FileEnd => return Err(Error::internal("received content without a file")),
        }
    }
    root(session, latest).await
}

/// Finishes the import and returns its root, which is its last object.
async fn root(session: AddSession, latest: Option<Imported>) -> Result<Added> {
    let last = session.finish().await?.pop().or(latest);
    let root = last.ok_or_else(|| Error::internal("an import has no root"))?;
    Ok(Added { cid: root.cid.to_string(), size: root.size })
}
