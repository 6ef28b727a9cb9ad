//! The configuration: what Kubo's settings correspond to.

use anyhow::Result;
use ipfrs_interface::ImportConfig;
use ipfrs_rpc::client::Request;
use serde_json::Value;

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

/// Settings with an equivalent for most values.
const FURTHER: [(&str, Setting); 11] = [
    ("Import.CidVersion", Setting::Same("import.cid_version")),
    ("Import.UnixFSRawLeaves", Setting::Same("import.raw_leaves")),
    ("Import.UnixFSChunker", Setting::Chunker),
    ("Import.HashFunction", Setting::Same("import.hash")),
    ("Import.UnixFSDAGLayout", Setting::Same("import.layout")),
    ("Import.UnixFSFileMaxLinks", Setting::Same("import.max_file_links")),
    ("Import.UnixFSHAMTDirectorySizeEstimation", Setting::Same("import.directory_size")),
    ("Import.UnixFSHAMTDirectorySizeThreshold", Setting::Threshold),
    ("Import.UnixFSDirectoryMaxLinks", Setting::Same("import.max_directory_links")),
    ("Import.UnixFSHAMTDirectoryMaxFanout", Setting::Same("import.max_hamt_fanout")),
    ("Internal.MFSNoFlushLimit", Setting::Limit("mutable_files.max_unflushed")),
];

/// How a setting of Kubo is one of ours.
#[derive(Clone, Copy)]
enum Setting {
    /// The same value under this key.
    Same(&'static str),
    /// A chunker that the daemon accepts as a default.
    Chunker,
    /// A size above which directories are sharded, with a unit.
    Threshold,
    /// A number under this key, where 0 and less mean no limit.
    Limit(&'static str),
}

impl Setting {
    /// Returns the line of our configuration, if the value has an equivalent.
    fn of(self, value: &Value) -> Option<String> {
        match self {
            Self::Same(key) => Some(format!("{key} = {value}")),
            Self::Chunker => {
                let import = ImportConfig { chunker: value.as_str()?.parse().ok(), ..ImportConfig::default() };
                import.chunker?;
                import.validate().ok().map(|()| format!("import.chunker = {value}"))
            }
            Self::Threshold => {
                // In Kubo, 0 turns sharding off.
                let threshold = bytes(value.as_str()?)?;
                (threshold > 0).then(|| format!("import.sharding_threshold_bytes = {threshold}"))
            }
            Self::Limit(key) => value.as_i64().map(|limit| format!("{key} = {}", limit.max(0))),
        }
    }
}

pub(super) async fn compare(source: &Source, report: &mut Report) -> Result<()> {
    let config: Value = match source {
        Source::Repo(repo, _) => repo.config.clone(),
        Source::Rpc(kubo) => kubo.call(Request::query("config/show")).await?.json().await?,
    };
    let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str);
    if let Some((host, port)) = text("/Addresses/Gateway").and_then(address) {
        report.configuration.push(format!("server.host = {host:?}"));
        report.configuration.push(format!("server.port = {port}"));
    }
    if let Some((host, port)) = text("/Addresses/API").and_then(address) {
        report.configuration.push(format!("api.host = {host:?}"));
        report.configuration.push(format!("api.port = {port}"));
    }
    if let Some(bytes) = text("/Datastore/StorageMax").and_then(bytes) {
        report.configuration.push(format!("store.max_bytes = {bytes}"));
    }
    if let Some(is_on) = config.pointer("/Gateway/DeserializedResponses").and_then(Value::as_bool) {
        report.configuration.push(format!("gateway.deserialized = {is_on}"));
    }
    if config.pointer("/Experimental/FilestoreEnabled").and_then(Value::as_bool) == Some(true) {
        // Only with the repo at hand is its directory known, in which Kubo's files are.
        let root = match source {
            Source::Repo(repo, _) => repo.parent().map(|root| root.display().to_string()),
            Source::Rpc(_) => None,
        };
        let root = root.unwrap_or_else(|| "the directory that contains Kubo's repo".to_owned());
        report.configuration.push(format!("store.filestore_root = {root:?}"));
    }
    let headers = config.pointer("/API/HTTPHeaders").and_then(Value::as_object);
    for (name, values) in headers.into_iter().flatten() {
        let values: Vec<_> = values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match name.to_ascii_lowercase().as_str() {
            "access-control-allow-origin" => report.configuration.push(format!("api.allowed_origins = {values:?}")),
            // The daemon sets the other ones for these origins.
            lower if lower.starts_with("access-control-") => {}
            _ => report.configuration.push(format!("api.http_headers.{name:?} = {:?}", values.join(", "))),
        }
    }
    let hosts = config.pointer("/Gateway/PublicGateways").and_then(Value::as_object);
    if hosts.is_none_or(|hosts| !hosts.contains_key("localhost")) {
        // Kubo's own default.
        report.configuration.push("gateway.hosts.\"localhost\" = { subdomains = true }".to_owned());
    }
    for (host, settings) in hosts.into_iter().flatten() {
        let subdomains = settings["UseSubdomains"].as_bool().unwrap_or(false);
        let deserialized = settings["DeserializedResponses"].as_bool();
        let deserialized = deserialized.map(|is_on| format!(", deserialized = {is_on}")).unwrap_or_default();
        report.configuration.push(format!("gateway.hosts.{host:?} = {{ subdomains = {subdomains}{deserialized} }}"));
    }
    // Secrets stay out of the report.
    let users = config.pointer("/API/Authorizations").and_then(Value::as_object);
    if users.is_some_and(|users| !users.is_empty()) {
        report.configuration.push("auth.enabled = true".to_owned());
    }
    for (name, user) in users.into_iter().flatten() {
        let paths: Vec<_> = user["AllowedPaths"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let setting = format!("auth.rpc.{name:?} = {{ secret = \"AuthSecret of {name}\", paths = {paths:?} }}");
        report.configuration.push(setting);
    }
    let mut mapped = vec![
        "API.Authorizations",
        "Pinning.RemoteServices",
        "Experimental.FilestoreEnabled",
        "Gateway.DeserializedResponses",
        "Addresses.API",
        "Addresses.Gateway",
        "API.HTTPHeaders",
        "Gateway.PublicGateways",
    ];
    for (key, setting) in FURTHER {
        let value = config.pointer(&format!("/{}", key.replace('.', "/"))).filter(|value| !value.is_null());
        if let Some(setting) = value.and_then(|value| setting.of(value)) {
            report.configuration.push(setting);
            mapped.push(key);
        }
    }
    // Keys of services stay out of the report.
    let services = config.pointer("/Pinning/RemoteServices").and_then(Value::as_object);
    for (name, service) in services.into_iter().flatten() {
        let endpoint = service.pointer("/API/Endpoint").and_then(Value::as_str).unwrap_or_default();
        let command = format!("ipfrs-cli pin remote service add {name:?} {endpoint} KEY");
        report.without_equivalent.push(format!("Pinning.RemoteServices.{name}: run {command}"));
    }
    let mut settings = Vec::new();
    flatten("", &config, &mut settings);
    let is_mapped = |key: &str| mapped.iter().any(|known| key.starts_with(known));
    let is_own = |key: &str| OWN_SECTIONS.iter().any(|section| key.split('.').next() == Some(section));
    let is_default = |key: &str| DEFAULTS.iter().any(|known| key == *known || key.starts_with(&format!("{known}.")));
    let left = settings.into_iter().filter(|(key, _)| !is_mapped(key) && !is_own(key) && !is_default(key));
    report.without_equivalent.extend(left.map(|(key, value)| format!("{key} = {value}")));
    Ok(())
}

/// Returns all settings that have a value.
fn flatten(prefix: &str, value: &Value, settings: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&key, value, settings);
            }
        }
        Value::Null | Value::Bool(false) => {}
        Value::Array(values) if values.is_empty() => {}
        Value::String(text) if text.is_empty() => {}
        value => settings.push((prefix.to_owned(), value.to_string())),
    }
}

/// Reads `/ip4/127.0.0.1/tcp/8080`.
fn address(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.trim_start_matches('/').split('/');
    let (Some("ip4" | "ip6" | "dns" | "dns4" | "dns6"), Some(host), Some("tcp"), Some(port), None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    Some((host, port.parse().ok()?))
}

/// Reads `10GB`.
fn bytes(text: &str) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "ki" | "kib" => 1024.0,
        "mi" | "mib" => 1_048_576.0,
        "gi" | "gib" => 1_073_741_824.0,
        "ti" | "tib" => 1_099_511_627_776.0,
        _ => return None,
    };
    Some((number.parse::<f64>().ok()? * unit) as u64)
}
