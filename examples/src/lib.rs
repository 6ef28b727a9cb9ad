//! Runnable examples: `cargo run --package ipfrs-examples --example embedded_store`.

/// The example in the README, which the documentation tests compile.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
