//! The public interface of ipfrs-unixfs, over a store in memory.

// clippy.toml lets tests unwrap, but does not see that the functions beside them are tests too.
#![allow(clippy::unwrap_used)]

mod decoding;
mod harness;
mod importing;
mod kubo_vectors;
mod links;
mod listing;
mod paths;
mod pipeline;
