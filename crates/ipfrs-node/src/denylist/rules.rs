//! The rules in force, and the decision about a block, path or name.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipfrs_core::{Cid, Error, Multihash, Result, parse_cid};
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;
use tokio::task::JoinHandle;

use super::list::{DoubleHashes, List, Question, Verdict};
use super::metrics::DenylistMetrics;
use super::rule::Root;
use super::watched::Watched;
use crate::fingerprint::{ByItself, Fingerprints};

/// Maximum number of blocks whose verdicts are cached, about 4 MB. Only used if each verdict costs a cryptographic
/// hash.
const MAX_VERDICTS: usize = 64 * 1024;

/// The rules in force. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Denylists(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: RwLock<Arc<Rules>>,
    /// Number of times that the rules were replaced.
    pub(super) generation: AtomicU64,
    pub(super) fingerprints: Fingerprints,
    /// Files and directories, as configured. They change with `watched`, whose lock is taken first.
    pub(super) sources: RwLock<Vec<PathBuf>>,
    /// The files in the order of their rules.
    pub(super) watched: Mutex<Vec<Watched>>,
    pub(super) metrics: DenylistMetrics,
    pub(super) watching: Mutex<Option<JoinHandle<()>>>,
}

/// The rules of all lists at one point in time.
#[derive(Debug, Default)]
pub(super) struct Rules {
    /// The lists in configuration order; later ones take precedence.
    lists: Vec<Named>,
    double: DoubleHashes,
    /// Cached verdicts on blocks; only used if there are double hashes.
    verdicts: Option<Cache<u128, Option<Found>, quick_cache::UnitWeighter, ByItself>>,
}

#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) path: PathBuf,
    pub(super) list: Arc<List>,
}

/// A matching rule and the list that contains it.
#[derive(Debug, Clone, Copy)]
struct Found {
    list: usize,
    verdict: Verdict,
}

impl Rules {
    pub(super) fn new(lists: Vec<Named>) -> Self {
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
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    pub(super) fn rules(&self) -> Arc<Rules> {
        self.0.rules.read().clone()
    }

    /// Replaces the rules.
    pub(super) fn exchange(&self, lists: Vec<Named>) {
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
    pub(super) fn check_path(&self, root: &Root<'_>, path: &[u8], kind: Kind, what: &dyn fmt::Display) -> Result<()> {
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
    pub(super) fn name(&self) -> Cow<'_, str> {
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
