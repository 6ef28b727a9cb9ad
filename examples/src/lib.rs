//! Runnable examples: `cargo run --package ipfrs-examples --example embedded_store`.
