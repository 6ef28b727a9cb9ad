//! Times as Go writes them: `300s`, `1.5h`, `2h45m`.

use std::time::Duration;

/// Units, and their nanoseconds. Days are ours: Kubo's help speaks of them as well.
const UNITS: [(&str, f64); 8] =
    [("d", 86_400e9), ("h", 3_600e9), ("ms", 1e6), ("m", 60e9), ("s", 1e9), ("ns", 1.0), ("us", 1e3), ("µs", 1e3)];

/// Reads a time that is not negative.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = |why: &str| Err(format!("invalid duration {text:?}: {why}, such as 300s, 1.5h or 7d2h45m"));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut nanoseconds) = (text, 0.0);
    if rest.is_empty() {
        return invalid("a number and a unit are expected");
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let Ok(number) = number.parse::<f64>() else { return invalid("a number is expected") };
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let Some((_, scale)) = UNITS.iter().find(|(known, _)| *known == unit) else {
            return invalid("the units are d, h, m, s, ms, us and ns");
        };
        nanoseconds += number * scale;
        rest = tail;
    }
    // Go counts them in 63 bits: 292 years.
    if nanoseconds >= 2_f64.powi(63) {
        return invalid("it is at most 292 years");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above; digits have no sign")]
    Ok(Duration::from_nanos(nanoseconds as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_go_writes_them() {
        for (text, milliseconds) in [
            ("0", 0),
            ("0s", 0),
            ("300s", 300_000),
            ("1.5h", 5_400_000),
            ("24h0m0s", 86_400_000),
            ("7d2h45m", 614_700_000),
            ("1m30ms", 60_030),
            ("1500us", 1),
        ] {
            assert_eq!(parse(text).map(|time| time.as_millis()), Ok(milliseconds), "{text}");
        }
        for text in ["", "1", "s", "-1s", "1x", "1.2.3s", "1e3s", "1 s", "300000h1", "3000000h"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
