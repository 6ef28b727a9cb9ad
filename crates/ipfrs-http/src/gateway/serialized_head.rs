//! Serialized HTTP/1.1 response heads, identical to the bytes that hyper writes for the same headers.

use std::cell::RefCell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

/// A serialized head of status 200, without the values that differ for each response: the request ID and the date.
#[derive(Debug)]
pub(super) struct SerializedHead {
    before_id: Box<[u8]>,
    between_id_and_date: Box<[u8]>,
}

impl SerializedHead {
    /// Serializes the head of a response with these headers and a body of `length` bytes.
    pub(super) fn of(headers: &HeaderMap, length: usize) -> Self {
        let mut before = b"HTTP/1.1 200 OK\r\n".to_vec();
        for (name, value) in headers {
            begin_line(&mut before, name.as_str());
            before.extend_from_slice(value.as_bytes());
            before.extend_from_slice(b"\r\n");
        }
        begin_line(&mut before, "x-request-id");
        let mut between = b"\r\n".to_vec();
        if !headers.contains_key(CONTENT_LENGTH) {
            // hyper writes this header after all others.
            begin_line(&mut between, CONTENT_LENGTH.as_str());
            between.extend_from_slice(HeaderValue::from(length).as_bytes());
            between.extend_from_slice(b"\r\n");
        }
        begin_line(&mut between, "date");
        Self { before_id: before.into(), between_id_and_date: between.into() }
    }

    /// Appends the head of the response to the request `request_id`, at time `now`, to `head`. Returns the position
    /// of the ID.
    pub(super) fn write(&self, head: &mut Vec<u8>, request_id: &[u8], now: Instant) -> usize {
        head.extend_from_slice(&self.before_id);
        let start = head.len();
        head.extend_from_slice(request_id);
        head.extend_from_slice(&self.between_id_and_date);
        DATE.with_borrow_mut(|date| head.extend_from_slice(date.line_end(now)));
        start
    }
}

/// Appends the head of an HTTP/1.1 response to `head`, at time `now`. `body_bytes` is the length of the body that
/// follows: 0 in a response to HEAD. The headers must not be about the connection.
pub fn write_head(
    head: &mut Vec<u8>,
    method: &Method,
    status: StatusCode,
    headers: &HeaderMap,
    body_bytes: usize,
    now: Instant,
) {
    if status == StatusCode::OK {
        head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    } else {
        let reason = status.canonical_reason().unwrap_or("<none>");
        for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
    }
    let is_head = *method == Method::HEAD;
    let may_state_length = body_bytes > 0 || is_head;
    let mut states_length = false;
    for (name, value) in headers {
        if name == CONTENT_LENGTH {
            states_length |= may_state_length;
            if !may_state_length {
                continue;
            }
        }
        begin_line(head, name.as_str());
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    // RFC 9110, 8.6.
    let has_length = !is_head && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if !states_length && has_length {
        begin_line(head, CONTENT_LENGTH.as_str());
        head.extend_from_slice(HeaderValue::from(body_bytes).as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    begin_line(head, "date");
    DATE.with_borrow_mut(|date| head.extend_from_slice(date.line_end(now)));
}

/// Appends the beginning of a header line, with the name in capitals as hyper writes it: `Content-Type: `.
pub fn begin_line(lines: &mut Vec<u8>, name: &str) {
    let mut is_first = true;
    lines.extend(name.bytes().map(|byte| {
        let capital = if is_first { byte.to_ascii_uppercase() } else { byte };
        is_first = byte == b'-';
        capital
    }));
    lines.extend_from_slice(b": ");
}

/// The formatted date, with the end of its line and of the head.
struct Date {
    text: String,
    /// Time at which the text becomes outdated.
    end: Option<Instant>,
}

thread_local! {
    static DATE: RefCell<Date> = const { RefCell::new(Date { text: String::new(), end: None }) };
}

impl Date {
    /// Returns the formatted date. The clock is read again when its second is over, so that clock adjustments take
    /// effect within a second.
    fn line_end(&mut self, now: Instant) -> &[u8] {
        if self.end.is_none_or(|end| now >= end) {
            let time = SystemTime::now();
            let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            let left = Duration::from_secs(1) - Duration::from_nanos(since_epoch.subsec_nanos().into());
            self.text = format!("{}\r\n\r\n", httpdate::fmt_http_date(time));
            self.end = now.checked_add(left);
        }
        self.text.as_bytes()
    }
}
