//! Lookups of DNSLinks in DNS, with a cache.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::rr::Name;
use ipfrs_core::turns::Turns;
use ipfrs_core::{Error, ErrorKind, Result};
use quick_cache::sync::Cache;
use tokio::time::{Instant, timeout_at};

use super::config::{DnsConfig, ResolverList};
use super::domain::{self, ascii_domain};
use super::metrics::LookupMetrics;
use super::record::link_of;
use super::texts::Texts;
use super::upstream::Upstream;
use super::{Answers, Link};
use crate::current_client;

/// How long a failure is cached: long enough to spare an unavailable resolver, short enough to go unnoticed.
const FAILURE_TTL: Duration = Duration::from_secs(3);
/// Approximate memory of a cache entry, in bytes.
const ENTRY_BYTES: i64 = 384;

/// How long an expired link is served before the resolvers are queried again (RFC 8767, 5).
const STALE_TTL: Duration = Duration::from_secs(30);

/// Cached result of a lookup.
#[derive(Debug)]
struct Answer {
    link: Result<Option<String>, (ErrorKind, String)>,
    until: Instant,
    /// Link that was found before a failure. It is served in place of the failure, because it is most likely still
    /// valid.
    last: Option<LastLink>,
}

/// An expired link.
#[derive(Debug, Clone)]
struct LastLink {
    target: String,
    /// Time from which it must no longer be served.
    end: Instant,
}

/// Returns the message of a failed lookup.
fn failed(domain: &str, error: &Error) -> String {
    format!("the DNSLink of {domain} could not be looked up: {error}")
}

impl Answer {
    fn holds(&self) -> bool {
        Instant::now() < self.until
    }

    fn link(&self, answers: Answers) -> Result<Option<Link>> {
        match (&self.link, &self.last) {
            (Ok(None), _) => Ok(None),
            (Ok(Some(target)), _) => Ok(Some(self.leads_to(target))),
            (Err(_), Some(last)) if answers == Answers::Kept => Ok(Some(self.leads_to(&last.target))),
            (Err((kind, message)), _) => Err(Error::new(*kind, message.clone())),
        }
    }

    fn leads_to(&self, target: &str) -> Link {
        let left = self.until.saturating_duration_since(Instant::now());
        // In whole seconds, as in DNS and HTTP, rounded up: a TTL of 300 should not become 299 a moment later.
        let ttl = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
        Link { target: target.to_owned(), ttl }
    }

    /// Returns the link to serve if the next lookup fails, for up to `most` after its TTL.
    fn last(&self, most: Duration) -> Option<LastLink> {
        match &self.link {
            Ok(target) => target.as_ref().map(|target| LastLink { target: target.clone(), end: self.until + most }),
            Err(_) => self.last.clone(),
        }
    }
}

/// Cached links of domains, and the resolvers for all others.
#[derive(Debug)]
pub(super) struct Resolvers {
    config: DnsConfig,
    upstreams: Vec<Upstream>,
    /// Resolvers by domain suffix with its leading dot; the longest suffix first.
    by_suffix: Vec<(String, Vec<Upstream>)>,
    answers: Cache<String, Arc<Answer>>,
    /// Limits the number of concurrent lookups; each takes one permit.
    lookups: Turns<Option<IpAddr>>,
    metrics: LookupMetrics,
}

impl Resolvers {
    pub(super) fn new(config: &DnsConfig, metrics: LookupMetrics) -> Result<Self> {
        let upstreams = |list: &ResolverList| -> Result<Vec<_>> {
            list.0.iter().map(|address| Upstream::new(address, config.time_limit())).collect()
        };
        let mut by_suffix = Vec::new();
        for (suffix, list) in &config.suffix_resolvers {
            by_suffix.push((format!(".{}", ascii_domain(suffix)?), upstreams(list)?));
        }
        by_suffix.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        Ok(Self {
            upstreams: upstreams(&config.resolvers)?,
            by_suffix,
            answers: Cache::new(config.max_cache_entries),
            lookups: Turns::new(config.max_lookups, 1),
            config: config.clone(),
            metrics,
        })
    }

    /// Returns the link of `domain`, as [`ascii_domain`] returns it, or `None` if it has no DNSLink.
    ///
    /// # Errors
    /// As [`Node::dnslink`](crate::Node::dnslink).
    pub(super) async fn lookup(&self, domain: String, answers: Answers) -> Result<Option<Link>> {
        let Some(upstreams) = self.upstreams_of(&domain) else { return Ok(None) };
        let mut last = None;
        if let Some(answer) = self.answers.get(&domain) {
            if answers == Answers::Kept && answer.holds() {
                self.metrics.answers.hits.inc();
                return answer.link(answers);
            }
            last = answer.last(self.config.max_stale()).filter(|last| Instant::now() < last.end);
        }
        if answers == Answers::New {
            // A lookup in progress is not removed, because its result will be new.
            drop(self.answers.remove_if(&domain, |_| true));
        }
        self.metrics.answers.misses.inc();
        // A result that was obtained after this point is new enough even if it is not cached. Otherwise the waiting
        // requests would repeat the lookup one after another.
        let begun = Instant::now();
        loop {
            // One request performs the lookup, and others for the same domain wait for it. If it is cancelled,
            // another one takes over.
            match self.answers.get_value_or_guard_async(&domain).await {
                Ok(answer) if answer.until >= begun => return answer.link(answers),
                Ok(_) => drop(self.answers.remove_if(&domain, |answer| answer.until < begun)),
                Err(guard) => {
                    let Some(answer) = self.ask(&domain, upstreams, last.clone()).await else {
                        // The next request for the domain asks in the turn of its own client.
                        drop(guard);
                        self.metrics.failed.inc();
                        let link = Err((ErrorKind::Unavailable, failed(&domain, &self.overload())));
                        return Answer { link, until: Instant::now(), last }.link(answers);
                    };
                    let answer = Arc::new(answer);
                    // Fails if the entry was removed in the meantime; the result is then not cached.
                    let _ = guard.insert(Arc::clone(&answer));
                    return answer.link(answers);
                }
            }
        }
    }

    /// Returns the resolvers for a domain, or `None` if DNS must not be queried. A resolver that is configured for a
    /// suffix is queried even if the suffix is not public.
    fn upstreams_of(&self, domain: &str) -> Option<&[Upstream]> {
        if !self.config.enabled {
            return None;
        }
        let special = self.by_suffix.iter().find(|(suffix, _)| domain.ends_with(suffix.as_str()));
        match special {
            Some((_, upstreams)) => Some(upstreams),
            None => domain::is_public(domain).then_some(&self.upstreams),
        }
    }

    /// Looks up the link of a domain, within the configured timeout. `last` is served if the lookup fails. Returns
    /// `None` if the client gets no turn in this time.
    async fn ask(&self, domain: &str, upstreams: &[Upstream], last: Option<LastLink>) -> Option<Answer> {
        let deadline = Instant::now() + self.config.time_limit();
        let _turn = timeout_at(deadline, self.lookups.take(current_client())).await.ok()?;
        let left = deadline.saturating_duration_since(Instant::now());
        let queried = ask_upstreams(domain, upstreams, deadline).await;
        // A timeout is attributed to the resolver only if it had most of the time.
        let is_cut = matches!(&queried, Err(e) if e.kind() == ErrorKind::Timeout);
        let is_overloaded = is_cut && left < self.config.time_limit() / 2;
        let queried = if is_overloaded { Err(self.overload()) } else { queried };
        let (link, ttl) = match queried {
            Ok((Some(target), ttl)) => (Ok(Some(target)), self.config.ttl(ttl)),
            Ok((None, ttl)) => (Ok(None), self.config.negative_ttl(ttl)),
            Err(e) => {
                let message = failed(domain, &e);
                let ttl = match &last {
                    Some(_) => STALE_TTL,
                    // The resolvers may be healthy, so the next request queries them.
                    None if is_overloaded => Duration::ZERO,
                    None => FAILURE_TTL,
                };
                (Err((e.kind(), message)), ttl)
            }
        };
        let outcome = match &link {
            Ok(Some(_)) => &self.metrics.found,
            Ok(None) => &self.metrics.none,
            Err((ErrorKind::Timeout, _)) => &self.metrics.timed_out,
            Err(_) => &self.metrics.failed,
        };
        outcome.inc();
        let last = last.filter(|_| link.is_err());
        let end = last.as_ref().map_or(Instant::now() + ttl, |last| last.end.min(Instant::now() + ttl));
        Some(Answer { link, until: end, last })
    }

    /// Returns the error of a lookup that spent most of its time waiting for a permit.
    fn overload(&self) -> Error {
        let (most, seconds) = (self.config.max_lookups, self.config.timeout_seconds);
        let what = format!(
            "too many other domains are being looked up, for all clients or for this one (dns.max_lookups = {most})"
        );
        Error::new(ErrorKind::Unavailable, format!("{what}, and this one waited for most of {seconds} s: try again"))
    }

    /// Updates the gauge of the memory that cached lookups take.
    pub(super) fn measure(&self) {
        self.metrics
            .answers
            .bytes
            .set(i64::try_from(self.answers.len()).unwrap_or(i64::MAX).saturating_mul(ENTRY_BYTES));
    }
}

/// Returns the link of a domain and its time to live. The records of `_dnslink.{domain}` take precedence; those of
/// the domain itself are queried only if the former contain no link. If the first query fails, it is unknown whether
/// they do, so the second query is not sent.
async fn ask_upstreams(domain: &str, upstreams: &[Upstream], deadline: Instant) -> Result<(Option<String>, Duration)> {
    let mut shortest = Duration::MAX;
    for name in [format!("{}{domain}.", domain::PREFIX), format!("{domain}.")] {
        let name =
            Name::from_ascii(&name).map_err(|e| Error::invalid(format!("{name:?} is not a domain name: {e}")))?;
        let texts = texts_of(&name, upstreams, deadline).await?;
        if let Some(target) = link_of(domain, texts.texts.iter().map(Vec::as_slice)) {
            return Ok((Some(target), texts.ttl));
        }
        shortest = shortest.min(texts.ttl);
    }
    Ok((None, shortest))
}

/// Returns the TXT records of `name` from the first resolver that responds. The remaining time is divided equally
/// among the remaining resolvers.
async fn texts_of(name: &Name, upstreams: &[Upstream], deadline: Instant) -> Result<Texts> {
    let mut failure = None;
    for (at, upstream) in upstreams.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(upstreams.len() - at).unwrap_or(u32::MAX);
        let error = match timeout_at(Instant::now() + share, upstream.texts(name)).await {
            Ok(Ok(texts)) => return Ok(texts),
            Ok(Err(error)) => error,
            Err(_) => Error::new(ErrorKind::Timeout, format!("{} did not respond in time", upstream.address)),
        };
        tracing::debug!(%name, %error, "a resolver failed");
        failure = Some(error);
    }
    Err(failure.unwrap_or_else(|| Error::internal("there is no resolver")))
}
