//! Imports of files and directory trees.

mod roots;

use std::collections::VecDeque;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::Stream;
use ipfrs_core::hash::HashFunction;
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Cid, Error, Result};
use ipfrs_unixfs::{Attributes, Entry, ImportOptions, Importer, Mark, Overrides};
use prometheus::IntCounter;
use tokio::time::timeout_at;

use super::directory_tree::Tree;
use super::keeping::Keeping;
use super::sinks::{Counted, sink};
use crate::content::segments;
use crate::gc::RenewedLease;
use crate::metrics::Active;
use crate::mutable_files::MutablePath;
use crate::node::ImportPermit;
use crate::operations::{self, Operation, OperationKind};
use crate::{AddOptions, Added, LinkName, Node};

/// Maximum length of a file path in an import, in bytes (`PATH_MAX` on Linux).
const MAX_PATH_BYTES: usize = 4_096;

/// Maximum number of files, symlinks and directories in one import. A temporary file holds their names until the
/// import ends, at about 150 bytes per name.
const MAX_ENTRIES: usize = 100_000_000;

/// Length of the names of entries after which the gathered blocks are passed on, in bytes. The blocks of small files
/// may take less memory than their names, which wait for them.
const MAX_GATHERED_NAME_BYTES: usize = 256 * 1024;

/// One import. Files are returned as [`Added`] once their blocks are durable. Directories are built after all files
/// and returned when the import is [finished](Self::finish). Entries that are in no directory of the import are
/// pinned before they are returned. Dropping the session ends the import; blocks that were already written stay
/// unreferenced.
pub struct AddSession {
    importer: Importer,
    /// Whether leaves stay in the files.
    nocopy: bool,
    keeping: Keeping,
    upload_bytes: IntCounter,
    /// Number of blocks that the store has acknowledged.
    blocks: Arc<AtomicU64>,
    operation: Option<Operation>,
    /// Bytes of all files imported so far.
    imported_bytes: u64,
    /// Content ID that was acknowledged last.
    latest: Option<Cid>,
    tree: Tree,
    wrap: bool,
    /// Whether the client sent a directory without a name, which is the root of the import.
    has_root_part: bool,
    unnamed: bool,
    entries: usize,
    waiting: VecDeque<(Mark, Added)>,
    /// Bytes of the names of entries since blocks were last passed on because of them.
    gathered_name_bytes: usize,
    /// First name in the path of the latest part.
    last_root: Vec<u8>,
    /// Whether there are directories besides that of the whole import.
    has_directories: bool,
    /// The entry for `last_root`, where directories before it are reported after it would be: clients take the last
    /// line for the root of the import.
    held: Option<Added>,
    /// The node, and the name for the pins of the roots. `None` if the import creates no pins.
    pins: Option<(Node, String)>,
    /// The node, and the path of mutable files where the roots are put.
    to_files: Option<(Node, MutablePath)>,
    /// Whether a root was put at the path, which is not a directory.
    has_put_file: bool,
    /// Why a root was not put at the path. The root is reported first.
    failure: Option<Error>,
    /// Protects the written blocks from garbage collection until they are pinned.
    lease: Arc<RenewedLease>,
    _active: Active,
    _import_permit: ImportPermit,
}

impl Node {
    /// Begins an import.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the options contradict each other;
    /// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind) if the repo is read-only;
    /// [`ErrorKind::Conflict`](ipfrs_core::ErrorKind) if the operation ID is in use;
    /// [`ErrorKind::RateLimited`](ipfrs_core::ErrorKind) if too many operations run or no import permit becomes free
    /// in time.
    pub async fn add(&self, options: AddOptions) -> Result<AddSession> {
        let import = self.import_options(&options)?;
        if options.to_files.is_some() && (options.only_hash || options.wrap_with_directory) {
            let other = if options.only_hash { "only-hash" } else { "wrap-with-directory" };
            return Err(Error::invalid(format!("{other} and to-files options are not compatible")));
        }
        if !options.only_hash {
            self.check_writable()?;
        }
        if options.nocopy && !import.raw_leaves() {
            return Err(Error::invalid("nocopy option requires '--raw-leaves' to be enabled as well"));
        }
        let sink = sink(self, &options)?;
        let blocks = Arc::new(AtomicU64::new(0));
        let lease = self.inner.protection.renewed_lease();
        let sink =
            Arc::new(Counted { sink, lease: (!options.only_hash).then(|| lease.clone()), blocks: blocks.clone() });
        let begin = |id| self.inner.operations.begin(id, OperationKind::Add, 0, None);
        let operation = options.operation.map(begin).transpose()?;
        let import_permit = self.import_permit().await?;
        let active = Active::begin(&self.inner.metrics.uploads_active);
        let mut tree = Tree::new(self.scratch_dir(), (!self.inner.read_only).then(|| self.inner.store.clone()));
        if options.skip_empty_directories {
            tree.skip_empty();
        }
        if options.wrap_with_directory {
            // The wrapping directory exists even if nothing is put into it.
            tree.directory(&[], Attributes::default()).await?;
        }
        let keeping = Keeping {
            given: options.attributes,
            preserve_mode: options.preserve_mode,
            preserve_mtime: options.preserve_mtime,
        };
        Ok(AddSession {
            importer: Importer::new(import, sink),
            nocopy: options.nocopy,
            keeping,
            upload_bytes: self.inner.metrics.upload_bytes.clone(),
            blocks,
            tree,
            wrap: options.wrap_with_directory,
            has_root_part: false,
            unnamed: false,
            entries: 0,
            waiting: VecDeque::new(),
            gathered_name_bytes: 0,
            last_root: Vec::new(),
            has_directories: false,
            held: None,
            operation,
            imported_bytes: 0,
            latest: None,
            pins: (!options.only_hash && !options.unpinned).then(|| (self.clone(), options.pin_name)),
            to_files: options.to_files.map(|path| (self.clone(), path)),
            has_put_file: false,
            failure: None,
            lease,
            _active: active,
            _import_permit: import_permit,
        })
    }

    /// Converts `options` to the options of the importer and fills in the defaults of the profile.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the options contradict each other.
    pub(crate) fn import_options(&self, options: &AddOptions) -> Result<ImportOptions> {
        let config = &self.inner.config.import;
        let (profile, defaults) = match options.profile {
            Some(profile) => (Some(profile), Overrides::default()),
            None => (config.named_profile(), config.overrides()),
        };
        let attributes = options.preserve_mode || options.preserve_mtime || options.attributes.is_some();
        let overrides = Overrides {
            cid_version: options.cid_version.or(defaults.cid_version),
            // Raw leaves cannot hold attributes, which the request asks for.
            raw_leaves: options
                .raw_leaves
                .or(options.nocopy.then_some(true))
                .or(defaults.raw_leaves.filter(|_| !attributes)),
            chunker: options.chunker.or(defaults.chunker),
            hash: options.hash.or(defaults.hash),
            attributes,
            inline_limit: options.inline_limit,
            layout: options.layout.or(defaults.layout),
            max_file_links: options.max_file_links.or(defaults.max_file_links),
            max_directory_links: options.max_directory_links.or(defaults.max_directory_links),
            hamt_fanout: options.hamt_fanout.or(defaults.hamt_fanout),
            ..defaults
        };
        ImportOptions::new(profile, overrides)
    }

    /// Returns the hash function of content IDs that a request does not set.
    #[must_use]
    pub fn default_hash(&self) -> HashFunction {
        self.inner.config.import.hash.unwrap_or_default()
    }
}

impl AddSession {
    /// Imports a file at `path` (names separated by `/`; empty for an unnamed file). `attributes` are those that the
    /// client sent. Calls `progress` with the number of bytes of the file that have been read so far.
    ///
    /// # Errors
    /// Errors of the content stream or the store; also if the path is taken or leads out of the import.
    pub async fn file(
        &mut self,
        path: impl AsRef<[u8]>,
        attributes: Attributes,
        content: impl Stream<Item = Result<Bytes>> + Send + Unpin,
        progress: impl FnMut(u64) + Send,
    ) -> Result<()> {
        self.file_at(path, None, attributes, content, progress).await
    }

    /// Imports a file like [`Self::file`] that is `source` on this machine, an absolute path. With
    /// [`AddOptions::nocopy`], its leaves stay there.
    ///
    /// # Errors
    /// As [`Self::file`]; also, with `nocopy`, if the source is missing or does not have the content.
    pub async fn file_at(
        &mut self,
        path: impl AsRef<[u8]>,
        source: Option<&Path>,
        attributes: Attributes,
        content: impl Stream<Item = Result<Bytes>> + Send + Unpin,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<()> {
        let names = self.names(path.as_ref())?;
        let source: Option<Arc<Path>> = source.filter(|_| self.nocopy).map(Arc::from);
        if self.nocopy && source.is_none() {
            return Err(Error::invalid("missing file path or URL, can't create filestore reference"));
        }
        let mut counted = 0;
        let upload_bytes = self.upload_bytes.clone();
        let (operation, blocks, before) = (self.operation.as_ref(), &self.blocks, self.imported_bytes);
        let mut count = |total: u64| {
            upload_bytes.inc_by(total.saturating_sub(counted));
            counted = total;
            progress(total);
            if let Some(operation) = operation {
                operation.advance(before + total, blocks.load(Ordering::Relaxed));
            }
        };
        let entry = self.importer.file_at(content, source, self.keeping.of(attributes), &mut count).await;
        if let (Err(e), Some(operation)) = (&entry, operation) {
            operation.fail(e);
        }
        let entry = entry?;
        self.imported_bytes += counted;
        self.place(&names, entry, attributes).await
    }

    /// Returns a future that is ready, with the error of the import, once a client has cancelled its operation.
    pub fn cancelled(&self) -> impl Future<Output = Error> + Send + use<> {
        let cancellation = self.operation.as_ref().map(|operation| operation.cancellation().clone());
        async move {
            match cancellation {
                Some(cancellation) => cancellation.cancelled().await,
                None => std::future::pending().await,
            }
            operations::cancelled()
        }
    }

    /// Whether the import wraps everything in a directory, which may be empty.
    #[must_use]
    pub fn is_wrapped(&self) -> bool {
        self.wrap
    }

    /// Returns the counter of stored blocks, which grows while the import runs. A block that occurs twice counts
    /// twice.
    pub(crate) fn stored_blocks(&self) -> Arc<AtomicU64> {
        self.blocks.clone()
    }

    /// Imports a symlink.
    ///
    /// # Errors
    /// As [`Self::file`].
    pub async fn symlink(
        &mut self,
        path: impl AsRef<[u8]>,
        attributes: Attributes,
        target: impl AsRef<[u8]>,
    ) -> Result<()> {
        let names = self.names(path.as_ref())?;
        let kept = Attributes { mode: None, ..self.keeping.of(attributes) };
        let entry = self.importer.symlink(target.as_ref(), kept).await?;
        self.place(&names, entry, attributes).await
    }

    /// Creates a directory if it does not exist yet. A directory without a name, as Kubo's Go client sends it, is the
    /// root of the import and holds everything that follows.
    ///
    /// # Errors
    /// If the path leads out of the import, or if a directory without a name follows another root.
    pub async fn directory(&mut self, path: impl AsRef<[u8]>, attributes: Attributes) -> Result<()> {
        let names = self.names(path.as_ref())?;
        if names.is_empty() && !self.has_root_part {
            if self.wrap {
                let remedy = "omit wrap-with-directory, or name the directory";
                return Err(Error::invalid(format!("a directory without a name cannot be in another one: {remedy}")));
            }
            if self.entries > 1 {
                let why = "a directory without a name contains everything after it: send it first";
                return Err(Error::invalid(why));
            }
            (self.wrap, self.has_root_part) = (true, true);
        }
        self.has_directories |= !names.is_empty();
        self.tree.directory(&names, attributes).await
    }

    /// Waits for the next part of the import. After a while, stores what was gathered of earlier ones, so that a slow
    /// client does not keep it in memory.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn wait_for<T>(&mut self, part: impl Future<Output = T> + Send) -> Result<T> {
        let mut part = pin!(part);
        if let Some(until) = self.importer.gathered_until() {
            if let Ok(part) = timeout_at(until, &mut part).await {
                return Ok(part);
            }
            self.importer.pass_on().await?;
        }
        Ok(part.await)
    }

    /// Returns the entries whose blocks, and pins if they have their own, have become durable since the last call.
    ///
    /// # Errors
    /// If the roots cannot be pinned, or the last root of the previous call could not be put into the mutable files.
    pub async fn acknowledged(&mut self) -> Result<Vec<Added>> {
        self.failure.take().map_or(Ok(()), Err)?;
        let durable = self.importer.durable();
        let ready = self.waiting.iter().take_while(|(mark, _)| *mark <= durable).count();
        let ready = self.waiting.drain(..ready).map(|(_, added)| added);
        let mut added: Vec<_> = self.held.take().into_iter().chain(ready).collect();
        if self.has_directories && !self.wrap {
            let last = added.iter().position(|added| added.name.as_bytes() == self.last_root);
            self.held = last.map(|last| added.remove(last));
        }
        self.report(added).await
    }

    /// Builds the next directory, each after the directories that it contains. Returns `false` when all are built.
    /// After the first call, nothing more can be imported.
    ///
    /// # Errors
    /// Errors of the store; also if the import contains a name twice.
    pub async fn build_next(&mut self) -> Result<bool> {
        let keeping = self.keeping;
        let built = self.tree.build_next(&mut self.importer, |own| keeping.of(own), self.wrap).await?;
        let Some(directory) = built else { return Ok(false) };
        self.waiting.push_back((self.importer.mark(), directory));
        Ok(true)
    }

    /// Builds the remaining directories, waits until everything is durable, and returns the entries that were not
    /// acknowledged before: files in import order, then directories, the root last. The result is empty if everything
    /// was acknowledged before. Callers with many directories should build them [one by one](Self::build_next) and
    /// acknowledge them in between.
    ///
    /// # Errors
    /// As [`Self::build_next`]; also if the roots cannot be pinned, or put into the mutable files.
    pub async fn finish(self) -> Result<Vec<Added>> {
        let mut rest = Vec::new();
        let report = |added: &Added| {
            rest.push(added.clone());
            Ok(())
        };
        let ended = self.finish_each(report).await;
        ended.map(|()| rest)
    }

    /// Same as [`finish`](Self::finish), but calls `report` with each entry, also with those before an error of the
    /// mutable files.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and that of `report`.
    pub async fn finish_each(mut self, report: impl FnMut(&Added) -> Result<()> + Send) -> Result<()> {
        let rest = self.finish_rest().await;
        let rest = rest.and_then(|rest| rest.iter().try_for_each(report));
        let rest = rest.and_then(|()| self.failure.take().map_or(Ok(()), Err));
        match (&self.operation, &rest, self.latest) {
            (Some(operation), Err(e), _) => operation.fail(e),
            (Some(operation), Ok(()), Some(root)) => {
                operation.done(root, self.imported_bytes, self.blocks.load(Ordering::Relaxed));
            }
            _ => {}
        }
        rest
    }

    async fn finish_rest(&mut self) -> Result<Vec<Added>> {
        while self.build_next().await? {}
        self.importer.flush().await?;
        let mut rest = self.acknowledged().await?;
        if self.failure.is_none()
            && let Some(last) = self.held.take()
        {
            rest.extend(self.report(vec![last]).await?);
        }
        Ok(rest)
    }

    /// Ends the import and reports `error` to clients that watch the operation.
    pub fn fail(self, error: &Error) {
        if let Some(operation) = &self.operation {
            operation.fail(error);
        }
    }

    /// Splits a path into its names and counts one more entry.
    fn names<'a>(&mut self, path: &'a [u8]) -> Result<Vec<&'a [u8]>> {
        self.entries += 1;
        if self.entries > MAX_ENTRIES {
            return Err(Error::too_large(format!(
                "an import has at most {MAX_ENTRIES} files and directories: split it"
            )));
        }
        let shown = || LinkName::from(path);
        let invalid = |why: &str| Err(Error::invalid(format!("invalid file name {:?}: {why}", shown())));
        // As in Kubo, a path that leads out of the import begins at its root.
        let mut names = Vec::new();
        for name in segments(path) {
            match name {
                b"." => {}
                b".." => drop(names.pop()),
                name => names.push(name),
            }
        }
        if path.contains(&0) {
            return invalid("it contains a NUL byte");
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
        self.last_root = names.first().copied().unwrap_or_default().to_vec();
        self.has_directories |= names.len() > 1;
        Ok(names)
    }

    /// Puts an imported entry at `names`. A file without a name is named by its content ID, both in the response and
    /// in a wrapping directory.
    async fn place(&mut self, names: &[&[u8]], entry: Entry, attributes: Attributes) -> Result<()> {
        let own_name = entry.cid.to_string();
        self.unnamed |= names.is_empty();
        let names = if names.is_empty() { &[own_name.as_bytes()][..] } else { names };
        // Roots are in no directory, so their names may be equal, as in Kubo.
        if self.wrap || names.len() > 1 {
            self.tree.place(names, &entry).await?;
        }
        let (kind, name) = (entry.kind, names.join(&b'/'));
        self.gathered_name_bytes += name.len();
        let added = Added { name: name.into(), cid: entry.cid, size: entry.tsize, kind, attributes };
        self.waiting.push_back((self.importer.mark(), added));
        if self.gathered_name_bytes > MAX_GATHERED_NAME_BYTES {
            self.gathered_name_bytes = 0;
            self.importer.pass_on().await?;
        }
        Ok(())
    }
}
