//! Denylists in the compact format (<https://specs.ipfs.tech/compact-denylist-format/>, IPIP-383), which block
//! content from being served.
//!
//! * `/ipfs/CID` blocks a block by its multihash. All code that reads on behalf of clients uses [`Guarded`] instead
//!   of the store. Garbage collection, pins and verification use the store itself.
//! * Rules with a path are checked before the path is resolved, and `/ipns/` rules before the name is resolved.
//! * The last matching rule of the last list that has one takes precedence.

mod check;
mod files;
#[cfg(fuzzing)]
pub(crate) mod fuzzing;
mod guard;
mod header;
mod hints;
mod inspect;
mod list;
mod metrics;
mod rule;
mod rules;
#[cfg(test)]
mod tests;
mod watched;

pub(crate) use guard::Guarded;
pub use inspect::{DenylistReport, check_denylists, inspect_denylist};
pub(crate) use metrics::DenylistMetrics;
pub(crate) use rules::{Denylists, Kind};
pub use watched::NewDenylists;
