//! Memory for the parts of requests that must be held as a whole: bodies while they arrive, and data derived from
//! them.

use std::fmt;

use ipfrs_core::{Error, ErrorKind, Result};
use prometheus::IntGauge;

use crate::fair_pool::{FairPool, Share, Shortage};
use crate::{BatchConfig, Client, Limit, Node};

/// Minimum memory for all requests together, in bytes.
const LEAST_BYTES: usize = 512 * 1024 * 1024;
/// Bytes that a client may hold even if fewer are free: the size of the largest node as text.
const CLIENT_BYTES: usize = 4 * 1024 * 1024;
/// Granularity of reservations, in bytes.
const STEP_BYTES: usize = 16 * 1024;

/// Memory that all requests share. Clones share the pool.
#[derive(Debug, Clone)]
pub(crate) struct MemoryPool(FairPool);

impl MemoryPool {
    /// Creates a pool with memory for at least two of the largest batches. In base64, the body of such a batch takes
    /// four thirds of the size of its blocks, and as much again while it is decoded.
    pub(crate) fn new(batch: &BatchConfig) -> Self {
        let capacity = LEAST_BYTES.max(batch.max_batch_bytes.saturating_mul(8));
        Self(FairPool::new(capacity, CLIENT_BYTES, usize::MAX))
    }
}

/// Error source that marks refusals of memory and distinguishes them from other errors of the same kind.
#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory for request bodies is used up")
    }
}

impl std::error::Error for Refused {}

/// Memory that a request holds until this value is dropped.
#[derive(Debug)]
pub struct RequestMemory {
    node: Node,
    share: Share,
}

impl Node {
    /// Returns an empty reservation for the current client's request. It grows as bytes arrive.
    #[must_use]
    pub fn request_memory(&self) -> RequestMemory {
        RequestMemory { node: self.clone(), share: self.inner.memory.0.nothing(Client::current()) }
    }
}

impl RequestMemory {
    /// Grows the reservation to at least `bytes`, rounded up to a multiple of 16 KiB.
    ///
    /// # Errors
    /// [`ErrorKind::RateLimited`] if too little memory is free or the client has used its share. The reservation is
    /// unchanged then.
    pub fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let held = self.share.units();
        if bytes <= held {
            return Ok(());
        }
        let wanted = bytes.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
        self.share.grow(wanted - held).map_err(|shortage| self.refusal(shortage))?;
        self.gauge().add(metric(wanted - held));
        Ok(())
    }

    /// Grows the reservation by `bytes`.
    ///
    /// # Errors
    /// As [`Self::grow_to`].
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.grow_to(self.share.units().saturating_add(bytes))
    }

    /// Returns whether an error was caused by a refusal of memory, at any depth of its sources. Such a refusal is
    /// already counted.
    #[must_use]
    pub fn is_refusal(error: &Error) -> bool {
        let first = std::error::Error::source(error);
        std::iter::successors(first, |cause| cause.source()).any(|cause| cause.is::<Refused>())
    }

    /// Releases all of the memory.
    pub fn release(&mut self) {
        self.gauge().sub(metric(self.share.units()));
        self.share.release();
    }

    /// Returns the number of bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.share.units()
    }

    fn gauge(&self) -> &IntGauge {
        &self.node.inner.metrics.request_memory
    }

    fn refusal(&self, shortage: Shortage) -> Error {
        let mebibytes = self.node.inner.memory.0.capacity() >> 20;
        let what = match shortage {
            Shortage::Total => {
                self.node.count_refusal(Limit::RequestMemory);
                format!("request bodies take {mebibytes} MiB of memory, the limit for all clients")
            }
            Shortage::Share | Shortage::Client => {
                self.node.count_refusal(Limit::RequestMemoryShare);
                format!("the bodies of this client's requests take its share of {mebibytes} MiB of memory")
            }
        };
        let remedy = "send fewer or smaller bodies at the same time, and try again in a second";
        Error::new(ErrorKind::RateLimited, format!("{what}: {remedy}")).with_source(Refused)
    }
}

impl Drop for RequestMemory {
    fn drop(&mut self) {
        self.release();
    }
}

fn metric(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
