//! `pin`.

use std::ffi::OsString;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum PinCommand {
    /// Keep content when garbage is collected; every block of it must be here
    Add(PinAddArgs),
    /// Let content go at the next collection
    Rm(PinRmArgs),
    /// List what is pinned, and how
    Ls(PinLsArgs),
    /// Pin new content in place of old, under the same name
    Update(PinUpdateArgs),
    /// Check that every block of every recursive pin is here
    Verify(PinVerifyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct PinAddArgs {
    /// Content IDs, or paths below them: all of them are pinned or none
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    /// With everything below them; --recursive=false pins single blocks [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recursive: Option<bool>,
    /// Name of the pins
    #[arg(short, long)]
    pub(crate) name: Option<String>,
    /// Show how far it is [default: when standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct PinRmArgs {
    /// Content IDs, or paths below them: all of them are unpinned or none
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Also recursive pins; --recursive=false removes pins of single blocks only [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recursive: Option<bool>,
}

/// Types of pins to list.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PinType {
    /// Single blocks
    Direct,
    /// What is below recursive pins
    Indirect,
    /// Whole DAGs
    Recursive,
    /// All of these
    All,
}

impl PinType {
    /// Returns the name of the type in the RPC API.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Indirect => "indirect",
            Self::Recursive => "recursive",
            Self::All => "all",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct PinLsArgs {
    /// Content IDs, or paths below them: it is an error when one is not pinned [default: everything that is pinned]
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Which pins to list
    #[arg(short = 't', long = "type", value_enum, default_value = "all")]
    pub(crate) kind: PinType,
    /// Print only content IDs
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print the names of pins
    #[arg(long)]
    pub(crate) names: bool,
    /// List pins with this in their name
    #[arg(short, long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PinUpdateArgs {
    /// What is pinned recursively
    #[arg(value_name = "FROM-PATH")]
    pub(crate) from: OsString,
    /// What is to be pinned
    #[arg(value_name = "TO-PATH")]
    pub(crate) to: OsString,
    /// Remove the old pin; --unpin=false keeps both [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) unpin: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct PinVerifyArgs {
    /// Also print the pins that are whole
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Print only the content IDs of pins that are not whole
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
