//! `multipart/form-data` as Kubo's clients and curl write it.

use bytes::Bytes;

const BOUNDARY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// A body under construction.
pub(crate) struct Form(Vec<u8>);

impl Form {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a file, with its path escaped as Kubo's clients do.
    pub(crate) fn file(self, path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        self.kubo(path.as_ref(), "application/octet-stream", content.as_ref())
    }

    /// Appends a directory.
    pub(crate) fn directory(self, path: impl AsRef<[u8]>) -> Self {
        self.kubo(path.as_ref(), "application/x-directory", b"")
    }

    /// Appends a symlink, whose content is its target.
    pub(crate) fn symlink(self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.kubo(path.as_ref(), "application/symlink", target.as_ref())
    }

    fn kubo(self, path: &[u8], content_type: &str, content: &[u8]) -> Self {
        let escaped: String = form_urlencoded::byte_serialize(path).collect();
        let disposition = format!("Content-Disposition: form-data; name=\"file\"; filename=\"{escaped}\"");
        self.part(&format!("{disposition}\r\nContent-Type: {content_type}"), content)
    }

    /// Appends a part with these header lines.
    pub(crate) fn part(mut self, headers: &str, content: &[u8]) -> Self {
        self.0.extend(format!("--{BOUNDARY}\r\n{headers}\r\n\r\n").as_bytes());
        self.0.extend(content);
        self.0.extend(b"\r\n");
        self
    }

    /// Adds a field with text.
    pub(crate) fn text(self, name: &str, text: &str) -> Self {
        self.part(&format!("Content-Disposition: form-data; name=\"{name}\""), text.as_bytes())
    }

    /// Adds a file as browsers send it.
    pub(crate) fn upload(self, name: &str, filename: &str, content: &str) -> Self {
        let head = format!("Content-Disposition: form-data; name=\"{name}\"; filename=\"{filename}\"");
        self.part(&head, content.as_bytes())
    }

    pub(crate) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }

    /// Returns the complete body.
    pub(crate) fn end(mut self) -> Bytes {
        self.0.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0.into()
    }

    /// Returns the body without its closing boundary and without the last `missing` bytes of its last part.
    pub(crate) fn cut(mut self, missing: usize) -> Bytes {
        self.0.truncate(self.0.len() - "\r\n".len() - missing);
        self.0.into()
    }
}
