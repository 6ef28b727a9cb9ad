//! `config` and its subcommands: the configuration in Kubo's terms. Changes go to the configuration file, and apply
//! after a restart, as in Kubo.

mod profiles;

use axum::extract::{Request, State};
use axum::response::IntoResponse;
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::ImportConfig;
use ipfrs_rpc::kubo_config::{changes, has_section, is_known, put_key, show as in_kubos_terms, size_text};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::args::Args;
use super::command_result::CommandResult;
use super::multipart::one_file;
use super::output;
use crate::configuration::Shown;
use crate::error::rpc_not_set;
use crate::state::AppState;

/// Maximum length of a configuration in `config/replace`, in bytes.
const MAX_BYTES: usize = 1024 * 1024;
/// Why a key of Kubo cannot be set.
const NO_SETTING: &str = "no setting of config.toml corresponds to this value";
/// Maximum number of settings that an error names.
const MAX_NAMED: usize = 8;

/// `config?arg=key[&arg=value][&json=true][&bool=true]`: returns the value of a key, after setting it if there is one.
pub(super) async fn get(State(state): State<AppState>, args: Args) -> CommandResult {
    let (key, value) = match args.required("key")? {
        [key] => (key.clone(), None),
        [key, value] => (key.clone(), Some(value.clone())),
        more => {
            return Err(Error::invalid(format!("{} arguments given, a key and a value expected", more.len())).into());
        }
    };
    check_secret(&key)?;
    let shown = shown(&state)?;
    let own = shown.next().await?;
    let before = effective(&state, shown, &own).await?;
    let Some(text) = value else {
        let value = find(&before, &key)?;
        return Ok(output::object(json!({ "Key": key, "Value": value })));
    };
    if args.is_set("expand-auto") {
        let why = "--expand-auto can only be used for reading config values, not for setting them";
        return Err(Error::unsupported(why).into());
    }
    let value = if args.is_set("json") {
        let why = |e: serde_json::Error| match e.is_eof() {
            true => Error::unsupported("failed to unmarshal json. unexpected end of JSON input"),
            false => Error::unsupported(format!("failed to unmarshal json. {e}")),
        };
        serde_json::from_str(&text).map_err(why)?
    } else if args.is_set("bool") {
        json!(text == "true")
    } else {
        json!(text)
    };
    let mut after = before.clone();
    put_key(&mut after, &key, value.clone()).map_err(|why| rpc_not_set(&Error::invalid(why)))?;
    if !is_known(&key) {
        let section = key.split('.').next().unwrap_or_default();
        if before.get(section).is_none() && !has_section(section) {
            return Err(rpc_not_set(&Error::invalid(format!("{section} not found: {NO_SETTING}"))).into());
        }
        return Err(without_equivalent(&[key]).into());
    }
    let new = apply(&state, &own, &before, &after, Some(&key)).await?;
    // Headers that the daemon sets itself are not shown.
    let value = find(&effective(&state, shown, &new).await?, &key).unwrap_or(value);
    Ok(output::object(json!({ "Key": key, "Value": value })))
}

/// `config/replace`: replaces all settings by those of the body, a configuration as `config/show` returns it.
pub(super) async fn replace(State(state): State<AppState>, request: Request) -> CommandResult {
    let text = one_file(&state.memory, request, "config", MAX_BYTES).await?;
    let mut after: Value = serde_json::from_slice(&text.bytes)
        .map_err(|e| Error::unsupported(format!("failed to decode file as config: {e}")))?;
    let shown = shown(&state)?;
    let own = shown.next().await?;
    let before = effective(&state, shown, &own).await?;
    if !after.is_object() {
        return Err(Error::unsupported("failed to decode file as config: it is not an object").into());
    }
    if after.pointer("/Identity/PrivKey").is_some_and(|key| *key != "") {
        return Err(Error::unsupported("setting private key with API is not supported").into());
    }
    if after.get("Pinning").is_some_and(|pinning| *pinning != before["Pinning"]) {
        return Err(Error::unsupported("cannot change remote pinning services with 'config replace'").into());
    }
    // The identity stays, as in Kubo.
    for kept in ["Identity", "Pinning"] {
        after[kept] = before[kept].clone();
    }
    apply(&state, &own, &before, &after, None).await?;
    Ok(().into_response())
}

/// `config/profile/apply?arg=profile[&dry-run=true]`: sets what a profile sets, if all of it has an equivalent.
pub(super) async fn apply_profile(State(state): State<AppState>, args: Args) -> CommandResult {
    let name = args.text_at(0);
    let shown = shown(&state)?;
    let own = shown.next().await?;
    let old = effective(&state, shown, &own).await?;
    let changes = profiles::changes(name, &own, &old)?;
    let is_dry = args.is_set("dry-run");
    if !is_dry {
        check_writable(shown)?;
    }
    let new = if changes.is_empty() { own } else { shown.change(changes, is_dry).await? };
    let new = effective(&state, shown, &new).await?;
    Ok(output::object(json!({ "OldCfg": old, "NewCfg": new })))
}

/// `config/show`: returns the values of all keys.
pub(super) async fn show(State(state): State<AppState>) -> CommandResult {
    let shown = shown(&state)?;
    let own = shown.next().await?;
    Ok(output::object(effective(&state, shown, &own).await?))
}

/// Returns the configuration, if there is one that can be read.
pub(super) fn shown(state: &AppState) -> Result<&Shown> {
    let why = "the program that embeds this gateway has its configuration";
    state.configuration.get().ok_or_else(|| Error::not_found(why))
}

/// Refuses to change the configuration of a repo that is read-only.
pub(super) fn check_writable(shown: &Shown) -> Result<()> {
    match shown.running()?.pointer("/store/read_only") == Some(&json!(true)) {
        true => Err(Error::new(ErrorKind::Forbidden, "the repo is read-only, and so is its configuration")),
        false => Ok(()),
    }
}

/// Refuses keys whose values contain secrets, as Kubo does.
fn check_secret(key: &str) -> Result<()> {
    let is_below = |path: &[&str]| {
        let mut names = key.split('.').zip(path);
        names.all(|(name, secret)| *secret == "*" || name.eq_ignore_ascii_case(secret))
    };
    if is_below(&["identity"]) && !key.eq_ignore_ascii_case("identity.peerid") {
        return Err(Error::unsupported("cannot show or change private key through API"));
    }
    if key.contains('.') && is_below(&["api", "authorizations"]) {
        return Err(Error::unsupported(
            "cannot show or change API authorizations through API: see auth.rpc of config.toml",
        ));
    }
    if is_below(&["pinning", "remoteservices", "*", "api", "key"]) {
        return Err(Error::unsupported("cannot show or change pinning services credentials"));
    }
    Ok(())
}

fn without_equivalent(keys: &[String]) -> Error {
    let named = keys.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = keys.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    rpc_not_set(&Error::invalid(format!("{named}{more}: {NO_SETTING}")))
}

/// Changes the configuration from `before` to `after`, both in Kubo's terms. Returns the new one in ours, of which
/// `own` is the old one.
async fn apply(state: &AppState, own: &Value, before: &Value, after: &Value, named: Option<&str>) -> Result<Value> {
    let root = state.node.repo().parent().map(|parent| parent.display().to_string()).unwrap_or_default();
    let changes = changes(own, before, after, named, &root).map_err(|without| without_equivalent(&without))?;
    if changes.is_empty() {
        return Ok(own.clone());
    }
    let shown = shown(state)?;
    check_writable(shown)?;
    shown.change(changes, false).await.map_err(|e| rpc_not_set(&e))
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

/// Returns the configuration by Kubo's names: the keys with an equivalent in ipfrs, and no others. `own` is the
/// configuration in our terms.
async fn effective(state: &AppState, shown: &Shown, own: &Value) -> Result<Value> {
    let mut own = own.clone();
    let running = shown.running()?;
    // Listeners have the ports that the system chose for them.
    let is_unchanged = |section: &str, keys: &[&str]| {
        let at = |config: &Value, key: &str| config.pointer(&format!("{section}/{key}")).cloned();
        keys.iter().all(|key| at(&own, key) == at(&running, key))
    };
    let is_gateway = is_unchanged("/server", &["host", "port"]);
    let is_api = is_unchanged("/api", &["enabled", "host", "port", "unix_socket"]);
    let is_swarm = is_unchanged("/retrieval/bitswap", &["enabled", "listen"]);
    if is_gateway {
        own["server"]["port"] = json!(state.port);
    }
    let api = state.api_addresses.get().and_then(|addresses| addresses.first()?.rsplit_once(':'));
    if let (Some((_, port)), true) = (api, is_api) {
        own["api"]["port"] = json!(port.parse::<u16>().ok());
    }
    if is_swarm && own["retrieval"]["bitswap"]["enabled"] == json!(true) {
        own["retrieval"]["bitswap"]["listen"] = json!(state.node.listen_addresses());
    }
    let mut kubo = in_kubos_terms(&own);
    // Without a listener of its own, the API is served with the gateway.
    if is_api && api.is_none() {
        kubo["Addresses"]["API"] = kubo["Addresses"]["Gateway"].clone();
    }
    let import = ImportConfig::deserialize(&own["import"])
        .map_err(|e| Error::internal("the configuration of imports is invalid").with_source(e))?
        .options()?;
    let sharding = import.sharding();
    kubo["Import"] = json!({
        "CidVersion": import.cid_version(),
        "HashFunction": import.hash().name(),
        "UnixFSRawLeaves": import.raw_leaves(),
        "UnixFSChunker": import.chunker().to_string(),
        "UnixFSDAGLayout": import.layout(),
        "UnixFSFileMaxLinks": import.max_file_links(),
        "UnixFSDirectoryMaxLinks": sharding.max_links.unwrap_or(0),
        "UnixFSHAMTDirectoryMaxFanout": sharding.fanout,
        "UnixFSHAMTDirectorySizeThreshold": size_text(sharding.threshold_bytes as u64),
        "UnixFSHAMTDirectorySizeEstimation": sharding.size,
    });
    let services: Map<String, Value> = state
        .node
        .pinning_services()
        .await?
        .into_iter()
        .map(|service| (service.name, json!({ "API": { "Endpoint": service.endpoint } })))
        .collect();
    kubo["Pinning"] = json!({ "RemoteServices": services });
    kubo["Identity"] = json!({ "PeerID": state.node.identity().peer_id() });
    let has_routers = own.pointer("/retrieval/routers").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    kubo["Routing"]["Type"] = json!(if has_routers { "delegated" } else { "none" });
    Ok(kubo)
}
