//! Options that every command has: `timeout` and `encoding`.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use ipfrs_core::{Error, ErrorKind};
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use super::args::takes_trailers;
use super::output;
use crate::body::{X_STREAM_ERROR, header_text};
use crate::error::{RpcError, RpcErrorBody};

/// The options, read.
#[derive(Debug, Default)]
struct Globals {
    /// How long the command may take, with the text that says so.
    timeout: Option<(Duration, String)>,
}

impl Globals {
    fn read(query: &str) -> Result<Self, String> {
        let mut globals = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "timeout" if !value.is_empty() => {
                    let timeout = go_duration(&value).ok_or_else(|| {
                        format!("invalid value {value:?} for option \"timeout\": use a duration such as 30s or 1h30m")
                    })?;
                    globals.timeout = (!timeout.is_zero()).then(|| (timeout, value.into_owned()));
                }
                "encoding" if !matches!(value.as_ref(), "" | "json") => {
                    return Err(format!("encoding {value:?} is not offered: use json, or leave the option out"));
                }
                _ => {}
            }
        }
        Ok(globals)
    }
}

/// Reads the options, and holds the command to its time.
pub(crate) async fn apply(request: Request, next: Next) -> Response {
    let globals = match Globals::read(request.uri().query().unwrap_or_default()) {
        Ok(globals) => globals,
        Err(text) => return RpcError::Request(text).into_response(),
    };
    let Some((timeout, text)) = globals.timeout else { return next.run(request).await };
    // A duration beyond the end of time is none.
    let Some(deadline) = Instant::now().checked_add(timeout) else { return next.run(request).await };
    let takes_trailers = takes_trailers(request.headers());
    // The beginning is Kubo's, for clients that look for it.
    let expired = Error::new(ErrorKind::Timeout, format!("context deadline exceeded: timeout={text} is over"));
    match timeout_at(deadline, next.run(request)).await {
        Ok(response) => {
            let is_lines = response.headers().contains_key(output::X_CHUNKED_OUTPUT);
            let sleep = Box::pin(sleep_until(deadline));
            response.map(|inner| Body::new(Timed { inner, sleep, expired, takes_trailers, is_lines, end: End::NotYet }))
        }
        // Not logged: the client wanted it so.
        Err(_) => {
            let body = RpcErrorBody::of(&expired);
            (StatusCode::INTERNAL_SERVER_ERROR, [(CACHE_CONTROL, "no-store")], body).into_response()
        }
    }
}

/// An answer that breaks off when the command's time is over, with the reason where the client can be told.
struct Timed {
    inner: Body,
    sleep: Pin<Box<Sleep>>,
    expired: Error,
    takes_trailers: bool,
    /// Whether the body is NDJSON, whose last line may be an error.
    is_lines: bool,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    NotYet,
    /// The last line was sent, and the reason is still to be told.
    Line,
    Told,
}

impl Timed {
    /// Breaks off.
    fn expire(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        // What works behind it ends now.
        self.inner = Body::empty();
        if self.is_lines && self.end == End::NotYet {
            self.end = End::Line;
            if let Ok(line) = output::line(&RpcErrorBody::of(&self.expired)) {
                return Some(Ok(Frame::data(line)));
            }
        }
        self.end = End::Told;
        let reason = self.expired.message();
        if self.takes_trailers {
            let trailers = HeaderMap::from_iter([(X_STREAM_ERROR, header_text(reason))]);
            return Some(Ok(Frame::trailers(trailers)));
        }
        Some(Err(axum::Error::new(Error::new(ErrorKind::Timeout, reason))))
    }
}

impl HttpBody for Timed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.end {
            End::Told => return Poll::Ready(None),
            End::Line => return Poll::Ready(self.expire()),
            End::NotYet => {}
        }
        if self.sleep.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.expire());
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if frame.is_none() {
            self.end = End::Told;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.end != End::Line && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A duration as Go writes it (`time.ParseDuration`): numbers with units, `1h15m30.5s`, or `0`. Negative ones and those
/// of more than 2^64 nanoseconds are none.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() || rest == "0" {
        return (rest == "0").then_some(Duration::ZERO);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let number = &rest[..rest.find(|c| !is_number(c))?];
        rest = &rest[number.len()..];
        let unit = &rest[..rest.find(is_number).unwrap_or(rest.len())];
        rest = &rest[unit.len()..];
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 30 {
            return None;
        }
        let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
        // Digits beyond the tenth of a nanosecond do not matter.
        let fraction = &fraction[..fraction.len().min(18)];
        let part = digits(fraction)? * unit / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        total = total.checked_add(digits(whole)?.checked_mul(unit)?)?.checked_add(part)?;
    }
    u64::try_from(total).ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, nanoseconds) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("1ns", Some(1)),
            ("1us", Some(1_000)),
            ("1\u{b5}s", Some(1_000)),
            ("2\u{3bc}s", Some(2_000)),
            ("300ms", Some(300_000_000)),
            ("1.5s", Some(1_500_000_000)),
            (".5s", Some(500_000_000)),
            ("1.s", Some(1_000_000_000)),
            ("+1m", Some(60_000_000_000)),
            ("1h15m30.918273645s", Some(4_530_918_273_645)),
            ("0.3333333333333333333h", Some(1_199_999_999_999)),
            ("2540400h", Some(9_145_440_000_000_000_000)),
            ("", None),
            ("3", None),
            ("-1s", None),
            (".s", None),
            ("1d", None),
            ("s", None),
            ("1s2", None),
            ("1.2.3s", None),
            ("99999999999h", None),
            ("1 s", None),
        ] {
            assert_eq!(go_duration(text), nanoseconds.map(Duration::from_nanos), "{text:?}");
        }
    }
}
