//! Permissions and times of files in the form that Kubo and its clients use: modes are Go's `fs.FileMode`.

use http::header::CONTENT_DISPOSITION;
use http::{HeaderMap, HeaderValue};
use ipfrs_node::{Attributes, ListedKind, Mtime};
use serde::Serialize;

use super::args::Args;
use super::multipart::parameter;
use crate::error::RpcError;

/// The set-user-ID, set-group-ID and sticky bits, in Unix and in Go.
const SPECIAL_BITS: [(u32, u32); 3] = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];
const GO_DIRECTORY: u32 = 1 << 31;
const GO_SYMLINK: u32 = 1 << 27;
const PERMISSIONS: u32 = 0o777;
const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// Returns the attributes that `mode`, `mtime` and `mtime-nsecs` set for all files. As in Kubo, a mode or time of 0
/// counts as unset.
pub(super) fn of_options(args: &Args) -> Result<Attributes, RpcError> {
    let invalid = |message: String| RpcError::Request(message);
    let mode = args.number("mode")?.and_then(unix_mode);
    let seconds = args.number::<i64>("mtime")?.filter(|seconds| *seconds != 0);
    let nanos = args.number::<u32>("mtime-nsecs")?.unwrap_or(0);
    if nanos >= NANOS_PER_SECOND {
        return Err(invalid(format!("option \"mtime-nsecs\" is {nanos}: it must be below {NANOS_PER_SECOND}")));
    }
    if nanos > 0 && seconds.is_none() {
        return Err(invalid("option \"mtime-nsecs\" requires \"mtime\"".into()));
    }
    Ok(Attributes { mode, mtime: seconds.map(|seconds| Mtime { seconds, nanos }) })
}

/// Returns the attributes of a part, from the query in its name: `name="file?mode=0644&mtime=1&mtime-nsecs=2"`. As in
/// Kubo, invalid values are ignored.
pub(super) fn of_part(headers: &HeaderMap) -> Attributes {
    let disposition = headers.get(CONTENT_DISPOSITION).map(HeaderValue::as_bytes);
    let name = disposition.and_then(|disposition| parameter(disposition, "name")).unwrap_or_default();
    let query = name.splitn(2, |byte| *byte == b'?').nth(1).unwrap_or_default();
    let (mut mode, mut seconds, mut nanos) = (None, None, 0);
    for (name, value) in form_urlencoded::parse(query) {
        match &*name {
            "mode" => mode = u32::from_str_radix(&value, 8).ok().and_then(unix_mode),
            "mtime" => seconds = value.parse().ok(),
            "mtime-nsecs" => nanos = value.parse().ok().filter(|nanos| *nanos < NANOS_PER_SECOND).unwrap_or(0),
            _ => {}
        }
    }
    Attributes { mode, mtime: seconds.map(|seconds| Mtime { seconds, nanos }) }
}

fn unix_mode(go: u32) -> Option<u32> {
    let special: u32 = SPECIAL_BITS.iter().filter(|(_, bit)| go & bit != 0).map(|(unix, _)| unix).sum();
    Some(go & PERMISSIONS | special).filter(|mode| *mode != 0)
}

/// Combines a Unix mode and a file kind into one Go mode.
pub(super) fn go_mode(unix: u32, kind: ListedKind) -> u32 {
    let special: u32 = SPECIAL_BITS.iter().filter(|(bit, _)| unix & bit != 0).map(|(_, go)| go).sum();
    let kind = match kind {
        ListedKind::Directory => GO_DIRECTORY,
        ListedKind::Symlink => GO_SYMLINK,
        ListedKind::File | ListedKind::Unknown => 0,
    };
    unix & PERMISSIONS | special | kind
}

/// Mode and time as in the output of `add`: the mode in octal, in Go's form. As in Kubo, values of 0 are omitted.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct AttributeFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime_nsecs: Option<u32>,
}

impl AttributeFields {
    pub(super) fn of(attributes: Attributes) -> Self {
        let mtime = attributes.mtime;
        Self {
            mode: attributes.mode.map(|mode| format!("0{:o}", go_mode(mode, ListedKind::File))),
            mtime: mtime.map(|mtime| mtime.seconds).filter(|seconds| *seconds != 0),
            mtime_nsecs: mtime.map(|mtime| mtime.nanos).filter(|nanos| *nanos != 0),
        }
    }
}

/// Formats a time in UTC according to RFC 3339; `None` outside the years 0 to 9999, which the format does not
/// support.
pub(super) fn rfc3339(time: Mtime) -> Option<String> {
    const DAY_SECONDS: i64 = 86_400;
    let (days, seconds) = (time.seconds.div_euclid(DAY_SECONDS), time.seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = date(days)?;
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    let fraction = match time.nanos {
        0 => String::new(),
        nanos => format!(".{nanos:09}").trim_end_matches('0').to_owned(),
    };
    Some(format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z"))
}

/// Converts a number of days since 1970-01-01 to year, month and day of the Gregorian calendar. Internally, years
/// begin in March, so that a leap day is the last day of its year.
fn date(days: i64) -> Option<(i64, i64, i64)> {
    const DAYS_IN_400_YEARS: i64 = 146_097;
    // Days from 0000-03-01 to 1970-01-01.
    let days = days.checked_add(719_468)?;
    let (cycle, day) = (days.div_euclid(DAYS_IN_400_YEARS), days.rem_euclid(DAYS_IN_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, the lengths of months repeat in the cycle 31, 30, 31, 30, 31.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + 400 * cycle, if month < 10 { month + 3 } else { month - 9 });
    let year = if month <= 2 { year + 1 } else { year };
    (0..10_000).contains(&year).then_some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn times_are_written_as_rfc_3339_has_them() {
        for (seconds, nanos, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (-1, 500_000_000, "1969-12-31T23:59:59.5Z"),
            (951_782_400, 1, "2000-02-29T00:00:00.000000001Z"),
            (1_700_000_000, 0, "2023-11-14T22:13:20Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(Mtime { seconds, nanos }).unwrap(), text);
        }
        for seconds in [253_402_300_800, i64::MAX, i64::MIN] {
            assert_eq!(rfc3339(Mtime { seconds, nanos: 0 }), None);
        }
    }

    #[test]
    fn part_attributes_are_read_from_its_name() {
        let of = |name: &str| {
            let disposition = format!("form-data; name=\"{name}\"; filename=\"a\"");
            of_part(&HeaderMap::from_iter([(CONTENT_DISPOSITION, HeaderValue::from_str(&disposition).unwrap())]))
        };
        let mtime = Some(Mtime { seconds: -5, nanos: 7 });
        assert_eq!(of("file?mode=0644&mtime=-5&mtime-nsecs=7"), Attributes { mode: Some(0o644), mtime });
        // A Go directory mode with the sticky bit.
        assert_eq!(of("file?mode=020004000755").mode, Some(0o1755));
        for nothing in ["file", "file?", "file?mode=0&mtime=x", "file?mode=9&mtime-nsecs=5"] {
            assert_eq!(of(nothing), Attributes::default(), "{nothing}");
        }
    }

    #[test]
    fn modes_are_numbers_as_go_writes_them() {
        assert_eq!(go_mode(0o4755, ListedKind::File), 0o755 | 1 << 23);
        assert_eq!(unix_mode(go_mode(0o1777, ListedKind::Directory)), Some(0o1777));
    }
}
