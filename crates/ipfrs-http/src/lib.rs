//! The HTTP front-end: the IPFS gateway, the Kubo RPC, the batch API, health and metrics.
//!
//! [`app`] builds a [`Service`] over a [`Node`](ipfrs_node::Node); the composition root binds it to sockets.
//! Handlers parse, call one method of the Node and render.

mod body;
mod compression;
mod config;
mod error;
mod failure;
mod gateway;
mod grpc;
mod health;
mod limits;
mod metrics;
mod origin;
mod request_id;
mod router;
mod routing;
mod rpc;
mod service;
mod v1;

pub use compression::{Coding, CompressionConfig, CompressionLevel};
pub use config::{ApiConfig, GatewayConfig, HostConfig, HttpConfig, Namespace, Network};
pub use failure::log_broken_off;
/// An answer that is ready, as it goes over the wire, and what asks for it.
pub use gateway::ready::{Plain, Written};
/// Readiness and shutdown, which all front-ends share.
pub use ipfrs_node::Lifecycle;
pub use metrics::HttpMetrics;
pub use router::{App, app};
pub use service::{Answering, Service};
