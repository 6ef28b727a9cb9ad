//! Errors as pages, for whoever follows a link in a browser. Everybody else gets their text.

use askama::Template;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{CONTENT_LENGTH, VARY};
use http::{HeaderValue, StatusCode};
use percent_encoding::percent_decode_str;

use super::page::{encode, visible};
use super::request::accepts_html;
use crate::error::Reason;
use crate::request_id::RequestId;
use crate::router::AppState;

/// Characters of a path that a page repeats.
const SHOWN_CHARS: usize = 1_024;

/// A browser that asked for something: what a page about the failure repeats of its request.
pub(crate) struct Browser {
    path: String,
    id: RequestId,
}

impl Browser {
    /// Whoever asks for HTML by name is taken for one.
    pub(crate) fn of(request: &Request, id: &HeaderValue) -> Option<Self> {
        let browser = || Self { path: request.uri().path().to_owned(), id: RequestId(id.clone()) };
        accepts_html(request.headers()).then(browser)
    }
}

#[derive(Template)]
#[template(path = "error.html")]
struct Page<'a> {
    title: String,
    status: u16,
    words: Words,
    reason: &'a str,
    path: String,
    parent: Option<String>,
    request_id: &'a str,
}

/// An answer as it goes out: one that failed for a [`Reason`] is a page for a browser.
pub(crate) fn shown(state: &AppState, browser: Option<Browser>, mut response: Response) -> Response {
    let Some(Reason { text, is_isolated }) = response.extensions_mut().remove() else { return response };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    let Some(browser) = browser else { return response };
    let words = words(response.status());
    let page = Page {
        title: format!("{} {}", response.status().as_u16(), words.title),
        status: response.status().as_u16(),
        words,
        reason: &visible(&text),
        path: visible(&percent_decode_str(&browser.path).decode_utf8_lossy()).chars().take(SHOWN_CHARS).collect(),
        parent: parent(&browser.path, is_isolated),
        request_id: browser.id.as_str(),
    };
    match page.render() {
        Ok(page) => {
            response.headers_mut().remove(CONTENT_LENGTH);
            state.pages.head(response.headers_mut());
            *response.body_mut() = Body::from(page);
        }
        Err(error) => tracing::error!(%error, "an error's page could not be rendered: its text is sent instead"),
    }
    response
}

/// Where the directory is that the content of a path is in; from a root, nowhere. `is_isolated` says that the path begins
/// below the root.
fn parent(path: &str, is_isolated: bool) -> Option<String> {
    let mut segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    segments.pop()?;
    if !is_isolated && (segments.len() < 2 || !matches!(segments[0], "ipfs" | "ipns")) {
        return None;
    }
    // Read and written again: a link that is made of a client's text leads nowhere else.
    let names = segments.iter().map(|segment| encode(&percent_decode_str(segment).decode_utf8_lossy()));
    Some(names.fold(String::new(), |path, name| format!("{path}/{name}")) + "/")
}

/// What a status means, for a person.
struct Words {
    title: &'static str,
    advice: &'static str,
}

fn words(status: StatusCode) -> Words {
    let (title, advice) = match status {
        StatusCode::BAD_REQUEST => {
            ("This address makes no sense", "Something in it is not what it should be. Check that it was copied whole.")
        }
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            ("This is not allowed", "The gateway does not give this to you.")
        }
        StatusCode::NOT_FOUND => {
            ("Nothing is here", "The content is not on this gateway, or nothing has this name. Check the address.")
        }
        StatusCode::METHOD_NOT_ALLOWED => ("This cannot be done here", "Content can be read, and nothing else."),
        StatusCode::NOT_ACCEPTABLE => {
            ("Not to be had in this form", "The content is here, but not in the format that was asked for.")
        }
        StatusCode::GONE => {
            ("This is not given out any more", "The gateway does not serve this content. Asking again does not help.")
        }
        StatusCode::PRECONDITION_FAILED => ("Not as expected", "The content is not what the request took it for."),
        StatusCode::PAYLOAD_TOO_LARGE => (
            "This is too large",
            "It is over a limit of this gateway. It may be had in parts, or from a gateway of your own.",
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Too much is being asked for", "The gateway is busy. Wait a moment, then load this page again.")
        }
        StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS => {
            ("Not available for legal reasons", "The gateway may not serve this content.")
        }
        StatusCode::NOT_IMPLEMENTED => {
            ("This gateway cannot do that", "The address is understood, but what it asks for is not offered here.")
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
            ("Not to be had now", "Something that is needed does not answer. Wait a moment, then load this page again.")
        }
        StatusCode::GATEWAY_TIMEOUT => (
            "This took too long",
            "The content could not be found in time. It may be there later: load this page again.",
        ),
        StatusCode::INSUFFICIENT_STORAGE => ("The disk is full", "Whoever runs this gateway has to make room."),
        status if status.is_server_error() => (
            "Something went wrong",
            "This is not your fault. Whoever runs this gateway finds the request in its log by its ID.",
        ),
        _ => ("This did not work", "The reason is below."),
    };
    Words { title, advice }
}

#[cfg(test)]
mod tests {
    use super::parent;

    #[test]
    fn the_way_up_ends_at_the_root_and_never_leaves_the_site() {
        for (path, expected) in [
            ("/", None),
            ("//", None),
            ("/a", Some("/")),
            ("/a/b%2Fc/d", Some("/a/b%2Fc/")),
            ("/ipfs/x", Some("/ipfs/")),
            ("//evil.example/x", Some("/evil.example/")),
            ("/\\evil.example/x", Some("/%5Cevil.example/")),
        ] {
            assert_eq!(parent(path, true).as_deref(), expected, "{path}");
        }
        for (path, expected) in [
            ("/ipfs/cid/a/b", Some("/ipfs/cid/a/")),
            ("/ipns/name/a/", Some("/ipns/name/")),
            ("/ipfs/cid/%3Ca%22/b", Some("/ipfs/cid/%3Ca%22/")),
            ("/ipfs/cid", None),
            ("/ipfs/", None),
            ("//evil.example/x/y", None),
            ("/\\evil.example/x/y", None),
            ("/ipfs/\\evil.example\"/x", Some("/ipfs/%5Cevil.example%22/")),
        ] {
            assert_eq!(parent(path, false).as_deref(), expected, "{path}");
        }
    }
}
