//! Garbage collection, the leases that protect blocks from it, and verification of stored blocks.

mod protection;
mod renewed;
mod report;
mod run;
mod verify;

pub(crate) use protection::{Lease, Protection};
pub(crate) use renewed::RenewedLease;
pub use report::GcReport;
pub use run::{GcEvent, GcOptions, Removal};
pub use verify::{Repair, Repaired, Verified, Verifying};
