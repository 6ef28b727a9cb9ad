//! The zero-copy layer over real stores and real sockets.
#![allow(clippy::unwrap_used)]

mod car;
mod dag;
mod dag_part;
mod dag_walk;
mod reader;
#[cfg(target_os = "linux")]
mod socket;
mod store;

/// For tests that are not functions of their own, such as the cases of a property.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}
