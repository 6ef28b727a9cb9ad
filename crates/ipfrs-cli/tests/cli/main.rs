//! The binary as a user runs it: real processes, real repos, real sockets.

mod configuration;
mod content;
mod daemon;
mod harness;
mod help;
mod hostile;
mod streams;
