//! `name`, `resolve`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// Publish content under the IPNS name of a key
    Publish(NamePublishArgs),
    /// Print the path that a name resolves to
    Resolve(NameResolveArgs),
    /// Print and check the content of a record
    Inspect(NameInspectArgs),
    /// Write the record of a name to standard output
    Get {
        /// A name: k51..., a peer ID
        name: String,
    },
    /// Store a record signed by the owner of a name
    Put(NamePutArgs),
}

#[derive(Debug, Args)]
pub(crate) struct NamePublishArgs {
    /// A content ID, or a path: CID/name, /ipfs/CID/name, /ipns/NAME
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    #[arg(long)]
    pub(crate) key: String,
    #[arg(long)]
    pub(crate) resolve: Option<bool>,
    #[arg(long, value_name = "TIME")]
    pub(crate) lifetime: Option<String>,
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
    #[arg(long)]
    pub(crate) v1compat: Option<bool>,
    #[arg(long)]
    pub(crate) quieter: bool,
    #[arg(long, hide = true)]
    pub(crate) allow_offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameResolveArgs {
    /// A name: k51..., a peer ID, a domain, or a path below one [default: the name of the node]
    pub(crate) name: Option<String>,
    #[arg(long)]
    pub(crate) recursive: Option<bool>,
    #[arg(long)]
    pub(crate) nocache: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameInspectArgs {
    /// File with the record [default: standard input]
    pub(crate) record: Option<PathBuf>,
    #[arg(long, value_name = "NAME")]
    pub(crate) verify: Option<String>,
    #[arg(long)]
    pub(crate) dump: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct NamePutArgs {
    /// A name: k51..., a peer ID
    pub(crate) name: String,
    /// File with the record [default: standard input]
    pub(crate) record: Option<PathBuf>,
    #[arg(long)]
    pub(crate) force: bool,
    #[arg(long)]
    pub(crate) quiet: bool,
    #[arg(long, hide = true)]
    pub(crate) allow_offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// A path: CID/name, /ipfs/CID/name, /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    #[arg(long)]
    pub(crate) recursive: Option<bool>,
}
