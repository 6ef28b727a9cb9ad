//! `key`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ipfrs_interface::{KeyFormat, KeyType};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key; print its ID, which is the name that it publishes
    Gen(KeyGenArgs),
    /// List keys; "self" is the identity of the node
    #[command(visible_alias = "ls")]
    List(KeyListArgs),
    /// Give a key another name
    Rename(KeyRenameArgs),
    /// Remove keys: what they published can never be changed again, unless there is a copy
    Rm(KeyRmArgs),
    /// Keep a key that is in a file; print its ID
    Import(KeyImportArgs),
    /// Write a private key to a file that only you can read; it is not encrypted
    Export(KeyExportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeyGenArgs {
    /// Name of the key
    pub(crate) name: String,
    /// Type of the key: ed25519, rsa or secp256k1
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "ed25519", value_parser = value::as_a::<KeyType>)]
    pub(crate) key_type: String,
    /// Bits of an RSA key: 2048, 3072, 4096 or 8192 [default: 2048]
    #[arg(short, long, value_name = "BITS")]
    pub(crate) size: Option<u32>,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

/// Encoding of IDs in the output.
#[derive(Debug, Args)]
pub(crate) struct KeyEncoding {
    /// How to print IDs: b58mh for peer IDs, or the base of a content ID [default: base36]
    #[arg(long, value_name = "BASE")]
    pub(crate) ipns_base: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct KeyListArgs {
    /// Print IDs as well
    #[arg(short)]
    pub(crate) long: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRenameArgs {
    /// Name of the key
    pub(crate) from: String,
    /// Its new name
    pub(crate) to: String,
    /// Replace a key that has this name: it is gone then
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyRmArgs {
    /// Names of the keys: all of them are removed or none
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print IDs as well
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
    /// What the file holds: libp2p-protobuf-cleartext or pem-pkcs8-cleartext
    #[arg(short, long, default_value = "libp2p-protobuf-cleartext", value_parser = value::as_a::<KeyFormat>)]
    pub(crate) format: String,
    /// Also keep ECDSA keys, which few implementations know
    #[arg(long)]
    pub(crate) allow_any_key_type: bool,
    #[command(flatten)]
    pub(crate) encoding: KeyEncoding,
}

#[derive(Debug, Args)]
pub(crate) struct KeyExportArgs {
    /// Name of the key
    pub(crate) name: String,
    /// File to write, which must not be there yet, or "-" for standard output [default: NAME.key or NAME.pem, here]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// How to write it: libp2p-protobuf-cleartext or pem-pkcs8-cleartext
    #[arg(short, long, default_value = "libp2p-protobuf-cleartext")]
    pub(crate) format: KeyFormat,
}
