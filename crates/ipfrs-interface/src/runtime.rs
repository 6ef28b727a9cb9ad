//! The Tokio runtime of the process.

use tokio::runtime::Builder;

/// Maximum number of socket events per poll of the I/O driver. A worker polls the driver after 61 tasks
/// (`event_interval` in Tokio), so ready tasks run before new events are processed, and in order. With more events at
/// a time, the local queue of a worker, which has 256 entries, overflows into the global queue, which the worker
/// checks less often. With a thousand busy connections, some then wait for a sixth of a second.
const SOCKETS_AT_A_TIME: usize = 32;

/// Returns a builder for a multi-threaded runtime with timers and sockets, which serves many connections in the order
/// of their requests.
#[must_use]
pub fn runtime_builder() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.max_io_events_per_tick(SOCKETS_AT_A_TIME).enable_all();
    builder
}
