//! The on-disk engine: append-only packs, an index derived from them, and a single writer.
//!
//! * `record` defines the format of a pack, `padding` aligns large blocks, `scan` parses packs without trusting them,
//!   and `file` is an open pack.
//! * `index` holds the locations of blocks. `read` looks up one block and `walk` many, on a runtime worker if
//!   `residency` knows that everything is in memory; `readahead` reads adjacent blocks sequentially from the disk.
//! * `queue` bounds the calls that wait for the `writer`, which commits them in `group`s. `changes` are their changes
//!   to the index.
//! * `compaction` reclaims the space of dead blocks, and `scrub` verifies live blocks.
//! * `lock` excludes other processes. `recovery` opens a store after a crash and updates the index with `replay`;
//!   `read_only` does so without writing. `shared` is the state common to all of them.
//! * `link` gives all packs a second name, for backups.
//!
//! **State after a crash.** A put that was acknowledged is present. A put that was not acknowledged, atomic or not,
//! may be partly present: blocks are named by their content, so any block that verifies may be kept. A put that
//! *failed* leaves nothing behind.

mod block_store;
mod changes;
mod compaction;
#[cfg(test)]
mod crash_recorder;
#[cfg(test)]
mod crashes;
mod damage;
mod disk;
mod errors;
mod file;
mod free_space;
mod group;
pub(crate) mod index;
#[cfg(test)]
mod interrupted_rebuilds;
mod link;
mod lock;
mod losses;
mod needed;
mod options;
mod pack_store;
mod padding;
mod queue;
mod read;
mod read_only;
mod readahead;
mod record;
mod recovery;
mod replay;
mod residency;
mod scan;
mod scrub;
mod shared;
mod verified;
mod walk;
mod writer;

pub use link::LinkedPack;
pub use lock::{RepoLock, lock_holder, sync_directory};
pub use options::PackOptions;
pub use pack_store::PackStore;
pub use padding::MIN_ALIGNED_BYTES;
pub use record::CAR_HEADER as PACK_HEADER;
pub(crate) use record::{Key, key_of};
