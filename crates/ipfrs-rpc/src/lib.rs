//! The RPC API of ipfrs, as JSON types and a client.
//!
//! [`types`] has the JSON objects of Kubo's RPC API (`/api/v0`) and of the native API (`/v1`). The server serializes
//! them, and clients deserialize them. [`commands`] defines Kubo's commands with their arguments and options.
//! [`kubo_config`] converts configurations, [`duration`] reads durations and [`mode`] converts permission bits. With
//! the feature `client`, [`client`] sends requests to a daemon over HTTP, or to a router in the same process.

#[cfg(feature = "client")]
pub mod client;
pub mod commands;
pub mod duration;
pub mod kubo_config;
pub mod mode;
pub mod types;
