//! The API listener: the RPC and all other routes except content, on an origin of their own.
//!
//! Content of any author shares the origin of the gateway's port, so no page there may call the RPC. The API listener
//! serves no content as a page, so pages of its origin may.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, LOCATION, ORIGIN, REFERER, USER_AGENT, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use ipfrs_core::Error;
use tower::Service as _;

use crate::body::header_text;
use crate::config::{ANY_ORIGIN, Namespace};
use crate::error::plain;
use crate::gateway::hosts::Named;
use crate::https;
use crate::origin::Checked;
use crate::{ApiConfig, ui};

/// Methods that some route has.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// Response headers that scripts of other origins may read: those of Kubo's RPC, of tus and of `/v1`.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "Content-Disposition, Content-Range, ETag, Location, RateLimit, RateLimit-Policy, Retry-After, Tus-Extension, \
     Tus-Max-Size, Tus-Resumable, Tus-Version, Upload-Expires, Upload-Length, Upload-Metadata, Upload-Offset, \
     X-Chunked-Output, X-Content-Length, X-Ipfs-Cid, X-Operation-Id, X-Request-Id, X-Stream-Error, X-Stream-Output, \
     X-Tensor-Dtype, X-Tensor-Shape",
);

/// Seconds for which a browser may cache the response to a preflight request.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");

/// Origins of the browser extension IPFS Companion and of its beta version, which may call the API as in Kubo. No web
/// page can have them.
const COMPANION: [&str; 2] =
    ["chrome-extension://nibjojkomfdiaoajekhjakgkdhaomnch", "chrome-extension://hjoieblefckbooibpepigmacodalfndh"];

/// Rules of the API listener.
#[derive(Debug)]
pub(crate) struct ApiListener {
    /// Names in lower case that `Host` may have besides addresses and localhost.
    hosts: Vec<String>,
    /// Origins whose pages may call the API, in lower case.
    allowed_origins: Vec<String>,
    /// Headers of all responses that do not have them already.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// Port of the gateway, which has the content.
    gateway_port: u16,
}

/// Decision about a request.
pub(crate) enum Decision {
    /// This response, at once.
    Answer(Response),
    /// The route's response, which scripts of this origin may read if there is one.
    Serve(Option<HeaderValue>),
}

impl ApiListener {
    pub(crate) fn new(config: &ApiConfig, gateway_port: u16) -> Arc<Self> {
        let lower = |texts: &[String]| texts.iter().map(|text| text.to_ascii_lowercase()).collect();
        Arc::new(Self {
            hosts: lower(&config.hosts),
            allowed_origins: lower(&config.allowed_origins),
            // Checked when the configuration was read.
            headers: config.headers().unwrap_or_default(),
            gateway_port,
        })
    }

    /// Adds the configured headers to a response.
    pub(crate) fn add_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in &self.headers {
            if !headers.contains_key(name) {
                headers.insert(name.clone(), value.clone());
            }
        }
    }

    /// Decides about a request.
    pub(crate) fn decide<B>(&self, request: &http::Request<B>) -> Decision {
        let (headers, path) = (request.headers(), request.uri().path());
        let host = match host_of(request.uri(), headers) {
            Ok(host) => host,
            Err(text) => return Decision::Answer(plain(StatusCode::BAD_REQUEST, text)),
        };
        let name = host.lower();
        if !self.has_host(&name) {
            return Decision::Answer(forbidden(&format!(
                "the API is not served at {name:?}, which could be the name of a foreign page (DNS rebinding): use an IP \
                 address or localhost, or add the name to [api] hosts"
            )));
        }
        if ui::asks_for_graphql_page(request) {
            return Decision::Answer(Redirect::temporary(ui::GRAPHQL_PAGE).into_response());
        }
        // Links may lead to pages from anywhere. They contain nothing of this node.
        if ui::is_page(path) && matches!(*request.method(), Method::GET | Method::HEAD) {
            return Decision::Serve(None);
        }
        let authority = host.authority();
        let asking = asking(headers, |origin| self.knows(origin, &authority));
        let origin = match asking {
            Asking::Allowed => None,
            Asking::Origin(origin) => Some(origin),
            Asking::Refused => {
                return Decision::Answer(forbidden(
                    "the request comes from a page of another origin: add the origin to [api] allowed_origins if its pages \
                     may control this daemon",
                ));
            }
        };
        if let Some(origin) = &origin
            && request.method() == Method::OPTIONS
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
        {
            return Decision::Answer(preflight(headers, origin));
        }
        if path == "/" || path == "/ipfs" || path == "/ipns" || Namespace::of_path(path).is_some() {
            let path_and_query = request.uri().path_and_query().map_or(path, |target| target.as_str());
            let scheme = https::scheme(request.extensions());
            let location = format!("{scheme}://{name}:{}{path_and_query}", self.gateway_port);
            let moved = (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, header_text(&location))]).into_response();
            return Decision::Answer(moved);
        }
        Decision::Serve(origin)
    }

    /// Whether the API is served under a host name in lower case.
    fn has_host(&self, name: &str) -> bool {
        let is_address = Named::parse(name).is_ok_and(|named| named.is_address());
        is_address || name == "localhost" || self.hosts.iter().any(|host| host == name)
    }

    /// Whether pages of an origin may call the API: its own origin, IPFS Companion, and those of the configuration.
    /// As in Kubo, the names of this machine are equal: a page at `http://localhost:5001` may call 127.0.0.1:5001.
    fn knows(&self, origin: &str, authority: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_own = own.is_some_and(|own| {
            own == authority || local_port(own).is_some_and(|port| local_port(authority) == Some(port))
        });
        is_own
            || COMPANION.contains(&origin.as_str())
            || self.allowed_origins.iter().any(|known| known == ANY_ORIGIN || *known == origin)
    }
}

/// Returns the port of an authority in lower case, with its colon or empty, if its host is this machine.
fn local_port(authority: &str) -> Option<&str> {
    let port = ["localhost", "127.0.0.1", "[::1]"].iter().find_map(|host| authority.strip_prefix(host))?;
    let is_port = port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    (is_port || port.is_empty()).then_some(port)
}

/// Returns the host that a request names, which takes precedence in the target (RFC 9112, 3.2.2).
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Named<'a>, String> {
    let read = || -> Result<_, Error> {
        let target = uri.authority().map(|authority| Named::parse(authority.as_str())).transpose()?;
        Ok((target, Named::of_header(headers)?))
    };
    match read().map_err(|e| format!("{e}\n"))? {
        (Some(target), Some(header)) if target.lower() != header.lower() => Err(format!(
            "the target names {:?}, and Host {:?}: they must be the same (RFC 9112, 3.2.2)\n",
            target.lower(),
            header.lower()
        )),
        (Some(host), _) | (None, Some(host)) => Ok(host),
        (None, None) => Err("the request names no host: send the header Host\n".to_owned()),
    }
}

/// Sender of a request.
enum Asking {
    /// A program, or a page of the listener itself.
    Allowed,
    /// A page of this origin, which may call the API and needs its permission to read the response.
    Origin(HeaderValue),
    /// A page that may not.
    Refused,
}

/// Determines the sender of a request by the rules of Kubo and the Fetch Metadata specification.
fn asking(headers: &HeaderMap, knows: impl Fn(&str) -> bool) -> Asking {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or("invalid"));
    let mut origins = headers.get_all(ORIGIN).iter();
    if let Some(origin) = origins.next() {
        let is_known = origins.next().is_none() && origin.to_str().is_ok_and(&knows);
        return if is_known { Asking::Origin(origin.clone()) } else { Asking::Refused };
    }
    let is_allowed = match (text(REFERER), headers.get("sec-fetch-site").map(HeaderValue::as_bytes)) {
        (_, Some(b"none" | b"same-origin")) => true,
        (_, Some(_)) => false,
        (Some(referer), None) => origin_of(referer).is_some_and(|origin| knows(&origin)),
        // As in Kubo: a browser that sends neither is too old to be told apart from a foreign page.
        (None, None) => {
            !text(USER_AGENT).is_some_and(|agent| agent.starts_with("Mozilla") && !agent.contains("Electron"))
        }
    };
    if is_allowed { Asking::Allowed } else { Asking::Refused }
}

fn origin_of(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?))
}

fn forbidden(why: &str) -> Response {
    plain(StatusCode::FORBIDDEN, format!("403 - Forbidden: {why}\n"))
}

fn preflight(headers: &HeaderMap, origin: &HeaderValue) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let granted = response.headers_mut();
    granted.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    granted.insert(ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
    if let Some(wanted) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        granted.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    allow(granted, origin.clone());
    response
}

/// Lets scripts of an origin read a response.
fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// Serves a request that passed the checks.
pub(crate) async fn serve(
    listener: Arc<ApiListener>,
    mut router: Router,
    mut request: Request,
    origin: Option<HeaderValue>,
) -> Response {
    request.extensions_mut().insert(Checked);
    let mut response = router.call(request).await.unwrap_or_else(|never| match never {});
    listener.add_headers(response.headers_mut());
    if let Some(origin) = origin {
        allow(response.headers_mut(), origin);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> Arc<ApiListener> {
        let config = ApiConfig {
            hosts: vec!["Admin.example.org".to_owned()],
            allowed_origins: vec!["https://Console.example.org".to_owned()],
            ..ApiConfig::default()
        };
        ApiListener::new(&config, 8080)
    }

    /// Returns the status of the decision, or 200 and the origin that may read the response.
    fn decided(method: Method, path: &str, pairs: &[(&'static str, &'static str)]) -> (u16, String) {
        let mut request = http::Request::builder().method(method).uri(path).body(()).unwrap();
        for (name, value) in pairs {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        match listener().decide(&request) {
            Decision::Serve(origin) => (200, origin.map_or(String::new(), |it| it.to_str().unwrap().to_owned())),
            Decision::Answer(response) => {
                let location = response.headers().get(LOCATION).or(response.headers().get(ACCESS_CONTROL_ALLOW_ORIGIN));
                (response.status().as_u16(), location.map_or(String::new(), |it| it.to_str().unwrap().to_owned()))
            }
        }
    }

    #[test]
    fn hosts_are_addresses_localhost_and_configured_names() {
        for (host, status) in [
            ("127.0.0.1:5001", 200),
            ("10.1.2.3", 200),
            ("[::1]:5001", 200),
            ("LOCALHOST:5001", 200),
            ("admin.example.org", 200),
            ("example.org:5001", 403),
            ("admin.example.org.evil.org", 403),
            ("127.0.0.1.evil.org", 403),
            ("localhost.evil.org", 403),
            ("127.1", 403),
            ("", 403),
            ("a b", 400),
        ] {
            assert_eq!(decided(Method::POST, "/api/v0/id", &[("host", host)]).0, status, "{host}");
        }
        assert_eq!(decided(Method::POST, "/api/v0/id", &[]).0, 400);
        let absolute = |target: &str, host| decided(Method::POST, target, &[("host", host)]).0;
        assert_eq!(absolute("http://127.0.0.1:5001/api/v0/id", "127.0.0.1:5001"), 200);
        assert_eq!(absolute("http://127.0.0.1:5001/api/v0/id", "example.org"), 400);
        assert_eq!(absolute("http://example.org/api/v0/id", "127.0.0.1:5001"), 400);
        assert_eq!(absolute("http://example.org/api/v0/id", "example.org"), 403);
    }

    #[test]
    fn other_machines_are_not_equal_to_this_one() {
        for host in ["10.1.2.3:5001", "admin.example.org:5001"] {
            let from_here = [("host", host), ("origin", "http://localhost:5001")];
            assert_eq!(decided(Method::POST, "/api/v0/id", &from_here).0, 403, "{host}");
        }
    }

    #[test]
    fn pages_are_allowed_by_their_origin() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:5001");
        let post =
            |pairs: &[(&'static str, &'static str)]| decided(Method::POST, "/api/v0/id", &[&[HOST], pairs].concat());
        let mozilla = ("user-agent", "Mozilla/5.0");
        let served = |origin: &str| (200, origin.to_owned());
        let refused = (403, String::new());
        assert_eq!(post(&[]), served(""));
        assert_eq!(post(&[("user-agent", "curl/8")]), served(""));
        assert_eq!(post(&[mozilla]), refused);
        assert_eq!(post(&[mozilla, ("sec-fetch-site", "same-origin")]), served(""));
        assert_eq!(post(&[mozilla, ("sec-fetch-site", "cross-site")]), refused);
        assert_eq!(post(&[mozilla, ("sec-fetch-site", "same-site")]), refused);
        for known in [
            "http://127.0.0.1:5001",
            "http://localhost:5001",
            "http://[::1]:5001",
            "https://console.example.org",
            COMPANION[0],
        ] {
            assert_eq!(post(&[mozilla, ("origin", known)]), served(known));
            assert_eq!(post(&[mozilla, ("sec-fetch-site", "cross-site"), ("origin", known)]), served(known));
        }
        for foreign in [
            "chrome-extension://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "http://127.0.0.1:8080",
            "http://localhost:8080",
            "http://localhost",
            "http://localhost:5001.evil.org",
            "http://localhost.evil.org:5001",
            "http://console.example.org",
            "null",
            "http://127.0.0.1",
        ] {
            assert_eq!(post(&[("origin", foreign)]), refused, "{foreign}");
        }
        assert_eq!(post(&[("origin", "http://127.0.0.1:5001"), ("origin", "https://evil.org")]), refused);
        assert_eq!(post(&[("referer", "http://127.0.0.1:5001/ui/")]), served(""));
        assert_eq!(post(&[("referer", "http://127.0.0.1:8080/ipfs/bafy")]), refused);
    }

    #[test]
    fn preflights_and_content_are_answered_at_once() {
        let host = ("host", "localhost:5001");
        let asked = ("access-control-request-method", "POST");
        let known = "https://console.example.org";
        assert_eq!(decided(Method::OPTIONS, "/api/v0/id", &[host, asked, ("origin", known)]), (204, known.to_owned()));
        assert_eq!(decided(Method::OPTIONS, "/api/v0/id", &[host, asked, ("origin", "https://evil.org")]).0, 403);
        for path in ["/", "/ipfs", "/ipfs/bafy/a%20b?format=car", "/ipns/example.org/"] {
            let location = format!("http://localhost:8080{path}");
            assert_eq!(decided(Method::GET, path, &[host]), (307, location));
        }
        assert_eq!(decided(Method::GET, "/metrics", &[host]).0, 200);
    }
}
