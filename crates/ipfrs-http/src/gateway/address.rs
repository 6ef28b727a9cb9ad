//! Response headers with the address of content: `Ipfs-Uri`, and `X-Ipfs-Path`, which it supersedes (IPIP-548).
//!
//! Both hold the requested path before any name is resolved, in a form that does not depend on its spelling.
//! `Content-Location` holds the URL of the format that was sent.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipfrs_core::{Base, Cid, Result, cid_to_string, parse_cid};
use ipfrs_node::NameRoot;
use percent_encoding::percent_encode;

use super::escape::{SEGMENT, url_header};
use super::path::{decoded, ends_with_slash, names, split_root};
use crate::config::Namespace;

const IPFS_URI: HeaderName = HeaderName::from_static("ipfs-uri");
const X_IPFS_PATH: HeaderName = HeaderName::from_static("x-ipfs-path");

/// Longer values are omitted: the headers are optional, and many clients and proxies reject longer lines.
const MAX_BYTES: usize = 8_192;

/// Returns `url` as the value of `Content-Location`, unless it is longer than [`MAX_BYTES`].
pub(super) fn content_location(url: &str) -> Option<HeaderValue> {
    Some(url_header(url)).filter(|value| value.len() <= MAX_BYTES)
}

/// The headers for one content path.
#[derive(Debug, Clone, Default)]
pub(super) struct Address {
    uri: Option<HeaderValue>,
    path: Option<HeaderValue>,
}

impl Address {
    /// Returns the address of `content_path`, which is encoded as in a URL. The result is empty if it is not a
    /// content path.
    pub(super) fn of(content_path: &str) -> Self {
        Self::plain(content_path).or_else(|| Self::read(content_path).ok().flatten()).unwrap_or_default()
    }

    /// Sets the headers of a response about the content.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        if let Some(uri) = &self.uri {
            headers.insert(IPFS_URI, uri.clone());
        }
        if let Some(path) = &self.path {
            headers.insert(X_IPFS_PATH, path.clone());
        }
    }

    /// Same as [`Self::read`], for paths that need no decoding or normalization and are therefore their own address.
    /// Returns `None` for other paths.
    fn plain(content_path: &str) -> Option<Self> {
        let below = content_path.strip_prefix("/ipfs/")?;
        let mut before = b'/';
        for byte in below.bytes() {
            let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/');
            if !is_plain || (before == b'/' && matches!(byte, b'/' | b'.')) {
                return None;
            }
            before = byte;
        }
        let (root, names) = below.split_at(below.find('/').unwrap_or(below.len()));
        let authority = authority(Namespace::Ipfs, root).ok()??;
        let uri = ["ipfs://", &authority, names].concat();
        Some(Self { uri: value(uri), path: value(content_path.to_owned()) })
    }

    fn read(content_path: &str) -> Result<Option<Self>> {
        let Some(namespace) = Namespace::of_path(content_path) else { return Ok(None) };
        let (root, below) = split_root(&content_path[1 + namespace.as_str().len()..]);
        let root = decoded(content_path, root)?;
        let names = names(content_path, below)?;
        let slash = if ends_with_slash(below) { "/" } else { "" };
        let uri = authority(namespace, &root)?.map(|authority| {
            let mut uri = format!("{}://{authority}", namespace.as_str());
            for name in &names {
                uri.push('/');
                uri.extend(percent_encode(name.as_bytes(), SEGMENT));
            }
            uri + slash
        });
        let mut path = format!("/{}/{root}", namespace.as_str()).into_bytes();
        for name in &names {
            path.push(b'/');
            path.extend_from_slice(name.as_bytes());
        }
        path.extend_from_slice(slash.as_bytes());
        Ok(Some(Self { uri: uri.and_then(value), path: Some(path).filter(|path| is_safe(path)).and_then(value) }))
    }
}

/// Adds `Ipfs-Uri` to a redirect or an error response that lacks it.
pub(super) fn tell_of(content_path: &str, response: &mut Response) {
    if response.status().is_success() || response.headers().contains_key(IPFS_URI) {
        return;
    }
    if let Some(uri) = Address::of(content_path).uri {
        response.headers_mut().insert(IPFS_URI, uri);
    }
}

/// Returns the root as the authority of a URI, in its canonical form: a content ID in base 32, the name of a key in
/// base 36, or a domain with a dot (<https://specs.ipfs.tech/ipns-uri/>, "DNSLink name form").
fn authority(namespace: Namespace, root: &str) -> Result<Option<String>> {
    Ok(match namespace {
        Namespace::Ipfs => {
            let cid = parse_cid(root)?;
            Some(cid_to_string(&Cid::new_v1(cid.codec(), *cid.hash()), Base::Base32Lower)?)
        }
        Namespace::Ipns => match NameRoot::parse(root)? {
            NameRoot::Key(name) => Some(name.to_string()),
            NameRoot::Domain(domain) => is_host_name(&domain).then_some(domain),
        },
    })
}

/// Whether an ASCII domain is valid in a URI: labels of letters, digits and inner hyphens, separated by dots.
fn is_host_name(domain: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    };
    domain.contains('.') && domain.split('.').all(is_label)
}

/// Whether a header transmits a path unchanged. Only tabs, spaces and visible ASCII are allowed (RFC 9110, 5.5), and
/// spaces and tabs at the end are trimmed.
fn is_safe(path: &[u8]) -> bool {
    path.iter().all(|b| matches!(b, b'\t' | b' '..=b'~')) && !matches!(path.last(), Some(b' ' | b'\t'))
}

fn value(text: impl Into<Vec<u8>>) -> Option<HeaderValue> {
    let text = text.into();
    if text.len() > MAX_BYTES { None } else { HeaderValue::try_from(text).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_fast_path_equals_slow_path() {
        let (v0, v1) = (
            "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH",
            "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy",
        );
        let both = |path: &str| {
            let plain = Address::plain(path)?;
            let read = Address::read(path).unwrap().unwrap();
            assert_eq!((plain.uri, plain.path), (read.uri, read.path), "{path}");
            Some(())
        };
        for below in ["", "/", "/a", "/a/", "/a/b.c~d_e-f", "/a../b"] {
            for root in [v0, v1] {
                assert!(both(&format!("/ipfs/{root}{below}")).is_some(), "{below}");
            }
        }
        for below in ["//", "/.", "/a//b", "/a/../b", "/a%2Fb", "/%61", "/a b", "/\u{fc}", "/.hidden", "/a+b"] {
            assert!(both(&format!("/ipfs/{v1}{below}")).is_none(), "{below}");
        }
        for path in ["/ipfs/", "/ipfs//", "/ipns/example.org", "/ipfs/x", "/ipfs"] {
            assert!(both(path).is_none(), "{path}");
        }
    }
}
