//! Parts of the texts of commands: lines, columns, escapes.

use std::fmt::Write as _;

use serde_json::Value;

pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Result of writing a text: the reason, if the response is an error.
pub(in crate::rpc) type Done = Result<(), String>;

/// Writing to a text cannot fail.
pub(super) fn end(written: std::fmt::Result) -> Done {
    written.map_err(|e| e.to_string())
}

pub(in crate::rpc) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

pub(super) fn link(value: &Value) -> &Value {
    &value["/"]
}

pub(super) fn line(out: &mut String, value: &Value) -> Done {
    end(writeln!(out, "{}", escaped(text(value))))
}

pub(super) fn listed(out: &mut String, before: &str, values: &Value) -> Done {
    items(values).try_for_each(|value| end(writeln!(out, "{before}{}", escaped(text(value)))))
}

/// Whether a terminal prints a character as itself, as Go's `strconv.IsPrint`. Marks on letters are printed too.
fn is_printable(c: char) -> bool {
    match c {
        ' '..='~' => true,
        c if c.is_ascii() => false,
        // Only what is not printable is escaped after a letter.
        c => ['a', c].iter().collect::<String>().escape_debug().count() == 2,
    }
}

/// Escapes characters that a terminal would not print, as Go's `strconv.Quote`.
pub(super) fn escaped(text: &str) -> String {
    if text.chars().all(|c| c != '\\' && is_printable(c)) {
        return text.to_owned();
    }
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if is_printable(c) => out.push(c),
            c if c.is_ascii() => _ = write!(out, "\\x{:02x}", u32::from(c)),
            c if u32::from(c) < 0x1_0000 => _ = write!(out, "\\u{:04x}", u32::from(c)),
            c => _ = write!(out, "\\U{:08x}", u32::from(c)),
        }
    }
    out
}

/// Writes rows with aligned columns, as Go's `tabwriter`: one space, or more up to `width`, follows each cell but the
/// last.
pub(super) fn columns(out: &mut String, rows: &[Vec<String>], width: usize) {
    columns_apart(out, rows, width, 1);
}

/// Same as [`columns`], with `gap` spaces.
pub(super) fn columns_apart(out: &mut String, rows: &[Vec<String>], width: usize, gap: usize) {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        let cells = rows.iter().filter(|row| row.len() > column + 1).filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count() + gap).max().unwrap_or(0).max(width)
    };
    let widths: Vec<_> = (0..count).map(widest).collect();
    for row in rows {
        for (at, (cell, width)) in row.iter().zip(&widths).enumerate() {
            out.push_str(cell);
            if at + 1 < row.len() {
                out.extend(std::iter::repeat_n(' ', width.saturating_sub(cell.chars().count())));
            }
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_in_go() {
        for (given, expected) in [
            ("a \"b\" é e\u{301} 日 🎉", "a \"b\" é e\u{301} 日 🎉"),
            ("a\\b", "a\\\\b"),
            ("\t\n\u{1}\u{7f}", "\\t\\n\\x01\\x7f"),
            ("\u{a0}\u{202e}\u{2028}\u{e000}\u{85}", "\\u00a0\\u202e\\u2028\\ue000\\u0085"),
            ("\u{e0001}", "\\U000e0001"),
        ] {
            assert_eq!(escaped(given), expected, "{given:?}");
        }
    }
}
