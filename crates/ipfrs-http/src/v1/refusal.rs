//! Refusals of routes that answer with statuses of their own.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ipfrs_core::Error;
use serde_json::Map;

use crate::error::{Problem, problem};
use crate::request_id::RequestId;

/// Why a request is not answered: an error with its status in the one table, or one that only HTTP knows.
#[derive(Debug)]
pub(super) enum Refusal {
    /// An error of the Node, or of what the request asks of it.
    Error(Error),
    /// What the request's method or headers rule out.
    Http { status: StatusCode, code: &'static str, detail: String },
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl Refusal {
    /// 412: a condition of the request does not hold.
    pub(super) fn precondition(detail: impl Into<String>) -> Self {
        Self::Http { status: StatusCode::PRECONDITION_FAILED, code: "precondition_failed", detail: detail.into() }
    }

    /// 415: the body is in a form that is not taken.
    pub(super) fn media_type(detail: impl Into<String>) -> Self {
        Self::Http { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, code: "unsupported_media_type", detail: detail.into() }
    }

    /// 416: what was asked for lies beyond the end.
    pub(super) fn range(detail: impl Into<String>) -> Self {
        Self::Http { status: StatusCode::RANGE_NOT_SATISFIABLE, code: "range_not_satisfiable", detail: detail.into() }
    }

    /// The problem document.
    pub(super) fn answer(self, id: &RequestId) -> Response {
        match self {
            Self::Error(error) => Problem::new(error, id).into_response(),
            Self::Http { status, code, detail } => problem(status, code, &detail, id, Map::new()),
        }
    }
}
