//! The block store from outside: the conformance suite on every engine, and what only packs promise.
// The lint's exception for tests leaves out their helpers.
#![allow(clippy::unwrap_used)]

mod compaction;
mod conformance;
mod crash;
mod disk_full;
mod fixture;
mod layout;
mod model;
mod read_only;
mod recovery;
mod scrub;
mod truncation;
