//! Heads of answers as they are on the wire of HTTP/1.1: the bytes that hyper writes for the same headers.

use std::cell::RefCell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderValue};

/// A head of status 200, but for what each answer has of its own: the ID of the request and the time.
#[derive(Debug)]
pub(super) struct Head {
    before_id: Box<[u8]>,
    between_id_and_date: Box<[u8]>,
}

impl Head {
    /// Of an answer with these headers and a body of `length` bytes.
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
            // hyper tells it behind the others.
            begin_line(&mut between, CONTENT_LENGTH.as_str());
            between.extend_from_slice(HeaderValue::from(length).as_bytes());
            between.extend_from_slice(b"\r\n");
        }
        begin_line(&mut between, "date");
        Self { before_id: before.into(), between_id_and_date: between.into() }
    }

    /// Writes the head of the answer to a request of this ID, at the time `now`, to `head`. Gives where the ID begins.
    pub(super) fn write(&self, head: &mut Vec<u8>, request_id: &[u8], now: Instant) -> usize {
        head.extend_from_slice(&self.before_id);
        let start = head.len();
        head.extend_from_slice(request_id);
        head.extend_from_slice(&self.between_id_and_date);
        DATE.with_borrow_mut(|date| head.extend_from_slice(date.line_end(now)));
        start
    }
}

fn begin_line(lines: &mut Vec<u8>, name: &str) {
    lines.extend_from_slice(name.as_bytes());
    lines.extend_from_slice(b": ");
}

/// The time as it was written last, with the end of its line and of the head.
struct Date {
    text: String,
    /// When it is another.
    end: Option<Instant>,
}

thread_local! {
    static DATE: RefCell<Date> = const { RefCell::new(Date { text: String::new(), end: None }) };
}

impl Date {
    /// The clock is asked again when its second is over, so that one that is set is noticed within a second.
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
