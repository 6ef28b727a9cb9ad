//! The binary as a user runs it: real processes, real repos, real sockets.
// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

mod archives;
mod bench;
mod configuration;
mod content;
mod daemon;
mod dag;
mod harness;
mod help;
mod hostile;
mod names;
mod pins;
mod read_only;
mod streams;
mod tensors;
