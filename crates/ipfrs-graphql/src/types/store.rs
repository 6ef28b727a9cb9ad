//! The store and the daemon.

use async_graphql::SimpleObject;

use crate::scalars::Long;

/// Totals of the store.
#[derive(SimpleObject)]
pub(crate) struct Stats {
    /// Number of blocks.
    pub(crate) blocks: Long,
    /// Bytes of these blocks.
    pub(crate) payload_bytes: Long,
    /// Bytes on disk, including the index and removed blocks.
    pub(crate) disk_bytes: Long,
    /// Bytes on disk that gc can free at most.
    pub(crate) dead_bytes: Long,
    /// Traffic of all listeners.
    pub(crate) bandwidth: Bandwidth,
}

/// Traffic of all listeners.
#[derive(SimpleObject)]
pub(crate) struct Bandwidth {
    /// Bytes received since the start.
    total_in: Long,
    /// Bytes sent since the start.
    total_out: Long,
    /// Bytes received per second, weighted towards the last ten seconds.
    rate_in: f64,
    /// Bytes sent per second, weighted towards the last ten seconds.
    rate_out: f64,
}

impl Bandwidth {
    pub(crate) fn of(bandwidth: &ipfrs_node::Bandwidth) -> Self {
        let now = bandwidth.snapshot();
        Self {
            total_in: Long(now.total_in),
            total_out: Long(now.total_out),
            rate_in: now.rate_in,
            rate_out: now.rate_out,
        }
    }
}

/// Version of the daemon.
#[derive(SimpleObject)]
pub(crate) struct Version {
    /// Version of ipfrs.
    pub(crate) version: &'static str,
    /// Peer ID of the node.
    pub(crate) peer_id: String,
    /// Identifies the process: numbers of events mean nothing in another one.
    pub(crate) instance: String,
}
