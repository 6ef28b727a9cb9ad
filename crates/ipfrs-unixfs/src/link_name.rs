//! Names of links: byte strings, most of which are text.

use std::borrow::{Borrow, Cow};
use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Name of a link, or a path of such names joined by slashes. Clones share the bytes.
///
/// The specification defines names as strings, but directories imported from a disk may have names with any bytes.
/// The author of a block chooses the name, which may be `..` or `/etc/passwd`.
///
/// [`Display`](fmt::Display) and [`Debug`](fmt::Debug) are meant for messages and terminals. They escape bytes that
/// are not UTF-8, control characters and backslashes, so that two different names never look the same. To store or
/// compare names, use [`as_bytes`](Self::as_bytes).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LinkName(
    /// `None` for the empty name: the links of files have no other, so that decoding one allocates nothing for it.
    Option<Arc<[u8]>>,
);

impl LinkName {
    fn new(name: impl AsRef<[u8]> + Into<Arc<[u8]>>) -> Self {
        let is_empty = name.as_ref().is_empty();
        Self((!is_empty).then(|| name.into()))
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Returns whether the name is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the name as text, or `None` if it is not UTF-8.
    #[must_use]
    pub fn to_str(&self) -> Option<&str> {
        std::str::from_utf8(self.as_bytes()).ok()
    }

    /// Returns the text with U+FFFD in place of each byte that is not part of a character, like Go's `encoding/json`
    /// and its dag-json encoder. Different names may give the same text.
    #[must_use]
    pub fn to_string_lossy(&self) -> Cow<'_, str> {
        if let Some(text) = self.to_str() {
            return Cow::Borrowed(text);
        }
        let mut text = String::with_capacity(self.len() + 16);
        for chunk in self.as_bytes().utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
        }
        Cow::Owned(text)
    }

    /// Returns whether this name can be a path segment. In a path, slashes separate names, and `.` and `..` have
    /// special meanings.
    #[must_use]
    pub fn is_segment(&self) -> bool {
        !matches!(self.as_bytes(), b"" | b"." | b"..") && !self.as_bytes().contains(&b'/')
    }

    fn write_escaped(&self, f: &mut fmt::Formatter<'_>, is_special: impl Fn(char) -> bool) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_special(c) || c.is_control() {
                    c.escape_default().try_for_each(|c| f.write_char(c))?;
                } else {
                    f.write_char(c)?;
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_escaped(f, |c| c == '\\')
    }
}

impl fmt::Debug for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        self.write_escaped(f, |c| matches!(c, '\\' | '"'))?;
        f.write_char('"')
    }
}

impl From<&str> for LinkName {
    fn from(name: &str) -> Self {
        Self::new(name.as_bytes())
    }
}

impl From<String> for LinkName {
    fn from(name: String) -> Self {
        Self::new(name.into_bytes())
    }
}

impl From<&[u8]> for LinkName {
    fn from(name: &[u8]) -> Self {
        Self::new(name)
    }
}

impl<const N: usize> From<&[u8; N]> for LinkName {
    fn from(name: &[u8; N]) -> Self {
        Self::new(name.as_slice())
    }
}

impl From<Vec<u8>> for LinkName {
    fn from(name: Vec<u8>) -> Self {
        Self::new(name)
    }
}

impl AsRef<[u8]> for LinkName {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl Borrow<[u8]> for LinkName {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

// Equal to that of the bytes, as `Borrow` requires.
impl Hash for LinkName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl PartialEq<str> for LinkName {
    fn eq(&self, other: &str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl PartialEq<&str> for LinkName {
    fn eq(&self, other: &&str) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_that_differ_never_look_the_same() {
        for (name, display, debug) in [
            (&b"plain \xc3\xbc"[..], "plain \u{fc}", "\"plain \u{fc}\""),
            (b"\xff.txt", "\\xff.txt", "\"\\xff.txt\""),
            (b"\\xff.txt", "\\\\xff.txt", "\"\\\\xff.txt\""),
            (b"caf\xe9", "caf\\xe9", "\"caf\\xe9\""),
            (b"a\nb\0\"", "a\\nb\\u{0}\"", "\"a\\nb\\u{0}\\\"\""),
            (b"\xe2\x82", "\\xe2\\x82", "\"\\xe2\\x82\""),
            (b"", "", "\"\""),
        ] {
            let name = LinkName::from(name);
            assert_eq!((name.to_string(), format!("{name:?}")), (display.to_owned(), debug.to_owned()));
        }
    }

    #[test]
    fn empty_names_are_equal_allocate_nothing_and_come_first() {
        let empty = [LinkName::default(), "".into(), String::new().into(), Vec::<u8>::new().into(), b"".into()];
        assert!(empty.iter().all(|name| name.0.is_none() && *name == empty[0] && name.as_bytes().is_empty()));
        let next = LinkName::from("\0");
        assert!(empty[0] < next);
        let names = HashMap::from(["", "a", "a/b"].map(|name| (LinkName::from(name), name)));
        assert!(["", "a", "a/b"].iter().all(|name| names.get(name.as_bytes()) == Some(name)));
    }

    #[test]
    fn lossy_text_replaces_each_byte_as_go_does() {
        for (name, text) in [
            (&b"plain"[..], "plain"),
            (b"\xff.txt", "\u{fffd}.txt"),
            (b"\xe2\x82x", "\u{fffd}\u{fffd}x"),
            (b"\xed\xa0\x80", "\u{fffd}\u{fffd}\u{fffd}"),
        ] {
            assert_eq!(LinkName::from(name).to_string_lossy(), text);
        }
    }
}
