//! The composition root through its public surface: configuration, and a gateway on port 0.
// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

mod config;
mod drain;
mod gateway;
mod harness;
