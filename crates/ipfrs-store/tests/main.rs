//! Integration tests of the block store: the conformance suite on every engine, and the guarantees of packs.
// The lint's exemption for tests does not cover their helper functions.
#![allow(clippy::unwrap_used)]

mod compaction;
mod compaction_damage;
mod conformance;
mod crash;
mod damaged_blocks;
mod disk_full;
mod disk_full_deletions;
mod filestore;
mod fixture;
mod layout;
mod model;
mod read_only;
mod recovery;
mod scrub;
mod torn_writes;
mod truncation;
