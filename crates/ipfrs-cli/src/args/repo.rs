//! `repo`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum RepoCommand {
    /// Remove blocks that no pin keeps, and free their space
    Gc(RepoGcArgs),
    /// Print the size of the repo
    Stat(RepoStatArgs),
    /// Check the hash of every block
    Verify(RepoVerifyArgs),
    /// Print the version of the repo's layout
    Version {
        /// Print the version alone
        #[arg(short, long)]
        quiet: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RepoGcArgs {
    /// Print only the content IDs of removed blocks
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print only the summary
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) silent: bool,
    /// Run garbage collection even though pins were lost; content without a pin is then lost too
    #[arg(long)]
    pub(crate) force: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json and --quiet]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct RepoStatArgs {
    /// Print sizes with units, such as 1.5 MiB
    #[arg(short = 'H', long)]
    pub(crate) human: bool,
    /// Print only sizes
    #[arg(short, long)]
    pub(crate) size_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RepoVerifyArgs {
    /// Print only corrupt blocks
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Show a progress bar [default: if standard error is a terminal, without --json and --quiet]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}
