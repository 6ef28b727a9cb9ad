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
}

#[derive(Debug, Args)]
pub(crate) struct DagImportArgs {
    /// CAR files; standard input where there is none, or for "-"
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Pin the roots that the files name, with everything below them [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) pin_roots: Option<bool>,
    /// Print how many blocks and bytes the files hold
    #[arg(long)]
    pub(crate) stats: bool,
    /// Print nothing
    #[arg(long)]
    pub(crate) silent: bool,
    /// Show how far it is [default: when standard error is a terminal]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct DagExportArgs {
    /// Content ID of the root, or a path below one: CID/name, /ipfs/CID/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) root: OsString,
    /// Where to save it; replaces a file when the whole DAG has come [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show how far it is [default: when standard error is a terminal]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct DagStatArgs {
    /// Content IDs of the roots, or paths below them
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) roots: Vec<OsString>,
    /// Show how far it is [default: when standard error is a terminal]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}
