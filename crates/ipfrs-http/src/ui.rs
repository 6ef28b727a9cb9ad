//! Pages for operators under `/ui`, on the API listener only: files in the binary, which need no network.

use axum::body::Body;
use axum::extract::{Extension, Path, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ipfrs_core::{Base, Error, hash};

use crate::api_listener::Checked;
use crate::error::GatewayError;
use crate::gateway::hosts::Named;
use crate::state::AppState;

/// Path of the page with GraphQL queries.
pub(crate) const GRAPHQL_PAGE: &str = "/ui/graphql";

/// Prefix of the paths of all pages and their files.
pub(crate) const PREFIX: &str = "/ui/";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Pages load only files of their own origin, and connect only to it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
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
    "graphql": HTML = "graphql/page.html",
    "graphql/page.css": STYLE = "graphql/page.css",
    "graphql/page.js": SCRIPT = "graphql/page.js",
    "graphql/analysis.js": SCRIPT = "graphql/analysis.js",
    "graphql/client.js": SCRIPT = "graphql/client.js",
    "graphql/docs.js": SCRIPT = "graphql/docs.js",
    "graphql/lexer.js": SCRIPT = "graphql/lexer.js",
    "graphql/schema.js": SCRIPT = "graphql/schema.js",
}

/// `GET /ui/{path}`.
pub(crate) async fn file(
    checked: Option<Extension<Checked>>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Result<Response, GatewayError> {
    if checked.is_none() {
        let why = "pages are served by the API listener ([api]), whose origin has no content from others";
        return Err(GatewayError(Error::not_found(why)));
    }
    let found = FILES.iter().find(|(name, ..)| *name == path);
    let (_, media, content) = found.ok_or_else(|| GatewayError(Error::not_found(format!("no page /ui/{path}"))))?;
    let digest = hash::sha2_256(content.as_bytes());
    let tag = format!("\"{}\"", Base::Base16Lower.encode(&digest.digest()[..8]));
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *tag);
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Body::from(*content).into_response(),
    };
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    head.insert(CONTENT_SECURITY_POLICY, POLICY);
    head.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    head.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    head.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // A new version of the daemon has new files.
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::try_from(tag) {
        head.insert(ETAG, tag);
    }
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

/// Redirects a person from the main port to the page on the API listener.
pub(crate) fn graphql_page(state: &AppState, request: &Request) -> Response {
    let addresses = state.api_addresses.get().map(Vec::as_slice).unwrap_or_default();
    // The address may be that of all interfaces; the person has reached this machine under the name in `Host`.
    let host = Named::of_header(request.headers()).ok().flatten().map(|host| host.lower());
    match addresses.first().and_then(|address| address.rsplit(':').next()).zip(host) {
        Some((port, host)) => Redirect::temporary(&format!("http://{host}:{port}{GRAPHQL_PAGE}")).into_response(),
        None => {
            let why = "the page for queries needs the API listener (api.enabled = true): web pages of this origin, which \
                       has content from anyone, must not control the daemon. Programs send POST requests here";
            GatewayError(Error::not_found(format!("{}: {why}", request.uri().path()))).into_response()
        }
    }
}
