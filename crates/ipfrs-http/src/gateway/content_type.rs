//! Content types, determined from the file name or else from the first bytes.

use http::HeaderValue;
use serde::de::IgnoredAny;

/// Number of bytes of content that are examined.
pub(super) const SNIFF_BYTES: u64 = 3_072;

/// Returns the type for a file name's extension, with a charset for text types.
pub(crate) fn by_name(name: &str) -> Option<HeaderValue> {
    let mime = mime_guess::from_path(name).first()?;
    HeaderValue::try_from(with_charset(mime.essence_str())).ok()
}

/// Guesses the type of content (<https://mimesniff.spec.whatwg.org>, by magic numbers). Unrecognized content is JSON
/// if it is a map or a list, text if it is UTF-8 without control characters, and otherwise
/// `application/octet-stream`.
pub(super) fn by_content(head: &[u8]) -> String {
    let head = &head[..head.len().min(SNIFF_BYTES as usize)];
    match infer::get(head) {
        Some(kind) => with_charset(kind.mime_type()),
        None if is_json(head) => "application/json".to_owned(),
        None if is_text(head) => "text/plain; charset=utf-8".to_owned(),
        None => "application/octet-stream".to_owned(),
    }
}

fn with_charset(mime: &str) -> String {
    let is_text = mime.starts_with("text/") || matches!(mime, "application/javascript" | "image/svg+xml");
    if is_text { format!("{mime}; charset=utf-8") } else { mime.to_owned() }
}

/// Whether `head` is a JSON map or list, or the beginning of one.
fn is_json(head: &[u8]) -> bool {
    let is_begun = matches!(head.trim_ascii_start().first(), Some(b'{' | b'['));
    is_begun
        && match serde_json::from_slice::<IgnoredAny>(head) {
            Ok(_) => true,
            Err(e) => e.is_eof() && head.len() == SNIFF_BYTES as usize,
        }
}

fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(_) => head,
        // The end of the head may cut a character in two.
        Err(e) if e.error_len().is_none() => &head[..e.valid_up_to()],
        Err(_) => return false,
    };
    !valid.iter().any(|b| matches!(b, 0..=8 | 0x0e..=0x1a | 0x1c..=0x1f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_from_names_and_from_content() {
        assert_eq!(by_name("a.txt").unwrap(), "text/plain; charset=utf-8");
        assert_eq!(by_name("a.b.PNG").unwrap(), "image/png");
        assert_eq!(by_name("style.css").unwrap(), "text/css; charset=utf-8");
        assert_eq!(by_name("README"), None);
        assert_eq!(by_content(b"hello \xc3\xa9\n"), "text/plain; charset=utf-8");
        assert_eq!(by_content(b"cut in a character \xc3"), "text/plain; charset=utf-8");
        assert_eq!(by_content(b""), "text/plain; charset=utf-8");
        assert_eq!(by_content(b"<!DOCTYPE html><html>"), "text/html; charset=utf-8");
        assert_eq!(by_content(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "image/png");
        assert_eq!(by_content(b" {\"a\": [1]}\n"), "application/json");
        assert_eq!(by_content(format!("[{}", "1, ".repeat(2_000)).as_bytes()), "application/json");
        for text in ["{a}", "{\"a\":", "{}\n{}\n", "[section]\nkey = 1\n", "1"] {
            assert_eq!(by_content(text.as_bytes()), "text/plain; charset=utf-8", "{text}");
        }
        assert_eq!(by_content(b"\0\x01\x02\x03"), "application/octet-stream");
    }
}
