//! The client: sessions fetch blocks from the peers that they know.

pub(crate) mod event;
mod holders;
pub(crate) mod received;
pub(crate) mod session;
pub(crate) mod want_book;
mod window;
pub(crate) mod writer;
