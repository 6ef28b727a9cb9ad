//! Blocks that were passed to readers and are being stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Deliveries whose blocks are being stored.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    running: Mutex<Running>,
    ended: Notify,
}

#[derive(Debug, Default)]
struct Running {
    /// Number of the next delivery.
    next: u64,
    numbers: BTreeSet<u64>,
}

/// Blocks of one delivery. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Delivery {
    deliveries: Arc<Deliveries>,
    number: u64,
}

impl Deliveries {
    /// Begins a delivery, before any reader gets its blocks.
    pub(crate) fn begin(self: &Arc<Self>) -> Delivery {
        let mut running = self.running.lock();
        let number = running.next;
        running.next += 1;
        running.numbers.insert(number);
        Delivery { deliveries: Arc::clone(self), number }
    }

    /// Waits until all deliveries that have begun before have ended. Later ones do not prolong the wait.
    pub(crate) async fn ended(&self) {
        let next = self.running.lock().next;
        loop {
            let ended = self.ended.notified();
            if self.running.lock().numbers.first().is_none_or(|oldest| *oldest >= next) {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.deliveries.running.lock().numbers.remove(&self.number);
        self.deliveries.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::poll;
    use tokio::pin;

    use super::*;

    #[tokio::test]
    async fn wait_ends_with_the_deliveries_that_began_before_it() {
        let deliveries = Arc::new(Deliveries::default());
        let (first, second) = (deliveries.begin(), deliveries.begin());
        let waiting = deliveries.ended();
        pin!(waiting);
        assert!(poll!(&mut waiting).is_pending());
        let later = deliveries.begin();
        drop(second);
        assert!(poll!(&mut waiting).is_pending());
        drop(first);
        assert!(poll!(&mut waiting).is_ready());
        drop(later);
        deliveries.ended().await;
    }
}
