//! `pin`.

use std::ffi::OsString;

use super::RemotePinCommand;
use clap::{ArgAction, Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum PinCommand {
    /// Pin content, so that garbage collection keeps it; all its blocks must be stored here
    Add(PinAddArgs),
    /// Unpin content, so that the next garbage collection may remove it
    Rm(PinRmArgs),
    /// List pins and their types
    Ls(PinLsArgs),
    /// Pin new content instead of old, under the same name
    Update(PinUpdateArgs),
    /// Check that every block of every recursive pin is stored here
    Verify(PinVerifyArgs),
    /// Pins at pinning services
    #[command(subcommand)]
    Remote(RemotePinCommand),
}

#[derive(Debug, Args)]
pub(crate) struct PinAddArgs {
    /// Content IDs, or paths below them; either all of them are pinned or none
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    #[arg(long, action = ArgAction::Set)]
    pub(crate) recursive: bool,
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[arg(short, long)]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct PinRmArgs {
    /// Content IDs, or paths below them; either all of them are unpinned or none
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    #[arg(long)]
    pub(crate) recursive: Option<bool>,
}

/// Types of pins to list.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PinType {
    /// Single blocks
    Direct,
    /// Blocks below recursive pins
    Indirect,
    /// Whole DAGs
    Recursive,
    /// All types
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
    /// Content IDs, or paths below them; one that is not pinned is an error [default: all pins]
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<OsString>,
    #[arg(long = "type", value_enum)]
    pub(crate) kind: PinType,
    #[arg(long)]
    pub(crate) quiet: bool,
    #[arg(long)]
    pub(crate) names: bool,
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PinUpdateArgs {
    /// Path of the recursively pinned content
    #[arg(value_name = "FROM-PATH")]
    pub(crate) from: OsString,
    /// Path of the content to pin
    #[arg(value_name = "TO-PATH")]
    pub(crate) to: OsString,
    #[arg(long)]
    pub(crate) unpin: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct PinVerifyArgs {
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    #[arg(long)]
    pub(crate) quiet: bool,
}
