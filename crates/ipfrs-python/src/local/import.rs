//! Imports of streams, and of local files and trees.

use std::path::PathBuf;

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Result};
use ipfrs_node::{AddOptions as NodeOptions, AddPathOptions, Attributes, Layout, Mtime, Node};

use crate::backing::{AddOptions, Added, Pieces, Progress};

impl AddOptions {
    fn for_node(&self) -> Result<NodeOptions> {
        Ok(NodeOptions {
            profile: self.profile.as_deref().map(str::parse).transpose()?,
            cid_version: self.cid_version,
            raw_leaves: self.raw_leaves,
            chunker: self.chunker.as_deref().map(str::parse).transpose()?,
            hash: self.hash.as_deref().map(HashFunction::from_name).transpose()?,
            inline_limit: self.inline_limit,
            layout: self.trickle.map(Layout::of_trickle),
            attributes: Attributes {
                mode: self.mode,
                mtime: self.mtime.map(|(seconds, nanos)| Mtime { seconds, nanos }),
            },
            preserve_mode: self.preserve_mode,
            preserve_mtime: self.preserve_mtime,
            max_file_links: self.max_file_links,
            max_directory_links: self.max_directory_links,
            hamt_fanout: self.hamt_fanout,
            nocopy: self.nocopy,
            fscache: self.fscache,
            only_hash: self.only_hash,
            wrap_with_directory: self.wrap_with_directory,
            skip_empty_directories: false,
            unpinned: !self.pin,
            pin_name: self.pin_name.clone(),
            to_files: None,
            operation: None,
        })
    }
}

/// Imports one file.
pub(super) async fn add(node: &Node, content: Pieces, options: &AddOptions) -> Result<Added> {
    let mut session = node.add(options.for_node()?).await?;
    // The name is only used in a wrapping directory.
    let name = if options.wrap_with_directory { options.name.as_bytes() } else { b"" };
    session.file(name, Attributes::default(), content, |_| {}).await?;
    let root = session.finish().await?.pop().ok_or_else(|| Error::internal("an import has no root"))?;
    Ok(Added { cid: root.cid.to_string(), size: root.size })
}

/// Imports the file or directory at `path`.
pub(super) async fn add_path(
    node: &Node,
    path: PathBuf,
    options: &AddOptions,
    progress: Option<Progress>,
) -> Result<Added> {
    progress.iter().for_each(|progress| progress.measure(path.clone(), options.walk()));
    let count = move |bytes| progress.iter().for_each(|progress| progress.advance(bytes));
    let options = AddPathOptions { add: options.for_node()?, walk: options.walk(), progress: Some(Box::new(count)) };
    let root = node.add_path(path, options).await?;
    Ok(Added { cid: root.cid.to_string(), size: root.size })
}
