//! `GET /`: the welcome page.

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION, VARY};
use http::{HeaderValue, StatusCode};
use ipfrs_core::{Error, Result, parse_cid};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::format::accepts_html;
use super::page::not_rendered;
use crate::body::header_text;
use crate::config::Namespace;
use crate::error::GatewayError;
use crate::state::AppState;

/// Routes with a description, and whether the page links to them.
const ROUTES: [Route; 6] = [
    ("/ipfs/{cid}[/path]", "content", false),
    ("/ipns/{name}[/path]", "content by name", false),
    ("/api/v0/...", "Kubo RPC (POST)", false),
    ("/v1/...", "uploads, downloads and batches of blocks", false),
    ("/health", "status of the daemon", true),
    ("/metrics", "metrics in the Prometheus format", true),
];

/// Characters to encode in a path in a header. Escapes and characters with a meaning in URLs stay.
const UNSAFE: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'}');

#[derive(Template)]
#[template(path = "welcome.html")]
struct Page {
    title: &'static str,
    routes: Vec<Route>,
}

/// A route, its description, and whether the page links to it.
type Route = (&'static str, &'static str, bool);

/// Responds with a page for browsers and with text for other clients, or redirects to `gateway.root_redirect`. With
/// `?open={address}`, redirects to that content.
pub(crate) async fn welcome(State(state): State<AppState>, request: Request) -> Response {
    // Pages may not open the routes of the daemon, this one included: such a link would result in 403.
    response(&state, &request, ROUTES.map(|(route, what, _)| (route, what, false)).to_vec())
}

/// Same as [`welcome`], for a host that serves only `paths` and health.
pub(super) fn at_host(state: &AppState, request: &Request, paths: &[Namespace]) -> Response {
    let is_served = |route: &str| match Namespace::of_path(route) {
        Some(namespace) => paths.contains(&namespace),
        None => route == "/health",
    };
    response(state, request, ROUTES.into_iter().filter(|(route, ..)| is_served(route)).collect())
}

fn response(state: &AppState, request: &Request, routes: Vec<Route>) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let address = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "open");
    let response = match address {
        Some((_, address)) => location(&address).map(|location| {
            let headers = [(LOCATION, header_text(&location)), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
            (StatusCode::SEE_OTHER, headers).into_response()
        }),
        None if state.config.root_redirect.is_some() => Ok(root_redirect(state)),
        None if accepts_html(request.headers()) => page(state, routes),
        None => Ok(text(&routes)),
    };
    response.unwrap_or_else(|error| GatewayError(error).into_response())
}

/// Redirects to `gateway.root_redirect`, as Kubo does.
fn root_redirect(state: &AppState) -> Response {
    let path = state.config.root_redirect.as_deref().unwrap_or_default();
    let headers = [(LOCATION, header_text(path)), (CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    (StatusCode::FOUND, headers).into_response()
}

fn page(state: &AppState, routes: Vec<Route>) -> Result<Response> {
    let page = Page { title: "ipfrs gateway", routes }.render().map_err(not_rendered)?;
    let mut response = Response::new(Body::from(page));
    state.pages.head_with_form(response.headers_mut());
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

fn text(routes: &[Route]) -> Response {
    let lines: String = routes.iter().map(|(route, what, _)| format!("  {route:<20} {what}\n")).collect();
    ([(VARY, "Accept")], format!("ipfrs gateway\n\n{lines}")).into_response()
}

/// Returns the path for an address that a person typed: a path, a URL of a gateway, an `ipfs://` address, a CID or a
/// domain. The result is always a path on this host.
fn location(typed: &str) -> Result<String> {
    let typed = typed.trim();
    let path = match typed.split_once("://") {
        Some(("ipfs", rest)) => Some(format!("/ipfs/{rest}")),
        Some(("ipns", rest)) => Some(format!("/ipns/{rest}")),
        Some(("http" | "https", rest)) => of_gateway(rest),
        _ => of_path(typed),
    };
    let named = path.filter(|path| path[6..].starts_with(|c: char| c != '/'));
    let path = named.ok_or_else(|| {
        let shown: String = typed.chars().take(256).collect();
        Error::invalid(format!(
            "{shown:?} is not a content address: enter a CID, /ipfs/{{cid}}/path or ipfs://{{cid}}/path"
        ))
    })?;
    Ok(utf8_percent_encode(&path, UNSAFE).to_string())
}

/// Returns the path for a gateway URL without its scheme: `{host}/ipfs/{cid}/path` or `{cid}.ipfs.{host}/path`.
fn of_gateway(rest: &str) -> Option<String> {
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if path.starts_with("/ipfs/") || path.starts_with("/ipns/") {
        return Some(path.to_owned());
    }
    let mut labels = host.splitn(3, '.');
    match (labels.next(), labels.next(), labels.next()) {
        // Websites have such names, too: docs.ipfs.tech.
        (Some(root), Some("ipfs"), Some(_)) if parse_cid(root).is_ok() => Some(format!("/ipfs/{root}{path}")),
        (Some(root), Some("ipns"), Some(_)) => Some(format!("/ipns/{root}{path}")),
        _ => None,
    }
}

/// Returns the path for `/ipfs/{cid}/path`, `{cid}/path` or `{domain}/path`.
fn of_path(typed: &str) -> Option<String> {
    let bare = typed.trim_start_matches('/');
    let (root, _) = bare.split_once('/').unwrap_or((bare, ""));
    match root {
        "ipfs" | "ipns" => Some(format!("/{bare}")).filter(|path| path.len() > 6),
        cid if parse_cid(cid).is_ok() => Some(format!("/ipfs/{bare}")),
        domain if domain.contains('.') => Some(format!("/ipns/{bare}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::location;

    #[test]
    fn typed_addresses_lead_to_content_paths() {
        const CID: &str = "bafkqabtimvwgy3yk";
        for (typed, expected) in [
            (CID.to_owned(), format!("/ipfs/{CID}")),
            (format!(" {CID}/a b\n"), format!("/ipfs/{CID}/a%20b")),
            (format!("/ipfs/{CID}/%20?format=car"), format!("/ipfs/{CID}/%20?format=car")),
            (format!("ipfs/{CID}"), format!("/ipfs/{CID}")),
            (format!("ipfs://{CID}/ü"), format!("/ipfs/{CID}/%C3%BC")),
            (format!("https://gw.example/ipfs/{CID}/x"), format!("/ipfs/{CID}/x")),
            (format!("https://{CID}.ipfs.gw.example/x"), format!("/ipfs/{CID}/x")),
            ("docs.ipfs.tech/how".to_owned(), "/ipns/docs.ipfs.tech/how".to_owned()),
            ("ipns://docs.ipfs.tech".to_owned(), "/ipns/docs.ipfs.tech".to_owned()),
        ] {
            assert_eq!(location(&typed).unwrap(), expected, "{typed}");
        }
    }

    #[test]
    fn input_that_names_no_content_is_an_error() {
        for typed in [
            "",
            "/",
            "ipfs",
            "/ipfs/",
            "ipfs://",
            "ipfs:///x",
            "//evil",
            "https://evil.example/",
            "https://docs.ipfs.tech/how",
            "javascript:alert(1)",
            "x",
        ] {
            assert!(location(typed).is_err(), "{typed}");
        }
    }
}
