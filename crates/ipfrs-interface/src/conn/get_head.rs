//! Heads of HTTP/1.1 GET and HEAD requests without a body, after which the connection stays open.

use std::mem::MaybeUninit;

use axum::http::header::{HOST, RANGE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use ipfrs_http::RAW_QUERY;

/// Maximum number of headers. hyper handles requests with more headers, like all unusual requests.
const MAX_HEADERS: usize = 32;

/// Headers that affect more than the choice of content.
const UNSUPPORTED: [&str; 4] = ["content-length", "expect", "transfer-encoding", "upgrade"];

/// A GET or HEAD request without a body.
#[derive(Debug)]
pub(crate) struct Get<'a> {
    /// GET or HEAD.
    pub(crate) method: Method,
    /// Target of the request, which starts with a slash and has no fragment.
    pub(crate) target: &'a str,
    /// Size of the head in bytes.
    pub(crate) len: usize,
    /// Header lines with the empty line at the end; empty if the request line has an unusual form.
    pub(crate) lines: &'a [u8],
    /// Whether the response may be cached: GET without `Range` and without a query other than [`RAW_QUERY`].
    pub(crate) is_cacheable: bool,
}

/// Text after the target in the request line.
const VERSION: &[u8] = b" HTTP/1.1\r\n";

impl<'a> Get<'a> {
    /// Parses the request at the start of `bytes`, if its head is complete. Its headers replace those in `headers`.
    /// Uses the parser of hyper with the same settings, so that both interpret requests in the same way.
    pub(crate) fn parse(bytes: &'a [u8], headers: &mut HeaderMap) -> Option<Self> {
        let mut found = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(bytes, &mut found);
        let httparse::Status::Complete(len) = parsed.ok()? else { return None };
        let target = request.path?;
        if !target.starts_with('/') || target.contains('#') || request.version != Some(1) {
            return None;
        }
        let method = match request.method? {
            "GET" => Method::GET,
            "HEAD" => Method::HEAD,
            _ => return None,
        };
        if !request.headers.iter().all(is_supported) {
            return None;
        }
        headers.clear();
        for header in request.headers.iter() {
            let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
        let first = memchr::memchr(b'\n', bytes).map_or(0, |end| end + 1);
        let lines = if bytes[..first].ends_with(VERSION) { &bytes[first..len] } else { &[] };
        let is_cacheable = method == Method::GET && !path_of(target).contains('?') && !headers.contains_key(RANGE);
        headers.contains_key(HOST).then_some(Self { method, target, len, lines, is_cacheable })
    }

    /// Parses the GET request at the start of `bytes`, if its header lines equal `lines`, those of a cacheable request,
    /// and only the target may differ.
    pub(crate) fn like(bytes: &'a [u8], lines: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"GET ")?;
        let end = memchr::memchr(b' ', rest)?;
        let (target, rest) = rest.split_at(end);
        if lines.is_empty() || !rest.strip_prefix(VERSION)?.starts_with(lines) {
            return None;
        }
        let target = str::from_utf8(target).ok()?;
        // Without a branch for each byte.
        let is_path = path_of(target).bytes().fold(target.starts_with('/'), |is_path, byte| {
            is_path & byte.is_ascii_graphic() & (byte != b'?') & (byte != b'#')
        });
        if !is_path {
            return None;
        }
        let first = b"GET ".len() + end + VERSION.len();
        let len = first + lines.len();
        Some(Self { method: Method::GET, target, len, lines: &bytes[first..len], is_cacheable: true })
    }
}

/// Returns the target of a request that may be cached without its query.
fn path_of(target: &str) -> &str {
    target.strip_suffix(RAW_QUERY).and_then(|path| path.strip_suffix('?')).unwrap_or(target)
}

fn is_supported(header: &httparse::Header<'_>) -> bool {
    let is_named = |name: &&str| header.name.eq_ignore_ascii_case(name);
    if is_named(&"connection") {
        return header.value.eq_ignore_ascii_case(b"keep-alive");
    }
    !UNSUPPORTED.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /ipfs/bafy/a%20b HTTP/1.1\r\nHost: x\r\nUser-Agent: y z\r\nConnection: Keep-Alive\r\n\r\n";

    #[test]
    fn plain_get_is_parsed_whatever_follows() {
        for behind in ["", "G", GET, "\0\0"] {
            let bytes = format!("{GET}{behind}");
            let mut headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static("of the last one"))]);
            let get = Get::parse(bytes.as_bytes(), &mut headers).unwrap();
            assert_eq!((get.target, get.len), ("/ipfs/bafy/a%20b", GET.len()));
            let mut headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
            headers.sort();
            assert_eq!(headers, ["connection=\"Keep-Alive\"", "host=\"x\"", "user-agent=\"y z\""]);
        }
    }

    #[test]
    fn get_with_repeated_headers_is_recognized() {
        let mut headers = HeaderMap::new();
        let lines = Get::parse(GET.as_bytes(), &mut headers).unwrap().lines;
        assert_eq!(lines, &GET.as_bytes()["GET /ipfs/bafy/a%20b HTTP/1.1\r\n".len()..]);
        for path in ["/", "/ipfs/bafy/a%20b", "/ipfs/other/~!$&'()*+,;=:@", "/ipfs/bafy?format=raw"] {
            let bytes = format!("{}behind", GET.replacen("/ipfs/bafy/a%20b", path, 1));
            let get = Get::like(bytes.as_bytes(), lines).unwrap();
            assert_eq!((get.target, get.len, get.lines), (path, bytes.len() - "behind".len(), lines));
            let parsed = Get::parse(bytes.as_bytes(), &mut headers).unwrap();
            assert_eq!((parsed.target, parsed.len, parsed.lines), (get.target, get.len, get.lines));
        }
        for end in 0..GET.len() {
            assert!(Get::like(&GET.as_bytes()[..end], lines).is_none(), "{end} bytes of it");
        }
        for (part, other) in [
            ("GET", "HEAD"),
            ("GET ", "GET  "),
            ("GET", "\r\nGET"),
            ("/ipfs/", "http://x/ipfs/"),
            ("/ipfs/", "/ip\0fs/"),
            ("/ipfs/", "/ip\tfs/"),
            ("/ipfs/", "/ip\u{e9}fs/"),
            ("/ipfs/bafy/a%20b", ""),
            ("b HTTP", "b?format=car HTTP"),
            ("b HTTP", "b?a?format=raw HTTP"),
            ("b HTTP", "b?format=raw&a HTTP"),
            ("b HTTP", "b# HTTP"),
            ("b HTTP", "b  HTTP"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("HTTP/1.1\r\n", "HTTP/1.1\n"),
            ("HTTP/1.1\r\n", "HTTP/1.1\r\nA: b\r\n"),
            ("Host: x", "Host: y"),
            ("Host: x", "host: x"),
            ("\r\n\r\n", "\r\nA: b\r\n\r\n"),
        ] {
            let bytes = GET.replacen(part, other, 1);
            assert!(Get::like(bytes.as_bytes(), lines).is_none(), "{bytes}");
        }
        assert!(Get::like(GET.as_bytes(), b"").is_none());
        let unusual = format!("\r\n{GET}");
        assert!(Get::parse(unusual.as_bytes(), &mut headers).unwrap().lines.is_empty());
    }

    #[test]
    fn responses_that_depend_on_more_than_the_path_are_not_cacheable() {
        let mut headers = HeaderMap::new();
        assert!(Get::parse(GET.as_bytes(), &mut headers).unwrap().is_cacheable);
        let raw = GET.replacen("b HTTP", "b?format=raw HTTP", 1);
        assert!(Get::parse(raw.as_bytes(), &mut headers).unwrap().is_cacheable);
        for (part, other) in [
            ("GET", "HEAD"),
            ("/ipfs/", "//x/?"),
            ("b HTTP", "b?format=car HTTP"),
            ("b HTTP", "b? HTTP"),
            ("b HTTP", "b?a?format=raw HTTP"),
            ("b HTTP", "b?format=raw&a HTTP"),
            ("User-Agent", "Range"),
        ] {
            let bytes = GET.replacen(part, other, 1);
            let get = Get::parse(bytes.as_bytes(), &mut headers).unwrap();
            assert!(!get.is_cacheable, "{bytes}");
            assert_eq!((get.method.as_str(), get.len), (bytes.split(' ').next().unwrap(), bytes.len()));
        }
    }

    #[test]
    fn unusual_requests_are_left_to_hyper() {
        let mut headers = HeaderMap::new();
        for end in 0..GET.len() {
            assert!(Get::parse(&GET.as_bytes()[..end], &mut headers).is_none(), "{end} bytes of it");
        }
        for (part, other) in [
            ("GET", "POST"),
            ("GET", "get"),
            ("HTTP/1.1", "HTTP/1.0"),
            ("/ipfs/", "http://x/ipfs/"),
            ("/ipfs/", "ipfs/"),
            ("/ipfs/", "*"),
            ("b HTTP", "b# HTTP"),
            ("b HTTP", "b?format=car#a HTTP"),
            ("b HTTP", "b  HTTP"),
            ("Keep-Alive", "close"),
            ("Keep-Alive", "keep-alive, close"),
            ("Keep-Alive", "upgrade"),
            ("User-Agent", "Content-Length"),
            ("User-Agent", "TRANSFER-ENCODING"),
            ("User-Agent", "expect"),
            ("User-Agent", "Upgrade"),
            ("User-Agent", "User Agent"),
            ("User-Agent", " User-Agent"),
            ("User-Agent:", "User-Agent :"),
            ("User-Agent:", "User-Agent"),
            ("Host", "Hosts"),
            ("y z", "y\r\n z"),
            ("y z", "y\0z"),
            ("y z", "y\rz"),
            ("\r\n\r\n", &"\r\nA: b".repeat(MAX_HEADERS)),
        ] {
            let bytes = GET.replacen(part, other, 1) + "\r\n\r\n";
            assert!(Get::parse(bytes.as_bytes(), &mut headers).is_none(), "{bytes}");
        }
    }
}
