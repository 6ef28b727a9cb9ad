//! `add`: imports files and directory trees.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures::future::Either;
use futures::{StreamExt, stream};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_middleware::RequestMemory;
use ipfrs_node::{
    AddOptions, AddSession, Added, Attributes, EntryKind, Layout, LinkName, MutablePath, check_pin_name,
    current_context, with_context,
};
use ipfrs_rpc::types::{Added as AddedLine, ImportProgress};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::args::{Args, Render};
use super::attributes::file_attributes;
use super::command_result::{CommandResult, has_body};
use super::multipart::{self, Part, PartKind, Parts};
use super::{attributes, hash_option, output};
use crate::access::StoredLater;
use crate::body;
use crate::error::RpcError;
use crate::request_id::operation_id;
use crate::state::AppState;

/// Maximum length of a symlink target, in bytes (`PATH_MAX` on Linux).
const MAX_TARGET_BYTES: usize = 4_096;

/// Number of bytes between two progress lines, as in Kubo.
const PROGRESS_STEP_BYTES: u64 = 256 * 1024;

/// Maximum number of bytes of output that may wait for the client: the lines of about 100,000 files. Below it the
/// import continues, for clients that send everything before they read. Above it the import waits until the client
/// reads.
const MAX_WAITING_BYTES: usize = 16 * 1024 * 1024;

/// Number of waiting bytes of each import that take no memory of the pool.
const FREE_WAITING_BYTES: usize = 1024 * 1024;

/// Time after which an import that waits for memory looks for it again.
const MEMORY_POLL: Duration = Duration::from_millis(100);

/// Memory of a line that waits, besides its bytes.
const LINE_BYTES: usize = 96;

/// Number of waiting bytes above which progress lines are skipped.
const MAX_PROGRESS_BYTES: usize = 1024 * 1024;

/// `add`: imports a multipart body with files, directories and symlinks, or any other body as one unnamed file. A
/// line is sent for each file once it is durable, and for each directory at the end. With `X-Operation-Id`, clients
/// can watch the progress.
pub(super) async fn add(State(state): State<AppState>, args: Args, request: Request) -> CommandResult {
    let operation = operation_id(request.headers()).map_err(|e| RpcError::Request(e.to_string()))?;
    let options = AddOptions { operation, ..options(&args)? };
    let boundary = multipart::boundary(request.headers())?;
    if boundary.is_none() && !has_body(&request) {
        return Err(RpcError::Request("argument \"path\" is required: the request has no body".into()));
    }
    let session = state.node.add(options).await?;
    let (sender, receiver) = unbounded_channel();
    let unread = Arc::new(UnreadLines {
        bytes: AtomicUsize::new(0),
        memory: Mutex::new(state.memory.reservation()),
        read: Notify::new(),
    });
    let stored = StoredLater::default();
    let reporter = Reporter {
        lines: sender,
        stored: stored.clone(),
        stores: !args.is_set("only-hash"),
        unread: Arc::clone(&unread),
        idle_limit: state.config.idle_patience(),
        render: args.render,
        progress: args.is_set("progress"),
        silent: args.is_set("silent"),
        wrap: args.is_set("wrap-with-directory"),
        read_bytes: 0,
        reported_bytes: 0,
    };
    // A separate task, so that the import continues while the client does not read. Clients that send everything
    // before they read depend on it. Dropping the handle, together with the response, aborts the task.
    let body = match boundary {
        Some(boundary) => Either::Left(Parts::new(&state.memory, request.into_body(), boundary)),
        None => Either::Right(request.into_body()),
    };
    let import = async move {
        run(session, reporter, body).await;
    };
    let import = with_context(current_context(), import).in_current_span();
    let task = AbortOnDropHandle::new(tokio::spawn(import));
    let mut response = respond(task, ReportedLines { lines: receiver, unread }, args.takes_trailers).await?;
    response.extensions_mut().insert(stored);
    Ok(response)
}

fn options(args: &Args) -> Result<AddOptions, RpcError> {
    let pin = args.is_set("pin");
    let pin_name = args.text("pin-name").unwrap_or_default().to_owned();
    if args.text("pin-name").is_some() && (!pin || args.is_set("only-hash")) {
        let why = "pin-name option requires pin to be set: pin=false and only-hash create no pin";
        return Err(Error::invalid(why).into());
    }
    // Before the content arrives.
    check_pin_name(&pin_name)?;
    let inline_limit = args.number("inline-limit")?.unwrap_or_default();
    Ok(AddOptions {
        profile: args.text("profile").map(str::parse).transpose()?,
        // Kubo's Go clients send -1 for an unset version.
        cid_version: args.number("cid-version")?.filter(|version| *version != -1).map(cid_version).transpose()?,
        raw_leaves: args.bool("raw-leaves"),
        chunker: args.nonempty_text("chunker").map(str::parse).transpose()?,
        hash: args.nonempty_text("hash").map(hash_option::known).transpose()?,
        inline_limit: args.is_set("inline").then_some(inline_limit),
        layout: args.bool("trickle").map(Layout::of_trickle),
        attributes: attributes::of_options(args)?,
        preserve_mode: args.is_set("preserve-mode"),
        preserve_mtime: args.is_set("preserve-mtime"),
        // As in Kubo, 0 and less mean the default.
        max_file_links: args.number::<i64>("max-file-links")?.and_then(positive),
        // And for directories, that there is no limit.
        max_directory_links: args.number::<i64>("max-directory-links")?.map(|most| positive(most).unwrap_or(0)),
        hamt_fanout: args.number("max-hamt-fanout")?,
        nocopy: args.is_set("nocopy"),
        fscache: args.is_set("fscache"),
        only_hash: args.is_set("only-hash"),
        wrap_with_directory: args.is_set("wrap-with-directory"),
        skip_empty_directories: !args.is_set("empty-dirs"),
        unpinned: !pin,
        pin_name,
        to_files: args.text("to-files").map(to_files).transpose()?,
        operation: None,
    })
}

/// Returns a number that is greater than 0.
fn positive(number: i64) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number > 0)
}

/// Returns the path of mutable files where the import is put. As in Kubo, an empty one is the root.
fn to_files(path: &str) -> Result<MutablePath> {
    let path = if path.is_empty() { "/" } else { path };
    MutablePath::parse(path).map_err(|e| Error::new(e.kind(), format!("to-files: {e}")))
}

fn cid_version(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| Error::invalid(format!("unknown CID version: {number}: use 0 or 1")))
}

async fn run(mut session: AddSession, mut reporter: Reporter, body: Either<Parts, Body>) {
    let cancelled = session.cancelled();
    let built = tokio::select! {
        built = import_and_build(&mut session, &mut reporter, body) => built,
        why = cancelled => Err(why),
    };
    let told = match built {
        Ok(()) => session.finish_each(|added| reporter.added(added)).await,
        Err(e) => {
            session.fail(&e);
            Err(e)
        }
    };
    reporter.stored.end(&told);
    if let Err(e) = told {
        reporter.send(Err(e));
    }
}

async fn import_and_build(session: &mut AddSession, reporter: &mut Reporter, body: Either<Parts, Body>) -> Result<()> {
    match body {
        Either::Left(parts) => import(session, reporter, parts).await?,
        Either::Right(body) => {
            let name = LinkName::default();
            let progress = |bytes| reporter.progress(&name, bytes);
            session.file("", Attributes::default(), body::pieces(body), progress).await?;
            reporter.end_progress(&name);
        }
    }
    build(session, reporter).await
}

/// Builds the directories.
async fn build(session: &mut AddSession, reporter: &mut Reporter) -> Result<()> {
    while session.build_next().await? {
        reporter.acknowledged(session).await?;
    }
    Ok(())
}

/// Imports every part: files, `application/x-directory`, `application/symlink`. Directories without a part of their
/// own are created from the paths of their files.
async fn import(session: &mut AddSession, reporter: &mut Reporter, mut parts: Parts) -> Result<()> {
    let mut has_parts = false;
    while let Some(part) = session.wait_for(parts.next()).await?? {
        has_parts = true;
        let name = part.file_name();
        let attributes = attributes::of_part(part.headers());
        match part.kind() {
            PartKind::Directory => session.directory(&name, attributes).await?,
            PartKind::Symlink => session.symlink(&name, attributes, &target(part).await?).await?,
            PartKind::File => {
                let source = part.source();
                let progress = |bytes| reporter.progress(&name, bytes);
                session.file_at(&name, source.as_deref(), attributes, part, progress).await?;
                reporter.end_progress(&name);
            }
        }
        reporter.acknowledged(session).await?;
    }
    if has_parts || session.is_wrapped() {
        return Ok(());
    }
    Err(Error::invalid("expected a file argument: the multipart body has no file and no directory"))
}

async fn target(part: Part) -> Result<Vec<u8>> {
    let target =
        part.whole(MAX_TARGET_BYTES, "a symlink's target", "no operating system accepts a longer path").await?;
    Ok(target.bytes.into())
}

/// Responds once the first line is available, so that an import that fails early fails with a status.
async fn respond(
    task: AbortOnDropHandle<()>,
    mut told: ReportedLines,
    takes_trailers: bool,
) -> Result<Response, RpcError> {
    let first = told.next().await.transpose()?;
    let rest = stream::unfold(Some((told, task)), |state| async move {
        let (mut told, task) = state?;
        match told.next().await {
            Some(line) => Some((line, Some((told, task)))),
            // If the import panicked, the body must not appear complete.
            None => match task.await {
                Ok(()) => None,
                Err(e) => Some((Err(Error::internal("the import failed").with_source(e)), None)),
            },
        }
    });
    Ok(output::objects(stream::iter(first.map(Ok)).chain(rest).boxed(), takes_trailers))
}

/// Counter of the output that waits for the client.
#[derive(Debug)]
struct UnreadLines {
    bytes: AtomicUsize,
    /// Memory of the lines, which may wait for longer than the import takes.
    memory: Mutex<RequestMemory>,
    /// Notified whenever the client reads a line.
    read: Notify,
}

impl UnreadLines {
    /// Returns the number of bytes that wait for the client, if there must not be more.
    fn excess(&self) -> Option<usize> {
        let waiting = self.bytes.load(Ordering::Relaxed);
        let mut memory = self.memory.lock();
        if waiting <= FREE_WAITING_BYTES {
            memory.release();
            return None;
        }
        (waiting > MAX_WAITING_BYTES || !memory.try_grow_to(waiting)).then_some(waiting)
    }
}

/// Receiving end of the output lines.
struct ReportedLines {
    lines: UnboundedReceiver<Result<Bytes>>,
    unread: Arc<UnreadLines>,
}

impl ReportedLines {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        let line = self.lines.recv().await;
        if let Some(Ok(line)) = &line {
            self.unread.bytes.fetch_sub(line.len() + LINE_BYTES, Ordering::Relaxed);
            self.unread.read.notify_one();
        }
        line
    }
}

/// Reports imported files to the client.
struct Reporter {
    lines: UnboundedSender<Result<Bytes>>,
    /// Content that is stored, for the audit log.
    stored: StoredLater,
    /// Whether the content is stored, and not only hashed.
    stores: bool,
    unread: Arc<UnreadLines>,
    /// Time for which the client may stop reading while too much output waits for it.
    idle_limit: Duration,
    render: Render,
    progress: bool,
    silent: bool,
    wrap: bool,
    /// Bytes of the current file that were read.
    read_bytes: u64,
    /// Bytes of the current file that the last progress line reported.
    reported_bytes: u64,
}

impl Reporter {
    /// Reports files that have become durable, and waits for the client if too much output is waiting.
    async fn acknowledged(&mut self, session: &mut AddSession) -> Result<()> {
        session.acknowledged().await?.iter().try_for_each(|added| self.added(added))?;
        let mut since = Instant::now();
        while let Some(waiting) = self.unread.excess() {
            // Memory may become free without a word.
            if timeout(MEMORY_POLL, self.unread.read.notified()).await.is_ok() {
                since = Instant::now();
            }
            if since.elapsed() > self.idle_limit {
                let seconds = self.idle_limit.as_secs();
                let what = format!(
                    "{waiting} bytes of the response wait for the client, which has read nothing for {seconds} s \
                     (gateway.upload_idle_seconds)"
                );
                let remedy = "read while sending, or use silent=true";
                return Err(Error::new(ErrorKind::Timeout, format!("{what}: {remedy}")));
            }
        }
        Ok(())
    }

    /// Reports the progress of a file, after each step of its bytes.
    fn progress(&mut self, name: &LinkName, bytes: u64) {
        if !self.progress {
            return;
        }
        while self.reported_bytes + PROGRESS_STEP_BYTES <= bytes {
            self.reported_bytes += PROGRESS_STEP_BYTES;
            self.send_progress(name, self.reported_bytes);
        }
        self.read_bytes = bytes;
    }

    /// Reports the end of a file, so that progress bars of clients end at 100%.
    fn end_progress(&mut self, name: &LinkName) {
        if self.progress && (self.read_bytes > self.reported_bytes || self.read_bytes == 0) {
            self.send_progress(name, self.read_bytes);
        }
        (self.read_bytes, self.reported_bytes) = (0, 0);
    }

    /// Sends a progress line, unless too much output waits for the client.
    fn send_progress(&self, name: &LinkName, bytes: u64) {
        if self.unread.bytes.load(Ordering::Relaxed) <= MAX_PROGRESS_BYTES {
            self.send(output::line(&ImportProgress { name: name.to_string_lossy().into_owned(), bytes }));
        }
    }

    fn added(&mut self, added: &Added) -> Result<()> {
        if self.stores {
            self.stored.add(added.cid);
        }
        // As in Kubo, directories are reported in any case.
        if !self.silent || added.kind == EntryKind::Directory {
            let hash = self.render.cid(&added.cid)?;
            let mut attributes = file_attributes(added.attributes, added.kind);
            // As in Kubo, only for a symlink that is in no directory.
            if added.kind == EntryKind::Symlink && (self.wrap || added.name.as_bytes().contains(&b'/')) {
                attributes.mode = None;
            }
            let (name, name_bytes) = (added.name.to_string_lossy().into_owned(), output::name_bytes(&added.name));
            let line = AddedLine { name, name_bytes, hash, size: added.size.to_string(), attributes };
            self.send(output::line(&line));
        }
        Ok(())
    }

    fn send(&self, line: Result<Bytes>) {
        let bytes = line.as_ref().map_or(0, |line| line.len() + LINE_BYTES);
        self.unread.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Fails only if the client has disconnected, in which case the import is being aborted.
        drop(self.lines.send(line));
    }
}
