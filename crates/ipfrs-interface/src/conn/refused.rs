//! Responses to requests that are refused because of their heads, before they reach a front-end.

use std::net::IpAddr;
use std::time::SystemTime;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method, Response};

use ipfrs_http::begin_line;

use super::front_end::FrontEnd;
use super::request_head::Refusal;
use crate::request_log;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Counts and logs a refused request from `client`, and returns the response. The connection is closed after it.
pub(crate) fn response<F: FrontEnd>(front_end: &F, refusal: &Refusal, client: IpAddr) -> Response<Body> {
    let id = front_end.count_refused(refusal);
    request_log::refused(refusal, client, &id);
    let text = format!("{}\n", refusal.text);
    let length = HeaderValue::from(text.len());
    let mut response = Response::new(if refusal.method == Method::HEAD { Body::empty() } else { Body::from(text) });
    *response.status_mut() = refusal.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(X_REQUEST_ID, id);
    response
}

/// Same as [`response`], serialized for HTTP/1.1.
pub(crate) fn serialized<F: FrontEnd>(front_end: &F, refusal: &Refusal, client: IpAddr) -> Bytes {
    let response = response(front_end, refusal, client);
    let mut bytes = format!("HTTP/1.1 {}\r\n", response.status()).into_bytes();
    for (name, value) in response.headers() {
        begin_line(&mut bytes, name.as_str());
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    let date = httpdate::fmt_http_date(SystemTime::now());
    bytes.extend_from_slice(format!("Date: {date}\r\nConnection: close\r\n\r\n").as_bytes());
    if refusal.method != Method::HEAD {
        bytes.extend_from_slice(format!("{}\n", refusal.text).as_bytes());
    }
    bytes.into()
}
