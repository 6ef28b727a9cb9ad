//! The ends of a call: its deadlines, and the end of its caller's credentials.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::{Error, ErrorKind};
use ipfrs_middleware::RequestDeadline;
use ipfrs_middleware::auth::{Caller, credentials_ended};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use crate::metrics::Method;
use crate::{error, request_id};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// Message for a call that takes too long.
const OVER: &str = "the call did not end before its deadline (grpc-timeout): allow more time, or request less";

/// Deadlines of a call: the one from the client (`grpc-timeout`) and the one for all requests.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    of_client: Option<Instant>,
    of_request: Option<RequestDeadline>,
    client_timer: Option<Pin<Box<Sleep>>>,
    request_timer: Option<Pin<Box<Sleep>>>,
    /// The end of the caller's credentials.
    caller_end: Option<CallerEnd>,
}

/// Completes when the credentials of a caller expire or are revoked.
struct CallerEnd(BoxFuture<'static, ()>);

impl fmt::Debug for CallerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerEnd").finish_non_exhaustive()
    }
}

impl Deadlines {
    /// Reads the deadlines of a request. Only a request from a connection has the second one.
    pub(crate) fn of<B>(request: &http::Request<B>, method: &Method) -> Self {
        let of_client = timeout(request.headers()).and_then(|time| Instant::now().checked_add(time));
        let of_request = request.extensions().get::<RequestDeadline>().cloned();
        if let Some(deadline) = of_request.as_ref().filter(|_| method.is_watch) {
            deadline.lift();
        }
        Self { of_client, of_request, ..Self::default() }
    }

    /// Ends the call with the credentials of its caller.
    pub(crate) fn end_with(&mut self, caller: Caller) {
        if caller.principal().is_some() {
            self.caller_end = Some(CallerEnd(Box::pin(async move { caller.ended().await })));
        }
    }

    /// Ready when a deadline has passed, with the status for the client.
    pub(crate) fn poll_over(&mut self, id: &HeaderValue, cx: &mut Context<'_>) -> Poll<Status> {
        if let Some(CallerEnd(end)) = &mut self.caller_end
            && end.as_mut().poll(cx).is_ready()
        {
            self.caller_end = None;
            return Poll::Ready(request_id::within(id, || error::status(credentials_ended())));
        }
        if let Some(at) = self.of_client {
            let timer = self.client_timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(request_id::within(id, || error::status(Error::new(ErrorKind::Timeout, OVER))));
            }
        }
        match &self.of_request {
            Some(deadline) => deadline
                .poll_over(&mut self.request_timer, Duration::ZERO, cx)
                .map(|()| request_id::within(id, || error::status(deadline.strike()))),
            None => Poll::Pending,
        }
    }
}

/// Checks the timeout of a call before it begins.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it is malformed, so that a call for which the client set a limit does not run without
/// one; [`ErrorKind::Timeout`] if it is 0.
pub(crate) fn check_timeout(headers: &HeaderMap) -> Result<(), Error> {
    let Some(given) = headers.get(GRPC_TIMEOUT) else { return Ok(()) };
    match timeout(headers) {
        Some(time) if !time.is_zero() => Ok(()),
        Some(_) => Err(Error::new(ErrorKind::Timeout, OVER)),
        None => Err(Error::invalid(format!(
            "grpc-timeout = {given:?} is malformed: send up to eight digits and a unit, H, M, S, m, u or n"
        ))),
    }
}

/// Parses the timeout of a call: at most eight digits and a unit
/// (<https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>).
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let is_number = (1..=8).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = digits.parse().ok().filter(|_| is_number)?;
    match unit {
        "H" => Some(Duration::from_secs(value * 3_600)),
        "M" => Some(Duration::from_secs(value * 60)),
        "S" => Some(Duration::from_secs(value)),
        "m" => Some(Duration::from_millis(value)),
        "u" => Some(Duration::from_micros(value)),
        "n" => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        let read =
            |text: &'static str| timeout(&HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(text))]));
        for (text, expected) in [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("100m", Some(Duration::from_millis(100))),
            ("99999999u", Some(Duration::from_micros(99_999_999))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("5", None),
            ("+5S", None),
            ("123456789S", None),
            ("5s", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
            let headers = HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static(text))]);
            assert_eq!(check_timeout(&headers).is_ok(), expected.is_some_and(|time| !time.is_zero()), "{text}");
        }
    }
}
