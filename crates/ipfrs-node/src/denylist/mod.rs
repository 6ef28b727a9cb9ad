//! What is not served: denylists in the compact format (<https://specs.ipfs.tech/compact-denylist-format/>, IPIP-383).
//!
//! * `/ipfs/CID` blocks a block by its multihash, wherever somebody would be given it: [`Guarded`] is the store as
//!   everything sees it that reads for somebody. Collections, pins and verification see the store itself.
//! * Rules with a path block a path before it is followed, `/ipns/` rules a name before it is resolved.
//! * The last rule that fits holds, of the last list that has one.

mod files;
mod guard;
mod header;
mod hints;
mod inspect;
mod list;
mod metrics;
mod rule;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipfrs_core::{Cid, Error, Multihash, Result, parse_cid};
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::task::JoinHandle;

pub(crate) use guard::Guarded;
pub use inspect::{DenylistReport, check_denylists, inspect_denylist};
use list::{DoubleHashes, List, Question, Verdict};
pub(crate) use metrics::DenylistMetrics;
pub(crate) use rule::Root;

use crate::fingerprint::{ByItself, Fingerprints};
use crate::{ContentPath, LinkName, NameRoot, Node};

/// Blocks whose verdicts are kept where these cost a cryptographic hash each, some 4 MB.
const MAX_VERDICTS: usize = 64 * 1024;

/// The rules in force. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct Denylists(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: RwLock<Arc<Rules>>,
    /// How often the rules were exchanged.
    generation: AtomicU64,
    fingerprints: Fingerprints,
    /// Files, and directories of them, as the configuration names them.
    sources: Vec<PathBuf>,
    metrics: DenylistMetrics,
    watching: Mutex<Option<JoinHandle<()>>>,
}

/// The rules of all lists at one time.
#[derive(Debug, Default)]
struct Rules {
    /// Later ones are asked first.
    lists: Vec<Named>,
    double: DoubleHashes,
    /// What was found about blocks; only where there are double hashes.
    verdicts: Option<Cache<u128, Option<Found>, quick_cache::UnitWeighter, ByItself>>,
}

#[derive(Debug, Clone)]
struct Named {
    path: PathBuf,
    list: Arc<List>,
}

/// A rule that fits: of which list, and which.
#[derive(Debug, Clone, Copy)]
struct Found {
    list: usize,
    verdict: Verdict,
}

impl Rules {
    fn new(lists: Vec<Named>) -> Self {
        let double = DoubleHashes::of(lists.iter().map(|named| &*named.list));
        let verdicts = || {
            Cache::with(MAX_VERDICTS, MAX_VERDICTS as u64, Default::default(), Default::default(), Default::default())
        };
        Self { verdicts: (!double.is_empty()).then(verdicts), lists, double }
    }

    /// The rule that decides, if any fits.
    fn find(&self, fingerprints: &Fingerprints, root: &Root<'_>, path: &[u8]) -> Option<Found> {
        let question = Question::new(fingerprints, root, path, &self.double);
        let lists = self.lists.iter().enumerate().rev();
        lists.into_iter().find_map(|(list, named)| Some(Found { list, verdict: named.list.find(&question)? }))
    }

    /// The same for a block, from memory where it costs more than looking there.
    fn find_block(&self, fingerprints: &Fingerprints, cid: &Cid) -> Option<Found> {
        let find = || self.find(fingerprints, &Root::Content(*cid), b"");
        let Some(verdicts) = &self.verdicts else { return find() };
        // Legacy double hashes are of a codec, too.
        let hash = cid.hash();
        let key = fingerprints.parts(&[&cid.codec().to_le_bytes(), &hash.code().to_le_bytes(), hash.digest()]);
        if let Some(found) = verdicts.get(&key) {
            return found;
        }
        let found = find();
        verdicts.insert(key, found);
        found
    }
}

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Path,
    Name,
}

impl Denylists {
    /// A number that changes when the rules do: what was decided before may not hold.
    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn rules(&self) -> Arc<Rules> {
        self.0.rules.read().clone()
    }

    /// Puts other rules in force.
    fn exchange(&self, lists: Vec<Named>) {
        *self.0.rules.write() = Arc::new(Rules::new(lists));
        // After the rules: whoever reads the new number before deciding decides by the new rules.
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Refuses a block that is blocked.
    ///
    /// # Errors
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind), or [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) where the list
    /// says so, names the block, the list and the reason that it gives.
    pub(crate) fn check_block(&self, cid: &Cid) -> Result<()> {
        let rules = self.rules();
        match rules.find_block(&self.0.fingerprints, cid) {
            Some(found) if !found.verdict.is_allow() && !is_harmless(cid.hash()) => {
                Err(self.refuse(&rules, found, Kind::Block, cid))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a path below a root that is blocked; what it leads to is another matter.
    fn check_path(&self, root: &Root<'_>, path: &[u8], kind: Kind, what: &dyn fmt::Display) -> Result<()> {
        let rules = self.rules();
        match rules.find(&self.0.fingerprints, root, path) {
            Some(found) if !found.verdict.is_allow() => Err(self.refuse(&rules, found, kind, what)),
            _ => Ok(()),
        }
    }

    fn refuse(&self, rules: &Rules, found: Found, kind: Kind, what: &dyn fmt::Display) -> Error {
        self.0.metrics.blocked(kind);
        let named = &rules.lists[found.list];
        let (line, hints) = (found.verdict.line(), named.list.hints(found.verdict.line()));
        tracing::debug!(%what, list = %named.path.display(), line, "blocked");
        let reason = hints.reason().map(|reason| format!(", reason: {reason}")).unwrap_or_default();
        let message = format!("{what} is blocked and cannot be provided (denylist {}{reason})", named.name());
        Error::new(hints.error_kind(), message)
    }
}

impl Named {
    /// What the list calls itself, or its file's name.
    fn name(&self) -> Cow<'_, str> {
        match self.list.name() {
            "" => self.path.file_name().unwrap_or_default().to_string_lossy(),
            name => name.into(),
        }
    }
}

/// Empty blocks, files and directories, which are not blocked: no list can mean them, and much does not work without.
fn is_harmless(hash: &Multihash) -> bool {
    const HARMLESS: [&str; 7] = [
        "QmUNLLsPACCz1vLxQVkXqqLX5R1X345qqfHbsf67hvA3Nn",
        "bafyaabakaieac",
        "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
        "bafkqaaa",
        "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH",
        "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua",
        "baguqeeraiqjw7i2vwntyuekgvulpp2det2kpwt6cd7tx5ayqybqpmhfk76fa",
    ];
    HARMLESS.iter().any(|text| parse_cid(text).is_ok_and(|cid| cid.hash() == hash))
}

impl Node {
    /// A number that changes when the denylists do.
    pub(crate) fn denylist_generation(&self) -> u64 {
        self.inner.denylists.as_ref().map_or(0, Denylists::generation)
    }

    /// Refuses a block that a denylist blocks.
    ///
    /// # Errors
    /// As [`Denylists::check_block`].
    pub(crate) fn check_block(&self, cid: &Cid) -> Result<()> {
        self.inner.denylists.as_ref().map_or(Ok(()), |denylists| denylists.check_block(cid))
    }

    /// Refuses a path that a denylist blocks, before it is followed; else gives [`Self::denylist_generation`] from before.
    /// What a root alone leads to is a block.
    ///
    /// # Errors
    /// As [`Self::check_block`].
    pub(crate) fn check_path(&self, path: &ContentPath) -> Result<u64> {
        let Some(denylists) = &self.inner.denylists else { return Ok(0) };
        let generation = denylists.generation();
        if !path.segments().is_empty() {
            let below = joined(path.segments());
            denylists.check_path(&Root::Content(*path.root()), &below, Kind::Path, path)?;
        }
        Ok(generation)
    }

    /// Refuses a name that a denylist blocks, before it is resolved, and the path `below` it. A name that is blocked has no
    /// paths.
    ///
    /// # Errors
    /// As [`Self::resolve_name`](crate::Node::resolve_name) for a name that is blocked: [`ErrorKind::Gone`](ipfrs_core::ErrorKind) or
    /// [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind).
    pub fn check_name(&self, name: &NameRoot, below: &[LinkName]) -> Result<()> {
        let Some(denylists) = &self.inner.denylists else { return Ok(()) };
        let root = match name {
            NameRoot::Key(key) => Root::Key(key.cid()),
            NameRoot::Domain(domain) => Root::Domain(domain.into()),
        };
        denylists.check_path(&root, b"", Kind::Name, &format_args!("/ipns/{name}"))?;
        if below.is_empty() {
            return Ok(());
        }
        let below = joined(below);
        let shown = LinkName::from(&*below);
        denylists.check_path(&root, &below, Kind::Name, &format_args!("/ipns/{name}/{shown}"))
    }
}

/// Returns the names of a path with slashes between them.
fn joined(segments: &[LinkName]) -> Vec<u8> {
    segments.iter().map(LinkName::as_bytes).collect::<Vec<_>>().join(&b'/')
}
