//! Content paths as written in URLs: `/ipfs/{cid}/...`, `/ipns/{name}/...`.
//!
//! The meaning of a path does not depend on its spelling (path gateway specification, "Ipfs-Uri"). Each segment is
//! percent-decoded once. An encoded slash separates segments like a literal one. Empty segments are ignored. `.` and
//! `..` have their usual meaning, but cannot leave the root: on an origin of its own, another root would be content
//! of another owner.

use std::borrow::Cow;

use ipfrs_core::{Error, Result, parse_cid};
use ipfrs_node::{ContentPath, LinkName, Name, NameRoot};
use percent_encoding::percent_decode_str;

/// Parses `[/ipfs/]{cid}[/path]`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) names the path and the fault.
pub(crate) fn parse(raw: &str) -> Result<ContentPath> {
    let (root, below) = split_root(raw.strip_prefix("/ipfs/").unwrap_or(raw));
    let root = decoded(raw, root)?;
    let root = parse_cid(&root).map_err(|e| Error::invalid(format!("invalid path {:?}: {e}", shown(raw))))?;
    ContentPath::new(root, names(raw, below)?)
}

/// Splits the part of a path after the namespace into the root and the rest, which begins with a slash. Both stay
/// encoded.
pub(super) fn split_root(mut rest: &str) -> (&str, &str) {
    while let Some((0, after_slash)) = find_slash(rest) {
        rest = &rest[after_slash..];
    }
    rest.split_at(find_slash(rest).map_or(rest.len(), |(at, _)| at))
}

/// Returns the decoded segments below a root; `below` is a part of the path `raw`. Names are bytes and need not be
/// UTF-8.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if `..` leads beyond the root.
pub(super) fn names(raw: &str, below: &str) -> Result<Vec<LinkName>> {
    let mut names = Vec::new();
    for part in parts(below) {
        match &*Cow::from(percent_decode_str(part)) {
            b"." => {}
            b".." => {
                let outside_root =
                    || Error::invalid(format!("invalid path {:?}: it points outside its root", shown(raw)));
                names.pop().ok_or_else(outside_root)?;
            }
            name => names.push(name.into()),
        }
    }
    Ok(names)
}

/// Returns the non-empty segments of a path, still encoded.
pub(crate) fn parts(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path);
    let all = std::iter::from_fn(move || {
        let path = rest?;
        let (part, after_slash) = match find_slash(path) {
            Some((at, after_slash)) => (&path[..at], Some(&path[after_slash..])),
            None => (path, None),
        };
        rest = after_slash;
        Some(part)
    });
    all.filter(|part| !part.is_empty())
}

/// Decodes the root of the path `raw`, which is one of its [`parts`].
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) if it is not UTF-8.
pub(super) fn decoded<'a>(raw: &str, part: &'a str) -> Result<Cow<'a, str>> {
    let decoded = percent_decode_str(part).decode_utf8();
    decoded.map_err(|_| Error::invalid(format!("invalid path {:?}: its root is not UTF-8", shown(raw))))
}

/// Returns the name of the key in a path without further segments. It may have a record.
///
/// # Errors
/// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for all other paths.
pub(super) fn key_name(content_path: &str) -> Result<Name> {
    let invalid = |why: &str| Error::invalid(format!("no ipns-record exists for {:?}: {why}", shown(content_path)));
    let rest = content_path.strip_prefix("/ipns/").ok_or_else(|| invalid("only names under /ipns/ have one"))?;
    let mut parts = parts(rest);
    let name = decoded(content_path, parts.next().ok_or_else(|| invalid("the name is missing"))?)?;
    if parts.next().is_some() {
        return Err(invalid("a name has a record, but a path below it has none"));
    }
    match NameRoot::parse(&name)? {
        NameRoot::Key(name) => Ok(name),
        NameRoot::Domain(_) => Err(invalid("a domain has a DNSLink instead")),
    }
}

/// Whether a path ends with a slash.
pub(super) fn ends_with_slash(path: &str) -> bool {
    path.ends_with('/') || path.len().checked_sub(3).and_then(|at| path.get(at..)).is_some_and(is_encoded_slash)
}

/// Truncates a path for an error message.
pub(super) fn shown(path: &str) -> String {
    path.chars().take(256).collect()
}

/// Returns the position of the first slash, literal or encoded, and the position after it.
fn find_slash(path: &str) -> Option<(usize, usize)> {
    path.bytes().enumerate().find_map(|(at, byte)| match byte {
        b'/' => Some((at, at + 1)),
        b'%' if path.get(at..at + 3).is_some_and(is_encoded_slash) => Some((at, at + 3)),
        _ => None,
    })
}

fn is_encoded_slash(text: &str) -> bool {
    text.eq_ignore_ascii_case("%2f")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_depend_on_how_they_are_spelled() {
        for (below, expected) in [
            ("", &[][..]),
            ("/", &[]),
            ("/a/b", &["a", "b"]),
            ("//a///b/", &["a", "b"]),
            ("/a%2Fb%2f%2Fc", &["a", "b", "c"]),
            ("%2Fa", &["a"]),
            ("/a/./b/../c", &["a", "c"]),
            ("/a%2F..%2Fplain%2Etxt", &["plain.txt"]),
            ("/%2e/%2E%2e", &["!"]),
            ("/a/../..", &["!"]),
            ("/a%2F..%2F..%2Fb", &["!"]),
            ("/%252F/%252E%252E/%2", &["%2F", "%2E%2E", "%2"]),
            ("/.../..a/a..", &["...", "..a", "a.."]),
            ("/%C3%BC/\u{fc}", &["\u{fc}", "\u{fc}"]),
            ("/%\u{fc}%2F%%2F", &["%\u{fc}", "%"]),
        ] {
            let names = names(below, below).unwrap_or_else(|_| vec!["!".into()]);
            assert_eq!(names, expected, "{below}");
        }
    }

    #[test]
    fn names_are_bytes_and_a_root_is_text() {
        let names = names("/", "/%FF.txt/caf%e9/%C3%BC/a%00b").unwrap();
        let expected = [&b"\xff.txt"[..], b"caf\xe9", b"\xc3\xbc", b"a\0b"];
        assert!(names.iter().map(LinkName::as_bytes).eq(expected), "{names:?}");
        assert!(decoded("/ipfs/%FF", "%FF").unwrap_err().to_string().contains("its root is not UTF-8"));
    }

    #[test]
    fn roots_end_at_the_first_slash_however_it_is_written() {
        for (rest, root, below) in [
            ("x", "x", ""),
            ("x/", "x", "/"),
            ("x/y/z", "x", "/y/z"),
            ("x%2fy/z", "x", "%2fy/z"),
            ("//x/y", "x", "/y"),
            ("%2F/x", "x", ""),
            ("", "", ""),
            ("..%2Fx", "..", "%2Fx"),
        ] {
            assert_eq!(split_root(rest), (root, below), "{rest}");
        }
        for (path, ends) in
            [("/a", false), ("/a/", true), ("/a%2F", true), ("/a%2f", true), ("2F", false), ("é2F", false)]
        {
            assert_eq!(ends_with_slash(path), ends, "{path}");
        }
    }
}
