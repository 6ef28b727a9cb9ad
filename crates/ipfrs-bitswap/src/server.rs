//! The server: peers fetch blocks from this node.

pub(crate) mod requests;
pub(crate) mod responder;
pub(crate) mod waiting;
pub(crate) mod wantlist;
