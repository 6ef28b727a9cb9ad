//! `bootstrap/*`: peers from which a node learns of others in a DHT. This daemon has no DHT and therefore none.

use ipfrs_core::{Error, Result};
use ipfrs_node::Name;
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
    for address in args.arguments() {
        split(address)?.ok_or_else(|| Error::invalid("invalid p2p multiaddr"))?;
    }
    list().await
}

/// `bootstrap/add?arg=address...`: fails, since the addresses would have no effect.
pub(super) async fn add(args: Args) -> CommandResult {
    if !args.has_arguments() {
        return Err(Error::invalid("no bootstrap peers to add").into());
    }
    for address in args.arguments() {
        check_peer(address)?;
    }
    let why = "bootstrap peers introduce a node to a DHT, which this daemon does not use: stay connected to peers with \
               swarm/peering/add, or name them in retrieval.bitswap.peers";
    Err(Error::unsupported(why).into())
}

/// Checks an address of a peer, with the errors of Kubo.
fn check_peer(address: &str) -> Result<()> {
    if matches!(address, "auto" | "default") {
        let why = "cannot add default bootstrap peers: AutoConf is disabled (AutoConf.Enabled=false): the daemon gets \
                   no settings from the network";
        return Err(Error::unsupported(why));
    }
    let invalid = |what: &str| Err(Error::invalid(format!("{what}: {address}")));
    match split(address)? {
        None => invalid("invalid bootstrap address"),
        Some("") => invalid("bootstrap address without a transport"),
        Some(_) => Ok(()),
    }
}

/// Returns an address without the peer at its end; `None` if it does not end with one.
fn split(address: &str) -> Result<Option<&str>> {
    if !address.starts_with('/') {
        return Err(Error::invalid(format!("failed to parse multiaddr {address:?}: must begin with /")));
    }
    let parts = address.rsplit_once("/p2p/").or_else(|| address.rsplit_once("/ipfs/"));
    Ok(parts.filter(|(_, id)| Name::parse(id).is_ok()).map(|(transport, _)| transport))
}
