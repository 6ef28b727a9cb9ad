//! The configuration: what Kubo's settings correspond to.

use anyhow::Result;
use ipfrs_interface::{Config, Sources};
use ipfrs_rpc::client::Request;
use ipfrs_rpc::kubo_config::{Change, translate};
use serde_json::{Value, json};

use super::Report;
use super::source::Source;

/// Sections of Kubo that say nothing about how ipfrs is to work: keys, formats, versions and paths of its repo.
const OWN_SECTIONS: &[&str] = &["Identity", "Datastore", "Mounts", "Migration", "Version", "Provider", "AutoConf"];
/// Default values that appear in every configuration.
const DEFAULTS: &[&str] = &[
    "Addresses.Swarm",
    "Bootstrap",
    "Discovery.MDNS.Enabled",
    "DNS.Resolvers",
    "Routing.DelegatedRouters",
    "Ipns.DelegatedPublishers",
    "Ipns.ResolveCacheSize",
];

/// Finds out what the configuration corresponds to. Returns what can be written to ours, without secrets.
pub(super) async fn compare(source: &Source, report: &mut Report) -> Result<Vec<Change>> {
    let config: Value = match source {
        Source::Repo(repo, _) => repo.config.clone(),
        Source::Rpc(kubo) => kubo.call(Request::query("config/show")).await?.json().await?,
    };
    // Only with the repo at hand is the directory known in which the files of its filestore are.
    let root = match source {
        Source::Repo(repo, _) => repo.parent().map(|root| root.display().to_string()),
        Source::Rpc(_) => None,
    };
    let translation = translate(&config, root.as_deref());
    let mut settings = translation.settings;
    let localhost = path("gateway.hosts.localhost");
    let hosts = config.pointer("/Gateway/PublicGateways").and_then(Value::as_object);
    if hosts.is_none_or(|hosts| !hosts.contains_key("localhost")) {
        // Kubo's own default.
        settings.insert(localhost, json!({ "subdomains": true }));
    }
    let mut secret = None;
    if let Source::Repo(repo, _) = source {
        let lists: Vec<_> = repo.denylists().iter().map(|path| path.display().to_string()).collect();
        if !lists.is_empty() {
            settings.insert(path("gateway.denylists"), json!(lists));
            let text = "denylists: gateway.denylists names the files of Kubo, which must stay where they are";
            report.without_equivalent.push(text.to_owned());
        }
        secret = match repo.swarm_key() {
            Ok(key) => key,
            Err(error) => {
                report.fail(format!("retrieval.bitswap.private_network_key: {error:#}"));
                // Without the key, the content would be open to all peers.
                settings.retain(|key, _| !key.starts_with(&path("retrieval.bitswap")));
                None
            }
        };
        if let Some(key) = &secret {
            // In its own network, no peer without the key may get anything.
            settings.insert(path("retrieval.bitswap.private_network_key"), json!(key));
        }
    }
    if matches!(source, Source::Rpc(_)) {
        let text = "swarm.key and denylists: Kubo's RPC does not show them; see whether its repo has them";
        report.without_equivalent.push(text.to_owned());
    }
    let mut changes = Vec::new();
    for (key, value) in settings {
        let name = key.join(".");
        changes.push(Change { key, value: Some(value) });
        if let Err(error) = checked(&changes) {
            changes.pop();
            report.without_equivalent.push(format!("{name}: {error}"));
        }
    }
    report.configuration = Config::text_of(&changes)?;
    if let Some(key) = secret.filter(|key| !key.is_empty()) {
        report.configuration = report.configuration.replace(&key, "***");
    }
    report.configuration.push_str(&users(&config)?);
    // Keys of services stay out of the report.
    let services = config.pointer("/Pinning/RemoteServices").and_then(Value::as_object);
    for (name, service) in services.into_iter().flatten() {
        let endpoint = service.pointer("/API/Endpoint").and_then(Value::as_str).unwrap_or_default();
        let command = format!("ipfrs-cli pin remote service add {name:?} {endpoint} KEY");
        report.without_equivalent.push(format!("Pinning.RemoteServices.{name}: run {command}"));
    }
    let mapped = ["API.Authorizations", "Pinning.RemoteServices"];
    let is_mapped = |key: &str| mapped.iter().any(|known| key.starts_with(known));
    let is_own = |key: &str| OWN_SECTIONS.iter().any(|section| key.split('.').next() == Some(section));
    let is_default = |key: &str| DEFAULTS.iter().any(|known| key == *known || key.starts_with(&format!("{known}.")));
    let left = translation
        .others
        .into_iter()
        .filter(|(key, _)| !is_mapped(key) && !is_own(key) && !is_default(key))
        .filter(|(key, value)| *value != json!(false) || !is_false_by_default(key));
    report.without_equivalent.extend(left.map(|(key, value)| format!("{key} = {value}")));
    Ok(changes)
}

/// Whether `false` is the default of a setting.
fn is_false_by_default(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or_default();
    key.starts_with("Experimental.") || ["No", "Disable", "Expose", "Use"].iter().any(|word| name.starts_with(word))
}

/// Returns the key of a setting as a list of names.
fn path(key: &str) -> Vec<String> {
    key.split('.').map(str::to_owned).collect()
}

/// Checks that a configuration with these changes is accepted.
fn checked(changes: &[Change]) -> Result<()> {
    let text = Some(Config::text_of(changes)?);
    Config::load(&Sources { text, ..Sources::default() })?;
    Ok(())
}

/// Returns the section for users of single commands, whose secrets stay out of the report.
fn users(config: &Value) -> Result<String> {
    let users = config.pointer("/API/Authorizations").and_then(Value::as_object);
    let Some(users) = users.filter(|users| !users.is_empty()) else { return Ok(String::new()) };
    let key = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut changes = vec![Change { key: key(&["auth", "enabled"]), value: Some(json!(true)) }];
    changes.extend(users.iter().map(|(name, user)| {
        let paths: Vec<_> = user["AllowedPaths"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let value = json!({ "secret": format!("AuthSecret of {name}"), "paths": paths });
        Change { key: key(&["auth", "rpc", name]), value: Some(value) }
    }));
    Ok(format!("\n{}", Config::text_of(&changes)?))
}
