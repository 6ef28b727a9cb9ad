//! Resolution of names.

use std::time::{Duration, SystemTime};

use ipfrs_core::limits::MAX_PATH_SEGMENTS;
use ipfrs_core::{Error, ErrorKind, Result, uri_as_path};
use tracing::Instrument;

use super::dnslink::{Answers, Link};
use super::root::{NameRoot, ResolvedName};
use super::target::{Target, TargetRoot};
use crate::content::segments;
use crate::trace::span;
use crate::{ContentPath, LinkName, Node};

/// Maximum number of names that a resolution follows, as in boxo (`namesys.DefaultDepthLimit`).
const MAX_STEPS: usize = 32;

impl Node {
    /// Resolves a name, following at most 32 names.
    ///
    /// # Errors
    /// [`ErrorKind::Unresolvable`] if a name along the way has no valid record or no DNSLink, its target is not a
    /// content path, or it leads back to itself; the message contains the name. Otherwise as [`Self::ipns_record`]
    /// and [`Self::dnslink`].
    pub async fn resolve_name(&self, name: &NameRoot) -> Result<ResolvedName> {
        self.resolve_name_as(name, Answers::Kept).await
    }

    /// Same as [`Self::resolve_name`], with a choice of which cached DNS lookups are acceptable.
    async fn resolve_name_as(&self, name: &NameRoot, answers: Answers) -> Result<ResolvedName> {
        let resolved = self.follow_name(name, answers).instrument(span!("resolve", name = %name)).await;
        self.inner.metrics.names.resolved(name.kind(), resolved.as_ref().err());
        resolved.map_err(|e| {
            Error::new(e.kind(), format!("failed to resolve /ipns/{name}: {}", e.message())).with_source(e)
        })
    }

    /// Returns the direct target of one name, which may be a path below another name.
    ///
    /// # Errors
    /// As [`Self::resolve_name`].
    pub async fn resolve_name_once(&self, name: &NameRoot, answers: Answers) -> Result<Vec<u8>> {
        self.check_name(name, &[])?;
        Ok(self.name_step(name, answers).await?.0.to_bytes())
    }

    /// Parses `text` as a content path: `/ipfs/{cid}/...`, `/ipld/{cid}/...`, `{cid}/...`, or `/ipns/{name}/...`,
    /// whose name is resolved. [URIs](uri_as_path) are accepted as well.
    ///
    /// # Errors
    /// As [`ContentPath::parse`], [`NameRoot::parse`] and [`Self::resolve_name`].
    pub async fn content_path(&self, path: impl AsRef<[u8]>) -> Result<ContentPath> {
        self.content_path_as(path, Answers::Kept).await
    }

    /// Same as [`Self::content_path`], with a choice of which cached DNS lookups are acceptable.
    ///
    /// # Errors
    /// As [`Self::content_path`].
    pub async fn content_path_as(&self, path: impl AsRef<[u8]>, answers: Answers) -> Result<ContentPath> {
        let path = uri_as_path(path.as_ref());
        let path: &[u8] = &path;
        let Some(rest) = path.strip_prefix(b"/ipns/") else { return ContentPath::parse(path) };
        let shown = || LinkName::from(path);
        let mut segments = segments(rest);
        let name = segments.next().ok_or_else(|| Error::invalid(format!("invalid path {:?}: no name", shown())))?;
        let name = NameRoot::parse(&LinkName::from(name).to_string_lossy())
            .map_err(|e| Error::new(e.kind(), format!("invalid path {:?}: {}", shown(), e.message())))?;
        let below: Vec<LinkName> = segments.map(LinkName::from).collect();
        self.check_name(&name, &below)?;
        let resolved = self.resolve_name_as(&name, answers).await?.path;
        let below = resolved.segments().iter().cloned().chain(below);
        ContentPath::new(*resolved.root(), below.collect())
    }

    async fn follow_name(&self, root: &NameRoot, answers: Answers) -> Result<ResolvedName> {
        let mut passed: Vec<NameRoot> = Vec::new();
        // Segments to append to the next target.
        let mut below = Vec::new();
        let mut ttl = self.inner.config.ipns.max_cache_ttl();
        let mut name = root.clone();
        let endless = |why: String| match root {
            NameRoot::Domain(_) => Error::endless_dnslink(why),
            NameRoot::Key(_) => unresolvable(why),
        };
        loop {
            if passed.contains(&name) {
                return Err(endless(format!("/ipns/{name} leads back to itself")));
            }
            if passed.len() == MAX_STEPS {
                return Err(endless(format!("it resolves through more than {MAX_STEPS} names")));
            }
            self.check_name(&name, &below)?;
            let (step, holds) = self.name_step(&name, answers).await?;
            ttl = ttl.min(holds);
            let mut segments = step.segments;
            segments.append(&mut below);
            below = segments;
            if below.len() > MAX_PATH_SEGMENTS {
                return Err(unresolvable(format!("it resolves to a path of more than {MAX_PATH_SEGMENTS} segments")));
            }
            match step.root {
                TargetRoot::Content(cid) => return Ok(ResolvedName { path: ContentPath::new(cid, below)?, ttl }),
                TargetRoot::Name(next) => passed.push(std::mem::replace(&mut name, next)),
            }
        }
    }

    /// Returns the direct target of a name and its time to live.
    async fn name_step(&self, name: &NameRoot, answers: Answers) -> Result<(Target, Duration)> {
        let (target, ttl) = match name {
            NameRoot::Key(key) => {
                let record = self.ipns_record(key).await.map_err(|e| match e.kind() {
                    ErrorKind::NotFound => unresolvable(e.message()).with_source(e),
                    _ => e,
                })?;
                let ttl = record.lifetime(SystemTime::now(), self.inner.config.ipns.record_ttl());
                (Target::of_value(record.value()), ttl)
            }
            NameRoot::Domain(domain) => {
                let link = self.inner.dnslink.lookup(domain, answers).await?;
                let link = link.ok_or_else(|| {
                    #[cfg(feature = "dns")]
                    let is_off = !self.inner.config.dns.enabled;
                    #[cfg(not(feature = "dns"))]
                    let is_off = true;
                    let reason = if is_off { ", and DNS is off (dns.enabled = false)" } else { "" };
                    unresolvable(format!("the domain {domain} has no DNSLink{reason}"))
                })?;
                (Target::parse(link.target.as_bytes()), link.ttl)
            }
        };
        let target = target.map_err(|e| unresolvable(format!("/ipns/{name} cannot be resolved: {}", e.message())))?;
        Ok((target, ttl))
    }
}

fn unresolvable(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unresolvable, message)
}

impl Node {
    /// Returns the DNSLink of `domain`, or `None` if it has none. The result comes from the configuration, the cache
    /// or DNS. DNS is never queried for IP addresses and local names.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for an invalid domain name; [`ErrorKind::Timeout`] and [`ErrorKind::Unavailable`]
    /// if no resolver responds, with the domain and the resolver in the message; [`ErrorKind::Unsupported`] for domains
    /// without a configured link if the crate was built without its feature `dns`.
    pub async fn dnslink(&self, domain: &str) -> Result<Option<Link>> {
        self.inner.dnslink.lookup(domain, Answers::Kept).await
    }
}
