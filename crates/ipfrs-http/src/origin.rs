//! Protection against pages that make a browser send requests (CSRF), stricter than Kubo's RPC, which has a port of its own.

use axum::extract::Request;
use http::header::{ORIGIN, REFERER, USER_AGENT, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Uri};
use ipfrs_core::{Error, ErrorKind, Result};

/// Whether a request is no page's, by what it says of its sender.
///
/// As in Kubo, clients that send neither `Origin` nor `Referer` may, unless their `User-Agent` starts with `Mozilla`; so may
/// those that name localhost, 127.0.0.1 or `[::1]` on our port. But a page in a browser may not, of whatever origin it is:
/// content under `/ipfs` is anybody's, and shares our origin. Browsers send `Sec-Fetch-Site` and `Sec-Fetch-Dest` to such
/// addresses, and no script can take them away (Fetch Metadata specification). `Sec-Fetch-Mode` alone is no browser: the
/// `fetch` of Node.js sends it.
fn is_allowed(headers: &HeaderMap, port: u16) -> bool {
    if headers.contains_key("sec-fetch-site") || headers.contains_key("sec-fetch-dest") {
        return false;
    }
    let header = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("invalid"));
    match (header(ORIGIN), header(REFERER)) {
        (Some(origin), _) => is_own_page(origin, port),
        (None, Some(referer)) => is_own_page(referer, port),
        (None, None) => !header(USER_AGENT).is_some_and(|agent| agent.starts_with("Mozilla")),
    }
}

fn is_own_page(url: &str, port: u16) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let is_local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    is_local && uri.port_u16().unwrap_or(default_port) == port
}

/// Whether a person opened the address itself: no page asked for it, and none can read the response. A page of our own
/// origin can read what it opens in a window or a frame, so that navigations by pages are not meant.
fn is_opened_by_person(headers: &HeaderMap) -> bool {
    let says = |name: &str, wanted: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().is_some_and(|value| value == wanted) && values.next().is_none()
    };
    says("sec-fetch-site", "none") && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document")
}

/// Refuses requests that a page in a browser sent, and reads as well, unless a person opened the address itself. `port`
/// is our own.
///
/// # Errors
/// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind).
pub(crate) fn check(request: &Request, port: u16) -> Result<()> {
    let is_opened = is_read(request.method()) && is_opened_by_person(request.headers());
    if is_opened || is_allowed(request.headers(), port) {
        return Ok(());
    }
    let why = "the request comes from a page in a browser (User-Agent, Sec-Fetch-Site, or a foreign Origin or Referer)";
    Err(Error::new(ErrorKind::Forbidden, why))
}

/// As [`check`], for routes that pages may read.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_write(request: &Request, port: u16) -> Result<()> {
    let is_safe = is_read(request.method()) || request.method() == Method::OPTIONS;
    if is_safe { Ok(()) } else { check(request, port) }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Keeps a response to itself: in no frame, as no resource of a page, and without a window of a page that refers to its
/// own. Browsers that do not send `Sec-Fetch-*` may still know these.
pub(crate) fn isolate(headers: &mut HeaderMap) {
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        is_allowed(&headers, 8080)
    }

    #[test]
    fn only_clients_that_are_no_browser_may_call() {
        assert!(allowed(&[]));
        assert!(allowed(&[("user-agent", "curl/8")]));
        assert!(allowed(&[("origin", "http://localhost:8080")]));
        assert!(allowed(&[("origin", "http://127.0.0.1:8080"), ("user-agent", "Mozilla/5.0")]));
        assert!(!allowed(&[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")]));
        assert!(!allowed(&[("sec-fetch-dest", "empty")]));
        assert!(allowed(&[("sec-fetch-mode", "cors"), ("user-agent", "node")]));
        assert!(allowed(&[("referer", "http://[::1]:8080/ipfs/x")]));
        assert!(!allowed(&[("user-agent", "Mozilla/5.0")]));
        assert!(!allowed(&[("origin", "http://localhost:8081")]));
        assert!(!allowed(&[("origin", "http://localhost")]));
        assert!(!allowed(&[("origin", "https://example.com:8080")]));
        assert!(!allowed(&[("origin", "null")]));
        assert!(!allowed(&[("referer", "http://example.com/?http://localhost:8080")]));
        assert!(!allowed(&[("origin", "http://localhost.example.com:8080")]));
    }

    #[test]
    fn page_that_a_person_opens_is_read_and_nothing_else() {
        let opened = [("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let passes = |method: Method, pairs: &[(&'static str, &'static str)]| {
            let mut request = Request::new(axum::body::Body::empty());
            *request.method_mut() = method;
            request.headers_mut().insert(USER_AGENT, HeaderValue::from_static("Mozilla/5.0"));
            for (name, value) in pairs {
                request.headers_mut().append(*name, HeaderValue::from_static(value));
            }
            check(&request, 8080).is_ok()
        };
        assert!(passes(Method::GET, &opened));
        assert!(passes(Method::HEAD, &opened));
        assert!(!passes(Method::POST, &opened));
        assert!(!passes(Method::OPTIONS, &opened));
        assert!(!passes(Method::GET, &opened[..2]));
        assert!(!passes(Method::GET, &[]));
        for (at, value) in [(0, "same-origin"), (0, "cross-site"), (1, "cors"), (2, "iframe"), (2, "empty")] {
            let mut changed = opened;
            changed[at].1 = value;
            assert!(!passes(Method::GET, &changed), "{changed:?}");
            // A page may have made one of two values.
            assert!(!passes(Method::GET, &[&opened[..], &changed[at..=at]].concat()), "{changed:?}");
        }
    }
}
