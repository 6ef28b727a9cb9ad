//! Pins of requested content that others make and remove.

use ipfrs_core::{Cid, Result};
use ipfrs_rpc::types::PinState;
use tokio::sync::MutexGuard;

use super::PinRequests;
use crate::{Node, PinMode};

impl PinRequests {
    /// Whether requests are for any of `cids`, or a change of requests is being written, which may be for any content.
    pub(crate) fn concern(&self, cids: &[Cid]) -> bool {
        self.changing.try_lock().is_err() || self.queue.lock().concerns(cids)
    }

    /// Notes durably that pins of `cids` stay when requests for them are removed, because someone else has pinned them.
    /// No request is removed while the result exists.
    pub(crate) async fn disown(&self, cids: &[Cid]) -> Result<MutexGuard<'_, ()>> {
        let changing = self.changing.lock().await;
        let changed = self.queue.lock().disown(cids);
        for record in changed {
            self.directory.write(&record).await?;
        }
        Ok(changing)
    }
}

impl Node {
    /// Notes durably that requests for `cids`, whose pins someone else has removed, are no longer fulfilled, unless the
    /// content is pinned again.
    pub(crate) async fn note_unpinned(&self, cids: &[Cid]) -> Result<()> {
        let requests = &self.inner.pin_requests;
        if !requests.concern(cids) {
            return Ok(());
        }
        let _changing = requests.changing.lock().await;
        let pinned = requests.queue.lock().pinned(cids);
        for mut record in pinned {
            let pin = self.inner.pins.get(&record.cid).await?;
            if pin.is_none_or(|pin| pin.mode != PinMode::Recursive) {
                record.status = PinState::Failed;
                record.details = "its pin was removed by other means than this service".to_owned();
                record.made_pin = false;
                record.direct = None;
                requests.directory.write(&record).await?;
                requests.queue.lock().update(record);
            }
        }
        Ok(())
    }
}
