//! Requests under construction.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, TE};
use ipfrs_core::{Error, Result, uri_as_path};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use reqwest::Body;

use super::Pieces;
use super::upload::Upload;

/// Maximum length of path and query in bytes. Servers accept URLs of up to 65,534 bytes.
const MAX_URL_BYTES: usize = 64_000;

/// Characters to escape in a path segment: all except the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A request under construction.
pub struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Body>,
    /// The source of the body, if it is produced while it is sent.
    pub(super) upload: Option<Upload>,
    /// Whether the request may be sent again if the connection broke before the response began.
    pub(super) is_repeatable: bool,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}?{}", self.method, self.path, self.query)
    }
}

impl Request {
    /// Creates a request with this method for an escaped path.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        let (path, query, headers) = (path.into(), String::new(), HeaderMap::new());
        Self { method, path, query, headers, body: None, upload: None, is_repeatable: false }
    }

    /// Creates a request for an RPC command without side effects.
    pub fn query(command: &str) -> Self {
        Self::command(command).repeatable()
    }

    /// Creates a request for an RPC command.
    pub fn command(command: &str) -> Self {
        Self::new(Method::POST, format!("/api/v0/{command}"))
    }

    /// Creates a GET request for an escaped path.
    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path).repeatable()
    }

    /// Creates a POST request for an escaped path.
    pub fn post(path: impl Into<String>) -> Self {
        Self::new(Method::POST, path)
    }

    /// Adds an option.
    #[must_use]
    pub fn with(self, name: &str, value: impl ToString) -> Self {
        self.with_bytes(name, value.to_string().as_bytes())
    }

    /// Adds an option if `value` is given.
    #[must_use]
    pub fn with_some(self, name: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds an argument, which need not be UTF-8.
    #[must_use]
    pub fn with_arg(self, argument: impl AsRef<OsStr>) -> Self {
        self.with_bytes("arg", argument.as_ref().as_bytes())
    }

    /// Adds several arguments.
    #[must_use]
    pub fn with_args(self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        arguments.into_iter().fold(self, Self::with_arg)
    }

    fn with_bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.query.push_str(if self.query.is_empty() { "" } else { "&" });
        self.query.push_str(name);
        self.query.push('=');
        self.query.extend(form_urlencoded::byte_serialize(value));
        self
    }

    /// Requests trailers, with which the RPC API reports why a stream ended early.
    #[must_use]
    pub fn with_trailers(mut self) -> Self {
        self.headers.insert(TE, HeaderValue::from_static("trailers"));
        self
    }

    /// Requests a media type.
    #[must_use]
    pub fn accepting(mut self, media_type: &'static str) -> Self {
        self.headers.insert(ACCEPT, HeaderValue::from_static(media_type));
        self
    }

    /// Sets a body that is complete.
    ///
    /// # Errors
    /// Fails if `media_type` is not a header value.
    pub fn with_body(mut self, media_type: &str, body: impl Into<Body>) -> Result<Self> {
        let media_type = HeaderValue::from_str(media_type);
        let media_type = media_type.map_err(|e| Error::internal("a media type is no header").with_source(e))?;
        self.headers.insert(CONTENT_TYPE, media_type);
        self.body = Some(body.into());
        Ok(self)
    }

    /// Sets a body that is produced while it is sent. If that fails, the call returns the error of `pieces`. They are
    /// dropped with the response.
    ///
    /// # Errors
    /// Fails if `media_type` is not a header value.
    pub fn with_upload(self, media_type: &str, pieces: Pieces) -> Result<Self> {
        let upload = Upload::new(pieces);
        let body = upload.body();
        Ok(Self { upload: Some(upload), ..self.with_body(media_type, body)? })
    }

    /// Marks the request as repeatable: it has no side effects.
    #[must_use]
    pub fn repeatable(self) -> Self {
        Self { is_repeatable: true, ..self }
    }

    pub(super) fn check_length(&self) -> Result<()> {
        if self.path.len() + self.query.len() <= MAX_URL_BYTES {
            return Ok(());
        }
        Err(Error::too_large(format!(
            "the arguments are over the limit of {MAX_URL_BYTES} bytes for one request: pass fewer of them at a time"
        )))
    }
}

/// Escapes a content path for use in a URL, as `CID/a/b` or `ipns/NAME/a/b`. `path` is one of these forms, begins with
/// `/ipfs/` or `/ipns/`, or is a [URI](uri_as_path); `/ipld/` only before a content ID alone.
///
/// # Errors
/// Returns [`ErrorKind::NotFound`](ipfrs_core::ErrorKind::NotFound) for a segment `.` or `..`, because URLs would
/// resolve it to another path.
pub fn escape_path(path: &[u8]) -> Result<String> {
    let path = uri_as_path(path);
    let path: &[u8] = &path;
    let below = |prefixes: &[&str]| prefixes.iter().find_map(|prefix| path.strip_prefix(prefix.as_bytes()));
    let (root, rest) = match below(&["/ipns/"]) {
        Some(rest) => ("ipns/", rest),
        None => ("", below(&["/ipfs/", "/ipld/"]).unwrap_or(path)),
    };
    if path.starts_with(b"/ipld/")
        && rest.trim_ascii().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).count() > 1
    {
        let path = String::from_utf8_lossy(path);
        return Err(Error::unsupported(format!(
            "{path} names a value, which only the dag commands read: use an /ipfs/ path"
        )));
    }
    let names = || rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    if let Some(name) = names().find(|name| matches!(*name, b"." | b"..")) {
        let (name, path) = (String::from_utf8_lossy(name), String::from_utf8_lossy(path));
        return Err(Error::not_found(format!("no link named {name:?} in {path}")));
    }
    let segments: Vec<_> = names().map(|name| percent_encode(name, ESCAPED).to_string()).collect();
    Ok(format!("{root}{}", segments.join("/")))
}
