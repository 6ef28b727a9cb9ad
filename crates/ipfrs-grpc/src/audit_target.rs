//! Subject of a call, for its line of the audit log: only its method can read it from the message, or knows what it
//! has stored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ipfrs_middleware::auth::{shortened_argument, stored_blocks};
use tonic::Request;

/// Extension of calls that change something: their path or content ID, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditTarget(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// First path or content ID that the method noted.
    text: OnceLock<String>,
    /// Number of blocks that a batch has stored.
    blocks: AtomicUsize,
}

impl AuditTarget {
    /// Returns the text, if the method has noted one.
    pub(crate) fn text(&self) -> Option<String> {
        self.0.text.get().map(|first| stored_blocks(first, self.0.blocks.load(Ordering::Relaxed)))
    }

    /// Notes what a call is about. Only the first text counts, and no empty one.
    pub(crate) fn note(&self, text: &str) {
        if !text.is_empty() {
            self.0.text.get_or_init(|| shortened_argument(text).into_owned());
        }
    }

    /// Notes a block that a batch has stored.
    pub(crate) fn note_block(&self, cid: &str) {
        self.note(cid);
        self.0.blocks.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the audit target of a call, so that its method can note later what it stores. If the call is not audited,
/// notes have no effect.
pub(crate) fn of<T>(request: &Request<T>) -> AuditTarget {
    request.extensions().get::<AuditTarget>().cloned().unwrap_or_default()
}

/// Notes what a call is about.
pub(crate) fn note<T>(request: &Request<T>, text: &str) {
    of(request).note(text);
}
