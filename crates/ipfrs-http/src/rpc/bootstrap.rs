//! `bootstrap/*`: peers from which a node learns of others in a DHT. This daemon has no DHT and therefore none.

use ipfrs_core::Error;
use ipfrs_rpc::types::BootstrapPeers;

use super::args::Args;
use super::command_result::CommandResult;
use super::output;

/// `bootstrap`, `bootstrap/list` and `bootstrap/rm/all`: returns the peers, of which there are none.
pub(super) async fn list() -> CommandResult {
    Ok(output::object(BootstrapPeers { peers: Vec::new() }))
}

/// `bootstrap/rm[?arg=address...]`: returns the removed peers. There are none to remove.
pub(super) async fn remove(args: Args) -> CommandResult {
    check_addresses(&args)?;
    list().await
}

/// `bootstrap/add?arg=address...`: fails, since the addresses would have no effect.
pub(super) async fn add(args: Args) -> CommandResult {
    if !args.has_arguments() {
        return Err(Error::invalid("no bootstrap peers to add").into());
    }
    check_addresses(&args)?;
    let why = "bootstrap peers introduce a node to a DHT, which this daemon does not use: stay connected to peers with \
               swarm/peering/add, or name them in retrieval.bitswap.peers";
    Err(Error::unsupported(why).into())
}

fn check_addresses(args: &Args) -> Result<(), Error> {
    let malformed = args.arguments().iter().find(|address| !address.starts_with('/'));
    let why = |address| Error::invalid(format!("failed to parse multiaddr {address:?}: must begin with /"));
    malformed.map_or(Ok(()), |address| Err(why(address)))
}
