//! `Content-Disposition` (RFC 6266).

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::body::header_text;

/// Characters that RFC 8187 allows unencoded in an extended value.
const ATTR_CHAR: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Returns `kind; filename="ascii"; filename*=UTF-8''encoded`. Old clients read the first form; the second holds
/// every character. Neither can express bytes that are not UTF-8, which `name` holds as replacement characters.
pub(crate) fn header(kind: &str, name: &str) -> HeaderValue {
    // Fast path: most names are the same in both forms.
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return header_text(&[kind, "; filename=\"", name, "\"; filename*=UTF-8''", name].concat());
    }
    let plain = |c: char| if (' '..='~').contains(&c) && !matches!(c, '"' | '\\' | '/') { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    header_text(&format!("{kind}; filename=\"{ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(name, ATTR_CHAR)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disposition_name_has_escaped_ascii_and_utf8_forms() {
        assert_eq!(
            header("inline", "tést \"x\"\r\n.txt"),
            "inline; filename=\"t_st _x___.txt\"; filename*=UTF-8''t%C3%A9st%20%22x%22%0D%0A.txt"
        );
        assert_eq!(header("attachment", "a-b_c.D9"), "attachment; filename=\"a-b_c.D9\"; filename*=UTF-8''a-b_c.D9");
    }
}
