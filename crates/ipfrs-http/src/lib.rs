//! The HTTP front-end: the IPFS gateway, the Kubo RPC, the native API, delegated routing, health and metrics.
//!
//! [`app`] builds a [`Service`] over a [`Node`](ipfrs_node::Node); the composition root binds it to sockets.
//! Each handler parses the request, calls one method of the Node and renders the result.

mod access;
mod access_rule;
mod api_listener;
mod body;
mod command_log;
mod compression;
mod config;
mod configuration;
mod content_limits;
mod error;
mod events;
mod failure;
mod gateway;
mod head_deadline;
mod health;
mod https;
mod ingest;
mod leading_slashes;
mod listed_routes;
mod log_levels;
mod metrics;
mod mounted;
mod openapi;
mod openmetrics;
mod origin;
mod page_headers;
mod path_parameter;
mod pinning;
mod rate;
mod request_id;
mod request_lifecycle;
mod retrieval_report;
mod revocable;
mod route_table;
mod router;
mod routes;
mod routing;
mod rpc;
mod service;
mod single_header;
mod state;
mod static_file;
mod ui;
mod v1;

pub use compression::{Coding, CompressionConfig, CompressionLevel};
pub use config::{ApiConfig, GatewayConfig, HostConfig, HttpConfig, Namespace, Network};
pub use configuration::{Configuration, RunningConfiguration};
pub use failure::log_broken_off;
/// A serialized response from the response cache, and the request that it matches.
pub use gateway::response_cache::{CacheableRequest, RAW_QUERY, SerializedResponse};
pub use gateway::serialized_head::{begin_line, write_head};
/// Readiness and shutdown state, shared by all front-ends.
pub use ipfrs_middleware::Lifecycle;
/// A change of a setting, for [`Configuration`].
pub use ipfrs_rpc::kubo_config::Change;
pub use log_levels::LogLevels;
pub use metrics::HttpMetrics;
pub use router::{App, app};
pub use routes::{IPFS_ROUTE, UNMATCHED};
pub use service::{Answering, Service, WEBSOCKET_PATHS};

/// Parsers of messages and files of clients, for the fuzz targets.
#[cfg(fuzzing)]
pub mod fuzzing {
    /// Reads a message of a WebSocket client; see `fuzz/fuzz_targets/websocket_message.rs`.
    pub fn websocket_message(text: &str) {
        crate::events::fuzzing::message(text);
    }

    /// Reads a `_redirects` file and applies it; see `fuzz/fuzz_targets/redirects_file.rs`.
    pub fn redirects_file(file: &str, path: &str) {
        crate::gateway::redirects::fuzzing::apply(file, path);
    }

    /// Reads headers that choose what a response has; see `fuzz/fuzz_targets/request_headers.rs`.
    pub fn request_headers(range: &[u8], size: u64, accept: &[&[u8]], tags: &str, date: &[u8]) {
        crate::gateway::fuzzing::range(range, size);
        crate::gateway::fuzzing::accept(accept);
        crate::gateway::fuzzing::conditions(tags, date);
    }

    /// Parses the arguments of a command of the RPC; see `fuzz/fuzz_targets/rpc_arguments.rs`.
    pub fn rpc_arguments(command: u8, path: &str, query: &str) {
        crate::rpc::fuzzing::arguments(command, path, query);
    }

    /// Reads a multipart body; see `fuzz/fuzz_targets/multipart_body.rs`.
    pub fn multipart_body(content_type: &[u8], body: &[u8], piece_bytes: u8) {
        crate::rpc::fuzzing::multipart(content_type, body, piece_bytes);
    }

    /// Reads the metadata of an upload; see `fuzz/fuzz_targets/tus_metadata.rs`.
    pub fn tus_metadata(values: &[&[u8]]) {
        crate::v1::fuzzing::metadata(values);
    }
}
