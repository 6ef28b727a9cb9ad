//! Protection against pages that make a browser send requests (CSRF), stricter than Kubo's RPC, which has a port of its own.

use axum::extract::Request;
use http::header::{ORIGIN, REFERER, USER_AGENT};
use http::{HeaderMap, Method, Uri};
use ipfrs_core::{Error, ErrorKind, Result};

/// Whether a request may change something, by what it says of its sender.
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
    let header = |name| headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap_or("invalid"));
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

/// Refuses requests other than GET, HEAD and OPTIONS that a foreign page made a browser send. `port` is our own.
///
/// # Errors
/// [`ErrorKind::Forbidden`](ipfrs_core::ErrorKind).
pub(crate) fn check(request: &Request, port: u16) -> Result<()> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if is_safe || is_allowed(request.headers(), port) {
        return Ok(());
    }
    let why = "the request comes from a page in a browser (User-Agent, Sec-Fetch-Site, or a foreign Origin or Referer)";
    Err(Error::new(ErrorKind::Forbidden, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(pairs: &[(&'static str, &'static str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, http::HeaderValue::from_static(value));
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
}
