//! Denylists in the compact format (<https://specs.ipfs.tech/compact-denylist-format/>, IPIP-383), which block
//! content from being served.
//!
//! * `/ipfs/CID` blocks a block by its multihash. All code that reads on behalf of clients uses [`Guarded`] instead
//!   of the store. Garbage collection, pins and verification use the store itself.
//! * Rules with a path are checked before the path is resolved, and `/ipns/` rules before the name is resolved.
//! * The last matching rule of the last list that has one takes precedence.

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

/// Maximum number of blocks whose verdicts are cached, about 4 MB. Only used if each verdict costs a cryptographic
/// hash.
const MAX_VERDICTS: usize = 64 * 1024;

/// The rules in force. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Denylists(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: RwLock<Arc<Rules>>,
    /// Number of times that the rules were replaced.
    generation: AtomicU64,
    fingerprints: Fingerprints,
    /// Files and directories, as configured.
    sources: Vec<PathBuf>,
    metrics: DenylistMetrics,
    watching: Mutex<Option<JoinHandle<()>>>,
}

/// The rules of all lists at one point in time.
#[derive(Debug, Default)]
struct Rules {
    /// The lists in configuration order; later ones take precedence.
    lists: Vec<Named>,
    double: DoubleHashes,
    /// Cached verdicts on blocks; only used if there are double hashes.
    verdicts: Option<Cache<u128, Option<Found>, quick_cache::UnitWeighter, ByItself>>,
}

#[derive(Debug, Clone)]
struct Named {
    path: PathBuf,
    list: Arc<List>,
}

/// A matching rule and the list that contains it.
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

    /// Returns the rule that takes precedence, if any matches.
    fn find(&self, fingerprints: &Fingerprints, root: &Root<'_>, path: &[u8]) -> Option<Found> {
        let question = Question::new(fingerprints, root, path, &self.double);
        let lists = self.lists.iter().enumerate().rev();
        lists.into_iter().find_map(|(list, named)| Some(Found { list, verdict: named.list.find(&question)? }))
    }

    /// Same as [`find`](Self::find) for a block, but uses the cache if a lookup costs a cryptographic hash.
    fn find_block(&self, fingerprints: &Fingerprints, cid: &Cid) -> Option<Found> {
        let find = || self.find(fingerprints, &Root::Content(*cid), b"");
        let Some(verdicts) = &self.verdicts else { return find() };
        // Legacy double hashes depend on the codec as well.
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

/// Kind of the refused item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Block,
    Path,
    Name,
}

impl Denylists {
    /// Returns a number that changes with the rules. Earlier decisions may be invalid after a change.
    fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    fn rules(&self) -> Arc<Rules> {
        self.0.rules.read().clone()
    }

    /// Replaces the rules.
    fn exchange(&self, lists: Vec<Named>) {
        *self.0.rules.write() = Arc::new(Rules::new(lists));
        // The number changes after the rules, so a thread that reads the new number decides by the new rules.
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Refuses a blocked block.
    ///
    /// # Errors
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind), or [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) if a hint
    /// says so. The message names the block, the list and its reason.
    pub(crate) fn check_block(&self, cid: &Cid) -> Result<()> {
        let rules = self.rules();
        match rules.find_block(&self.0.fingerprints, cid) {
            Some(found) if !found.verdict.is_allow() && !is_harmless(cid.hash()) => {
                Err(self.refuse(&rules, found, Kind::Block, cid))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a blocked path below a root. Does not check the content at the path.
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
    /// Returns the name of the list, or its file name if it has none.
    fn name(&self) -> Cow<'_, str> {
        match self.list.name() {
            "" => self.path.file_name().unwrap_or_default().to_string_lossy(),
            name => name.into(),
        }
    }
}

/// Whether this is the hash of an empty block, file or directory. These are never blocked: a list cannot intend it,
/// and much would fail without them.
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
    /// Returns a number that changes with the denylists.
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

    /// Refuses a path that a denylist blocks, before it is resolved. Otherwise returns [`Self::denylist_generation`]
    /// as it was before the check. A path without segments is checked as a block, not here.
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

    /// Refuses a name that a denylist blocks, before it is resolved, and the path `below` it. All paths below a
    /// blocked name are refused as well.
    ///
    /// # Errors
    /// [`ErrorKind::Gone`](ipfrs_core::ErrorKind) or [`ErrorKind::LegalReasons`](ipfrs_core::ErrorKind) for a blocked
    /// name or path, as in [`Self::resolve_name`](crate::Node::resolve_name).
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

/// Returns the names of a path, joined by slashes.
fn joined(segments: &[LinkName]) -> Vec<u8> {
    segments.iter().map(LinkName::as_bytes).collect::<Vec<_>>().join(&b'/')
}
