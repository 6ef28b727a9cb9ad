//! Commands about the daemon itself.

use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipfrs_core::Error;
use ipfrs_node::Name;
use serde::Serialize;

use super::args::Args;
use super::key::KeyEncoding;
use super::output;
use super::response::CommandResult;
use crate::state::AppState;

#[derive(Serialize)]
struct Id {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "PublicKey")]
    public_key: String,
    #[serde(rename = "Addresses")]
    addresses: [String; 0],
    #[serde(rename = "AgentVersion")]
    agent_version: &'static str,
    #[serde(rename = "Protocols")]
    protocols: [String; 0],
}

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
        addresses: [],
        agent_version: concat!("ipfrs/", env!("CARGO_PKG_VERSION")),
        protocols: [],
    }))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Version {
    /// Kubo version that clients should assume.
    version: String,
    commit: &'static str,
    repo: &'static str,
    system: String,
    golang: &'static str,
    /// Version of ipfrs.
    ipfrs: &'static str,
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
        commit: "",
        repo: "1",
        system: format!("{arch}/{}", std::env::consts::OS),
        golang: "",
        ipfrs: env!("CARGO_PKG_VERSION"),
    }))
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct BandwidthTotals {
    total_in: u64,
    total_out: u64,
    rate_in: f64,
    rate_out: f64,
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
