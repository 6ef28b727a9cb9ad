//! Timestamps in the form of RFC 3339, and dates of HTTP.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Datelike, NaiveDateTime, Utc};

/// Form of dates in HTTP (RFC 9110, 5.6.7).
const HTTP_DATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// Formats a time since 1970 in UTC, without trailing zeros, like Go's `RFC3339Nano`: `2026-01-02T03:04:05.6Z`.
/// Returns `None` outside the years 0 to 9999, which the format does not support.
#[must_use]
pub fn format(seconds: i64, nanoseconds: u32) -> Option<String> {
    let date = date(seconds)?;
    let fraction = match nanoseconds {
        0 => String::new(),
        nanoseconds => format!(".{nanoseconds:09}").trim_end_matches('0').to_owned(),
    };
    Some(format!("{}{fraction}Z", date.format("%Y-%m-%dT%H:%M:%S")))
}

/// Formats a time since 1970, or before it, as a date of HTTP: `Fri, 02 Jan 2026 03:04:05 GMT`. Returns `None` outside
/// the years 0 to 9999.
#[must_use]
pub fn format_http(seconds: i64) -> Option<String> {
    Some(date(seconds)?.format(HTTP_DATE).to_string())
}

/// Parses what [`format_http`] returns. Returns `None` for any other text, and for the obsolete forms of dates.
#[must_use]
pub fn parse_http(text: &str) -> Option<i64> {
    let seconds = NaiveDateTime::parse_from_str(text, HTTP_DATE).ok()?.and_utc().timestamp();
    // chrono also reads other spaces, letter case and numbers of digits.
    (format_http(seconds)? == text).then_some(seconds)
}

fn date(seconds: i64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(seconds, 0).filter(|date| (0..10_000).contains(&date.year()))
}

/// Formats a time with milliseconds. Returns an empty text for a time that [`format()`] does not support.
#[must_use]
pub fn format_milliseconds(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).ok();
    seconds.and_then(|seconds| format(seconds, since.subsec_millis() * 1_000_000)).unwrap_or_default()
}

/// Parses `2026-01-02T03:04:05[.6]Z`, or the same with an offset such as `+01:00` instead of `Z`. As in Go, digits
/// after the ninth of a fraction are ignored. Returns `None` for any other text, and for times before 1970.
#[must_use]
pub fn parse(text: &str) -> Option<SystemTime> {
    let (seconds, nanoseconds) = parse_seconds(text)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(u64::try_from(seconds).ok()?, nanoseconds))
}

/// Parses like [`parse`], also times before 1970. Returns the seconds since 1970, rounded down, and the nanoseconds
/// after them.
#[must_use]
pub fn parse_seconds(text: &str) -> Option<(i64, u32)> {
    // RFC 3339 permits lower case, a space and leap seconds. Go does not read them.
    if text.as_bytes().get(10) != Some(&b'T') || text.ends_with('z') || text.get(17..19) == Some("60") {
        return None;
    }
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    Some((time.timestamp(), time.timestamp_subsec_nanos()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    /// Last second whose year has four digits.
    const MAX_SECONDS: i64 = 253_402_300_799;

    fn at(seconds: i64, nanoseconds: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap(), nanoseconds)
    }

    #[test]
    fn known_times_are_written_and_read() {
        let known = [
            (0, 0, "1970-01-01T00:00:00Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (1_700_000_000, 120_000_000, "2023-11-14T22:13:20.12Z"),
            (4_107_542_399, 999_999_999, "2100-02-28T23:59:59.999999999Z"),
            (MAX_SECONDS, 0, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, nanoseconds, text) in known {
            assert_eq!(format(seconds, nanoseconds).unwrap(), text);
            assert_eq!(parse(text).unwrap(), at(seconds, nanoseconds), "{text}");
        }
        let before = "1969-12-31T23:59:59.5Z";
        assert_eq!(format(-1, 500_000_000).unwrap(), before);
        assert_eq!((parse_seconds(before), parse(before)), (Some((-1, 500_000_000)), None));
        for seconds in [MAX_SECONDS + 1, i64::MAX, i64::MIN] {
            assert_eq!(format(seconds, 0), None);
        }
        assert_eq!(parse("2000-02-29T01:30:00+01:30"), Some(at(951_782_400, 0)));
        assert_eq!(parse("2000-02-28T22:59:00.000-01:01"), Some(at(951_782_400, 0)));
        assert_eq!(parse("2000-02-29T00:00:00.1234567899Z"), Some(at(951_782_400, 123_456_789)));
    }

    #[test]
    fn http_dates_may_be_before_1970() {
        let known = [
            (-62_167_219_200, "Sat, 01 Jan 0000 00:00:00 GMT"),
            (-315_619_200, "Fri, 01 Jan 1960 00:00:00 GMT"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (MAX_SECONDS, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ];
        for (seconds, text) in known {
            assert_eq!(format_http(seconds).unwrap(), text);
            assert_eq!(parse_http(text), Some(seconds), "{text}");
        }
        for seconds in [-62_167_219_201, MAX_SECONDS + 1, i64::MAX, i64::MIN] {
            assert_eq!(format_http(seconds), None);
        }
        for text in [
            "",
            "0",
            "Sat, 01 Jan 1960 00:00:00 GMT",
            "Fri, 1 Jan 1960 00:00:00 GMT",
            "fri, 01 jan 1960 00:00:00 GMT",
            "Fri, 01 Jan 1960  00:00:00 GMT",
            "Fri, 01 Jan 1960 00:00:60 GMT",
            "Fri, 32 Jan 1960 00:00:00 GMT",
            "Fri, 01 Jan 1960 00:00:00 UTC",
        ] {
            assert_eq!(parse_http(text), None, "{text}");
        }
    }

    #[test]
    fn invalid_timestamps_are_rejected() {
        for text in [
            "",
            "2000-02-30T00:00:00Z",
            "2100-02-29T00:00:00Z",
            "2000-13-01T00:00:00Z",
            "2000-01-01T24:00:00Z",
            "2000-01-01T00:00:60Z",
            "2000-01-01 00:00:00Z",
            "2000-01-01T00:00:00",
            "2000-01-01T00:00:00z",
            "2000-01-01T00:00:00.Z",
            "2000-01-01T00:00:00+1:00",
            "2000-01-01T00:00:00Z ",
            "1969-12-31T23:59:59Z",
            "+200-01-01T00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_time_comes_back_as_it_was_written(seconds in 0..=MAX_SECONDS, nanoseconds in 0_u32..1_000_000_000) {
            prop_assert_eq!(parse(&format(seconds, nanoseconds).unwrap()), Some(at(seconds, nanoseconds)));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
