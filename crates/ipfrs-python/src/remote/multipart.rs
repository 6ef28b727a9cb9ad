//! Multipart bodies, as `add` takes them: a part for each file, directory and symlink, named by its path.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

/// The texts between the contents of parts.
#[derive(Debug)]
pub(super) struct Form {
    boundary: String,
    /// Whether a part has begun.
    has_parts: bool,
}

impl Form {
    pub(super) fn new() -> Self {
        // Content that happened to hold the boundary would end its part, so nobody may be able to guess it.
        let random = || RandomState::new().build_hasher().finish();
        Self { boundary: format!("ipfrs-{:016x}{:016x}", random(), random()), has_parts: false }
    }

    pub(super) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={}", self.boundary)
    }

    /// What stands before the content of a part, with the end of the part before it. `attributes` go behind the name of its
    /// field, as Kubo's clients write them.
    pub(super) fn part(&mut self, path: &[u8], attributes: &str, media_type: &str) -> String {
        let before = if std::mem::replace(&mut self.has_parts, true) { "\r\n" } else { "" };
        // The whole path is escaped, its slashes too.
        let path = percent_encode(path, NON_ALPHANUMERIC);
        format!(
            "{before}--{}\r\nContent-Disposition: form-data; name=\"file{attributes}\"; filename=\"{path}\"\r\n\
             Content-Type: {media_type}\r\n\r\n",
            self.boundary
        )
    }

    /// What stands behind the last part.
    pub(super) fn end(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }
}
