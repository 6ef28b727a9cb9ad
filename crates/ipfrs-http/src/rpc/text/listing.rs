//! The text of `ls`.

use std::fmt::Write as _;
use std::time::SystemTime;

use ipfrs_core::timestamp;
use serde_json::Value;

use super::writing::{Done, MONTHS, columns, end, escaped, items, number, text};
use crate::rpc::args::Args;

/// Bits of Go's `fs.FileMode`, with the letters of `ls` for the types of files.
const TYPES: [(u64, char); 6] =
    [(1 << 31, 'd'), (1 << 27, 'l'), (1 << 25, 'p'), (1 << 24, 's'), (1 << 21, 'c'), (1 << 26, 'b')];
/// The bits that change the letter of a permission to execute, with that permission and the letter.
const SPECIAL: [(u64, u64, char); 3] = [(1 << 23, 0o100, 's'), (1 << 22, 0o010, 's'), (1 << 20, 0o001, 't')];
const DAY: i64 = 24 * 60 * 60;
/// Value of what is not stored.
const NONE: &str = "-";

pub(super) fn directory(value: &Value, args: &Args, out: &mut String) -> Done {
    let (is_streamed, has_size) = (args.is_set("stream"), args.bool("size").unwrap_or(true));
    let (is_one, is_long) = (args.arguments().len() <= 1, args.is_set("long"));
    let shown = |[mode, hash, size, time, name]: [String; 5]| -> Vec<String> {
        let cells = [(is_long, mode), (true, hash), (has_size, size), (is_long, time), (true, name)];
        cells.into_iter().filter(|(is_shown, _)| *is_shown).map(|(_, cell)| cell).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    let width = if is_streamed { 10 } else { 1 };
    let now = SystemTime::now();
    for (at, object) in items(&value["Objects"]).enumerate() {
        if !is_streamed && !is_one {
            // A line without columns ends the columns before it.
            columns(out, &std::mem::take(&mut rows), width);
            let before = if at > 0 { "\n" } else { "" };
            end(writeln!(out, "{before}{}:", text(&object["Hash"])))?;
        }
        if !is_streamed && args.is_set("headers") {
            rows.push(shown(["Mode", "Hash", "Size", "ModTime", "Name"].map(str::to_owned)));
        }
        for entry in items(&object["Links"]) {
            let is_directory = matches!(number(&entry["Type"]), 1 | 3 | 5);
            let size = if is_directory { NONE.to_owned() } else { number(&entry["Size"]).to_string() };
            let name = format!("{}{}", escaped(text(&entry["Name"])), if is_directory { "/" } else { "" });
            let (mode, time) = (mode(number(&entry["Mode"])), time(text(&entry["ModTime"]), now));
            rows.push(shown([mode, text(&entry["Hash"]).to_owned(), size, time, name]));
        }
    }
    columns(out, &rows, width);
    Ok(())
}

/// Writes Go's `fs.FileMode` as `-rw-r--r--`.
fn mode(bits: u64) -> String {
    if bits == 0 {
        return NONE.to_owned();
    }
    let first = TYPES.iter().find(|(bit, _)| bits & bit != 0).map_or('-', |(_, letter)| *letter);
    let permissions = "rwxrwxrwx".chars().enumerate().map(|(at, letter)| {
        let bit = 0o400 >> at;
        let is_set = bits & bit != 0;
        match SPECIAL.iter().find(|(special, execute, _)| *execute == bit && bits & special != 0) {
            Some((_, _, letter)) if is_set => *letter,
            Some((_, _, letter)) => letter.to_ascii_uppercase(),
            None if is_set => letter,
            None => '-',
        }
    });
    std::iter::once(first).chain(permissions).collect()
}

/// Writes a time in RFC 3339 as `Nov 14 22:13` if it is at most six months ago, and else as `Nov 14  2023`.
fn time(text: &str, now: SystemTime) -> String {
    let Some((seconds, nanos)) = timestamp::parse_seconds(text).filter(|_| !text.starts_with("0001-01-01T00:00:00Z"))
    else {
        return NONE.to_owned();
    };
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?)).unwrap_or(&"");
    let since = six_months_before(now).unwrap_or((0, 0));
    let until = parts(now).map_or(i64::MAX, |(seconds, _)| seconds + DAY);
    let end =
        if (seconds, nanos) > since && seconds < until { part(11, 16).to_owned() } else { format!(" {}", part(0, 4)) };
    format!("{month} {} {end}", part(8, 10))
}

fn parts(time: SystemTime) -> Option<(i64, u32)> {
    timestamp::parse_seconds(&timestamp::format_milliseconds(time))
}

/// Returns the same day six months earlier, as seconds and nanoseconds since 1970. As in Go, a day that the month lacks
/// is one of the next month.
fn six_months_before(now: SystemTime) -> Option<(i64, u32)> {
    let text = timestamp::format_milliseconds(now);
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (year, month) = if month > 6 { (year, month - 6) } else { (year - 1, month + 6) };
    let (seconds, nanos) = timestamp::parse_seconds(&format!("{year:04}-{month:02}-01{}", text.get(10..)?))?;
    Some((seconds + (day - 1) * DAY, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_kubo_does() {
        for (bits, text) in [
            (0, "-"),
            (0o640, "-rw-r-----"),
            (1 << 31 | 0o755, "drwxr-xr-x"),
            (1 << 27 | 0o777, "lrwxrwxrwx"),
            (1 << 23 | 1 << 22 | 1 << 20 | 0o751, "-rwsr-s--t"),
            (1 << 23 | 1 << 22 | 1 << 20 | 0o640, "-rwSr-S--T"),
            (1 << 26 | 1 << 21 | 0o600, "crw-------"),
            (1 << 26 | 0o600, "brw-------"),
        ] {
            assert_eq!(mode(bits), text, "{bits:o}");
        }
    }

    #[test]
    fn times_of_the_last_six_months_have_no_year() {
        let now = timestamp::parse("2026-08-31T12:00:00Z").unwrap();
        for (given, text) in [
            ("0001-01-01T00:00:00Z", "-"),
            ("2026-08-31T11:59:00Z", "Aug 31 11:59"),
            ("2026-09-01T11:59:59Z", "Sep 01 11:59"),
            ("2026-09-01T12:00:00Z", "Sep 01  2026"),
            // There is no February 31.
            ("2026-03-03T12:00:00.5Z", "Mar 03 12:00"),
            ("2026-03-03T12:00:00Z", "Mar 03  2026"),
            ("2023-11-14T22:13:20.000000005Z", "Nov 14  2023"),
        ] {
            assert_eq!(time(given, now), text, "{given}");
        }
        let now = timestamp::parse("2026-11-29T12:00:00Z").unwrap();
        assert_eq!(time("2026-05-30T00:00:00Z", now), "May 30 00:00");
    }
}
