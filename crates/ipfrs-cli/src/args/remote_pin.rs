//! `pin remote`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum RemotePinCommand {
    /// Ask a service to pin content, and wait until it is pinned
    Add(RemotePinAddArgs),
    /// List pins at a service, newest first
    Ls(RemotePinLsArgs),
    /// Remove the pins at a service that `ls` would list
    Rm(RemotePinRmArgs),
    /// The services that the daemon knows
    #[command(subcommand)]
    Service(RemoteServiceCommand),
}

#[derive(Debug, Args)]
pub(crate) struct RemotePinAddArgs {
    /// Content ID, or a path below one
    #[arg(value_name = "IPFS-PATH")]
    pub(crate) path: OsString,
    #[arg(long)]
    pub(crate) service: String,
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[arg(long)]
    pub(crate) background: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemotePinLsArgs {
    #[arg(long)]
    pub(crate) service: String,
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[arg(long, value_name = "CID", value_delimiter = ',')]
    pub(crate) cid: Vec<String>,
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    pub(crate) status: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RemotePinRmArgs {
    #[command(flatten)]
    pub(crate) which: RemotePinLsArgs,
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RemoteServiceCommand {
    /// Add a service
    Add {
        /// Name of the service here
        name: String,
        /// URL of its API, without /pins
        endpoint: String,
        /// Key that the service has issued; "-" reads it from standard input
        key: String,
    },
    /// List the services
    Ls {
        #[arg(long)]
        stat: bool,
    },
    /// Remove a service; its pins stay
    Rm {
        /// Name of the service here
        name: String,
    },
}
