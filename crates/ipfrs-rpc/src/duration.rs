//! Durations in options of commands and in configurations.

use std::time::Duration;

/// Parses a duration in Go's format (`time.ParseDuration`): numbers with units, such as `1h15m30.5s`, or `0`. Returns
/// `None` for negative durations and those of more than 2^64 nanoseconds.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
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
        // Digits after the 18th are far below a nanosecond in any unit.
        let fraction = &fraction[..fraction.len().min(18)];
        let part = digits(fraction)? * unit / 10_u128.pow(u32::try_from(fraction.len()).ok()?);
        total = total.checked_add(digits(whole)?.checked_mul(unit)?)?.checked_add(part)?;
    }
    u64::try_from(total).ok().map(Duration::from_nanos)
}

/// Formats a duration as Go does: `1h15m0s`, `30.5s`, `1.5ms`, `0s`.
#[must_use]
pub fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    // The fraction is shown without zeros at its end.
    let decimal = |value: u128, digits: usize| {
        let unit = 10_u128.pow(u32::try_from(digits).unwrap_or(0));
        let text = format!("{}.{:0digits$}", value / unit, value % unit);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", decimal(nanos, 3)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 6)),
        _ => {
            let (minutes, rest) = (nanos / 60_000_000_000, nanos % 60_000_000_000);
            let seconds = decimal(rest, 9);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_as_in_go() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (7, "7ns"),
            (1_500, "1.5\u{b5}s"),
            (7_000, "7\u{b5}s"),
            (1_000_001, "1.000001ms"),
            (2_000_000, "2ms"),
            (1_234_567_000, "1.234567s"),
            (60_000_000_000, "1m0s"),
            (4_530_918_273_645, "1h15m30.918273645s"),
            (3_155_760_000_000_000_000, "876600h0m0s"),
        ] {
            assert_eq!(format(Duration::from_nanos(nanoseconds)), text);
        }
    }

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
            assert_eq!(parse(text), nanoseconds.map(Duration::from_nanos), "{text:?}");
        }
    }
}
