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
    /// Name or ID of the key
    #[arg(short, long, default_value = "self")]
    pub(crate) key: String,
    /// Check that the content is stored here; --resolve=false skips the check [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) resolve: Option<bool>,
    /// Validity of the record, such as 24h or 1h30m [default: ipns.record_lifetime_seconds of the configuration]
    #[arg(short = 't', long, value_name = "TIME")]
    pub(crate) lifetime: Option<String>,
    /// Time for which others may cache the record, such as 5m [default: ipns.record_ttl_seconds of the configuration]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Sequence number of the record, higher than that of the last one [default: the next number]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
    /// Include fields for implementations without V2 signatures; --v1compat=false makes the record shorter [default:
    /// true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) v1compat: Option<bool>,
    /// Print only the name
    #[arg(short = 'Q', long)]
    pub(crate) quieter: bool,
    /// For compatibility with Kubo: records are only stored here
    #[arg(long, hide = true)]
    pub(crate) allow_offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameResolveArgs {
    /// A name: k51..., a peer ID, a domain, or a path below one [default: the name of the node]
    pub(crate) name: Option<String>,
    /// Follow names recursively; --recursive=false prints the target of the first one [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recursive: Option<bool>,
    /// Query DNS again, ignoring cached results
    #[arg(short, long)]
    pub(crate) nocache: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameInspectArgs {
    /// File with the record [default: standard input]
    pub(crate) record: Option<PathBuf>,
    /// Name for which to check the signature and validity of the record
    #[arg(long, value_name = "NAME")]
    pub(crate) verify: Option<String>,
    /// Also print the bytes; --dump=false omits them [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dump: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct NamePutArgs {
    /// A name: k51..., a peer ID
    pub(crate) name: String,
    /// File with the record [default: standard input]
    pub(crate) record: Option<PathBuf>,
    /// Do not require a higher sequence number; a newer record is still kept
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// For compatibility with Kubo: records are only stored here
    #[arg(long, hide = true)]
    pub(crate) allow_offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// A path: CID/name, /ipfs/CID/name, /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    /// Follow names to content; --recursive=false prints the target of the first one [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recursive: Option<bool>,
}
