//! Description of a representation, of which a response has no part or not all.

use http::{HeaderValue, Response};

/// The representation of a response that does not contain all of it, attached to that response as an extension.
/// Compression needs it.
#[derive(Debug, Clone)]
pub struct Representation {
    /// Its media type.
    pub content_type: Option<HeaderValue>,
    /// Its length in bytes, if known.
    pub length: Option<u64>,
}

impl Representation {
    /// Adds the description to a response.
    #[must_use]
    pub fn describe<B>(self, mut response: Response<B>) -> Response<B> {
        response.extensions_mut().insert(self);
        response
    }
}
