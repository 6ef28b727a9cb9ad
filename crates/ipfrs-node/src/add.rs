//! Importing files and directory trees.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream};
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Block, Cid, Error, Result};
use ipfrs_stream::StoreSink;
use ipfrs_unixfs::{Attributes, BlockSink, Chunker, Entry, ImportOptions, Importer, Layout, Mark, Overrides, Profile};
use tokio::sync::OwnedSemaphorePermit;

use crate::Node;
use crate::metrics::Metrics;

/// Longest path of a file in an import (`PATH_MAX` on Linux).
const MAX_PATH_BYTES: usize = 4_096;

/// Most files, symlinks and directories of one import: their names are in memory until its end.
const MAX_ENTRIES: usize = 4_000_000;

/// What an import does; what is `None` follows from the profile, as in Kubo's `add`.
#[derive(Debug, Clone, Default)]
pub struct AddOptions {
    /// The set of defaults; else `import.profile`.
    pub profile: Option<Profile>,
    /// CID version, 0 or 1.
    pub cid_version: Option<u64>,
    /// Whether leaves are raw blocks.
    pub raw_leaves: Option<bool>,
    /// How files are cut into chunks.
    pub chunker: Option<Chunker>,
    /// Hash function of the content IDs.
    pub hash: Option<HashFunction>,
    /// Blocks of at most this many bytes go whole into the content IDs that name them.
    pub inline_limit: Option<usize>,
    /// Which nodes stand above the leaves of files.
    pub layout: Option<Layout>,
    /// Mode and time that everything gets.
    pub attributes: Attributes,
    /// Everything gets the mode that it comes with, in place of the one above.
    pub preserve_mode: bool,
    /// Everything gets the time that it comes with, in place of the one above.
    pub preserve_mtime: bool,
    /// Most links of a file's inner nodes.
    pub max_file_links: Option<usize>,
    /// Most entries of a directory that is not sharded; 0 for no such limit.
    pub max_directory_links: Option<usize>,
    /// Fan-out of directory shards.
    pub hamt_fanout: Option<u32>,
    /// Makes the content IDs without storing anything.
    pub only_hash: bool,
    /// Puts everything into one more directory.
    pub wrap_with_directory: bool,
}

/// Something that an import has made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    /// Path within the import; empty for an unnamed file and for the wrapping directory.
    pub name: String,
    /// Its content ID.
    pub cid: Cid,
    /// Cumulative size of its DAG in bytes, as `add` reports it.
    pub size: u64,
}

/// One import. Files become [`Added`] once their blocks are durable; directories when the import is
/// [finished](Self::finish). Dropping it ends the import: blocks that were written stay unreferenced.
pub struct AddSession {
    importer: Importer,
    given: Attributes,
    preserve_mode: bool,
    preserve_mtime: bool,
    metrics: Metrics,
    /// Blocks that the store has acknowledged.
    blocks: Arc<AtomicU64>,
    top: Tree,
    wrap: bool,
    unnamed: bool,
    entries: usize,
    waiting: VecDeque<(Mark, Added)>,
    _turn: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Tree {
    branches: BTreeMap<String, Branch>,
    /// What the directory came with.
    attributes: Attributes,
}

enum Branch {
    Leaf(Entry),
    Directory(Tree),
}

/// Takes blocks and keeps nothing: for imports that only make content IDs.
struct Discard;

#[async_trait]
impl BlockSink for Discard {
    async fn put(&self, _blocks: Vec<Block>) -> Result<()> {
        Ok(())
    }
}

/// Counts the blocks that a sink has taken.
struct Counted {
    sink: Arc<dyn BlockSink>,
    blocks: Arc<AtomicU64>,
}

#[async_trait]
impl BlockSink for Counted {
    async fn put(&self, blocks: Vec<Block>) -> Result<()> {
        let count = blocks.len() as u64;
        self.sink.put(blocks).await?;
        self.blocks.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }
}

impl Node {
    /// Begins an import.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) when the options contradict each other.
    pub async fn add(&self, options: AddOptions) -> Result<AddSession> {
        let import = self.import_options(&options)?;
        let sink: Arc<dyn BlockSink> = match options.only_hash {
            true => Arc::new(Discard),
            false => Arc::new(StoreSink(self.inner.store.clone())),
        };
        let blocks = Arc::new(AtomicU64::new(0));
        let sink = Arc::new(Counted { sink, blocks: blocks.clone() });
        let turn = self.turn().await?;
        let metrics = self.inner.metrics.clone();
        metrics.uploads_active.inc();
        Ok(AddSession {
            importer: Importer::new(import, sink),
            given: options.attributes,
            preserve_mode: options.preserve_mode,
            preserve_mtime: options.preserve_mtime,
            metrics,
            blocks,
            top: Tree::default(),
            wrap: options.wrap_with_directory,
            unnamed: false,
            entries: 0,
            waiting: VecDeque::new(),
            _turn: turn,
        })
    }

    /// What `options` come to.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(crate) fn import_options(&self, options: &AddOptions) -> Result<ImportOptions> {
        // The default profile is how Kubo behaves when no profile was chosen: then CIDv1 brings raw leaves with it.
        let configured = Some(self.inner.config.import.profile).filter(|profile| *profile != Profile::default());
        let profile = options.profile.or(configured);
        let overrides = Overrides {
            cid_version: options.cid_version,
            raw_leaves: options.raw_leaves,
            chunker: options.chunker,
            hash: options.hash,
            attributes: options.preserve_mode || options.preserve_mtime || options.attributes.is_some(),
            inline_limit: options.inline_limit,
            layout: options.layout,
            max_file_links: options.max_file_links,
            max_directory_links: options.max_directory_links,
            hamt_fanout: options.hamt_fanout,
        };
        ImportOptions::new(profile, overrides)
    }
}

impl AddSession {
    /// Imports a file at `path` (names separated by `/`; empty for an unnamed file), which comes with `attributes`.
    /// `progress` is told the bytes of the file that have been taken in so far.
    ///
    /// # Errors
    /// What the content stream or the store fails with; a path that is taken or leads out of the import.
    pub async fn file(
        &mut self,
        path: &str,
        attributes: Attributes,
        content: impl Stream<Item = Result<Bytes>> + Send + Unpin,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<()> {
        let names = self.names(path)?;
        let mut counted = 0;
        let upload_bytes = self.metrics.upload_bytes.clone();
        let mut count = |total: u64| {
            upload_bytes.inc_by(total.saturating_sub(counted));
            counted = total;
            progress(total);
        };
        let entry = self.importer.file(content, self.kept(attributes), &mut count).await?;
        self.place(&names, path, entry)
    }

    /// How many blocks of this import are stored, as it goes on. A block that comes twice counts twice.
    pub(crate) fn stored_blocks(&self) -> Arc<AtomicU64> {
        self.blocks.clone()
    }

    /// Imports a symlink.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub async fn symlink(&mut self, path: &str, attributes: Attributes, target: &str) -> Result<()> {
        let names = self.names(path)?;
        let entry = self.importer.symlink(target, self.kept(attributes)).await?;
        self.place(&names, path, entry)
    }

    /// Makes a directory, where it does not exist yet.
    ///
    /// # Errors
    /// A path that leads out of the import, or through a file.
    pub fn directory(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        let names = self.names(path)?;
        self.top.descend(&names, path)?.attributes = attributes;
        Ok(())
    }

    /// What something that comes with `own` is imported with.
    fn kept(&self, own: Attributes) -> Attributes {
        Attributes {
            mode: if self.preserve_mode { own.mode } else { self.given.mode },
            mtime: if self.preserve_mtime { own.mtime } else { self.given.mtime },
        }
    }

    /// Files whose blocks have become durable since the last call.
    pub fn acknowledged(&mut self) -> Vec<Added> {
        let durable = self.importer.durable();
        let ready = self.waiting.iter().take_while(|(mark, _)| *mark <= durable).count();
        self.waiting.drain(..ready).map(|(_, added)| added).collect()
    }

    /// Builds the directories, waits until everything is durable, and gives what was not acknowledged before: files in
    /// the order of the import, then directories, each after what it holds. The last is the root.
    ///
    /// # Errors
    /// What the store fails with.
    pub async fn finish(mut self) -> Result<Vec<Added>> {
        let mut directories = Vec::new();
        let top = std::mem::take(&mut self.top);
        if self.wrap {
            self.build(top, String::new(), &mut directories).await?;
        } else {
            for (name, branch) in top.branches {
                if let Branch::Directory(tree) = branch {
                    self.build(tree, name, &mut directories).await?;
                }
            }
        }
        self.importer.flush().await?;
        let mut added: Vec<_> = self.waiting.drain(..).map(|(_, added)| added).collect();
        added.append(&mut directories);
        Ok(added)
    }

    /// Builds a directory after the directories in it. Recursion is bounded by the depth of the paths.
    fn build<'a>(&'a mut self, tree: Tree, path: String, made: &'a mut Vec<Added>) -> BoxFuture<'a, Result<Entry>> {
        async move {
            let mut entries = Vec::with_capacity(tree.branches.len());
            for (name, branch) in tree.branches {
                let entry = match branch {
                    Branch::Leaf(entry) => entry,
                    Branch::Directory(tree) => {
                        let below = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                        self.build(tree, below, made).await?
                    }
                };
                entries.push((name, entry));
            }
            let entry = self.importer.directory(entries, self.kept(tree.attributes)).await?;
            made.push(Added { name: path, cid: entry.cid, size: entry.tsize });
            Ok(entry)
        }
        .boxed()
    }

    /// The names of a path; counts one more entry.
    fn names(&mut self, path: &str) -> Result<Vec<String>> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(Error::too_large(format!(
                "an import has at most {MAX_ENTRIES} files and directories: split it"
            )));
        }
        let invalid = |why: &str| Err(Error::invalid(format!("invalid file name {path:?}: {why}")));
        let names: Vec<_> = path.split('/').filter(|name| !matches!(*name, "" | ".")).map(str::to_owned).collect();
        if names.iter().any(|name| name == "..") {
            return invalid("\"..\" leads out of the import");
        }
        if path.contains('\0') {
            return invalid("it holds a NUL byte");
        }
        if path.len() > MAX_PATH_BYTES {
            return Err(Error::too_large(format!(
                "a file name of {} bytes is over the limit of {MAX_PATH_BYTES}",
                path.len()
            )));
        }
        if names.len() > MAX_PATH_SEGMENTS {
            return invalid(&format!("more than {MAX_PATH_SEGMENTS} directories deep"));
        }
        Ok(names)
    }

    fn place(&mut self, names: &[String], path: &str, entry: Entry) -> Result<()> {
        let Some((last, parents)) = names.split_last() else {
            return self.place_unnamed(entry);
        };
        let directory = self.top.descend(parents, path)?;
        if directory.branches.contains_key(last) {
            return Err(Error::invalid(format!("{path:?} is in the import twice: give each file a name of its own")));
        }
        let added = Added { name: names.join("/"), cid: entry.cid, size: entry.tsize };
        directory.branches.insert(last.clone(), Branch::Leaf(entry));
        self.waiting.push_back((self.importer.mark(), added));
        Ok(())
    }

    /// A file without a name is called by its content ID, in the answer and in a wrapping directory.
    fn place_unnamed(&mut self, entry: Entry) -> Result<()> {
        if self.unnamed {
            return Err(Error::invalid("two files without a name: give each a file name"));
        }
        self.unnamed = true;
        let name = entry.cid.to_string();
        self.waiting.push_back((self.importer.mark(), Added { name: name.clone(), cid: entry.cid, size: entry.tsize }));
        self.top.branches.insert(name, Branch::Leaf(entry));
        Ok(())
    }
}

impl Drop for AddSession {
    fn drop(&mut self) {
        self.metrics.uploads_active.dec();
    }
}

impl Tree {
    /// The directory at `names`, made with its parents where it does not exist.
    fn descend(&mut self, names: &[String], path: &str) -> Result<&mut Self> {
        let mut tree = self;
        for name in names {
            let branch = tree.branches.entry(name.clone()).or_insert_with(|| Branch::Directory(Self::default()));
            tree = match branch {
                Branch::Directory(tree) => tree,
                Branch::Leaf(_) => {
                    return Err(Error::invalid(format!("{path:?}: {name:?} is a file and a directory in one import")));
                }
            };
        }
        Ok(tree)
    }
}
