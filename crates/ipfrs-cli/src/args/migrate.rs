//! `migrate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Notes, printed after the options.
const NOTES: &str = "\
The repo of Kubo is not changed. Everything is moved into the repo of ipfrs: through its daemon if one runs, and otherwise \
directly. An interrupted migration continues when the command is run again: what is stored already is skipped.

With a path, keys are moved too, and blocks are read from flatfs and pins from LevelDB; Kubo must not run. With a URL, keys stay, \
because the RPC does not export them.

Run garbage collection only after the migration: blocks are protected once their pins are moved.";

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateCommand {
    /// Move blocks, pins, mutable files and keys from Kubo, and show what its configuration corresponds to
    Kubo(MigrateKuboArgs),
    /// Write pins and mutable files as CAR files and a list of pins, which Kubo can import
    Export(MigrateExportArgs),
}

#[derive(Debug, Args)]
#[command(after_help = NOTES)]
pub(crate) struct MigrateKuboArgs {
    /// Directory of Kubo's repo, or URL of its RPC such as http://127.0.0.1:5001 [default: IPFS_PATH, or ~/.ipfs]
    #[arg(long, value_name = "URL|PATH")]
    pub(crate) from: Option<String>,
    /// Write the settings that correspond to those of Kubo into the configuration file, except credentials, which a
    /// gateway applies when it starts
    #[arg(long)]
    pub(crate) write_config: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct MigrateExportArgs {
    /// Directory to create
    pub(crate) directory: PathBuf,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}
