//! What the measurements share: a client that costs next to nothing beside the server it measures, content to serve,
//! and a gateway to serve it.
//!
//! The measurements themselves are the bench targets `http_benchmarks` (the gateway alone, in this process) and `peers`
//! (the gateway beside nginx and dd, each in a process of its own). docs/PERFORMANCE.md says how to run them.

mod add;
mod batch;
mod client;
mod content;
mod gateway;

pub use add::{Multipart, Profile, add_file};
pub use batch::Batch;
pub use client::{Client, get, get_range, post};
pub use content::{Offsets, random, write_random_file};
pub use gateway::{Gateway, config};
