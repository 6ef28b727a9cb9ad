//! IPNS: [keys](PrivateKey), the [names](Name) that they make, and the signed [records](Record) that say where a name
//! leads.
//!
//! Values only: whoever stores and resolves them is elsewhere.

mod key;
mod name;
mod record;
mod timestamp;

pub use key::{KeyType, PrivateKey, PublicKey};
pub use name::Name;
pub use record::{MAX_RECORD_BYTES, Record};
