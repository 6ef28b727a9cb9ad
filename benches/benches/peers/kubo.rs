//! Comparison with Kubo in offline mode, with its default datastore in its own repo.

pub(crate) mod adds;
pub(crate) mod reads;
