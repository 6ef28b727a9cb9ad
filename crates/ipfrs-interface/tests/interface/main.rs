//! Tests of the composition root through its public API: configuration, and a gateway on port 0.
// Test helpers may unwrap, like tests.
#![allow(clippy::unwrap_used)]

mod config;
mod config_file;
mod drain;
mod embedded;
mod gateway;
mod harness;
