//! `config` and `config/show`: the effective configuration in Kubo's terms. It is read-only.

use axum::extract::State;
use ipfrs_core::{Error, Result};
use serde_json::{Map, Value, json};

use super::args::Args;
use super::command_result::CommandResult;
use super::{output, swarm};
use crate::gateway::hosts::tcp_multiaddr;
use crate::state::AppState;

/// `config?arg=key`: returns the value of a key. A value to set is refused.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let (key, value) = match args.required("key")? {
        [key] => (key, None),
        [key, value] => (key, Some(value)),
        more => return Err(Error::invalid(format!("{} arguments given, a key expected", more.len())).into()),
    };
    if matches!(key.to_ascii_lowercase().as_str(), "identity" | "identity.privkey") {
        return Err(Error::unsupported("cannot show or change private key through API").into());
    }
    if is_of_pinning_credentials(key) {
        return Err(Error::unsupported("cannot show or change pinning services credentials").into());
    }
    if value.is_some() {
        return Err(Error::unsupported(format!(
            "{key:?} cannot be set through the API: change the configuration file (config.toml of the repo) and restart the daemon"
        ))
        .into());
    }
    let value = find(&effective(&state).await?, key)?;
    Ok(output::object(json!({ "Key": key, "Value": value })))
}

/// Whether the value of a key would contain the key of a pinning service.
fn is_of_pinning_credentials(key: &str) -> bool {
    let secret = ["pinning", "remoteservices", "*", "api", "key"];
    let mut names = key.split('.').zip(secret);
    names.all(|(name, secret)| secret == "*" || name.eq_ignore_ascii_case(secret))
}

/// `config/profile/apply?arg=profile`: fails, since the configuration is read-only.
pub(super) async fn apply_profile(args: Args) -> CommandResult {
    let profile = args.text_at(0);
    let why =
        format!("{profile} is not a profile: ipfrs has none, change config.toml of the repo and restart the daemon");
    Err(Error::unsupported(why).into())
}

/// `config/replace`: fails, since the configuration is read-only.
pub(super) async fn replace() -> CommandResult {
    let why =
        "the configuration cannot be replaced through the API: change config.toml of the repo and restart the daemon";
    Err(Error::unsupported(why).into())
}

/// `config/show`: returns the values of all keys.
pub(super) async fn show(State(state): State<AppState>) -> CommandResult {
    Ok(output::object(effective(&state).await?))
}

/// Returns the value at a path of names, with Kubo's errors.
fn find(config: &Value, key: &str) -> Result<Value> {
    let failed = |why: String| Error::not_found(format!("failed to get config value: {why:?}"));
    let (mut value, mut path) = (config, String::new());
    for name in key.split('.') {
        let Some(map) = value.as_object() else { return Err(failed(format!("{path} key is not a map"))) };
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        value = map.get(name).ok_or_else(|| failed(format!("{path} not found")))?;
    }
    Ok(value.clone())
}

/// Returns the effective configuration by Kubo's names: the keys with an equivalent in ipfrs, and no others.
///
/// # Errors
/// [`ErrorKind::NotFound`](ipfrs_core::ErrorKind) in a program that embeds the gateway and has the configuration
/// itself.
async fn effective(state: &AppState) -> Result<Value> {
    let pinning_services = state.node.pinning_services().await?;
    let why = "the program that embeds this gateway has its configuration";
    let text = state.configuration.get().ok_or_else(|| Error::not_found(why))?;
    let own: Value =
        serde_json::from_str(text).map_err(|e| Error::internal("the configuration is not JSON").with_source(e))?;
    let at = |pointer: &str| own.pointer(pointer).cloned().unwrap_or_default();
    let is_set = |pointer: &str| at(pointer) == json!(true);
    let host = at("/server/host");
    let gateway = tcp_multiaddr(host.as_str().unwrap_or_default(), state.port);
    let api = state.api_addresses.get().and_then(|addresses| addresses.first()?.rsplit_once(':'));
    let api = api.map(|(host, port)| tcp_multiaddr(host, port));
    let peers = swarm::steady_peers(&state.node);
    let max_bytes = at("/store/max_bytes").as_u64().filter(|bytes| *bytes > 0);
    let routers = at("/retrieval/routers");
    let has_routers = routers.as_array().is_some_and(|routers| !routers.is_empty());
    let services: Map<String, Value> = pinning_services
        .into_iter()
        .map(|service| (service.name, json!({ "API": { "Endpoint": service.endpoint } })))
        .collect();
    let seconds = |pointer: &str| at(pointer).as_u64().map(|seconds| format!("{seconds}s"));
    let import = state.node.default_import_options()?;
    let sharding = import.sharding();
    Ok(json!({
        "API": { "HTTPHeaders": at("/api/http_headers") },
        "Addresses": {
            // Without a listener of its own, the API is served with the gateway.
            "API": api.as_ref().unwrap_or(&gateway),
            "Gateway": gateway,
            "Swarm": state.node.listen_addresses(),
            "Announce": at("/retrieval/bitswap/announce"),
        },
        "Bootstrap": [],
        "Datastore": {
            "StorageMax": max_bytes.map_or_else(String::new, |bytes| format!("{bytes}B")),
            "HashOnRead": at("/store/verify_on_read"),
        },
        "Experimental": { "FilestoreEnabled": state.node.has_filestore() },
        "Gateway": {
            "NoFetch": !is_set("/retrieval/enabled"),
            "NoDNSLink": !is_set("/dns/enabled"),
            "DeserializedResponses": at("/gateway/deserialized"),
            "ExposeRoutingAPI": true,
            "RetrievalTimeout": seconds("/gateway/retrieval_timeout_seconds"),
            "MaxRequestDuration": seconds("/gateway/max_request_seconds"),
            "MaxConcurrentRequests": at("/gateway/max_concurrent_requests"),
            "MaxRangeRequestFileSize": at("/gateway/max_range_request_bytes"),
        },
        "Identity": { "PeerID": state.node.identity().peer_id() },
        "Import": {
            "CidVersion": import.cid_version(),
            "HashFunction": import.hash().name(),
            "UnixFSRawLeaves": import.raw_leaves(),
            "UnixFSChunker": import.chunker().to_string(),
            "UnixFSDAGLayout": import.layout(),
            "UnixFSFileMaxLinks": import.max_file_links(),
            "UnixFSDirectoryMaxLinks": sharding.max_links.unwrap_or(0),
            "UnixFSHAMTDirectoryMaxFanout": sharding.fanout,
            "UnixFSHAMTDirectorySizeThreshold": format!("{}B", sharding.threshold_bytes),
            "UnixFSHAMTDirectorySizeEstimation": sharding.size,
        },
        "Internal": { "MFSNoFlushLimit": at("/mutable_files/max_unflushed") },
        "Ipns": { "RecordLifetime": seconds("/ipns/record_lifetime_seconds") },
        "Peering": { "Peers": (!peers.is_empty()).then_some(peers) },
        "Pinning": { "RemoteServices": services },
        "Provide": { "Enabled": false },
        "Routing": { "Type": if has_routers { "delegated" } else { "none" }, "DelegatedRouters": routers },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_to_values_or_to_errors_of_kubo() {
        let config = json!({ "Addresses": { "API": "a", "Swarm": ["b"] } });
        assert_eq!(find(&config, "Addresses.API").unwrap(), json!("a"));
        assert_eq!(find(&config, "Addresses.Swarm").unwrap(), json!(["b"]));
        for (key, why) in [
            ("Nope", "Nope not found"),
            ("Addresses.Nope", "Addresses.Nope not found"),
            ("addresses.API", "addresses not found"),
            ("Addresses.Swarm.0", "Addresses.Swarm key is not a map"),
            ("", " not found"),
        ] {
            let message = find(&config, key).unwrap_err().to_string();
            assert_eq!(message, format!("failed to get config value: {why:?}"), "{key}");
        }
    }
}
