//! `migrate kubo|export`.

mod blocks;
mod car;
mod configuration;
mod export;
mod files;
mod keys;
mod pins;
mod source;

use anyhow::Result;
use serde::Serialize;

use self::blocks::MovedBlocks;
use self::source::Source;
use crate::api::Api;
use crate::args::{MigrateCommand, MigrateKuboArgs};
use crate::output::{Output, printable};

/// Result of a migration.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(flatten)]
    blocks: MovedBlocks,
    pins: u64,
    files: u64,
    keys: u64,
    /// Lines for the configuration of ipfrs.
    configuration: Vec<String>,
    /// Settings of Kubo that are not at their default and have no equivalent.
    without_equivalent: Vec<String>,
    /// Items that could not be moved, with the reasons.
    failures: Vec<String>,
}

/// Maximum number of failures that are reported one by one.
const MAX_FAILURES: usize = 1_000;

impl Report {
    fn fail(&mut self, failure: impl Into<String>) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure.into());
        }
    }
}

pub(super) async fn run(api: &Api, command: MigrateCommand, out: &mut Output) -> Result<()> {
    match command {
        MigrateCommand::Kubo(args) => kubo(api, &args, out).await,
        MigrateCommand::Export(args) => export::run(api, &args, out).await,
    }
}

async fn kubo(api: &Api, args: &MigrateKuboArgs, out: &mut Output) -> Result<()> {
    let source = Source::open(args.from.as_deref())?;
    let mut report = Report::default();
    blocks::copy(&source, api, args.progress, out.is_json(), &mut report).await?;
    pins::copy(&source, api, args.progress, out.is_json(), &mut report).await?;
    files::copy(&source, api, &mut report).await?;
    keys::copy(&source, api, &mut report).await?;
    configuration::compare(&source, &mut report).await?;
    print(&report, out)?;
    match report.failures.len() {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} items were not moved; run the command again to try them once more"),
    }
}

fn print(report: &Report, out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.object(report);
    }
    let MovedBlocks { blocks, block_bytes, known_blocks } = report.blocks;
    out.line(&format!("blocks: {blocks} moved ({block_bytes} bytes), {known_blocks} already stored"))?;
    out.line(&format!(
        "pins: {}, mutable files and directories: {}, keys: {}",
        report.pins, report.files, report.keys
    ))?;
    if !report.configuration.is_empty() {
        out.line("\nConfiguration of Kubo as that of ipfrs (config.toml in the repo):")?;
        report.configuration.iter().try_for_each(|line| out.line(&format!("  {}", printable(line))))?;
    }
    if !report.without_equivalent.is_empty() {
        out.line("\nSettings of Kubo without an equivalent:")?;
        report.without_equivalent.iter().try_for_each(|line| out.line(&format!("  {}", printable(line))))?;
    }
    if !report.failures.is_empty() {
        out.line("\nNot moved:")?;
        report.failures.iter().try_for_each(|line| out.line(&format!("  {}", printable(line))))?;
    }
    Ok(())
}
