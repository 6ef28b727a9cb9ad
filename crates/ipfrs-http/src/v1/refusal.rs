//! Error responses of routes that use additional HTTP statuses.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_RANGE;
use ipfrs_core::Error;
use serde_json::Map;

use crate::body::header_text;
use crate::error::{Problem, problem};
use crate::request_id::RequestId;

/// Reason to refuse a request: an error whose status is in the table of all errors, or an HTTP-specific one.
#[derive(Debug)]
pub(super) enum Refusal {
    /// An error of the Node, or of parsing the request.
    Error(Error),
    /// An HTTP-specific error, caused by the method or the headers of the request.
    Http { status: StatusCode, code: &'static str, detail: String },
    /// 416: the requested range is beyond the end of content of `size` bytes.
    BeyondEnd { detail: String, size: u64 },
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Refusal {
    /// Returns a 412 refusal: a condition of the request failed.
    pub(super) fn precondition(detail: impl Into<String>) -> Self {
        Self::Http { status: StatusCode::PRECONDITION_FAILED, code: "precondition_failed", detail: detail.into() }
    }

    /// Returns a 415 refusal: the media type or coding of the body is not supported.
    pub(super) fn media_type(detail: impl Into<String>) -> Self {
        Self::Http { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, code: "unsupported_media_type", detail: detail.into() }
    }

    /// Renders the refusal as a problem document.
    pub(super) fn answer(self, id: &RequestId) -> Response {
        match self {
            Self::Error(error) => Problem::new(error, id).into_response(),
            Self::Http { status, code, detail } => problem(status, code, &detail, id, Map::new()),
            Self::BeyondEnd { detail, size } => {
                let status = StatusCode::RANGE_NOT_SATISFIABLE;
                let mut response = problem(status, "range_not_satisfiable", &detail, id, Map::new());
                response.headers_mut().insert(CONTENT_RANGE, header_text(&format!("bytes */{size}")));
                response
            }
        }
    }
}
