//! `retrieve`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct RetrieveArgs {
    /// A path: CID, CID/name, /ipfs/CID/name, /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    /// Part of the DAG to retrieve
    #[arg(long, value_enum, default_value_t = Scope::All)]
    pub(crate) scope: Scope,
    /// Print each attempt: source, request, outcome, times, bytes and blocks
    #[arg(long)]
    pub(crate) trace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// Everything below the path
    All,
    /// A file, or a directory without its entries
    Entity,
    /// The root block
    Block,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Entity => "entity",
            Self::Block => "block",
        }
    }
}
