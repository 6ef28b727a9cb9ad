//! `auth`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::value;

#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Create, list and revoke API keys
    #[command(subcommand)]
    Key(AuthKeyCommand),
    /// Print the caller as the daemon sees it, and its scopes
    Whoami,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuthKeyCommand {
    /// Create an API key; print its token, which is shown only now
    Create(AuthKeyCreateArgs),
    /// List API keys: ID, scopes, expiry, roots and name
    #[command(visible_alias = "ls")]
    List,
    /// Revoke API keys at once: their sessions, WebSockets and gRPC calls end
    Revoke {
        /// IDs of the keys, or their tokens
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct AuthKeyCreateArgs {
    /// Purpose of the key, shown by `auth key list`
    #[arg(default_value = "")]
    pub(crate) name: String,
    /// Scopes of the key: read, write, pin, names or admin; several with commas
    #[arg(short, long = "scope", value_name = "SCOPES", required = true, value_delimiter = ',', value_parser = value::scope)]
    pub(crate) scopes: Vec<String>,
    /// Content ID below which the key may read content, and nothing else; can be repeated
    #[arg(long = "root", value_name = "CID")]
    pub(crate) roots: Vec<String>,
    /// Time after which the key is no longer valid, such as 12h or 90d [default: never]
    #[arg(long, value_name = "TIME", value_parser = value::long_duration)]
    pub(crate) expires_in: Option<Duration>,
}
