//! Paths that begin with several slashes. Clients send them that append a path to a base URL with a final slash.

use axum::response::{IntoResponse, Redirect, Response};
use http::Uri;

use crate::config::Namespace;
use crate::gateway::cors;

/// Returns a path of content or of the RPC with one slash at its beginning, if it has several.
pub(crate) fn without_repeated(path: &str) -> Option<String> {
    let path = format!("/{}", path.strip_prefix("//")?.trim_start_matches('/'));
    (Namespace::of_path(&path).is_some() || path.starts_with("/api/v0/")).then_some(path)
}

/// Redirects such a path to the same with one slash, as Kubo does.
pub(crate) fn redirect(uri: &Uri) -> Option<Response> {
    let path = without_repeated(uri.path())?;
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let mut redirect = Redirect::temporary(&format!("{path}{query}")).into_response();
    if Namespace::of_path(&path).is_some() {
        // A page that may read content may also follow redirects to it.
        cors::add(redirect.headers_mut());
    }
    Some(redirect)
}
