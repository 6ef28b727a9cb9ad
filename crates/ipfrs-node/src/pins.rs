//! Pins, which protect blocks from garbage collection.

mod difference;
mod list;
mod pin;

pub use list::{PinFilter, Pinned, VerifiedPin};
pub(crate) use pin::insert;
#[cfg(feature = "pinning")]
pub(crate) use pin::insert_for_request;
pub use pin::{PinOptions, Walked, check_pin_name};
