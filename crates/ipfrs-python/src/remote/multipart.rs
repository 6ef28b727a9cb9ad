//! Multipart bodies for `add`, with one part per file, directory and symlink, named by its path.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// A generator for the text between the contents of parts.
#[derive(Debug)]
pub(super) struct Form {
    boundary: String,
    /// Whether a part has been started.
    has_parts: bool,
}

impl Form {
    pub(super) fn new() -> Self {
        // Content that contained the boundary would end its part early, so an attacker must not be able to predict
        // it.
        let random = || RandomState::new().build_hasher().finish();
        Self { boundary: format!("ipfrs-{:016x}{:016x}", random(), random()), has_parts: false }
    }

    pub(super) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// Returns the text before the content of a part, including the end of the previous part. `attributes` are
    /// appended to the field name, as Kubo's clients do.
    pub(super) fn part(&mut self, path: &[u8], attributes: &str, media_type: &str) -> String {
        let before = if std::mem::replace(&mut self.has_parts, true) { "\r\n" } else { "" };
        // The whole path is escaped, including its slashes.
        let path = percent_encode(path, NON_ALPHANUMERIC);
        format!(
            "{before}--{}\r\nContent-Disposition: form-data; name=\"file{attributes}\"; filename=\"{path}\"\r\n\
             Content-Type: {media_type}\r\n\r\n",
            self.boundary
        )
    }

    /// Returns the text after the last part.
    pub(super) fn end(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }
}
