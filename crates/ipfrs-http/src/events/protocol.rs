//! Messages of `/ws`.

use ipfrs_core::{Error, Result};
use ipfrs_middleware::json_object;
use ipfrs_node::Topic;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Maximum length of an ID, in bytes.
const MAX_ID_BYTES: usize = 128;

/// Maximum length of an error, in bytes: it quotes the message of the client.
const MAX_ERROR_BYTES: usize = 1_024;

/// A message of the client.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Begins a subscription, or replaces that of the same topic.
    Subscribe {
        topic: String,
        #[serde(default, deserialize_with = "json_object::distinct")]
        filter: Option<Map<String, Value>>,
        /// Number of the last event that the client has.
        #[serde(default)]
        after: Option<u64>,
        /// The `instance` that it came from.
        #[serde(default)]
        instance: Option<String>,
        #[serde(default)]
        id: Option<Id>,
    },
    /// Ends a subscription.
    Unsubscribe {
        topic: String,
        #[serde(default)]
        id: Option<Id>,
    },
    Ping {
        #[serde(default)]
        id: Option<Id>,
    },
    /// The response to a `ping`, which this server does not send.
    Pong {
        #[serde(default)]
        id: Option<Id>,
    },
}

/// An ID that the client chose for a request, and that the response has.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(untagged, expecting = "an id is a string or a number")]
pub(super) enum Id {
    Number(u64),
    Text(String),
}

/// A message to the client.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Response<'a> {
    Subscribed {
        topic: &'static str,
        /// Number of the last event before the first that will be sent.
        seq: u64,
        instance: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Id>,
    },
    Unsubscribed {
        topic: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Id>,
    },
    /// Number of events that are lost; `null` if unknown.
    Lagged { topic: &'static str, missed: Option<u64> },
    Pong {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Id>,
    },
    Error {
        code: &'static str,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<Id>,
    },
}

impl Response<'_> {
    pub(super) fn error(error: &Error, id: Option<Id>) -> Self {
        let mut message = error.public_message().into_owned();
        if message.len() > MAX_ERROR_BYTES {
            message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
            message.push_str(" ...");
        }
        Self::Error { code: error.kind().code(), message, id }
    }

    pub(super) fn text(&self) -> String {
        // Strings and numbers always serialize.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns the ID of a message that is not valid otherwise.
pub(super) fn id_of(text: &str) -> Option<Id> {
    let message: Value = serde_json::from_str(text).ok()?;
    let id: Id = serde_json::from_value(message.get("id")?.clone()).ok()?;
    (!matches!(&id, Id::Text(text) if text.len() > MAX_ID_BYTES)).then_some(id)
}

/// Parses a message of the client.
pub(super) fn parse(text: &str) -> Result<Request> {
    let request: Request = json_object::parse(text.as_bytes()).map_err(|e| {
        let topics = Topic::ALL.map(Topic::name).join(", ");
        let example = r#"{"type":"subscribe","topic":"blocks"}"#;
        Error::invalid(format!("{e}: send messages such as {example}; the topics are {topics}"))
    })?;
    match request.id() {
        Some(Id::Text(id)) if id.len() > MAX_ID_BYTES => {
            Err(Error::invalid(format!("the id is longer than {MAX_ID_BYTES} bytes")))
        }
        _ => Ok(request),
    }
}

impl Request {
    fn id(&self) -> Option<&Id> {
        match self {
            Self::Subscribe { id, .. } | Self::Unsubscribe { id, .. } | Self::Ping { id } | Self::Pong { id } => {
                id.as_ref()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_field_of_a_filter_is_refused() {
        let subscribe = |filter: &str| parse(&format!(r#"{{"type":"subscribe","topic":"blocks","filter":{filter}}}"#));
        for accepted in ["null", "{}", r#"{"action":"added"}"#] {
            assert!(subscribe(accepted).is_ok(), "{accepted}");
        }
        let refused = subscribe(r#"{"action":"added","action":"removed"}"#).unwrap_err();
        assert!(refused.public_message().contains("duplicate field `action`"), "{refused}");
        assert!(subscribe("[]").is_err());
    }
}
