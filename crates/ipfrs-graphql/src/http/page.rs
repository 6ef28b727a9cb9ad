//! The page for people.

use axum::response::{IntoResponse, Response};

/// Returns the page.
pub(super) fn page() -> Response {
    "page".into_response()
}
