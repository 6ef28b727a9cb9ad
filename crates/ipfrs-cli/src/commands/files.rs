//! `files chcid|chmod|cp|flush|ls|mkdir|mv|read|rm|stat|touch|write`.

use anyhow::Result;
use ipfrs_rpc::client::Request;
use ipfrs_rpc::types::{FileEntry, FileList, FileStat, FlushedFile};
use serde_json::json;

use super::ls::exact;
use crate::api::Api;
use crate::args::{CidFormatArgs, FilesCommand, FilesWriteArgs, FlushArgs};
use crate::output::{Output, printable, printable_name};
use crate::sources::Sources;

/// Type of a directory in a listing.
const DIRECTORY: u8 = 1;

pub(super) async fn run(api: &Api, command: FilesCommand, out: &mut Output) -> Result<()> {
    let request = match command {
        FilesCommand::Ls { path, long } => {
            let request = Request::query("files/ls").with_arg(path).with("long", long || out.is_json());
            let list: FileList = api.call(request).await?.json().await?;
            return print_list(list.entries.unwrap_or_default(), long, out);
        }
        FilesCommand::Stat { path, with_local } => {
            let request = Request::query("files/stat").with_arg(path).with("with-local", with_local);
            return print_stat(&api.call(request).await?.json().await?, out);
        }
        FilesCommand::Read { path, offset, count } => {
            let request = Request::query("files/read").with_arg(path);
            let mut response = api.call(request.with_some("offset", offset).with_some("count", count)).await?;
            while let Some(bytes) = response.next().await? {
                out.bytes(&bytes)?;
            }
            return Ok(());
        }
        FilesCommand::Flush { path } => {
            let flushed: FlushedFile = api.call(Request::command("files/flush").with_arg(path)).await?.json().await?;
            return if out.is_json() { out.object(&flushed) } else { out.line(&flushed.cid) };
        }
        FilesCommand::Rm { paths, recursive, force } => {
            let request = Request::command("files/rm").with_args(&paths);
            let mut response = api.call(request.with("recursive", recursive).with("force", force)).await?;
            while let Some(failure) = response.line::<String>().await? {
                if out.is_json() {
                    out.object(&json!({ "Error": failure }))?;
                } else {
                    out.line(&printable(&failure))?;
                }
            }
            return Ok(());
        }
        FilesCommand::Write(args) => write(&args)?,
        FilesCommand::Mkdir { path, parents, format, flush } => {
            let request = Request::command("files/mkdir").with_arg(path).with("parents", parents);
            flushed(formatted(request, &format), &flush)
        }
        FilesCommand::Cp { source, dest, parents, force, flush } => {
            let request = Request::command("files/cp").with_args([source, dest]);
            flushed(request.with("parents", parents).with("force", force), &flush)
        }
        FilesCommand::Mv { source, dest, flush } => {
            flushed(Request::command("files/mv").with_args([source, dest]), &flush)
        }
        FilesCommand::Chcid { path, format, flush } => {
            flushed(formatted(Request::command("files/chcid").with_arg(path), &format), &flush)
        }
        FilesCommand::Chmod { mode, path } => Request::command("files/chmod").with_args([mode.into(), path]),
        FilesCommand::Touch { path, mtime, mtime_nsecs } => {
            let request = Request::command("files/touch").with_arg(path);
            request.with_some("mtime", mtime).with_some("mtime-nsecs", mtime_nsecs)
        }
    };
    // These commands print nothing.
    let mut response = api.call(request).await?;
    while response.next().await?.is_some() {}
    Ok(())
}

fn write(args: &FilesWriteArgs) -> Result<Request> {
    let request = Request::command("files/write")
        .with_arg(&args.path)
        .with_some("offset", args.offset)
        .with_some("count", args.count)
        .with_some("raw-leaves", args.raw_leaves)
        .with("create", args.create)
        .with("parents", args.parents)
        .with("truncate", args.truncate);
    let request = flushed(formatted(request, &args.format), &args.flush);
    Sources::files(args.data.as_slice())?.upload(request, |_| {})
}

fn formatted(request: Request, format: &CidFormatArgs) -> Request {
    request.with_some("cid-version", format.cid_version).with_some("hash", format.hash.as_ref())
}

fn flushed(request: Request, flush: &FlushArgs) -> Request {
    request.with_some("flush", flush.flush)
}

/// Prints entries sorted by name, with one line of JSON for each.
fn print_list(mut entries: Vec<FileEntry>, long: bool, out: &mut Output) -> Result<()> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        if out.is_json() {
            out.object(entry)?;
            continue;
        }
        let name = printable_name(&exact(&entry.name, entry.name_bytes.as_deref())?);
        match (long, entry.r#type) {
            (false, _) => out.line(&name)?,
            (true, DIRECTORY) => out.line(&format!("{name}/\t{}\t{}", entry.hash, entry.size))?,
            (true, _) => out.line(&format!("{name}\t{}\t{}", entry.hash, entry.size))?,
        }
    }
    Ok(())
}

fn print_stat(stat: &FileStat, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.object(stat);
    }
    let FileStat { hash, size, cumulative_size, blocks, r#type: kind, attributes, .. } = stat;
    out.line(&format!("{hash}\nSize: {size}\nCumulativeSize: {cumulative_size}\nChildBlocks: {blocks}\nType: {kind}"))?;
    if let Some(mode) = &attributes.mode {
        out.line(&format!("Mode: {mode}"))?;
    }
    if let Some(mtime) = attributes.mtime {
        out.line(&format!("Mtime: {mtime}"))?;
    }
    if stat.with_locality {
        out.line(&format!("Local: {} of {cumulative_size} bytes", stat.size_local))?;
    }
    Ok(())
}
