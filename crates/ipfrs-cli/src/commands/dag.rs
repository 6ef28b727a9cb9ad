//! `dag import|export|stat|get|put|resolve`.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use ipfrs_rpc::client::{Request, Response};
use ipfrs_rpc::types::{DagStats, ImportedCar, ResolvedNode, StoredNode};

use super::stage::{Saved, Stage};
use crate::api::Api;
use crate::args::{DagCommand, DagExportArgs, DagImportArgs, DagPutArgs, DagStatArgs};
use crate::output::{Output, printable, printable_name};
use crate::progress::{Progress, Watched};
use crate::runtime::{Interrupted, interrupted};
use crate::sources::Sources;

pub(super) async fn run(api: &Api, command: DagCommand, out: &mut Output) -> Result<()> {
    match command {
        DagCommand::Import(args) => import(api, &args, out).await,
        DagCommand::Export(args) => export(api, &args, out).await,
        DagCommand::Stat(args) => stat(api, &args, out).await,
        DagCommand::Put(args) => put(api, &args, out).await,
        DagCommand::Get { path, output_codec } => {
            let request = Request::query("dag/get").with_arg(path).with_some("output-codec", output_codec);
            let mut response = api.call(request).await?;
            pass_on(&mut response, out, &Progress::bytes(Watched { wanted: Some(false), is_silent: true })).await
        }
        DagCommand::Resolve { path } => {
            let node: ResolvedNode = api.call(Request::query("dag/resolve").with_arg(path)).await?.json().await?;
            if out.is_json() {
                return out.object(&node);
            }
            let rest = node.rem_path.trim_start_matches('/');
            let rest = if rest.is_empty() { String::new() } else { format!("/{rest}") };
            out.line(&printable(&format!("{}{rest}", node.cid.cid)))
        }
    }
}

async fn import(api: &Api, args: &DagImportArgs, out: &mut Output) -> Result<()> {
    if let Some(directory) = args.files.iter().find(|file| file.is_dir()) {
        bail!("{} is a directory: pass the CAR files in it", directory.display());
    }
    let sources = Sources::files(&args.files)?;
    let is_silent = args.silent || out.is_json();
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent });
    sources.measure(&progress);
    let request = Request::command("dag/import")
        .with_some("pin-roots", args.pin_roots)
        .with("local-only", args.local_only)
        .with("allow-big-block", args.allow_big_block)
        .with("stats", args.stats);
    let sent = progress.clone();
    let mut response = api.call(sources.upload(request, move |bytes| sent.done(bytes))?).await?;
    let mut failed = None;
    while let Some(line) = response.line::<ImportedCar>().await? {
        if !args.silent {
            progress.aside(|| print_imported(&line, out))?;
        }
        match line {
            ImportedCar::Root { cid, pin_error_msg } if !pin_error_msg.is_empty() => {
                failed.get_or_insert(format!("the root {} was not pinned: {pin_error_msg}", cid.cid));
            }
            _ => {}
        }
    }
    match failed {
        Some(message) => Err(anyhow!("{message} (its blocks were imported; --pin-roots=false pins none)")),
        None => Ok(()),
    }
}

fn print_imported(line: &ImportedCar, out: &mut Output) -> Result<()> {
    match line {
        line if out.is_json() => out.object(line),
        ImportedCar::Root { cid, pin_error_msg } if pin_error_msg.is_empty() => {
            out.line(&format!("Pinned root\t{}\tsuccess", cid.cid))
        }
        ImportedCar::Root { .. } => Ok(()),
        ImportedCar::Stats { block_count, block_bytes_count } => {
            out.line(&format!("Imported {block_count} blocks ({block_bytes_count} bytes)"))
        }
    }
}

async fn put(api: &Api, args: &DagPutArgs, out: &mut Output) -> Result<()> {
    let request = Request::command("dag/put")
        .with_some("store-codec", args.store_codec.as_ref())
        .with_some("input-codec", args.input_codec.as_ref())
        .with_some("hash", args.hash.as_ref())
        .with("allow-big-block", args.allow_big_block)
        .with("pin", args.pin);
    let mut response = api.call(Sources::files(&args.files)?.upload(request, |_| {})?).await?;
    while let Some(node) = response.line::<StoredNode>().await? {
        if out.is_json() { out.object(&node)? } else { out.line(&node.cid.cid)? }
    }
    Ok(())
}

async fn export(api: &Api, args: &DagExportArgs, out: &mut Output) -> Result<()> {
    let target = args.output.as_deref().filter(|output| *output != Path::new("-"));
    if target.is_none() && io::stdout().is_terminal() {
        bail!("refusing to write a CAR to a terminal: use -o FILE, or redirect standard output");
    }
    // Create the stage first, so that nothing is fetched if the file cannot be written.
    let stage = target.map(|target| Stage::new(target, true)).transpose()?;
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent: out.is_json() });
    let fetch = async {
        let request = Request::query("dag/export").with_arg(&args.root).with("local-only", args.local_only);
        let mut response = api.call(request).await?;
        match &stage {
            Some(stage) => stage.save(&mut response, &progress).await,
            None => pass_on(&mut response, out, &progress).await,
        }
    };
    // An interrupt drops the stage, which removes the incomplete file.
    tokio::select! {
        outcome = fetch => outcome?,
        interrupt = interrupted() => {
            interrupt?;
            return Err(Interrupted("interrupted: the CAR is incomplete").into());
        }
    }
    let (Some(stage), Some(target)) = (stage, target) else { return Ok(()) };
    stage.commit()?;
    progress.over();
    if out.is_json() {
        return out.object(&Saved::at(target));
    }
    out.line(&format!("saved {}", printable_name(target.as_os_str())))
}

async fn pass_on(response: &mut Response, out: &mut Output, progress: &Progress) -> Result<()> {
    while let Some(bytes) = response.next().await? {
        out.bytes(&bytes)?;
        progress.done(bytes.len() as u64);
    }
    Ok(())
}

async fn stat(api: &Api, args: &DagStatArgs, out: &mut Output) -> Result<()> {
    let progress = Progress::items(Watched { wanted: args.progress, is_silent: out.is_json() }, "blocks");
    let request = Request::query("dag/stat").with_args(&args.roots).with("progress", progress.is_shown());
    let mut response = api.call(request).await?;
    let mut last = None;
    while let Some(summary) = response.line::<DagStats>().await? {
        progress.reached(summary.dag_stats.iter().map(|dag| dag.num_blocks).sum());
        last = Some(summary);
    }
    progress.over();
    let Some(summary) = last else { bail!("the server's response is empty") };
    if out.is_json() {
        return out.object(&summary);
    }
    for dag in &summary.dag_stats {
        out.line(&format!("{} {} blocks, {} bytes", dag.cid, dag.num_blocks, dag.size))?;
    }
    let DagStats { unique_blocks, total_size, shared_size, ratio, .. } = summary;
    let (unique_blocks, shared_size) = (unique_blocks.unwrap_or(0), shared_size.unwrap_or(0));
    let ratio = ratio.unwrap_or(0.0);
    out.line(&format!(
        "total: {unique_blocks} blocks, {total_size} bytes; {shared_size} bytes shared, ratio {ratio:.3}"
    ))
}
