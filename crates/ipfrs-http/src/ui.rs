//! Pages for operators under `/ui`, on the API listener only: files in the binary, which need no network.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{ACCEPT, X_FRAME_OPTIONS};
use http::{HeaderMap, HeaderValue, Method, Uri};
use ipfrs_core::Error;
use utoipa_swagger_ui::Config;

use crate::error::GatewayError;
use crate::gateway::hosts::Named;
use crate::origin::Checked;
use crate::page_headers::{self, Referrer};
use crate::state::AppState;
use crate::static_file;

/// Path of the page with GraphQL queries.
pub(crate) const GRAPHQL_PAGE: &str = "/ui/graphql";

/// Whether a path is that of a page or of one of its files.
pub(crate) fn is_page(path: &str) -> bool {
    ["/ui", "/webui", "/docs"]
        .iter()
        .any(|page| path.strip_prefix(page).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Pages load only files of their own origin, and connect only to it. The console shows images from memory.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Swagger UI sets styles of elements.
const DOCS_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

macro_rules! files {
    ($($path:literal: $media:ident = $file:literal,)*) => {
        /// Files by their path below `/ui/`: media type and content.
        const FILES: &[(&str, &str, &str)] =
            &[$(($path, $media, include_str!(concat!("../ui/", $file))),)*];
    };
}

files! {
    "style.css": STYLE = "style.css",
    "dom.js": SCRIPT = "dom.js",
    "editor.js": SCRIPT = "editor.js",
    "": HTML = "console/page.html",
    "console/add.js": SCRIPT = "console/add.js",
    "console/api.js": SCRIPT = "console/api.js",
    "console/chart.js": SCRIPT = "console/chart.js",
    "console/cid.js": SCRIPT = "console/cid.js",
    "console/configuration.js": SCRIPT = "console/configuration.js",
    "console/content.js": SCRIPT = "console/content.js",
    "console/directory.js": SCRIPT = "console/directory.js",
    "console/events.js": SCRIPT = "console/events.js",
    "console/format.js": SCRIPT = "console/format.js",
    "console/live.js": SCRIPT = "console/live.js",
    "console/metrics.js": SCRIPT = "console/metrics.js",
    "console/names.js": SCRIPT = "console/names.js",
    "console/operations.js": SCRIPT = "console/operations.js",
    "console/overview.js": SCRIPT = "console/overview.js",
    "console/page.css": STYLE = "console/page.css",
    "console/page.js": SCRIPT = "console/page.js",
    "console/parts.js": SCRIPT = "console/parts.js",
    "console/pins.js": SCRIPT = "console/pins.js",
    "console/preview.js": SCRIPT = "console/preview.js",
    "console/session.js": SCRIPT = "console/session.js",
    "console/tensors.js": SCRIPT = "console/tensors.js",
    "console/upload.js": SCRIPT = "console/upload.js",
    "graphql": HTML = "graphql/page.html",
    "graphql/page.css": STYLE = "graphql/page.css",
    "graphql/page.js": SCRIPT = "graphql/page.js",
    "graphql/analysis.js": SCRIPT = "graphql/analysis.js",
    "graphql/client.js": SCRIPT = "graphql/client.js",
    "graphql/docs.js": SCRIPT = "graphql/docs.js",
    "graphql/lexer.js": SCRIPT = "graphql/lexer.js",
    "graphql/schema.js": SCRIPT = "graphql/schema.js",
}

/// `GET /ui/{path}`. Without a path, it is the console.
pub(crate) async fn file(
    State(state): State<AppState>,
    checked: Option<Extension<Checked>>,
    uri: Uri,
    path: Option<Path<String>>,
    headers: HeaderMap,
) -> Result<Response, GatewayError> {
    if checked.is_none() {
        return redirect_to_api_listener(&state, &headers, uri.path(), "pages for operators need");
    }
    let path = path.map(|Path(path)| path).unwrap_or_default();
    let found = FILES.iter().find(|(name, ..)| *name == path);
    let (_, media, content) = found.ok_or_else(|| GatewayError(Error::not_found(format!("no page /ui/{path}"))))?;
    let mut response = static_file::respond(&headers, media, Cow::Borrowed(content.as_bytes()));
    protect(response.headers_mut(), POLICY);
    Ok(response)
}

/// Redirects a person from the main port to a page on the API listener. `need` says what needs that listener.
fn redirect_to_api_listener(
    state: &AppState,
    headers: &HeaderMap,
    page: &str,
    need: &str,
) -> Result<Response, GatewayError> {
    let addresses = state.api_addresses.get().map(Vec::as_slice).unwrap_or_default();
    // With or without TLS, as this request. The address may be that of all interfaces; the person has reached this
    // machine under the name in `Host`.
    let host = Named::of_header(headers).ok().flatten().map(|host| host.lower());
    match addresses.first().and_then(|address| address.rsplit(':').next()).zip(host) {
        Some((port, host)) => Ok(Redirect::temporary(&format!("//{host}:{port}{page}")).into_response()),
        None => Err(GatewayError(Error::not_found(format!(
            "{need} the API listener (api.enabled = true, and a free port): web pages of this origin, which has content \
             from anyone, must not control the daemon"
        )))),
    }
}

/// Adds headers that keep other origins away from a page.
fn protect(headers: &mut HeaderMap, policy: HeaderValue) {
    page_headers::protect(headers, policy, Referrer::Never);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

/// `GET /docs/{path}`: Swagger UI, which shows `/openapi.json` and sends requests.
pub(crate) async fn docs(
    State(state): State<AppState>,
    checked: Option<Extension<Checked>>,
    uri: Uri,
    path: Option<Path<String>>,
    headers: HeaderMap,
) -> Result<Response, GatewayError> {
    if checked.is_none() {
        return redirect_to_api_listener(&state, &headers, uri.path(), "the page with this description needs");
    }
    let path = path.map(|Path(path)| path).unwrap_or_default();
    let config = Config::new(["/openapi.json"]).doc_expansion("none").filter(true);
    let file = utoipa_swagger_ui::serve(&path, Arc::new(config))
        .map_err(|e| GatewayError(Error::internal(format!("the page could not be read: {e}"))))?;
    let file = file.ok_or_else(|| GatewayError(Error::not_found(format!("no page /docs/{path}"))))?;
    let mut response = static_file::respond(&headers, &file.content_type, file.bytes);
    protect(response.headers_mut(), DOCS_POLICY);
    Ok(response)
}

/// Whether a person opened `/graphql` in a browser: a GET that prefers a page and has no query.
pub(crate) fn asks_for_graphql_page<B>(request: &http::Request<B>) -> bool {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    matches!(*request.method(), Method::GET | Method::HEAD)
        && request.uri().path() == "/graphql"
        && request.uri().query().is_none_or(str::is_empty)
        && accept.trim_start().starts_with("text/html")
}

/// Redirects a person from the main port to the page for queries.
pub(crate) fn graphql_page(state: &AppState, request: &Request) -> Response {
    let need = "/graphql: programs send POST requests here, and the page for queries needs";
    redirect_to_api_listener(state, request.headers(), GRAPHQL_PAGE, need).into_response()
}
