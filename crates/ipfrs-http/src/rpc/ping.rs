//! `ping`: round trips to peers.

use axum::extract::State;
use futures::stream;
use ipfrs_core::Error;
use ipfrs_node::Name;
use ipfrs_rpc::types::PingLine;

use super::args::Args;
use super::command_result::CommandResult;
use super::unavailable::needs_peers;
use super::{output, swarm};
use crate::state::AppState;

/// `ping?arg=peer`: returns the round-trip time to a peer, which its connection measures from time to time. An address
/// that ends in `/p2p/` and a peer ID is connected to first.
pub(super) async fn ping(State(state): State<AppState>, args: Args) -> CommandResult {
    needs_peers(&state)?;
    let target = args.text_at(0);
    let id = target.rsplit_once("/p2p/").map_or(target, |(_, id)| id);
    let failed = |e: Error| Error::invalid(format!("failed to parse peer address '{target}': {e}"));
    let id = Name::parse(id).map_err(failed)?.peer_id();
    if id == state.node.identity().peer_id() {
        return Err(Error::invalid("error: can't ping self").into());
    }
    if target.starts_with('/') {
        state.node.connect_peer(target).await?;
    }
    let Some(peer) = swarm::find(&state.node, &id)? else {
        let why = format!("peer lookup failed: peer {id} is not connected: connect to it first (swarm/connect)");
        return Err(Error::not_found(why).into());
    };
    let line = |success, time, text| output::line(&PingLine { success, time, text });
    let mut lines = vec![line(false, 0, format!("PING {id}."))];
    let Some(latency) = peer.latency else {
        let why = "the connection has not measured a round trip yet: repeat the request after some seconds";
        lines.push(Err(Error::not_found(why)));
        return Ok(output::objects(stream::iter(lines), args.takes_trailers));
    };
    let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
    lines.push(line(true, nanos, String::new()));
    lines.push(line(false, 0, format!("Average latency: {:.2}ms", latency.as_secs_f64() * 1e3)));
    Ok(output::objects(stream::iter(lines), args.takes_trailers))
}
