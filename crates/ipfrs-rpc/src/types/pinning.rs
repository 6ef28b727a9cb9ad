//! Types of the pinning service API (<https://ipfs.github.io/pinning-services-api-spec/>, version 1.0.0) and of
//! `pin/remote/*`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::null_as_default;

/// State of a pin at a pinning service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PinState {
    Queued,
    Pinning,
    Pinned,
    Failed,
}

impl PinState {
    pub const ALL: [Self; 4] = [Self::Queued, Self::Pinning, Self::Pinned, Self::Failed];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Pinning => "pinning",
            Self::Pinned => "pinned",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for PinState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PinState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or(())
    }
}

/// Content to pin (`Pin` in the specification).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestedPin {
    pub cid: String,
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub name: String,
    /// Multiaddrs of peers that have the content.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_as_default")]
    pub origins: Vec<String>,
    /// Any data of the client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub meta: BTreeMap<String, String>,
}

/// A pin at a pinning service: the `PinStatus` of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinStatus {
    pub requestid: String,
    pub status: PinState,
    /// Time in the form of RFC 3339.
    pub created: String,
    pub pin: RequestedPin,
    /// Multiaddrs of peers that will fetch the content.
    #[serde(default, deserialize_with = "null_as_default")]
    pub delegates: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_as_default")]
    pub info: BTreeMap<String, String>,
}

/// Some of the pins that a request selects: the `PinResults` of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinResults {
    /// Number of pins that the request selects.
    pub count: u64,
    /// The newest of them.
    #[serde(default, deserialize_with = "null_as_default")]
    pub results: Vec<PinStatus>,
}

/// Failure of a request to a pinning service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinningFailure {
    pub error: PinningError,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PinningError {
    /// Name of the kind of failure, such as `NOT_FOUND`.
    pub reason: String,
    /// Text for people.
    #[serde(default, skip_serializing_if = "String::is_empty", deserialize_with = "null_as_default")]
    pub details: String,
}

/// Response of `pin/remote/add`, and a line of `pin/remote/ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RemotePin {
    pub status: String,
    pub cid: String,
    pub name: String,
}

/// Response of `pin/remote/service/ls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RemoteServices {
    pub remote_services: Vec<RemoteService>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RemoteService {
    pub service: String,
    pub api_endpoint: String,
    /// Only with `stat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stat: Option<ServiceStat>,
}

/// Whether a pinning service responds, and how many pins it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ServiceStat {
    /// `valid` or `invalid`.
    pub status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin_count: Option<RemotePinCount>,
}

/// Numbers of pins by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct RemotePinCount {
    pub queued: u64,
    pub pinning: u64,
    pub pinned: u64,
    pub failed: u64,
}
