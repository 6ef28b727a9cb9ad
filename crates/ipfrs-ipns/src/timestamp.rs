//! Timestamps of records: RFC 3339 with up to nine fractional digits.

use std::time::{Duration, SystemTime};

const SECONDS_PER_DAY: i64 = 86_400;

/// Last second since 1970 whose year has four digits.
const MAX_SECONDS: u64 = 253_402_300_799;

/// Formats `time` in UTC, without trailing zeros, like Go's `RFC3339Nano`: `2026-01-02T03:04:05.6Z`. Returns `None`
/// for times before 1970 or after the year 9999.
pub(crate) fn format(time: SystemTime) -> Option<String> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    if since.as_secs() > MAX_SECONDS {
        return None;
    }
    let seconds = i64::try_from(since.as_secs()).ok()?;
    let (year, month, day) = date_of(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    if since.subsec_nanos() > 0 {
        text.push_str(format!(".{:09}", since.subsec_nanos()).trim_end_matches('0'));
    }
    text.push('Z');
    Some(text)
}

/// Parses `2026-01-02T03:04:05[.6]Z`, or the same with an offset such as `+01:00` instead of `Z`. Returns `None` for
/// any other text, and for times before 1970.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let text = text.as_bytes();
    let (head, rest) = text.split_at_checked(19)?;
    for (at, expected) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if head[at] != expected {
            return None;
        }
    }
    let (year, month, day) = (number(&head[..4])?, number(&head[5..7])?, number(&head[8..10])?);
    let (hour, minute, second) = (number(&head[11..13])?, number(&head[14..16])?, number(&head[17..])?);
    if !(1..=12).contains(&month) || day < 1 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_to(year, month, day);
    // A day that does not exist in the month maps to a day of the next month.
    if date_of(days) != (year, month, day) {
        return None;
    }
    let (nanoseconds, zone) = fraction(rest)?;
    let seconds = days * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second - offset(zone)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(u64::try_from(seconds).ok()?, nanoseconds))
}

/// Parses the nanoseconds of `.123`, and returns them with the rest of the text.
fn fraction(text: &[u8]) -> Option<(u32, &[u8])> {
    let Some(digits) = text.strip_prefix(b".") else { return Some((0, text)) };
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&count) {
        return None;
    }
    let (digits, rest) = digits.split_at(count);
    let nanoseconds = number(digits)? * 10_i64.pow(9 - u32::try_from(count).ok()?);
    Some((u32::try_from(nanoseconds).ok()?, rest))
}

/// Returns the offset in seconds east of UTC.
fn offset(zone: &[u8]) -> Option<i64> {
    match zone {
        b"Z" => Some(0),
        [sign @ (b'+' | b'-'), hours @ .., b':', m1, m2] if hours.len() == 2 => {
            let (hours, minutes) = (number(hours)?, number(&[*m1, *m2])?);
            let seconds = (hours <= 23 && minutes <= 59).then_some(hours * 3_600 + minutes * 60)?;
            Some(if *sign == b'-' { -seconds } else { seconds })
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar. Years are counted from March, so
/// that a leap day is the last day of its year. 400 years have 146,097 days.
fn days_to(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Returns the year, month and day; the inverse of [`days_to`].
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64, nanoseconds: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds)
    }

    #[test]
    fn known_times_are_written_and_read() {
        let known = [
            (at(0, 0), "1970-01-01T00:00:00Z"),
            (at(951_782_400, 0), "2000-02-29T00:00:00Z"),
            (at(1_700_000_000, 120_000_000), "2023-11-14T22:13:20.12Z"),
            (at(4_107_542_399, 999_999_999), "2100-02-28T23:59:59.999999999Z"),
            (at(MAX_SECONDS, 0), "9999-12-31T23:59:59Z"),
        ];
        for (time, text) in known {
            assert_eq!(format(time).unwrap(), text);
            assert_eq!(parse(text).unwrap(), time, "{text}");
        }
        assert_eq!(parse("2000-02-29T01:30:00+01:30"), Some(at(951_782_400, 0)));
        assert_eq!(parse("2000-02-28T22:59:00.000-01:01"), Some(at(951_782_400, 0)));
        assert_eq!(format(at(MAX_SECONDS + 1, 0)), None);
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
            "2000-01-01T00:00:00.1234567890Z",
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
            let time = at(seconds, nanoseconds);
            prop_assert_eq!(parse(&format(time).unwrap()), Some(time));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
