//! `key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipfrs_interface::{KeyFormat, KeyType};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Generate a key; print its ID, which is the IPNS name that it publishes
    Gen(KeyGenArgs),
    /// List keys; "self" is the identity of the node
    #[command(visible_alias = "ls")]
    List(KeyListArgs),
    /// Rename a key
    Rename(KeyRenameArgs),
    /// Remove keys; names published with them cannot be updated any more, unless there is a copy of the key
    Rm(KeyRmArgs),
    /// Import a key from a file; print its ID
    Import(KeyImportArgs),
    /// Write a private key, unencrypted, to a file that only you can read
    Export(KeyExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyGenArgs {
    /// Name of the key
    pub(crate) name: String,
    #[arg(long = "type", value_name = "TYPE", value_parser = value::as_a::<KeyType>)]
    pub(crate) key_type: String,
    #[arg(long, value_name = "BITS")]
    pub(crate) size: Option<u32>,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

/// Encoding of IDs in the output.
#[derive(Debug, Args)]
pub(crate) struct KeyEncoding {
    #[arg(long, value_name = "BASE")]
    pub(crate) ipns_base: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KeyListArgs {
    #[arg(short)]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRenameArgs {
    /// Current name of the key
    pub(crate) from: String,
    /// New name
    pub(crate) to: String,
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRmArgs {
    /// Names of the keys; either all of them are removed or none
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    #[arg(short)]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyImportArgs {
    /// Name of the key
    pub(crate) name: String,
    /// File with the key, or "-" for standard input
    pub(crate) file: PathBuf,
    #[arg(long, value_parser = value::as_a::<KeyFormat>)]
    pub(crate) format: String,
    #[arg(long)]
    pub(crate) allow_any_key_type: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyExportArgs {
    /// Name of the key
    pub(crate) name: String,
    /// File to create, which must not exist, or "-" for standard output [default: NAME.key or NAME.pem in the current
    /// directory]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Format of the file: libp2p-protobuf-cleartext or pem-pkcs8-cleartext
    #[arg(short, long, default_value = "libp2p-protobuf-cleartext")]
    pub(crate) format: KeyFormat,
}
