//! `Content-Disposition` (RFC 6266).

use std::borrow::Cow;

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

/// Maximum length of a name in bytes, which is that of file systems. Requests and directories may have names of 64 KiB,
/// and the encoded form is up to three times as long: clients and proxies refuse such headers.
const MAX_NAME_BYTES: usize = 255;

/// Maximum length in bytes of an extension that a shortened name keeps.
const MAX_EXTENSION_BYTES: usize = 32;

/// Returns `kind; filename="ascii"; filename*=UTF-8''encoded`. Old clients read the first form; the second holds
/// every character. Neither can express bytes that are not UTF-8, which `name` holds as replacement characters.
/// A longer name than file systems accept is shortened.
pub(crate) fn header(kind: &str, name: &str) -> HeaderValue {
    let name = shortened(name);
    let name = &*name;
    // Fast path: most names are the same in both forms.
    if name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return header_text(&[kind, "; filename=\"", name, "\"; filename*=UTF-8''", name].concat());
    }
    let plain = |c: char| if (' '..='~').contains(&c) && !matches!(c, '"' | '\\' | '/') { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    header_text(&format!("{kind}; filename=\"{ascii}\"; filename*=UTF-8''{}", utf8_percent_encode(name, ATTR_CHAR)))
}

/// Returns the beginning and the extension of `name`, within [`MAX_NAME_BYTES`].
fn shortened(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME_BYTES {
        return Cow::Borrowed(name);
    }
    let extension = name.rfind('.').map_or("", |dot| &name[dot..]);
    let extension = if extension.len() <= MAX_EXTENSION_BYTES { extension } else { "" };
    let end = name.floor_char_boundary(MAX_NAME_BYTES - extension.len());
    Cow::Owned([&name[..end], extension].concat())
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

    #[test]
    fn long_name_is_shortened_and_keeps_its_extension() {
        let (ascii, encoded) = ("_".repeat(125), "%C3%A9".repeat(125));
        assert_eq!(
            header("inline", &("é".repeat(200) + ".tar")),
            format!("inline; filename=\"{ascii}.tar\"; filename*=UTF-8''{encoded}.tar")
        );
        let (name, kept) = ("a.".to_owned() + &"b".repeat(300), "a.".to_owned() + &"b".repeat(253));
        assert_eq!(header("inline", &name), format!("inline; filename=\"{kept}\"; filename*=UTF-8''{kept}"));
        let longest = "c".repeat(255);
        assert_eq!(header("inline", &longest), format!("inline; filename=\"{longest}\"; filename*=UTF-8''{longest}"));
    }
}
