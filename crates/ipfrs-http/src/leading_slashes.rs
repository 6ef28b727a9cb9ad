//! Paths that begin with several slashes. Clients send them that append a path to a base URL with a final slash.

use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{StatusCode, Uri};

use crate::config::Namespace;
use crate::gateway::cors;
use crate::gateway::escape::url_header;

/// Returns a path of content or of the RPC with one slash at its beginning, if it has several. Other paths are not
/// redirected: browsers take `/\` at the beginning of a `Location` for the beginning of a host.
pub(crate) fn without_repeated(path: &str) -> Option<String> {
    let path = format!("/{}", path.strip_prefix("//")?.trim_start_matches('/'));
    (Namespace::of_path(&path).is_some() || path.starts_with("/api/v0/")).then_some(path)
}

/// Redirects such a path to the same with one slash, as Kubo does.
pub(crate) fn redirect(uri: &Uri) -> Option<Response> {
    let path = without_repeated(uri.path())?;
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let location = url_header(&format!("{path}{query}"));
    let mut redirect = (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, location)]).into_response();
    if Namespace::of_path(&path).is_some() {
        // A page that may read content may also follow redirects to it.
        cors::add(redirect.headers_mut());
    }
    Some(redirect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_content_and_rpc_of_the_same_host() {
        for (target, expected) in [
            ("//ipfs/x//y?a=//b", Some("/ipfs/x//y?a=//b")),
            ("////ipns/x", Some("/ipns/x")),
            ("//ipfs", Some("/ipfs")),
            ("//api/v0/id", Some("/api/v0/id")),
            ("//ipfs/\u{fc}?\u{fc}", Some("/ipfs/%C3%BC?%C3%BC")),
            ("/ipfs/x", None),
            ("//", None),
            ("//evil.example/ipfs/x", None),
            ("///evil.example//ipfs/x", None),
            ("//\\evil.example/ipfs/x", None),
            ("//ipfs.evil.example/x", None),
            ("//ipfs@evil.example/x", None),
            ("//ipfs\\evil.example/x", None),
            ("//api/v0", None),
            ("//api/v1/x", None),
        ] {
            let redirect = redirect(&target.parse().unwrap());
            let location = redirect.as_ref().map(|redirect| redirect.headers()[LOCATION].to_str().unwrap());
            assert_eq!(location, expected, "{target}");
        }
    }
}
