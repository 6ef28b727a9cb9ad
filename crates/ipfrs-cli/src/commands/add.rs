//! `add`.

use anyhow::{Result, bail};
use ipfrs_rpc::client::{IgnoreRules, Request, WalkOptions};
use ipfrs_rpc::types::{Added, ImportedLine};

use super::ls::exact;
use crate::api::Api;
use crate::args::AddArgs;
use crate::output::{Output, printable_name};
use crate::progress::{Progress, Watched};
use crate::sources::Sources;

pub(super) async fn run(api: &Api, args: &AddArgs, out: &mut Output) -> Result<()> {
    let mut sources = Sources::new(&args.paths, args.recursive, &walk_options(args)?, args.stdin_name.as_deref())?;
    if args.nocopy {
        sources.send_paths();
    }
    let is_silent = out.is_json() || args.quiet || args.quieter;
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent });
    sources.measure(&progress);
    let request = Request::command("add")
        .with("stream-channels", true)
        .with("progress", progress.is_shown())
        .with("only-hash", args.only_hash)
        .with("wrap-with-directory", args.wrap_with_directory)
        .with_some("empty-dirs", args.empty_dirs)
        .with_some("pin", args.pin)
        .with_some("pin-name", args.pin_name.as_ref())
        .with_some("cid-version", args.cid_version)
        .with_some("raw-leaves", args.raw_leaves)
        .with_some("chunker", args.chunker.as_ref())
        .with_some("trickle", args.trickle)
        .with_some("hash", args.hash.as_ref())
        .with_some("max-file-links", args.max_file_links)
        .with_some("max-directory-links", args.max_directory_links)
        .with_some("max-hamt-fanout", args.max_hamt_fanout)
        .with("inline", args.inline)
        .with_some("inline-limit", args.inline_limit)
        .with("preserve-mode", args.preserve_mode)
        .with("preserve-mtime", args.preserve_mtime)
        .with_some("mode", args.mode.as_ref())
        .with_some("mtime", args.mtime)
        .with_some("mtime-nsecs", args.mtime_nsecs)
        .with("nocopy", args.nocopy)
        .with("fscache", args.fscache)
        .with_some("to-files", args.to_files.as_ref())
        .with_some("profile", args.profile.as_ref());
    // The daemon reports the progress of the import.
    let mut response = api.call(sources.upload(request, |_| {})?).await?;
    let mut tally = Tally::default();
    let mut last = None;
    while let Some(line) = response.line::<ImportedLine>().await? {
        match line {
            ImportedLine::Progress(file) => progress.done(tally.advance(file.name, file.bytes)),
            ImportedLine::Added(added) => {
                if !args.quieter && !args.silent {
                    progress.aside(|| print(&added, args, out))?;
                }
                last = Some(added);
            }
        }
    }
    match last {
        Some(root) if args.quieter && !args.silent => print(&root, args, out),
        Some(_) => Ok(()),
        None => bail!("nothing was added"),
    }
}

/// As in Kubo, a symlink is added as a symlink by default.
fn walk_options(args: &AddArgs) -> Result<WalkOptions> {
    let has_rules = !args.ignore.is_empty() || args.ignore_rules_path.is_some();
    let rules = has_rules.then(|| IgnoreRules::new(args.ignore_rules_path.as_deref(), &args.ignore)).transpose()?;
    Ok(WalkOptions {
        name: None,
        hidden: args.hidden,
        follow_root: args.dereference_args,
        follow_all: args.dereference_symlinks,
        ignore: rules,
    })
}

fn print(added: &Added, args: &AddArgs, out: &mut Output) -> Result<()> {
    if out.is_json() {
        out.object(added)
    } else if args.quiet || args.quieter {
        out.line(&added.hash)
    } else {
        // The wrapping directory has no name.
        let name = exact(&added.name, added.name_bytes.as_deref())?;
        out.line(format!("added {} {}", added.hash, printable_name(&name)).trim_end())
    }
}

/// Converts progress lines into increments for the progress bar. A progress line gives the bytes of the named file so
/// far.
#[derive(Debug, Default)]
struct Tally {
    name: String,
    bytes: u64,
}

impl Tally {
    fn advance(&mut self, name: String, bytes: u64) -> u64 {
        let before = if self.name == name { self.bytes } else { 0 };
        *self = Self { name, bytes };
        bytes.saturating_sub(before)
    }
}
