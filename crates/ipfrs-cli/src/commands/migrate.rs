//! `migrate kubo|export`.

mod blocks;
mod car;
mod configuration;
mod export;
mod files;
mod keys;
mod pins;
mod source;

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Serialize, Serializer};

use self::blocks::MovedBlocks;
use self::source::Source;
use crate::api::Api;
use crate::args::{Globals, MigrateCommand, MigrateKuboArgs};
use crate::output::{Output, printable};
use crate::session;

/// Result of a migration.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(flatten)]
    blocks: MovedBlocks,
    pins: u64,
    files: u64,
    keys: u64,
    /// Lines for the configuration of ipfrs.
    #[serde(serialize_with = "lines")]
    configuration: String,
    /// Configuration file that they were written to.
    #[serde(skip_serializing_if = "Option::is_none")]
    configuration_file: Option<PathBuf>,
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

fn lines<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(text.lines())
}

/// Checks that there is something to move, before a repo is created for it.
pub(super) fn check_source(command: &MigrateCommand) -> Result<()> {
    match command {
        MigrateCommand::Kubo(args) => Source::check(args.from.as_deref()),
        MigrateCommand::Export(_) => Ok(()),
    }
}

pub(super) async fn run(api: &Api, globals: &Globals, command: MigrateCommand, out: &mut Output) -> Result<()> {
    match command {
        MigrateCommand::Kubo(args) => kubo(api, globals, &args, out).await,
        MigrateCommand::Export(args) => export::run(api, &args, out).await,
    }
}

async fn kubo(api: &Api, globals: &Globals, args: &MigrateKuboArgs, out: &mut Output) -> Result<()> {
    let source = Source::open(args.from.as_deref())?;
    if args.write_config && globals.api.is_some() {
        anyhow::bail!("--write-config changes the configuration file of a repo on this machine: leave out --api");
    }
    let mut report = Report::default();
    blocks::copy(&source, api, args.progress, out.is_json(), &mut report).await?;
    pins::copy(&source, api, args.progress, out.is_json(), &mut report).await?;
    files::copy(&source, api, &mut report).await?;
    keys::copy(&source, api, &mut report).await?;
    let changes = configuration::compare(&source, &mut report).await?;
    if args.write_config {
        let file = session::settings(globals, Vec::new())?.file().context("there is no configuration file")?;
        for change in changes {
            let key = change.key.join(".");
            if let Err(error) = file.change(&[change], false) {
                report.fail(format!("{key}: {error}"));
            }
        }
        // It may have the key of a private network now.
        make_private(file.path())?;
        report.configuration_file = Some(file.path().to_owned());
    }
    print(&report, out)?;
    match report.failures.len() {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} items were not moved; run the command again to try them once more"),
    }
}

/// Keeps other users from reading a file. A device such as `/dev/null` stays as it is.
fn make_private(path: &Path) -> Result<()> {
    let failed = || format!("cannot change the mode of {}", path.display());
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let mode = metadata.permissions().mode() & 0o700;
            fs::set_permissions(path, Permissions::from_mode(mode)).with_context(failed)
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(failed),
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
        out.line(&match &report.configuration_file {
            None => "\nConfiguration of Kubo as that of ipfrs (config.toml in the repo):\n".to_owned(),
            Some(file) => format!("\nConfiguration of Kubo, as written to {} without [auth]:\n", file.display()),
        })?;
        report.configuration.lines().try_for_each(|line| out.line(&printable(line)))?;
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
