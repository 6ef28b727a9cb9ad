//! Commands whose subsystems this daemon does not have: they fail or respond like those of a Kubo in which the
//! subsystem is disabled. Clients recognize the texts, so remedies are in docs/API.md and in `ipfrs-cli`.

use axum::extract::{Request, State};
use futures::stream;
use ipfrs_core::multiformats::decode_multibase;
use ipfrs_core::{Error, Result};
use ipfrs_rpc::types::PubsubState;
use serde_json::json;

use super::args::Args;
use super::command_result::CommandResult;
use super::{multipart, output};
use crate::error::RpcError;
use crate::state::AppState;

const NO_PUBSUB: &str = "experimental pubsub feature not enabled, run daemon with --enable-pubsub-experiment to use";
const NO_P2P: &str = "libp2p stream mounting not enabled";
const ONLINE: &str = "this command must be run in online mode. Try running 'ipfs daemon' first";
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
pub(super) async fn dht_stats(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
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
pub(super) async fn provide_stat(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    if args.is_set("lan") {
        return unsupported("LAN stats only available for Sweep provider with Dual DHT");
    }
    unsupported("stats not available with current routing system *node.NoopProvider")
}

/// `bitswap/reprovide`, `routing/reprovide`.
pub(super) async fn reprovide(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    unsupported("invalid configuration: Provide.Enabled is set to 'false'")
}

/// `routing/provide?arg=cid[&arg=...]`.
pub(super) async fn provide(State(state): State<AppState>, args: Args) -> CommandResult {
    args.required("key")?;
    reprovide(State(state)).await
}

/// Checks that there are peers.
///
/// # Errors
/// That of Kubo without a network.
pub(super) fn needs_peers(state: &AppState) -> Result<()> {
    if state.node.exchanges_blocks() { Ok(()) } else { Err(Error::unsupported(ONLINE)) }
}

/// Same as [`needs_peers`], for the commands that Kubo refuses as requests (status 400).
pub(super) fn cannot_run_without_peers(state: &AppState) -> Result<(), RpcError> {
    let refused = |e: Error| RpcError::Refused(Error::unsupported(format!("unable to run offline: {e}")));
    needs_peers(state).map_err(refused)
}

/// `mount`.
pub(super) async fn mount(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
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

/// `provide/clear[?quiet=]`: returns the number of announcements that are removed from the queue, or nothing.
pub(super) async fn clear_provides(args: Args) -> CommandResult {
    let count = (!args.is_set("quiet")).then(|| output::line(&0));
    Ok(output::objects(stream::iter(count), args.takes_trailers))
}

/// `provide/once?arg=cid[&arg=...]`.
pub(super) async fn provide_once(State(state): State<AppState>) -> CommandResult {
    reprovide(State(state)).await
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
    unsupported("missing ResourceMgr: make sure the daemon is running with Swarm.ResourceMgr.Enabled")
}

/// `version/check`.
pub(super) async fn check_version(State(state): State<AppState>) -> CommandResult {
    needs_peers(&state)?;
    unsupported("the versions of peers say nothing about ipfrs: see its releases")
}
