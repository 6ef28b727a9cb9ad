//! `swarm/*` and `bitswap/*`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{CidLink, Id};

/// Response of `swarm/connect`, `swarm/disconnect` and `swarm/addrs/local`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Lines {
    pub strings: Vec<String>,
}

/// Response of `swarm/peers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct SwarmPeers {
    /// `null` if there are none.
    #[serde(deserialize_with = "super::null_as_default", serialize_with = "super::empty_as_null")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<SwarmPeer>>))]
    pub peers: Vec<SwarmPeer>,
}

/// A connected peer. The optional fields are present if the request asks for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct SwarmPeer {
    pub addr: String,
    pub peer: String,
    /// Round-trip time, such as `1.5ms`, or `n/a`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub latency: String,
    /// 1 for inbound, 2 for outbound connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<u8>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<SwarmStream>,
    pub identify: PeerIdentity,
}

/// A protocol of a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct SwarmStream {
    pub protocol: String,
}

/// Statements of a peer about itself; empty unless the request asks for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PeerIdentity {
    #[serde(rename = "ID")]
    pub id: String,
    pub public_key: String,
    pub addresses: Option<Vec<String>>,
    pub agent_version: String,
    pub protocols: Option<Vec<String>>,
}

impl From<Id> for PeerIdentity {
    fn from(id: Id) -> Self {
        let Id { id, public_key, addresses, agent_version, protocols } = id;
        Self { id, public_key, addresses: Some(addresses), agent_version, protocols: Some(protocols) }
    }
}

/// Response of `swarm/addrs`: addresses of the connected peers, by peer ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct SwarmAddresses {
    pub addrs: BTreeMap<String, Vec<String>>,
}

/// Response of `swarm/peering/ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Peering {
    pub peers: Vec<PeerAddresses>,
}

/// A peer and its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PeerAddresses {
    #[serde(rename = "ID")]
    pub id: String,
    pub addrs: Vec<String>,
}

/// Response of `bitswap/stat`: totals since the start, in blocks, bytes and messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct BitswapStat {
    #[serde(deserialize_with = "super::null_as_default")]
    pub wantlist: Vec<CidLink>,
    #[serde(deserialize_with = "super::null_as_default")]
    pub peers: Vec<String>,
    pub blocks_received: u64,
    pub data_received: u64,
    pub dup_blks_received: u64,
    pub dup_data_received: u64,
    pub messages_received: u64,
    pub blocks_sent: u64,
    pub data_sent: u64,
}

/// Response of `bitswap/wantlist`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Wantlist {
    #[serde(deserialize_with = "super::null_as_default")]
    pub keys: Vec<CidLink>,
}

/// Response of `bitswap/ledger`: what was exchanged with a peer since it connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct Ledger {
    pub peer: String,
    /// Bytes sent, divided by bytes received plus one.
    pub value: f64,
    pub sent: u64,
    pub recv: u64,
    pub exchanged: u64,
}

/// A line of `swarm/peering/add` and `swarm/peering/rm`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PeeringChange {
    #[serde(rename = "ID")]
    pub id: String,
    pub status: String,
}

/// Response of `swarm/filters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct AddressFilters {
    pub strings: Option<Vec<String>>,
}

/// Response of `bootstrap/list`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct BootstrapPeers {
    pub peers: Vec<String>,
}

/// An event of libp2p's routing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RoutingEvent {
    pub extra: String,
    #[serde(rename = "ID")]
    pub id: String,
    pub responses: Option<Vec<PeerAddresses>>,
    /// 2 for a found peer, 3 for an error, 4 for a provider, 5 for a value.
    pub r#type: u8,
}

/// A line of `ping`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PingLine {
    pub success: bool,
    /// Round-trip time in nanoseconds.
    pub time: u64,
    pub text: String,
}

/// Response of `name/pubsub/state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct PubsubState {
    pub enabled: bool,
}
