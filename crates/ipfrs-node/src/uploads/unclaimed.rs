//! Uploads that were begun for a caller who may have left.

use ipfrs_core::{Error, Result};
use tokio::runtime::Handle;

use super::state::UploadStatus;
use crate::Node;

/// An upload that was begun for a caller who may have left: dropping it ends the upload, because its client never
/// learns the location.
pub(super) struct Unclaimed {
    pub(super) node: Node,
    pub(super) status: Option<UploadStatus>,
}

impl Unclaimed {
    pub(super) fn claim(mut self) -> Result<UploadStatus> {
        self.status.take().ok_or_else(|| Error::internal("an upload was claimed twice"))
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let Some(status) = self.status.take().filter(|status| status.uploaded.is_none()) else { return };
        // Without a runtime the process ends: the upload expires in the next one.
        let Ok(runtime) = Handle::try_current() else { return };
        let node = self.node.clone();
        runtime.spawn(async move {
            if let Err(error) = node.end_upload(&status.id).await {
                tracing::error!(id = status.id, %error, "an upload without a client cannot be removed");
            }
        });
    }
}
