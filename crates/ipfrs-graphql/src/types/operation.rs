//! Operations: imports and uploads.

use async_graphql::{Enum, Object};
use ipfrs_core::Error;
use ipfrs_node::{OperationState, Progress};

use crate::scalars::{Cid, Long};

/// State of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Enum)]
pub(crate) enum State {
    /// The operation is running.
    Running,
    /// The operation waits for the client's next request.
    Paused,
    /// The operation succeeded.
    Done,
    /// The operation failed.
    Failed,
}

/// An import or upload.
pub(crate) struct Operation(pub(crate) Progress);

/// An import or upload.
#[Object]
impl Operation {
    /// ID of the operation.
    async fn id(&self) -> &str {
        self.0.id.as_str()
    }

    /// Kind of the operation: add or upload.
    async fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// State of the operation.
    async fn state(&self) -> State {
        match self.0.state {
            OperationState::Running => State::Running,
            OperationState::Paused => State::Paused,
            OperationState::Done { .. } => State::Done,
            OperationState::Failed { .. } => State::Failed,
        }
    }

    /// Bytes of content received so far.
    async fn bytes(&self) -> Long {
        Long(self.0.bytes)
    }

    /// Total bytes of content, if known.
    async fn total(&self) -> Option<Long> {
        self.0.total.map(Long)
    }

    /// Durable blocks made from these bytes.
    async fn blocks(&self) -> Long {
        Long(self.0.blocks)
    }

    /// Bytes per second.
    async fn rate_bytes_per_second(&self) -> Long {
        Long(self.0.rate_bytes_per_second())
    }

    /// Estimated seconds until the end.
    async fn eta_seconds(&self) -> Option<Long> {
        self.0.eta_seconds().map(Long)
    }

    /// Content ID of the result.
    async fn cid(&self) -> Option<Cid> {
        match &self.0.state {
            OperationState::Done { cid, .. } => Some(Cid(*cid)),
            OperationState::Running | OperationState::Paused | OperationState::Failed { .. } => None,
        }
    }

    /// Cause of the failure.
    async fn error(&self) -> Option<String> {
        match &self.0.state {
            OperationState::Failed { kind, message } => {
                Some(Error::new(*kind, message.clone()).public_message().into_owned())
            }
            OperationState::Running | OperationState::Paused | OperationState::Done { .. } => None,
        }
    }
}
