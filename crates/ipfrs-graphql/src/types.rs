//! Types of the schema.

pub(crate) mod block;
pub(crate) mod content;
pub(crate) mod name;
pub(crate) mod operation;
pub(crate) mod pin;
pub(crate) mod store;
pub(crate) mod tensor;
