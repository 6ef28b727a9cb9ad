//! `cid` and `refs`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum CidCommand {
    /// Print content IDs in another form
    Format(CidFormatTextArgs),
    /// Print content IDs as version 1 in base32
    Base32 {
        /// Content IDs
        #[arg(required = true, value_name = "CID")]
        cids: Vec<String>,
    },
    /// Print the parts of a content ID
    Inspect {
        /// Content ID
        cid: String,
    },
    /// List the known multibases
    Bases,
    /// List the known codecs
    Codecs,
    /// List the known hash functions
    Hashes,
}

#[derive(Debug, Args)]
pub(crate) struct CidFormatTextArgs {
    /// Content IDs
    #[arg(required = true, value_name = "CID")]
    pub(crate) cids: Vec<String>,
    #[arg(short, long)]
    pub(crate) format: Option<String>,
    #[arg(short, long, value_name = "VERSION")]
    pub(crate) version: Option<String>,
    #[arg(long, value_name = "CODEC")]
    pub(crate) mc: Option<String>,
    #[arg(short, value_name = "BASE")]
    pub(crate) base: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RefsArgs {
    /// Content IDs or paths whose links to list; "local" for all stored blocks
    #[arg(required = true, value_name = "IPFS-PATH")]
    pub(crate) paths: Vec<std::ffi::OsString>,
    #[arg(long)]
    pub(crate) format: Option<String>,
    #[arg(long)]
    pub(crate) edges: bool,
    #[arg(long)]
    pub(crate) unique: bool,
    #[arg(long)]
    pub(crate) recursive: bool,
    #[arg(long, value_name = "DEPTH", allow_negative_numbers = true)]
    pub(crate) max_depth: Option<i64>,
}
