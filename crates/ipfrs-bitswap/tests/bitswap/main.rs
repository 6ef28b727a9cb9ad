//! Nodes and raw peers in one process, over loopback.

mod faults;
mod harness;
mod network;
mod raw_peer;
mod server;
mod transfer;
