//! Requests over HTTPS, and requests that should have been.

use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, HOST, LOCATION, STRICT_TRANSPORT_SECURITY};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, StatusCode};
use ipfrs_middleware::{OverTls, Protection};

use crate::gateway::hosts::Named;
use crate::gateway::serialized_head::begin_line;
use crate::routes::PROBES;

/// Port of HTTPS that URLs omit.
const DEFAULT_PORT: u16 = 443;

/// Returns the response to a request without TLS, if its connection requires TLS: a redirect, or for methods other
/// than GET and HEAD a refusal, since their client has already sent its secrets unencrypted. Probes are permitted.
pub(crate) fn refusal<B>(protection: &Protection, request: &Request<B>) -> Option<Response> {
    let Protection::Missing { https_port } = protection else { return None };
    if PROBES.contains(&request.uri().path()) {
        return None;
    }
    let location = [Method::GET, Method::HEAD].contains(request.method()).then(|| location(request, *https_port));
    let close = (CONNECTION, HeaderValue::from_static("close"));
    Some(match location.flatten() {
        Some(location) => (StatusCode::PERMANENT_REDIRECT, [close, (LOCATION, location)]).into_response(),
        None => {
            let text =
                format!("this daemon takes requests from other machines only over HTTPS, on port {https_port}\n");
            (StatusCode::FORBIDDEN, [close], text).into_response()
        }
    })
}

/// Returns the same URL with the scheme `https`. `None` if the request does not name a valid host.
fn location<B>(request: &Request<B>, port: u16) -> Option<HeaderValue> {
    let uri = request.uri();
    let host = match uri.authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST)?.to_str().ok()?,
    };
    let host = Named::parse(host).ok()?.lower().into_owned();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    // Another path could be read as part of the authority.
    let is_usable = !host.is_empty() && path.starts_with('/');
    let port = if port == DEFAULT_PORT { String::new() } else { format!(":{port}") };
    HeaderValue::try_from(format!("https://{host}{port}{path}")).ok().filter(|_| is_usable)
}

/// Returns the scheme of the URLs by which the sender of a request with these extensions reaches this daemon.
pub(crate) fn scheme(extensions: &Extensions) -> &'static str {
    if extensions.get::<OverTls>().is_some() { "https" } else { "http" }
}

/// Adds the header that makes browsers use HTTPS from now on (RFC 6797).
pub(crate) fn add_hsts(hsts: Option<&HeaderValue>, headers: &mut HeaderMap) {
    if let Some(value) = hsts {
        headers.entry(STRICT_TRANSPORT_SECURITY).or_insert_with(|| value.clone());
    }
}

/// Adds that header to a serialized head, behind all others.
pub(crate) fn write_hsts(protection: &Protection, head: &mut Vec<u8>) {
    if let Some(value) = hsts(protection)
        && head.ends_with(b"\r\n\r\n")
    {
        head.truncate(head.len() - 2);
        begin_line(head, STRICT_TRANSPORT_SECURITY.as_str());
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n\r\n");
    }
}

/// Returns the value of that header for a connection, if responses have it.
pub(crate) fn hsts(protection: &Protection) -> Option<&HeaderValue> {
    match protection {
        Protection::Tls(OverTls { hsts, .. }) => hsts.as_ref(),
        Protection::Plain | Protection::Missing { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_tls_are_redirected_to_the_same_url() {
        let of = |method: Method, uri: &str, host: &str, https_port: u16| {
            let request = Request::builder().method(method).uri(uri).header(HOST, host).body(()).unwrap();
            let response = refusal(&Protection::Missing { https_port }, &request)?;
            let location = response.headers().get(LOCATION).map(|value| value.to_str().unwrap().to_owned());
            Some((response.status().as_u16(), location.unwrap_or_default()))
        };
        for (uri, host, port, expected) in [
            ("/ipfs/x?a=b", "Example.org", 443, "https://example.org/ipfs/x?a=b"),
            ("/", "example.org:80", 8443, "https://example.org:8443/"),
            ("http://other.org/a", "example.org", 443, "https://other.org/a"),
            ("/a", "[::1]:80", 443, "https://[::1]/a"),
            ("//evil.org/a", "example.org", 443, "https://example.org//evil.org/a"),
        ] {
            assert_eq!(of(Method::GET, uri, host, port), Some((308, expected.to_owned())), "{uri} {host}");
        }
        assert_eq!(of(Method::POST, "/api/v0/id", "example.org", 443), Some((403, String::new())));
        assert_eq!(of(Method::GET, "/a", "exa mple", 443), Some((403, String::new())));
        assert_eq!(of(Method::GET, PROBES[0], "example.org", 443), None);
        assert!(refusal(&Protection::Plain, &Request::new(())).is_none());
    }

    #[test]
    fn serialized_heads_get_the_header_behind_all_others() {
        let hsts = Some(HeaderValue::from_static("max-age=5"));
        let mut head = b"HTTP/1.1 200 OK\r\na: b\r\n\r\n".to_vec();
        write_hsts(&Protection::Plain, &mut head);
        assert!(head.ends_with(b"a: b\r\n\r\n"));
        write_hsts(
            &Protection::Tls(OverTls { hsts, principal: None, peer: ipfrs_middleware::Client::default() }),
            &mut head,
        );
        assert_eq!(head, b"HTTP/1.1 200 OK\r\na: b\r\nStrict-Transport-Security: max-age=5\r\n\r\n");
    }
}
