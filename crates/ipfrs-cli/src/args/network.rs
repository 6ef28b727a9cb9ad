//! `swarm` and `stats`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum SwarmCommand {
    /// List the connected peers
    Peers {
        /// Also print the direction and the latency of each connection
        #[arg(short, long)]
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
