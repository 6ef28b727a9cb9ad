//! HTML error pages for browsers. Other clients get text.

use std::borrow::Cow;

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::header::{ACCEPT, CONTENT_LENGTH, VARY};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use ipfrs_core::ErrorKind;
use ipfrs_node::Attempt;
use percent_encoding::percent_decode_str;

use super::escape::{encode, visible};
use super::format::accepts_html;
use crate::error::{Reason, problem};
use crate::request_id::RequestId;
use crate::retrieval_report;
use crate::state::AppState;

/// Maximum number of characters of a path that a page shows.
const SHOWN_CHARS: usize = 1_024;

/// Parts of a browser's request that an error page shows.
pub(crate) struct Browser {
    path: String,
    id: RequestId,
}

/// Form in which the client wants to read an error that is not text.
pub(crate) enum Form {
    /// A page.
    Page(Browser),
    /// A problem document (RFC 9457).
    Json(RequestId),
}

impl Form {
    /// Returns the form for a request; `None` for text.
    pub(crate) fn of<B>(request: &Request<B>, id: &HeaderValue) -> Option<Self> {
        let json = || accepts_json(request.headers()).then(|| Self::Json(RequestId(id.clone())));
        Browser::of(request, id).map(Self::Page).or_else(json)
    }
}

/// Whether `Accept` names JSON.
fn accepts_json(headers: &HeaderMap) -> bool {
    let types = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    let mut types = types.map(|item| item.split(';').next().unwrap_or_default().trim());
    types.any(|name| matches!(name, "application/json" | "application/problem+json"))
}

impl Browser {
    /// Returns the browser behind a request. Any client that names HTML in `Accept` counts as one.
    pub(crate) fn of<B>(request: &Request<B>, id: &HeaderValue) -> Option<Self> {
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
    attempts: &'a [Attempt],
    path: String,
    parent: Option<String>,
    request_id: &'a str,
}

/// Converts an error response with a [`Reason`] to a page if the client is a browser; other responses stay unchanged.
pub(crate) fn shown(state: &AppState, form: Option<Form>, mut response: Response) -> Response {
    let Some(Reason { text, is_isolated, attempts }) = response.extensions_mut().remove() else { return response };
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
    let browser = match form {
        None => return response,
        Some(Form::Page(browser)) => browser,
        Some(Form::Json(id)) => return as_json(response, &text, attempts.as_deref(), &id),
    };
    let words = words(response.status());
    let page = Page {
        title: format!("{} {}", response.status().as_u16(), words.title),
        status: response.status().as_u16(),
        words,
        reason: &visible(&text),
        attempts: attempts.as_deref().unwrap_or_default(),
        path: visible(&*Cow::from(percent_decode_str(&browser.path))).chars().take(SHOWN_CHARS).collect(),
        parent: parent(&browser.path, is_isolated),
        request_id: browser.id.as_str(),
    };
    match page.render() {
        Ok(page) => {
            response.headers_mut().remove(CONTENT_LENGTH);
            state.pages.head(response.headers_mut());
            *response.body_mut() = Body::from(page);
        }
        Err(error) => tracing::error!(%error, "an error page could not be rendered: its text is sent instead"),
    }
    response
}

/// Replaces the text of an error by a problem document with the attempts to retrieve the content.
fn as_json(mut response: Response, text: &str, attempts: Option<&[Attempt]>, id: &RequestId) -> Response {
    let status = response.status();
    let code = match status {
        StatusCode::BAD_GATEWAY => ErrorKind::BadSource.code(),
        StatusCode::GATEWAY_TIMEOUT if attempts.is_some() => ErrorKind::Unretrievable.code(),
        // Only these responses have a report. The text of all others is enough.
        _ => return response,
    };
    let members = attempts.map(|attempts| ("attempts".to_owned(), retrieval_report::json(attempts)));
    let (parts, body) = problem(status, code, text, id, members.into_iter().collect()).into_parts();
    let headers = response.headers_mut();
    headers.remove(CONTENT_LENGTH);
    headers.extend(parts.headers);
    *response.body_mut() = body;
    response
}

/// Returns the path of the parent directory, or `None` at a root. `is_isolated` says that the path begins below the
/// root.
fn parent(path: &str, is_isolated: bool) -> Option<String> {
    let mut segments: Vec<_> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    segments.pop()?;
    if !is_isolated && (segments.len() < 2 || !matches!(segments[0], "ipfs" | "ipns")) {
        return None;
    }
    // The segments are decoded and encoded again, so that a link built from the client's text cannot leave the
    // gateway.
    let names = segments.iter().map(|segment| encode(Cow::from(percent_decode_str(segment))));
    Some(names.fold(String::new(), |path, name| format!("{path}/{name}")) + "/")
}

/// Meaning of a status, in words for a person.
struct Words {
    title: &'static str,
    advice: &'static str,
}

fn words(status: StatusCode) -> Words {
    let (title, advice) = match status {
        StatusCode::BAD_REQUEST => {
            ("Invalid address", "The address is malformed. Check that it was copied completely.")
        }
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => ("Not allowed", "The gateway refuses this request."),
        StatusCode::NOT_FOUND => {
            ("Not found", "This gateway does not have the content, or the path does not exist. Check the address.")
        }
        StatusCode::METHOD_NOT_ALLOWED => ("Method not allowed", "Content can only be read."),
        StatusCode::NOT_ACCEPTABLE => ("Format not available", "The content exists, but not in the requested format."),
        StatusCode::GONE => {
            ("No longer available", "This gateway does not serve this content. Trying again does not help.")
        }
        StatusCode::PRECONDITION_FAILED => {
            ("Precondition failed", "The content does not match a condition of the request.")
        }
        StatusCode::PAYLOAD_TOO_LARGE => (
            "Too large",
            "The request exceeds a limit of this gateway. Request a part of it, or use a gateway of your own.",
        ),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Too many requests", "The gateway is busy. Wait a moment, then reload this page.")
        }
        StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS => {
            ("Not available for legal reasons", "This gateway must not serve this content.")
        }
        StatusCode::NOT_IMPLEMENTED => {
            ("Not supported", "This gateway does not support this kind of content or request.")
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => (
            "Temporarily unavailable",
            "A service that the gateway needs does not respond. Wait a moment, then reload this page.",
        ),
        StatusCode::GATEWAY_TIMEOUT => {
            ("Not available in time", "The gateway could not get the content in time. Reload this page to try again.")
        }
        StatusCode::INSUFFICIENT_STORAGE => {
            ("The disk is full", "The operator of this gateway has to free disk space.")
        }
        status if status.is_server_error() => (
            "Internal error",
            "This is not a fault of the request. The operator of this gateway can find it in the log by its request ID.",
        ),
        _ => ("Request failed", "The reason is below."),
    };
    Words { title, advice }
}

#[cfg(test)]
mod tests {
    use super::parent;

    #[test]
    fn parent_link_stops_at_root_and_stays_on_site() {
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
