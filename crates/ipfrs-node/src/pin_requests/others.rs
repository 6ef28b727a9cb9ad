//! Pins of requested content that others make and remove.

use ipfrs_core::{Cid, Result, as_v1};
use ipfrs_rpc::types::PinState;
use tokio::sync::MutexGuard;

use super::PinRequests;
use super::record::Record;
use crate::{Node, PinMode};

impl PinRequests {
    /// Whether requests are for any of `cids`, or a change of requests is being written, which may be for any content.
    pub(crate) fn concern(&self, cids: &[Cid]) -> bool {
        self.changing.try_lock().is_err() || self.queue.lock().concerns(cids)
    }

    /// Notes durably that pins of `cids` stay when requests for them are removed, because someone else has pinned them.
    /// No request changes while the result exists.
    pub(crate) async fn disown(&self, cids: &[Cid]) -> Result<MutexGuard<'_, ()>> {
        let changing = self.changing.lock().await;
        for mut record in self.of_content(cids) {
            let is_theirs = |cid: &Cid| cids.iter().any(|own| as_v1(own) == as_v1(cid));
            record.made_pin &= !is_theirs(&record.cid);
            record.replaces.retain(|replaced| !is_theirs(replaced));
            self.directory.write(&record).await?;
            self.queue.lock().update(record);
        }
        Ok(changing)
    }

    /// Returns the requests that are for any of `cids`, or replace such requests.
    fn of_content(&self, cids: &[Cid]) -> Vec<Record> {
        let queue = self.queue.lock();
        if !queue.concerns(cids) {
            return Vec::new();
        }
        let wanted: Vec<_> = cids.iter().map(as_v1).collect();
        let concerned = queue.records().filter(|record| record.content().any(|content| wanted.contains(&content)));
        concerned.cloned().collect()
    }
}

impl Node {
    /// Notes durably that requests for `cids` are no longer fulfilled, unless the content is pinned again.
    pub(crate) async fn note_unpinned(&self, cids: &[Cid]) -> Result<()> {
        let requests = &self.inner.pin_requests;
        if !requests.concern(cids) {
            return Ok(());
        }
        let _changing = requests.changing.lock().await;
        for mut record in requests.of_content(cids) {
            let pin = self.inner.pins.get(&record.cid).await?;
            if record.status == PinState::Pinned && pin.is_none_or(|pin| pin.mode != PinMode::Recursive) {
                record.status = PinState::Failed;
                record.details = "its pin was removed by other means than this service".to_owned();
                record.made_pin = false;
                requests.directory.write(&record).await?;
                requests.queue.lock().update(record);
            }
        }
        Ok(())
    }
}
