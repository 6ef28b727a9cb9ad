//! Responses to requests that are not gRPC calls.

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE};
use http::{Method, Request, StatusCode};

/// Returns the response that gRPC specifies for a request that is not a call.
pub(crate) fn no_call<B>(request: &Request<B>) -> Option<Response> {
    if request.method() != Method::POST {
        let text = "this port serves gRPC: calls are HTTP/2 POST requests\n";
        return Some((StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")], text).into_response());
    }
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    // Messages are protobuf, the default.
    let format = kind.split(';').next().unwrap_or_default().trim_end().strip_prefix("application/grpc");
    if !matches!(format, Some("" | "+proto")) {
        let text = "this port serves gRPC with protobuf messages (content-type: application/grpc); gRPC-Web is on the \
                    gateway's own port\n";
        return Some((StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response());
    }
    None
}
