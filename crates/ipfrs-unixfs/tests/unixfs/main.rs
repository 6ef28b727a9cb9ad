//! Tests of the public interface of ipfrs-unixfs, with an in-memory store.

// clippy.toml allows tests to unwrap, but does not recognize helper functions as test code.
#![allow(clippy::unwrap_used)]

mod decoding;
mod directory_changes;
mod editing;
mod harness;
mod importing;
mod kubo_vectors;
mod links;
mod listing;
mod paths;
mod pipeline;
