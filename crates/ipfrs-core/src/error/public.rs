//! Removal of local file system paths from error messages for clients.

use std::borrow::Cow;

/// Replaces a path that does not end with the name of one of the daemon's own files.
const WITHHELD: &str = "[path]";

/// First segments of paths that clients know: content paths, routes of the daemon, and multiaddrs.
const KNOWN: [&str; 15] = [
    "ipfs", "ipns", "ipld", "api", "v1", "routing", "health", "metrics", "dns", "dns4", "dns6", "dnsaddr", "ip4",
    "ip6", "p2p",
];

/// Most words after a space that may belong to a path with spaces.
const MAX_WORDS: usize = 8;

/// Returns whether a message quotes a system error in the wording of the standard library.
pub(super) fn is_of_system(message: &str) -> bool {
    message.contains("(os error ")
}

/// Extensions of the daemon's own files, whose names tell an operator which file is meant.
const OWN_EXTENSIONS: [&str; 4] = ["car", "redb", "toml", "json"];

/// Returns `text` with the name of an own file, or `[path]`, in place of each path in the file system. Paths of content
/// and of routes, and URLs, stay.
#[must_use]
pub(super) fn without_paths(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(found) = text[at..].find('/') {
        let slash = at + found;
        let start = start_of(text, slash);
        let is_first = text[..start].chars().next_back().is_none_or(|before| !is_of_word(before));
        let end = end_of(text, start, slash);
        if is_first && is_of_file(&text[..start], &text[slash + 1..end]) {
            shown.push_str(&text[copied..start]);
            shown.push_str(own_file(&text[slash..end]).unwrap_or(WITHHELD));
            copied = end;
        }
        at = end.max(slash + 1);
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[copied..]);
    Cow::Owned(shown)
}

/// Returns the start of the path that contains this slash. The path may begin with dots (`../a`) or with `~`.
fn start_of(text: &str, slash: usize) -> usize {
    let before = text[..slash].trim_end_matches('.');
    let before = if slash - before.len() <= 2 { before } else { &text[..slash] };
    before.strip_suffix('~').unwrap_or(before).len()
}

/// Returns whether this character, directly before a possible path, is part of a word. The path then does not begin
/// here.
fn is_of_word(before: char) -> bool {
    !(before.is_whitespace() || matches!(before, '"' | '\'' | '`' | '(' | '[' | '{' | '<' | '=' | ',' | ';' | ':'))
}

/// Returns the end of the path that begins at `start`. If a quote precedes the path, it ends at the closing quote.
/// Otherwise it ends at a space, unless the path continues after the space.
fn end_of(text: &str, start: usize, slash: usize) -> usize {
    if let Some(quote @ ('"' | '\'' | '`')) = text[..start].chars().next_back()
        && let Some(end) = text[slash..].find(quote)
    {
        return slash + end;
    }
    let word = |from: usize| {
        let rest = &text[from..];
        from + rest.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>')).unwrap_or(rest.len())
    };
    let mut end = word(slash);
    let mut next = end;
    for _ in 0..MAX_WORDS {
        // A colon, comma or similar character ends the path.
        if text[..next].ends_with([':', ',', ';', ')', '.']) || !text[next..].starts_with(' ') {
            break;
        }
        let from = next + 1;
        next = word(from);
        let is_other = |word: &str| word.trim_start_matches(['.', '~']).starts_with('/') || word.contains("://");
        if is_other(&text[from..next]) {
            break;
        }
        if text[from..next].contains('/') {
            end = next;
        }
    }
    slash + text[slash..end].trim_end_matches([':', ',', ';', ')', ']', '.', '}']).len().max(1)
}

/// Returns the name of the file that a path leads to, if it is one of the daemon's own.
fn own_file(path: &str) -> Option<&str> {
    let name = path.rsplit('/').next()?;
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty() && OWN_EXTENSIONS.contains(&extension)).then_some(name)
}

/// Whether `below`, which follows the text `before` and a slash, is a path in the file system.
fn is_of_file(before: &str, below: &str) -> bool {
    match below.split(['/', '?', '#']).next().unwrap_or_default() {
        // The authority of a URL follows two slashes.
        "" => below.starts_with('/') && (!before.ends_with(':') || before.ends_with("file:")),
        first => !KNOWN.contains(&first),
    }
}

#[cfg(test)]
mod tests {
    use super::without_paths;
    use crate::{Error, ErrorKind};

    #[test]
    fn paths_of_files_are_withheld_and_nothing_else() {
        for (text, shown) in [
            ("cannot write /var/lib/ipfrs/packs/1.pack: no space", "cannot write [path]: no space"),
            ("/r/pins.redb", "pins.redb"),
            ("cannot create /home/me: why", "cannot create [path]: why"),
            ("the block store in /home/My Repo/.ipfrs is closed", "the block store in [path] is closed"),
            ("cannot rename /a/b to /c/d: refused", "cannot rename [path] to [path]: refused"),
            ("damaged (/r/packs/2.car), see /r/log.", "damaged (2.car), see [path]."),
            ("cannot open \"/tmp/a b\": why", "cannot open \"[path]\": why"),
            ("in ../x/y, ./z/w and ~/.ipfrs/api", "in [path], [path] and [path]"),
            ("dir=/srv/ipfrs,x", "dir=[path]"),
            ("/srv/a at http://x/y", "[path] at http://x/y"),
            ("the file:/srv/ipfrs/1", "the file:[path]"),
            ("block bafy at /ipfs/bafy/a b/c and /ipns/x", "block bafy at /ipfs/bafy/a b/c and /ipns/x"),
            ("query http://127.0.0.1:53/dns-query again", "query http://127.0.0.1:53/dns-query again"),
            ("see /api/v0/repo/gc, /v1/progress and block/put", "see /api/v0/repo/gc, /v1/progress and block/put"),
            (
                "no connection to /ip4/10.0.0.1/tcp/1/p2p/12D3: why",
                "no connection to /ip4/10.0.0.1/tcp/1/p2p/12D3: why",
            ),
            ("application/json or */* and 1 / 2", "application/json or */* and 1 / 2"),
            ("in file:///srv/x and //srv/y", "in file:[path] and [path]"),
            ("/home/john.doe", "[path]"),
            ("/", "/"),
            ("", ""),
            ("\u{e4}/\u{e4}: /\u{e4}/\u{1f600}", "\u{e4}/\u{e4}: [path]"),
        ] {
            assert_eq!(without_paths(text), shown, "{text}");
        }
    }

    #[test]
    fn messages_about_requests_stay_unless_the_system_wrote_them() {
        let of_file = std::io::Error::from_raw_os_error(2);
        let error = Error::io("cannot read /r/packs/1.pack", of_file);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.public_message().starts_with("cannot read [path]: "), "{}", error.public_message());
        assert_eq!(Error::invalid("/etc/passwd is not a route").public_message(), "/etc/passwd is not a route");
        assert_eq!(Error::read_only("/r is open read-only").public_message(), "[path] is open read-only");
    }
}
