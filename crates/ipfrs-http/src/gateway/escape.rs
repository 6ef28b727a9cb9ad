//! Names and paths in URLs and on pages.

use std::borrow::Cow;
use std::fmt::Write as _;

use http::HeaderValue;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};

use crate::body::header_text;

/// Characters to encode in a segment of a URL: all but the unreserved ones of RFC 3986.
pub(super) const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Encodes a name as a segment of a URL.
pub(super) fn encode(segment: impl AsRef<[u8]>) -> String {
    percent_encode(segment.as_ref(), SEGMENT).to_string()
}

/// Encodes the bytes of a name that are not printable ASCII.
pub(super) fn encode_non_ascii(name: impl AsRef<[u8]>) -> String {
    percent_encode(name.as_ref(), CONTROLS).to_string()
}

/// Returns a name with escapes for all characters that are invisible or change how the surrounding text looks:
/// control characters, line ends, invisible characters, and characters that change the direction of text (Unicode
/// Technical Report 36). Bytes that are not UTF-8 are escaped as well, and so is the bracket that starts an escape,
/// so that no two names look the same.
pub(super) fn visible<N: AsRef<[u8]> + ?Sized>(name: &N) -> Cow<'_, str> {
    let name = name.as_ref();
    if name.is_empty() {
        return Cow::Borrowed("(no name)");
    }
    let is_spelled_out = |c: char| c == '⟨' || is_invisible(c);
    if let Ok(text) = std::str::from_utf8(name)
        && !text.contains(is_spelled_out)
    {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(name.len() + 16);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_spelled_out(c) {
                // Writing to a String cannot fail.
                let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
            } else {
                shown.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "⟨0x{byte:02X}⟩");
        }
    }
    Cow::Owned(shown)
}

/// Whether a character is invisible. The joiners U+200C and U+200D are excluded, because some languages and emoji
/// need them.
fn is_invisible(c: char) -> bool {
    let is_mark = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}');
    let is_line_end = matches!(c, '\u{2028}' | '\u{2029}');
    let is_empty = matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{feff}');
    c.is_control() || is_mark || is_line_end || is_empty || matches!(c, '\u{fff9}'..='\u{fffb}')
}

/// Returns the value of `Location` or `Content-Location` for a URL, of which parts may be as the client sent them. Some
/// clients, such as curl, send queries unencoded.
pub(crate) fn url_header(url: &str) -> HeaderValue {
    header_text(&utf8_percent_encode(url, CONTROLS).to_string())
}

/// Returns `raw` as ASCII, with the digits of its escapes in upper case (RFC 3986, 6.2.2.1). Some clients, such as
/// curl, send paths unencoded.
pub(super) fn normalised(raw: &str) -> Cow<'_, str> {
    if raw.is_ascii() && !raw.contains('%') {
        return Cow::Borrowed(raw);
    }
    let mut digits = 0;
    let upper = utf8_percent_encode(raw, CONTROLS).flat_map(str::chars).map(|c| match c {
        '%' => {
            digits = 2;
            c
        }
        _ if digits > 0 => {
            digits -= 1;
            c.to_ascii_uppercase()
        }
        _ => c,
    });
    Cow::Owned(upper.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_ascii_with_upper_case_escapes() {
        for (raw, expected) in [
            ("/ipfs/x/plain", "/ipfs/x/plain"),
            ("/ipfs/x/\u{fc}%c3%bCf", "/ipfs/x/%C3%BC%C3%BCf"),
            ("/a%3fbc%2", "/a%3Fbc%2"),
            ("/%\u{fc}", "/%%C3%BC"),
        ] {
            assert_eq!(normalised(raw), expected);
        }
    }

    #[test]
    fn visible_escapes_invisible_characters() {
        for (name, shown) in [
            ("ünï 日本語 🦀 עברית", "ünï 日本語 🦀 עברית"),
            ("می‌خواهم", "می‌خواهم"),
            ("photo\u{202e}gpj.exe", "photo⟨U+202E⟩gpj.exe"),
            ("a\nb\tc\u{7f}", "a⟨U+000A⟩b⟨U+0009⟩c⟨U+007F⟩"),
            ("a\u{200b}\u{feff}\u{2029}\u{85}", "a⟨U+200B⟩⟨U+FEFF⟩⟨U+2029⟩⟨U+0085⟩"),
            ("", "(no name)"),
            ("⟨0xFF⟩", "⟨U+27E8⟩0xFF⟩"),
        ] {
            assert_eq!(visible(name), shown, "{name:?}");
        }
        assert_eq!(visible(b"\xff\xe2\x82.txt"), "⟨0xFF⟩⟨0xE2⟩⟨0x82⟩.txt");
    }
}
