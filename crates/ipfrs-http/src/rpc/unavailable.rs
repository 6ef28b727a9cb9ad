//! Commands whose subsystems this daemon does not have: they fail or respond like those of a Kubo in which the
//! subsystem is disabled. Clients recognize the beginning of the texts.

use axum::extract::{Request, State};
use ipfrs_core::multiformats::decode_multibase;
use ipfrs_core::{Error, Result};
use ipfrs_rpc::types::PubsubState;
use serde_json::json;

use super::args::Args;
use super::command_result::CommandResult;
use super::{multipart, output};
use crate::error::RpcError;
use crate::state::AppState;

const NO_PUBSUB: &str = "experimental pubsub feature not enabled, run daemon with --enable-pubsub-experiment to use: \
                         ipfrs has no pubsub, use the events of /ws or a message broker";
const NO_P2P: &str = "libp2p stream mounting not enabled: ipfrs forwards no streams, use a tunnel such as SSH";
const ONLINE: &str = "this command must be run in online mode. Try running 'ipfs daemon' first: peers are disabled, \
                      set retrieval.bitswap.enabled = true and restart the daemon";
const NO_DHT: &str = "routing service is not a DHT";

fn unsupported(why: &str) -> CommandResult {
    Err(Error::unsupported(why).into())
}

/// `dht/findpeer`, `dht/findprovs`, `dht/get`, `dht/provide`, `dht/put`.
pub(super) async fn removed_dht() -> CommandResult {
    unsupported("removed, use 'ipfs routing' instead")
}

/// `object/data`, `object/get`, `object/links`, `object/new`, `object/put`, `object/stat`.
pub(super) async fn removed_object() -> CommandResult {
    unsupported("removed, use 'ipfs dag' or 'ipfs files' instead")
}

/// `dht/query?arg=peer[&arg=...]`.
pub(super) async fn dht_query(args: Args) -> CommandResult {
    args.required("peerID")?;
    unsupported(NO_DHT)
}

/// `stats/dht[?arg=dht]`.
pub(super) async fn dht_stats() -> CommandResult {
    unsupported(NO_DHT)
}

/// `pubsub/ls`.
pub(super) async fn pubsub() -> CommandResult {
    unsupported(NO_PUBSUB)
}

/// `pubsub/peers[?arg=topic]`.
pub(super) async fn pubsub_peers(args: Args) -> CommandResult {
    args.at_most_one("topic")?.map(check_topic).transpose()?;
    unsupported(NO_PUBSUB)
}

/// `pubsub/sub?arg=topic`.
pub(super) async fn pubsub_sub(args: Args) -> CommandResult {
    check_topic(args.one("topic")?)?;
    unsupported(NO_PUBSUB)
}

/// `pubsub/pub?arg=topic`.
pub(super) async fn pubsub_pub(args: Args, request: Request) -> CommandResult {
    let topic = args.one("topic")?;
    if multipart::boundary(request.headers())?.is_none() {
        return Err(RpcError::Request("file argument 'data' is required".into()));
    }
    check_topic(topic)?;
    unsupported(NO_PUBSUB)
}

/// Checks that a topic is in multibase, as all clients write it.
fn check_topic(topic: &str) -> Result<()> {
    let failed = |e: Error| Error::invalid(format!("URL arg must be multibase encoded: {e}"));
    decode_multibase(topic.as_bytes()).map(drop).map_err(failed)
}

/// `p2p/close`, `p2p/ls`, `p2p/stream/close`, `p2p/stream/ls`.
pub(super) async fn p2p() -> CommandResult {
    unsupported(NO_P2P)
}

/// `p2p/listen?arg=protocol&arg=address`.
pub(super) async fn p2p_listen(args: Args) -> CommandResult {
    args.all(&["protocol", "target-address"])?;
    unsupported(NO_P2P)
}

/// `p2p/forward?arg=protocol&arg=address&arg=target`.
pub(super) async fn p2p_forward(args: Args) -> CommandResult {
    args.all(&["protocol", "listen-address", "target-address"])?;
    unsupported(NO_P2P)
}

/// `provide/stat`, `stats/provide`, `stats/reprovide`, with the options of each.
pub(super) async fn provide_stat(args: Args) -> CommandResult {
    if args.is_set("lan") {
        return unsupported("LAN stats only available for Sweep provider with Dual DHT");
    }
    unsupported("stats not available with current routing system *node.NoopProvider")
}

/// `bitswap/reprovide`, `routing/reprovide`.
pub(super) async fn reprovide() -> CommandResult {
    unsupported("invalid configuration: Provide.Enabled is set to 'false'")
}

/// `routing/provide?arg=cid[&arg=...]`.
pub(super) async fn provide(args: Args) -> CommandResult {
    args.required("key")?;
    reprovide().await
}

/// Checks that there are peers.
///
/// # Errors
/// An error that begins as Kubo's without a network.
pub(super) fn needs_peers(state: &AppState) -> Result<()> {
    state.node.peers().map(drop).map_err(|e| Error::unsupported(ONLINE).with_source(e))
}

/// `mount`.
pub(super) async fn mount() -> CommandResult {
    unsupported("this daemon does not mount itself: ipfs.mount of the Python package mounts content")
}

/// `name/pubsub/cancel`, `name/pubsub/subs`.
pub(super) async fn name_pubsub() -> CommandResult {
    Err(RpcError::Refused(Error::unsupported("IPNS pubsub subsystem is not enabled")))
}

/// `name/pubsub/state`.
pub(super) async fn name_pubsub_state() -> CommandResult {
    Ok(output::object(PubsubState { enabled: false }))
}

/// `pubsub/reset`: returns the number of removed sequence numbers.
pub(super) async fn reset_pubsub() -> CommandResult {
    Ok(output::object(json!({ "deleted": 0 })))
}

/// `provide/clear`: returns the number of announcements that are removed from the queue.
pub(super) async fn clear_provides() -> CommandResult {
    Ok(output::object(0))
}

/// `provide/once?arg=cid[&arg=...]`.
pub(super) async fn provide_once(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    reprovide().await
}

/// `swarm/filters/add`, `swarm/filters/rm`.
pub(super) async fn change_filters(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    unsupported(
        "addresses are not filtered: limit peers with a firewall, or with retrieval.bitswap.private_network_key",
    )
}

/// `swarm/addrs/autonat`.
pub(super) async fn reachability(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    unsupported(
        "the node does not ask peers whether it can be reached: see swarm/addrs/listen, and test it from outside",
    )
}

/// `swarm/resources`.
pub(super) async fn resources() -> CommandResult {
    let why = "missing ResourceMgr: make sure the daemon is running with Swarm.ResourceMgr.Enabled: ipfrs limits peers \
               with the keys of retrieval.bitswap, and /metrics counts them";
    unsupported(why)
}

/// `version/check`.
pub(super) async fn check_version(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    unsupported("the versions of peers say nothing about ipfrs: see its releases")
}
