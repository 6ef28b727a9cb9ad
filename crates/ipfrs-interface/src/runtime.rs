//! The runtime that all of it runs on.

use tokio::runtime::Builder;

/// Sockets that are looked at between two rounds of tasks. A worker looks again after 61 tasks (Tokio's `event_interval`): what
/// became ready is served before more is, in the order in which it did. With more sockets at a time than that the worker's queue,
/// which has room for 256, runs over into one that it looks at when it has nothing else to do; there some of a thousand busy
/// connections wait for a sixth of a second.
const SOCKETS_AT_A_TIME: usize = 32;

/// A multi-threaded runtime with timers and sockets, which serves many connections in the order in which they ask.
#[must_use]
pub fn runtime_builder() -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.max_io_events_per_tick(SOCKETS_AT_A_TIME).enable_all();
    builder
}
