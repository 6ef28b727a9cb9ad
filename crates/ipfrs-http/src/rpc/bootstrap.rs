//! `bootstrap/*`: peers to which the node connects by itself. A node of Kubo learns of others from them, in a DHT that
//! this daemon does not have; here the node stays connected to them. Their list is not that of `swarm/peering`, so that
//! `bootstrap/rm/all` does not remove those.

use std::collections::HashSet;

use axum::extract::State;
use axum::response::Response;
use ipfrs_core::{Error, Result};
use ipfrs_node::{BootstrapChange, Name, to_the_end};
use ipfrs_rpc::kubo_config::{Change, is_public_bootstrap};
use ipfrs_rpc::types::BootstrapPeers;
use serde_json::{Value, json};

use super::args::Args;
use super::command_result::CommandResult;
use super::{config, output};
use crate::state::AppState;

/// Setting with the peers.
const KEY: [&str; 3] = ["retrieval", "bitswap", "bootstrap"];
/// Maximum number of peers.
const MAX_PEERS: usize = 256;

/// `bootstrap` and `bootstrap/list`: returns the configured peers.
pub(super) async fn list(State(state): State<AppState>) -> CommandResult {
    Ok(response(configured(&state).await?))
}

/// `bootstrap/add?arg=address...`: adds peers to the configuration, and connects to them. If peers are disabled, only
/// stores them, as Kubo does offline. Returns those given.
pub(super) async fn add(State(state): State<AppState>, args: Args) -> CommandResult {
    if !args.has_arguments() {
        return Err(Error::invalid("no bootstrap peers to add").into());
    }
    for address in args.arguments() {
        check_peer(address)?;
    }
    let changing = state.node.begin_bootstrap_change().await;
    let mut known = HashSet::new();
    let added: Vec<_> = args.arguments().iter().filter(|address| known.insert(address.as_str())).cloned().collect();
    let kept = configured(&state).await?.into_iter().filter(|address| !known.contains(address.as_str()));
    replace(&state, added.iter().cloned().chain(kept).collect(), changing).await?;
    Ok(response(added))
}

/// `bootstrap/rm[?arg=address...][&all=]`: removes peers from the configuration, and returns their addresses. An
/// address without a transport stands for all addresses of its peer.
pub(super) async fn remove(State(state): State<AppState>, args: Args) -> CommandResult {
    if args.is_set("all") {
        return remove_all(State(state)).await;
    }
    let mut unwanted = HashSet::new();
    for address in args.arguments() {
        unwanted.insert(split(address)?.ok_or_else(|| Error::invalid("invalid p2p multiaddr"))?);
    }
    let is_unwanted = |address: &String| {
        let parts = split(address).ok().flatten();
        parts.is_some_and(|(transport, peer)| {
            unwanted.contains(&("", peer.clone())) || unwanted.contains(&(transport, peer))
        })
    };
    let changing = state.node.begin_bootstrap_change().await;
    let (removed, kept): (Vec<_>, Vec<_>) = configured(&state).await?.into_iter().partition(is_unwanted);
    if !removed.is_empty() {
        replace(&state, kept, changing).await?;
    }
    Ok(response(removed))
}

/// `bootstrap/rm/all`: removes all peers from the configuration, and returns their addresses.
pub(super) async fn remove_all(State(state): State<AppState>) -> CommandResult {
    let changing = state.node.begin_bootstrap_change().await;
    let removed = configured(&state).await?;
    if !removed.is_empty() {
        replace(&state, Vec::new(), changing).await?;
    }
    Ok(response(removed))
}

fn response(peers: Vec<String>) -> Response {
    output::object(BootstrapPeers { peers })
}

/// Returns the configured peers. A program that embeds the gateway may have no configuration.
async fn configured(state: &AppState) -> Result<Vec<String>> {
    let Some(shown) = state.configuration.get() else { return Ok(Vec::new()) };
    let own = shown.next().await?;
    let listed = KEY.iter().try_fold(&own, |value, name| value.get(name)).and_then(Value::as_array);
    Ok(listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// Sets the peers durably, and connects to them, even if the client leaves meanwhile.
async fn replace(state: &AppState, peers: Vec<String>, changing: BootstrapChange) -> Result<()> {
    config::check_writable(config::shown(state)?)?;
    if peers.len() > MAX_PEERS {
        return Err(Error::too_large(format!("there are at most {MAX_PEERS} bootstrap peers: remove some")));
    }
    let value = (!peers.is_empty()).then(|| json!(peers));
    let change = Change { key: KEY.map(str::to_owned).to_vec(), value };
    let state = state.clone();
    to_the_end(async move {
        let _changing = changing;
        config::shown(&state)?.change(vec![change], false).await?;
        state.node.set_bootstrap_peers(&peers)
    })
    .await
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
        Some(("", _)) => invalid("bootstrap address without a transport"),
        // As in `config`, which could not remove it later.
        Some(_) if is_public_bootstrap(address) => {
            let why = "is of the public DHT, whose nodes serve no content: give the address of a peer that does";
            Err(Error::unsupported(format!("{address} {why}")))
        }
        Some(_) => Ok(()),
    }
}

/// Returns the transport of an address and the ID of the peer at its end; `None` if it does not end with one.
fn split(address: &str) -> Result<Option<(&str, String)>> {
    if !address.starts_with('/') {
        return Err(Error::invalid(format!("failed to parse multiaddr {address:?}: must begin with /")));
    }
    let parts = address.rsplit_once("/p2p/").or_else(|| address.rsplit_once("/ipfs/"));
    Ok(parts.and_then(|(transport, id)| Some((transport, Name::parse(id).ok()?.peer_id()))))
}
