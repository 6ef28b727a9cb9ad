//! Text messages of `/ws/ingest`.

use ipfrs_core::Error;
use serde::{Deserialize, Serialize};

/// Maximum length of an error, in bytes.
const MAX_ERROR_BYTES: usize = 1_024;

/// A text message of the client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Ends the object.
    End {},
}

/// A message to the client.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Response<'a> {
    /// The object is open.
    Ready {
        store: &'static str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// Size of the object, which the next message continues.
        bytes: u64,
    },
    /// Number of messages of this connection that are stored, and the size of the object.
    Ack {
        messages: u64,
        bytes: u64,
    },
    /// The object has ended.
    Stored {
        store: &'static str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cid: Option<String>,
        messages: u64,
        bytes: u64,
    },
    Error {
        code: &'static str,
        message: String,
    },
}

impl Response<'_> {
    pub(super) fn error(error: &Error) -> Self {
        let mut message = error.public_message().into_owned();
        message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
        Self::Error { code: error.kind().code(), message }
    }

    pub(super) fn text(&self) -> String {
        // Strings and numbers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}
