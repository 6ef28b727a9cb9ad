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
    let localhost = ["gateway", "hosts", "localhost"].map(str::to_owned).to_vec();
    let hosts = config.pointer("/Gateway/PublicGateways").and_then(Value::as_object);
    if hosts.is_none_or(|hosts| !hosts.contains_key("localhost")) {
        // Kubo's own default.
        settings.insert(localhost, json!({ "subdomains": true }));
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
    report.configuration.push_str(&users(&config)?);
    // Keys of services stay out of the report.
    let services = config.pointer("/Pinning/RemoteServices").and_then(Value::as_object);
    for (name, service) in services.into_iter().flatten() {
        let endpoint = service.pointer("/API/Endpoint").and_then(Value::as_str).unwrap_or_default();
        let command = format!("ipfrs-cli pin remote service add {name:?} {endpoint} KEY");
        report.without_equivalent.push(format!("Pinning.RemoteServices.{name}: run {command}"));
    }
    let is_mapped =
        |key: &str| ["API.Authorizations", "Pinning.RemoteServices"].iter().any(|known| key.starts_with(known));
    let is_own = |key: &str| OWN_SECTIONS.iter().any(|section| key.split('.').next() == Some(section));
    let is_default = |key: &str| DEFAULTS.iter().any(|known| key == *known || key.starts_with(&format!("{known}.")));
    let left = translation
        .others
        .into_iter()
        .filter(|(key, value)| !is_mapped(key) && !is_own(key) && !is_default(key) && *value != json!(false));
    report.without_equivalent.extend(left.map(|(key, value)| format!("{key} = {value}")));
    Ok(changes)
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
