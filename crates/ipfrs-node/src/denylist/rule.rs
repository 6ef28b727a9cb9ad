//! Parser for one line of a denylist.

use std::borrow::Cow;

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Cid, Error, Multihash, Result, codec, parse_cid};
use multibase::Base;
use percent_encoding::percent_decode_str;

use super::hints::Hints;
use crate::names::dnslink::ascii_domain;

/// Maximum length of text that can be a multihash: one of 128 bytes in base16, plus a margin.
const MAX_HASH_TEXT: usize = 300;

/// A line that blocks something, or allows it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) target: Target,
    /// Whether the rule allows, whatever earlier lines say. Written as `!`, or as `+` or `-` in some existing lists.
    pub(crate) is_allow: bool,
    pub(crate) hints: Hints,
}

/// Target of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A root (empty path) or a path below it, without slashes at either end.
    Path { root: Root<'static>, path: Vec<u8> },
    /// All paths below a root that begin with `prefix`. An empty prefix includes the root.
    Prefix { root: Root<'static>, prefix: Vec<u8> },
    /// Content whose textual form has this hash; see [`Root::modern`] and [`Root::legacy`].
    DoubleHash { hash: Multihash, is_legacy: bool },
}

/// First part of a content path. The codec and version of a CID matter only for legacy double hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Root<'a> {
    /// `/ipfs/{CID}`.
    Content(Cid),
    /// `/ipns/{key}`: an IPNS name as a CID.
    Key(Cid),
    /// `/ipns/{domain}`: in lower case, without a trailing dot.
    Domain(Cow<'a, str>),
}

impl Root<'_> {
    /// Parses the text after `/ipns/`: a key if possible, otherwise a domain.
    pub(crate) fn name(text: &str) -> Root<'static> {
        match parse_cid(text).ok().or_else(|| peer_id(text)) {
            Some(cid) => Root::Key(cid),
            None => Root::Domain(Cow::Owned(domain(text))),
        }
    }

    /// Returns the bytes that a current double hash covers: the multihash in base58btc, or `/ipns/{domain}`, with the
    /// path.
    pub(crate) fn modern(&self, path: &[u8]) -> Vec<u8> {
        let root = match self {
            Self::Content(cid) | Self::Key(cid) => Base::Base58Btc.encode(cid.hash().to_bytes()),
            Self::Domain(domain) => format!("/ipns/{domain}"),
        };
        if path.is_empty() { root.into_bytes() } else { [root.as_bytes(), b"/", path].concat() }
    }

    /// Returns the bytes that a legacy double hash covers with SHA2-256: the CIDv1 in base32, or the domain, then a
    /// slash and the path.
    pub(crate) fn legacy(&self, path: &[u8]) -> Vec<u8> {
        let root = match self {
            Self::Content(cid) | Self::Key(cid) => Cid::new_v1(cid.codec(), *cid.hash()).to_string(),
            Self::Domain(domain) => domain.to_string(),
        };
        [root.as_bytes(), b"/", path].concat()
    }
}

/// Parses a peer ID in base58btc without a multibase prefix.
fn peer_id(text: &str) -> Option<Cid> {
    Some(Cid::new_v1(codec::LIBP2P_KEY, base58_multihash(text)?))
}

fn base58_multihash(text: &str) -> Option<Multihash> {
    if text.len() > MAX_HASH_TEXT {
        return None;
    }
    Multihash::from_bytes(&Base::Base58Btc.decode(text).ok()?).ok()
}

/// Normalizes a domain for comparison. Text without dots is a label of a subdomain gateway, in which `-` stands for a
/// dot and `--` for `-` (<https://specs.ipfs.tech/http-gateways/subdomain-gateway/#host-request-header>).
fn domain(text: &str) -> String {
    if text.contains('.') {
        return ascii_domain(text).unwrap_or_else(|_| text.to_lowercase());
    }
    let label = text.to_lowercase();
    label.split("--").map(|part| part.replace('-', ".")).collect::<Vec<_>>().join("-")
}

impl Rule {
    /// Parses a line. Returns `None` if it is empty or a comment.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) with the reason why the line is not a rule.
    pub(crate) fn parse(line: &str) -> Result<Option<Self>> {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(None) };
        let (is_allow, item) = match first.strip_prefix(['!', '+', '-']) {
            Some(item) => (true, item),
            None => (false, first),
        };
        let target = if let Some(hash) = item.strip_prefix("//") {
            double_hash(hash)?
        } else if let Some(rest) = item.strip_prefix("/ipns/") {
            let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
            if name.is_empty() {
                return Err(Error::invalid("the name is missing after /ipns/"));
            }
            below(Root::name(name), path)?
        } else {
            let rest = ["/ipfs/", "/ipld/"].iter().find_map(|prefix| item.strip_prefix(prefix));
            if rest.is_none() && item.starts_with('/') {
                return Err(Error::invalid("it is not one of /ipfs/CID, /ipns/NAME and //DOUBLE-HASH"));
            }
            let (cid, path) = rest.unwrap_or(item).split_once('/').unwrap_or((rest.unwrap_or(item), ""));
            below(Root::Content(parse_cid(cid)?), path)?
        };
        Ok(Some(Self { target, is_allow, hints: Hints::parse(words) }))
    }
}

fn below(root: Root<'static>, path: &str) -> Result<Target> {
    // The asterisk is removed before decoding, because an encoded asterisk is literal.
    let prefix = path.strip_suffix('*');
    let path = decode(prefix.unwrap_or(path))?;
    let path = without_slashes(&path).to_owned();
    Ok(match prefix {
        Some(_) => Target::Prefix { root, prefix: path },
        None => Target::Path { root, path },
    })
}

/// Returns a path without the slashes at its ends.
pub(crate) fn without_slashes(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] | [rest @ .., b'/'] = path {
        path = rest;
    }
    path
}

/// Percent-decodes a path. As in URLs, the result may be invalid UTF-8.
fn decode(path: &str) -> Result<Cow<'_, [u8]>> {
    let is_whole = |escape: &str| escape.len() >= 2 && escape.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !path.split('%').skip(1).all(is_whole) {
        return Err(Error::invalid("a % in its path is not followed by two hexadecimal digits: write a % as %25"));
    }
    Ok(percent_decode_str(path).into())
}

/// Parses a multihash in base58btc, as in the specification, or in a multibase; or the 64 hexadecimal digits of
/// legacy lists. The forms are unambiguous: 64 digits in base58btc decode to 46 or 47 bytes, and the supported
/// multihashes have other lengths.
fn double_hash(text: &str) -> Result<Target> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let digest = Base::Base16Lower.decode(text.to_ascii_lowercase());
        let digest = digest.map_err(|e| Error::invalid(format!("it is not hexadecimal: {e}")))?;
        let hash = Multihash::wrap(HashFunction::Sha2_256.code(), &digest);
        let hash = hash.map_err(|e| Error::invalid(format!("it is not a digest: {e}")))?;
        return Ok(Target::DoubleHash { hash, is_legacy: true });
    }
    // Longer text is not a supported multihash, and decoding base58 takes quadratic time.
    if text.len() > MAX_HASH_TEXT {
        return Err(Error::invalid("its double hash is too long"));
    }
    let in_multibase = || Multihash::from_bytes(&multibase::decode(text).ok()?.1).ok();
    let is_known = |hash: &Multihash| {
        let function = HashFunction::from_code(hash.code()).ok();
        function.and_then(HashFunction::digest_bytes) == Some(usize::from(hash.size()))
    };
    let hash = base58_multihash(text).filter(is_known).or_else(|| in_multibase().filter(is_known));
    let hash = hash.ok_or_else(|| {
        Error::invalid(
            "its double hash is neither a multihash in base58btc of a supported hash function, nor the 64 \
             hexadecimal digits of a SHA2-256",
        )
    })?;
    Ok(Target::DoubleHash { hash, is_legacy: false })
}
