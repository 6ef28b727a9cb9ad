//! Keys: the identity of the node, and the keys that names are published with.

#[cfg(feature = "keys")]
mod files;
mod identity;
#[cfg(feature = "keys")]
mod keystore;
#[cfg(feature = "keys")]
mod manage;

pub use identity::Identity;
#[cfg(feature = "keys")]
pub(crate) use keystore::Keystore;
#[cfg(feature = "keys")]
pub use keystore::{KeyFormat, NamedKey, export_key, key_id};
