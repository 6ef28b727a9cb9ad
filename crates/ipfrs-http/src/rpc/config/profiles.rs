//! Profiles of Kubo's configuration: those that have an equivalent here, and why others have none.

use std::net::TcpListener;

use ipfrs_core::{Error, Result};
use ipfrs_rpc::kubo_config::{Change, changes as changes_here, put_key};
use serde_json::{Value, json};

/// Keys of `[import]` that override its profile.
const OVERRIDES: [&str; 10] = [
    "cid_version",
    "raw_leaves",
    "chunker",
    "hash",
    "layout",
    "max_file_links",
    "sharding_threshold_bytes",
    "directory_size",
    "max_directory_links",
    "max_hamt_fanout",
];

/// Returns what a profile changes. `own` is the configuration, and `kubo` the same in Kubo's terms.
///
/// # Errors
/// The profile is unknown, or it sets something that has no equivalent.
pub(super) fn changes(name: &str, own: &Value, kubo: &Value) -> Result<Vec<Change>> {
    let settings = match name {
        "unixfs-v0-2015" | "legacy-cid-v0" => return Ok(of_imports("unixfs-v0-2015")),
        "unixfs-v1-2025" => return Ok(of_imports(name)),
        // The daemon announces nothing in any case.
        "announce-off" => Vec::new(),
        "autoconf-off" => {
            vec![("Bootstrap", json!([])), ("DNS.Resolvers", json!({})), ("Routing.DelegatedRouters", json!([]))]
        }
        "randomports" => vec![("Addresses.Swarm", json!(random_addresses(own)?))],
        "test" => vec![
            ("Addresses.API", json!("/ip4/127.0.0.1/tcp/0")),
            ("Addresses.Gateway", json!("/ip4/127.0.0.1/tcp/0")),
            ("Addresses.Swarm", json!(if has_peers(own) { vec!["/ip4/127.0.0.1/tcp/0"] } else { Vec::new() })),
            ("Bootstrap", json!([])),
            ("DNS.Resolvers", json!({})),
            ("Routing.DelegatedRouters", json!([])),
        ],
        name => return Err(refusal(name)),
    };
    let mut after = kubo.clone();
    for (key, value) in settings {
        put_key(&mut after, key, value).map_err(Error::internal)?;
    }
    let unsupported = |keys: Vec<String>| {
        Error::unsupported(format!("{name} sets {}: no setting of config.toml corresponds to it", keys.join(", ")))
    };
    changes_here(own, kubo, &after, None, "").map_err(unsupported)
}

/// Returns the changes that select a profile of imports.
fn of_imports(profile: &str) -> Vec<Change> {
    let of = |key: &str| vec!["import".to_owned(), key.to_owned()];
    let removed = OVERRIDES.iter().map(|key| Change { key: of(key), value: None });
    [Change { key: of("profile"), value: Some(profile.into()) }].into_iter().chain(removed).collect()
}

fn has_peers(own: &Value) -> bool {
    own.pointer("/retrieval/bitswap/enabled") == Some(&json!(true))
}

/// Returns addresses for peers with a port that is free now, as Kubo chooses it.
fn random_addresses(own: &Value) -> Result<[String; 2]> {
    if !has_peers(own) {
        return Err(Error::unsupported("randomports: peers are disabled, set retrieval.bitswap.enabled = true"));
    }
    let failed = |e| Error::internal("no port is free").with_source(e);
    let port = TcpListener::bind(("::", 0)).or_else(|_| TcpListener::bind(("0.0.0.0", 0)));
    let port = port.and_then(|listener| listener.local_addr()).map_err(failed)?.port();
    Ok([format!("/ip4/0.0.0.0/tcp/{port}"), format!("/ip6/::/tcp/{port}")])
}

/// Returns the error of a profile without an equivalent.
fn refusal(name: &str) -> Error {
    let why = match name {
        "announce-on" => "the daemon announces its content nowhere",
        "autoconf-on" => "the daemon gets no settings from the network",
        "badgerds" | "badgerds-measure" | "default-datastore" | "flatfs" | "flatfs-measure" | "pebbleds"
        | "pebbleds-measure" => "there is one kind of store, whose settings are in [store]",
        "default-networking" => {
            "the daemon has no DHT, local discovery, port mapping or WebRTC: set server, api and retrieval.bitswap"
        }
        "local-discovery" => "the daemon does not look for peers in local networks: name them with swarm/peering/add",
        "lowpower" => "there is no DHT to leave, and connections have a limit: set retrieval.bitswap.max_peers",
        "server" => {
            "the daemon already looks for no peers and maps no ports, but it cannot filter addresses: use a firewall"
        }
        _ => return Error::unsupported(format!("{name} is not a profile")),
    };
    Error::unsupported(format!("the profile {name} has no equivalent: {why}"))
}
