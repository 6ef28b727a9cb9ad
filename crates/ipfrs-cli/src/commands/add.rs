//! `add`.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::ls::exact;
use crate::api::{Api, Query};
use crate::args::AddArgs;
use crate::multipart::{Source, Upload, measure};
use crate::output::{Output, printable_name};
use crate::progress::{Progress, Watched};

/// One line of the response: an added file or directory, or the progress of a file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    name: String,
    name_bytes: Option<String>,
    hash: Option<String>,
    bytes: Option<u64>,
    size: Option<String>,
    #[serde(flatten)]
    attributes: Attributes,
}

/// Mode in octal, and modification time, if they are stored with the content.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Attributes {
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_nsecs: Option<u32>,
}

/// An added file or directory, as printed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Added {
    name: String,
    /// The name in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name_bytes: Option<String>,
    hash: String,
    size: String,
    #[serde(flatten)]
    attributes: Attributes,
}

pub(super) async fn run(api: &Api, args: &AddArgs, out: &mut Output) -> Result<()> {
    let sources = Source::of(&args.paths, args.recursive)?;
    let is_silent = out.is_json() || args.quiet || args.quieter;
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent });
    measure(&sources, args.hidden, &progress);
    let query = Query::new()
        .with("stream-channels", true)
        .with("progress", progress.is_shown())
        .with("only-hash", args.only_hash)
        .with("wrap-with-directory", args.wrap_with_directory)
        .with_some("pin", args.pin)
        .with_some("pin-name", args.pin_name.as_ref())
        .with_some("cid-version", args.cid_version)
        .with_some("raw-leaves", args.raw_leaves)
        .with_some("chunker", args.chunker.as_ref())
        .with("trickle", args.trickle)
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
        .with_some("profile", args.profile.as_ref());
    let mut upload = Upload::start(sources, args.hidden);
    let outcome = report(api, query, args, &mut upload, &progress, out).await;
    outcome.map_err(|error| upload.explain(error))
}

async fn report(
    api: &Api,
    query: Query,
    args: &AddArgs,
    upload: &mut Upload,
    progress: &Progress,
    out: &mut Output,
) -> Result<()> {
    let mut response = api.call("add", query, Some(upload)).await?;
    let mut tally = Tally::default();
    let mut last = None;
    while let Some(line) = response.next_object::<Line>().await? {
        let Some(hash) = line.hash else {
            progress.done(tally.advance(line.name, line.bytes.unwrap_or(0)));
            continue;
        };
        let size = line.size.unwrap_or_default();
        let added = Added { name: line.name, name_bytes: line.name_bytes, hash, size, attributes: line.attributes };
        if !args.quieter {
            progress.aside(|| print(&added, args, out))?;
        }
        last = Some(added);
    }
    match last {
        Some(root) if args.quieter => print(&root, args, out),
        Some(_) => Ok(()),
        None => bail!("nothing was added"),
    }
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
