//! The composition root through its public surface: configuration, and a gateway on port 0.

mod config;
mod drain;
mod gateway;
mod harness;
