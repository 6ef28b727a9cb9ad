//! Entry point for fuzzing messages of clients.

use ipfrs_node::Topic;

use super::filter::Filter;
use super::protocol::{Request, Response, id_of, parse};

/// Reads a message. The response to one that is refused must be short JSON.
pub(crate) fn message(text: &str) {
    match parse(text) {
        Ok(Request::Subscribe { topic, filter, .. }) => {
            if let Some(topic) = Topic::ALL.into_iter().find(|known| known.name() == topic) {
                let _ = Filter::read(topic, &filter.unwrap_or_default());
            }
        }
        Ok(_) => {}
        Err(error) => {
            let response = Response::error(&error, id_of(text)).text();
            assert!(serde_json::from_str::<serde_json::Value>(&response).is_ok() && response.len() < 16 * 1024);
        }
    }
}
