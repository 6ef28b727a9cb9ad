//! The date of responses after the system's clock was set back. hyper renders the date when the second of the last one
//! is over, so it would repeat a date in the future, by which caches take the response for newer than it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::HeaderValue;

/// Latest time at which there was a response, in seconds since 1970.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// Returns the date for a response that hyper sends now, unless hyper's is right.
pub(crate) fn corrected() -> Option<HeaderValue> {
    date_at(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), &LATEST)
}

fn date_at(now: Duration, latest: &AtomicU64) -> Option<HeaderValue> {
    let known = latest.load(Ordering::Relaxed);
    if now.as_secs() > known {
        latest.fetch_max(now.as_secs(), Ordering::Relaxed);
    }
    // hyper's is up to a second old.
    let is_wrong = known > now.as_secs() + 1;
    is_wrong.then(|| HeaderValue::try_from(httpdate::fmt_http_date(UNIX_EPOCH + now)).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_is_corrected_until_the_clock_has_caught_up() {
        let latest = AtomicU64::new(0);
        let date =
            |seconds| date_at(Duration::from_secs(seconds), &latest).map(|date| date.to_str().unwrap().to_owned());
        assert_eq!((date(1_000), date(999), date(5_000)), (None, None, None));
        assert_eq!(date(1_000).as_deref(), Some("Thu, 01 Jan 1970 00:16:40 GMT"));
        assert_eq!((date(4_999), date(5_001)), (None, None));
    }
}
