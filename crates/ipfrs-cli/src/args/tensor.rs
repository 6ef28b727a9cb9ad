//! `tensor`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipfrs_interface::{Slice, TensorFormat};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum TensorCommand {
    /// List tensors: name, type, shape, bytes and place of each
    Ls(TensorLsArgs),
    /// Save a tensor, or a slice of it
    Get(TensorGetArgs),
    /// Print count, extremes, mean and deviation of the elements of tensors
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
    /// Name of the tensor; not needed where there is one. With the format safetensors there may be several, and none
    /// stands for all
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// What to take of each dimension, as in NumPy: start:stop:step, an index or ..., such as 0:10,5,::2
    #[arg(long, value_parser = value::as_a::<Slice>, allow_hyphen_values = true)]
    pub(crate) slice: Option<String>,
    /// raw (the bytes of the elements, little-endian), npy, safetensors or arrow (an Arrow IPC stream)
    #[arg(long, default_value = "raw", value_parser = value::as_a::<TensorFormat>)]
    pub(crate) format: String,
    /// Where to save; - is standard output [default: the name of the tensor, here]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Show how far it is [default: when standard error is a terminal, without --json]
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
