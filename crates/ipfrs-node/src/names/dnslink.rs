//! DNSLink (dnslink.io): the content path that a domain links to, by configuration or by a TXT record.

mod config;
mod domain;
mod https;
mod metrics;
mod record;
mod system;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::proto::rr::Name;
use ipfrs_core::{Error, ErrorKind, Result};
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

pub use config::{DnsConfig, ResolverList};
pub(crate) use domain::ascii_domain;
pub(crate) use metrics::LookupMetrics;
use record::{configured, link_of};
use upstream::{Texts, Upstream};

use crate::Node;

/// How long an answer holds that the configuration gives. It changes with the next start only, but then at once.
const CONFIGURED_TTL: Duration = Duration::from_secs(60);
/// How long a failure is remembered: long enough to spare a resolver that is down, short enough for nobody to notice.
const FAILURE_TTL: Duration = Duration::from_secs(3);
/// What an answer takes in memory, about.
const ENTRY_BYTES: i64 = 384;

/// Which answers of DNS serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answers {
    /// Also those that are kept from before, for as long as they hold.
    #[default]
    Kept,
    /// New ones only. They are kept for others.
    New,
}

/// Where a domain leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// A content path: `/ipfs/{CID}/...` or `/ipns/{name}/...`, without a slash at the end.
    pub target: String,
    /// How long this holds.
    pub ttl: Duration,
}

/// Checks links as they are configured.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] names the entry and what is wrong with it.
pub(crate) fn check_configured(links: &BTreeMap<String, String>) -> Result<()> {
    configured(links).map(drop)
}

/// How long a link that has expired is served before the resolvers are asked again (RFC 8767, 5).
const STALE_TTL: Duration = Duration::from_secs(30);

/// What was found out about a domain.
#[derive(Debug)]
struct Answer {
    link: Result<Option<String>, (ErrorKind, String)>,
    until: Instant,
    /// Link that was found before a failure: served in place of the failure, since the domain most likely leads there
    /// still.
    last: Option<LastLink>,
}

/// A link that has expired.
#[derive(Debug, Clone)]
struct LastLink {
    target: String,
    /// When it may not be served any more.
    end: Instant,
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
        // In whole seconds, as DNS and HTTP count: a TTL of 300 is not 299 a moment later.
        let ttl = Duration::from_secs(left.as_secs() + u64::from(left.subsec_nanos() > 0));
        Link { target: target.to_owned(), ttl }
    }

    /// The link to serve where the next lookup fails, for `most` after its TTL.
    fn last(&self, most: Duration) -> Option<LastLink> {
        match &self.link {
            Ok(target) => target.as_ref().map(|target| LastLink { target: target.clone(), end: self.until + most }),
            Err(_) => self.last.clone(),
        }
    }
}

/// What is known of the links of domains, and whom to ask about others.
#[derive(Debug)]
pub(crate) struct Dnslink {
    configured: BTreeMap<String, String>,
    config: DnsConfig,
    upstreams: Vec<Upstream>,
    /// By the end of a domain, with the dot before it; the longest first.
    by_suffix: Vec<(String, Vec<Upstream>)>,
    answers: Cache<String, Arc<Answer>>,
    /// One permit for each domain that is asked about.
    turns: Semaphore,
    metrics: LookupMetrics,
}

impl Dnslink {
    pub(crate) fn new(links: &BTreeMap<String, String>, config: &DnsConfig, metrics: LookupMetrics) -> Result<Self> {
        let upstreams = |list: &ResolverList| -> Result<Vec<_>> {
            list.0.iter().map(|address| Upstream::new(address, config.time_limit())).collect()
        };
        let mut by_suffix = Vec::new();
        for (suffix, list) in &config.suffix_resolvers {
            by_suffix.push((format!(".{}", ascii_domain(suffix)?), upstreams(list)?));
        }
        by_suffix.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        Ok(Self {
            configured: configured(links)?,
            upstreams: upstreams(&config.resolvers)?,
            by_suffix,
            answers: Cache::new(config.max_cache_entries),
            turns: Semaphore::new(config.max_lookups),
            config: config.clone(),
            metrics,
        })
    }

    /// Where `domain` leads; `None` where it has no DNSLink.
    ///
    /// # Errors
    /// As [`Node::dnslink`].
    pub(crate) async fn lookup(&self, domain: &str, answers: Answers) -> Result<Option<Link>> {
        if domain::is_address(domain) {
            return Ok(None);
        }
        let domain = ascii_domain(domain)?;
        if let Some(target) = self.configured.get(&domain) {
            return Ok(Some(Link { target: target.clone(), ttl: CONFIGURED_TTL }));
        }
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
            // Not the place of one that is on its way: that one is new.
            drop(self.answers.remove_if(&domain, |_| true));
        }
        self.metrics.answers.misses.inc();
        // What was asked since then is good enough, though it may not be kept: else those who waited would ask in turn.
        let begun = Instant::now();
        loop {
            // One request asks, others about the same domain wait for its answer; if it goes away, another one asks.
            match self.answers.get_value_or_guard_async(&domain).await {
                Ok(answer) if answer.until >= begun => return answer.link(answers),
                Ok(_) => drop(self.answers.remove_if(&domain, |answer| answer.until < begun)),
                Err(guard) => {
                    let answer = Arc::new(self.ask(&domain, upstreams, last).await);
                    // It fails where the domain was removed meanwhile: then it is not kept.
                    let _ = guard.insert(Arc::clone(&answer));
                    return answer.link(answers);
                }
            }
        }
    }

    /// Whom to ask about a domain; `None` where nobody is to be asked. A resolver that is configured for an ending knows
    /// it, though it may not be public.
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

    /// Asks for the link of a domain, within the time that a lookup has. `last` is served where that fails.
    async fn ask(&self, domain: &str, upstreams: &[Upstream], last: Option<LastLink>) -> Answer {
        let deadline = Instant::now() + self.config.time_limit();
        let mut is_overloaded = true;
        let asked = match timeout_at(deadline, self.turns.acquire()).await {
            Ok(Ok(_permit)) => {
                let left = deadline.saturating_duration_since(Instant::now());
                let asked = ask_upstreams(domain, upstreams, deadline).await;
                // A resolver is to blame for silence only if it had most of the time.
                let is_cut = matches!(&asked, Err(e) if e.kind() == ErrorKind::Timeout);
                is_overloaded = is_cut && left < self.config.time_limit() / 2;
                asked
            }
            _ => Err(Error::internal("no permit")),
        };
        let asked = if is_overloaded { Err(self.overload()) } else { asked };
        let (link, ttl) = match asked {
            Ok((Some(target), ttl)) => (Ok(Some(target)), self.config.ttl(ttl)),
            Ok((None, ttl)) => (Ok(None), self.config.negative_ttl(ttl)),
            Err(e) => {
                let message = format!("the DNSLink of {domain} could not be looked up: {e}");
                let ttl = match &last {
                    Some(_) => STALE_TTL,
                    // The resolvers may be well: the next request asks them.
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
        Answer { link, until: end, last }
    }

    /// The error of a lookup that waited for a permit for most of its time.
    fn overload(&self) -> Error {
        let (most, seconds) = (self.config.max_lookups, self.config.timeout_seconds);
        let what = format!("{most} other domains are being looked up (dns.max_lookups = {most})");
        Error::new(ErrorKind::Unavailable, format!("{what}, and this one waited for most of {seconds} s: try again"))
    }

    /// Brings the gauge of what the answers take in memory up to date.
    pub(crate) fn measure(&self) {
        self.metrics
            .answers
            .bytes
            .set(i64::try_from(self.answers.len()).unwrap_or(i64::MAX).saturating_mul(ENTRY_BYTES));
    }
}

/// The link of a domain, and how long that holds: by the records of `_dnslink.{domain}`, and where these give none, by the
/// domain's own. A failure to get the former says nothing of them, so the latter are not asked for then.
async fn ask_upstreams(domain: &str, upstreams: &[Upstream], deadline: Instant) -> Result<(Option<String>, Duration)> {
    let mut shortest = Duration::MAX;
    for name in [format!("{}{domain}.", domain::PREFIX), format!("{domain}.")] {
        let name = Name::from_ascii(&name).map_err(|e| Error::invalid(format!("{name:?} is no domain name: {e}")))?;
        let texts = texts_of(&name, upstreams, deadline).await?;
        if let Some(target) = link_of(domain, texts.texts.iter().map(Vec::as_slice)) {
            return Ok((Some(target), texts.ttl));
        }
        shortest = shortest.min(texts.ttl);
    }
    Ok((None, shortest))
}

/// The TXT records of `name`, of the first resolver that answers. Each has an equal part of the time that is left.
async fn texts_of(name: &Name, upstreams: &[Upstream], deadline: Instant) -> Result<Texts> {
    let mut failure = None;
    for (at, upstream) in upstreams.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(upstreams.len() - at).unwrap_or(u32::MAX);
        let error = match timeout_at(Instant::now() + share, upstream.texts(name)).await {
            Ok(Ok(texts)) => return Ok(texts),
            Ok(Err(error)) => error,
            Err(_) => Error::new(ErrorKind::Timeout, format!("{} did not answer in time", upstream.address)),
        };
        tracing::debug!(%name, %error, "a resolver failed");
        failure = Some(error);
    }
    Err(failure.unwrap_or_else(|| Error::internal("there is no resolver")))
}

impl Node {
    /// Where the DNSLink of `domain` leads; `None` where it has none. The answer comes from the configuration, from
    /// memory, or from DNS, which is never asked about addresses and local names.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for what is no domain name; [`ErrorKind::Timeout`] and [`ErrorKind::Unavailable`] where
    /// no resolver answers, with the domain and the resolver.
    pub async fn dnslink(&self, domain: &str) -> Result<Option<Link>> {
        self.inner.dnslink.lookup(domain, Answers::Kept).await
    }
}
