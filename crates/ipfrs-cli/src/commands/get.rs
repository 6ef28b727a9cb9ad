//! `get`.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use futures::stream::{FuturesUnordered, StreamExt};
use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::Link;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;
use tokio::task::spawn_blocking;

use super::attributes::Attributes;
use super::cat::print;
use super::ls::{Entries, file_name, link_target};
use super::stage::{Saved, Stage, inside};
use crate::api::{Api, Kind};
use crate::args::GetArgs;
use crate::output::{Output, printable_name};
use crate::progress::{Progress, Watched};
use crate::runtime::{Interrupted, interrupted};

/// Maximum number of files that are fetched concurrently.
const CONCURRENT_FILES: usize = 8;
/// Maximum depth of nested directories.
const MAX_DEPTH: usize = MAX_PATH_SEGMENTS;

pub(super) async fn run(api: &Api, args: &GetArgs, out: &mut Output) -> Result<()> {
    // An IPNS name may resolve differently from one request to the next.
    let path = api.settled(&args.path).await?;
    let kind = api.kind(&path).await?;
    let one_file = OneFile::of(args, &kind);
    if args.output.as_deref() == Some(Path::new("-")) {
        let request = printed(args, &path, &kind, one_file.as_ref())?;
        return print(api, request, args.progress, out).await;
    }
    let target = target(args, one_file.as_ref())?;
    let stage = Stage::new(&target, kind == Kind::File || one_file.is_some())?;
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent: out.is_json() });
    let fetch = async {
        if let Some(one_file) = &one_file {
            let mut response = api.call(one_file.request(args)).await?;
            stage.save(&mut response, &progress).await?;
            return anyhow::Ok(Attributes::default());
        }
        let attributes = Attributes::at(api, &path).await?;
        match kind {
            Kind::File => fetch_file(api, &path, &stage.root(), &progress, false).await,
            Kind::Symlink => link(OsStr::from_bytes(&api.link_target(&path).await?), &stage.root()).await,
            Kind::Directory => Tree { api, progress: &progress }.fetch(&path, stage.root()).await,
        }?;
        Ok(attributes)
    };
    // An interrupt drops the stage, which removes everything incomplete.
    let attributes = tokio::select! {
        outcome = fetch => outcome?,
        interrupt = interrupted() => {
            interrupt?;
            return Err(Interrupted("interrupted: nothing was saved").into());
        }
    };
    // A directory without the permission to write cannot be moved, so its attributes come last.
    attributes.set(&stage.commit()?)?;
    progress.over();
    if out.is_json() {
        return out.object(&Saved::at(&target));
    }
    out.line(&format!("saved {}", printable_name(target.as_os_str())))
}

/// Returns the request for what standard output can receive: a file or an archive.
fn printed(args: &GetArgs, path: &OsStr, kind: &Kind, one_file: Option<&OneFile>) -> Result<Request> {
    match (one_file, kind) {
        (Some(one_file), _) => Ok(one_file.request(args)),
        (None, Kind::File) => Ok(Request::query("cat").with_arg(path)),
        (None, _) => bail!("only a file or an archive can be written to standard output: add -a"),
    }
}

/// Returns the last component of the path, within the directory given by -o, or else the current directory.
fn target(args: &GetArgs, one_file: Option<&OneFile>) -> Result<PathBuf> {
    let mut parts = args.path.as_bytes().rsplit(|byte| *byte == b'/');
    let last = OsStr::from_bytes(parts.find(|part| !part.is_empty()).unwrap_or_default());
    let target = match &args.output {
        None => inside(Path::new(""), last),
        Some(output) if output.is_dir() => inside(output, last),
        Some(output) => Ok(output.clone()),
    };
    let target = target?;
    Ok(match one_file {
        Some(one_file) => one_file.named(target),
        None => target,
    })
}

/// Output that is a single file for any content: a TAR archive, compressed or not, or a compressed file.
struct OneFile {
    is_archive: bool,
    is_compressed: bool,
}

impl OneFile {
    fn of(args: &GetArgs, kind: &Kind) -> Option<Self> {
        let is_archive = args.archive || (args.compress && *kind != Kind::File);
        (is_archive || args.compress).then_some(Self { is_archive, is_compressed: args.compress })
    }

    fn request(&self, args: &GetArgs) -> Request {
        let request = Request::query("get").with_arg(&args.path).with("archive", self.is_archive);
        request.with("compress", self.is_compressed).with_some("compression-level", args.compression_level)
    }

    /// Returns `target` with the extensions of its format appended, unless it already has them.
    fn named(&self, target: PathBuf) -> PathBuf {
        let mut name = target.into_os_string();
        let ends_with = |name: &OsStr, ending: &str| name.as_bytes().ends_with(ending.as_bytes());
        if self.is_archive && !ends_with(&name, ".tar") && !ends_with(&name, ".tar.gz") {
            name.push(".tar");
        }
        if self.is_compressed && !ends_with(&name, ".gz") {
            name.push(".gz");
        }
        name.into()
    }
}

/// Fetches a file into a path that does not exist yet. If `is_expected` is true, the progress bar already includes
/// its size.
async fn fetch_file(api: &Api, path: &OsStr, target: &Path, progress: &Progress, is_expected: bool) -> Result<()> {
    let failed = |e| cannot_make(target, &e);
    let mut response = api.call(Request::query("cat").with_arg(path)).await?;
    if !is_expected {
        response.content_length().into_iter().for_each(|bytes| progress.expect(bytes));
    }
    // One task creates the file and writes its first piece, which is all of a small file. Each switch to another thread
    // costs more than the write.
    let first = response.next().await?.unwrap_or_default();
    let (first_bytes, new) = (first.len() as u64, target.to_owned());
    let begun = spawn_blocking(move || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(new)?;
        file.write_all(&first)?;
        io::Result::Ok(file)
    });
    let mut file = File::from_std(begun.await?.map_err(failed)?);
    progress.done(first_bytes);
    while let Some(bytes) = response.next().await? {
        file.write_all(&bytes).await.map_err(failed)?;
        progress.done(bytes.len() as u64);
    }
    file.flush().await.map_err(failed)
}

async fn link(link_target: &OsStr, path: &Path) -> Result<()> {
    fs::symlink(link_target, path).await.map_err(|e| cannot_make(path, &e))
}

/// A directory with all its contents.
struct Tree<'a> {
    api: &'a Api,
    progress: &'a Progress,
}

/// A directory that has not been listed yet.
struct Pending {
    cid: OsString,
    path: PathBuf,
    depth: usize,
}

impl Tree<'_> {
    async fn fetch(&self, root: &OsStr, path: PathBuf) -> Result<()> {
        let mut pending = vec![Pending { cid: root.to_owned(), path, depth: 0 }];
        let mut files = FuturesUnordered::new();
        // Set at the end: a directory may not be writable, and its time changes with each new entry.
        let mut directories = Vec::new();
        while let Some(directory) = pending.pop() {
            if directory.depth > MAX_DEPTH {
                bail!("refusing to save directories that are nested more than {MAX_DEPTH} levels deep");
            }
            fs::create_dir(&directory.path).await.map_err(|e| cannot_make(&directory.path, &e))?;
            let mut entries = Entries::of(self.api, &directory.cid).await?;
            while let Some(entry) = entries.next().await? {
                let path = inside(&directory.path, &file_name(&entry)?)?;
                match entry.r#type {
                    Link::DIRECTORY => {
                        directories.push((Attributes::of(&entry), path.clone()));
                        pending.push(Pending { cid: entry.hash.into(), path, depth: directory.depth + 1 });
                    }
                    Link::SYMLINK => {
                        link(&link_target(&entry)?, &path).await?;
                        Attributes::of(&entry).set(&path)?;
                    }
                    _ => {
                        self.progress.expect(entry.size);
                        files.push(self.file(entry, path));
                    }
                }
                if files.len() >= CONCURRENT_FILES {
                    files.next().await.transpose()?;
                }
            }
        }
        while let Some(fetched) = files.next().await {
            fetched?;
        }
        // The deepest come last.
        directories.iter().rev().try_for_each(|(attributes, path)| attributes.set(path))
    }

    async fn file(&self, entry: Link, path: PathBuf) -> Result<()> {
        fetch_file(self.api, entry.hash.as_ref(), &path, self.progress, true).await?;
        Attributes::of(&entry).set(&path)
    }
}

/// Returns the error for an entry that cannot be created. `get` always creates new entries and never opens existing
/// ones, so it never follows a symlink. The second entry of the same name therefore fails.
fn cannot_make(path: &Path, error: &io::Error) -> anyhow::Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let name = printable_name(path.file_name().unwrap_or_default());
        return anyhow!("refusing to save a directory that has two entries called \"{name}\"");
    }
    anyhow!("cannot write {}: {error}", path.display())
}
