//! Parts of XML, as Go writes them.

use std::fmt::{LowerExp, Write as _};

pub(super) fn open(out: &mut String, name: &str) {
    out.extend(["<", name, ">"]);
}

pub(super) fn close(out: &mut String, name: &str) {
    out.extend(["</", name, ">"]);
}

/// Writes text with escapes. Characters that XML does not have are replaced.
pub(super) fn escaped(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\t' => out.push_str("&#x9;"),
            '\n' => out.push_str("&#xA;"),
            '\r' => out.push_str("&#xD;"),
            '\u{20}'..='\u{fffd}' | '\u{10000}'.. => out.push(c),
            _ => out.push('\u{fffd}'),
        }
    }
}

/// Returns the shortest text of a number, with an exponent if that is below -4 or above 5, as Go's
/// `strconv.FormatFloat(number, 'g', -1, ...)`.
pub(in crate::rpc) fn float(number: impl LowerExp) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let mut out = sign.to_owned();
    if !(-4..6).contains(&exponent) {
        let mark = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{digits}e{mark}{:02}", exponent.unsigned_abs());
        return out;
    }
    let digits = digits.replace('.', "");
    match usize::try_from(exponent) {
        Ok(exponent) if digits.len() > exponent + 1 => {
            let (whole, fraction) = digits.split_at(exponent + 1);
            out.extend([whole, ".", fraction]);
        }
        Ok(exponent) => {
            out.push_str(&digits);
            out.extend(std::iter::repeat_n('0', exponent + 1 - digits.len()));
        }
        Err(_) => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', (exponent.unsigned_abs() - 1) as usize));
            out.push_str(&digits);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_in_go() {
        for (number, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.5, "0.5"),
            (-2.5, "-2.5"),
            (166.25, "166.25"),
            (100_000.0, "100000"),
            (999_999.5, "999999.5"),
            (1_000_000.0, "1e+06"),
            (1_234_567.25, "1.23456725e+06"),
            (0.000_123, "0.000123"),
            (0.000_012_5, "1.25e-05"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(float(number), text);
        }
        assert_eq!(float(1.1_f32), "1.1");
    }

    #[test]
    fn texts_are_escaped_as_in_go() {
        let mut out = String::new();
        escaped(&mut out, "a<b>&\"'\t\r\n\u{1}\u{ffff}\u{1f389}");
        assert_eq!(out, "a&lt;b&gt;&amp;&#34;&#39;&#x9;&#xD;&#xA;\u{fffd}\u{fffd}\u{1f389}");
    }
}
