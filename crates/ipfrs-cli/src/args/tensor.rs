//! `tensor`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipfrs_interface::{Slice, TensorFormat};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum TensorCommand {
    /// List tensors: name, type, shape, size and offset of each
    Ls(TensorLsArgs),
    /// Save a tensor, or a slice of it
    Get(TensorGetArgs),
    /// Print count, extremes, mean and standard deviation of the elements of tensors
    Stat(TensorStatArgs),
}

#[derive(Debug, Args)]
pub(crate) struct TensorLsArgs {
    /// A .safetensors or .npy file: CID, CID/name, /ipfs/CID/name or /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct TensorGetArgs {
    /// A .safetensors or .npy file: CID, CID/name, /ipfs/CID/name or /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    /// Name of the tensor; optional if there is only one. The format safetensors accepts several names, and none
    /// means all
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Slice of each dimension, as in NumPy: start:stop:step, an index or ..., such as 0:10,5,::2
    #[arg(long, value_parser = value::as_a::<Slice>, allow_hyphen_values = true)]
    pub(crate) slice: Option<String>,
    /// Output format: raw (the bytes of the elements, little-endian), npy, safetensors or arrow (an Arrow IPC stream)
    #[arg(long, default_value = "raw", value_parser = value::as_a::<TensorFormat>)]
    pub(crate) format: String,
    /// Target file, or - for standard output [default: the name of the tensor, in the current directory]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show a progress bar [default: if standard error is a terminal, without --json]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) progress: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct TensorStatArgs {
    /// A .safetensors or .npy file: CID, CID/name, /ipfs/CID/name or /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    /// Names of tensors [default: all of them]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}
