//! Tests of the binary with real processes, repos and sockets.
// Test helpers may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod archives;
mod audit;
mod auth;
mod backup;
mod bench;
mod certificates;
#[cfg(target_os = "linux")]
mod clock;
mod configuration;
mod content;
mod daemon;
mod dag;
#[cfg(target_os = "linux")]
mod disk;
mod doctor;
mod file_length;
mod files;
mod filestore;
mod hangup;
mod harness;
mod help;
mod hostile;
mod jwt;
mod logs_and_traces;
mod losses;
mod lost_index;
#[cfg(target_os = "linux")]
mod memory_limit;
mod migrate;
mod multiformats;
mod names;
mod network;
#[cfg(target_os = "linux")]
mod open_files;
mod packaging;
mod pins;
mod read_only;
mod secrets;
mod streams;
mod tensors;
mod terminate;
