//! What a call is about, for its line of the audit log: only its method can read it from the message.

use std::sync::{Arc, OnceLock};

use ipfrs_middleware::auth::shortened_argument;
use tonic::Request;

/// Extension of calls that change something: their path or content ID, once it is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct AuditTarget(Arc<OnceLock<String>>);

impl AuditTarget {
    /// Returns the text, if the method has noted it.
    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// Notes what a call is about. Only the first text counts.
pub(crate) fn note<T>(request: &Request<T>, text: &str) {
    if let Some(target) = request.extensions().get::<AuditTarget>() {
        target.0.get_or_init(|| shortened_argument(text).into_owned());
    }
}
