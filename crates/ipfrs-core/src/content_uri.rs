//! URIs of content (`ipfs://{cid}/a`, `ipfs:{cid}/a`), which may stand in the place of paths.

use std::borrow::Cow;

/// Schemes, which are the namespaces of paths.
const SCHEMES: [&str; 3] = ["ipfs", "ipns", "ipld"];

/// Returns a URI as a path (`/ipfs/{cid}/a`), and anything else unchanged. As in Kubo, the case of the scheme does not
/// matter, the two slashes after it are optional, and nothing is percent-decoded.
#[must_use]
pub fn uri_as_path(text: &[u8]) -> Cow<'_, [u8]> {
    for scheme in SCHEMES {
        let Some((start, rest)) = text.split_at_checked(scheme.len()) else { continue };
        let Some(rest) = rest.strip_prefix(b":").filter(|_| start.eq_ignore_ascii_case(scheme.as_bytes())) else {
            continue;
        };
        let mut path = format!("/{scheme}/").into_bytes();
        path.extend_from_slice(rest.strip_prefix(b"//").unwrap_or(rest));
        return Cow::Owned(path);
    }
    Cow::Borrowed(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_become_paths_and_all_else_stays() {
        for (text, path) in [
            ("ipfs://bafkqaaa/a/b", "/ipfs/bafkqaaa/a/b"),
            ("ipfs:bafkqaaa", "/ipfs/bafkqaaa"),
            ("ipfs:/bafkqaaa", "/ipfs//bafkqaaa"),
            ("ipns:docs.ipfs.tech", "/ipns/docs.ipfs.tech"),
            ("ipld://bafkqaaa/a", "/ipld/bafkqaaa/a"),
            ("IpFs://QmX/%20/", "/ipfs/QmX/%20/"),
            ("ipfs:", "/ipfs/"),
            ("ipfs", "ipfs"),
            ("ipfsfile", "ipfsfile"),
            ("ipfsbar:baz", "ipfsbar:baz"),
            ("ip\u{e9}s:x", "ip\u{e9}s:x"),
            ("/ipfs/bafkqaaa", "/ipfs/bafkqaaa"),
            ("", ""),
        ] {
            assert_eq!(uri_as_path(text.as_bytes()), path.as_bytes(), "{text}");
        }
    }
}
