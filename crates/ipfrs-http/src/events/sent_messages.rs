//! Counters of sent messages.

use ipfrs_middleware::websocket::WebSockets;
use ipfrs_node::Topic;
use prometheus::IntCounter;

/// Counters of sent messages, by topic.
#[derive(Debug)]
pub(crate) struct SentMessages([IntCounter; Topic::ALL.len()]);

impl SentMessages {
    pub(crate) fn new(websockets: &WebSockets) -> Self {
        Self(Topic::ALL.map(|topic| websockets.sent(topic.name())))
    }

    pub(super) fn of(&self, topic: Topic) -> &IntCounter {
        &self.0[topic as usize]
    }
}
