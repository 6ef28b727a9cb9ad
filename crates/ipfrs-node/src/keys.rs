//! Keys: the identity of the node, and the keys that names are published with.

mod files;
mod identity;
mod keystore;
mod manage;

pub use identity::Identity;
pub(crate) use keystore::Keystore;
pub use keystore::{KeyFormat, NamedKey, export_key};
