//! Checks of HTTP/1.1 request heads before hyper reads them. hyper refuses a head without a text, a request ID or a
//! metric, and does not enforce the limit on its size exactly.

use std::mem::MaybeUninit;
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, TE, TRANSFER_ENCODING, USER_AGENT};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use ipfrs_node::Limit;

/// Maximum number of headers in an HTTP/1.1 request, the same as in hyper.
const MAX_HEADERS: usize = 100;

/// Maximum length of a request target, the limit of `http::Uri`.
const MAX_TARGET_BYTES: usize = 65_534;

/// Longest name of a header, in bytes: hyper refuses a longer one by itself.
const MAX_NAME_BYTES: usize = 65_535;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Length of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Bytes(u64),
    Chunked,
}

/// Length of a request on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Size of the head in bytes, including the empty line at its end.
    pub(crate) head: usize,
    pub(crate) body: BodyLength,
    /// Offset in the head of an additional line `TE: trailers`, which is for hyper. Kubo's command line reads the
    /// trailers of responses, but does not say so, and hyper sends no trailers to clients that do not.
    pub(crate) takes_trailers_at: Option<usize>,
}

impl Extent {
    /// Returns the length of a request to which no line is added.
    pub(crate) fn new(head: usize, body: BodyLength) -> Self {
        Self { head, body, takes_trailers_at: None }
    }
}

/// Reason why a request is refused because of its head.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
    /// The limit that was exceeded, if any.
    pub(crate) limit: Option<Limit>,
    /// Method of the request; `GET` if unknown.
    pub(crate) method: Method,
    pub(crate) target: String,
    /// The request ID, if the client sent one.
    pub(crate) headers: HeaderMap,
}

impl Refusal {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        let (method, target, headers) = (Method::GET, String::new(), HeaderMap::new());
        Self { status, text: text.into(), limit: None, method, target, headers }
    }

    fn malformed(text: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// Returns a 431 response for a head of more than `most` bytes.
    pub(crate) fn large_head(most: usize) -> Self {
        let what = format!("the head of the request is larger than {most} bytes (server.max_header_bytes = {most})");
        let text = format!("{what}: send fewer or shorter headers, or raise the limit");
        let limit = Some(Limit::HeaderBytes);
        Self { limit, ..Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text) }
    }

    /// Returns a 431 response for a header whose name is longer than [`MAX_NAME_BYTES`].
    fn long_name() -> Self {
        let text = format!("the name of a header is longer than {MAX_NAME_BYTES} bytes: send a shorter one");
        Self { limit: Some(Limit::HeaderBytes), ..Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text) }
    }

    /// Returns a 408 response for a head that was not complete within `longest`.
    pub(crate) fn late_head(longest: Duration) -> Self {
        let seconds = longest.as_secs();
        let what = format!("the head of the request did not end within {seconds} s");
        let text = format!("{what} (server.header_timeout_seconds = {seconds}): send all of it at once");
        Self { limit: Some(Limit::HeaderTimeout), ..Self::new(StatusCode::REQUEST_TIMEOUT, text) }
    }

    fn many_headers() -> Self {
        let text = format!("the request has more than {MAX_HEADERS} headers, which is a fixed limit: send fewer");
        let limit = Some(Limit::HeaderBytes);
        Self { limit, ..Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text) }
    }

    fn long_target(most: usize) -> Self {
        let text = format!(
            "the target of the request is too long: at most {MAX_TARGET_BYTES} bytes, in a head of at most {most} \
             (server.max_header_bytes = {most}): use a shorter path, or send the data in a body"
        );
        Self { limit: Some(Limit::TargetBytes), ..Self::new(StatusCode::URI_TOO_LONG, text) }
    }

    /// Adds the details of an HTTP/2 request.
    pub(crate) fn of_http2<B>(mut self, request: &Request<B>) -> Self {
        self.method = request.method().clone();
        request.uri().path().clone_into(&mut self.target);
        let id = request.headers().get(X_REQUEST_ID).cloned();
        self.headers.extend(id.map(|id| (X_REQUEST_ID, id)));
        self
    }

    /// Adds the method at the start of `bytes`, which are not a valid head. A response to HEAD has no body.
    fn of_method(mut self, bytes: &[u8]) -> Self {
        let line = &bytes[empty_lines(bytes)..];
        let method = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        self.method = Method::from_bytes(method).unwrap_or(Method::GET);
        self
    }

    /// Adds the details of a parsed head.
    fn of(mut self, request: &httparse::Request<'_, '_>) -> Self {
        let method = request.method.and_then(|method| Method::from_bytes(method.as_bytes()).ok());
        self.method = method.unwrap_or(Method::GET);
        request.path.unwrap_or_default().clone_into(&mut self.target);
        let id = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(X_REQUEST_ID.as_str()));
        if let Some(id) = id.and_then(|id| HeaderValue::from_bytes(id.value).ok()) {
            self.headers.insert(X_REQUEST_ID, id);
        }
        self
    }
}

/// Returns the length of the empty lines before the first request (RFC 9112, 2.2).
pub(crate) fn empty_lines(bytes: &[u8]) -> usize {
    let mut len = 0;
    loop {
        match &bytes[len..] {
            [b'\n', ..] => len += 1,
            [b'\r', b'\n', ..] => len += 2,
            _ => return len,
        }
    }
}

/// Whether a head may end in `bytes`, given that none ends in the first `seen` bytes.
pub(crate) fn has_end(bytes: &[u8], seen: usize) -> bool {
    let new = &bytes[seen.saturating_sub(3)..];
    memchr::memchr_iter(b'\n', new).any(|at| matches!(&new[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// Checks the head at the start of `bytes`, which may have up to `most` bytes. Returns `None` if it is incomplete.
/// Uses the parser of hyper with the same settings.
///
/// # Errors
/// A [`Refusal`] if the head is malformed or too large, or has an unsupported version or transfer coding.
pub(crate) fn check(bytes: &[u8], most: usize) -> Result<Option<Extent>, Box<Refusal>> {
    let mut found = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    match request.parse_with_uninit_headers(bytes, &mut found) {
        Ok(httparse::Status::Complete(head)) if head <= most => {
            let body = body_length(&request).and_then(|body| check_target(&request, most).map(|()| body));
            let takes_trailers_at = reads_trailers_unsaid(&request).then(|| request_line(bytes));
            let extent = body.map(|body| Some(Extent { takes_trailers_at, ..Extent::new(head, body) }));
            extent.map_err(|refusal| Box::new((*refusal).of(&request)))
        }
        Ok(httparse::Status::Complete(_)) => Err(Box::new(Refusal::large_head(most).of(&request))),
        Ok(httparse::Status::Partial) if bytes.len() < most => Ok(None),
        Ok(httparse::Status::Partial) => Err(Box::new(match memchr::memchr(b'\n', bytes) {
            Some(_) => Refusal::large_head(most).of(&request),
            None => Refusal::long_target(most).of_method(bytes),
        })),
        Err(httparse::Error::Version) => unsupported_version(bytes, most),
        Err(httparse::Error::TooManyHeaders) => Err(Box::new(Refusal::many_headers().of(&request))),
        Err(error) => Err(Box::new(Refusal::malformed(reason(error, &request)).of(&request))),
    }
}

/// Whether the request is one of Kubo's command line, without `TE`, and may have one header more.
fn reads_trailers_unsaid(request: &httparse::Request<'_, '_>) -> bool {
    let is = |header: &httparse::Header<'_>, name: HeaderName| header.name.eq_ignore_ascii_case(name.as_str());
    let is_kubo = |header| is(header, USER_AGENT) && header.value.starts_with(b"go-ipfs-cmds/");
    request.headers.len() < MAX_HEADERS
        && request.headers.iter().any(is_kubo)
        && !request.headers.iter().any(|header| is(header, TE))
}

/// Returns the size of the request line of a complete head, with what precedes it.
fn request_line(bytes: &[u8]) -> usize {
    let start = empty_lines(bytes);
    memchr::memchr(b'\n', &bytes[start..]).map_or(start, |end| start + end + 1)
}

fn reason(error: httparse::Error, request: &httparse::Request<'_, '_>) -> &'static str {
    match error {
        httparse::Error::HeaderName => "a header's name has a character that no token may have (RFC 9110, 5.1)",
        httparse::Error::HeaderValue => {
            "a header's value has a control character or continues on the next line (RFC 9112, 5)"
        }
        httparse::Error::NewLine => "a line of the head does not end with CRLF (RFC 9112, 2.2)",
        _ if request.method.is_none() => "the request does not begin with a method (RFC 9112, 3)",
        _ => "the request line does not consist of a method, a target and a version (RFC 9112, 3)",
    }
}

/// Refuses a version other than 1.0 and 1.1. Returns `None` if the line is incomplete.
fn unsupported_version(bytes: &[u8], most: usize) -> Result<Option<Extent>, Box<Refusal>> {
    let line = match memchr::memchr(b'\n', bytes) {
        Some(end) => &bytes[..end],
        None if bytes.len() < most => return Ok(None),
        None => return Err(Refusal::long_target(most).of_method(bytes).into()),
    };
    let version = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
    match version.strip_suffix(b"\r").unwrap_or(version) {
        // The parser supports this version, so it must have parsed a part of a target with a space as the version.
        b"HTTP/1.1" | b"HTTP/1.0" => {
            Err(Refusal::malformed("the target of the request has a space (RFC 9112, 3.2): percent-encode it")
                .of_method(bytes)
                .into())
        }
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit() => {
            let text = "this version of HTTP is not supported: use HTTP/1.1, HTTP/1.0, or HTTP/2 with its preface";
            Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text).of_method(bytes).into())
        }
        _ => Err(Refusal::malformed("the request line does not end with an HTTP version (RFC 9112, 2.3)")
            .of_method(bytes)
            .into()),
    }
}

fn check_target(request: &httparse::Request<'_, '_>, most: usize) -> Result<(), Box<Refusal>> {
    let target = request.path.unwrap_or_default();
    if target.len() > MAX_TARGET_BYTES {
        return Err(Refusal::long_target(most).into());
    }
    let Ok(uri) = target.parse::<Uri>() else {
        return Err(Refusal::malformed("the request's target is not a URI (RFC 9112, 3.2): percent-encode it").into());
    };
    // The parser of URIs drops fragments, and with them parts of arguments.
    if target.contains('#') {
        return Err(Refusal::malformed("the request's target has a fragment (RFC 9112, 3.2): send # as %23").into());
    }
    // Without a method, the parser has failed before.
    let method = request.method.unwrap_or_default();
    let is_allowed = target.starts_with('/')
        || uri.scheme().is_some()
        || method == Method::CONNECT.as_str()
        || (target == "*" && method == Method::OPTIONS.as_str());
    if is_allowed {
        return Ok(());
    }
    let text = "the request's target is neither a path nor a URL: only CONNECT has a host and a port, and only OPTIONS \
                has * (RFC 9112, 3.2)";
    Err(Refusal::malformed(text).into())
}

/// Returns the length of the body (RFC 9112, 6.3). Refuses requests that two implementations could interpret
/// differently.
fn body_length(request: &httparse::Request<'_, '_>) -> Result<BodyLength, Box<Refusal>> {
    let (mut length, mut codings, mut has_coding) = (None, Codings::default(), false);
    let is_connect = request.method.is_some_and(|method| method == Method::CONNECT.as_str());
    for header in request.headers.iter() {
        if header.name.len() > MAX_NAME_BYTES {
            return Err(Refusal::long_name().into());
        }
        let is_length = header.name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str());
        if is_connect && (is_length || header.name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str())) {
            let text = "CONNECT has no content (RFC 9110, 9.3.6): leave out Content-Length and Transfer-Encoding";
            return Err(Refusal::malformed(text).into());
        }
        if is_length {
            let bytes = content_length(header.value)
                .ok_or_else(|| Refusal::malformed("Content-Length is not a number of bytes (RFC 9110, 8.6)"))?;
            if length.replace(bytes).is_some_and(|other| other != bytes) {
                return Err(Refusal::malformed("the request has two Content-Lengths (RFC 9112, 6.3): send one").into());
            }
        } else if header.name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str()) {
            has_coding = true;
            codings.read(header.value);
        }
    }
    if !has_coding {
        return Ok(BodyLength::Bytes(length.unwrap_or(0)));
    }
    if request.version == Some(0) {
        return Err(Refusal::malformed("HTTP/1.0 has no Transfer-Encoding (RFC 9112, 6.1): send Content-Length").into());
    }
    if length.is_some() {
        let text = "the request has Content-Length and Transfer-Encoding (RFC 9112, 6.3): send one of them";
        return Err(Refusal::malformed(text).into());
    }
    match codings {
        Codings { ends_chunked: false, .. } => {
            Err(Refusal::malformed("the last coding of Transfer-Encoding is not chunked (RFC 9112, 6.3)").into())
        }
        Codings { count: 1, .. } => Ok(BodyLength::Chunked),
        Codings { .. } => {
            let text = "the only supported transfer coding is chunked, once (RFC 9112, 6.1): send the body unencoded";
            Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text).into())
        }
    }
}

/// Transfer codings of a request, from all header lines.
#[derive(Debug, Default)]
struct Codings {
    count: usize,
    ends_chunked: bool,
}

impl Codings {
    fn read(&mut self, value: &[u8]) {
        for coding in value.split(|byte| *byte == b',') {
            let coding = coding.trim_ascii();
            self.count += usize::from(!coding.is_empty());
            self.ends_chunked = coding.eq_ignore_ascii_case(b"chunked");
        }
    }
}

/// Parses a number that consists of digits only, like hyper. The two largest numbers have a special meaning in hyper.
fn content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(value).ok()?.parse().ok().filter(|bytes| *bytes < u64::MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 8 * 1024;

    /// Returns the status of a refused head, 0 for an accepted head, and 1 for an incomplete one.
    fn status(head: &str) -> u16 {
        match check(head.as_bytes(), MOST) {
            Ok(Some(_)) => 0,
            Ok(None) => 1,
            Err(refusal) => refusal.status.as_u16(),
        }
    }

    fn headers(lines: &str) -> String {
        format!("POST / HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n")
    }

    #[test]
    fn header_name_longer_than_hyper_takes_is_431() {
        let head = |len: usize| format!("GET / HTTP/1.1\r\nHost: x\r\n{}: y\r\n\r\n", "n".repeat(len));
        assert!(check(head(MAX_NAME_BYTES).as_bytes(), 1 << 20).unwrap().is_some());
        let refusal = check(head(MAX_NAME_BYTES + 1).as_bytes(), 1 << 20).unwrap_err();
        assert_eq!(refusal.status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        assert!(refusal.text.contains("the name of a header"), "{}", refusal.text);
    }

    #[test]
    fn transfer_encoding_other_than_chunked_once_is_refused() {
        for (lines, expected) in [
            ("Transfer-Encoding: chunked", 0),
            ("transfer-encoding:CHUNKED ", 0),
            ("Transfer-Encoding: ,chunked", 0),
            ("Transfer-Encoding: chunked,", 400),
            ("Transfer-Encoding: gzip, chunked", 501),
            ("Transfer-Encoding: chunked, chunked", 501),
            ("Transfer-Encoding: chunked,chunked", 501),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", 501),
            ("Transfer-Encoding: gzip\r\nA: b\r\nTRANSFER-ENCODING: chunked", 501),
            ("Transfer-Encoding: identity, chunked", 501),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding:", 400),
            ("Transfer-Encoding: gzip", 400),
            ("Transfer-Encoding: chunked, gzip", 400),
            ("Transfer-Encoding: xchunked", 400),
            ("Transfer-Encoding: chunked;q=1", 400),
            ("Transfer-Encoding: \"chunked\"", 400),
            ("Transfer-Encoding: \u{b}chunked", 400),
            ("Transfer-Encoding:", 400),
            ("Transfer-Encoding : chunked", 400),
            ("Transfer-Encoding: chunked\r\nContent-Length: 3", 400),
            ("Content-Length: 3\r\nTransfer-Encoding: chunked", 400),
            ("Content-Length: 3\r\nContent-Length: 3", 0),
            ("Content-Length: 3\r\nContent-Length: 4", 400),
            ("Content-Length: 3, 3", 400),
            ("Content-Length: +3", 400),
            ("Content-Length: -3", 400),
            ("Content-Length:", 400),
            ("Content-Length: 0x3", 400),
            ("Content-Length: 18446744073709551615", 400),
            ("Content-Length: 18446744073709551616", 400),
        ] {
            assert_eq!(status(&headers(lines)), expected, "{lines}");
        }
        assert_eq!(status("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
        let chunked = headers("Transfer-Encoding: Chunked");
        let extent = check(chunked.as_bytes(), MOST).unwrap().unwrap();
        assert_eq!(extent, Extent::new(chunked.len(), BodyLength::Chunked));
        let sized = headers("Content-Length: 007");
        let extent = check(format!("{sized}GET").as_bytes(), MOST).unwrap().unwrap();
        assert_eq!(extent, Extent::new(sized.len(), BodyLength::Bytes(7)));
    }

    #[test]
    fn line_for_trailers_follows_the_request_line_of_kubo() {
        let at = |lines: &str| {
            let head = format!("\r\nPOST /x HTTP/1.1\r\n{lines}\r\n\r\n");
            check(head.as_bytes(), MOST).unwrap().unwrap().takes_trailers_at
        };
        assert_eq!(at("Host: x\r\nuser-agent: go-ipfs-cmds/http"), Some("\r\nPOST /x HTTP/1.1\r\n".len()));
        for others in
            ["User-Agent: go-ipfs-cmds/http\r\nTE: gzip", "User-Agent: Go-http-client/1.1", "X: go-ipfs-cmds/"]
        {
            assert_eq!(at(others), None, "{others}");
        }
    }

    #[test]
    fn version_other_than_1_0_and_1_1_is_505_or_400() {
        for (line, expected) in [
            ("GET / HTTP/1.1", 0),
            ("GET / HTTP/1.0", 0),
            ("GET / HTTP/1.2", 505),
            ("GET / HTTP/9.9", 505),
            ("GET / HTTP/2.0", 505),
            ("GET / HTTP/0.9", 505),
            ("PRI * HTTP/2.0", 505),
            ("GET / HTTP/11.1", 400),
            ("GET / HTTP/1.10", 400),
            ("GET / HTTP/1", 400),
            ("GET / http/1.1", 400),
            ("GET / FTP/1.1", 400),
            ("GET / HTTP/1.1 ", 400),
            ("GET /", 400),
            ("GET", 400),
            ("GET  / HTTP/1.1", 400),
            ("GET /a b HTTP/1.1", 400),
            (" GET / HTTP/1.1", 400),
            ("GET /\u{1} HTTP/1.1", 400),
            ("\u{16}\u{3}\u{1}", 400),
            ("GET http:///x HTTP/1.1", 400),
        ] {
            assert_eq!(status(&format!("{line}\r\nHost: x\r\n\r\n")), expected, "{line:?}");
        }
        for end in 0.."GET / HTTP/9.9\r".len() {
            assert_eq!(status(&"GET / HTTP/9.9\r"[..end]), 1, "{end} bytes of it");
        }
    }

    #[test]
    fn head_over_the_limit_is_431_to_the_byte() {
        let head = |len: usize| {
            let around = "GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nX: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nX: {}\r\n\r\n", "x".repeat(len - around))
        };
        assert_eq!(check(head(MOST).as_bytes(), MOST).unwrap().unwrap().head, MOST);
        assert_eq!(check(format!("{}GET", head(MOST)).as_bytes(), MOST).unwrap().unwrap().head, MOST);
        let refusal = check(head(MOST + 1).as_bytes(), MOST).unwrap_err();
        assert_eq!((refusal.status.as_u16(), &refusal.headers[X_REQUEST_ID]), (431, &HeaderValue::from_static("mine")));
        assert!(refusal.text.contains("server.max_header_bytes = 8192"), "{}", refusal.text);
        assert_eq!(status(&head(2 * MOST)[..MOST - 1]), 1);
        assert_eq!(status(&head(2 * MOST)[..MOST]), 431);
        assert_eq!(status(&format!("GET /{}", "x".repeat(MOST - 5))), 414);
        let many = |count: usize| format!("GET / HTTP/1.1{}\r\n\r\n", "\r\nA: b".repeat(count));
        assert_eq!((status(&many(MAX_HEADERS)), status(&many(MAX_HEADERS + 1))), (0, 431));
        let target = |len: usize| format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(len - 1));
        let most = 1024 * 1024;
        check(target(MAX_TARGET_BYTES).as_bytes(), most).unwrap();
        assert_eq!(check(target(MAX_TARGET_BYTES + 1).as_bytes(), most).unwrap_err().status.as_u16(), 414);
    }

    #[test]
    fn head_end_is_found_across_pieces() {
        for head in ["GET / HTTP/1.1\r\nA: b\r\n\r\n", "GET / HTTP/1.1\nA: b\n\n", "GET / HTTP/1.1\r\nA: b\n\r\n"] {
            for seen in 0..head.len() {
                assert!(has_end(head.as_bytes(), seen), "{seen}");
                assert!(!has_end(&head.as_bytes()[..seen], 0), "{seen}");
            }
        }
        assert_eq!(empty_lines(b"\r\n\n\r\nGET"), 5);
        assert_eq!(empty_lines(b"\r\n\r"), 2);
    }
}
