//! Nodes and raw peers in one process, over loopback.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod faults;
mod harness;
mod inbound_streams;
mod network;
mod raw_peer;
mod server;
mod transfer;
