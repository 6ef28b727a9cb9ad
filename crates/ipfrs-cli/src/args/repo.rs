//! `repo`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum RepoCommand {
    /// Remove what no pin leads to, and give its space back
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
    /// Print only the content IDs of blocks that were removed
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print only the summary
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) silent: bool,
    /// Collect although pins were lost: what nothing pins now is gone
    #[arg(long)]
    pub(crate) force: bool,
    /// Show how far it is [default: when standard error is a terminal, without --json and --quiet]
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
    /// Print only blocks that are corrupt
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Show how far it is [default: when standard error is a terminal, without --json and --quiet]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}
