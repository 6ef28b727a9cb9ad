//! Content types, determined from the file name or else from the first bytes.

use http::HeaderValue;
use serde::de::IgnoredAny;

/// Number of bytes of content that are examined.
pub(super) const SNIFF_BYTES: u64 = 3_072;

const WORD: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
const SHEET: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";
const SLIDES: &str = "application/vnd.openxmlformats-officedocument.presentationml.presentation";

/// Types of extensions for which `mime_guess` has an obsolete one, another format's or none: RFC 9239, RFC 8081,
/// RFC 8216 (section 10) and RFC 3555, IPLD's registration, and those of web archives and their indices. A compressed
/// SVG needs a `Content-Encoding` to be one, so it has a type of its own, as in Kubo.
const CURRENT: [(&str, &str); 10] = [
    ("mjs", "text/javascript"),
    ("woff", "font/woff"),
    ("otf", "font/otf"),
    ("ttf", "font/ttf"),
    ("car", "application/vnd.ipld.car"),
    ("warc", "application/warc"),
    ("cdx", "text/plain"),
    ("m3u8", "application/vnd.apple.mpegurl"),
    ("ts", "video/mp2t"),
    ("svgz", "image/svg+xml-compressed"),
];

/// Returns the type for a file name's extension, with a charset for text types.
pub(crate) fn by_name(name: &str) -> Option<HeaderValue> {
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if let Some((_, media)) = CURRENT.iter().find(|(known, _)| known.eq_ignore_ascii_case(extension)) {
        return HeaderValue::try_from(with_charset(media)).ok();
    }
    let mime = mime_guess::from_path(name).first()?;
    HeaderValue::try_from(with_charset(mime.essence_str())).ok()
}

/// Guesses the type of content (<https://mimesniff.spec.whatwg.org>, by magic numbers and the root element of XML).
/// Unrecognized content is JSON if it is a map or a list, text if it has no control characters that text never has,
/// and otherwise `application/octet-stream`.
pub(super) fn by_content(head: &[u8]) -> String {
    let head = &head[..head.len().min(SNIFF_BYTES as usize)];
    // Without characters there is no charset, as in Kubo.
    if head.is_empty() {
        return "text/plain".to_owned();
    }
    match by_magic(head) {
        Some(media) => with_charset(media),
        None if is_json(head) => "application/json".to_owned(),
        None => text_type(head).unwrap_or("application/octet-stream").to_owned(),
    }
}

fn by_magic(head: &[u8]) -> Option<&'static str> {
    let has = |text: &[u8]| memchr::memmem::find(head, text).is_some();
    match (infer::get(head).map(|kind| kind.mime_type()), root_element(head)) {
        (_, Some(b"svg")) => Some("image/svg+xml"),
        (Some("text/xml"), Some(b"html")) => Some("application/xhtml+xml"),
        // The letters BM alone may begin a word. A bitmap has an information header of a known size.
        (Some("image/bmp"), _) => {
            let is_bitmap = matches!(head.get(14..18), Some([12 | 40 | 52 | 56 | 64 | 108 | 124, 0, 0, 0]));
            is_bitmap.then_some("image/bmp")
        }
        (Some("audio/ogg"), _) if has(b"theora") => Some("video/ogg"),
        (Some("application/zip"), _) if has(b"[Content_Types].xml") || has(b"_rels/.rels") => {
            let office = [(&b"word/"[..], WORD), (b"xl/", SHEET), (b"ppt/", SLIDES)];
            Some(office.into_iter().find(|(folder, _)| has(folder)).map_or("application/zip", |(_, media)| media))
        }
        (Some(media), _) => Some(media),
        (None, _) if head.starts_with(b"glTF") => Some("model/gltf-binary"),
        (None, _) if head.get(4..10) == Some(b"ftyp3g") => Some("video/3gpp"),
        (None, _) => None,
    }
}

/// Returns the name of the first element of XML or HTML, after a byte order mark, declarations and comments.
fn root_element(head: &[u8]) -> Option<&[u8]> {
    let mut rest = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    loop {
        rest = rest.trim_ascii_start();
        let end: &[u8] = match rest {
            [b'<', b'?', ..] => b"?>",
            [b'<', b'!', b'-', b'-', ..] => b"-->",
            [b'<', b'!', ..] => b">",
            [b'<', name @ ..] => {
                let len = name.iter().position(|byte| !byte.is_ascii_alphanumeric())?;
                return Some(&name[..len]);
            }
            _ => return None,
        };
        rest = &rest[memchr::memmem::find(rest, end)? + end.len()..];
    }
}

/// Adds the charset to a text type. HTML and XML name their encoding themselves, which a charset would override
/// (RFC 7303, 3.2).
fn with_charset(mime: &str) -> String {
    let is_text = mime.starts_with("text/") || mime == "application/javascript";
    if is_text && !matches!(mime, "text/html" | "text/xml") {
        format!("{mime}; charset=utf-8")
    } else {
        mime.to_owned()
    }
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

/// Returns the type of text, or `None` for other content.
fn text_type(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xff, 0xfe, ..] => return Some("text/plain; charset=utf-16le"),
        [0xfe, 0xff, ..] => return Some("text/plain; charset=utf-16be"),
        _ => {}
    }
    if head.iter().any(|b| matches!(b, 0..=8 | 0x0e..=0x1a | 0x1c..=0x1f)) {
        return None;
    }
    match std::str::from_utf8(head) {
        // The end of the head may cut a character in two.
        Err(e) if e.error_len().is_some() => Some("text/plain"),
        _ => Some("text/plain; charset=utf-8"),
    }
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
        for (name, expected) in [
            ("a.xml", "text/xml"),
            ("a.ts", "video/mp2t"),
            ("a.cdx", "text/plain; charset=utf-8"),
            ("a.M3U8", "application/vnd.apple.mpegurl"),
            ("a.svgz", "image/svg+xml-compressed"),
        ] {
            assert_eq!(by_name(name).unwrap(), expected, "{name}");
        }
        assert_eq!(by_content(b"hello \xc3\xa9\n"), "text/plain; charset=utf-8");
        assert_eq!(by_content(b"cut in a character \xc3"), "text/plain; charset=utf-8");
        assert_eq!(by_content(b""), "text/plain");
        assert_eq!(by_content(b"<!DOCTYPE html><html>"), "text/html");
        assert_eq!(by_name("page.html").unwrap(), "text/html", "a page may name its encoding");
        assert_eq!(by_content(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), "image/png");
        assert_eq!(by_content(b" {\"a\": [1]}\n"), "application/json");
        assert_eq!(by_content(format!("[{}", "1, ".repeat(2_000)).as_bytes()), "application/json");
        for text in ["{a}", "{\"a\":", "{}\n{}\n", "[section]\nkey = 1\n", "1"] {
            assert_eq!(by_content(text.as_bytes()), "text/plain; charset=utf-8", "{text}");
        }
        for (content, expected) in [
            (&b"\0\x01\x02\x03"[..], "application/octet-stream"),
            (
                b"<?xml version=\"1.0\"?>\n<!-- a --><!DOCTYPE svg><svg xmlns=\"http://www.w3.org/2000/svg\">",
                "image/svg+xml",
            ),
            (b"\xef\xbb\xbf <svg>", "image/svg+xml"),
            (b"<svgx>", "text/plain; charset=utf-8"),
            (b"<?xml version=\"1.0\"?><html xmlns=\"http://www.w3.org/1999/xhtml\">", "application/xhtml+xml"),
            (b"<?xml version=\"1.0\"?><feed>", "text/xml"),
            (b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>caf\xe9", "text/xml"),
            (b"<?xml ", "text/xml"),
            (b"caf\xe9 in Latin-1", "text/plain"),
            (b"\xff\xfeh\0i\0", "text/plain; charset=utf-16le"),
            (b"BMW is a car\n", "text/plain; charset=utf-8"),
            (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01", "image/bmp"),
            (b"OggS\0\x02\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x1e\x01\x80theora", "video/ogg"),
            (b"glTF\x02\0\0\0", "model/gltf-binary"),
            (b"\0\0\0\x14ftyp3gp5\0\0", "video/3gpp"),
            (b"PK\x03\x04\x14\0\0\0\0\0[Content_Types].xml _rels/.rels word/document.xml", WORD),
        ] {
            assert_eq!(by_content(content), expected, "{}", content.escape_ascii());
        }
    }
}
