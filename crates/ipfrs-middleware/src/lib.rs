//! Request handling that all front-ends share.
//!
//! A request has a [`Client`], an [`auth::Caller`], a [`request_id`], and while it is processed a [`RequestPermit`],
//! [`RequestMemory`] for its body and a [`RequestDeadline`]. Permits and memory come from pools that clients share
//! fairly.

pub mod accept;
pub mod auth;
mod broken_body;
mod client;
mod deadline;
mod idle_timer;
pub mod json_object;
mod lifecycle;
mod metrics;
mod multipart_feed;
mod network;
pub mod overhead;
mod panic;
mod protection;
pub mod rate_limit;
mod representation;
pub mod request_id;
mod request_memory;
mod request_permits;
mod retry_after;
mod rules;
mod trace_context;
pub mod websocket;

pub use broken_body::broken_body;
pub use client::{Client, TrustedProxies};
pub use deadline::RequestDeadline;
pub use idle_timer::IdleTimer;
pub use ipfrs_core::fair_pool::{FairPool, Share, Shortage};
pub use lifecycle::Lifecycle;
pub use metrics::registered;
pub use multipart_feed::MultipartFeed;
pub use network::Network;
pub use panic::{catch_panic, log_panic};
pub use protection::{OverTls, Protection};
pub use representation::Representation;
pub use request_id::RequestIds;
pub use request_memory::{MemoryPool, RequestMemory};
pub use request_permits::{Held, NoPermit, RequestPermit, RequestPermits, Requests};
pub use retry_after::retry_after;
pub use rules::Rules;
pub use trace_context::{Route, TRACEPARENT, TraceContext, Watched};

/// Parsers of credentials, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads a set of keys; see `fuzz/fuzz_targets/json_web_keys.rs`.
    pub fn json_web_keys(bytes: &[u8]) {
        crate::auth::fuzzing::key_set(bytes);
    }

    /// Verifies tokens; see `fuzz/fuzz_targets/json_web_token.rs`.
    pub fn json_web_token(foreign: &str, header: &[u8], claims: &[u8]) {
        crate::auth::fuzzing::token(foreign, header, claims);
    }
}
