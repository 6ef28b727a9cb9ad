//! The public interface of ipfrs-unixfs, over a store in memory.

mod decoding;
mod harness;
mod importing;
mod kubo_vectors;
mod paths;
mod pipeline;
