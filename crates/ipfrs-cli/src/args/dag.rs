//! `dag`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DagCommand {
    /// Store the blocks of CAR files, versions 1 and 2, and pin their roots
    Import(DagImportArgs),
    /// Write a DAG as a CAR file of version 1
    Export(DagExportArgs),
    /// Count the blocks and bytes of DAGs
    Stat(DagStatArgs),
    /// Print a node of a DAG
    Get {
        /// Content ID, or a path below one
        #[arg(value_name = "IPFS-PATH")]
        path: OsString,
        #[arg(long, value_name = "CODEC")]
        output_codec: Option<String>,
    },
    /// Store files as nodes of a DAG; print their content IDs
    Put(DagPutArgs),
    /// Print the content ID that a path leads to, and what remains of the path within the node
    Resolve {
        /// Content ID, or a path below one
        #[arg(value_name = "IPFS-PATH")]
        path: OsString,
    },
}

#[derive(Debug, Args)]
pub(crate) struct DagPutArgs {
    /// Files with nodes; standard input if none is given, or for "-"
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[arg(long, value_name = "CODEC")]
    pub(crate) store_codec: Option<String>,
    #[arg(long, value_name = "CODEC")]
    pub(crate) input_codec: Option<String>,
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) hash: Option<String>,
    #[arg(long)]
    pub(crate) pin: bool,
    #[arg(long)]
    pub(crate) allow_big_block: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DagImportArgs {
    /// CAR files; standard input if none is given, or for "-"
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[arg(long)]
    pub(crate) pin_roots: Option<bool>,
    #[arg(long)]
    pub(crate) local_only: bool,
    #[arg(long)]
    pub(crate) allow_big_block: bool,
    #[arg(long)]
    pub(crate) stats: bool,
    #[arg(long)]
    pub(crate) silent: bool,
    /// Show a progress bar [default: if standard error is a terminal]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct DagExportArgs {
    /// Content ID of the root, or a path below one: CID/name, /ipfs/CID/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) root: OsString,
    #[arg(long)]
    pub(crate) local_only: bool,
    /// Target file, replaced when the DAG is complete [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[arg(long)]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct DagStatArgs {
    /// Content IDs of the roots, or paths below them
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) roots: Vec<OsString>,
    #[arg(long)]
    pub(crate) progress: Option<bool>,
}
