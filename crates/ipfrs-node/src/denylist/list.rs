//! A denylist in memory, and its parser.
//!
//! A rule takes 20 bytes: a 16-byte fingerprint of its target and 4 bytes for its line. Lists of hundreds of
//! thousands of rules are common, and almost all of their rules are hashes. Text is stored only for prefixes and
//! hints.

use std::collections::HashMap;
use std::io::{BufRead, Read};

use ipfrs_core::hash::HashFunction;
use ipfrs_core::{Error, Multihash, Result};

use super::header::Header;
use super::hints::Hints;
use super::rule::{Root, Rule, Target, without_slashes};
use crate::fingerprint::Fingerprints;

/// Maximum length of a header, in bytes. A list without `---` within this length has no header.
const MAX_HEADER_BYTES: u64 = 1024 * 1024;

/// Maximum length of a line including its end, in bytes.
const MAX_LINE_BYTES: u64 = 2 * 1024 * 1024;

/// Maximum number of lines: a line number is stored in 31 bits.
const MAX_LINES: u32 = 1 << 31;

/// Maximum number of malformed lines that are stored with their errors; the others are only counted.
const MAX_PROBLEMS: usize = 100;

/// A denylist in memory.
#[derive(Debug, Default)]
pub(crate) struct List {
    header: Header,
    /// Fingerprints of the rule targets, sorted: see [`Question::about`].
    keys: Vec<u128>,
    /// The rule for each of `keys`.
    rules: Vec<Verdict>,
    /// Prefix rules, sorted by root and then by line.
    prefixes: Vec<Prefix>,
    /// The lines that have hints of their own, sorted, each with its index in `hints`.
    hinted: Vec<(u32, u32)>,
    hints: Vec<Hints>,
    /// The hash functions that the double hashes use.
    functions: Vec<HashFunction>,
    has_legacy: bool,
    /// Number of lines that are not rules.
    malformed: u64,
    problems: Vec<(u32, Error)>,
    count: u64,
}

/// The line of a rule, and whether the rule allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Verdict(u32);

impl Verdict {
    fn new(line: u32, is_allow: bool) -> Self {
        Self(line << 1 | u32::from(is_allow))
    }

    pub(crate) fn line(self) -> u32 {
        self.0 >> 1
    }

    pub(crate) fn is_allow(self) -> bool {
        self.0 & 1 == 1
    }
}

#[derive(Debug)]
struct Prefix {
    /// Fingerprint of the root.
    key: u128,
    text: Box<[u8]>,
    verdict: Verdict,
}

/// A query for the rules that can apply to one root, or to one path below it.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    about: u128,
    root: u128,
    path: &'a [u8],
    doubles: Vec<u128>,
}

impl<'a> Question<'a> {
    /// Creates a query for a path below `root`; an empty path means the root itself.
    pub(crate) fn new(fingerprints: &Fingerprints, root: &Root<'_>, path: &'a [u8], double: &DoubleHashes) -> Self {
        let path = without_slashes(path);
        let hashed = |function: HashFunction, text: Vec<u8>| {
            let hash = function.digest(&text).ok()?;
            Some(about_hash(fingerprints, &hash))
        };
        let modern = double.functions.iter().filter_map(|function| hashed(*function, root.modern(path)));
        let legacy = double.has_legacy.then(|| hashed(HashFunction::Sha2_256, root.legacy(path))).flatten();
        let of_root = about(fingerprints, root, b"");
        let about = if path.is_empty() { of_root } else { about(fingerprints, root, path) };
        Self { about, root: of_root, path, doubles: modern.chain(legacy).collect() }
    }
}

/// The hashes that a query must compute to match the double hashes of some lists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DoubleHashes {
    functions: Vec<HashFunction>,
    has_legacy: bool,
}

impl DoubleHashes {
    pub(crate) fn of<'a>(lists: impl Iterator<Item = &'a List>) -> Self {
        let mut all = Self::default();
        for list in lists {
            all.has_legacy |= list.has_legacy;
            let new: Vec<_> = list.functions.iter().filter(|function| !all.functions.contains(function)).collect();
            all.functions.extend(new);
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty() && !self.has_legacy
    }
}

/// Returns the fingerprint of a root with a path.
fn about(fingerprints: &Fingerprints, root: &Root<'_>, path: &[u8]) -> u128 {
    let hashed =
        |kind: &[u8], hash: &Multihash| fingerprints.parts(&[kind, &hash.code().to_le_bytes(), hash.digest(), path]);
    match root {
        Root::Content(cid) => hashed(b"ipfs", cid.hash()),
        Root::Key(cid) => hashed(b"ipns", cid.hash()),
        Root::Domain(domain) => fingerprints.parts(&[b"domain", domain.as_bytes(), path]),
    }
}

fn about_hash(fingerprints: &Fingerprints, hash: &Multihash) -> u128 {
    fingerprints.parts(&[b"double", &hash.code().to_le_bytes(), hash.digest()])
}

impl List {
    /// Parses a denylist. Queries must use the same `fingerprints`. Takes about a microsecond per rule, so it must
    /// not run on a runtime worker.
    ///
    /// # Errors
    /// The error of the reader; [`ErrorKind::InvalidInput`](ipfrs_core::ErrorKind) for an invalid header, and if
    /// there are lines but no rules; [`ErrorKind::Unsupported`](ipfrs_core::ErrorKind) for another version of the
    /// format; [`ErrorKind::TooLarge`](ipfrs_core::ErrorKind) for a line of more than 2 MiB, or too many lines.
    /// Malformed lines in a list that also has rules are not errors; the rules take effect.
    pub(crate) fn read(mut content: impl BufRead + std::io::Seek, fingerprints: &Fingerprints) -> Result<Self> {
        let mut list = Self::default();
        let mut line = 0;
        match read_header(&mut content)? {
            Some((header, lines)) => (list.header, line) = (header, lines),
            None => content.rewind().map_err(|e| Error::io("it cannot be read twice", e))?,
        }
        let mut reading = Reading { list, fingerprints, entries: Vec::new(), known_hints: HashMap::new() };
        let mut text = Vec::new();
        loop {
            text.clear();
            let bytes_read = (&mut content).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut text);
            if bytes_read.map_err(|e| Error::io("it cannot be read", e))? == 0 {
                return reading.finish().reject_without_rules();
            }
            line += 1;
            if text.len() as u64 > MAX_LINE_BYTES || line >= MAX_LINES {
                let why = format!("line {line} has more than 2 MiB, or there are too many lines");
                return Err(Error::too_large(why));
            }
            reading.line(line, &text);
        }
    }

    /// Rejects a file without any rule, so that an error page or a list in another format cannot replace rules that
    /// block.
    fn reject_without_rules(self) -> Result<Self> {
        match (self.count, self.problems.first()) {
            (0, Some((line, why))) => {
                Err(Error::invalid(format!("it is not a denylist: it has no valid rule (line {line}: {why})")))
            }
            _ => Ok(self),
        }
    }

    /// Returns the name from the header; empty if it has none.
    pub(crate) fn name(&self) -> &str {
        &self.header.name
    }

    /// Returns the number of rules.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of lines that are not rules.
    pub(crate) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// Returns the first malformed lines, with their errors.
    pub(crate) fn problems(&self) -> &[(u32, Error)] {
        &self.problems
    }

    /// Same as [`problems`](Self::problems), but consumes the list.
    pub(crate) fn into_problems(self) -> Vec<(u32, Error)> {
        self.problems
    }

    /// Returns the hints of a line, with missing ones taken from the header.
    pub(crate) fn hints(&self, line: u32) -> Hints {
        let own = self.hinted.binary_search_by_key(&line, |(line, _)| *line).ok();
        let own = own.and_then(|at| self.hints.get(self.hinted[at].1 as usize));
        own.map_or_else(|| self.header.hints.clone(), |own| own.or(&self.header.hints))
    }

    /// Returns the last rule that matches.
    pub(crate) fn find(&self, question: &Question<'_>) -> Option<Verdict> {
        let exact = std::iter::once(&question.about).chain(&question.doubles).filter_map(|key| self.at(*key));
        exact.chain(self.by_prefix(question)).max()
    }

    fn at(&self, key: u128) -> Option<Verdict> {
        Some(self.rules[self.keys.binary_search(&key).ok()?])
    }

    fn by_prefix(&self, question: &Question<'_>) -> Option<Verdict> {
        let first = self.prefixes.partition_point(|prefix| prefix.key < question.root);
        let of_root = self.prefixes[first..].iter().take_while(|prefix| prefix.key == question.root);
        of_root.filter(|prefix| question.path.starts_with(&prefix.text)).map(|prefix| prefix.verdict).max()
    }
}

/// Returns the header and its number of lines, or `None` if there is none and the content must be read from its
/// start.
fn read_header(content: &mut impl BufRead) -> Result<Option<(Header, u32)>> {
    let mut start = content.take(MAX_HEADER_BYTES);
    let (mut yaml, mut lines) = (Vec::new(), 0);
    loop {
        let begin = yaml.len();
        let bytes_read = start.read_until(b'\n', &mut yaml).map_err(|e| Error::io("it cannot be read", e))?;
        if bytes_read == 0 {
            return Ok(None);
        }
        lines += 1;
        if yaml[begin..].trim_ascii_end() == b"---" {
            yaml.truncate(begin);
            break;
        }
    }
    let yaml = str::from_utf8(&yaml).map_err(|e| Error::invalid(format!("its header is not UTF-8: {e}")))?;
    let header = Header::parse(yaml).map_err(|e| Error::new(e.kind(), format!("its header is invalid: {e}")))?;
    Ok(Some((header, lines)))
}

/// A list that is being parsed.
struct Reading<'a> {
    list: List,
    fingerprints: &'a Fingerprints,
    entries: Vec<(u128, Verdict)>,
    /// The texts of hints seen so far, with their index in the hints of the list.
    known_hints: HashMap<String, u32>,
}

impl Reading<'_> {
    fn line(&mut self, line: u32, text: &[u8]) {
        let rule = match str::from_utf8(text) {
            Ok(text) => Rule::parse(text).map(|rule| rule.map(|rule| (rule, text))),
            Err(e) => Err(Error::invalid(format!("it is not UTF-8: {e}"))),
        };
        match rule {
            Ok(Some((rule, text))) => self.rule(line, rule, text),
            Ok(None) => {}
            Err(error) => {
                self.list.malformed += 1;
                if self.list.problems.len() < MAX_PROBLEMS {
                    self.list.problems.push((line, error));
                }
            }
        }
    }

    fn rule(&mut self, line: u32, rule: Rule, text: &str) {
        let verdict = Verdict::new(line, rule.is_allow);
        self.list.count += 1;
        match rule.target {
            Target::Path { root, path } => self.entries.push((about(self.fingerprints, &root, &path), verdict)),
            Target::Prefix { root, prefix } => {
                let key = about(self.fingerprints, &root, b"");
                self.list.prefixes.push(Prefix { key, text: prefix.into(), verdict });
            }
            Target::DoubleHash { hash, is_legacy } => {
                self.entries.push((about_hash(self.fingerprints, &hash), verdict));
                match HashFunction::from_code(hash.code()) {
                    _ if is_legacy => self.list.has_legacy = true,
                    Ok(function) if !self.list.functions.contains(&function) => self.list.functions.push(function),
                    _ => {}
                }
            }
        }
        if !rule.hints.is_empty() {
            // Lists repeat the same reasons, so each distinct text is stored once.
            let words = text.split_once(|c: char| c.is_ascii_whitespace()).map_or("", |(_, words)| words).trim();
            let next = self.list.hints.len() as u32;
            let which = *self.known_hints.entry(words.to_owned()).or_insert(next);
            if which == next {
                self.list.hints.push(rule.hints);
            }
            self.list.hinted.push((line, which));
        }
    }

    fn finish(mut self) -> List {
        // The last of several rules with the same target takes precedence.
        self.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        self.entries.dedup_by_key(|(key, _)| *key);
        let list = &mut self.list;
        list.keys = self.entries.iter().map(|(key, _)| *key).collect();
        list.rules = self.entries.iter().map(|(_, verdict)| *verdict).collect();
        list.prefixes.sort_by_key(|prefix| prefix.key);
        list.prefixes.shrink_to_fit();
        list.hinted.shrink_to_fit();
        list.hints.shrink_to_fit();
        self.list
    }
}
