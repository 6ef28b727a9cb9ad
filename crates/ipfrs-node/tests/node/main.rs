//! The Node as front-ends see it.
#![allow(clippy::unwrap_used)]

mod collection;
mod dns_server;
mod dnslink;
mod listing;
mod names;
