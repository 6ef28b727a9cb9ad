//! Parameters of `Content-Disposition` in the parts of multipart bodies, as Go's `mime` package reads them.

use percent_encoding::percent_decode;

/// Characters that a token cannot hold (RFC 2045, 5.1).
const SPECIALS: &[u8] = b"()<>@,;:\\\"/[]?=";

/// Maximum number of pieces of a value. A value in more pieces is ignored.
const MAX_PIECES: usize = 1_024;

/// Returns the value of a parameter. One with a character set (`key*=utf-8''%C3%A9`, RFC 2231) is preferred, then one
/// in pieces (`key*0=a; key*1=b`).
pub(super) fn parameter(disposition: &[u8], key: &str) -> Option<Vec<u8>> {
    let (mut plain, mut extended, mut is_extended, mut pieces) = (None, None, false, Vec::new());
    let mut rest = after(disposition, b';');
    while !rest.is_empty() {
        let (name, value, next) = first_parameter(rest);
        rest = next;
        let Some((own, suffix)) = name.split_at_checked(key.len()) else { continue };
        if !own.eq_ignore_ascii_case(key.as_bytes()) {
            continue;
        }
        match suffix {
            b"" => plain = plain.or(Some(value)),
            b"*" => {
                is_extended = true;
                extended = extended.or_else(|| in_charset(&value));
            }
            suffix if pieces.len() <= MAX_PIECES => pieces.extend(Piece::parse(suffix, value)),
            _ => {}
        }
    }
    // One with an unknown character set hides the pieces.
    let joined = if is_extended { None } else { joined(pieces) };
    extended.or(joined).or(plain)
}

/// Piece of a value.
struct Piece {
    number: usize,
    is_encoded: bool,
    value: Vec<u8>,
}

impl Piece {
    /// Parses `*0` or `*0*`, which ends the name of a piece.
    fn parse(suffix: &[u8], value: Vec<u8>) -> Option<Self> {
        let digits = suffix.strip_prefix(b"*")?;
        let (digits, is_encoded) = digits.strip_suffix(b"*").map_or((digits, false), |digits| (digits, true));
        let is_number = digits.iter().all(u8::is_ascii_digit) && (digits == b"0" || !digits.starts_with(b"0"));
        let number = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
        Some(Self { number, is_encoded, value })
    }
}

/// Joins pieces up to the first gap; `None` without the first one, or for too many. Of two with the same number, the
/// one that is not encoded counts, or the first.
fn joined(mut pieces: Vec<Piece>) -> Option<Vec<u8>> {
    if pieces.len() > MAX_PIECES {
        return None;
    }
    pieces.sort_by_key(|piece| (piece.number, piece.is_encoded));
    pieces.dedup_by_key(|piece| piece.number);
    if pieces.first()?.number != 0 {
        return None;
    }
    let consecutive = pieces.into_iter().enumerate().take_while(|(index, piece)| piece.number == *index);
    let decoded = consecutive.flat_map(|(index, piece)| match (piece.is_encoded, index) {
        (false, _) => piece.value,
        // The first piece has the character set of all.
        (true, 0) => in_charset(&piece.value).unwrap_or_default(),
        (true, _) => unescaped(&piece.value).unwrap_or_default(),
    });
    Some(decoded.collect())
}

/// Returns what follows the first `end`.
fn after(text: &[u8], end: u8) -> &[u8] {
    text.iter().position(|byte| *byte == end).map_or(&[], |at| &text[at + 1..])
}

/// Splits `name=value; ...` into the name, the value and the parameters after it. The value is a token or a quoted
/// string.
fn first_parameter(text: &[u8]) -> (&[u8], Vec<u8>, &[u8]) {
    let end = text.iter().position(|byte| matches!(byte, b'=' | b';')).unwrap_or(text.len());
    let name = text[..end].trim_ascii();
    let Some(value) = text[end..].strip_prefix(b"=").map(<[u8]>::trim_ascii_start) else {
        return (name, Vec::new(), after(text, b';'));
    };
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let token = value.split(|byte| *byte == b';').next().unwrap_or_default();
        return (name, token.trim_ascii().to_owned(), after(value, b';'));
    };
    let (mut text, mut at) = (Vec::new(), 0);
    while let Some(byte) = quoted.get(at) {
        match (byte, quoted.get(at + 1)) {
            (b'"', _) => break,
            // Browsers send paths of Windows without escapes: a backslash before a letter stands for itself.
            (b'\\', Some(next)) if SPECIALS.contains(next) => {
                text.push(*next);
                at += 1;
            }
            _ => text.push(*byte),
        }
        at += 1;
    }
    (name, text, after(quoted.get(at..).unwrap_or_default(), b';'))
}

/// Decodes `charset'language'text`; `None` for a character set other than UTF-8 and ASCII, or a malformed escape.
fn in_charset(value: &[u8]) -> Option<Vec<u8>> {
    let mut fields = value.splitn(3, |byte| *byte == b'\'');
    let (charset, _language, text) = (fields.next()?, fields.next()?, fields.next()?);
    let is_known = [&b"utf-8"[..], b"us-ascii"].iter().any(|known| charset.eq_ignore_ascii_case(known));
    if is_known { unescaped(text) } else { None }
}

/// Decodes escapes; `None` if one is malformed.
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    is_escaped(text).then(|| percent_decode(text).collect())
}

/// Whether every `%` begins an escape.
pub(super) fn is_escaped(name: &[u8]) -> bool {
    let is_escape = |rest: &[u8]| rest.get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit));
    name.split(|byte| *byte == b'%').skip(1).all(is_escape)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of `filename`, as text.
    fn filename(parameters: &str) -> Option<String> {
        let value = parameter(format!("form-data; name=\"file\"; {parameters}").as_bytes(), "filename");
        value.map(|value| String::from_utf8(value).unwrap())
    }

    #[test]
    fn pieces_of_a_value_are_joined_as_in_go() {
        for (parameters, expected) in [
            (r#"filename*0="a"; filename*1="b""#, Some("ab")),
            (r#"filename*1="b"; filename*0="a""#, Some("ab")),
            ("FILENAME*0=a; FileName*1=b", Some("ab")),
            ("filename*0*=utf-8''%C3%A9; filename*1=.txt", Some("\u{e9}.txt")),
            ("filename*0*=utf-8''%C3; filename*1*=%A9x; filename*2=%41", Some("\u{e9}x%41")),
            ("filename*0=\"\"; filename*1=a", Some("a")),
            // Up to the first gap.
            ("filename*0=a; filename*2=c", Some("a")),
            ("filename*1=b", None),
            ("filename*1=b; filename=plain", Some("plain")),
            // Precedence of the forms.
            ("filename*0=a; filename=plain", Some("a")),
            ("filename=plain; filename*0=a; filename*=utf-8''x", Some("x")),
            ("filename=plain; filename*0=a; filename*=latin1''x", Some("plain")),
            ("filename*0*=utf-8''b; filename*0=a", Some("a")),
            // No numbers of pieces.
            ("filename*0=a; filename*00=b", Some("a")),
            ("filename*01=a; filename*0=b", Some("b")),
            ("filename*+0=a", None),
            ("filename*0*0=x", None),
            ("filename**=x", None),
            ("filename*99999999999999999999999=x", None),
            ("filenamex*0=x; name*0=y", None),
            // Pieces that cannot be decoded are empty.
            ("filename*0*=latin1''a; filename*1=b; filename=p", Some("b")),
            ("filename*0*=a; filename*1=b", Some("b")),
            ("filename*0*=utf-8''%zz; filename*1=b", Some("b")),
            ("filename*0*=utf-8''a; filename*1*=%zz; filename*2=c", Some("ac")),
            ("filename*=utf-8''%zz; filename=z", Some("z")),
        ] {
            assert_eq!(filename(parameters).as_deref(), expected, "{parameters}");
        }
    }

    #[test]
    fn value_in_too_many_pieces_is_ignored() {
        let pieces = |count: usize| -> String { (0..count).map(|number| format!("filename*{number}=x;")).collect() };
        assert_eq!(filename(&pieces(MAX_PIECES)), Some("x".repeat(MAX_PIECES)));
        assert_eq!(filename(&(pieces(MAX_PIECES + 1) + "filename=plain")).as_deref(), Some("plain"));
    }
}
