//! Names, and what they resolve to.

use std::fmt;
use std::time::Duration;

use ipfrs_core::{Error, Result};
use ipfrs_ipns::Name;

use super::dnslink::ascii_domain;
use crate::ContentPath;

/// First segment after `/ipns/` in a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NameRoot {
    /// The name of a key. The holder of the key signs records that contain its target.
    Key(Name),
    /// A domain in ASCII and lower case. Its DNSLink contains its target.
    Domain(String),
}

impl NameRoot {
    /// Parses the name of a key, in any of the forms of [`Name::parse`], or a domain with a dot in it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind). The message contains the text and the problem.
    pub fn parse(text: &str) -> Result<Self> {
        match Name::parse(text) {
            Ok(name) => Ok(Self::Key(name)),
            Err(_) if text.contains('.') => ascii_domain(text).map(Self::Domain),
            Err(e) => Err(Error::invalid(format!("{e}; a domain name must contain a dot"))),
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Domain(_) => "dnslink",
        }
    }
}

impl fmt::Display for NameRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(name) => name.fmt(f),
            Self::Domain(domain) => f.write_str(domain),
        }
    }
}

/// Result of resolving a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedName {
    /// The final, immutable path.
    pub path: ContentPath,
    /// Time to live: the shortest of all names along the way, and at most `ipns.max_cache_ttl_seconds`.
    pub ttl: Duration,
}
