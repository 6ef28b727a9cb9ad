//! The configuration of Kubo in terms of this daemon's, in both directions.
//!
//! [`show`] writes the settings of this daemon by Kubo's names, [`translate`] reads a configuration of Kubo, and
//! [`changes`] finds what a change of Kubo's configuration changes here.

mod forms;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use self::forms::Form;

pub use self::forms::{is_public_bootstrap, size_text, tcp_multiaddr};

/// A setting of Kubo, and where and how this daemon's configuration has it.
struct Setting {
    kubo: &'static str,
    own: &'static str,
    form: Form,
}

const fn setting(kubo: &'static str, own: &'static str, form: Form) -> Setting {
    Setting { kubo, own, form }
}

/// All settings of Kubo that have an equivalent.
const SETTINGS: &[Setting] = &[
    setting("API.HTTPHeaders", "api", Form::Headers),
    setting("Addresses.API", "api", Form::ApiListener),
    setting("Addresses.Announce", "retrieval.bitswap.announce", Form::Same),
    setting("Addresses.Gateway", "server", Form::Listener),
    setting("Addresses.Swarm", "retrieval.bitswap", Form::Swarm),
    setting("Bitswap.ServerEnabled", "retrieval.bitswap.serve", Form::Same),
    setting("Bootstrap", "retrieval.bitswap.bootstrap", Form::Bootstrap),
    setting("DNS.MaxCacheTTL", "dns.max_ttl_seconds", Form::Seconds),
    setting("DNS.Resolvers", "dns", Form::Resolvers),
    setting("Datastore.HashOnRead", "store.verify_on_read", Form::Same),
    setting("Datastore.StorageMax", "store.max_bytes", Form::Size),
    setting("Experimental.FilestoreEnabled", "store.filestore_root", Form::Filestore),
    setting("Gateway.DeserializedResponses", "gateway.deserialized", Form::Same),
    setting("Gateway.MaxConcurrentRequests", "gateway.max_concurrent_requests", Form::Same),
    setting("Gateway.MaxRangeRequestFileSize", "gateway.max_range_request_bytes", Form::Size),
    setting("Gateway.MaxRequestDuration", "gateway.max_request_seconds", Form::Seconds),
    setting("Gateway.NoDNSLink", "dns.enabled", Form::Not),
    setting("Gateway.NoFetch", "retrieval.enabled", Form::Not),
    setting("Gateway.PublicGateways", "gateway.hosts", Form::Hosts),
    setting("Gateway.RetrievalTimeout", "gateway.retrieval_timeout_seconds", Form::Seconds),
    setting("Gateway.RootRedirect", "gateway.root_redirect", Form::Path),
    setting("Import.CidVersion", "import.cid_version", Form::Same),
    setting("Import.HashFunction", "import.hash", Form::Same),
    setting("Import.UnixFSChunker", "import.chunker", Form::Same),
    setting("Import.UnixFSDAGLayout", "import.layout", Form::Same),
    setting("Import.UnixFSDirectoryMaxLinks", "import.max_directory_links", Form::Same),
    setting("Import.UnixFSFileMaxLinks", "import.max_file_links", Form::Same),
    setting("Import.UnixFSHAMTDirectoryMaxFanout", "import.max_hamt_fanout", Form::Same),
    setting("Import.UnixFSHAMTDirectorySizeEstimation", "import.directory_size", Form::Same),
    setting("Import.UnixFSHAMTDirectorySizeThreshold", "import.sharding_threshold_bytes", Form::Threshold),
    setting("Import.UnixFSRawLeaves", "import.raw_leaves", Form::Same),
    setting(
        "Internal.Bitswap.MaxOutstandingBytesPerPeer",
        "retrieval.bitswap.max_outstanding_bytes_per_peer",
        Form::Same,
    ),
    setting("Internal.MFSNoFlushLimit", "mutable_files.max_unflushed", Form::Limit),
    setting("Ipns.MaxCacheTTL", "ipns.max_cache_ttl_seconds", Form::Seconds),
    setting("Ipns.RecordLifetime", "ipns.record_lifetime_seconds", Form::Seconds),
    setting("Peering.Peers", "retrieval.bitswap.peers", Form::Peers),
    setting("Routing.DelegatedRouters", "retrieval.routers", Form::Texts),
];

/// Settings of Kubo that have only this value here.
fn fixed() -> [(&'static str, Value); 18] {
    [
        ("AutoConf.Enabled", json!(false)),
        ("AutoNAT.ServiceMode", json!("disabled")),
        ("AutoTLS.Enabled", json!(false)),
        ("Datastore.BloomFilterSize", json!(0)),
        ("Datastore.GCPeriod", json!("")),
        ("Datastore.StorageGCWatermark", json!(0)),
        ("Discovery.MDNS.Enabled", json!(false)),
        ("Experimental.Libp2pStreamMounting", json!(false)),
        ("Experimental.P2pHttpProxy", json!(false)),
        ("Experimental.UrlstoreEnabled", json!(false)),
        ("Gateway.ExposeRoutingAPI", json!(true)),
        ("Ipns.UsePubsub", json!(false)),
        ("Provide.Enabled", json!(false)),
        ("Pubsub.Enabled", json!(false)),
        ("Swarm.DisableNatPortMap", json!(true)),
        ("Swarm.EnableHolePunching", json!(false)),
        ("Swarm.RelayClient.Enabled", json!(false)),
        ("Swarm.RelayService.Enabled", json!(false)),
    ]
}

/// Setting of Kubo whose value follows from others here. [`show`] leaves it to its caller.
const DERIVED: &str = "Routing.Type";

/// Maximum number of names in a key. Kubo's keys have at most six.
const MAX_NAMES: usize = 16;

/// Sections of Kubo's configuration without any setting of this daemon.
const OTHER_SECTIONS: &[&str] =
    &["HTTPRetrieval", "Migration", "Mounts", "Pinning", "Plugins", "Provider", "Reprovider", "Version"];

/// Path of a setting of this daemon: its section, its key, and names within tables.
pub type Key = Vec<String>;

/// A configuration of Kubo in terms of this daemon's.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Settings of this daemon. Fields of an object replace those of the table that is there; `null` removes one.
    pub settings: BTreeMap<Key, Value>,
    /// Settings of Kubo without an equivalent for their value.
    pub others: BTreeMap<String, Value>,
}

impl Translation {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.settings.insert(key.split('.').map(str::to_owned).collect(), value.into());
    }

    /// Sets a name in a table, which may contain any characters.
    fn set_in(&mut self, table: &str, name: &str, value: impl Into<Value>) {
        let path = table.split('.').chain([name]).map(str::to_owned).collect();
        self.settings.insert(path, value.into());
    }

    fn leave(&mut self, key: impl Into<String>, value: &Value) {
        self.others.insert(key.into(), value.clone());
    }
}

/// A change of one setting of this daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub key: Key,
    /// The new value, in which fields of an object are as in [`Translation::settings`]. `None` removes the setting, so
    /// that its default applies.
    pub value: Option<Value>,
}

/// Returns this daemon's settings by Kubo's names: those with an equivalent, and those that never differ. `own` is the
/// configuration as tables.
#[must_use]
pub fn show(own: &Value) -> Value {
    let mut kubo = json!({});
    for setting in SETTINGS {
        let value = setting.form.show(own.pointer(&pointer(setting.own)).unwrap_or(&Value::Null));
        put(&mut kubo, setting.kubo, value);
    }
    for (key, value) in fixed() {
        put(&mut kubo, key, value);
    }
    kubo
}

/// Reads a configuration of Kubo. If it has a filestore, `filestore_root` is the directory of its files, if that is
/// known.
#[must_use]
pub fn translate(kubo: &Value, filestore_root: Option<&str>) -> Translation {
    let mut translation = Translation::default();
    for setting in SETTINGS {
        let value = kubo.pointer(&pointer(setting.kubo)).filter(|value| !value.is_null());
        if let Some(value) = value {
            setting.form.read(setting, value, filestore_root, &mut translation);
        }
    }
    leave_others(&mut Vec::new(), kubo, &mut translation);
    translation
}

/// Returns the changes of this daemon's configuration, which is `own`, that follow from a change of Kubo's. The setting
/// with the key `named` counts as changed in any case.
///
/// # Errors
/// The changed settings of Kubo that have no equivalent.
pub fn changes(
    own: &Value,
    before: &Value,
    after: &Value,
    named: Option<&str>,
    filestore_root: &str,
) -> Result<Vec<Change>, Vec<String>> {
    let filestore_root = Some(filestore_root);
    let (old, new) = (translate(before, filestore_root), translate(after, filestore_root));
    // A setting that is left out has its default, which is the only value here.
    let has_default = |key: &str| key == DERIVED || fixed().iter().any(|(fixed, _)| *fixed == key);
    let is_default = |key: &str| !new.others.contains_key(key) && has_default(key);
    let differing = |key: &&String| old.others.get(*key) != new.others.get(*key) && !is_default(key);
    let mut without: Vec<_> = old.others.keys().chain(new.others.keys()).filter(differing).cloned().collect();
    without.sort_unstable();
    without.dedup();
    if !without.is_empty() {
        return Err(without);
    }
    let mut changes = Vec::new();
    for setting in SETTINGS {
        let pointer = pointer(setting.kubo);
        let value_in = |kubo: &Value| kubo.pointer(&pointer).cloned().unwrap_or_default();
        let read = |value: Value| {
            let mut translation = Translation::default();
            if !value.is_null() {
                setting.form.read(setting, &value, filestore_root, &mut translation);
            }
            translation.settings
        };
        let (old, new) = (value_in(before), value_in(after));
        if old == new && named != Some(setting.kubo) {
            continue;
        }
        let (old, new) = (read(old), read(new));
        let removed = old.into_keys().filter(|key| !new.contains_key(key)).map(|key| Change { key, value: None });
        changes.extend(removed);
        let set = new.into_iter().filter(|(key, value)| !applies(own.pointer(&pointer_of(key)), value));
        changes.extend(set.map(|(key, value)| Change { key, value: Some(value) }));
    }
    Ok(changes)
}

/// Whether a setting already has a value.
fn applies(own: Option<&Value>, value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().all(|(name, field)| applies(own.and_then(|own| own.get(name)), field)),
        Value::Null => own.is_none_or(Value::is_null),
        value => own == Some(value),
    }
}

/// Adds all settings of Kubo that have no equivalent, whatever their value. Empty ones say nothing.
fn leave_others<'a>(path: &mut Vec<&'a str>, value: &'a Value, translation: &mut Translation) {
    if SETTINGS.iter().any(|setting| setting.kubo.split('.').eq(path.iter().copied())) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(name);
                leave_others(path, value, translation);
                path.pop();
            }
        }
        Value::Null => {}
        Value::Array(values) if values.is_empty() => {}
        Value::String(text) if text.is_empty() => {}
        value => translation.leave(path.join("."), value),
    }
}

/// Whether a key is one of a setting that is known here, or of tables above or below one.
#[must_use]
pub fn is_known(key: &str) -> bool {
    let is_part = |known: &str| known.split('.').zip(key.split('.')).all(|(a, b)| a == b);
    SETTINGS.iter().any(|setting| is_part(setting.kubo)) || fixed().iter().any(|(known, _)| is_part(known))
}

/// Whether Kubo's configuration has a section of this name, none of whose settings corresponds to one of this daemon.
#[must_use]
pub fn has_section(name: &str) -> bool {
    OTHER_SECTIONS.contains(&name)
}

/// Sets a value of Kubo's configuration, whose names are separated by points.
///
/// # Errors
/// The reason, if the beginning of the key has a value that is not a table, or it is not a key.
pub fn put_key(kubo: &mut Value, key: &str, value: Value) -> Result<(), String> {
    if key.split('.').count() > MAX_NAMES || key.split('.').any(str::is_empty) {
        return Err(format!("the key has empty names, or more than {MAX_NAMES}"));
    }
    let mut at = kubo;
    let mut path = String::new();
    for name in key.split('.') {
        if at.is_null() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(fields) = at else { return Err(format!("{path} key is not a map")) };
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
        at = fields.entry(name).or_insert(Value::Null);
    }
    *at = value;
    Ok(())
}

/// Same as [`put_key`], for a key of the tables above.
fn put(kubo: &mut Value, key: &str, value: Value) {
    let done = put_key(kubo, key, value);
    debug_assert!(done.is_ok(), "{key} is below another key");
}

fn pointer(key: &str) -> String {
    format!("/{}", key.replace('.', "/"))
}

fn pointer_of(key: &Key) -> String {
    key.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

#[cfg(test)]
mod tests;
