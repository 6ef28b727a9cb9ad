//! Slots for requests: how many are answered at the same time, in all front-ends together.

use ipfrs_core::{Error, ErrorKind};
use prometheus::IntGauge;

use crate::{Limit, Node};

/// The slots of `gateway.max_concurrent_requests`. Cloning shares them.
#[derive(Debug, Clone)]
pub struct RequestSlots {
    node: Node,
    active: IntGauge,
    most: usize,
}

impl RequestSlots {
    /// As many as `most`; `active` shows how many are taken.
    #[must_use]
    pub fn new(node: &Node, active: IntGauge, most: usize) -> Self {
        Self { node: node.clone(), active, most }
    }

    /// A slot for one more request; `None` where all are taken.
    #[must_use]
    pub fn take(&self) -> Option<RequestSlot> {
        self.active.inc();
        let slot = RequestSlot(self.active.clone());
        let most = i64::try_from(self.most).unwrap_or(i64::MAX);
        (slot.0.get() <= most).then_some(slot)
    }

    /// What a request is told that gets no slot, of kind [`ErrorKind::RateLimited`]. Counts that it was.
    #[must_use]
    pub fn refusal(&self) -> Error {
        self.node.count_refusal(Limit::ConcurrentRequests);
        let what = format!(
            "{} requests are being answered, the most at the same time (gateway.max_concurrent_requests)",
            self.most
        );
        Error::new(ErrorKind::RateLimited, format!("{what}: try again in a second"))
    }
}

/// The slot of a request, until this is dropped: when the body of its answer has ended.
#[derive(Debug)]
pub struct RequestSlot(IntGauge);

impl Drop for RequestSlot {
    fn drop(&mut self) {
        self.0.dec();
    }
}
