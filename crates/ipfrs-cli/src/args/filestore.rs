//! `filestore`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum FilestoreCommand {
    /// List blocks that stay in files: content ID, size, file, offset
    Ls(FilestoreLsArgs),
    /// Compare files with their blocks
    Verify(FilestoreVerifyArgs),
    /// List blocks that are both in a file and in the packs
    Dups,
}

#[derive(Debug, Args)]
pub(crate) struct FilestoreLsArgs {
    /// Blocks to list [default: all]
    #[arg(value_name = "CID")]
    pub(crate) cids: Vec<String>,
    #[arg(long, conflicts_with = "cids")]
    pub(crate) file_order: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FilestoreVerifyArgs {
    /// Blocks to check [default: all]
    #[arg(value_name = "CID")]
    pub(crate) cids: Vec<String>,
    #[arg(long, conflicts_with = "cids")]
    pub(crate) file_order: bool,
    #[arg(long)]
    pub(crate) remove_bad_blocks: bool,
}
