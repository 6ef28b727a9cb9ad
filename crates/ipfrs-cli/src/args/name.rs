//! `name`, `resolve`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum NameCommand {
    /// Make the name of a key lead to content
    Publish(NamePublishArgs),
    /// Print where a name leads
    Resolve(NameResolveArgs),
    /// Show what a record says, and check it
    Inspect(NameInspectArgs),
    /// Write the record of a name to standard output
    Get {
        /// A name: k51..., a peer ID
        name: String,
    },
    /// Keep a record that the owner of a name signed
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
    /// Check that the content is here; --resolve=false publishes without [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) resolve: Option<bool>,
    /// How long the record is valid, such as 24h or 1h30m [default: ipns.record_lifetime_seconds of the configuration]
    #[arg(short = 't', long, value_name = "TIME")]
    pub(crate) lifetime: Option<String>,
    /// How long others may go on using the answer, such as 5m [default: ipns.record_ttl_seconds of the configuration]
    #[arg(long, value_name = "TIME")]
    pub(crate) ttl: Option<String>,
    /// Sequence of the record, higher than that of the last one [default: the next one]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sequence: Option<u64>,
    /// Also write what implementations before V2 signatures read; --v1compat=false makes the record shorter [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) v1compat: Option<bool>,
    /// Print only the name
    #[arg(short = 'Q', long)]
    pub(crate) quieter: bool,
    /// For scripts that were written for Kubo: records are always kept here, and nowhere else
    #[arg(long, hide = true)]
    pub(crate) allow_offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameResolveArgs {
    /// A name: k51..., a peer ID, a domain, or a path below one [default: that of the node]
    pub(crate) name: Option<String>,
    /// Follow names that lead to names; --recursive=false prints where the first one leads [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recursive: Option<bool>,
    /// Ask DNS again, whatever it answered before
    #[arg(short, long)]
    pub(crate) nocache: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NameInspectArgs {
    /// File with the record; standard input without one
    pub(crate) record: Option<PathBuf>,
    /// Name to check the record's signature and validity for
    #[arg(long, value_name = "NAME")]
    pub(crate) verify: Option<String>,
    /// Print the bytes as well; --dump=false leaves them out [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) dump: Option<bool>,
}

#[derive(Debug, Args)]
pub(crate) struct NamePutArgs {
    /// A name: k51..., a peer ID
    pub(crate) name: String,
    /// File with the record; standard input without one
    pub(crate) record: Option<PathBuf>,
    /// Do not insist on a higher sequence; a newer record still stays
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Print nothing
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// For scripts that were written for Kubo: records are always kept here, and nowhere else
    #[arg(long, hide = true)]
    pub(crate) allow_offline: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// A path: CID/name, /ipfs/CID/name, /ipns/NAME/name
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    /// Follow names until content; --recursive=false prints where the first one leads [default: true]
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) recursive: Option<bool>,
}
