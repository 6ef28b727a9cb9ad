//! Serialized responses.

use std::sync::Arc;

use bytes::Bytes;

use crate::context::Budget;
use crate::json;
use crate::operation::Answer;

/// Returns a response as JSON between `head` and `tail`, and whether it is complete: one that is too large, or for
/// which there is no memory, is replaced by an error. The bytes hold the memory of the response until they are sent.
pub(super) fn serialized(mut answer: Answer, head: &str, tail: &str) -> (Bytes, bool) {
    let budget = answer.budget.take();
    match json::limited(&answer, head, tail, budget.as_deref()) {
        Ok(bytes) => (Bytes::from_owner(HeldBytes { bytes, _budget: budget }), true),
        Err(error) => {
            let json = json::to_string(&Answer::failed(&error));
            (format!("{head}{json}{tail}").into(), false)
        }
    }
}

/// Bytes with the memory that was reserved for them.
struct HeldBytes {
    bytes: Vec<u8>,
    _budget: Option<Arc<Budget>>,
}

impl AsRef<[u8]> for HeldBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
