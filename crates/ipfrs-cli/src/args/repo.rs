//! `repo`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum RepoCommand {
    /// Copy the repo to a directory, while the daemon runs; later runs copy only what is new
    Backup(RepoBackupArgs),
    /// Make a repo from a backup, at the path of --repo, where there must be none
    Restore(RepoRestoreArgs),
    /// Remove blocks that no pin keeps, and free their space
    Gc(RepoGcArgs),
    /// Print the size of the repo
    Stat(RepoStatArgs),
    /// Check the hash of every block
    Verify(RepoVerifyArgs),
    /// Print the version of the repo's layout
    Version {
        #[arg(long)]
        quiet: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RepoBackupArgs {
    /// Directory of the backup, which is new, empty, or an earlier backup of this repo
    #[arg(value_name = "DIRECTORY")]
    pub(crate) destination: PathBuf,
    /// Leave out private keys, API keys and certificates. The configuration is copied with the secrets that are written
    /// in it
    #[arg(long)]
    pub(crate) without_keys: bool,
    /// Read the whole backup afterwards, and compare the hash of each file
    #[arg(long)]
    pub(crate) verify: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct RepoRestoreArgs {
    /// Directory of the backup
    #[arg(value_name = "DIRECTORY")]
    pub(crate) source: PathBuf,
    /// Only read the backup and compare the hash of each file; restore nothing
    #[arg(long, conflicts_with = "verify")]
    pub(crate) check: bool,
    /// Also compare each block with its content ID, and look for the blocks below each pin, before the repo appears
    #[arg(long)]
    pub(crate) verify: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct RepoGcArgs {
    #[arg(long)]
    pub(crate) quiet: bool,
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) silent: bool,
    #[arg(long)]
    pub(crate) force: bool,
    #[arg(short, long)]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct RepoStatArgs {
    #[arg(long)]
    pub(crate) human: bool,
    #[arg(long)]
    pub(crate) size_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepoVerifyArgs {
    #[arg(long)]
    pub(crate) drop: bool,
    #[arg(long)]
    pub(crate) heal: bool,
    #[arg(long, value_name = "DURATION", requires = "heal")]
    pub(crate) heal_timeout: Option<String>,
    /// Print only corrupt blocks
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json and --quiet]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}
