//! UnixFS trees as TAR archives.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use ipfrs_core::{Cid, Error, Result};
use ipfrs_store::BlockStore;
use ipfrs_stream::tar::{self, TarEntry, TarKind};
use ipfrs_stream::{BlockStoreSource, DagReader, MEASURED_PARTS, Part, Span};
use ipfrs_unixfs::{Attributes, DirEntry, Entries, LinkName, Mtime, Node as UnixFsNode, decode_measured};

use super::node_memory::NodeMemory;
use crate::metrics::Active;
use crate::{Node, Object};

/// Number of directory entries that are looked up together.
const LOOKUP_ENTRIES: usize = 64;

/// Memory limit for the open directories from the root to the current entry, in bytes. It suffices for some 10,000
/// directories with one entry each.
const MAX_OPEN_BYTES: usize = 128 * 1024 * 1024;

/// Upper bound of the memory of an open directory besides its path and its entries, in bytes.
const DIRECTORY_BYTES: usize = 1024;

/// Maximum number of symlinks in the open directories.
const MAX_OPEN_SYMLINKS: usize = 1024 * 1024;

/// TAR archive that is produced as a stream.
pub struct Archive {
    /// Bytes of the archive. File content is passed on as slices of blocks.
    pub pieces: BoxStream<'static, Result<Bytes>>,
    /// Length in bytes, if it is known before the whole tree is read, that is, for a file or a symlink.
    pub length: Option<u64>,
}

impl Node {
    /// Returns the file, directory or symlink at the end of a path as a TAR archive that unpacks to an entry called
    /// `name`. Entries without a modification time get `default_mtime`. The stream reads directories as the consumer
    /// proceeds, a bounded distance ahead.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for a name that leads elsewhere,
    /// [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for an object that is not UnixFS. The stream fails if a
    /// block is missing or is not UnixFS, if a name in a directory leads out of the archive, or if directories are
    /// nested more than [`StreamingConfig::max_dag_depth`](crate::StreamingConfig::max_dag_depth) deep.
    pub async fn archive(&self, object: &Object, name: &LinkName, default_mtime: Option<Mtime>) -> Result<Archive> {
        let source = BlockStoreSource(self.part_store(&object.resolved.path, Part::All));
        let measurable = AtomicUsize::new(MEASURED_PARTS);
        let root = decode_measured(&source, object.cid, object.block.clone(), &measurable).await?;
        let mut walk = Walk {
            store: source.0,
            measurable,
            node: self.clone(),
            path: Vec::new(),
            content: None,
            open_bytes: NodeMemory::new(&self.inner.decoded_nodes),
            symlinks: 0,
            default_mtime,
            has_symlink: false,
            has_path_name: false,
            hashes: RandomState::new(),
            has_ended: false,
            _active: Active::begin(&self.inner.metrics.downloads_active),
        };
        let is_directory = matches!(root, UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_));
        let size = if let UnixFsNode::File(file) = &root { file.size } else { 0 };
        let header = walk.begin(name.as_bytes().to_vec(), root)?;
        let around = header.len() + tar::padding(size).len() + tar::end().len();
        let length = if is_directory { None } else { size.checked_add(around as u64) };
        // Boxed, because each piece moves it.
        let rest =
            stream::try_unfold(
                Box::new(walk),
                |mut walk| async move { Ok(walk.next().await?.map(|piece| (piece, walk))) },
            );
        let refusals = self.inner.metrics.refusals.clone();
        let rest = rest.inspect_err(move |error| refusals.note(error));
        let pieces = stream::iter([Ok(header)]).chain(rest).boxed();
        Ok(Archive { pieces, length })
    }
}

/// Position of the archive stream in the tree.
struct Walk {
    node: Node,
    store: Arc<dyn BlockStore>,
    /// Number of parts that may still be read to find the sizes of files that have none.
    measurable: AtomicUsize,
    /// Open directories, from the root to the current entry.
    path: Vec<Directory>,
    content: Option<Content>,
    /// Memory of the directories of `path`.
    open_bytes: NodeMemory,
    /// Number of symlinks in the directories of `path`.
    symlinks: usize,
    /// Whether the archive contains a symlink so far.
    /// Modification time of entries that have none.
    default_mtime: Option<Mtime>,
    has_symlink: bool,
    /// Whether an entry so far had a relative path as its name. A symlink of the same archive could be a part of that
    /// path.
    has_path_name: bool,
    hashes: RandomState,
    has_ended: bool,
    _active: Active,
}

/// File that is being archived.
struct Content {
    pieces: Pieces,
    size: u64,
}

/// Content of a file, in order.
enum Pieces {
    /// The content of a file of one block, until it is taken.
    Block(Option<Bytes>),
    Blocks(Box<DagReader>),
}

impl Pieces {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        match self {
            Self::Block(content) => content.take().map(Ok),
            Self::Blocks(reader) => reader.next().await,
        }
    }
}

/// Directory that is being archived.
struct Directory {
    path: Vec<u8>,
    /// Memory of the directory, in bytes.
    bytes: usize,
    entries: Entries,
    /// Entries whose blocks have been requested from the store.
    ahead: VecDeque<DirEntry>,
    /// Memory of these entries when they were requested, in bytes.
    ahead_bytes: usize,
    blocks: BoxStream<'static, Result<(Cid, Option<Bytes>)>>,
    /// Hashes of the names of the symlinks archived so far. If one of these names were a directory as well, its
    /// entries would be unpacked wherever the symlink points.
    symlinks: HashSet<u64>,
}

impl Walk {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(content) = &mut self.content {
                if let Some(piece) = content.pieces.next().await {
                    let piece = piece?;
                    self.node.count_download(piece.len());
                    return Ok(Some(piece));
                }
                let padding = tar::padding(content.size);
                self.content = None;
                if !padding.is_empty() {
                    return Ok(Some(padding));
                }
            }
            let Some(directory) = self.path.last_mut() else {
                let has_ended = std::mem::replace(&mut self.has_ended, true);
                return Ok((!has_ended).then(tar::end));
            };
            let next = directory.next(&self.store, &self.measurable).await?;
            let bytes = directory.memory();
            self.open_bytes.replace(std::mem::replace(&mut directory.bytes, bytes), bytes);
            self.check_open()?;
            match next {
                Some(entry) => {
                    self.has_path_name |= entry.has_path_name;
                    return self.begin(entry.path, entry.node).map(Some);
                }
                None => {
                    if let Some(done) = self.path.pop() {
                        self.symlinks -= done.symlinks.len();
                        self.open_bytes.replace(done.bytes, 0);
                    }
                }
            }
        }
    }

    /// Returns the header of the entry at `path`; its content or its entries follow.
    fn begin(&mut self, path: Vec<u8>, node: UnixFsNode) -> Result<Bytes> {
        let kind = match &node {
            UnixFsNode::File(file) => TarKind::File { size: file.size },
            UnixFsNode::Directory { .. } | UnixFsNode::HamtShard(_) => TarKind::Directory,
            UnixFsNode::Symlink { target, .. } => TarKind::Symlink { target },
        };
        let own = node.attributes();
        let attributes = Attributes { mtime: own.mtime.or(self.default_mtime), ..own };
        let header = tar::header(&TarEntry { path: &path, kind, attributes })?;
        self.has_symlink |= matches!(node, UnixFsNode::Symlink { .. });
        if self.has_symlink && self.has_path_name {
            let why = "the tree contains symlinks and names that are paths, which could lead out of the archive";
            return Err(Error::invalid(format!("{:?} cannot be archived: {why}", LinkName::from(path))));
        }
        let name = self.hashes.hash_one(path.rsplit(|byte| *byte == b'/').next());
        if self.path.last().is_some_and(|directory| directory.symlinks.contains(&name)) {
            let path = LinkName::from(path);
            return Err(Error::invalid(format!("{path:?} is both a symlink and another entry of one directory")));
        }
        match node {
            UnixFsNode::File(file) => {
                let size = file.size;
                let pieces = match file.children.is_empty() && file.inline.len() as u64 == size {
                    true => Pieces::Block(Some(file.inline).filter(|content| !content.is_empty())),
                    false => {
                        let config = &self.node.inner.config.streaming;
                        let reader = DagReader::new(self.store.clone(), &file, Span::whole(size), config);
                        Pieces::Blocks(Box::new(reader.with_memory(self.open_bytes.another().counter())))
                    }
                };
                self.content = Some(Content { pieces, size });
            }
            UnixFsNode::Symlink { .. } => self.remember_symlink(name)?,
            node => self.descend(path, node)?,
        }
        Ok(header)
    }

    fn remember_symlink(&mut self, name: u64) -> Result<()> {
        if self.path.last_mut().is_some_and(|directory| directory.symlinks.insert(name)) {
            self.symlinks += 1;
        }
        if self.symlinks > MAX_OPEN_SYMLINKS {
            return Err(Error::too_large(format!(
                "a directory has more than the limit of {MAX_OPEN_SYMLINKS} symlinks"
            )));
        }
        Ok(())
    }

    fn descend(&mut self, path: Vec<u8>, node: UnixFsNode) -> Result<()> {
        let config = &self.node.inner.config.streaming;
        if self.path.len() == config.max_dag_depth as usize {
            let shown = LinkName::from(&path[..path.len().min(80)]);
            return Err(config.too_deep("the tree", &format_args!("{shown:?}")));
        }
        let source = Arc::new(BlockStoreSource(self.store.clone()));
        let mut directory = Directory {
            path,
            bytes: 0,
            entries: Entries::new(source, node)?,
            ahead: VecDeque::new(),
            ahead_bytes: 0,
            blocks: stream::empty().boxed(),
            symlinks: HashSet::new(),
        };
        directory.bytes = directory.memory();
        self.open_bytes.replace(0, directory.bytes);
        self.path.push(directory);
        self.check_open()
    }

    /// Checks the memory of the directories on the way from the root.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) over [`MAX_OPEN_BYTES`], and those of
    /// [`NodeMemory::check`].
    fn check_open(&self) -> Result<()> {
        if self.open_bytes.own() <= MAX_OPEN_BYTES {
            return self.open_bytes.check();
        }
        let path = self.path.last().map_or(&[][..], |directory| &directory.path);
        let path = LinkName::from(&path[..path.len().min(80)]);
        Err(Error::too_large(format!(
            "the directories down to {path:?} and their paths take more than the limit of {MAX_OPEN_BYTES} bytes of \
             memory: archive a directory further down"
        )))
    }
}

/// Entry of a directory.
struct Entry {
    /// Path of the entry in the archive.
    path: Vec<u8>,
    /// Whether the name in the directory is a path.
    has_path_name: bool,
    node: UnixFsNode,
}

impl Directory {
    /// Returns an upper bound of the memory of the directory, in bytes: its path, its entries and those that were read
    /// ahead.
    fn memory(&self) -> usize {
        DIRECTORY_BYTES + self.path.len() + self.entries.memory() + self.ahead_bytes
    }

    /// Returns the next entry.
    async fn next(&mut self, store: &Arc<dyn BlockStore>, measurable: &AtomicUsize) -> Result<Option<Entry>> {
        if self.ahead.is_empty() {
            while self.ahead.len() < LOOKUP_ENTRIES {
                let Some(entry) = self.entries.next().await? else { break };
                self.ahead.push_back(entry);
            }
            self.ahead_bytes = self.ahead.iter().map(|entry| size_of::<DirEntry>() + entry.name.len()).sum();
            self.blocks = store.get_many(self.ahead.iter().map(|entry| entry.cid).collect());
        }
        let Some(entry) = self.ahead.pop_front() else { return Ok(None) };
        let path = tar::place(&self.path, entry.name.as_bytes())?;
        let missing = || Error::internal("the store omitted a requested block");
        let (cid, data) = self.blocks.next().await.ok_or_else(missing)??;
        let data = data.ok_or_else(|| {
            let path = LinkName::from(&*path);
            Error::no_block(&cid, format!("block {cid} of {path:?} is not in this store"))
        })?;
        let node = decode_measured(&BlockStoreSource(store.clone()), cid, data, measurable).await?;
        Ok(Some(Entry { path, has_path_name: entry.name.as_bytes().contains(&b'/'), node }))
    }
}
