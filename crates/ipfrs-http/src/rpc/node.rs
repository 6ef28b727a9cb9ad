//! Commands about the daemon itself.

use std::time::Duration;

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_core::Error;
use ipfrs_node::Name;
use ipfrs_rpc::types::{BandwidthTotals, Id, Version};
use tokio::time::{MissedTickBehavior, interval};

use super::args::Args;
use super::command_result::CommandResult;
use super::key::KeyEncoding;
use super::{long_command, output, swarm};
use crate::state::AppState;

/// Time between two lines of `stats/bw`, as in Kubo.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Shortest time that a client may choose.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Error of `id` for other nodes without peers, as in Kubo.
const ID_OFFLINE: &str = "'ipfs id' cannot query information on remote peers without a running daemon; if you only \
                          want to convert --peerid-base, pass --offline option";

/// `id[?arg=peer]`: returns the identity of this node or of a connected peer.
pub(super) async fn id(State(state): State<AppState>, args: Args) -> CommandResult {
    let node = &state.node;
    let identity = node.identity();
    let own = identity.name();
    let encoding = args.text("peerid-base").map_or(Ok(KeyEncoding::PeerId), KeyEncoding::named)?;
    if let Some(requested) = args.at_most_one("peerid")? {
        let name = Name::parse(requested).map_err(|_| Error::invalid("invalid peer id"))?;
        if name != own {
            let id = name.peer_id();
            if args.is_offline() {
                let addresses = vec![format!("/p2p/{id}")];
                let (agent_version, public_key) = (String::new(), String::new());
                let id = encoding.id(&name)?;
                return Ok(output::object(Id { id, public_key, addresses, agent_version, protocols: Vec::new() }));
            }
            if !node.exchanges_blocks() {
                return Err(Error::unsupported(ID_OFFLINE).into());
            }
            let found = swarm::find(node, &id)?.ok_or_else(|| {
                Error::not_found(format!("peer {id} is not connected: connect to it first (swarm/connect)"))
            })?;
            return Ok(output::object(swarm::identity(&found, encoding.id(&name)?)));
        }
    }
    let addresses = node.addresses_with_id();
    Ok(output::object(Id {
        id: encoding.id(&own)?,
        public_key: STANDARD.encode(identity.public_key()),
        addresses,
        agent_version: state.api.agent_version(),
        protocols: node.protocols(),
    }))
}

/// Returns Go's name of the processor architecture, which Kubo's clients compare.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// `version`: returns the versions of Kubo's RPC and of ipfrs.
pub(super) async fn version(State(state): State<AppState>) -> CommandResult {
    Ok(output::object(Version {
        version: state.api.reported_version(),
        commit: String::new(),
        repo: "1".to_owned(),
        system: format!("{}/{}", architecture(), std::env::consts::OS),
        golang: String::new(),
        ipfrs: Some(env!("CARGO_PKG_VERSION").to_owned()),
    }))
}

/// `stats/bw[?poll=][&interval=]`: returns the bytes transferred through the listeners' sockets, and rates in bytes per
/// second; with `poll` again and again, until the client disconnects, the daemon drains, or the time of a request is
/// over.
pub(super) async fn bandwidth(State(state): State<AppState>, args: Args) -> CommandResult {
    let pause = args.duration("interval")?.unwrap_or(POLL_INTERVAL).max(MIN_POLL_INTERVAL);
    if !args.is_set("poll") {
        return Ok(output::object(transferred(&state)));
    }
    long_command::answer(args.takes_trailers, state.config.idle_patience(), move |lines| async move {
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => lines.send(&transferred(&state)).await?,
                () = state.lifecycle.drain_begun() => return Ok(()),
            }
        }
    })
    .await
}

fn transferred(state: &AppState) -> BandwidthTotals {
    let now = state.node.bandwidth().snapshot();
    BandwidthTotals { total_in: now.total_in, total_out: now.total_out, rate_in: now.rate_in, rate_out: now.rate_out }
}

/// `shutdown`: shuts down the daemon, like SIGTERM, after this response.
pub(super) async fn shutdown(State(state): State<AppState>) -> CommandResult {
    state.lifecycle.request_shutdown();
    Ok(output::object(serde_json::json!({})))
}
