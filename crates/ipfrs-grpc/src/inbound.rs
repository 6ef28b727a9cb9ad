//! What clients stream to us.

use std::time::Duration;

use ipfrs_core::{Error, ErrorKind};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::error;

/// The messages of a call that others may wait for: a client that pauses for too long is given up.
#[derive(Debug)]
pub(crate) struct Inbound<T> {
    messages: Streaming<T>,
    patience: Duration,
}

impl<T> Inbound<T> {
    pub(crate) fn new(messages: Streaming<T>, patience: Duration) -> Self {
        Self { messages, patience }
    }

    /// The next message; `None` once the client has sent all.
    ///
    /// # Errors
    /// When the stream breaks off, a message is malformed or too large, or the client pauses for longer than
    /// `gateway.upload_idle_seconds`.
    pub(crate) async fn next(&mut self) -> Result<Option<T>, Status> {
        match timeout(self.patience, self.messages.message()).await {
            // What broke off has no code of its own.
            Ok(Err(status)) if status.code() == Code::Unknown => {
                Err(Status::cancelled("the client's stream broke off before its end"))
            }
            Ok(message) => message.map_err(error::clarified),
            Err(_) => {
                let seconds = self.patience.as_secs();
                let why = format!("the stream paused for {seconds} s (gateway.upload_idle_seconds) and was given up");
                Err(error::status(Error::new(ErrorKind::Timeout, why)))
            }
        }
    }
}
