//! Garbage collection, the leases that protect blocks from it, and verification of stored blocks.

mod protection;
mod run;
mod verify;

pub(crate) use protection::{Lease, Protection};
pub use run::{GcEvent, GcOptions, GcReport, Removal};
pub use verify::{Verified, Verifying};
