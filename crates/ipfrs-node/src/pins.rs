//! Pins, which protect blocks from garbage collection.

mod difference;
mod list;
mod pin;

pub use list::{PinFilter, Pinned, VerifiedPin};
pub use pin::{PinOptions, Walked, check_pin_name};
pub(crate) use pin::{insert, insert_for_request};
