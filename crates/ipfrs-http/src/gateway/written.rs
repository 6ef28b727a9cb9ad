//! Heads of answers as they are on the wire of HTTP/1.1: the bytes that hyper writes for the same headers.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue};

/// The status line of 200, and the lines of headers.
#[derive(Debug)]
pub(super) struct Fields {
    lines: Box<[u8]>,
    /// Whether the body's length is among them. hyper tells it behind them otherwise.
    tell_length: bool,
}

impl Fields {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut lines = b"HTTP/1.1 200 OK\r\n".to_vec();
        for (name, value) in headers {
            line(&mut lines, name.as_str(), value.as_bytes());
        }
        Self { lines: lines.into(), tell_length: headers.contains_key(CONTENT_LENGTH) }
    }

    /// Writes the head of an answer whose body has `length` bytes to `head`.
    pub(super) fn write(&self, head: &mut Vec<u8>, request_id: &HeaderValue, length: usize) {
        head.extend_from_slice(&self.lines);
        line(head, "x-request-id", request_id.as_bytes());
        if !self.tell_length {
            line(head, "content-length", HeaderValue::from(length).as_bytes());
        }
        DATE.with_borrow_mut(|date| line(head, "date", date.text().as_bytes()));
        head.extend_from_slice(b"\r\n");
    }
}

fn line(lines: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// The time as it was written last.
struct Date {
    text: String,
    /// When it is another.
    end: SystemTime,
}

thread_local! {
    static DATE: RefCell<Date> = const { RefCell::new(Date { text: String::new(), end: UNIX_EPOCH }) };
}

impl Date {
    fn text(&mut self) -> &str {
        let now = SystemTime::now();
        let is_later_than_shown = now >= self.end;
        // A clock may be set back.
        if is_later_than_shown || self.end.duration_since(now).is_ok_and(|left| left > Duration::from_secs(1)) {
            let second = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            self.text = httpdate::fmt_http_date(now);
            self.end = UNIX_EPOCH + Duration::from_secs(second + 1);
        }
        &self.text
    }
}
