//! `dag import|export|stat`.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use super::stage::{Saved, Stage};
use crate::answer::{Answer, CidLink};
use crate::api::{Api, Query};
use crate::args::{DagCommand, DagExportArgs, DagImportArgs, DagStatArgs};
use crate::multipart::{Source, Upload, measure};
use crate::output::{Output, printable_name};
use crate::progress::{Progress, Watched};
use crate::runtime::Interrupted;

pub(super) async fn run(api: &Api, command: DagCommand, out: &mut Output) -> Result<()> {
    match command {
        DagCommand::Import(args) => import(api, &args, out).await,
        DagCommand::Export(args) => export(api, &args, out).await,
        DagCommand::Stat(args) => stat(api, &args, out).await,
    }
}

/// One line of `dag/import`: the outcome for a root, or the totals.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
enum Imported {
    #[serde(rename_all = "PascalCase")]
    Root { cid: CidLink, pin_error_msg: String },
    #[serde(rename_all = "PascalCase")]
    Stats { block_count: u64, block_bytes_count: u64 },
}

async fn import(api: &Api, args: &DagImportArgs, out: &mut Output) -> Result<()> {
    if let Some(directory) = args.files.iter().find(|file| file.is_dir()) {
        bail!("{} is a directory: pass the CAR files in it", directory.display());
    }
    let sources = Source::of(&args.files, false)?;
    let is_silent = args.silent || out.is_json();
    let progress = Progress::bytes(Watched { wanted: args.progress, is_silent });
    measure(&sources, false, &progress);
    let query = Query::new().with_some("pin-roots", args.pin_roots).with("stats", args.stats);
    let mut upload = Upload::start(sources, false).counted(&progress);
    let mut answer = api.call("dag/import", query, Some(&mut upload)).await.map_err(|error| upload.explain(error))?;
    let mut failed = None;
    while let Some(line) = answer.next_object::<Imported>().await? {
        if !args.silent {
            progress.aside(|| print_imported(&line, out))?;
        }
        match line {
            Imported::Root { cid, pin_error_msg } if !pin_error_msg.is_empty() => {
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

fn print_imported(line: &Imported, out: &mut Output) -> Result<()> {
    match line {
        line if out.is_json() => out.object(line),
        Imported::Root { cid, pin_error_msg } if pin_error_msg.is_empty() => {
            out.line(&format!("Pinned root\t{}\tsuccess", cid.cid))
        }
        Imported::Root { .. } => Ok(()),
        Imported::Stats { block_count, block_bytes_count } => {
            out.line(&format!("Imported {block_count} blocks ({block_bytes_count} bytes)"))
        }
    }
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
        let mut answer = api.call("dag/export", Query::new().with_args([&args.root]), None).await?;
        match &stage {
            Some(stage) => stage.save(&mut answer, &progress).await,
            None => pass_on(&mut answer, out, &progress).await,
        }
    };
    // An interrupt drops the stage, which removes the incomplete file.
    tokio::select! {
        outcome = fetch => outcome?,
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.context("cannot listen for signals")?;
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

async fn pass_on(answer: &mut Answer, out: &mut Output, progress: &Progress) -> Result<()> {
    while let Some(bytes) = answer.next().await? {
        out.bytes(&bytes)?;
        progress.done(bytes.len() as u64);
    }
    Ok(())
}

/// One line of `dag/stat`. Only the last line has a ratio.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Summary {
    #[serde(default)]
    unique_blocks: u64,
    #[serde(default)]
    total_size: u64,
    #[serde(default)]
    shared_size: u64,
    #[serde(default)]
    ratio: f64,
    #[serde(default)]
    dag_stats: Vec<DagStat>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DagStat {
    cid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    num_blocks: u64,
}

async fn stat(api: &Api, args: &DagStatArgs, out: &mut Output) -> Result<()> {
    let progress = Progress::items(Watched { wanted: args.progress, is_silent: out.is_json() }, "blocks");
    let query = Query::new().with_args(&args.roots).with("progress", progress.is_shown());
    let mut answer = api.call("dag/stat", query, None).await?;
    let mut last = None;
    while let Some(summary) = answer.next_object::<Summary>().await? {
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
    let Summary { unique_blocks, total_size, shared_size, ratio, .. } = summary;
    out.line(&format!(
        "total: {unique_blocks} blocks, {total_size} bytes; {shared_size} bytes shared, ratio {ratio:.3}"
    ))
}
