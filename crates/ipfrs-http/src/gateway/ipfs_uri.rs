//! `/ipfs/?uri=ipfs://...`: links opened by browsers that use this gateway as the handler of `ipfs:` and `ipns:`
//! (`registerProtocolHandler` of the HTML standard).

use axum::response::{IntoResponse, Response};
use http::header::LOCATION;
use http::{StatusCode, Uri};
use ipfrs_core::{Error, Result};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::escape::{normalised, url_header};
use crate::config::Namespace;

/// ASCII characters that a path or a query must not have (RFC 3986, 3.3 and 3.4). Escapes stay as they are.
const NO_URL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Whether a path names a namespace but no root.
pub(super) fn is_without_root(path: &str) -> bool {
    matches!(path, "/ipfs" | "/ipfs/" | "/ipns" | "/ipns/")
}

/// Redirects a path with two namespaces, such as `/ipfs/ipns/{name}`, to the intended path. Such paths result from
/// treating `/ipfs` as the mount point of the gateway.
pub(super) fn meant(path: &str, query: Option<&str>) -> Option<Response> {
    let meant = path.strip_prefix("/ipfs").filter(|rest| rest.starts_with("/ipfs/") || rest.starts_with("/ipns/"))?;
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let location = url_header(&format!("{}{query}", normalised(meant)));
    Some((StatusCode::MOVED_PERMANENTLY, [(LOCATION, location)]).into_response())
}

/// Redirects with 301 to the path of the link in the query.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if there is no link; see also [`linked`].
pub(super) fn follow(uri: &Uri) -> Result<Response> {
    let path = linked(uri)?.ok_or_else(|| {
        Error::invalid(format!(
            "invalid path {:?}: it does not name content: use /ipfs/{{cid}} or /ipns/{{name}}",
            uri.path()
        ))
    })?;
    Ok((StatusCode::MOVED_PERMANENTLY, [(LOCATION, url_header(&path))]).into_response())
}

/// Returns the path of the link in the query, or `None` if there is no link.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if the link has another scheme.
fn linked(uri: &Uri) -> Result<Option<String>> {
    let query = uri.query().unwrap_or_default();
    let Some((_, link)) = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == "uri") else {
        return Ok(None);
    };
    let found = link.split_once("://").and_then(|(scheme, rest)| {
        let namespace = [Namespace::Ipfs, Namespace::Ipns]
            .into_iter()
            .find(|namespace| scheme.eq_ignore_ascii_case(namespace.as_str()))?;
        let rest = rest.split('#').next().unwrap_or_default().trim_start_matches('/');
        let is_url = !rest.is_empty() && !rest.contains(char::is_control);
        is_url.then(|| format!("/{}/{}", namespace.as_str(), utf8_percent_encode(rest, NO_URL)))
    });
    found.map(Some).ok_or_else(|| {
        let shown: String = link.chars().take(256).collect();
        Error::invalid(format!("uri={shown:?}: expected ipfs://CID/... or ipns://NAME/..."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_handler_links_become_paths() {
        for (query, expected) in [
            ("", None),
            ("url=ipfs://x", None),
            ("uri=ipfs%3A%2F%2FQmX%2Fa%2520b%3Fq%3D1", Some("/ipfs/QmX/a%20b?q=1")),
            ("uri=IPNS://en.wikipedia-on-ipfs.org/wiki/%C3%BC", Some("/ipns/en.wikipedia-on-ipfs.org/wiki/%C3%BC")),
            ("uri=ipfs:////evil.example", Some("/ipfs/evil.example")),
            ("a=b&uri=ipns://x%23frag", Some("/ipns/x")),
            ("uri=ipfs://QmX/a%20%3Cb%3E%5C%22/%C3%BC%2520", Some("/ipfs/QmX/a%20%3Cb%3E%5C%22/%C3%BC%20")),
        ] {
            let uri: Uri = format!("/ipfs/?{query}").parse().unwrap();
            assert_eq!(linked(&uri).unwrap().as_deref(), expected, "{query}");
        }
        for link in ["https://example.com", "ipfs:QmX", "", "ipfs://"] {
            let uri: Uri = format!("/ipfs/?uri={link}").parse().unwrap();
            assert!(linked(&uri).unwrap_err().message().contains(link), "{link}");
        }
        for control in ["%09", "%0D%0AX:y", "%00"] {
            assert!(linked(&format!("/ipfs/?uri=ipfs://x{control}").parse().unwrap()).is_err(), "{control}");
        }
    }
}
