//! Commands about the daemon itself.

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_core::Error;
use ipfrs_node::Name;
use ipfrs_rpc::types::{BandwidthTotals, Id, Version};

use super::args::Args;
use super::command_result::CommandResult;
use super::key::KeyEncoding;
use super::output;
use crate::state::AppState;

/// `id`: returns the node's key. Addresses and protocols are empty, since this version has no peer-to-peer
/// networking.
pub(super) async fn id(State(state): State<AppState>, args: Args) -> CommandResult {
    let identity = state.node.identity();
    let own = identity.name();
    let encoding = args.text("peerid-base").map_or(Ok(KeyEncoding::PeerId), KeyEncoding::named)?;
    let id = encoding.id(&own)?;
    if let Some(requested) = args.at_most_one("peerid")?
        && !Name::parse(requested).is_ok_and(|requested| requested == own)
    {
        return Err(Error::unsupported(format!("only this node's own ID can be shown: {id}")).into());
    }
    Ok(output::object(Id {
        id,
        public_key: STANDARD.encode(identity.public_key()),
        addresses: Vec::new(),
        agent_version: concat!("ipfrs/", env!("CARGO_PKG_VERSION")).to_owned(),
        protocols: Vec::new(),
    }))
}

/// `version`: returns the versions of Kubo's RPC and of ipfrs.
pub(super) async fn version(State(state): State<AppState>) -> CommandResult {
    // Go's architecture names, which Kubo's clients compare.
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Ok(output::object(Version {
        version: state.api.reported_version(),
        commit: String::new(),
        repo: "1".to_owned(),
        system: format!("{arch}/{}", std::env::consts::OS),
        golang: String::new(),
        ipfrs: Some(env!("CARGO_PKG_VERSION").to_owned()),
    }))
}

/// `stats/bw`: returns the bytes transferred through the listeners' sockets, and rates in bytes per second.
pub(super) async fn bandwidth(State(state): State<AppState>) -> CommandResult {
    let now = state.node.bandwidth().snapshot();
    Ok(output::object(BandwidthTotals {
        total_in: now.total_in,
        total_out: now.total_out,
        rate_in: now.rate_in,
        rate_out: now.rate_out,
    }))
}

/// `shutdown`: shuts down the daemon, like SIGTERM, after this response.
pub(super) async fn shutdown(State(state): State<AppState>) -> CommandResult {
    state.lifecycle.request_shutdown();
    Ok(output::object(serde_json::json!({})))
}
