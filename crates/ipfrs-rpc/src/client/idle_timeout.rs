//! Timeout for a daemon that does not respond.

use std::time::Duration;

use ipfrs_core::{Error, ErrorKind, Result};
use tokio::pin;
use tokio::time::{Instant, sleep_until, timeout};

use super::upload::UploadState;

/// Maximum time that the daemon may neither send data nor accept sent data. `None` for no limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdleTimeout(Option<Duration>);

/// Upper limit of timeouts, because clocks cannot represent times beyond a few centuries. A longer timeout never
/// expires.
const MAX_TIMEOUT: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

impl IdleTimeout {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn of_seconds(timeout: Option<f64>) -> Result<Self> {
        let Some(seconds) = timeout else { return Ok(Self::NONE) };
        match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) if !timeout.is_zero() => Ok(Self(Some(timeout.min(MAX_TIMEOUT)))),
            _ => Err(Error::invalid(format!(
                "timeout = {seconds}: give a number of seconds above 0, or None for no limit"
            ))),
        }
    }

    pub(super) fn get(self) -> Option<Duration> {
        self.0
    }

    /// Waits for `response`. The time in which the body is still being produced does not count.
    pub(super) async fn wait<F: Future>(
        self,
        url: &str,
        upload: Option<&UploadState>,
        response: F,
    ) -> Result<F::Output> {
        let Some(limit) = self.0 else { return Ok(response.await) };
        let Some(upload) = upload else {
            return timeout(limit, response).await.map_err(|_| timed_out(url, limit));
        };
        pin!(response);
        // The daemon may have sent something after it accepted the last piece.
        let began = Instant::now();
        loop {
            let end = upload.waiting_since().max(began) + limit;
            if end <= Instant::now() {
                return Err(timed_out(url, limit));
            }
            tokio::select! {
                output = &mut response => return Ok(output),
                () = sleep_until(end) => {}
            }
        }
    }
}

fn timed_out(url: &str, limit: Duration) -> Error {
    let seconds = limit.as_secs_f64();
    let what = format!("{url} did not respond within {seconds} s (timeout = {seconds})");
    Error::new(ErrorKind::Timeout, format!("{what}: is the daemon busy, or the timeout too short?"))
}
