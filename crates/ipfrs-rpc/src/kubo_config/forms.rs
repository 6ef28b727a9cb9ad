//! How values of Kubo's settings are written here.

use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::{Setting, Translation};
use crate::duration;

/// Port of the API if none is configured.
const API_PORT: u16 = 5001;
/// Stands for values that Kubo gets from its network.
const AUTO: &str = "auto";
/// Domain of the other public bootstrap peers: `bootstrap.libp2p.io` and `va1.bootstrap.libp2p.io`.
const PUBLIC_BOOTSTRAP_DOMAIN: &str = "bootstrap.libp2p.io";
/// The only bootstrap peer that older configurations of Kubo name by its IP address.
const PUBLIC_BOOTSTRAP_PEER: &str = "/p2p/QmaCpDMGvV2BGHeYERUEnRQAwe3N8SzbUtfsmvsqQLuvuJ";
/// The addresses of `localhost`.
const IPV4_LOOPBACK: &str = "127.0.0.1";
const IPV6_LOOPBACK: &str = "::1";
/// Kubo's name for the resolvers of all other domains.
const ROOT_DOMAIN: &str = ".";

/// How a setting of Kubo is one of ours.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    /// The same value: one of a scalar type, or a list of texts.
    Same,
    /// The opposite of a truth value.
    Not,
    /// A number, where 0 and less mean no limit, which is 0 here.
    Limit,
    /// A size, such as `10GB`, or a number of bytes, which it is here; 0 for no limit.
    Size,
    /// Same, except that 0 turns off in Kubo what is always on here.
    Threshold,
    /// A duration, such as `1h30m`; here a number of seconds.
    Seconds,
    /// A path; empty in Kubo if there is none.
    Path,
    /// A list of texts, without Kubo's placeholder.
    Texts,
    /// Addresses of peers, without those that introduce Kubo to its public network.
    Bootstrap,
    /// A multiaddr of TCP; here `host` and `port`.
    Listener,
    /// Multiaddrs of TCP and of a Unix socket; here also `enabled` and `unix_socket`.
    ApiListener,
    /// Multiaddrs of listeners, none if there are no peers; here `enabled` and `listen`.
    Swarm,
    /// Headers with lists of values, among them those for pages of other origins; here `allowed_origins` and
    /// `http_headers`.
    Headers,
    /// Public gateways by host name; here tables.
    Hosts,
    /// Peers with their addresses; here addresses that end with the peer.
    Peers,
    /// Resolvers by domain; here `resolvers` and `suffix_resolvers`.
    Resolvers,
    /// Whether there is a filestore; here its directory.
    Filestore,
}

impl Form {
    /// Adds what a value of Kubo is here.
    pub(super) fn read(self, setting: &Setting, value: &Value, root: Option<&str>, to: &mut Translation) {
        let (kubo, own) = (setting.kubo, setting.own);
        let read = match self {
            // A change with an empty table would change nothing.
            Self::Same if value.is_object() || value.is_array() && !are_texts(value) => None,
            Self::Same => Some(value.clone()),
            Self::Not => value.as_bool().map(|is_on| json!(!is_on)),
            Self::Limit => value.as_i64().map(|limit| json!(limit.max(0))),
            Self::Size => size(value).map(Value::from),
            Self::Threshold => size(value).filter(|bytes| *bytes > 0).map(Value::from),
            // The default.
            Self::Seconds if value == "" => return,
            // Fractions of a second are rounded up, so that a limit does not become none.
            Self::Seconds => {
                value.as_str().and_then(duration::parse).map(|d| json!(d.as_millis().div_ceil(1_000) as u64))
            }
            Self::Path if value == "" => return,
            Self::Path => value.as_str().map(Value::from),
            Self::Texts if texts(value).contains(&AUTO) => None,
            Self::Texts => are_texts(value).then(|| json!(texts(value))),
            Self::Bootstrap => return bootstrap(setting, value, to),
            Self::Filestore => match value.as_bool() {
                Some(true) => root.map(Value::from),
                Some(false) => return,
                None => None,
            },
            Self::Listener => return listener(setting, value, to),
            Self::ApiListener => return api_listener(setting, value, to),
            Self::Swarm => return swarm(setting, value, to),
            Self::Headers => return headers(setting, value, to),
            Self::Hosts => return hosts(setting, value, to),
            Self::Peers => return peers(setting, value, to),
            Self::Resolvers => return resolvers(setting, value, to),
        };
        match read {
            Some(value) => to.set(own, value),
            None => to.leave(kubo, value),
        }
    }

    /// Returns Kubo's value of one that is here; `null` if it is not set.
    pub(super) fn show(self, own: &Value) -> Value {
        match self {
            Self::Same | Self::Limit => own.clone(),
            Self::Not => own.as_bool().map_or(Value::Null, |is_on| json!(!is_on)),
            Self::Size | Self::Threshold => match own.as_u64() {
                Some(bytes) if bytes > 0 => json!(size_text(bytes)),
                _ => json!(""),
            },
            Self::Seconds => own.as_u64().map_or(Value::Null, |seconds| json!(format!("{seconds}s"))),
            Self::Path => json!(own.as_str().unwrap_or_default()),
            Self::Texts => if_any(own.clone()),
            Self::Bootstrap if own.is_null() => json!([]),
            Self::Bootstrap => own.clone(),
            Self::Filestore => json!(own.as_str().is_some()),
            Self::Listener => json!(tcp_multiaddr(own["host"].as_str().unwrap_or_default(), &own["port"])),
            Self::ApiListener => {
                let port = own["port"].as_u64().unwrap_or(u64::from(API_PORT));
                let is_on = own["enabled"] == json!(true);
                let tcp = is_on.then(|| tcp_multiaddr(own["host"].as_str().unwrap_or_default(), port));
                let unix = own["unix_socket"].as_str().map(|path| format!("/unix{path}"));
                match (tcp, unix) {
                    (Some(tcp), None) => json!(tcp),
                    (tcp, unix) => json!(tcp.into_iter().chain(unix).collect::<Vec<_>>()),
                }
            }
            Self::Swarm if own["enabled"] == json!(true) => own["listen"].clone(),
            Self::Swarm => json!([]),
            Self::Headers => {
                let headers = own["http_headers"].as_object().into_iter().flatten();
                let mut shown: Map<_, _> = headers.map(|(name, value)| (name.clone(), json!([value]))).collect();
                if own["allowed_origins"].as_array().is_some_and(|origins| !origins.is_empty()) {
                    shown.insert("Access-Control-Allow-Origin".to_owned(), own["allowed_origins"].clone());
                }
                Value::Object(shown)
            }
            Self::Hosts => own.as_object().map_or(Value::Null, |hosts| {
                Value::Object(hosts.iter().map(|(name, host)| (name.clone(), shown_host(host))).collect())
            }),
            Self::Peers => shown_peers(own),
            Self::Resolvers => {
                let mut shown = own["suffix_resolvers"].as_object().cloned().unwrap_or_default();
                // The resolvers of the system are Kubo's default.
                if let [resolver] = texts(&own["resolvers"])[..]
                    && resolver != "system"
                {
                    shown.insert(ROOT_DOMAIN.to_owned(), json!(resolver));
                }
                if_any(Value::Object(shown))
            }
        }
    }
}

/// Returns the multiaddr of a TCP listener at a host, which is written as in a URL.
#[must_use]
pub fn tcp_multiaddr(host: &str, port: impl std::fmt::Display) -> String {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let protocol = match bare.parse() {
        Ok(IpAddr::V4(_)) => "ip4",
        Ok(IpAddr::V6(_)) => "ip6",
        Err(_) => "dns",
    };
    format!("/{protocol}/{bare}/tcp/{port}")
}

/// Reads `/ip4/127.0.0.1/tcp/8080`.
fn tcp_address(text: &str) -> Option<(&str, u16)> {
    let (protocol, rest) = text.strip_prefix('/')?.split_once('/')?;
    let (host, port) = rest.split_once("/tcp/")?;
    let port = port.parse().ok()?;
    let is_host = match protocol {
        "ip4" => matches!(host.parse(), Ok(IpAddr::V4(_))),
        "ip6" => matches!(host.parse(), Ok(IpAddr::V6(_))),
        "dns" | "dns4" | "dns6" => !host.is_empty() && !host.contains('/'),
        _ => false,
    };
    is_host.then_some((host, port))
}

/// Returns the texts of a list, or a single text. [`are_texts`] tells whether there is anything else.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        value => value.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    }
}

fn are_texts(value: &Value) -> bool {
    value.is_string() || value.as_array().is_some_and(|values| values.iter().all(Value::is_string))
}

/// Whether an address stands for nodes of Kubo's public DHT, which do not serve content.
#[must_use]
pub fn is_public_bootstrap(address: &str) -> bool {
    let domain = address.strip_prefix("/dnsaddr/").and_then(|rest| rest.split('/').next());
    let is_public = |domain: &str| {
        let below = domain.strip_suffix(PUBLIC_BOOTSTRAP_DOMAIN);
        below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
    };
    address == AUTO || domain.is_some_and(is_public) || address.ends_with(PUBLIC_BOOTSTRAP_PEER)
}

/// Returns `null` for a value without content.
fn if_any(value: Value) -> Value {
    let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
    if is_empty { Value::Null } else { value }
}

fn listener(setting: &Setting, value: &Value, to: &mut Translation) {
    match texts(value)[..] {
        [text] if are_texts(value) && tcp_address(text).is_some() => {
            let (host, port) = tcp_address(text).unwrap_or_default();
            to.set(&format!("{}.host", setting.own), host);
            to.set(&format!("{}.port", setting.own), port);
        }
        _ => to.leave(setting.kubo, value),
    }
}

fn api_listener(setting: &Setting, value: &Value, to: &mut Translation) {
    let (mut listeners, mut unix) = (Vec::new(), None);
    for text in texts(value) {
        let known = match text.strip_prefix("/unix/") {
            Some(path) => unix.replace(path).is_none(),
            None => {
                let address = tcp_address(text);
                listeners.extend(address);
                address.is_some()
            }
        };
        if !known {
            return to.leave(setting.kubo, value);
        }
    }
    let tcp = match listeners[..] {
        [] => None,
        [address] => Some(address),
        // The daemon listens on each address of the name.
        [(IPV4_LOOPBACK, port), (IPV6_LOOPBACK, other)] | [(IPV6_LOOPBACK, port), (IPV4_LOOPBACK, other)]
            if port == other =>
        {
            Some(("localhost", port))
        }
        _ => return to.leave(setting.kubo, value),
    };
    if !are_texts(value) {
        return to.leave(setting.kubo, value);
    }
    let own = setting.own;
    to.set(&format!("{own}.enabled"), tcp.is_some());
    if let Some((host, port)) = tcp {
        to.set(&format!("{own}.host"), host);
        to.set(&format!("{own}.port"), port);
    }
    if let Some(path) = unix {
        to.set(&format!("{own}.unix_socket"), format!("/{path}"));
    }
}

fn swarm(setting: &Setting, value: &Value, to: &mut Translation) {
    // Other transports are not available here.
    let is_usable = |text: &&str| {
        let mut last = text.rsplit('/');
        match (last.next(), last.next()) {
            (Some("quic-v1"), _) => true,
            (Some(port), Some("tcp")) => port.parse::<u16>().is_ok(),
            _ => false,
        }
    };
    let (usable, others): (Vec<_>, Vec<_>) = texts(value).into_iter().partition(is_usable);
    if !are_texts(value) {
        return to.leave(setting.kubo, value);
    }
    if !others.is_empty() {
        to.leave(setting.kubo, &json!(others));
    }
    let own = setting.own;
    to.set(&format!("{own}.enabled"), !usable.is_empty());
    if !usable.is_empty() {
        to.set(&format!("{own}.listen"), usable);
    }
}

fn headers(setting: &Setting, value: &Value, to: &mut Translation) {
    let Some(headers) = value.as_object() else { return to.leave(setting.kubo, value) };
    for (name, values) in headers {
        let (lower, own) = (name.to_ascii_lowercase(), setting.own);
        match lower.as_str() {
            _ if values.is_null() => {}
            _ if !are_texts(values) => to.leave(format!("{}.{name}", setting.kubo), values),
            "access-control-allow-origin" => to.set(&format!("{own}.allowed_origins"), texts(values)),
            // The daemon sets the other ones for these origins.
            lower if lower.starts_with("access-control-") => {}
            _ => to.set_in(&format!("{own}.http_headers"), name, texts(values).join(", ")),
        }
    }
}

fn hosts(setting: &Setting, value: &Value, to: &mut Translation) {
    let Some(hosts) = value.as_object() else { return to.leave(setting.kubo, value) };
    for (name, host) in hosts {
        let Some(fields) = host.as_object() else {
            // `null` removes a host that Kubo has by default.
            if !host.is_null() {
                to.leave(format!("{}.{name}", setting.kubo), host);
            }
            continue;
        };
        let mut table = json!({ "subdomains": false, "inline_dnslink": false, "deserialized": null });
        table["paths"] = json!(["/ipfs", "/ipns"]);
        for (field, value) in fields {
            let own = match field.as_str() {
                "UseSubdomains" => "subdomains",
                "InlineDNSLink" => "inline_dnslink",
                "DeserializedResponses" => "deserialized",
                "Paths" => "paths",
                _ => "",
            };
            let fits = if own == "paths" { are_texts(value) } else { value.is_boolean() };
            match own {
                _ if value.is_null() => {}
                "" if *value == json!(false) => {}
                "" => to.leave(format!("{}.{name}.{field}", setting.kubo), value),
                own if fits => table[own] = value.clone(),
                _ => to.leave(format!("{}.{name}.{field}", setting.kubo), value),
            }
        }
        to.set_in(setting.own, name, table);
    }
}

fn shown_host(host: &Value) -> Value {
    let mut shown = json!({
        "UseSubdomains": host["subdomains"] == json!(true),
        "InlineDNSLink": host["inline_dnslink"] == json!(true),
        "Paths": if host["paths"].is_null() { json!(["/ipfs", "/ipns"]) } else { host["paths"].clone() },
    });
    if let Some(is_on) = host["deserialized"].as_bool() {
        shown["DeserializedResponses"] = json!(is_on);
    }
    shown
}

fn peers(setting: &Setting, value: &Value, to: &mut Translation) {
    let Some(peers) = value.as_array() else { return to.leave(setting.kubo, value) };
    let mut addresses = Vec::new();
    for peer in peers {
        let (id, listed) = (peer["ID"].as_str().unwrap_or_default(), texts(&peer["Addrs"]));
        // Nothing finds the addresses of a peer here.
        if id.is_empty() || listed.is_empty() || !are_texts(&peer["Addrs"]) {
            return to.leave(setting.kubo, value);
        }
        addresses.extend(listed.into_iter().map(|address| match address.contains("/p2p/") {
            true => address.to_owned(),
            false => format!("{address}/p2p/{id}"),
        }));
    }
    to.set(setting.own, addresses);
}

/// Reads the bootstrap peers. Those of the public network have no equivalent, and the others remain.
fn bootstrap(setting: &Setting, value: &Value, to: &mut Translation) {
    if !value.is_array() || !are_texts(value) {
        return to.leave(setting.kubo, value);
    }
    let (public, peers): (Vec<_>, Vec<_>) = texts(value).into_iter().partition(|peer| is_public_bootstrap(peer));
    if !public.is_empty() {
        to.leave(setting.kubo, &json!(public));
    }
    if !peers.is_empty() {
        to.set(setting.own, json!(peers));
    }
}

fn shown_peers(own: &Value) -> Value {
    let mut peers: Vec<(&str, Vec<&str>)> = Vec::new();
    for text in texts(own) {
        let (address, id) = text.rsplit_once("/p2p/").unwrap_or((text, ""));
        match peers.iter_mut().find(|(known, _)| *known == id) {
            Some((_, addresses)) => addresses.push(address),
            None => peers.push((id, vec![address])),
        }
    }
    if_any(peers.into_iter().map(|(id, addresses)| json!({ "ID": id, "Addrs": addresses })).collect())
}

fn resolvers(setting: &Setting, value: &Value, to: &mut Translation) {
    let Some(domains) = value.as_object() else { return to.leave(setting.kubo, value) };
    for (domain, resolver) in domains {
        match resolver.as_str() {
            Some("") => {}
            Some(AUTO) => to.leave(format!("{}.{domain}", setting.kubo), resolver),
            Some(url) if domain == ROOT_DOMAIN => to.set(&format!("{}.resolvers", setting.own), vec![url]),
            Some(url) => to.set_in(&format!("{}.suffix_resolvers", setting.own), domain, url),
            None => to.leave(format!("{}.{domain}", setting.kubo), resolver),
        }
    }
}

/// Returns a size in the unit in which it is the smallest whole number: `10GB`, `256KiB`.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    const UNITS: [(u64, &str); 8] = [
        (1_000, "kB"),
        (1_024, "KiB"),
        (1_000_000, "MB"),
        (1_048_576, "MiB"),
        (1_000_000_000, "GB"),
        (1_073_741_824, "GiB"),
        (1_000_000_000_000, "TB"),
        (1_099_511_627_776, "TiB"),
    ];
    let whole = UNITS.iter().rfind(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Reads `10GB`, or a number of bytes.
fn size(value: &Value) -> Option<u64> {
    let Some(text) = value.as_str() else { return value.as_u64() };
    if text.is_empty() {
        return Some(0);
    }
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
