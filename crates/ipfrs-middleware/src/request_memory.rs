//! Memory for the parts of requests that must be held as a whole: bodies while they arrive, and data derived from
//! them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use ipfrs_core::fair_pool::{FairPool, Share, Shortage};
use ipfrs_core::{Error, ErrorKind, Result};
use ipfrs_node::{Limit, Node};
use prometheus::{IntGauge, Registry};

use crate::client::Client;

/// Minimum memory for all requests together, in bytes.
const MIN_POOL_BYTES: usize = 512 * 1024 * 1024;
/// Bytes that a client may hold even if fewer are free: the size of the largest node as text.
const CLIENT_BYTES: usize = 4 * 1024 * 1024;
/// Granularity of reservations, in bytes.
const STEP_BYTES: usize = 16 * 1024;

/// Memory that the requests of all front-ends share. Clones share the pool.
#[derive(Debug, Clone)]
pub struct MemoryPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    /// Counts the refusals.
    node: Node,
    shares: FairPool<Client>,
    reserved: IntGauge,
}

impl MemoryPool {
    /// Creates a pool with memory for at least two of the largest batches, and registers its metric. In base64, the
    /// body of such a batch takes four thirds of the size of its blocks, and as much again while it is decoded.
    ///
    /// # Errors
    /// If the metric is already registered.
    pub fn register(node: &Node, registry: &Registry) -> Result<Self> {
        let capacity = MIN_POOL_BYTES.max(node.config().batch.max_batch_bytes.saturating_mul(8));
        let help = "Memory reserved for request bodies that must be complete";
        let failed = |e| Error::internal("a metric could not be registered").with_source(e);
        let reserved = IntGauge::new("ipfrs_request_memory_bytes", help).map_err(failed)?;
        registry.register(Box::new(reserved.clone())).map_err(failed)?;
        let shares = FairPool::new(capacity, CLIENT_BYTES, usize::MAX);
        Ok(Self(Arc::new(Pool { node: node.clone(), shares, reserved })))
    }

    /// Returns an empty reservation for the current client's request. It grows as bytes arrive.
    #[must_use]
    pub fn reservation(&self) -> RequestMemory {
        RequestMemory { pool: self.clone(), share: self.0.shares.nothing(Client::current()) }
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
    pool: MemoryPool,
    share: Share<Client>,
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

    /// Grows the reservation like [`Self::grow_to`], for a request that waits if it cannot. Returns whether it is large
    /// enough.
    #[must_use]
    pub fn try_grow_to(&mut self, bytes: usize) -> bool {
        let held = self.share.units();
        let wanted = bytes.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES);
        if bytes > held && self.share.grow(wanted - held).is_ok() {
            self.gauge().add(metric(wanted - held));
        }
        bytes <= self.share.units()
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

    /// Returns the bytes of a response, which hold the memory until they are sent.
    #[must_use]
    pub fn hold(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(HeldBytes { bytes, _memory: self })
    }

    /// Releases all of the memory.
    pub fn release(&mut self) {
        self.shrink_to(0);
    }

    /// Shrinks the reservation to `bytes`, rounded up to a multiple of 16 KiB. What remains is held throughout.
    pub fn shrink_to(&mut self, bytes: usize) {
        let held = self.share.units();
        self.share.shrink_to(bytes.div_ceil(STEP_BYTES).saturating_mul(STEP_BYTES));
        self.gauge().sub(metric(held - self.share.units()));
    }

    /// Returns the number of bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.share.units()
    }

    fn gauge(&self) -> &IntGauge {
        &self.pool.0.reserved
    }

    fn refusal(&self, shortage: Shortage) -> Error {
        let mebibytes = self.pool.0.shares.capacity() >> 20;
        let what = match shortage {
            Shortage::Total => {
                self.pool.0.node.count_refusal(Limit::RequestMemory);
                format!("request bodies take {mebibytes} MiB of memory, the limit for all clients")
            }
            Shortage::Share | Shortage::Client => {
                self.pool.0.node.count_refusal(Limit::RequestMemoryShare);
                format!("the bodies of this client's requests take its share of {mebibytes} MiB of memory")
            }
        };
        let remedy = "send fewer or smaller bodies at the same time, and try again in a second";
        Error::new(ErrorKind::RateLimited, format!("{what}: {remedy}")).with_source(Refused)
    }
}

/// Bytes with the memory that is reserved for them.
struct HeldBytes {
    bytes: Vec<u8>,
    _memory: RequestMemory,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
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
