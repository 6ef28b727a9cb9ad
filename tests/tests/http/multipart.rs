//! `multipart/form-data` as Kubo's clients write it, and as curl does.

use bytes::Bytes;

const BOUNDARY: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";

/// A body that is being written.
pub(crate) struct Form(Vec<u8>);

impl Form {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// A file. Its path is escaped as Kubo's clients do.
    pub(crate) fn file(self, path: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> Self {
        self.kubo(path.as_ref(), "application/octet-stream", content.as_ref())
    }

    /// A directory.
    pub(crate) fn directory(self, path: impl AsRef<[u8]>) -> Self {
        self.kubo(path.as_ref(), "application/x-directory", b"")
    }

    /// A symlink, whose content is its target.
    pub(crate) fn symlink(self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        self.kubo(path.as_ref(), "application/symlink", target.as_ref())
    }

    fn kubo(self, path: &[u8], content_type: &str, content: &[u8]) -> Self {
        let escaped: String = form_urlencoded::byte_serialize(path).collect();
        let disposition = format!("Content-Disposition: form-data; name=\"file\"; filename=\"{escaped}\"");
        self.part(&format!("{disposition}\r\nContent-Type: {content_type}"), content)
    }

    /// A part with these header lines.
    pub(crate) fn part(mut self, headers: &str, content: &[u8]) -> Self {
        self.0.extend(format!("--{BOUNDARY}\r\n{headers}\r\n\r\n").as_bytes());
        self.0.extend(content);
        self.0.extend(b"\r\n");
        self
    }

    pub(crate) fn content_type(&self) -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }

    /// The whole body.
    pub(crate) fn end(mut self) -> Bytes {
        self.0.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
        self.0.into()
    }

    /// The body without its end, and without the last `missing` bytes of its last part.
    pub(crate) fn cut(mut self, missing: usize) -> Bytes {
        self.0.truncate(self.0.len() - "\r\n".len() - missing);
        self.0.into()
    }
}
