//! Tests of the Node through its public API, as front-ends use it.
#![allow(clippy::unwrap_used)]

mod collection;
mod dns_server;
mod dnslink;
mod fetched;
mod listing;
mod mutable_changes;
mod names;
mod open;
mod pins;
