//! IPNS: [keys](PrivateKey), the [names](Name) derived from them, and the signed [records](Record) that point a name
//! to its content.
//!
//! This crate contains no storage and no resolution.

mod key;
mod name;
mod record;

pub use key::{KeyType, PrivateKey, PublicKey};
pub use name::Name;
pub use record::{MAX_RECORD_BYTES, Record};
