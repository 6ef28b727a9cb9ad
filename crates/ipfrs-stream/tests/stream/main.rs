//! Tests of the zero-copy layer with real stores and real sockets.
#![allow(clippy::unwrap_used)]

mod car;
mod dag;
mod dag_part;
mod dag_walk;
mod reader;
#[cfg(target_os = "linux")]
mod socket;
mod store;

/// Creates a runtime for tests that cannot be async functions, such as the cases of a property test.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}
