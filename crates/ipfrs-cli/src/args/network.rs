//! `swarm`, `ping` and `stats`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum SwarmCommand {
    /// List the connected peers
    Peers {
        #[arg(long)]
        verbose: bool,
    },
    /// List the known addresses of peers
    Addrs,
    /// List the addresses on which the daemon listens
    Listen,
    /// Connect to peers
    Connect {
        /// Addresses such as /ip4/192.0.2.1/tcp/4001/p2p/12D3Koo...
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
    },
    /// Close the connections to peers
    Disconnect {
        /// Addresses such as /p2p/12D3Koo...
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
    },
    /// Peers to which the daemon stays connected
    #[command(subcommand)]
    Peering(PeeringCommand),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeeringCommand {
    /// List them with their addresses
    Ls,
    /// Stay connected to more peers until the daemon ends
    Add {
        /// Addresses such as /ip4/192.0.2.1/tcp/4001/p2p/12D3Koo...
        #[arg(required = true, value_name = "ADDRESS")]
        addresses: Vec<String>,
    },
    /// No longer stay connected to peers
    Rm {
        /// Peer IDs
        #[arg(required = true, value_name = "PEER")]
        peers: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PingArgs {
    /// ID of a connected peer, or an address such as /ip4/192.0.2.1/tcp/4001/p2p/12D3Koo...
    #[arg(value_name = "PEER")]
    pub(crate) peer: String,
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) count: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StatsCommand {
    /// Print received and sent bytes and their rates
    Bw,
    /// Print exchanged blocks and bytes
    Bitswap,
    /// Print the number of blocks and the size of the repo
    Repo,
}
