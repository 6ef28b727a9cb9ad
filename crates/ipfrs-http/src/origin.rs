//! Protection against cross-site request forgery (CSRF), stricter than in Kubo, whose RPC has a port of its own.

use axum::extract::Request;
use http::header::{ORIGIN, REFERER, USER_AGENT, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Uri};
use ipfrs_core::{Error, ErrorKind, Result};

/// Extension of a request that came through the API listener and passed its checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checked;

/// Whether the headers show that the request was not sent by a web page.
///
/// As in Kubo, a client that sends neither `Origin` nor `Referer` is allowed, unless its `User-Agent` starts with
/// `Mozilla`. A client whose `Origin` or `Referer` names localhost, 127.0.0.1 or `[::1]` on the daemon's port is
/// allowed too.
///
/// A page in a browser is never allowed, whatever its origin: content under `/ipfs` can be written by anyone and
/// shares the daemon's origin. Browsers send `Sec-Fetch-Site` and `Sec-Fetch-Dest` to such addresses, and scripts
/// cannot remove them (Fetch Metadata specification). `Sec-Fetch-Mode` alone does not identify a browser, since the
/// `fetch` function of Node.js sends it.
fn is_allowed(headers: &HeaderMap, port: u16) -> bool {
    if headers.contains_key("sec-fetch-site") || headers.contains_key("sec-fetch-dest") {
        return false;
    }
    let header = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("invalid"));
    match (header(ORIGIN), header(REFERER)) {
        (Some(origin), _) => is_own_page(origin, port),
        (None, Some(referer)) => is_own_page(referer, port),
        (None, None) => {
            !header(USER_AGENT).is_some_and(|agent| agent.starts_with("Mozilla") && !agent.contains("Electron"))
        }
    }
}

fn is_own_page(url: &str, port: u16) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let is_local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    is_local && uri.port_u16().unwrap_or(default_port) == port
}

/// Whether a person opened the address directly, so that no page requested it and no page can read the response.
/// Navigations started by pages do not count: a page of the daemon's origin can read what it opens in a window or a
/// frame.
fn is_opened_by_person(headers: &HeaderMap) -> bool {
    let has_single_value = |name: &str, wanted: &str| {
        let mut values = headers.get_all(name).iter();
        values.next().is_some_and(|value| value == wanted) && values.next().is_none()
    };
    has_single_value("sec-fetch-site", "none")
        && has_single_value("sec-fetch-mode", "navigate")
        && has_single_value("sec-fetch-dest", "document")
}

/// Refuses requests sent by a page in a browser, including reads, unless a person opened the address directly. `port`
/// is the daemon's port.
///
/// # Errors
/// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind).
pub(crate) fn check(request: &Request, port: u16) -> Result<()> {
    // The API listener has rules of its own.
    if request.extensions().get::<Checked>().is_some() {
        return Ok(());
    }
    let is_opened = is_read(request.method()) && is_opened_by_person(request.headers());
    if is_opened || is_allowed(request.headers(), port) {
        return Ok(());
    }
    let why = "the request comes from a page in a browser (User-Agent, Sec-Fetch-Site, or a foreign Origin or Referer)";
    Err(Error::new(ErrorKind::Forbidden, why))
}

/// Same as [`check`], for routes that pages may read.
///
/// # Errors
/// See [`check`].
pub(crate) fn check_write(request: &Request, port: u16) -> Result<()> {
    let is_safe = is_read(request.method()) || request.method() == Method::OPTIONS;
    if is_safe { Ok(()) } else { check(request, port) }
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Isolates a response: it cannot be framed, loaded as a subresource, or share a browsing context group with another
/// page. This also protects users of browsers that do not send `Sec-Fetch-*`.
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
    fn requests_from_browser_pages_are_refused() {
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
    fn address_opened_by_a_person_allows_only_reads() {
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
            // One of two values may come from a page.
            assert!(!passes(Method::GET, &[&opened[..], &changed[at..=at]].concat()), "{changed:?}");
        }
    }
}
