//! User names, passwords and tokens in URLs, which logs and clients must not see.

/// Replaces user names and passwords in the URLs of a text by `shown`, with what is between a URL without a path and a
/// later `@`. If `shown` is empty, the `@` is removed too.
#[must_use]
pub fn without_credentials(text: &str, shown: &str) -> String {
    let mut parts = text.split("://");
    let mut safe = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A password may contain everything else.
        let authority = &part[..part.find('/').unwrap_or(part.len())];
        safe += "://";
        match authority.rfind('@') {
            None => safe += part,
            Some(at) if shown.is_empty() => safe += &part[at + 1..],
            Some(at) => {
                safe += shown;
                safe += &part[at..];
            }
        }
    }
    safe
}

/// Replaces the queries of the URLs in a text by `shown`, because they may contain tokens. A query ends at white space
/// or at a quotation mark.
#[must_use]
pub fn without_queries(text: &str, shown: &str) -> String {
    const AFTER_SCHEME: &str = "://";
    let is_end = |character: char| character.is_whitespace() || character == '"';
    let (mut safe, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find(AFTER_SCHEME) {
        let (scheme, url) = rest.split_at(start + AFTER_SCHEME.len());
        // A query may contain another URL.
        let (url, after) = url.split_at(url.find(is_end).unwrap_or(url.len()));
        safe += scheme;
        match url.split_once('?') {
            Some((before, query)) if !query.is_empty() => {
                safe += before;
                safe += "?";
                safe += shown;
            }
            _ => safe += url,
        }
        rest = after;
    }
    safe + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_all_urls_are_replaced() {
        for (text, replaced) in [
            ("https://h/q?token=a&b=c", "https://h/q?***"),
            ("https://h?t#f", "https://h?***"),
            ("https://h/?u=https://i/secret?t", "https://h/?***"),
            ("[\"https://h/?a\", \"http://i/?b\"]: why?", "[\"https://h/?***\", \"http://i/?***\"]: why?"),
            ("https://h/? x", "https://h/? x"),
            ("https://h/q, what?", "https://h/q, what?"),
            ("no URL? a", "no URL? a"),
        ] {
            assert_eq!(without_queries(text, "***"), replaced);
        }
    }

    #[test]
    fn credentials_of_all_urls_are_replaced_or_removed() {
        for (text, replaced, removed) in [
            ("http://example.org/a@b", "http://example.org/a@b", "http://example.org/a@b"),
            ("https://user:p@ss@host:1/x", "https://***@host:1/x", "https://host:1/x"),
            ("http://u@h/, http://v:w@i", "http://***@h/, http://***@i", "http://h/, http://i"),
            ("no URL: a@b", "no URL: a@b", "no URL: a@b"),
        ] {
            assert_eq!(without_credentials(text, "***"), replaced);
            assert_eq!(without_credentials(text, ""), removed);
        }
    }
}
